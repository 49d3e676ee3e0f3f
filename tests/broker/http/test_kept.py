"""What a broker with `--state` keeps: webhooks and event types, also when it is killed."""

import asyncio
import contextlib
import json
import sqlite3
import stat
import subprocess
import sys

import httpx
import pytest
from tests.broker.helpers import address, broker
from tests.broker.http.helpers import LOCAL, STRUCTURED, Sink, asynchronous, cloudevent, eventually

from angelia import EventType
from angelia.broker.state import FILE, State
from angelia.client import connect
from angelia.errors import BrokerError

QUOTE = {"$id": "flights.Quote", "type": "object", "properties": {"price": {"type": "number"}}}
CHEAP = {"$id": "flights.Cheap", "allOf": [{"$ref": "flights.Quote"}], "type": "object"}


def wanted(sink, **more):
    return {"protocol": "HTTP", "sink": sink.url, **more}


class Process:
    """A broker process with a door, as a client of the door sees it."""

    def __init__(self, process):
        self._process = process

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, state, *options):
        command = [sys.executable, "-m", "angelia", "broker", "--name=b1", "--listen=127.0.0.1:0"]
        more = ["--http=127.0.0.1:0", "--webhook-target=127.0.0.0/8", f"--state={state}", *options]
        process = await asyncio.create_subprocess_exec(*command, *more, stderr=subprocess.PIPE)
        it = cls(process)
        try:
            while "serves HTTP on" not in (line := (await process.stderr.readline()).decode()):
                assert line, "the broker did not start"
            async with httpx.AsyncClient(base_url=line.split()[-1], trust_env=False, timeout=10) as it.http:
                yield it
        finally:
            await it.killed()

    async def killed(self):
        """End it with SIGKILL."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()

    async def define(self, schema):
        assert (await self.http.post("/types", json=schema)).status_code == 201

    async def subscribe(self, document):
        response = await self.http.post("/subscriptions", json=document)
        assert response.status_code == 201, response.text
        return response.json()["id"]

    async def publish(self, **event):
        body = json.dumps(cloudevent(**event)).encode()
        assert (await self.http.post("/events", content=body, headers=STRUCTURED)).status_code == 202

    async def delivery(self, name):
        return (await self.http.get(f"/subscriptions/{name}")).json()["delivery"]


@asynchronous
async def test_a_webhook_goes_on_with_the_next_process_after_a_kill(tmp_path):
    """With its secret, its rate, and without asking the sink again; so does what it rests on, the types."""
    secret = {"credentialtype": "PLAIN", "identifier": "me", "secret": "very secret"}
    async with Sink().open() as sink:
        sink.permission["WebHook-Allowed-Rate"] = "60000"
        async with Process.started(tmp_path) as first:
            await first.define(QUOTE)
            await first.define(CHEAP)
            cheap = [{"angelia": "flights.Quote: price < 300"}]
            name = await first.subscribe(wanted(sink, filters=cheap, sinkcredential=secret))
            removed = await first.subscribe(wanted(sink))
            assert (await first.http.delete(f"/subscriptions/{removed}")).status_code == 200
            shown = (await first.http.get("/subscriptions")).json()
            await first.killed()
        handshakes = len(sink.requests)
        async with Process.started(tmp_path) as second:
            assert (await second.http.get("/subscriptions")).json() == shown
            assert (await second.delivery(name))["rate"] == 60_000
            await second.publish(type="flights.Cheap", data={"price": 900})
            await second.publish(type="flights.Cheap", data={"price": 99}, id="7")
            await eventually(lambda: sink.deliveries)
            ((_, _, headers, _),) = sink.deliveries
            assert (headers["ce-id"], headers["authorization"]) == ("7", "Basic bWU6dmVyeSBzZWNyZXQ=")
            assert len(sink.requests) == handshakes + 1
            assert b"very secret" in (tmp_path / FILE).read_bytes()
            assert (await second.http.delete(f"/subscriptions/{name}")).status_code == 200
            await second.killed()
        assert b"very secret" not in (tmp_path / FILE).read_bytes()
        async with Process.started(tmp_path) as third:
            assert (await third.http.get("/subscriptions")).json() == []


@asynchronous
async def test_what_a_sink_has_said_holds_for_the_next_process(tmp_path):
    """Gone stays gone, a change stays changed, and a sink that was still to confirm may do so now."""
    async with Sink().open() as sink, Sink().open() as later:
        later.permission = {}
        async with Process.started(tmp_path, "--http-url=http://door.example") as first:
            gone = await first.subscribe(wanted(sink, types=["gone"]))
            changed = await first.subscribe(wanted(sink, types=["before"]))
            await first.http.put(f"/subscriptions/{changed}", json=wanted(sink, types=["after"]))
            pending = await first.subscribe(wanted(later, types=["after"]))
            sink.answers = [(410, {})]
            await first.publish(type="gone")
            while (await first.delivery(gone))["status"] != "ended":
                await asyncio.sleep(0.01)
            await first.killed()
        async with Process.started(tmp_path, "--http-url=http://door.example") as second:
            assert "410" in (await second.delivery(gone))["reason"]
            assert (await second.delivery(pending))["status"] == "pending"
            callback = later.requests[0][2]["webhook-request-callback"]
            assert (await second.http.post(httpx.URL(callback).raw_path.decode())).status_code == 200
            await second.killed()
        async with Process.started(tmp_path) as third:
            for kind in ("gone", "before", "after"):
                await third.publish(type=kind, id=kind)
            await eventually(lambda: later.deliveries and len(sink.deliveries) == 2)
            assert [request[2]["ce-id"] for request in sink.deliveries] == ["1", "after"]
            assert [request[2]["ce-id"] for request in later.deliveries] == ["after"]


@asynchronous
async def test_what_was_answered_is_there_though_the_kill_comes_in_the_midst_of_others(tmp_path):
    answered, removed = set(), set()

    async def change_again_and_again(first):
        with contextlib.suppress(httpx.HTTPError):
            while True:
                name = await first.subscribe(wanted(sink))
                answered.add(name)
                if len(answered) % 3 == 0:
                    assert (await first.http.delete(f"/subscriptions/{name}")).status_code == 200
                    removed.add(name)

    async with Sink().open() as sink:
        async with Process.started(tmp_path) as first:
            busy = [asyncio.create_task(change_again_and_again(first)) for _ in range(8)]
            await eventually(lambda: len(removed) > 10)
            await first.killed()
            await asyncio.gather(*busy)
        async with Process.started(tmp_path) as second:
            there = {one["id"] for one in (await second.http.get("/subscriptions")).json()}
    unanswered = 8  # of each who asked, one change may have been made and not told
    assert len(answered - removed - there) <= unanswered
    assert not there & removed
    assert len(there - answered) <= unanswered


@asynchronous
async def test_a_webhook_that_a_type_defined_since_has_no_place_for_ends_and_the_others_go_on(tmp_path):
    async with Sink().open() as sink:
        async with broker(state=tmp_path, http="127.0.0.1:0", webhook_targets=LOCAL) as first:
            http = httpx.AsyncClient(base_url=first.describe()["http"], trust_env=False)
            async with http:
                odd = wanted(sink, filters=[{"angelia": "flights.Quote: colour = 1"}])
                names = [
                    (await http.post("/subscriptions", json=one)).json()["id"] for one in (odd, wanted(sink))
                ]
                assert (await http.post("/types", json=QUOTE)).status_code == 201
        async with broker(state=tmp_path, http="127.0.0.1:0", webhook_targets=LOCAL) as second:
            http = httpx.AsyncClient(base_url=second.describe()["http"], trust_env=False)
            async with http:
                ended, active = (await http.get("/subscriptions")).json()
        assert [ended["id"], active["id"]] == names
        assert (ended["delivery"]["status"], active["delivery"]["status"]) == ("ended", "active")
        assert "colour" in ended["delivery"]["reason"]


# ------------------------------------------------ the file


def test_only_the_owner_may_read_what_is_kept(tmp_path):
    place = tmp_path / "new" / "place"
    State(place).close()
    assert stat.S_IMODE((place / FILE).stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


def test_one_process_has_it_at_a_time(tmp_path):
    first = State(tmp_path)
    with pytest.raises(BrokerError, match="another process has it"):
        State(tmp_path)
    first.close()
    State(tmp_path).close()


def of_another_version(file):
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.executescript("PRAGMA user_version = 99")


def with_a_record_that_is_none(file):
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.executescript("INSERT INTO webhooks VALUES ('x', '{}')")


def of_another_program(file):
    file.unlink()
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.executescript("CREATE TABLE webhooks (id TEXT)")


def cut_in_two(file):
    file.write_bytes(file.read_bytes()[:5000])


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_text("no database, but long enough to be looked at as if it were one" * 20),
        cut_in_two,
        of_another_version,
        of_another_program,
        with_a_record_that_is_none,
    ],
    ids=["other", "cut", "version", "program", "record"],
)
@asynchronous
async def test_a_damaged_file_is_told_and_left_alone(tmp_path, damage):
    state = State(tmp_path)
    state.keep_types([EventType("flights.Quote")], [])
    state.close()
    damage(tmp_path / FILE)
    before = (tmp_path / FILE).read_bytes()
    with pytest.raises(
        BrokerError, match=rf"{FILE} is damaged, or no state of a broker: .*; restore or remov"
    ):
        async with broker(state=tmp_path, http="127.0.0.1:0"):
            pass
    assert (tmp_path / FILE).read_bytes() == before


@asynchronous
async def test_an_event_type_that_was_removed_does_not_come_back(tmp_path):
    async with broker(state=tmp_path) as it, connect(address(it), name="owner") as bus:
        for name in ("flights.Quote", "flights.Delay"):
            await bus.define(EventType(name, owner="owner"))
        await bus.remove_type("flights.Delay", "owner")
    async with broker(state=tmp_path) as it:
        assert list(it.node.registry) == ["flights.Quote"]


@pytest.mark.parametrize("place", ["file", "/proc/nowhere"])
def test_a_place_that_cannot_be_written_is_told_in_one_line(tmp_path, place):
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "angelia", "broker", "--listen=127.0.0.1:0"]
    done = subprocess.run(
        [*command, f"--state={tmp_path / place}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "INFO" not in line]
    assert line.startswith(f"error: cannot keep state in {tmp_path / place}: ")


@asynchronous
async def test_a_change_that_cannot_be_kept_is_refused_and_changes_nothing(tmp_path):
    async with (
        Sink().open() as sink,
        broker(state=tmp_path, http="127.0.0.1:0", webhook_targets=LOCAL) as it,
        httpx.AsyncClient(base_url=it.describe()["http"], trust_env=False) as http,
    ):
        kept = (await http.post("/subscriptions", json=wanted(sink, types=["a"]))).json()["id"]
        it.state._database.execute("PRAGMA query_only = ON")  # as a disk that is full
        for ask in (
            http.post("/subscriptions", json=wanted(sink)),
            http.put(f"/subscriptions/{kept}", json=wanted(sink, types=["b"])),
            http.delete(f"/subscriptions/{kept}"),
        ):
            response = await ask
            assert (response.status_code, response.json()["type"]) == (507, "urn:angelia:problem:not-kept")
        (shown,) = (await http.get("/subscriptions")).json()
        assert (shown["id"], shown["types"], shown["delivery"]["status"]) == (kept, ["a"], "active")


@asynchronous
async def test_a_change_that_comes_after_the_end_is_refused():
    """A subscription that is removed while its sink is asked anew does not come back."""
    async with (
        Sink().open() as sink,
        broker(http="127.0.0.1:0", webhook_targets=LOCAL) as it,
        httpx.AsyncClient(base_url=it.describe()["http"], trust_env=False) as http,
    ):
        name = (await http.post("/subscriptions", json=wanted(sink))).json()["id"]
        sink.hold_permission = asyncio.Event()
        change = asyncio.create_task(http.put(f"/subscriptions/{name}", json=wanted(sink)))
        await eventually(lambda: len(sink.requests) == 2)
        assert (await http.delete(f"/subscriptions/{name}")).status_code == 200
        sink.hold_permission.set()
        assert (await change).status_code == 404
        assert (await http.get("/subscriptions")).json() == []
