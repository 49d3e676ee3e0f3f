"""The commands of the pipeline. Most share the session of the tests; one is a process of its own."""

import json
import subprocess
import sys
from datetime import timedelta

import pyarrow.parquet as pq
import pytest
from tests.pipeline.worlds import expected_pairs, quotes, subscriptions
from typer.testing import CliRunner

from angelia.errors import AngeliaError
from angelia.pipeline.cli import app
from angelia.store import LakeWriter


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli")
    events, filters = (
        quotes(200, step=timedelta(minutes=5)),
        subscriptions(30) | {"all": "true", "none": "x = 1"},
    )
    with LakeWriter(path / "lake", "b1", background=False) as writer:
        for start in (0, 100):
            writer.append(events[start : start + 100])
            writer.roll()
    lines = (json.dumps({"id": i, "filter": f}) + "\n" for i, f in filters.items())
    (path / "subscriptions.jsonl").write_text("".join(lines))
    return path, events, filters


def run(*arguments):
    """Run a command in this process; errors of ours come out as they are."""
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_match_writes_the_pairs_and_says_how_many(world, tmp_path):
    """As a user runs it: a process of its own, with nothing but the documented options."""
    path, events, filters = world
    command = ["pipeline", "match", "--lake", path / "lake", "--subscriptions", path / "subscriptions.jsonl"]
    done = subprocess.run(
        [sys.executable, "-m", "angelia", *map(str, command), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "out").to_pylist()
    wanted = expected_pairs(events, filters)
    assert {(row["event_id"], row["subscription_id"]) for row in rows} == wanted
    assert len(rows) == len(wanted)
    last = done.stdout.strip().splitlines()[-1]
    assert last.startswith(f"200 events, 32 subscriptions, {len(wanted):,} pairs")
    assert done.stderr == ""  # no chatter of Spark or Java


def test_match_refuses_to_write_over_something(spark, world, tmp_path):
    path, _, _ = world
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("precious")
    options = (
        "--lake",
        path / "lake",
        "--subscriptions",
        path / "subscriptions.jsonl",
        "--out",
        tmp_path / "out",
    )
    with pytest.raises(AngeliaError, match="not empty"):
        run("match", *options)
    assert "200 events" in run("match", *options, "--overwrite").stdout


def test_replay_writes_past_events_in_order_of_time(spark, world, tmp_path):
    path, events, _ = world
    since, out = events[20].time.isoformat(), tmp_path / "out"
    run("replay", "--lake", path / "lake", "--filter", "price < 500", "--since", since, "--out", out)
    found = [row["@id"] for file in sorted(out.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    assert found == [e.id for e in events[20:] if e.get("price") is not None and e["price"] < 500]


def test_detect_writes_occurrences(spark, world, tmp_path):
    path, _, _ = world
    pattern = 'origin = "JFK" then price > 900'
    shown = run(
        *("detect", "--lake", path / "lake", "--pattern", pattern),
        *("--within", "30m", "--key", "@source", "--out", tmp_path / "out"),
    ).stdout
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert rows
    assert {row["key"] for row in rows} <= {"feeds/a", "feeds/b"}
    assert f"{len(rows)} occurrences" in shown


def test_the_report_is_one_page_that_names_what_never_and_always_matches(spark, world, tmp_path):
    path, _, _ = world
    out = tmp_path / "report.html"
    run("report", "--lake", path / "lake", "--subscriptions", path / "subscriptions.jsonl", "--out", out)
    page = out.read_text("utf-8")
    assert page.count("<svg") == 5
    for text in ("Never match", "Always match", "order.total", "feeds/a", "200</b><span>events"):
        assert text in page
    assert 'src="' not in page  # nothing is loaded from elsewhere
    assert "http-equiv" not in page


def test_traffic_prints_its_tables(spark, tmp_path):
    from angelia.sim import scenario
    from angelia.sim.journal import Journal, write

    journal = Journal()
    scenario.run(scenario.Scenario(brokers=5, parties=5, publishers=2, events=20, seed=2), journal)
    write(journal, tmp_path / "j.parquet")
    shown = run("traffic", tmp_path / "j.parquet", "--out", tmp_path / "out").stdout
    assert "latency" in shown
    assert pq.read_table(tmp_path / "out" / "links").num_rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("match", "--lake", "/nowhere", "--subscriptions", "s.jsonl", "--out", "o"), "no lake in"),
        (
            ("match", "--lake", "LAKE", "--subscriptions", "/nowhere.jsonl", "--out", "o"),
            "no subscriptions at",
        ),
        (("replay", "--lake", "LAKE", "--filter", "x << 1", "--out", "o"), "column 4"),
        (("replay", "--lake", "LAKE", "--since", "monday", "--out", "o"), "not a timestamp"),
        (("replay", "--lake", "LAKE"), "--out DIR, or --broker"),
        (("detect", "--lake", "LAKE", "--pattern", "x = 1", "--within", "soon", "--out", "o"), "500ms"),
        (("detect", "--lake", "LAKE", "--pattern", "x = 1", "--key", "no.such", "--out", "o"), "no.such"),
        (("report", "--lake", "LAKE", "--out", "/no/where/r.html"), "no directory"),
        (("summarise", "--lake", "LAKE", "--out", "o", "--bucket", "week"), "minute, hour, day"),
        (("match", "--lake", "LAKE", "--subscriptions", "SUBS", "--out", "o", "--conf", "x"), "key=value"),
        (("traffic", "/nowhere.jsonl"), "no journal"),
    ],
)
def test_errors_are_one_clear_message(spark, world, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    names = {"LAKE": world[0] / "lake", "SUBS": world[0] / "subscriptions.jsonl"}
    with pytest.raises(AngeliaError, match=message):
        run(*(names.get(each, each) for each in arguments))


def test_help_does_not_wait_for_spark():
    code = (
        "import sys; sys.argv = ['angelia', 'pipeline', '--help']\n"
        "from angelia.cli import main\n"
        "try: main()\n"
        "finally: assert 'pyspark' not in sys.modules and 'numba' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "summarise" in done.stdout, done.stderr
    assert "AssertionError" not in done.stderr
