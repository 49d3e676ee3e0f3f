"""What a matcher is given: an `Event`, or a plain dictionary of attributes, or batches of rows in Python.

Both become *flat values*: a mapping from names to plain values, the context under `@type`, `@source` and
so on. A dictionary that is flat and plain already is taken as it is; any other is made an event first,
which flattens it, or says what is wrong with it.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from angelia.errors import BatchError, EventError
from angelia.event import CONTEXT, Event

__all__ = ["ODD", "checked", "checked_all", "csr", "event_of", "is_plain", "rows_of", "values_of"]

# What the compiled engine raises for a dictionary that needs a closer look: `checked` has one.
ODD = (struct.error, KeyError, TypeError, AttributeError, ValueError, OverflowError)

_AT = {name: f"@{name}" for name in CONTEXT}
_PLAIN = frozenset((str, bool, float))


def values_of(event: Event | Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
    """The values of an event, with those of the context that `names` has; a mapping as it is."""
    if not isinstance(event, Event):
        return event
    values: Mapping[str, Any] = event._attributes
    if names:
        context = {name: value for name in names if (value := event.get(name)) is not None}
        return {**values, **context}
    return values


def event_of(event: Event | Mapping[str, Any]) -> Event:
    """An event, made from a mapping if need be; an `EventError` if that cannot be."""
    if isinstance(event, Event):
        return event
    if not isinstance(event, Mapping):
        raise EventError(f"an event is an Event or a mapping of attributes, not {type(event).__name__}")
    attributes = {name: value for name, value in event.items() if name not in _AT.values()}
    context = {name: event[at] for name, at in _AT.items() if event.get(at) is not None}
    return Event(attributes, **context)


def checked(event: Event | Mapping[str, Any]) -> Mapping[str, Any]:
    """Flat and plain values, whatever was given."""
    return values_of(event_of(event), _AT.values())


def is_plain(values: Mapping[str, Any]) -> bool:
    """Whether a dictionary needs no closer look before the pure engine sees it."""
    for value in values.values():
        cls = type(value)
        if (
            cls not in _PLAIN
            and not (cls is int and -(2**63) <= value < 2**63)
            and not (cls is datetime and value.tzinfo is UTC)
        ):
            return False
    return True


def checked_all(events: Sequence[Event | Mapping[str, Any]]) -> Sequence[Event | Mapping[str, Any]]:
    """Flat and plain values of several events; the same object if all were plain already."""
    if all(type(event) is dict and is_plain(event) for event in events):
        return events
    found: list[Mapping[str, Any]] = []
    for i, event in enumerate(events):
        try:
            found.append(event if type(event) is dict and is_plain(event) else checked(event))
        except EventError as error:
            raise type(error)(f"event {i}: {error}") from None
    return found


def csr(answers: Iterable[Sequence[Any]]) -> tuple[array[int], list[Any]]:
    """Answers one after another, and where each begins."""
    offsets, found = array("q", [0]), list[Any]()
    for answer in answers:
        found += answer
        offsets.append(len(found))
    return offsets, found


def rows_of(columns: Any) -> Iterator[Mapping[str, Any]]:
    """The rows of a batch as flat values, for the pure engine. Columns may be lists here too."""
    if hasattr(columns, "to_pylist"):
        for row in columns.to_pylist():
            yield _row(row)
        return
    if not isinstance(columns, Mapping):
        raise BatchError(f"a batch is a table or a mapping of columns, not {type(columns).__name__}")
    lists: dict[str, Sequence[Any]] = {
        name: column.tolist() if hasattr(column, "tolist") else column for name, column in columns.items()
    }
    sizes = {name: len(column) for name, column in lists.items()}
    if len(set(sizes.values())) > 1:
        raise BatchError(f"the columns have different lengths: {sizes}")
    for values in zip(*lists.values(), strict=True):
        yield _row(dict(zip(lists, values, strict=True)))


def _row(values: dict[str, Any]) -> Mapping[str, Any]:
    if is_plain(values):
        return values
    try:
        return checked({name: _utc(value) for name, value in values.items()})
    except EventError as error:
        raise BatchError(str(error)) from None


def _utc(value: Any) -> Any:
    """A timestamp of a column has no time zone of its own: it is taken as UTC. Null elements are left out."""
    if isinstance(value, list):
        return [_utc(element) for element in value if element is not None]
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value
