"""The standard workload of the matching benchmark, and its worst cases.

Events have 10 attributes: four strings from Zipf vocabularies of 10, 100, 1,000 and 10,000 words, four
numbers uniform in [0, 1000), a boolean and a timestamp. Filters have one to four constraints on different
attributes: half of all constraints are string equalities, 10% prefixes, 30% numeric ranges or
inequalities, 10% `!=`, `exists`, suffix or contains. About 0.3% of the filters match an event.

So that this comes out, the first constraint of a filter is a selective one (an equality, a prefix or a
narrow range) and the words of equalities are drawn evenly from a vocabulary, preferring large ones, while
the words of events follow Zipf's law.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import and_
from typing import Any

from angelia import Filter, attr

START = datetime(2026, 1, 1, tzinfo=UTC)
SIZES = (10, 100, 1_000, 10_000)
SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


def words(count: int, seed: int) -> list[str]:
    """Distinct pronounceable words of four to eight letters."""
    draw = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(draw.choices(SYLLABLES, k=draw.randint(2, 4)))] = None
    return list(found)


VOCABULARIES = {f"s{i}": words(size, i) for i, size in enumerate(SIZES)}
NUMBERS = ("n0", "n1", "n2", "n3")
"""Names of attributes: s0 to s3 are strings, n0 to n3 numbers, b a boolean, t a timestamp."""


def events(count: int, seed: int) -> list[dict[str, Any]]:
    """Events as dictionaries."""
    draw = random.Random(seed)
    columns: dict[str, list[Any]] = {}
    for name, vocabulary in VOCABULARIES.items():
        weights = [1 / rank for rank in range(1, len(vocabulary) + 1)]
        columns[name] = draw.choices(vocabulary, weights, k=count)
    for name in NUMBERS:
        columns[name] = [draw.random() * 1000 for _ in range(count)]
    columns["b"] = [draw.random() < 0.5 for _ in range(count)]
    columns["t"] = [START + timedelta(microseconds=draw.randrange(86_400_000_000)) for _ in range(count)]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# ---------------------------------------------------------------- the standard filters


def _equality(draw: random.Random, name: str) -> Filter:
    return attr(name) == draw.choice(VOCABULARIES[name])


def _prefix(draw: random.Random, name: str) -> Filter:
    return attr(name).prefix(draw.choice(VOCABULARIES[name])[:4])


def _narrow(draw: random.Random, name: str) -> Filter:
    low = draw.random() * 1000
    return attr(name).between(low, low + draw.random() * 4)


def _wide(draw: random.Random, name: str) -> Filter:
    bound = draw.random() * 1000
    if draw.random() < 0.5:
        return attr(name).between(bound, bound + draw.random() * 400)
    return attr(name) < bound if draw.random() < 0.5 else attr(name) > bound


def _rest(draw: random.Random, name: str) -> Filter:
    word = draw.choice(VOCABULARIES[name])
    return draw.choice(
        (
            attr(name) != word,
            attr(name).exists(),
            attr(name).suffix(word[-2:]),
            attr(name).contains(word[1:3]),
        )
    )


_STRING_NAMES = ("s0", "s1", "s2", "s3")
# What comes first in a filter, and what may follow: how likely, what, and on which attributes.
_FIRST = (
    (0.62, _equality, ("s0", *3 * ("s1", "s2", "s3"))),
    (0.16, _prefix, ("s2", "s3")),
    (0.22, _narrow, NUMBERS),
)
_LATER = (
    (0.42, _equality, ("s0", "s0", "s1", "s2")),
    (0.06, _prefix, _STRING_NAMES),
    (0.353, _wide, NUMBERS),
    (0.167, _rest, _STRING_NAMES),
)


def _constraint(draw: random.Random, choices: Any, taken: set[str]) -> Filter | None:
    _, make, names = draw.choices(choices, [share for share, _, _ in choices])[0]
    free = [name for name in names if name not in taken]
    if not free:
        return None
    name = draw.choice(free)
    taken.add(name)
    made: Filter = make(draw, name)
    return made


def standard(draw: random.Random) -> Filter:
    """A filter of the standard workload."""
    taken: set[str] = set()
    size = draw.randint(1, 4)
    parts = [_constraint(draw, _FIRST, taken)]
    while len(taken) < size:
        parts.append(_constraint(draw, _LATER, taken))
    return reduce(and_, [part for part in parts if part is not None])


def filters(count: int, seed: int = 1, make: Callable[[random.Random], Filter] = standard) -> list[Filter]:
    """Filters of one kind."""
    draw = random.Random(seed)
    return [make(draw) for _ in range(count)]


# ---------------------------------------------------------------- the worst cases


@dataclass(frozen=True)
class WorstCase:
    """A kind of filter, and of event if it is another than the standard one."""

    name: str
    make: Callable[[random.Random], Filter]
    event: Callable[[random.Random], dict[str, Any]] | None = None


def _hot(draw: random.Random) -> Filter:
    first, second = draw.sample(NUMBERS, 2)
    return (attr("s0") == VOCABULARIES["s0"][0]) & _wide(draw, first) & _narrow(draw, second)


def _selective(share: float) -> Callable[[random.Random], Filter]:
    def make(draw: random.Random) -> Filter:
        low = draw.random() * 1000 * (1 - share)
        return attr(draw.choice(NUMBERS)).between(low, low + 1000 * share)

    return make


_MANY = [f"a{i}" for i in range(200)]


def _sparse(draw: random.Random) -> Filter:
    names = draw.sample(_MANY, draw.randint(1, 3))
    return reduce(and_, [attr(name) == draw.randrange(50) for name in names])


def _sparse_event(draw: random.Random) -> dict[str, Any]:
    return {name: draw.randrange(50) for name in draw.sample(_MANY, 10)}


_WIDE = [f"w{i}" for i in range(24)]


def _of_twenty(draw: random.Random) -> Filter:
    def part(name: str) -> Filter:
        bound = draw.randrange(8)
        return attr(name) <= bound if draw.random() < 0.5 else attr(name) >= bound - 6

    return reduce(and_, [part(name) for name in draw.sample(_WIDE, 20)])


def _event_of_24(draw: random.Random) -> dict[str, Any]:
    return {name: draw.randrange(8) for name in _WIDE}


WORST = (
    WorstCase("one hot value", _hot),
    WorstCase("ranges only", lambda draw: _wide(draw, "n0") & _narrow(draw, "n1")),
    WorstCase("prefixes only", lambda draw: _prefix(draw, draw.choice(("s2", "s3")))),
    WorstCase("contains only", lambda draw: attr("s3").contains(draw.choice(VOCABULARIES["s3"])[1:5])),
    WorstCase("!= only", lambda draw: attr("s3") != draw.choice(VOCABULARIES["s3"])),
    WorstCase("1% selectivity", _selective(0.01)),
    WorstCase("50% selectivity", _selective(0.5)),
    WorstCase("200 attributes, 10 in an event", _sparse, _sparse_event),
    WorstCase("20 constraints", _of_twenty, _event_of_24),
)
