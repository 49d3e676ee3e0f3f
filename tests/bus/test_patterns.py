"""Subscriptions to sequences: a tuple of events for each occurrence."""

import pytest
from tests.bus.helpers import Auction, Sale, asynchronous, prices, quote, turns
from tests.bus.test_brokers import WAYS

from angelia.bus import Bus, SyncBus
from angelia.errors import ConformanceError, FilterSyntaxError, RequestError
from angelia.pattern import Pattern

pytestmark = pytest.mark.filterwarnings("error")

RISE = "price < 10 then price > 20"


@pytest.mark.parametrize("pattern", [RISE, Pattern.parse(RISE)])
@asynchronous
async def test_a_pattern_is_delivered_as_a_tuple(pattern):
    async with Bus() as bus:
        rises = bus.subscribe(pattern)
        for price in (30, 5, 15, 7, 25, 26, 1, 40):
            await bus.publish(quote(price))
        assert [prices(rise) for rise in rises.drain()] == [[5, 25], [1, 40]]
        assert rises.filter == Pattern.parse(RISE)
        await rises.close()
        assert bus._core.network.node("b1").state()["subscriptions"] == {}


@pytest.mark.parametrize(("topology", "routing"), WAYS)
@asynchronous
async def test_patterns_work_across_brokers(topology, routing):
    async with Bus(5, topology=topology, routing=routing) as bus:
        rises = bus.client("far", broker="b5").subscribe(RISE)
        publishers = [bus, bus.client("p", broker="b3")]
        for number, price in enumerate((30, 5, 15, 7, 25, 26, 1, 40)):
            await publishers[number % 2].publish(quote(price))
        assert [prices(rise) for rise in rises.drain()] == [[5, 25], [1, 40]]
        await rises.close()
        before = bus.stats().received
        for price in (5, 25):
            await bus.publish(quote(price))
        assert bus.stats().received == before


@asynchronous
async def test_a_pattern_has_a_queue_and_callbacks_like_any_other():
    got = []
    async with Bus() as bus:
        bus.subscribe(RISE, lambda rise: got.append(prices(rise)))
        latest = bus.subscribe(RISE, size=1, policy="drop_oldest")
        for price in (1, 21, 2, 22):
            await bus.publish(quote(price))
            await turns()
        assert got == [[1, 21], [2, 22]]
        assert prices(await latest.get()) == [2, 22]
        assert latest.dropped == 1


@asynchronous
async def test_a_failing_callback_of_a_pattern_names_its_events(caplog):
    async with Bus() as bus:
        bus.subscribe(RISE, lambda rise: 1 / 0)
        await bus.publish(quote(1, id="low"))
        await bus.publish(quote(21, id="high"))
    assert "failed for the event low, high" in caplog.text


@asynchronous
async def test_somebody_who_waits_for_a_pattern_is_interested_in_its_parts():
    async with Bus() as bus:
        bus.subscribe(RISE)
        assert await bus.interest("price = 5")
        assert await bus.interest("price = 25")
        assert not await bus.interest("price = 15")


@asynchronous
async def test_a_bad_pattern_is_refused():
    async with Bus() as bus:
        await bus.define(Auction)
        with pytest.raises(FilterSyntaxError, match="column 19"):
            bus.subscribe("a = 1 then price <")
        with pytest.raises(RequestError, match="matches nothing"):
            bus.subscribe("a = 1 then x > 5 and x < 3")
        with pytest.raises(ConformanceError, match="no attribute 'prize'"):
            bus.subscribe("test.Sale: price < 5 then test.Sale: prize > 5")
        with pytest.raises(RequestError, match="where narrows a filter"):
            bus.subscribe(RISE, where="price < 2")
        simple = bus.subscribe(Pattern.parse("price < 5"))
        await bus.publish(Sale(where="shop", price=1))
        assert prices(simple.drain()) == [1]


def test_patterns_without_asyncio():
    with SyncBus() as bus, bus.subscribe(RISE) as rises:
        for price in (1, 21):
            bus.publish(quote(price))
        assert prices(rises.get(timeout=1)) == [1, 21]
