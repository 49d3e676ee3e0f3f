"""Networks of real processes on loopback: right deliveries, and brokers that die under load."""

import asyncio
import os
import random
import resource
import signal
import socket
import time
from itertools import pairwise
from pathlib import Path

import pytest
from tests.broker.helpers import asynchronous, until

from angelia import Event, Filter
from angelia.client import connect
from angelia.local import LocalNetwork
from angelia.local.network import describe

FILTERS = (
    'airline = "UA"',
    "price < 250",
    'airline in ("AA", "DL") and price between 100 and 400',
    'dest prefix "S" or price > 450',
    "exists delay",
    "true",
)
HEARTBEAT = 0.5


def some_events(count, seed=7):
    draw = random.Random(seed)
    for number in range(count):
        event = {"number": number, "airline": draw.choice(["UA", "AA", "DL"]), "price": draw.randrange(500)}
        event["dest"] = draw.choice(["SFO", "SEA", "JFK", "DEN"])
        if draw.random() < 0.3:
            event["delay"] = draw.randrange(60)
        yield Event(event)


async def interested(bus, wanted):
    """Wait until a broker knows that somebody wants this."""
    async with asyncio.timeout(20):
        while not await bus.interest(wanted):
            await asyncio.sleep(0.02)


async def settled(network):
    """Wait until no broker has anything new to tell another."""
    before = None
    while True:
        states = await network.status()
        now = [link["sent"] for state in states for link in state["links"].values()]
        if now == before:
            return
        before = now
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("topology", "count", "routing"),
    [("line", 3, "peer"), ("tree", 4, "hierarchical"), ("ring", 4, "general")],
    ids=["chain", "tree", "ring"],
)
def test_every_subscriber_gets_what_direct_evaluation_says(topology, count, routing, tmp_path):
    events = list(some_events(400))
    with LocalNetwork.plan(tmp_path, count, topology, routing) as network:

        @asynchronous
        async def check():
            clients = [await connect(address) for address in network.addresses]
            subscriptions = [
                (wanted, await clients[number % count].subscribe(wanted, size=1000))
                for number, wanted in enumerate(FILTERS * 2)
            ]
            await settled(network)
            for start in range(0, len(events), 50):
                await clients[start // 50 % count].publish_all(events[start : start + 50])
            for wanted, subscription in subscriptions:
                parsed = Filter.parse(wanted)
                expected = [event["number"] for event in events if parsed.matches(event)]
                got = [(await subscription.get())["number"] for _ in expected]
                assert sorted(got) == expected
            await settled(network)
            assert not any(subscription.drain() for _, subscription in subscriptions)
            for client in clients:
                await client.close()

        check()
    assert all(process.returncode == 0 for process in network._processes.values())
    assert not (tmp_path / "network.json").exists()


def test_ctrl_c_while_brokers_stop_is_not_forgotten(tmp_path):
    class Interrupted(LocalNetwork):
        def stop(self):
            os.kill(os.getpid(), signal.SIGINT)
            super().stop()

    before = signal.getsignal(signal.SIGINT)
    assert Interrupted(tmp_path, []).stop_surely() is True
    assert LocalNetwork(tmp_path, []).stop_surely() is False
    assert signal.getsignal(signal.SIGINT) is before


# ---------------------------------------------------------------- brokers that die


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """Four brokers in a ring: b1 and b3 are linked over b2 and over b4."""
    place = tmp_path_factory.mktemp("ring")
    options = [f"--heartbeat={HEARTBEAT}"]
    with LocalNetwork.plan(place, 4, "ring", "general", options=options) as network:
        yield network


async def publish_steadily(bus, sent, stop):
    """An event every few milliseconds, and when each was sent."""
    while not stop.is_set():
        await bus.publish(Event({"number": len(sent)}))
        sent.append(time.monotonic())
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hung"])
def test_delivery_resumes_when_a_middle_broker_dies_under_load(ring, how):
    """Whichever way events took, one of the two brokers on it is ended; later, the other."""

    @asynchronous
    async def check():
        sent, got, stop = [], [], asyncio.Event()
        async with connect(ring["b3"].address) as publisher, connect(ring["b1"].address) as reader:
            await reader.subscribe(
                "exists number", lambda event: got.append((event["number"], time.monotonic()))
            )
            await interested(publisher, "exists number")
            load = asyncio.create_task(publish_steadily(publisher, sent, stop))
            for victim in ("b2", "b4"):
                await until(lambda: len(got) > 50)
                del got[:]
                ended = time.monotonic()
                ring._processes[victim].send_signal(how)
                await until(lambda ended=ended: got and got[-1][1] > ended + 4 * HEARTBEAT, 30)
                numbers = [number for number, _ in got]
                assert numbers == sorted(set(numbers))  # nothing twice, and in order
                arrivals = [ended, *(at for _, at in got if at > ended)]
                gap = max(later - earlier for earlier, later in pairwise(arrivals))
                assert gap < 3 * HEARTBEAT + 1.5, gap  # the time-out, and what a busy machine needs
                last = numbers[-20:]
                assert last == list(range(last[0], last[0] + 20))  # and nothing is missing any more
                await asyncio.to_thread(revive, ring, victim, how)
            stop.set()
            await load
            await publisher.publish(Event({"number": -1}))
            await until(lambda: got[-1][0] == -1)

    check()


def revive(network, name, how):
    """Have a broker back, and wait until it is part of the network."""
    if how == signal.SIGSTOP:
        network._processes[name].send_signal(signal.SIGCONT)
    else:
        network.kill(name)
        network.start_one(name)
    network.wait_linked()


@asynchronous
async def test_a_client_whose_broker_is_killed_goes_on_with_another(ring):
    got = []
    both = (ring["b2"].address, ring["b4"].address)
    async with connect(*both) as reader, connect(ring["b1"].address) as publisher:
        await reader.subscribe("exists n", lambda event: got.append(event["n"]))
        await interested(publisher, "exists n")
        await publisher.publish(Event({"n": 0}))
        await until(lambda: got == [0])
        ring.kill("b2")
        await until(lambda: reader.broker == "b4")
        number = 0
        while got == [0]:  # until what it wants is known to all again
            number += 1
            await publisher.publish(Event({"n": number}))
            await asyncio.sleep(0.02)
        assert reader.reconnects == 1
        ring.start_one("b2")
        await asyncio.to_thread(ring.wait_linked)
        await publisher.publish(Event({"n": 10_000}))
        await until(lambda: got[-1] == 10_000)
        assert got == sorted(set(got))


# ---------------------------------------------------------------- many clients, many events


@pytest.fixture(scope="module")
def single(tmp_path_factory):
    """One broker, with room for many connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192) if hard > 0 else 8192, hard))
    with LocalNetwork.plan(tmp_path_factory.mktemp("single"), 1) as network:
        yield network.brokers[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory(broker):
    """The resident memory of a broker, in MiB."""
    pages = int(Path(f"/proc/{broker.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


@asynchronous
async def test_memory_is_stable_over_200_000_events(single):
    """Events, clients that come and go, and subscriptions that come and go leave nothing behind.

    With few subscriptions: many would have the compiled engine loaded at some time, which takes 100 MiB.
    """
    received = 0

    def count(event):
        nonlocal received
        received += 1

    async def publish(thousands):
        for number in range(thousands):
            events = [Event({"n": step, "text": f"event {number} {step}"}) for step in range(1000)]
            await bus.publish_all(events)
            async with connect(single.address) as passing, passing.subscribe(f"n = {number}"):
                pass

    async with connect(single.address) as bus, connect(single.address) as reader:
        await reader.subscribe("n < 100", count)
        await publish(30)  # until all that is kept is there: caches, buffers
        before = memory(single)
        await publish(200)
        after = memory(single)
        await until(lambda: received == 23_000)
    assert after - before < 12, f"{before:.0f} MiB before, {after:.0f} MiB after"


@asynchronous
async def test_a_slow_consumer_misses_its_own_events_and_holds_up_nobody(single):
    """One reads nothing while 20,000 events go to it and to another: far more than its queue takes."""
    count, seen = 20_000, []
    async with (
        connect(single.address, queue=500, policy="drop_oldest") as slow,
        connect(single.address) as quick,
        connect(single.address) as publisher,
    ):
        sleeper = await slow.subscribe("exists number", size=10)
        await quick.subscribe("exists number", lambda event: seen.append(event["number"]))
        before = memory(single)
        started = time.monotonic()
        for start in range(0, count, 500):
            batch = [Event({"number": start + n, "load": "x" * 500}) for n in range(500)]
            await publisher.publish_all(batch)
        await until(lambda: len(seen) == count, 30)
        assert seen == list(range(count))
        assert time.monotonic() - started < 20
        state = (await describe(single))["clients"][slow.name]
        assert state["queued"] <= 500
        assert memory(single) - before < 20  # the queue, and not what went by

        late = []
        while not late or late[-1] != count - 1:  # what was kept comes in order, the newest last
            late.append((await sleeper.get())["number"])
        assert late == sorted(set(late))
        await until(lambda: slow.dropped == count - len(late))  # and what was not, it is told
        assert state["dropped"] == slow.dropped > 0


@asynchronous
async def test_a_thousand_clients_at_once_each_get_their_own(single):
    count = 1000
    clients = [connect(single.address, timeout=60) for _ in range(count)]
    for start in range(0, count, 100):
        await asyncio.gather(*(client.open() for client in clients[start : start + 100]))
    subscriptions = await asyncio.gather(
        *(client.subscribe(f"n = {number}") for number, client in enumerate(clients))
    )
    state = await describe(single)
    assert len(state["clients"]) == count + 1
    await clients[0].publish_all([Event({"n": number}) for number in range(count)])
    await asyncio.gather(
        *(client.publish(Event({"n": (number + 1) % count})) for number, client in enumerate(clients))
    )
    for number, subscription in enumerate(subscriptions):
        assert [(await subscription.get())["n"] for _ in range(2)] == [number, number]
        assert subscription.drain() == []
    await asyncio.gather(*(client.close() for client in clients))
    async with asyncio.timeout(10):
        while len((await describe(single))["clients"]) > 1:
            await asyncio.sleep(0.05)


@asynchronous
async def test_garbage_on_the_port_of_a_process_does_it_no_harm(single):
    port = int(single.address.rpartition(":")[2])
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(10_000), bytes(100)):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(garbage)
            stranger.settimeout(10)
            assert stranger.recv(4096)  # why
    async with connect(single.address) as bus, bus.subscribe("true") as got:
        await bus.publish(Event({"x": 1}))
        assert (await got.get())["x"] == 1
