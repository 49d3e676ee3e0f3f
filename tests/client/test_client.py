"""`connect`: the interface of the bus, with a broker elsewhere."""

import asyncio
import logging
import time

import pytest
from tests.broker.helpers import address, asynchronous, broker, linked, prices, quote, until

from angelia import Event, Filter, attr, event_type
from angelia.client import connect
from angelia.errors import (
    BrokerError,
    ClosedError,
    ConformanceError,
    EventError,
    EventTypeError,
    FilterError,
    FilterSyntaxError,
    RequestError,
    UnknownTypeError,
)
from angelia.local.network import free_ports
from angelia.pattern import Pattern
from angelia.types import EventType


@event_type("shop.Sale")
class Sale:
    item: str
    price: float


@event_type("shop.Auction")
class Auction(Sale):
    bidders: int


# ---------------------------------------------------------------- publishing


@asynchronous
async def test_confirmed_events_are_there_when_publish_returns():
    async with broker() as it, connect(address(it)) as bus:
        await bus.publish(quote(1))
        assert it.published == 1
        await bus.publish_all(map(quote, range(10)))
        assert it.published == 11


@asynchronous
async def test_unconfirmed_events_arrive_in_order_with_the_confirmed_ones():
    async with broker() as it, connect(address(it)) as bus, bus.subscribe("true", size=5000) as got:
        for number in range(1000):
            await bus.publish(quote(number), confirm=False)
        await bus.publish_all(map(quote, range(1000, 1010)), confirm=False)
        await bus.publish(quote(1010))
        assert prices([await got.get() for _ in range(1011)]) == list(range(1011))


@asynchronous
async def test_what_was_published_without_waiting_is_sent_before_the_client_leaves():
    async with broker() as it:
        async with connect(address(it)) as bus:
            for number in range(3000):
                await bus.publish(quote(number), confirm=False)
        assert it.published == 3000


@asynchronous
async def test_a_batch_is_published_all_or_none():
    async with broker() as it, connect(address(it)) as bus:
        await bus.define(Sale)
        good = Event({"item": "a", "price": 1.0}, type="shop.Sale")
        bad = Event({"item": 1, "price": 1.0}, type="shop.Sale")
        async with bus.subscribe("shop.Sale: true") as got:
            with pytest.raises(ConformanceError, match="item") as caught:
                await bus.publish_all([good, bad, good])
            assert caught.value.problems
            await asyncio.gather(  # sent together, and each for itself
                bus.publish(good),
                *(_refused(bus, [good, bad]) for _ in range(3)),
                bus.publish(good),
            )
            await bus.publish_all([good, bad], confirm=False)
            await bus.publish(good.replace(subject="last"))
            assert [event.subject for event in [await got.get() for _ in range(3)]] == [None, None, "last"]
            assert it.published == 3


async def _refused(bus, events):
    with pytest.raises(ConformanceError):
        await bus.publish_all(events)


@asynchronous
async def test_an_unconfirmed_event_that_is_refused_takes_no_other_with_it(caplog):
    async with broker() as it, connect(address(it)) as bus:
        await bus.define(Sale)
        async with bus.subscribe("true") as got:
            with caplog.at_level(logging.WARNING, "angelia.client"):
                for number in range(100):
                    price = "dear" if number == 50 else float(number)
                    await bus.publish(Event({"item": "a", "price": price}, type="shop.Sale"), confirm=False)
                await bus.publish(Event({"item": "a", "price": 100.0}, type="shop.Sale"))
            assert prices([await got.get() for _ in range(100)]) == [n for n in range(101) if n != 50]
    assert "price" in caplog.text


@asynchronous
async def test_a_batch_that_is_too_large_for_a_frame_is_refused_here_and_nothing_breaks():
    async with broker(max_frame=1 << 18) as it, connect(address(it)) as bus:
        heavy = Event({"load": "x" * 60_000})
        with pytest.raises(RequestError, match="takes at most 262144 at once"):
            await bus.publish_all([heavy] * 5)
        await bus.publish_all([heavy] * 4)
        assert it.published == 4
        assert bus.reconnects == 0


@asynchronous
async def test_what_is_no_event_is_refused_before_it_is_sent():
    async with broker() as it, connect(address(it)) as bus:
        with pytest.raises(RequestError, match="publish an Event"):
            await bus.publish({"price": 1})
        with pytest.raises(EventError):
            await bus.publish(Event({"price": object()}))
        assert it.published == 0


# ---------------------------------------------------------------- errors


@asynchronous
async def test_errors_of_the_broker_come_back_as_what_they_are():
    async with broker() as it, connect(address(it)) as bus:
        with pytest.raises(FilterSyntaxError, match="column 8"):
            await bus.subscribe("price <")
        with pytest.raises(RequestError, match="matches nothing"):
            await bus.subscribe("x = 1 and x = 2")
        await bus.define(Sale)
        with pytest.raises(ConformanceError, match="price"):
            await bus.subscribe('shop.Sale: price = "dear"')
        with pytest.raises(ConformanceError, match="price"):
            await bus.publish(Event({"item": "a", "price": "dear"}, type="shop.Sale"))
        with pytest.raises(FilterError):
            await bus.interest("price <")
        with pytest.raises(EventTypeError, match=r"shop\.Nothing"):
            await bus.define(EventType("shop.Child", parent="shop.Nothing"))
        with pytest.raises(EventTypeError):
            await bus.define(EventType("shop.Sale", {"item": "integer"}))
        with pytest.raises(UnknownTypeError):
            bus.registry.get("shop.Child")
        assert it.describe()["clients"][bus.name]["subscriptions"] == 0


@asynchronous
async def test_who_does_not_await_a_subscription_is_told_by_get():
    async with broker() as it, connect(address(it)) as bus:
        events = bus.subscribe("x = 1 and x = 2")
        with pytest.raises(RequestError, match="matches nothing"):
            await events.get()
        good = bus.subscribe("x = 1")  # the number of the refused one is free again
        await bus.publish(Event({"x": 1}))
        assert (await good.get())["x"] == 1


@asynchronous
async def test_a_client_that_is_not_open_says_so():
    async with broker() as it:
        bus = connect(address(it))
        with pytest.raises(ClosedError, match="not connected yet"):
            await bus.publish(quote(1))
        async with bus:
            await bus.publish(quote(1))
            events = await bus.subscribe("true")
            await bus.publish(quote(2))
        with pytest.raises(ClosedError):
            await bus.publish(quote(3))
        with pytest.raises(ClosedError):
            bus.subscribe("true")
        assert prices([event async for event in events]) == [2]  # what is in queues can still be read


def test_options_are_checked():
    with pytest.raises(BrokerError, match="no address"):
        connect("http://127.0.0.1:7400")
    with pytest.raises(RequestError, match="timeout"):
        connect(timeout=0)


@asynchronous
async def test_to_connect_to_nobody_is_one_clear_line():
    one, two = free_ports(2)
    with pytest.raises(BrokerError) as caught:
        await connect(f"127.0.0.1:{one}", f"127.0.0.1:{two}")
    message = str(caught.value)
    assert message.startswith(f"cannot connect to tcp://127.0.0.1:{one}: ")
    assert f"; tcp://127.0.0.1:{two}: " in message
    assert "\n" not in message


@asynchronous
async def test_a_broker_that_does_not_answer_is_told_after_the_timeout():
    server = await asyncio.start_server(lambda reader, writer: reader.read(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    started = time.monotonic()
    with pytest.raises(BrokerError, match="does not answer"):
        await connect(f"127.0.0.1:{port}", timeout=0.2)
    assert time.monotonic() - started < 5
    server.close()


@asynchronous
async def test_who_answers_but_is_no_broker_is_told():
    async def answer(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    with pytest.raises(BrokerError, match="cannot connect to"):
        await connect(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
    server.close()


# ---------------------------------------------------------------- subscribing


@asynchronous
async def test_subscribe_by_text_by_builder_and_by_filter():
    async with broker() as it, connect(address(it)) as bus:
        wanted = ["price < 3", Filter.parse("price < 3"), attr("price") < 3]
        subscriptions = [await bus.subscribe(one) for one in wanted]
        await bus.publish_all(map(quote, range(6)))
        for subscription in subscriptions:
            assert prices([await subscription.get() for _ in range(3)]) == [0, 1, 2]
            assert subscription.drain() == []


@asynchronous
async def test_an_event_goes_to_a_connection_once_with_all_its_subscriptions():
    async with broker() as it, connect(address(it)) as bus:
        subscriptions = [await bus.subscribe(f"price < {limit}") for limit in range(1, 21)]
        await bus.publish(quote(5))
        assert [(await subscription.get())["price"] for subscription in subscriptions[5:]] == [5] * 15
        assert not any(subscription.drain() for subscription in subscriptions)
        assert it.delivered == 1
        assert it.clients[bus.name].delivered == 1


@asynchronous
async def test_classes_go_in_and_come_out_and_types_are_learnt_from_the_broker():
    async with broker(name="b1") as one, broker(name="b2", peers=[address(one)]) as two:
        await linked(one, two)
        async with (
            connect(address(one)) as seller,
            connect(address(two)) as buyer,
            buyer.subscribe(Sale, where="price < 100") as sales,
        ):
            await until(lambda: "shop.Sale" in seller.registry)  # told by the broker
            while not await seller.interest(Sale):
                await asyncio.sleep(0.01)
            await seller.publish(Sale(item="chair", price=20.0))
            await seller.publish(Auction(item="table", price=90.0, bidders=3))
            await seller.publish(Auction(item="house", price=900.0, bidders=1))
            assert await sales.get() == Sale(item="chair", price=20.0)
            assert await sales.get() == Auction(item="table", price=90.0, bidders=3)
            assert sales.drain() == []
            await until(lambda: "shop.Auction" in buyer.registry)


@asynchronous
async def test_types_that_were_there_before_a_client_are_known_to_it():
    async with broker() as it:
        async with connect(address(it)) as first:
            await first.define(Auction)
        async with connect(address(it)) as second:
            await second.interest("true")
            assert set(second.registry) == {"shop.Sale", "shop.Auction"}
            assert second.registry.get("shop.Auction").parent == "shop.Sale"


@asynchronous
async def test_patterns_come_as_tuples():
    text = 'stock = "MSFT" and change < 0 then stock = "NSCP" and change > 0'
    async with broker() as it, connect(address(it)) as bus:
        async with bus.subscribe(text) as by_text, bus.subscribe(Pattern.parse(text)) as by_pattern:
            for stock, change in [("MSFT", 2), ("MSFT", -1), ("NSCP", -3), ("NSCP", 4)]:
                await bus.publish(Event({"stock": stock, "change": change}))
            for moves in (by_text, by_pattern):
                fall, rise = await moves.get()
                assert (fall["change"], rise["change"]) == (-1, 4)
        assert it.describe()["clients"][bus.name]["subscriptions"] == 0


@asynchronous
async def test_interest_tells_a_publisher_whether_anybody_listens_here_or_elsewhere():
    async with broker(name="b1") as one, broker(name="b2", peers=[address(one)]) as two:
        await linked(one, two)
        async with connect(address(one)) as publisher, connect(address(two)) as reader:
            assert not await publisher.interest("flights.Quote: true")
            subscription = await reader.subscribe("flights.Quote: price < 500")
            while not await publisher.interest("flights.Quote: true"):
                await asyncio.sleep(0.01)
            assert await publisher.interest("price = 400")
            assert not await publisher.interest("price > 600")
            assert not await publisher.interest("shop.Sale: true")
            await subscription.close()
            while await publisher.interest("price = 400"):
                await asyncio.sleep(0.01)


@asynchronous
async def test_callbacks_plain_and_asynchronous_and_those_that_fail():
    plain, awaited = [], []

    async def slowly(event):
        await asyncio.sleep(0.001)
        awaited.append(event["price"])

    def failing(event):
        raise RuntimeError("as it happens")

    async with broker() as it, connect(address(it)) as bus:
        await bus.subscribe("price < 10", lambda event: plain.append(event["price"]))
        await bus.subscribe("price < 10", slowly)
        bad = await bus.subscribe("price < 10", failing)
        await bus.publish_all(map(quote, range(20)))
        await until(lambda: len(awaited) == 10)
        assert plain == awaited == list(range(10))
        assert bad.stats().failed == 10


@asynchronous
async def test_subscriptions_have_queues_and_policies_of_their_own_here():
    async with broker() as it, connect(address(it)) as bus:
        oldest = await bus.subscribe("true", size=3, policy="drop_oldest")
        newest = await bus.subscribe("true", size=3, policy="drop_newest")
        await bus.publish_all(map(quote, range(10)))
        await until(lambda: oldest.stats().received == newest.stats().received == 10)
        assert prices(oldest.drain()) == [7, 8, 9]
        assert prices(newest.drain()) == [0, 1, 2]
        assert oldest.dropped == newest.dropped == 7


@asynchronous
async def test_a_subscription_that_ended_by_its_policy_is_ended_at_the_broker_too():
    async with broker() as it, connect(address(it)) as bus:
        await bus.subscribe("true", size=1, policy="disconnect")
        await bus.publish_all(map(quote, range(5)))
        await until(lambda: it.describe()["clients"][bus.name]["subscriptions"] == 0)


@asynchronous
async def test_many_requests_at_once_each_get_their_own_answer():
    async with broker() as it, connect(address(it)) as bus:
        filters = [f"x = {number}" for number in range(200)]
        subscriptions = await asyncio.gather(*map(bus.subscribe, filters))
        answers = await asyncio.gather(*map(bus.interest, [*filters, "x = 200"]))
        assert answers == [True] * 200 + [False]
        assert it.describe()["clients"][bus.name]["subscriptions"] == 200
        await asyncio.gather(*(subscription.close() for subscription in subscriptions))
        assert it.describe()["clients"][bus.name]["subscriptions"] == 0
        assert not it.node.state()["patterns"]


@asynchronous
async def test_describe_is_the_state_of_the_broker():
    async with broker(name="b1", routing="general") as it, connect(address(it), name="me") as bus:
        await bus.publish(quote(1))
        state = await bus.describe()
        assert (state["name"], state["routing"], state["published"]) == ("b1", "general", 1)
        assert state["clients"]["me"]["published"] == 1
        assert state["links"] == {}
