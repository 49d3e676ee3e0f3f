"""GET /ws: CloudEvents both ways."""

import asyncio
import contextlib
import json

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from tests.broker.http.helpers import asynchronous, cloudevent, door, eventually
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from angelia import Event

PROTOCOL = "cloudevents.json"


def ws(opened, query="", subprotocols=(PROTOCOL,), **more):
    url = f"{opened.url.replace('http', 'ws')}/ws{query}"
    return connect(url, subprotocols=list(subprotocols) or None, proxy=None, **more)


async def closed(socket):
    await socket.wait_closed()
    return socket.close_code, socket.close_reason


@asynchronous
async def test_what_is_sent_is_published_and_what_matches_is_received():
    sent = CloudEvent({"source": "/s", "type": "t", "subject": "s"}, {"price": 99})
    async with door() as opened, ws(opened, "?filter=price+%3C+100") as socket, ws(opened) as publisher:
        assert socket.subprotocol == PROTOCOL
        await publisher.send(JSONFormat().write(sent).decode())
        await publisher.send(json.dumps(cloudevent(data={"price": 100})))
        await publisher.send(json.dumps(cloudevent(id="last", data={"price": 1})))
        read = JSONFormat().read(CloudEvent, await socket.recv())
        assert read.get_data() == sent.get_data()
        assert read.get_id() == sent.get_id()
        assert json.loads(await socket.recv())["id"] == "last"


@asynchronous
async def test_a_socket_can_hear_itself():
    async with door() as opened, ws(opened, "?filter=true") as socket:
        await socket.send(json.dumps(cloudevent()))
        assert json.loads(await socket.recv())["data"] == {"x": 1}


@asynchronous
async def test_who_sends_faster_than_can_be_published_is_not_read_from():
    """While a publication waits for a subscriber, what the socket sends stays in the kernel, not with us."""
    message = json.dumps(cloudevent(data={"x": 1, "load": "x" * 50_000}))
    async with door() as opened, ws(opened) as socket:
        blocked = opened.bus.client("slow").subscribe("exists x", size=1)  # the policy is block
        sent = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                while len(sent) < 1000:
                    await socket.send(message)
                    sent.append(message)
        assert len(sent) < 1000  # 50 MB are more than buffers hold
        for _ in range(10):
            assert (await blocked.get())["x"] == 1
        socket.transport.abort()


@pytest.mark.parametrize("offered", [(), ("mqtt",), ("cloudevents.avro",)])
@asynchronous
async def test_without_the_sub_protocol_it_is_refused(offered, caplog):
    async with door() as opened:
        with pytest.raises(InvalidStatus) as caught:
            await ws(opened, subprotocols=offered)
        response = caught.value.response
        assert response.status_code == 400
        assert response.headers["content-type"] == "application/problem+json"
        assert PROTOCOL in json.loads(response.body)["detail"]
    assert not caplog.records  # it is no fault of the broker's


@asynchronous
async def test_a_bad_filter_is_refused_before_the_connection_stands():
    async with door() as opened:
        with pytest.raises(InvalidStatus) as caught:
            await ws(opened, "?filter=price+%3C")
        assert caught.value.response.status_code == 400
        assert json.loads(caught.value.response.body)["attribute"] == "filter"


@pytest.mark.parametrize(
    ("frame", "code", "part"),
    [
        (b"\x00", 1003, "text frames"),
        ("{", 1007, "not valid JSON"),
        ("[]", 1007, "JSON object"),
        (json.dumps(cloudevent(id=None)), 1007, "id: is missing"),
        (json.dumps(cloudevent(data={"x": "y" * 70_000})), 1007, "bytes"),
        ('{"x":' * 400 + "1" + "}" * 400, 1007, "deeper"),
        ("x" * 300_000, 1009, ""),
    ],
    ids=["binary", "not JSON", "a list", "no id", "too large an event", "deep", "too large a frame"],
)
@asynchronous
async def test_a_bad_frame_ends_the_connection_with_a_reason(frame, code, part):
    async with door(max_body=200_000) as opened, ws(opened) as socket:
        await socket.send(frame)
        got, reason = await closed(socket)
        assert got == code
        assert part in reason
        assert (await opened.http.get("/healthz")).status_code == 200


@asynchronous
async def test_when_the_door_closes_sockets_are_told():
    async with door() as opened, ws(opened, "?filter=true") as socket:
        await opened.door.close()
        code, reason = await closed(socket)
        assert code == 1001
        assert reason


@asynchronous
async def test_a_slow_socket_is_told_what_it_missed_and_holds_up_nobody():
    async with door(replay_events=10) as opened, ws(opened, "?filter=exists+n", max_queue=1) as slow:
        async with ws(opened, "?filter=exists+n") as quick:
            for number in range(600):
                await opened.bus.publish(Event({"n": number, "text": "x" * 30_000}))
                assert json.loads(await quick.recv())["data"]["n"] == number
        types, last = [], None
        while last != 599:
            document = json.loads(await slow.recv())
            types.append(document["type"])
            last = document["data"].get("n")
        assert "angelia.http.Gap" in types
        assert opened.service.metrics._drops["websocket"] > 0


@asynchronous
async def test_a_slow_socket_can_ask_to_be_disconnected():
    async with door() as opened, ws(opened, "?filter=exists+n&size=3&policy=disconnect") as socket:
        for number in range(20):
            await opened.bus.publish(Event({"n": number}))
        code, reason = await closed(socket)
        assert (code, "too slow" in reason) == (1013, True)


@asynchronous
async def test_a_socket_that_leaves_leaves_nothing_behind():
    async with door(replay_seconds=0.01) as opened:
        async with ws(opened, "?filter=true"):
            assert opened.door.sockets == 1
        await eventually(lambda: opened.door.sockets == 0 and not opened.bus.stats().subscriptions)


@asynchronous
async def test_pages_of_other_sites_may_not_connect():
    async with door() as opened:
        with pytest.raises(InvalidStatus) as caught:
            await ws(opened, origin="https://evil.example")
        assert caught.value.response.status_code == 403
        async with ws(opened, origin=opened.url):
            pass
    async with (
        door(allowed_origins=("https://good.example",)) as opened,
        ws(opened, origin="https://good.example"),
    ):
        await asyncio.sleep(0)


@asynchronous
async def test_a_socket_that_takes_nothing_for_long_is_gone():
    async with (
        door(send_timeout=0.1, replay_bytes=10**8) as opened,
        ws(opened, "?filter=exists+n", max_queue=1, close_timeout=0.1),
    ):
        for number in range(400):
            await opened.bus.publish(Event({"n": number, "text": "x" * 60_000}))
        await eventually(lambda: opened.door.sockets == 0)
