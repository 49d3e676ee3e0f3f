"""The slow: each policy does what it says, what is dropped is counted and told, and nobody else waits."""

import asyncio
import logging

import pytest
from tests.broker.helpers import FAST, Raw, address, asynchronous, broker, linked, quote, until

from angelia import Event, wire
from angelia.client import connect
from angelia.errors import BrokerError, DisconnectedError
from angelia.filter import Filter
from angelia.messages import Subscribe

LARGE = "x" * 20_000  # so that sockets are full soon


def large(number):
    return Event({"n": number, "load": LARGE})


async def sleeper(it, **options):
    """A client that subscribes to everything, and reads nothing from then on."""
    raw = await Raw.client(it, "sleeper", **options)
    assert (await raw.ask(Subscribe("1", Filter.parse("exists n")))).error is None
    return raw


async def publish_large(bus, count, start=0):
    for number in range(start, start + count, 20):
        await bus.publish_all([large(one) for one in range(number, number + 20)])


async def _numbers(subscription, count):
    return [(await subscription.get())["n"] for _ in range(count)]


async def numbers_until(raw, last):
    """The numbers of the events that come, up to one, and how many the broker says were dropped."""
    got, dropped = [], 0
    while last not in got:
        frame = await raw.read()
        assert frame is not None
        if isinstance(frame, wire.Tell):
            got += [item.event["n"] for item in wire.decode_told(frame.events)]
        elif isinstance(frame, wire.Dropped):
            dropped = frame.count
    return got, dropped


@asynchronous
async def test_drop_oldest_keeps_the_newest_and_tells_how_many_were_dropped():
    async with (
        broker(queue=50) as it,
        connect(address(it)) as bus,
        connect(address(it)) as reader,
        reader.subscribe("exists n") as got,
    ):
        slow = await sleeper(it, policy="drop_oldest")
        reading = asyncio.create_task(_numbers(got, 2000))
        await publish_large(bus, 2000)
        assert await reading == list(range(2000))  # not stalled, and nothing of it is lost
        dropped = it.describe()["clients"]["sleeper"]["dropped"]
        assert dropped > 0
        numbers, told = await numbers_until(slow, 1999)
        assert numbers == sorted(set(numbers))
        assert numbers[-50:] == list(range(1950, 2000))
        assert len(numbers) + dropped == 2000
        if not told:
            told = (await slow.read_a(wire.Dropped)).count
        assert told == dropped
        slow.close()


@asynchronous
async def test_drop_newest_keeps_the_oldest():
    async with broker(queue=50) as it, connect(address(it)) as bus:
        slow = await sleeper(it, policy="drop_newest")
        await publish_large(bus, 2000)
        dropped = it.describe()["clients"]["sleeper"]["dropped"]
        kept = 2000 - dropped
        numbers, _ = await numbers_until(slow, kept - 1)
        assert numbers == list(range(kept))
        assert (await slow.read_a(wire.Dropped)).count == dropped
        slow.close()


@asynchronous
async def test_disconnect_ends_the_slow_with_a_reason():
    async with broker(queue=50) as it, connect(address(it)) as bus:
        slow = await sleeper(it, policy="disconnect")
        await publish_large(bus, 2000)
        await until(lambda: "sleeper" not in it.clients)
        frame = await slow.read_a(wire.Tell)  # what was in the socket can still be read
        while isinstance(frame, wire.Tell):
            frame = await slow.read()
        slow.close()
    # It may not have been read in time: the connection has ended either way.
    assert frame is None or ("policy is disconnect" in frame.reason and not frame.retry)


@asynchronous
async def test_a_client_that_was_disconnected_for_being_slow_does_not_come_back():
    async with (
        broker(queue=1) as it,
        connect(address(it)) as bus,
        connect(address(it), policy="disconnect") as slow,
    ):
        events = await slow.subscribe("exists n")
        session = it.clients[slow.name]
        session.connection.hold(True)  # as if it took nothing
        await bus.publish_all([large(0), large(1)])
        with pytest.raises(DisconnectedError, match="policy is disconnect"):
            await events.get()
        with pytest.raises(DisconnectedError):
            await slow.publish(quote(1))


@asynchronous
async def test_block_holds_publishers_back_and_loses_nothing():
    async with broker(queue=50) as it, connect(address(it), timeout=20) as bus:
        slow = await sleeper(it, policy="block")
        publishing = asyncio.create_task(publish_large(bus, 2000))
        await until(lambda: it._congested)
        await asyncio.sleep(0.2)
        assert not publishing.done()
        queued = it.describe()["clients"]["sleeper"]["queued"]
        assert queued < 50 + 100  # full, and what came with the same read
        assert not it.clients[bus.name].connection.is_reading
        numbers, told = await numbers_until(slow, 1999)
        assert numbers == list(range(2000))
        assert told == 0
        await publishing
        await until(lambda: not it._congested)
        assert it.clients[bus.name].connection.is_reading
        slow.close()


@asynchronous
async def test_a_blocked_client_that_goes_away_lets_the_publishers_go_on():
    async with broker(queue=50) as it, connect(address(it), timeout=20) as bus:
        slow = await sleeper(it, policy="block")
        publishing = asyncio.create_task(publish_large(bus, 2000))
        await until(lambda: it._congested)
        slow.close()
        await publishing
        assert not it._congested


@asynchronous
async def test_a_publisher_that_is_held_back_too_long_is_told():
    async with broker(queue=1) as it, connect(address(it), timeout=0.3) as bus:
        slow = await sleeper(it, policy="block")
        with pytest.raises(BrokerError, match=r"no answer of a broker within 0\.3 s"):
            await publish_large(bus, 4000)
        slow.close()


@asynchronous
async def test_bytes_limit_a_queue_as_well():
    async with broker(queue_bytes=1 << 20) as it, connect(address(it)) as bus:
        slow = await sleeper(it)
        await publish_large(bus, 2000)
        state = it.describe()["clients"]["sleeper"]
        assert state["dropped"] > 0
        assert it.clients["sleeper"].connection.queued_bytes < (1 << 20) + 21_000
        slow.close()


@asynchronous
async def test_control_frames_are_not_dropped_and_pings_do_not_pile_up():
    async with broker(queue=10, **FAST) as it, connect(address(it)) as bus:
        slow = await sleeper(it)
        alive = asyncio.create_task(_signs_of_life(slow))
        await publish_large(bus, 1000)
        await asyncio.sleep(0.5)
        assert it.clients["sleeper"].connection.control_bytes < 100
        answer = await slow.ask(Subscribe("2", Filter.parse("exists m")), 5)
        assert answer.number == 5
        alive.cancel()
        slow.close()


async def _signs_of_life(raw):
    while True:
        raw.send(wire.Ping())
        await asyncio.sleep(0.02)


# ---------------------------------------------------------------- between brokers


@asynchronous
async def test_a_peer_that_takes_nothing_holds_publishers_back_and_is_cut_off_at_last():
    options = {"link_bytes": 1 << 16, "stall": 0.5}
    async with broker(name="b1", **options) as it, connect(address(it), timeout=20) as bus:
        peer = await Raw.peer(it, "b2")
        peer.send(Subscribe("b2", Filter.parse("exists n")))
        await until(lambda: it.node.state()["parties"] is not None and "b2" in it.links)
        await bus.interest("true")
        alive = asyncio.create_task(_signs_of_life(peer))
        publishing = asyncio.create_task(publish_large(bus, 3000))
        await until(lambda: it._congested)
        assert it.links["b2"].connection.queued_bytes < (1 << 16) + 2 * (1 << 20)
        await asyncio.wait_for(publishing, 10)  # once the peer was cut off
        assert "b2" not in it.links
        alive.cancel()
        peer.close()


@asynchronous
async def test_two_brokers_whose_clients_block_each_other_do_not_lock_up():
    """Each publishes to a client of the other that is slow; all arrives at last."""
    options = {"queue": 20, "link_bytes": 1 << 16}
    async with broker(name="b1", **options) as one, broker(name="b2", peers=[address(one)], **options) as two:
        await linked(one, two)
        links = one.links["b2"], two.links["b1"]
        await until(lambda: all(link.received_count for link in links))
        known = sum(link.received_count for link in links)
        at_one, at_two = await sleeper(one, policy="block"), await sleeper(two, policy="block")
        await until(lambda: sum(link.received_count for link in links) >= known + 2)  # both subscriptions
        async with connect(address(one)) as first, connect(address(two)) as second:
            publishing = [
                asyncio.create_task(publish_large(first, 1000)),
                asyncio.create_task(publish_large(second, 1000, start=1000)),
            ]
            await until(lambda: one._congested and two._congested)
            await asyncio.sleep(0.3)
            assert not all(task.done() for task in publishing)
            got_one, got_two = await asyncio.gather(take(at_one, 2000), take(at_two, 2000))
            await asyncio.gather(*publishing)
            everything = set(range(2000))
            assert set(got_one) == set(got_two) == everything
            assert len(got_one) == len(got_two) == 2000
            assert len(one.links) == len(two.links) == 1
        at_one.close()
        at_two.close()


async def take(raw, count):
    """So many events; meanwhile it gives signs of life."""
    alive = asyncio.create_task(_signs_of_life(raw))
    got = []
    while len(got) < count:
        frame = await raw.read()
        assert frame is not None
        if isinstance(frame, wire.Tell):
            got += [item.event["n"] for item in wire.decode_told(frame.events)]
    alive.cancel()
    return got


# ---------------------------------------------------------------- the application's own queues


@asynchronous
async def test_an_application_that_is_behind_still_gets_answers():
    """Who reads events and publishes others for them waits for answers, with a full queue before him."""
    async with (
        broker() as it,
        connect(address(it)) as feed,
        connect(address(it), timeout=5) as worker,
        worker.subscribe("exists raw", size=4) as jobs,
        feed.subscribe("exists done") as results,
    ):
        await feed.publish_all([Event({"raw": number, "load": LARGE}) for number in range(40)])
        for _ in range(40):
            job = await jobs.get()
            await worker.publish(Event({"done": job["raw"]}))
        assert [(await results.get())["done"] for _ in range(40)] == list(range(40))
        assert jobs.dropped == worker.dropped == 0


@asynchronous
async def test_what_an_application_does_not_read_waits_at_the_broker_under_its_policy():
    async with (
        broker(queue=30) as it,
        connect(address(it)) as feed,
        connect(address(it)) as reader,
        reader.subscribe("exists n", size=5) as events,
    ):
        await publish_large(feed, 3000)
        state = it.describe()["clients"][reader.name]
        assert state["queued"] == 30
        assert state["dropped"] > 0
        got = []
        while not got or got[-1] < 2999:
            got.append((await events.get())["n"])
        assert got == sorted(set(got))
        assert got[-30:] == list(range(2970, 3000))
        assert len(got) + state["dropped"] == 3000
        await until(lambda: reader.dropped == state["dropped"])


@asynchronous
async def test_drops_are_told_in_the_log_of_the_client(caplog):
    async with (
        broker(queue=5) as it,
        connect(address(it)) as feed,
        connect(address(it)) as reader,
        reader.subscribe("exists n", size=1) as events,
    ):
        with caplog.at_level(logging.WARNING, "angelia.client"):
            await publish_large(feed, 1000)
            while (await events.get())["n"] < 999:
                pass
            await until(lambda: reader.dropped)
    assert "had no room for" in caplog.text


@asynchronous
async def test_a_subscription_with_the_number_of_a_former_one_gets_none_of_its_events():
    async with broker() as it, connect(address(it)) as feed, connect(address(it)) as reader:
        for number in range(30):
            old = await reader.subscribe("exists a", size=2)
            await feed.publish_all([Event({"a": number})] * 20)
            closing = asyncio.create_task(old.close())
            await asyncio.sleep(0)
            async with reader.subscribe("exists b") as new:
                await closing
                await feed.publish(Event({"b": number}))
                assert (await new.get()).attributes == {"b": number}
                assert new.drain() == []
