"""Several brokers are alternatives: what a client has asked for stands at the next one, too."""

import asyncio
import logging

import pytest
from tests.broker.helpers import FAST, address, asynchronous, broker, prices, quote, until

from angelia import Event, event_type
from angelia.client import connect
from angelia.errors import BrokerError, ClosedError, ConnectionLostError
from angelia.local.network import free_ports


@event_type("trip.Booking")
class Booking:
    seats: int


async def crash(it):
    """End a broker without a word, as a crash does."""
    it._server.close()
    for connection in list(it._connections):
        connection.abort("crash")
    await asyncio.sleep(0)


@asynchronous
async def test_subscriptions_advertisements_and_types_stand_at_the_next_broker():
    async with (
        broker(name="b1", routing="advertisement") as one,
        broker(name="b2", routing="advertisement") as two,
        connect(address(one), address(two), name="me") as bus,
    ):
        plain = await bus.subscribe("price < 500")
        typed = await bus.subscribe(Booking, where="seats > 1")
        pattern = await bus.subscribe("price = 1 then price = 2")
        gone = await bus.subscribe("exists never")
        await gone.close()
        await bus.advertise("flights.Quote: true")
        await bus.advertise("trip.Booking: true")
        await bus.advertise("exists nothing")
        await bus.unadvertise("exists nothing")
        assert bus.broker == "b1"
        await crash(one)
        await until(lambda: bus.broker == "b2")
        assert bus.reconnects == 1
        await bus.publish_all([quote(1), quote(900), quote(2)])
        await bus.publish(Booking(seats=3))
        assert prices([await plain.get() for _ in range(2)]) == [1, 2]
        assert prices(await pattern.get()) == [1, 2]
        assert await typed.get() == Booking(seats=3)
        state = two.describe()["clients"]["me"]
        assert state["subscriptions"] == 3
        assert "trip.Booking" in two.node.registry
        advertised = two.clients["me"]._advertised
        assert sorted(map(str, advertised)) == ["flights.Quote: true", "trip.Booking: true"]


@asynchronous
async def test_the_same_broker_will_do_when_it_is_back():
    (port,) = free_ports(1)
    async with broker(name="b1", listen=f"127.0.0.1:{port}") as one:
        bus = await connect(address(one))
        got = await bus.subscribe("true")
    async with broker(name="b1", listen=f"127.0.0.1:{port}") as again:
        await until(lambda: again.clients)
        await bus.publish(quote(1))
        assert prices([await got.get()]) == [1]
        await bus.close()


@asynchronous
async def test_a_request_that_may_be_made_twice_survives_the_loss():
    """It is under way when the broker dies, and answered by the next."""
    async with broker(name="b1") as one, broker(name="b2") as two, connect(address(one), address(two)) as bus:
        one.clients[bus.name].connection.read(False)  # the broker takes nothing any more
        asked = [
            asyncio.ensure_future(bus.interest("price = 1")),
            asyncio.ensure_future(bus.define(Booking)),
        ]
        subscribing = bus.subscribe("price = 1")
        await asyncio.sleep(0.05)
        assert not any(one.done() for one in asked)
        await crash(one)
        assert await asked[0] is False or await asked[0] is True
        await asked[1]
        async with subscribing as got:
            assert bus.broker == "b2"
            await bus.publish(quote(1))
            assert prices([await got.get()]) == [1]


@asynchronous
async def test_a_publication_in_doubt_is_told_and_not_made_twice():
    async with broker(name="b1") as one, broker(name="b2") as two, connect(address(one), address(two)) as bus:
        one.clients[bus.name].connection.read(False)
        publishing = asyncio.ensure_future(bus.publish(quote(1)))
        await asyncio.sleep(0.05)
        await crash(one)
        with pytest.raises(ConnectionLostError, match="may have been published, or not"):
            await publishing
        await bus.publish(quote(2))
        assert two.published == 1


@asynchronous
async def test_who_publishes_while_there_is_no_broker_waits_for_one():
    (port,) = free_ports(1)
    async with broker(name="b1") as one:
        bus = await connect(address(one), f"127.0.0.1:{port}", timeout=10)
        await crash(one)
        await until(lambda: bus._session.uplink._connection is None)
        publishing = [asyncio.ensure_future(bus.publish(quote(number))) for number in range(3)]
        unconfirmed = asyncio.ensure_future(bus.publish(quote(3), confirm=False))
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in (*publishing, unconfirmed))
        async with broker(name="b2", listen=f"127.0.0.1:{port}") as two:
            await asyncio.gather(*publishing, unconfirmed)
            await until(lambda: two.published == 4)
            await bus.close()


@asynchronous
async def test_without_any_broker_requests_end_with_an_error_after_the_timeout():
    async with broker(name="b1") as one:
        bus = await connect(address(one), timeout=0.2)
        subscription = await bus.subscribe("true")
        await crash(one)
        for request in (
            lambda: bus.publish(quote(1)),
            lambda: bus.publish(quote(1), confirm=False),
            lambda: bus.interest("true"),
            lambda: bus.advertise("true"),
            bus.describe,
        ):
            if bus._session.uplink._connection is not None:
                await until(lambda: bus._session.uplink._connection is None)
            with pytest.raises(BrokerError, match=r"within 0\.2 s|for 0\.2 s"):
                await request()
        await subscription.close()  # at once: there is nobody to be told
        await bus.close()
        with pytest.raises(ClosedError):
            await bus.publish(quote(1))


@asynchronous
async def test_a_client_that_closes_while_it_looks_for_a_broker_leaves_nothing_behind():
    async with broker(name="b1") as one:
        bus = await connect(address(one))
        events = await bus.subscribe("true")
        await crash(one)
        waiting = asyncio.ensure_future(bus.publish(quote(1)))
        await asyncio.sleep(0.05)
        await bus.close()
        with pytest.raises((ClosedError, ConnectionLostError)):
            await waiting
        assert [event async for event in events] == []


@asynchronous
async def test_the_first_broker_that_answers_is_taken_at_the_start():
    (port,) = free_ports(1)
    async with broker(name="b2") as two, connect(f"127.0.0.1:{port}", address(two)) as bus:
        assert bus.broker == "b2"
        assert bus.reconnects == 0


@asynchronous
async def test_nothing_comes_twice_and_what_is_after_the_change_comes():
    """Events while there is no broker may be missed; nothing is delivered twice, and order stays."""
    async with broker(name="b2", **FAST) as two:
        one = broker(name="b1", peers=[address(two)], **FAST)
        await one.start()
        await until(lambda: one.links and two.links)
        async with connect(address(two)) as publisher, connect(address(one), address(two)) as reader:
            got = []
            await reader.subscribe("true", lambda event: got.append(event["price"]))
            while not await publisher.interest("true"):
                await asyncio.sleep(0.01)
            for number in range(200):
                await publisher.publish(quote(number))
                if number == 100:
                    await one.stop()
                await asyncio.sleep(0.001)
            await until(lambda: reader.broker == "b2")
            await publisher.publish(quote(200))
            await until(lambda: got[-1] == 200)
            assert got == sorted(set(got))
            assert {*range(100), 200} <= set(got)


@asynchronous
async def test_the_loss_is_told_in_the_log(caplog):
    with caplog.at_level(logging.WARNING, "angelia.client"):
        async with broker(name="b2") as two:
            one = broker(name="b1")
            await one.start()
            async with connect(address(one), address(two)) as bus:
                await one.stop()
                await until(lambda: bus.broker == "b2")
    assert "lost the connection to b1: b1 is shutting down" in caplog.text


@asynchronous
async def test_events_wait_at_the_next_broker_too_while_the_application_is_behind():
    async with (
        broker(name="b1") as one,
        broker(name="b2") as two,
        connect(address(one), address(two)) as reader,
        connect(address(two)) as publisher,
    ):
        events = await reader.subscribe("exists n", size=2)
        async with connect(address(one)) as first:
            await first.publish_all([Event({"n": number}) for number in range(10)])
        await until(lambda: reader._session.uplink.is_held)
        await crash(one)
        await until(lambda: reader.broker == "b2")
        await reader.interest("true")
        await publisher.publish_all([Event({"n": number}) for number in range(10, 20)])
        assert two.describe()["clients"][reader.name]["queued"] == 10
        assert [(await events.get())["n"] for _ in range(20)] == list(range(20))
