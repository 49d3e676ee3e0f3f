"""The command line against real brokers, as somebody types it."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ANGELIA = [sys.executable, "-m", "angelia"]


def run(*arguments, status=0, given="", **environment):
    """Run a command to its end; an error is one line, and never a traceback."""
    done = subprocess.run(
        [*ANGELIA, *map(str, arguments)],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "160", **environment},
    )
    assert done.returncode == status, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def error(*arguments, **more):
    """The one line that a command says that fails."""
    done = run(*arguments, status=1, **more)
    assert done.stdout == ""
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    return line


class Listener:
    """`angelia subscribe` in the background; it is subscribed once it is there."""

    def __init__(self, network, *arguments):
        self._process = subprocess.Popen(
            [*ANGELIA, "subscribe", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ANGELIA_BROKER": network[-1]},
        )
        self._timer = threading.Timer(60, self._process.kill)
        self._timer.start()
        time.sleep(0.1)

    def lines(self):
        out, errors = self._process.communicate()
        self._timer.cancel()
        assert self._process.returncode == 0, errors
        assert errors == ""
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("network")


@pytest.fixture(scope="module")
def network(place):
    """The addresses of a network that `up` has started and left running."""
    places = f"--dir={place}", f"--lake={place / 'lake'}"
    done = run("up", "--brokers=3", "--topology=line", "--port=0", "--detach", *places)
    assert done.stdout.startswith("3 brokers are up, the first on tcp://127.0.0.1:")
    try:
        yield [row["address"] for row in json.loads((place / "network.json").read_text())]
    finally:
        ended = run("down", f"--dir={place}")
    assert ended.stdout == "3 brokers have stopped\n"
    assert "no network is up" in error("status", f"--dir={place}")
    assert "no network is up" in error("down", f"--dir={place}")


def wait_for_interest(address, wanted):
    from angelia import connect_sync

    with connect_sync(address) as bus:
        deadline = time.monotonic() + 30
        while not bus.interest(wanted):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_status_is_a_table_of_the_brokers(network, place):
    table = run("status", f"--dir={place}").stdout
    for name, address in zip(("b1", "b2", "b3"), network, strict=True):
        (row,) = [
            line
            for line in table.splitlines()
            if line.startswith(name) and address.removeprefix("tcp://") in line
        ]
        assert "does not answer" not in row
    assert "a network is up already" in error("up", f"--dir={place}")


def test_publish_from_arguments_and_subscribe_with_count(network):
    listener = Listener(network, "flights.Quote: price < 500", "--count=2")
    wait_for_interest(network[0], "flights.Quote: true")
    at = ("--broker", network[0], "--type=flights.Quote")
    run("publish", "dest=DEN", "price=900", *at)
    run("publish", "dest=DEN", "price=420", "full=false", "when=t2026-01-01T00:00:00Z", 'code="7"', *at)
    run("publish", "price=1.5", "--source=feeds/united", "--subject=x", *at)
    first, second = listener.lines()
    stamps = {"@id", "@time", "@type"}
    assert {key: value for key, value in first.items() if key not in stamps} == {
        "dest": "DEN", "price": 420, "full": False, "when": "2026-01-01T00:00:00Z", "code": "7",
    }  # fmt: skip
    assert second["@source"] == "feeds/united"
    assert (second["@type"], second["@subject"], second["price"]) == ("flights.Quote", "x", 1.5)


def test_publish_json_lines_csv_and_parquet(network, tmp_path):
    listener = Listener(network, "exists n", "--count=10")
    wait_for_interest(network[0], "exists n")
    lines = '{"n": 0, "@id": "mine", "deep": {"er": [1, 2]}}\n\n{"n": 1, "@time": "2026-01-01T00:00:00Z"}\n'
    done = run("publish", given=lines, ANGELIA_BROKER=network[0])
    assert done.stderr.splitlines()[-1] == "2 events published"
    (tmp_path / "events.jsonl").write_text('{"n": 2}\n{"n": 3}\n')
    (tmp_path / "events.csv").write_text("n,name,late\n4,UA,true\n5,,false\n6,x,\n")
    table = pa.table({"n": [7, 8, 9], "name": ["a", None, "c"], "score": [0.5, 1.5, None]})
    pq.write_table(table, tmp_path / "events.parquet")
    for file, count in (("events.jsonl", 2), ("events.csv", 3), ("events.parquet", 3)):
        done = run("publish", "--file", tmp_path / file, "--broker", network[0], "--type=T")
        assert done.stderr.splitlines()[-1] == f"{count} events published"
    got = listener.lines()
    assert [event["n"] for event in got] == list(range(10))
    assert (got[0]["@id"], got[0]["deep.er"], got[1]["@time"]) == ("mine", [1, 2], "2026-01-01T00:00:00Z")
    assert (got[4]["name"], got[4]["late"], "name" in got[5]) == ("UA", True, False)
    assert (got[7]["score"], "name" in got[8], "score" in got[9]) == (0.5, False, False)
    assert {event.get("@type") for event in got[2:]} == {"T"}


def test_an_event_from_a_pipe_does_not_wait_for_those_after_it(network):
    """And a connection whose publisher has nothing to say for long is kept: the brokers' time-out is 6 s."""
    listener = Listener(network, "exists piped", "--count=1")
    wait_for_interest(network[0], "exists piped")
    publisher = subprocess.Popen(
        [*ANGELIA, "publish", "--broker", network[0]],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    publisher.stdin.write('{"piped": 1}\n')
    publisher.stdin.flush()
    assert [event["piped"] for event in listener.lines()] == [1]
    time.sleep(7)
    assert publisher.communicate('{"piped": 2}\n', timeout=30) == (None, "2 events published\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["publish", "--bogus"], "error: no such option: --bogus"),
        (["subscribe"], "error: missing argument 'FILTER'"),
        (["subscribe", "x=1", "--count=0"], "error: invalid value for '--count'"),
        (["frobnicate"], "error: no such command 'frobnicate'"),
    ],
)
def test_wrong_arguments_are_told_in_one_line_too(arguments, message):
    (line,) = run(*arguments, status=2).stderr.splitlines()
    assert line.startswith(message)
    assert line.endswith("--help")


def test_a_large_file_of_large_events_goes_in_several_frames(network, tmp_path):
    (tmp_path / "large.jsonl").write_text(
        "".join(json.dumps({"large": number, "load": "x" * 30_000}) + "\n" for number in range(100))
    )
    done = run("publish", "-f", tmp_path / "large.jsonl", "-b", network[0])
    assert done.stderr.splitlines()[-1] == "100 events published"


def test_subscribe_ends_after_some_seconds_and_prints_patterns_as_arrays(network):
    started = time.monotonic()
    listener = Listener(network, "step = 1 then step = 2", "--for=6")
    wait_for_interest(network[-1], "step = 1")
    run("publish", "-b", network[-1], given='{"step": 1}\n{"step": 2}\n')
    (pair,) = listener.lines()
    assert [event["step"] for event in pair] == [1, 2]
    assert time.monotonic() - started > 6


def test_subscribe_begins_in_the_past(network):
    run("publish", "-b", network[0], given='{"past": 1}\n{"past": 2}\n')
    listener = Listener(network, "past >= 2", "--since=2026-01-01T00:00:00Z", "--count=2")
    wait_for_interest(network[0], "past = 3")
    run("publish", "past=3", "-b", network[0])
    assert [event["past"] for event in listener.lines()] == [2, 3]
    assert "is not a timestamp" in error("subscribe", "past >= 2", "--since=2026", "-b", network[0])


def test_types_are_defined_listed_shown_and_enforced(network, tmp_path):
    schema = {
        "title": "cli.Sale",
        "type": "object",
        "properties": {"item": {"type": "string"}, "price": {"type": "number"}},
        "required": ["item", "price"],
    }
    (tmp_path / "sale.json").write_text(json.dumps(schema))
    defined = run("types", "define", tmp_path / "sale.json", "--name=cli.Sale", "-b", network[0])
    assert defined.stdout == "cli.Sale is defined\n"
    listed = run("types", "list", "-b", network[0]).stdout
    assert "cli.Sale" in listed
    assert "price: float" in listed
    shown = json.loads(run("types", "show", "cli.Sale", "-b", network[0]).stdout)
    assert set(shown["properties"]) >= {"item", "price"}
    refused = error("publish", "item=x", "price=dear", "--type=cli.Sale", "-b", network[0])
    assert "price" in refused
    assert "cli.Nothing" in error("types", "show", "cli.Nothing", "-b", network[0])
    assert run("types", "remove", "cli.Sale", "-b", network[0]).stdout == "cli.Sale is removed\n"
    assert "cli.Sale" not in run("types", "list", "-b", network[0]).stdout
    assert "unknown event type 'cli.Sale'" in error("types", "remove", "cli.Sale", "-b", network[0])


def test_explain_tells_which_constraint_failed(tmp_path):
    (tmp_path / "event.json").write_text('{"price": 600, "dest": "DEN"}')
    said = run("explain", 'price < 500 and dest = "DEN"', tmp_path / "event.json", status=1).stdout
    assert "price < 500" in said
    assert "✗" in said
    run("explain", 'dest = "DEN"', "-", given='{"dest": "DEN"}')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["publish", "price"], "'price' is no attribute; write it as name=value"),
        (["publish", "price=1", "--file=x.csv"], "give either one event as arguments, or a file"),
        (["publish", "@id=1"], "@id is no attribute; there are --type, --source and --subject"),
        (["publish", "x=1", "--type="], "type is empty; leave it out instead"),
        (["broker", "--listen=127.0.0.1:0", "--lake=/dev/null"], "cannot read /dev/null/types: "),
        (["broker", "--listen=127.0.0.1:0", "--lake=/proc/lake"], "cannot write to the lake /proc/lake: "),
        (["publish", "x=1", "x=2"], "the attribute 'x' is given twice"),
        (["publish", "-f", "."], "cannot read .: Is a directory"),
        (["publish", "--file=/nowhere.csv"], "cannot read /nowhere.csv: No such file or directory"),
        (["publish", "--file=/nowhere.parquet"], "/nowhere.parquet"),
        (["publish", "x=1", "--broker=tcp://127.0.0.1:1"], "cannot connect to tcp://127.0.0.1:1: "),
        (["publish", "x=1", "--broker=http://x"], "'http://x' is no address of a broker"),
        (["subscribe", "x=1", "--broker=tcp://127.0.0.1:1"], "cannot connect to tcp://127.0.0.1:1: "),
        (["subscribe", "x=1", "--for=-1"], "--for takes a number of seconds above 0"),
        (["types", "list", "--broker=tcp://127.0.0.1:1"], "cannot connect to tcp://127.0.0.1:1: "),
        (["types", "define", "/nowhere.json"], "cannot read /nowhere.json"),
        (["up", "--topology=ring"], "routing peer needs a network without cycles"),
        (["up", "--port=65534"], "5 ports from 65534 on: the last port is 65535"),
        (["up", "--topology=moebius"], "there is no topology 'moebius'; there are "),
        (["up", "--routing=magic"], "there is no routing 'magic'; there are "),
        (["explain", "x = 1", "/nowhere.json"], "cannot read /nowhere.json: No such file or directory"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_errors_are_one_clear_line(arguments, message, tmp_path):
    if arguments[0] == "up":
        arguments = [*arguments, f"--dir={tmp_path}"]
    assert message in error(*arguments)


def test_bad_rows_are_told_with_their_place_and_what_was_published_before(network, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"x": 1}\n{"x": \n')
    assert "line 2" in error("publish", "-f", tmp_path / "bad.jsonl", "-b", network[0])
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n3\n")
    said = error("publish", "-f", tmp_path / "bad.csv", "-b", network[0])
    assert "line 3: not as many values as there are columns" in said
    (tmp_path / "bad.parquet").write_text("no Parquet")
    assert "is not a Parquet file" in error("publish", "-f", tmp_path / "bad.parquet", "-b", network[0])
    rows = ['{"x": 1}'] * 600 + ["[]"]
    (tmp_path / "late.jsonl").write_text("\n".join(rows))
    said = error("publish", "-f", tmp_path / "late.jsonl", "-b", network[0])
    assert "line 601: an event is a JSON object" in said
    assert "600 events were published before" in said
    (tmp_path / "latin.jsonl").write_bytes(b'{"x": 1}\n{"x": "\xe9"}\n')
    assert "latin.jsonl, line 2: not valid UTF-8" in error(
        "publish", "-f", tmp_path / "latin.jsonl", "-b", network[0]
    )
    (tmp_path / "latin.csv").write_bytes(b"a,b\n1,\xe9\n")
    assert "not valid UTF-8" in error("publish", "-f", tmp_path / "latin.csv", "-b", network[0])
    (tmp_path / "twice.csv").write_text("a,b,a\n1,2,3\n")
    assert "the column 'a' is there twice" in error("publish", "-f", tmp_path / "twice.csv", "-b", network[0])
    (tmp_path / "twice.jsonl").write_text('{"a": 1, "a": 2}\n')
    assert "the member 'a' is there twice" in error(
        "publish", "-f", tmp_path / "twice.jsonl", "-b", network[0]
    )


def test_a_type_says_what_the_text_of_a_file_means(network, tmp_path):
    schema = {
        "title": "cli.Flight",
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "left": {"type": "string", "format": "date-time"},
            "delay": {"type": "number"},
        },
        "required": ["code", "left"],
    }
    (tmp_path / "flight.json").write_text(json.dumps(schema))
    run("types", "define", tmp_path / "flight.json", "-b", network[0])
    wanted = 'cli.Flight: left >= t"2026-01-01T00:00:00Z" and code prefix "0"'
    listener = Listener(network, wanted, "--count=5")
    wait_for_interest(network[0], "cli.Flight: true")
    at = ("--type=cli.Flight", "-b", network[0])
    run("publish", *at, given='{"code": "01", "left": "2026-01-01T00:00:00Z"}\n')
    (tmp_path / "f.csv").write_text("\ufeff@id,code,left,delay\n7,02,2026-01-02T00:00:00Z,5\n", "utf-8")
    run("publish", "-f", tmp_path / "f.csv", *at)
    run("publish", "code=03", "left=2026-01-03T00:00:00Z", *at)
    naive = pa.array([datetime(2026, 1, 4)], pa.timestamp("us"))
    pq.write_table(pa.table({"code": ["04"], "left": naive}), tmp_path / "f.parquet")
    run("publish", "-f", tmp_path / "f.parquet", *at)
    run("publish", "code=05", "left=t2026-01-05T00:00:00Z", *at)
    got = listener.lines()
    assert [event["code"] for event in got] == ["01", "02", "03", "04", "05"]
    assert [event["left"] for event in got] == [f"2026-01-0{day}T00:00:00Z" for day in range(1, 6)]
    assert (got[1]["@id"], got[1]["delay"]) == ("7", 5)
    (tmp_path / "bad.jsonl").write_text('{"code": "06", "left": "2026-01-06T00:00:00Z"}\n{"code": "07"}\n')
    said = error("publish", "-f", tmp_path / "bad.jsonl", *at)
    assert "bad.jsonl, line 2: not a valid cli.Flight: missing attribute 'left'" in said
    assert "1 events were published before" in said


def test_up_in_the_foreground_shows_a_table_and_ends_on_a_signal(tmp_path):
    process = subprocess.Popen(
        [*ANGELIA, "up", "--brokers=2", "--topology=star", "--port=0", f"--dir={tmp_path}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "network.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    pids = [row["pid"] for row in json.loads((tmp_path / "network.json").read_text())]
    assert process.stdout.readline().startswith("2 brokers are up")
    time.sleep(2)
    process.terminate()
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "all brokers have stopped" in out
    assert "published" in out
    assert "Traceback" not in errors
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_network_that_cannot_start_says_so_at_once_and_leaves_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        started = time.monotonic()
        said = error("up", "--brokers=2", f"--port={port - 1}", f"--dir={tmp_path}")
        assert "b2 did not start: cannot listen on" in said
        assert time.monotonic() - started < 25
    assert "no network is up" in error("status", f"--dir={tmp_path}")
    (tmp_path / "file").write_text("")
    assert "cannot write to" in error("up", f"--dir={tmp_path / 'file'}")
