"""A type is removed at a broker, and clients of it and of others are told."""

from __future__ import annotations

import asyncio

import pytest
from tests.broker.helpers import FAST, address, asynchronous, broker, linked, quote, until

from angelia import EventType
from angelia.client import connect
from angelia.errors import AngeliaError, EventTypeError
from angelia.messages import Advertise, DefineType

QUOTE = EventType("flights.Quote", {"airline": "string", "price": "integer"}, owner="shop")


@asynchronous
async def test_subscriptions_of_a_removed_type_end_at_every_broker_and_nobody_brings_it_back():
    async with broker(**FAST) as one, broker(peers=[address(one)], **FAST) as other:
        await linked(one, other)
        async with connect(address(one)) as shop, connect(address(other)) as ann:
            await shop.define(QUOTE)
            await until(lambda: "flights.Quote" in ann.registry)
            await shop.advertise("flights.Quote: true")
            async with ann.subscribe("flights.Quote: price < 500") as quotes, ann.subscribe("true") as all_:
                await until(lambda: one.node.state()["subscriptions"])
                await shop.publish(quote(420))
                with pytest.raises(AngeliaError, match="belongs to 'shop'"):
                    await ann.remove_type("flights.Quote")
                await shop.remove_type("flights.Quote", "shop")
                assert (await asyncio.wait_for(anext(aiter(quotes)), 10))["price"] == 420
                with pytest.raises(EventTypeError, match=r"flights\.Quote was removed"):
                    await asyncio.wait_for(anext(aiter(quotes)), 10)
                await until(lambda: "flights.Quote" not in ann.registry)
                assert "flights.Quote" not in shop.registry
                kept = [type(request) for request in shop._session.standing()]
                assert not {DefineType, Advertise} & set(kept), "a client that comes back does not ask for it"
                assert (await asyncio.wait_for(anext(aiter(all_)), 10))["price"] == 420
                await shop.publish(quote(300))
                assert (await asyncio.wait_for(anext(aiter(all_)), 10))["price"] == 300, "others go on"
