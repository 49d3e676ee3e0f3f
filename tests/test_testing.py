"""What users test their own publishers and subscribers with."""

import asyncio

import pytest

from angelia import Event, event_type
from angelia.bus import SyncBus
from angelia.testing import MemoryBus, VirtualClock, collect

pytestmark = pytest.mark.filterwarnings("error")


@event_type("testing.Reading")
class Reading:
    celsius: float


def test_a_virtual_clock_advances_when_told_and_never_goes_back():
    clock = VirtualClock(100)
    clock.advance(2.5)
    assert clock() == clock.now == 102.5
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_events_are_stamped_by_the_virtual_clock():
    async def scenario():
        async with MemoryBus() as bus:
            readings, start = collect(bus, "exists celsius"), bus.clock.now
            for _ in range(3):
                await bus.publish(Event({"celsius": 20}))
                bus.clock.advance(60)
            assert [event.time.timestamp() - start for event in readings.events] == [0, 60, 120]
            assert len({event.id for event in readings.events}) == 3

    asyncio.run(scenario())


def test_two_runs_are_equal():
    async def scenario():
        async with MemoryBus(3, topology="line") as bus:
            far = collect(bus.client("far", broker="b3"), "celsius > 10")
            for celsius in range(20):
                await bus.publish(Event({"celsius": celsius}))
                bus.clock.advance(1)
        return far.events

    first, second = asyncio.run(scenario()), asyncio.run(scenario())
    assert first == second
    assert len(first) == 9


def test_collected_events_can_be_compared_without_their_stamps():
    async def scenario():
        async with MemoryBus() as bus:
            events, instances = collect(bus, "celsius < 30"), collect(bus, Reading)
            await bus.publish(Reading(celsius=20))
            await bus.publish(Reading(celsius=40))
            assert events.attributes == [{"celsius": 20}]
            assert instances.events == [Reading(celsius=20), Reading(celsius=40)]
            instances.clear()
            await bus.publish(Reading(celsius=50))
            assert instances.events == [Reading(celsius=50)]

    asyncio.run(scenario())


def test_a_collection_has_no_limit():
    async def scenario():
        async with MemoryBus() as bus:
            everything = collect(bus, "true")
            for number in range(3000):
                await bus.publish(Event({"number": number}))
            assert len(everything.events) == 3000

    asyncio.run(scenario())


def test_settle_waits_for_callbacks_and_what_they_publish():
    async def scenario():
        async with MemoryBus() as bus:

            async def alarm(reading):
                await asyncio.sleep(0)
                await bus.publish(Event({"alarm": reading.celsius}))

            bus.subscribe(Reading, alarm, where="celsius > 30")
            heard = []
            bus.subscribe("exists alarm", heard.append)
            await bus.publish(Reading(celsius=35))
            await bus.settle()
            assert [event["alarm"] for event in heard] == [35]

    asyncio.run(scenario())


def test_it_serves_the_synchronous_bus_too():
    clock = VirtualClock()
    with SyncBus(clock=clock) as bus:
        readings = collect(bus, Reading)
        bus.publish(Reading(celsius=20))
        assert readings.events == [Reading(celsius=20)]
