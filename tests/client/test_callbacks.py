"""Callbacks of a client whose broker is elsewhere: past their queues where that makes no difference."""

import asyncio
import time

from tests.broker.helpers import address, asynchronous, broker, quote, until

from angelia.bus.callbacks import SLICE
from angelia.client import connect


@asynchronous
async def test_callbacks_are_called_event_by_event():
    order = []
    async with broker() as it, connect(address(it)) as bus:
        for name in "ab":
            await bus.subscribe("true", lambda event, name=name: order.append((event["price"], name)))
        await bus.publish_all(map(quote, range(100)))
        await until(lambda: len(order) == 200)
    assert order == [(price, name) for price in range(100) for name in "ab"]


@asynchronous
async def test_slow_callbacks_let_others_have_their_turn_and_keep_the_order():
    order = []

    def slow(event):
        end = time.monotonic() + SLICE
        while time.monotonic() <= end:
            pass
        order.append(event["price"])

    async def other():
        while len(order) < 20:
            order.append("task")
            await asyncio.sleep(0)

    async with broker() as it, connect(address(it)) as bus:
        subscription = await bus.subscribe("true", slow)
        task = asyncio.create_task(other())
        await bus.publish_all(map(quote, range(10)), confirm=False)
        await until(lambda: subscription.stats().received == 10 and subscription.stats().queued == 0)
        await task
    calls = [one for one in order if one != "task"]
    assert calls == list(range(10))
    assert "task" in order[order.index(0) : order.index(9)]


@asynchronous
async def test_a_callback_may_end_its_own_subscription_and_that_of_others():
    got = []
    async with broker() as it, connect(address(it)) as bus:

        def first(event):
            got.append(("first", event["price"]))
            if event["price"] == 1:
                ending.extend(asyncio.ensure_future(one.close()) for one in (mine, others))

        ending = []
        mine = await bus.subscribe("true", first)
        others = await bus.subscribe("true", lambda event: got.append(("second", event["price"])))
        for price in range(4):
            await bus.publish(quote(price))
        await asyncio.gather(*ending)
        await bus.publish(quote(9))
    assert [price for who, price in got if who == "first"][:2] == [0, 1]
    assert ("first", 9) not in got
    assert ("second", 9) not in got


@asynchronous
async def test_an_awaitable_that_a_callback_returns_is_awaited_before_its_next_event():
    got = []

    async def slow(event):
        got.append(("begun", event["price"]))
        await asyncio.sleep(0)
        got.append(("done", event["price"]))

    async with broker() as it, connect(address(it)) as bus:
        await bus.subscribe("true", lambda event: slow(event))
        await bus.publish_all(map(quote, range(5)))
        await until(lambda: len(got) == 10)
    assert got == [(what, price) for price in range(5) for what in ("begun", "done")]


@asynchronous
async def test_a_callback_that_raises_is_counted_and_gets_the_next_event():
    got = []

    def fails(event):
        got.append(event["price"])
        raise ZeroDivisionError

    async with broker() as it, connect(address(it)) as bus:
        subscription = await bus.subscribe("true", fails)
        await bus.publish_all(map(quote, range(3)))
        await until(lambda: len(got) == 3)
        assert subscription.stats().failed == subscription.stats().received == 3
