"""A generator of filters and a second, deliberately dumb meaning of them: the oracle.

The oracle works on the syntax as generated and shares no code with `angelia.filter`. Events with one
value an attribute are asked one by one; what an expression means on lists is written out at the end.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from itertools import product
from typing import Any

from hypothesis import strategies as st

from angelia.filter.parser import print_literal

NUMBERS = (0, 1, 2)
STRINGS = ("", "a", "b", "ab", "ba", "aab")
TIMES = tuple(datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2))

# Every value that can tell two constraints on the literals above apart: between, below and above them.
NUMBER_VALUES = (-1, 0, 0.5, 1, 1.0, 1.5, 2, 3.25, math.nan)
STRING_VALUES = tuple("".join(text) for n in range(5) for text in product("Aabc", repeat=n))
TIME_VALUES = tuple(datetime(2026, 1, day, hour, tzinfo=UTC) for day in (1, 2) for hour in (0, 12))
VALUES = (None, True, False, *NUMBER_VALUES, *STRING_VALUES, *TIME_VALUES, datetime(2025, 1, 1, tzinfo=UTC))

_COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "prefix": str.startswith,
    "suffix": str.endswith,
    "contains": operator.contains,
    "matches": lambda value, pattern: re.search(pattern, value) is not None,
}


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__


@dataclass(frozen=True)
class Atom:
    """A constraint as generated."""

    name: str
    op: str
    operands: tuple[Any, ...] = ()

    def text(self) -> str:
        shown = [print_literal(value) for value in self.operands]
        if self.op == "exists":
            return f"exists {self.name}"
        if self.op == "between":
            return f"{self.name} between {shown[0]} and {shown[1]}"
        if self.op == "in":
            return f"{self.name} in ({', '.join(shown)})"
        return f"{self.name} {self.op} {shown[0]}"

    def holds(self, event: dict[str, Any]) -> bool:
        value = event.get(self.name)
        if value is None:
            return False
        if self.op == "exists":
            return True
        if _kind(value) != _kind(self.operands[0]) or value != value:
            return False
        if self.op == "between":
            return self.operands[0] <= value <= self.operands[1]
        if self.op == "in":
            return any(value == other for other in self.operands)
        return bool(_COMPARE[self.op](value, self.operands[0]))


@dataclass(frozen=True)
class Compound:
    """`and`, `or` or `not` of parts."""

    op: str
    parts: tuple[Any, ...]

    def text(self) -> str:
        if self.op == "not":
            return f"not ({self.parts[0].text()})"
        return f" {self.op} ".join(f"({part.text()})" for part in self.parts)

    def holds(self, event: dict[str, Any]) -> bool:
        if self.op == "not":
            return not self.parts[0].holds(event)
        return (all if self.op == "and" else any)(part.holds(event) for part in self.parts)


def _atoms_of(name: str, literals: tuple[Any, ...], ops: tuple[str, ...]) -> st.SearchStrategy[Atom]:
    one = st.sampled_from(literals)
    return st.one_of(
        st.builds(lambda op, value: Atom(name, op, (value,)), st.sampled_from(ops), one),
        st.builds(lambda a, b: Atom(name, "between", (a, b)), one, one),
        st.builds(lambda vs: Atom(name, "in", tuple(vs)), st.lists(one, min_size=1, max_size=3)),
    )


ORDER = ("=", "!=", "<", "<=", ">", ">=")


def atoms(name: str = "x", text_ops: tuple[str, ...] = ("prefix", "suffix")) -> st.SearchStrategy[Atom]:
    """Constraints on one attribute, of every kind."""
    booleans = st.builds(
        lambda op, value: Atom(name, op, (value,)), st.sampled_from(("=", "!=")), st.booleans()
    )
    return st.one_of(
        st.just(Atom(name, "exists")),
        booleans,
        _atoms_of(name, NUMBERS, ORDER),
        _atoms_of(name, TIMES, ORDER),
        _atoms_of(name, STRINGS, ORDER + text_ops),
        _atoms_of(name, STRINGS, ORDER + text_ops),
    )


def same_kind_atoms(
    name: str = "x", text_ops: tuple[str, ...] = ("prefix", "suffix")
) -> st.SearchStrategy[list[Atom]]:
    """Constraints on one attribute and of one kind: conjunctions of these are seldom empty."""
    return st.one_of(
        st.lists(_atoms_of(name, NUMBERS, ORDER), min_size=1, max_size=4),
        st.lists(_atoms_of(name, STRINGS, ORDER + text_ops), min_size=1, max_size=3),
        st.lists(_atoms_of(name, TIMES, ORDER), min_size=1, max_size=3),
        st.lists(atoms(name, text_ops), min_size=1, max_size=2),
    )


ALL_TEXT = ("prefix", "suffix", "contains", "matches")


def conjunctions(
    name: str = "x", text_ops: tuple[str, ...] = ("prefix", "suffix")
) -> st.SearchStrategy[Compound]:
    """Conjunctions of constraints on one attribute."""
    return same_kind_atoms(name, text_ops).map(lambda parts: Compound("and", tuple(parts)))


def expressions(names: tuple[str, ...] = ("x", "y")) -> st.SearchStrategy[Any]:
    """Any filter without types, over a few attributes."""
    leaves = st.one_of([atoms(name, ALL_TEXT) for name in names])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(lambda part: Compound("not", (part,)), inner),
            st.builds(
                lambda op, parts: Compound(op, tuple(parts)),
                st.sampled_from(("and", "or")),
                st.lists(inner, min_size=2, max_size=3),
            ),
        ),
        max_leaves=6,
    )


# ---------------------------------------------------------------- the oracle on many events at once

Events = tuple[dict[str, Any], ...]

# Short strings of each sort and what ends in a literal: these tell any two conjunctions with prefixes,
# suffixes and ends at the literals apart.
LONG_STRINGS = {start + end for start in STRING_VALUES for end in STRINGS} - {*STRING_VALUES}
X_EVENTS: Events = tuple({"x": value} for value in (*VALUES, *sorted(LONG_STRINGS)))

_FEW = (None, True, -1, 0, 0.5, 1, 2, 3.25, math.nan, "", "A", "a", "aa", "ab", "aab", "b", "ba", "bab")
_FEW += (datetime(2025, 1, 1, tzinfo=UTC), TIMES[0], TIMES[1])
XY_EVENTS: Events = tuple({"x": x, "y": y} for x in _FEW for y in _FEW)


class Oracle:
    """Which of some events an expression matches, as the bits of one number."""

    def __init__(self, events: Events) -> None:
        self.events = events
        self.everything = (1 << len(events)) - 1
        self._atoms: dict[str, int] = {}

    def __call__(self, expression: Any) -> int:
        if isinstance(expression, Atom):
            text = expression.text()
            if text not in self._atoms:
                self._atoms[text] = bits(expression.holds, self.events)
            return self._atoms[text]
        parts = [self(part) for part in expression.parts]
        if expression.op == "not":
            return self.everything & ~parts[0]
        return reduce(operator.and_ if expression.op == "and" else operator.or_, parts)


def bits(holds: Callable[[Any], bool], events: Iterable[Any]) -> int:
    """The events for which something holds, as the bits of one number."""
    return sum(1 << number for number, event in enumerate(events) if holds(event))


# ---------------------------------------------------------------- lists

# An alternative says of each name which atoms one and the same element satisfies, and which groups of
# atoms no element satisfies all of.
Alternative = dict[str, tuple[tuple[Atom, ...], tuple[tuple[Atom, ...], ...]]]


def alternatives(expression: Any) -> list[Alternative]:
    """An expression as alternatives, multiplied out and never simplified: what it means on lists."""
    if isinstance(expression, Atom):
        return [{expression.name: ((expression,), ())}]
    parts = [alternatives(part) for part in expression.parts]
    if expression.op == "or":
        return [alternative for part in parts for alternative in part]
    if expression.op == "and":
        return reduce(_and, parts)
    return reduce(_and, map(_negated, parts[0]), [{}])


def _and(left: list[Alternative], right: list[Alternative]) -> list[Alternative]:
    none: tuple[tuple[Any, ...], tuple[Any, ...]] = ((), ())
    return [
        {
            name: tuple(x + y for x, y in zip(a.get(name, none), b.get(name, none), strict=True))
            for name in a.keys() | b.keys()
        }
        for a in left
        for b in right
    ]


def _negated(alternative: Alternative) -> list[Alternative]:
    return [
        each
        for name, (some, groups) in alternative.items()
        for each in (
            *([{name: ((), (some,))}] if some else []),
            *({name: (group, ())} for group in groups),
        )
    ]


def holds_on_lists(found: list[Alternative], event: dict[str, tuple[Any, ...]]) -> bool:
    """Whether an event of lists (empty: missing) matches one of the alternatives."""
    return any(
        all(
            (not some or any(_all_hold(some, name, value) for value in event[name]))
            and not any(_all_hold(group, name, value) for group in groups for value in event[name])
            for name, (some, groups) in alternative.items()
        )
        for alternative in found
    )


def _all_hold(parts: tuple[Atom, ...], name: str, value: Any) -> bool:
    return all(part.holds({name: value}) for part in parts)
