"""Brokers of an overlay, over TCP: they find each other through one, and clients see the service as ever."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.broker.helpers import FAST, Raw, address, asynchronous, broker, until

from angelia import Event, EventType, wire
from angelia.client import connect
from angelia.messages import DefineType


@pytest.mark.parametrize("routing", ["hermes", "scribe"])
@asynchronous
async def test_events_cross_an_overlay_of_brokers_that_linked_themselves(routing):
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(broker(name="b0", routing=routing, **FAST))
        others = [
            await stack.enter_async_context(
                broker(name=f"b{number}", routing=routing, peers=[address(first)], **FAST)
            )
            for number in (1, 2, 3)
        ]
        everybody = [first, *others]
        await until(lambda: all(len(one.node.router.peers) == 3 == len(one.links) for one in everybody), 20)
        seller = await stack.enter_async_context(connect(address(others[0])))
        buyer = await stack.enter_async_context(connect(address(others[2])))
        async with buyer.subscribe("Quote: price < 500") as quotes:
            await seller.advertise("Quote: true")

            async def offer() -> None:
                while True:  # subscription and advertisement are still on their way to each other
                    for price in (420, 900):
                        await seller.publish(Event({"price": price}, type="Quote"))
                    await asyncio.sleep(0.05)

            offers = asyncio.create_task(offer())
            try:
                event = await asyncio.wait_for(anext(aiter(quotes)), 20)
            finally:
                offers.cancel()
                await asyncio.gather(offers, return_exceptions=True)
        assert event["price"] == 420


@asynchronous
async def test_who_asks_faster_than_others_answer_is_read_more_slowly():
    async with (
        broker(name="b0", routing="hermes") as first,
        broker(name="b1", routing="hermes", peers=[address(first)]) as second,
    ):
        client = await Raw.client(second)
        await until(lambda: len(second.node.router.peers) == 1, 20)
        types = [EventType(f"T{number}", doc="x" * 8000) for number in range(400)]  # in many reads
        for number, event_type in enumerate(types, 1):
            client.write(wire.encode_request(number, DefineType("x", event_type)))
        (session,) = second.clients.values()
        answers, most = 0, 0
        while answers < len(types):
            most = max(most, len(session._deferred))
            answer = await asyncio.wait_for(client.read_a(wire.Answer), 30)
            assert answer.error is None
            answers += 1
        assert 0 < most < len(types) / 2
        client.close()
