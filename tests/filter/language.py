"""A generator of filters and a second, deliberately dumb meaning of them: the oracle.

The oracle works on the syntax as generated and on events with one value an attribute, and shares
no code with `angelia.filter`.
"""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from datetime import UTC, datetime
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
    leaves = st.sampled_from(names).flatmap(lambda name: atoms(name, ALL_TEXT))
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
