"""GET /events: server-sent events, going on after a break, and readers who are slow."""

import asyncio
import json

import pytest
from tests.broker.http.helpers import asynchronous, cloudevent, door, eventually, post, sse

from angelia import Event


def numbers(events):
    return [json.loads(event["data"])["data"]["n"] for event in events]


async def publish(opened, *given):
    for number in given:
        await opened.bus.publish(Event({"n": number}, type="t", source="/s"))


async def read(stream, count):
    return [await stream.next() for _ in range(count)]


@asynchronous
async def test_a_stream_has_what_its_filter_matches():
    async with door() as opened, sse(opened, "n > 1") as stream, sse(opened) as everything:
        await publish(opened, 1, 2, 3)
        events = await read(stream, 2)
        assert numbers(events) == [2, 3]
        assert numbers(await read(everything, 3)) == [1, 2, 3]
        assert events[0]["id"] != events[1]["id"]
        assert "event" not in events[0]  # an EventSource calls onmessage


@asynchronous
async def test_what_is_posted_while_a_reader_reads_arrives():
    async with door() as opened, sse(opened, "test.Event: x = 1") as stream:
        assert (await post(opened, cloudevent(id="abc"))).status_code == 202
        assert json.loads((await stream.next())["data"])["id"] == "abc"


@asynchronous
async def test_a_reader_that_comes_back_gets_what_it_missed():
    async with door() as opened:
        async with sse(opened, "exists n") as stream:
            await publish(opened, 1, 2, 3)
            first, *_ = await read(stream, 3)
        await eventually(lambda: opened.door.streams.readers == 0)
        await publish(opened, 4, 5)
        async with sse(opened, "exists n", last_id=first["id"]) as stream:
            assert numbers(await read(stream, 4)) == [2, 3, 4, 5]
            await publish(opened, 6)
            assert numbers(await read(stream, 1)) == [6]


@asynchronous
async def test_of_what_is_too_old_a_reader_is_told():
    async with door(replay_events=3) as opened:
        async with sse(opened, "exists n") as stream:
            await publish(opened, 1)
            (first,) = await read(stream, 1)
        await publish(opened, 2, 3, 4, 5, 6)
        async with sse(opened, "exists n", last_id=first["id"]) as stream:
            gap, *events = await read(stream, 4)
            assert gap["event"] == "gap"
            assert json.loads(gap["data"])["missed"] == 2
            assert "too old" in gap["data"]
            assert numbers(events) == [4, 5, 6]


@pytest.mark.parametrize(
    "last_id", ["nonsense", "0badcafe-1", "x-", "-", "00000000-99999999999999999999", "é-1"]
)
@asynchronous
async def test_of_an_unknown_id_a_reader_is_told(last_id):
    async with door() as opened, sse(opened, "exists n", last_id=last_id.encode()) as stream:
        gap = await stream.next()
        assert gap["event"] == "gap"
        assert json.loads(gap["data"])["missed"] is None
        assert "not known" in gap["data"]
        await publish(opened, 1)
        assert numbers(await read(stream, 1)) == [1]


@asynchronous
async def test_an_id_of_another_stream_is_unknown():
    async with door() as opened, sse(opened, "n > 0") as one:
        await publish(opened, 1)
        (first,) = await read(one, 1)
        async with sse(opened, "n > -1", last_id=first["id"]) as other:
            assert (await other.next())["event"] == "gap"


@asynchronous
async def test_a_reader_for_whom_there_is_nothing_gets_comments():
    async with door(keep_alive=0.01) as opened, sse(opened, "n > 100") as stream:
        assert await stream.next() == {None: "keep-alive"}
        assert await stream.next() == {None: "keep-alive"}


@asynchronous
async def test_a_stream_without_readers_ends_after_a_while():
    async with door(replay_seconds=0.05) as opened:
        async with sse(opened, "exists n"):
            assert len(opened.bus.stats().subscriptions) == 1
        await eventually(lambda: not opened.bus.stats().subscriptions)
        assert len(opened.door.streams) == 0


@asynchronous
async def test_readers_of_equal_filters_share_one_subscription():
    async with door() as opened, sse(opened, "n > 1 and n < 5"), sse(opened, "n < 5 and n > 1"):
        assert len(opened.bus.stats().subscriptions) == 1
        assert opened.door.streams.readers == 2


@asynchronous
async def test_there_are_not_more_streams_than_allowed():
    async with door(max_streams=2) as opened, sse(opened, "n > 1"):
        async with sse(opened, "n > 2"):
            response = await opened.http.get("/events", params={"filter": "n > 3"})
            assert response.status_code == 503
            assert response.headers["retry-after"]
        await eventually(lambda: opened.door.streams.readers == 1)
        async with sse(opened, "n > 3"):  # one that only waited for its reader had to go
            assert len(opened.door.streams) == 2


class Silent:
    """A reader that opens a stream and takes nothing: its socket's buffers fill up."""

    def __init__(self, opened, query):
        self.opened = opened
        self.query = query

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.opened.port, limit=1024)
        request = f"GET /events?{self.query} HTTP/1.1\r\nHost: x\r\n\r\n"
        self.writer.write(request.encode())
        await self.reader.readuntil(b"retry")
        self.writer.transport.pause_reading()
        return self

    async def __aexit__(self, *_):
        self.writer.transport.abort()


@asynchronous
async def test_a_slow_reader_holds_up_nobody_and_is_told_what_it_missed():
    text = "x" * 30_000
    async with door(replay_events=20) as opened, Silent(opened, "filter=exists+n") as slow:
        async with sse(opened, "exists n") as stream:
            for number in range(600):  # 18 MB: more than the buffers of any socket
                await opened.bus.publish(Event({"n": number, "text": text}))
                assert numbers(await read(stream, 1)) == [number]
        slow.writer.transport.resume_reading()
        received = b""
        while b'"n":599' not in received:
            received += await slow.reader.read(1_000_000)
        assert b"event: gap" in received
        assert b"the reader was too slow" in received
        assert opened.service.metrics._drops["sse"] > 0


@asynchronous
async def test_a_slow_reader_can_ask_to_be_disconnected():
    async with (
        door(replay_events=50) as opened,
        sse(opened, "exists n", size=5, policy="disconnect") as stream,
    ):
        await publish(opened, *range(40))  # nothing is awaited in between: the reader cannot keep up
        events = []
        while (event := await stream.next()) is not None:
            events.append(event)
        assert events[-1]["event"] == "end"
        assert "too slow" in events[-1]["data"]


@asynchronous
async def test_a_reader_that_takes_nothing_for_long_is_gone():
    async with door(send_timeout=0.1, replay_bytes=10**8) as opened, Silent(opened, "filter=exists+n"):
        for number in range(400):
            await opened.bus.publish(Event({"n": number, "text": "x" * 60_000}))
        await eventually(lambda: opened.door.streams.readers == 0)


@asynchronous
async def test_a_stream_remembers_no_more_bytes_than_it_may():
    async with door(replay_bytes=100_000) as opened, sse(opened, "exists n") as stream:
        for number in range(20):
            await opened.bus.publish(Event({"n": number, "text": "x" * 30_000}))
        (only,) = opened.door.streams._streams.values()
        await eventually(lambda: only.head == 20)
        assert only.tail == 18
        await stream.next()


@asynchronous
async def test_when_the_door_closes_streams_end_and_say_so():
    async with door() as opened, sse(opened) as stream:
        await opened.door.close()
        end = await stream.next()
        assert end["event"] == "end"
        assert "broker" in end["data"]
        assert await stream.next() is None


@pytest.mark.parametrize(
    ("params", "attribute", "part"),
    [
        ({"filter": "price <"}, "filter", "column"),
        ({"filter": ""}, "filter", ""),
        ({"filter": "x > 1 and x < 0"}, None, "matches nothing"),
        ({"size": "0"}, "size", "1 to"),
        ({"size": "many"}, "size", "1 to"),
        ({"size": "99999999"}, "size", "1 to"),
        ({"policy": "block"}, "policy", "drop_oldest"),
        ({"fitler": "x = 1"}, "fitler", "filter, size and policy"),
    ],
)
def test_bad_parameters_are_told(live, params, attribute, part):
    response = live.http.get("/events", params=params)
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json().get("attribute") == attribute
    assert part in response.json()["detail"]


def test_a_head_request_ends(live):
    response = live.http.head("/events")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
