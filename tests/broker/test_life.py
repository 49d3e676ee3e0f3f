"""From start to end: signs of life, links that come back, and an orderly shutdown."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from tests.broker.helpers import FAST, Raw, address, asynchronous, broker, linked, prices, quote, until

from angelia import Event, wire
from angelia.broker.connection import LONGEST_DELAY, backoff
from angelia.client import connect
from angelia.errors import BrokerError
from angelia.filter import Filter
from angelia.local.network import free_ports
from angelia.messages import Subscribe


@asynchronous
async def test_a_silent_client_and_a_silent_peer_are_dropped():
    async with broker(**FAST) as it:
        client, peer = await Raw.client(it), await Raw.peer(it)
        started = time.monotonic()
        assert set(it.clients) == {"raw"}
        assert set(it.links) == {"other"}
        await until(lambda: not it.clients and not it.links)
        assert time.monotonic() - started > 0.1
        client.close()
        peer.close()


@asynchronous
async def test_who_gives_signs_of_life_stays_and_is_given_some():
    async with broker(**FAST) as it:
        raw = await Raw.client(it)
        pings, deadline = 0, time.monotonic() + 0.5
        while time.monotonic() < deadline:
            raw.send(wire.Ping())
            await asyncio.sleep(0.02)
        assert set(it.clients) == {"raw"}
        raw.close()
        while isinstance(frame := await raw.read(), wire.Ping):
            pings += 1
        assert frame is None
        assert pings >= 3


@asynchronous
async def test_idle_clients_and_links_stay():
    async with (
        broker(name="b1", **FAST) as one,
        broker(name="b2", peers=[address(one)], **FAST) as two,
        connect(address(two)) as bus,
    ):
        await linked(one, two)
        link = one.links["b2"]
        await asyncio.sleep(0.5)
        assert one.links["b2"] is link
        assert bus.reconnects == 0


@asynchronous
async def test_a_client_notices_a_broker_that_is_silent():
    """A broker that hangs: the kernel still takes what is sent, but nobody answers."""
    async with broker(**FAST) as other:

        async def hang(reader, writer):
            await reader.read(100)
            writer.write(wire.encode(wire.Welcome(wire.VERSION, "hung", "1", 0.05, 1 << 20, "c")))
            hung.append(writer)

        hung = []
        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with connect(f"tcp://127.0.0.1:{port}", address(other)) as bus:
            assert bus.broker == "hung"
            server.close()
            await until(lambda: bus.broker == other.name)
            assert bus.reconnects == 1
        for writer in hung:
            writer.close()
        await server.wait_closed()


def test_the_delay_between_attempts_grows_to_a_limit_and_has_jitter():
    longest = [max(backoff(attempt) for _ in range(200)) for attempt in range(12)]
    assert longest[0] <= 0.1
    assert longest[:7] == sorted(longest[:7])
    assert max(longest) <= LONGEST_DELAY
    assert backoff(10**9) <= LONGEST_DELAY
    assert len({backoff(3) for _ in range(10)}) == 10


@asynchronous
async def test_a_link_comes_back_after_the_peer_was_away_with_all_that_is_wanted():
    (port,) = free_ports(1)
    async with (
        broker(name="b2", peers=[f"127.0.0.1:{port}"], **FAST) as two,
        connect(address(two)) as bus,
        bus.subscribe("flights.Quote: price < 500") as got,
    ):
        for number in range(3):
            async with broker(name="b1", listen=f"127.0.0.1:{port}", **FAST) as one:
                await until(lambda one=one: "b2" in one.links and one.links["b2"].received_count)
                async with connect(address(one)) as publisher:
                    while not await publisher.interest("flights.Quote: true"):
                        await asyncio.sleep(0.01)
                    await publisher.publish_all([quote(number), quote(900)])
                    assert (await got.get())["price"] == number
            await until(lambda: not two.links)
        assert "127.0.0.1" in str(two.describe()["unconnected"])


# ---------------------------------------------------------------- the end


@asynchronous
async def test_a_broker_that_stops_tells_clients_and_peers_and_delivers_what_is_queued():
    async with broker(name="b2", **FAST) as two:
        one = broker(name="b1", peers=[address(two)], **FAST)
        await one.start()
        await linked(one, two)
        raw = await Raw.client(one)
        await raw.ask(Subscribe("1", Filter.parse("true")))
        raw.upload(0, *map(quote, range(100)))
        await until(lambda: one.published == 100)
        await one.stop()
        got = []
        while not isinstance(frame := await raw.read(), wire.Bye):
            if isinstance(frame, wire.Tell):
                got += [item.event["price"] for item in wire.decode_told(frame.events)]
        assert got == list(range(100))
        assert frame == wire.Bye("b1 is shutting down", retry=True)
        await until(lambda: not two.links)
        assert not one._connections
        raw.close()


@asynchronous
async def test_the_reason_arrives_though_the_other_side_sends_all_the_while():
    """To close with something unread would reset the connection, and the reason would be lost."""
    for _ in range(2):
        it = broker(name="b1")
        await it.start()
        raw = await Raw.client(it)
        for number in range(50):
            raw.upload(0, *map(quote, range(number, number + 50)))
        await it.stop()
        raw.upload(0, quote(1))
        assert (await raw.bye()).reason == "b1 is shutting down"


@asynchronous
async def test_a_shutdown_waits_for_the_slow_only_so_long():
    it = broker(drain=0.2)
    await it.start()
    raw = await Raw.client(it)
    await raw.ask(Subscribe("1", Filter.parse("true")))
    async with connect(address(it)) as bus:
        for _ in range(50):
            await bus.publish_all([Event({"load": "x" * 20_000})] * 20)
        started = time.monotonic()
        await it.stop()
        assert 0.2 <= time.monotonic() - started < 5
    raw.close()


@asynchronous
async def test_a_port_that_is_taken_is_told_in_one_line():
    async with broker() as it:
        with pytest.raises(BrokerError, match=r"^cannot listen on tcp://127\.0\.0\.1:\d+: .*in use"):
            await broker(listen=f"127.0.0.1:{it.address.port}").start()


# ---------------------------------------------------------------- the process


def start(*flags, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "angelia", "broker", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_sigterm_ends_the_process_in_an_orderly_way_with_status_0(tmp_path):
    (tmp_path / "broker.toml").write_text("heartbeat = 1.0\n")
    process = start("--config", str(tmp_path / "broker.toml"), "--listen=127.0.0.1:0", ANGELIA_NAME="b7")
    try:
        ready = process.stdout.readline()
        assert ready.startswith("b7 is ready on tcp://127.0.0.1:")

        async def talk():
            async with connect(ready.split()[-1]) as bus, bus.subscribe("true") as got:
                await bus.publish_all(map(quote, range(100)))
                process.send_signal(signal.SIGTERM)
                assert prices([await got.get() for _ in range(100)]) == list(range(100))
                await until(lambda: process.poll() is not None)

        asyncio.run(talk())
        _, errors = process.communicate(timeout=10)
        assert process.returncode == 0
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--listen=0.0.0.0:0"], "error: listening on 0.0.0.0 is open to other machines"),
        (["--queue=0"], "error: queue: Input should be greater than or equal to 1"),
        (["--config=/nowhere.toml"], "error: there is no file /nowhere.toml"),
        (["--tls-cert=/no.pem", "--tls-key=/no.pem", "--listen=:0"], "error: cannot use the certificates"),
    ],
)
def test_a_broker_that_cannot_start_says_why_in_one_line(flags, message):
    process = start(*flags)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert out == ""
    assert errors.startswith(message)
    assert len(errors.splitlines()) == 1


def test_a_port_that_somebody_else_has():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = start(f"--listen=127.0.0.1:{taken.getsockname()[1]}")
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.startswith("error: cannot listen on tcp://127.0.0.1")
