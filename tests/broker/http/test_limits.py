"""What strangers cannot do to a door: fill its memory, hold its connections, or keep it from closing."""

import asyncio
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.broker.http.helpers import BusService, Sse, asynchronous, certificate, cloudevent, door, post, sse

from angelia import Bus, Event
from angelia.broker.http import Settings, create_app, serve

HEAD = b"POST /events HTTP/1.1\r\nHost: x\r\nContent-Type: application/cloudevents+json\r\n"


async def exchange(opened, *parts, pause=0.0):
    """Send parts of a request; what comes back until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", opened.port)
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(pause)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@asynchronous
async def test_a_head_that_is_too_large_is_refused():
    async with door(max_header_bytes=8192) as opened:
        many = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 100) for number in range(200))
        assert (await exchange(opened, HEAD + many)).startswith(b"HTTP/1.1 400")
        assert (await exchange(opened, HEAD + b"X: " + b"y" * 100_000)).startswith(b"HTTP/1.1 400")
        assert (await exchange(opened, b"GET /" + b"x" * 100_000)).startswith(b"HTTP/1.1 400")
        assert (await opened.http.get("/healthz")).status_code == 200


@pytest.mark.parametrize("beginning", [b"", b"GET /healthz HT", HEAD])
@asynchronous
async def test_who_is_too_slow_with_the_head_is_cut_off(beginning):
    async with door(header_timeout=0.15) as opened:
        started = time.monotonic()
        assert await exchange(opened, beginning, *[b"X: y\r\n"[:1]] * 3, pause=0.02) == b""
        assert time.monotonic() - started < 3


@asynchronous
async def test_a_second_request_on_a_connection_may_not_be_slow_either():
    async with door(header_timeout=0.15) as opened:
        answer = await exchange(opened, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /he", pause=0.05)
        assert answer.startswith(b"HTTP/1.1 200")


@asynchronous
async def test_who_is_too_slow_with_the_body_is_told():
    async with door(body_timeout=0.1) as opened:
        answer = await exchange(opened, HEAD + b"Content-Length: 100\r\n\r\n{")
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"application/problem+json" in answer


@asynchronous
async def test_a_body_that_breaks_off_leaves_nothing_behind():
    async with door() as opened:
        _, writer = await asyncio.open_connection("127.0.0.1", opened.port)
        writer.write(HEAD + b"Content-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.transport.abort()
        assert (await opened.http.get("/healthz")).status_code == 200


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"99999999999999999999999999", b"abc"])
@asynchronous
async def test_a_bad_content_length_is_refused(length):
    async with door() as opened:
        answer = await exchange(
            opened, HEAD + b"Connection: close\r\nContent-Length: " + length + b"\r\n\r\n{}"
        )
        assert answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 413")


@asynchronous
async def test_there_are_not_more_connections_than_allowed():
    async with door(max_connections=3) as opened, sse(opened), sse(opened):
        assert (await opened.http.get("/healthz")).status_code == 503


@asynchronous
async def test_publishing_does_not_wait_for_ever_for_a_slow_subscriber():
    async with door(publish_timeout=0.1) as opened:
        blocked = opened.bus.client("slow").subscribe("exists x", size=1)  # the policy is block
        others = opened.bus.client("quick").subscribe("exists x")
        batch = [cloudevent(id=str(number)) for number in range(4)]
        headers = {"Content-Type": "application/cloudevents-batch+json"}
        started = time.monotonic()
        assert (await opened.http.post("/events", json=batch, headers=headers)).status_code == 202
        assert time.monotonic() - started < 2
        assert len(others.drain()) == 4
        assert blocked.dropped == 3
        assert opened.service.metrics._drops["blocked"] == 1


@asynchronous
async def test_an_http_publisher_may_publish_where_advertisements_are_required():
    bus = Bus(routing="advertisement")
    async with door(bus=bus) as opened:
        subscription = opened.bus.subscribe("x = 1")
        assert (await post(opened, cloudevent())).status_code == 202
        assert len(subscription.drain()) == 1


# ------------------------------------------------ the server


@asynchronous
async def test_the_door_leaves_signals_alone():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with door():
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@asynchronous
async def test_a_port_that_is_taken_is_an_error_and_not_an_exit():
    async with door() as opened, Bus() as bus:
        with pytest.raises(OSError, match="in use"):
            await serve(create_app(BusService(bus)), port=opened.port)


@asynchronous
async def test_a_door_with_open_streams_closes_at_once_and_frees_its_port():
    async with Bus() as bus:
        server = await serve(create_app(BusService(bus)))
        client = httpx.AsyncClient(base_url=server.url, trust_env=False)
        async with client as http, http.stream("GET", "/events") as response:
            reader = Sse(response)
            await reader.next()
            started = time.monotonic()
            await server.stop()
            assert time.monotonic() - started < 2
            assert (await reader.next())["event"] == "end"
        again = await serve(create_app(BusService(bus)), port=server.port)
        await again.stop()
        await again.stop()  # twice is fine
        assert not bus.stats().subscriptions


@asynchronous
async def test_after_the_bus_is_closed_publishers_are_told_to_go_elsewhere():
    async with door() as opened:
        await opened.bus.close()
        response = await post(opened, cloudevent())
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        assert (await opened.http.get("/events")).status_code == 503


@asynchronous
async def test_the_door_speaks_tls(tmp_path):
    context, authority = certificate(tmp_path, "localhost")
    async with Bus() as bus, await serve(create_app(BusService(bus), Settings()), tls=context) as server:
        assert server.url.startswith("https://")
        verify = ssl.create_default_context(cafile=str(authority))
        async with httpx.AsyncClient(verify=verify, trust_env=False) as http:
            assert (await http.get(f"https://localhost:{server.port}/healthz")).status_code == 200


@asynchronous
async def test_events_of_programs_and_of_http_meet():
    async with door() as opened, sse(opened, "exists x") as stream:
        await opened.bus.publish(Event({"x": 1}))
        await post(opened, cloudevent())
        assert '"type":"angelia.Event"' in (await stream.next())["data"]
        assert '"type":"test.Event"' in (await stream.next())["data"]


@asynchronous
async def test_the_example_of_a_sink_allows_deliveries_and_prints_them():
    program = Path(__file__).parents[3] / "examples" / "webhook_sink.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", str(program), "0", stdout=subprocess.PIPE
    )
    try:
        url = (await process.stdout.readline()).decode().split()[-1]
        async with door(webhook_targets=("127.0.0.0/8",)) as opened:
            wanted = {"protocol": "HTTP", "sink": url}
            assert (await opened.http.post("/subscriptions", json=wanted)).status_code == 201
            await post(opened, cloudevent(id="7"))
            assert await process.stdout.readline() == b'test.Event 7 {"x":1}\n'
    finally:
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0


def test_the_example_opens_a_door_and_closes_it_when_interrupted():
    program = Path(__file__).parents[3] / "examples" / "http_door.py"
    with subprocess.Popen(
        [sys.executable, "-W", "error", str(program), "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            url = process.stdout.readline().split()[-1]
            assert httpx.get(f"{url}/healthz", trust_env=False).json() == {"status": "ok", "broker": "b1"}
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
