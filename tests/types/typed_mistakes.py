"""Mistakes that a type checker must find; each line says which (test_type_checkers.py)."""

from angelia.event import Event
from angelia.types import EventType, event_type, from_event


@event_type
class Happening:
    note: str | None = None


@event_type("flights.Quote")
class Quote(Happening):
    airline: str
    price: float


Quote(airline="UA")  # error: call-arg
Quote(airline="UA", price="420")  # error: arg-type
Happening("by keyword only")  # error: call-arg
Quote(airline="UA", price=420, pirce=3)  # error: call-arg
Quote(airline="UA", price=420).price = 3  # error: misc
print(Quote(airline="UA", price=420).cost)  # error: attr-defined
wrong: Quote = from_event(Happening, Event())  # error: assignment
EventType("Log", {"line": 7})  # error: dict-item
