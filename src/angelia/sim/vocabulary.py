"""Random filters, events, advertisements and event types, all over the same few attributes.

The values are few, so that filters cover each other and events match often; every operator of the
language is there. All that is drawn conforms to the event types, whether they are known yet or not.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime

from angelia.event import Event, Value, format_timestamp
from angelia.filter import Advertisement, Filter
from angelia.filter.topics import topic_filter
from angelia.types import EventType

__all__ = [
    "TYPES",
    "random_advertisement",
    "random_event",
    "random_filter",
    "random_topic_event",
    "random_topic_filter",
]

_COMMON = {"x": "integer?", "y": "float?", "s": "string?", "b": "boolean?", "at": "timestamp?"}

# In an order in which they can be defined; each is a subtype of another but for the first and the last.
TYPES = (
    EventType("Reading", _COMMON),
    EventType("Reading.Alarm", {"level": "integer?"}, parent="Reading"),
    EventType("Reading.Alarm.Fire", parent="Reading.Alarm"),
    EventType("Order", _COMMON),
)
_NAMES = [event_type.name for event_type in TYPES]

_NUMBERS = range(5)
_STRINGS = ("a", "ab", "abc", "b", "ba", "cab")
_TIMES = tuple(datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3))
_TOPICS = ("news", "sports", "sports/football", "sports/football/uk", "sports/tennis")
_REGEXES = ("^a", "b$", "^[ab]+$")


def _number(rng: random.Random, name: str) -> str:
    a, b = sorted((rng.choice(_NUMBERS), rng.choice(_NUMBERS)))
    return rng.choice(
        (
            f"{name} = {a}",
            f"{name} != {a}",
            f"{name} < {b}",
            f"{name} <= {b}",
            f"{name} > {a}",
            f"{name} >= {a}",
            f"{name} between {a} and {b}",
            f"{name} in ({a}, {b})",
            f"exists {name}",
        )
    )


def _string(rng: random.Random, name: str) -> str:
    text, other = rng.choice(_STRINGS), rng.choice(_STRINGS)
    return rng.choice(
        (
            f'{name} = "{text}"',
            f'{name} != "{text}"',
            f'{name} >= "{text}"',
            f'{name} prefix "{text[0]}"',
            f'{name} suffix "{text[-1]}"',
            f'{name} contains "{text[0]}"',
            f'{name} matches "{rng.choice(_REGEXES)}"',
            f'{name} in ("{text}", "{other}")',
        )
    )


def _boolean(rng: random.Random, name: str) -> str:
    return f"{name} = {rng.choice(('true', 'false'))}"


def _timestamp(rng: random.Random, name: str) -> str:
    return f'{name} {rng.choice(("=", "<", ">="))} t"{format_timestamp(rng.choice(_TIMES))}"'


_CONSTRAINTS: dict[str, Callable[[random.Random, str], str]] = {
    "x": _number,
    "y": _number,
    "s": _string,
    "b": _boolean,
    "at": _timestamp,
}
_OFTEN = ("x", "x", "x", "x", "y", "y", "s", "s", "b", "at")


def _constraint(rng: random.Random) -> str:
    name = rng.choice(_OFTEN)
    text = _CONSTRAINTS[name](rng, name)
    return f"not ({text})" if rng.random() < 0.08 else text


def _conjunction(rng: random.Random) -> str:
    text = " and ".join(_constraint(rng) for _ in range(rng.choice((1, 1, 1, 2, 2, 3))))
    return f"({rng.choice(_NAMES)}: {text})" if rng.random() < 0.4 else text


def random_filter(rng: random.Random) -> Filter:
    """A filter that some event matches."""
    while True:
        if rng.random() < 0.04:
            return Filter.of_type(rng.choice(_NAMES)) if rng.random() < 0.7 else Filter()
        alternatives = [_conjunction(rng) for _ in range(2 if rng.random() < 0.12 else 1)]
        drawn = Filter.parse(" or ".join(alternatives))
        if drawn.is_satisfiable:
            return drawn


def random_event(rng: random.Random, number: int) -> Event:
    """An event with some of the attributes, of some type or none."""
    values: dict[str, Value] = {
        "x": rng.choice(_NUMBERS),
        "y": rng.choice((0.0, 0.5, 1.0, 2.5, 4.0)),
        "s": rng.choice(_STRINGS),
        "b": rng.random() < 0.5,
        "at": rng.choice(_TIMES),
    }
    kept = {name: value for name, value in values.items() if rng.random() < 0.75}
    name = rng.choice(_NAMES) if rng.random() < 0.45 else None
    return Event(kept, type=name, id=f"e{number}")


def random_topic_filter(rng: random.Random) -> Filter:
    """A filter that is about topics, more often than not."""
    drawn = random_filter(rng)
    if any(part.types for part in drawn.conjunctions) or rng.random() < 0.3:
        return drawn
    topics = topic_filter(rng.choice(_TOPICS) + rng.choice(("", "/#")))
    return topics if rng.random() < 0.6 else topics & drawn


def random_topic_event(rng: random.Random, number: int) -> Event:
    """An event with a topic, unless it has a type."""
    event = random_event(rng, number)
    if event.type is not None:
        return event
    return Event({**event.attributes, "topic": rng.choice(_TOPICS)}, id=event.id)


def random_advertisement(rng: random.Random) -> Advertisement:
    """An advertisement of everything, of a type, or of part of the values."""
    if rng.random() < 0.2:
        return Advertisement.parse("true")
    plain = " and ".join(f"exists {name}" for name in _COMMON if name != "x")
    some = rng.choice((f"x < {rng.choice(_NUMBERS[1:])}", f"x >= {rng.choice(_NUMBERS)}", "exists x"))
    limited = f"{some} and {plain}"
    if rng.random() < 0.6:
        return Advertisement.parse(limited)
    return Advertisement.parse(f"{rng.choice(_NAMES)}: {rng.choice(('true', limited))}")
