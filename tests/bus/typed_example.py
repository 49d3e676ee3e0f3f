"""How the bus looks to a type checker: `mypy --strict` passes (test_typing.py)."""

from typing import assert_type

from angelia import Event, Filter, event_type
from angelia.bus import Bus, Subscription, SyncBus, SyncSubscription
from angelia.pattern import Pattern
from angelia.testing import Collected, MemoryBus, collect


@event_type
class Quote:
    price: float


def note(quote: Quote) -> None:
    print(quote.price)


async def note_later(event: Event) -> None:
    print(event.id)


async def asynchronous() -> None:
    async with Bus(3, topology="line") as bus:
        assert_type(bus, Bus)
        assert_type(bus.subscribe("price < 5"), Subscription[Event])
        assert_type(bus.subscribe(Filter.parse("price < 5"), note_later), Subscription[Event])
        assert_type(bus.subscribe(Pattern.parse("a = 1 then b = 2")), Subscription[tuple[Event, ...]])
        assert_type(await bus.subscribe(Quote, note, where="price < 5", policy="block"), Subscription[Quote])
        async with bus.client("alice", broker="b3").subscribe(Quote, size=5) as quotes:
            assert_type(quotes, Subscription[Quote])
            async for quote in quotes:
                assert_type(quote, Quote)
        assert_type(await bus.interest(Quote), bool)
    async with MemoryBus() as memory:
        assert_type(memory, MemoryBus)
        assert_type(collect(memory, Quote), Collected[Quote])
        assert_type(collect(memory, "true").events, list[Event])


def synchronous() -> None:
    with SyncBus() as bus, bus.subscribe(Quote) as quotes:
        assert_type(quotes, SyncSubscription[Quote])
        assert_type(quotes.get(timeout=1), Quote)
        for event in bus.subscribe("price < 5"):
            assert_type(event, Event)
