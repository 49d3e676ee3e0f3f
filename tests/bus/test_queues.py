"""Slow consumers: what each policy does when a queue is full."""

import asyncio
import logging

import pytest
from tests.bus.helpers import asynchronous, prices, quote, turns

from angelia.bus import BlockedError, Bus, DisconnectedError, aio

pytestmark = pytest.mark.filterwarnings("error")


@asynchronous
async def test_drop_oldest_keeps_the_newest():
    async with Bus() as bus:
        notifications = bus.subscribe("true", size=3, policy="drop_oldest")
        for price in range(10):
            await bus.publish(quote(price))
        assert prices(notifications.drain()) == [7, 8, 9]
        assert notifications.dropped == bus.stats().dropped == 7


@asynchronous
async def test_drop_newest_keeps_the_oldest():
    async with Bus() as bus:
        notifications = bus.subscribe("true", size=3, policy="drop_newest")
        for price in range(10):
            await bus.publish(quote(price))
        assert prices(notifications.drain()) == [0, 1, 2]
        assert notifications.dropped == bus.stats().dropped == 7


@asynchronous
async def test_disconnect_ends_the_subscription_with_a_clear_error():
    async with Bus() as bus:
        notifications = bus.subscribe("true", size=3, policy="disconnect")
        for price in range(5):
            await bus.publish(quote(price))
        for _ in range(2):
            with pytest.raises(DisconnectedError, match=r"queue of 3 was full.*4 events were dropped"):
                await notifications.get()
        with pytest.raises(DisconnectedError):
            async for _ in notifications:
                pass
        assert notifications.dropped == bus.stats().dropped == 4
        assert bus.stats().subscriptions == ()
        assert not await bus.interest("true")


@asynchronous
async def test_a_waiting_consumer_is_not_disconnected():
    async with Bus() as bus:
        notifications = bus.subscribe("true", size=1, policy="disconnect")

        async def consume():
            return [event["price"] async for event in notifications]

        consumer = asyncio.create_task(consume())
        for price in range(100):
            await bus.publish(quote(price))  # yields when the queue is full, so that the consumer may run
        await bus.close()
        assert await consumer == list(range(100))


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "block"])
@asynchronous
async def test_a_consumer_that_keeps_up_loses_nothing_to_a_publisher_in_a_hurry(policy):
    async with Bus() as bus:
        notifications = bus.subscribe("true", size=10, policy=policy)

        async def consume():
            return [event["price"] async for event in notifications]

        consumer = asyncio.create_task(consume())
        for price in range(1000):
            await bus.publish(quote(price))
        await bus.close()
        assert await consumer == list(range(1000))
        assert notifications.dropped == 0


# ---------------------------------------------------------------- block


@asynchronous
async def test_block_makes_the_publisher_wait_and_nobody_else():
    async with Bus() as bus:
        slow = bus.subscribe("price >= 0", size=2)
        quick = bus.subscribe("price >= 0")

        async def publish():
            for price in range(5):
                await bus.publish(quote(price))

        publisher = asyncio.create_task(publish())
        await turns()
        assert not publisher.done()
        assert prices(quick.drain()) == [0, 1, 2]  # the third, too, though its publisher waits
        await bus.publish(quote(-1))  # what the slow one does not want is not held up
        assert prices([await slow.get() for _ in range(5)]) == [0, 1, 2, 3, 4]
        await publisher
        assert prices(quick.drain()) == [3, 4]
        assert slow.dropped == 0


@asynchronous
async def test_blocked_publishers_are_served_in_order():
    async with Bus() as bus:
        slow = bus.subscribe("true", size=1)
        publishers = []
        for price in range(6):
            publishers.append(asyncio.create_task(bus.publish(quote(price))))
            await turns()
        assert [task.done() for task in publishers] == [True, False, False, False, False, False]
        assert prices([await slow.get() for _ in range(6)]) == list(range(6))
        await asyncio.gather(*publishers)


@asynchronous
async def test_a_publisher_that_gives_up_is_counted_as_a_drop():
    async with Bus() as bus:
        slow, quick = bus.subscribe("true", size=1), bus.subscribe("true")
        await bus.publish(quote(0))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await bus.publish(quote(1))
        assert prices(slow.drain()) == [0]
        assert prices(quick.drain()) == [0, 1]
        assert slow.dropped == 1
        await bus.publish(quote(2))
        assert prices(slow.drain()) == [2]


@asynchronous
async def test_a_task_that_would_wait_for_itself_is_told():
    async with Bus() as bus:
        notifications = bus.subscribe("true", size=2)
        await bus.publish(quote(0))

        async def multiply():
            async for event in notifications:
                for more in range(3):
                    await bus.publish(quote(event["price"] + more))

        with pytest.raises(BlockedError, match="it would wait for itself"):
            await multiply()
        assert notifications.dropped == 1


@asynchronous
async def test_a_subscription_handed_to_another_task_does_not_count_as_ones_own():
    async with Bus() as bus:
        notifications = bus.subscribe("true", size=1)
        await bus.publish(quote(0))
        await notifications.get()

        async def consume():
            return [event["price"] async for event in notifications]

        consumer = asyncio.create_task(consume())
        for price in range(1, 10):
            await bus.publish(quote(price))
        await bus.close()
        assert await consumer == list(range(1, 10))


@asynchronous
async def test_closing_the_slow_subscription_frees_the_publisher():
    async with Bus() as bus:
        slow = bus.subscribe("true", size=1)
        await bus.publish(quote(0))
        publisher = asyncio.create_task(bus.publish(quote(1)))
        await turns()
        await slow.close()
        await publisher
        assert slow.dropped == 0


@asynchronous
async def test_closing_the_bus_frees_the_publisher_and_keeps_its_event():
    async with Bus() as bus:
        slow = bus.subscribe("true", size=1)
        await bus.publish(quote(0))
        publisher = asyncio.create_task(bus.publish(quote(1)))
        await turns()
    await publisher
    assert [event["price"] async for event in slow] == [0, 1]


@asynchronous
async def test_a_long_wait_is_told_in_the_log(monkeypatch, caplog):
    monkeypatch.setattr(aio, "PATIENCE", 0.0)
    async with Bus() as bus:
        slow = bus.subscribe("true", size=1)
        await bus.publish(quote(0))
        publisher = asyncio.create_task(bus.publish(quote(1)))
        with caplog.at_level(logging.WARNING, "angelia.bus"):
            await turns()
        assert "room in a queue of 1 events" in caplog.text
        slow.drain()
        await publisher
