"""How event classes look to a type checker: `mypy --strict` passes (test_type_checkers.py)."""

from collections.abc import Sequence
from dataclasses import field
from datetime import UTC, datetime
from typing import assert_type

from angelia.event import Event
from angelia.types import EventType, TypeRegistry, event_type, from_event, to_event, type_of


@event_type
class Happening:
    at: datetime | None = None


@event_type("flights.Quote", owner="united")
class Quote(Happening):
    airline: str
    price: float
    stops: Sequence[str] = ()
    sold_by: str | None = field(default=None, metadata={"name": "sold-by"})


quote = Quote(airline="UA", price=420, stops=["DEN"], at=datetime(2026, 1, 1, tzinfo=UTC))
assert_type(quote, Quote)
assert_type(quote.price, float)
assert_type(quote.at, datetime | None)

event = to_event(quote, source="feeds/united")
assert_type(event, Event)
assert_type(from_event(Happening, event), Happening)

registry = TypeRegistry([EventType("Log", {"line": "string", "tags": "string[]"})])
assert_type(registry.add_class(Quote), EventType)
assert_type(type_of(Quote), EventType)
