"""Callbacks: plain and asynchronous, and those that fail."""

import asyncio
import logging
import time

import pytest
from tests.bus.helpers import Sale, asynchronous, quote, turns

from angelia.bus import Bus, ClosedError
from angelia.bus.callbacks import SLICE
from angelia.errors import RequestError

pytestmark = pytest.mark.filterwarnings("error")


@asynchronous
async def test_plain_and_asynchronous_callbacks_get_events_in_order():
    plain, waited = [], []

    async def slowly(event):
        await asyncio.sleep(0)
        waited.append(event["price"])

    async with Bus() as bus:
        bus.subscribe("true", lambda event: plain.append(event["price"]))
        await bus.subscribe("true", slowly)
        for price in range(20):
            await bus.publish(quote(price))
    assert plain == waited == list(range(20))  # closing the bus lets them finish


@asynchronous
async def test_callbacks_of_a_class_get_instances():
    got = []
    async with Bus() as bus:
        bus.subscribe(Sale, got.append, where="price > 1")
        await bus.publish(Sale(where="shop", price=1))
        await bus.publish(Sale(where="shop", price=2))
    assert got == [Sale(where="shop", price=2)]


@asynchronous
async def test_a_callback_that_raises_is_logged_and_counted_and_disturbs_nobody(caplog):
    got = []

    def fails(event):
        if event["price"] == 1:
            raise ZeroDivisionError
        got.append(event["price"])

    async with Bus() as bus:
        subscription = bus.subscribe("true", fails)
        other = bus.subscribe("true")
        with caplog.at_level(logging.ERROR, "angelia.bus"):
            for price in range(3):
                await bus.publish(quote(price, id=f"e{price}"))
            await turns(10)
        assert got == [0, 2]
        assert len(other.drain()) == 3
        assert subscription.stats().failed == bus.stats().failed == 1
    assert "the callback of bus#1 (true) failed for the event e1" in caplog.text
    assert "ZeroDivisionError" in caplog.text


@asynchronous
async def test_a_slow_callback_does_not_stall_others():
    release = asyncio.Event()
    got = []

    async def stuck(event):
        await release.wait()

    async with Bus() as bus:
        bus.subscribe("true", stuck, size=2, policy="drop_oldest")
        bus.subscribe("true", got.append)
        for price in range(10):
            await bus.publish(quote(price))
            await turns(2)
        assert len(got) == 10
        assert bus.stats().dropped == 7  # one is with the callback, two are queued
        release.set()


@asynchronous
async def test_a_callback_may_publish_and_subscribe():
    got, fives = [], []
    async with Bus() as bus:

        async def echo(event):
            if event["price"] < 5:
                await bus.publish(quote(event["price"] + 1))
            if event["price"] == 2:
                bus.subscribe("price = 5", fives.append)
            got.append(event["price"])

        bus.subscribe("true", echo)
        await bus.publish(quote(0))
        await turns(30)
    assert got == [0, 1, 2, 3, 4, 5]
    assert len(fives) == 1


@asynchronous
async def test_a_callback_that_fills_its_own_queue_is_told(caplog):
    async with Bus() as bus:

        async def echo(event):
            await bus.publish(event)
            await bus.publish(event)

        bus.subscribe("true", echo, size=1)
        await bus.publish(quote(1))
        await turns(10)
    assert "it would wait for itself" in caplog.text


@asynchronous
async def test_a_callback_may_close_its_subscription_and_the_bus():
    got = []
    bus = Bus()

    async def once(event):
        got.append("once")
        await subscription.close()

    async def last(event):
        got.append("last")
        await bus.close()

    subscription = bus.subscribe("true", once)
    bus.subscribe("price = 2", last)
    for price in (1, 2):
        await bus.publish(quote(price))
        await turns()
    assert got == ["once", "last"]
    with pytest.raises(ClosedError):
        await bus.publish(quote(3))


@asynchronous
async def test_two_callbacks_that_close_the_bus_do_not_wait_for_each_other():
    bus = Bus()

    async def end(event):
        await asyncio.sleep(0)
        await bus.close()

    bus.subscribe("true", end)
    bus.subscribe("true", end)
    await bus.publish(quote(1))
    await turns(10)
    await bus.close()


@asynchronous
async def test_closing_a_subscription_waits_for_its_callback_and_forgets_the_queue():
    release, got = asyncio.Event(), []

    async def slow(event):
        await release.wait()
        got.append(event["price"])

    async with Bus() as bus:
        subscription = bus.subscribe("true", slow)
        for price in range(3):
            await bus.publish(quote(price))
        await turns()
        closing = asyncio.create_task(subscription.close())
        await turns()
        assert not closing.done()
        release.set()
        await closing
        assert got == [0]


@asynchronous
async def test_closing_a_client_waits_for_its_callbacks():
    got = []

    async def slow(event):
        await asyncio.sleep(0)
        got.append(event["price"])

    async with Bus() as bus:
        async with bus.client("alice") as alice:
            alice.subscribe("true", slow)
            for price in range(3):
                await bus.publish(quote(price))
        assert got == [0, 1, 2]


@asynchronous
async def test_a_disconnected_callback_is_told_in_the_log(caplog):
    release = asyncio.Event()
    async with Bus() as bus:
        subscription = bus.subscribe("true", lambda event: release.wait(), size=1, policy="disconnect")
        for price in range(4):
            await bus.publish(quote(price))
            await turns()
        assert subscription.dropped == 2  # the first is with the callback, the last came after the end
        release.set()
    assert "bus#1 (true): the subscription was ended" in caplog.text


@asynchronous
async def test_events_of_a_callback_cannot_be_read_as_well():
    async with Bus() as bus:
        subscription = bus.subscribe("true", print)
        with pytest.raises(RequestError, match="go to its callback"):
            await subscription.get()
        with pytest.raises(RequestError, match="go to its callback"):
            await anext(subscription)
        with pytest.raises(RequestError, match="go to its callback"):
            subscription.drain()


@asynchronous
async def test_a_thousand_callbacks_leave_no_task():
    got = []
    async with Bus() as bus:
        for _ in range(1000):
            bus.subscribe("true", got.append)
        await bus.publish(quote(1))
        await turns()
        assert len(got) == 1000
        assert len(asyncio.all_tasks()) == 1


@asynchronous
async def test_a_callback_whose_task_was_cancelled_goes_on_with_the_next_event():
    got = []

    async def note(event):
        got.append(event)

    async with Bus() as bus:
        bus.subscribe("true", note)
        await bus.publish(quote(1))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await turns()
        assert got == []
        await bus.publish(quote(2))
    assert [event["price"] for event in got] == [1, 2]


@asynchronous
async def test_a_plain_function_that_returns_an_awaitable_has_it_awaited_before_the_next_event():
    got = []

    async def slow(event):
        got.append(("begun", event["price"]))
        await asyncio.sleep(0)
        got.append(("done", event["price"]))

    async with Bus() as bus:
        bus.subscribe("true", lambda event: slow(event))
        await bus.publish_all([quote(1), quote(2)])
    assert got == [("begun", 1), ("done", 1), ("begun", 2), ("done", 2)]


@asynchronous
async def test_plain_callbacks_are_called_event_by_event_the_oldest_subscription_first():
    order = []
    async with Bus() as bus:
        for name in "abc":
            bus.client(name).subscribe("true", lambda event, name=name: order.append((event["price"], name)))
        await bus.publish_all([quote(price) for price in range(3)])
    assert order == [(price, name) for price in range(3) for name in "abc"]


@asynchronous
async def test_plain_callbacks_that_take_long_take_turns_with_tasks():
    order = []

    async def other():
        for _ in range(3):
            order.append("task")
            await asyncio.sleep(0)

    def slow(event):
        until = time.monotonic() + SLICE
        while time.monotonic() <= until:
            pass
        order.append("call")

    async with Bus() as bus:
        bus.subscribe("true", slow)
        task = asyncio.create_task(other())
        await bus.publish_all([quote(price) for price in range(4)])
        await task
    assert order.index("task") < len(order) - 1 - order[::-1].index("call")
    assert order.count("call") == 4


@asynchronous
async def test_a_disconnected_plain_callback_is_told_once(caplog):
    async with Bus() as bus:
        bus.subscribe("true", lambda event: None, size=2, policy="disconnect")
        with caplog.at_level(logging.ERROR, "angelia.bus"):
            await bus.publish_all([quote(price) for price in range(4)])
            await turns(10)
    assert caplog.text.count("its policy is disconnect") == 1
