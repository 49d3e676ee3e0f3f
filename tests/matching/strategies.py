"""Random filters and events that meet often: few names, few values, every operator and every kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from hypothesis import strategies as st

from angelia import Event, EventType, Filter, TypeRegistry
from angelia.errors import FilterLimitError
from angelia.event import format_timestamp
from angelia.filter.parser import print_literal

NAMES = ("x", "y", "order.total")
CONTEXT = ("@source", "@subject", "@type")
TYPES = ("Base", "Mid", "Leaf", "Other", "Unregistered")

NUMBERS: tuple[int | float, ...] = (
    0, 1, 2, 3, -1, 1.5, 2.5, 1e300, -1e300, 5e-324, 0.1,
    2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**63 - 1, 2**63 - 2, -(2**63), 2.0**63, -(2.0**63), 2.0**64,
)  # fmt: skip
STRINGS = (
    "", "a", "ab", "abc", "b", "ba", "aab", "abab", "é", "éa", "日本", "日", "a\0", "ab\uffff", "\U0010ffff",
    "a\U0010ffff", "\ud7ff", "\ue000", "z" * 9, "z" * 17, "0", "true",
)  # fmt: skip
START = datetime(2026, 1, 1, tzinfo=UTC)
TIMES = (
    START, START + timedelta(microseconds=1), START + timedelta(days=1), datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
)  # fmt: skip
PATTERNS = ("a+b", "^ab", "b$", "[^a]", "日", "(?i)AB", "")
ORDER = ("=", "!=", "<", "<=", ">", ">=")


def registry() -> TypeRegistry:
    """Base above Mid above Leaf, and Other beside them."""
    return TypeRegistry(
        [
            EventType("Base"),
            EventType("Mid", parent="Base"),
            EventType("Leaf", parent="Mid"),
            EventType("Other"),
        ]
    )


def _literal(value: Any) -> str:
    if isinstance(value, datetime):
        return f't"{format_timestamp(value)}"'
    return print_literal(value)


@cache
def _constraints(name: str, values: tuple[Any, ...], operators: tuple[str, ...]) -> st.SearchStrategy[str]:
    one = st.sampled_from(values).map(_literal)
    return st.one_of(
        st.builds(lambda op, value: f"{name} {op} {value}", st.sampled_from(operators), one),
        st.builds(lambda a, b: f"{name} between {a} and {b}", one, one),
        st.lists(one, min_size=1, max_size=5).map(lambda many: f"{name} in ({', '.join(many)})"),
    )


@cache
def constraints(name: str) -> st.SearchStrategy[str]:
    """One constraint on an attribute, of any operator."""
    texts = ("prefix", "suffix", "contains")
    patterns = st.sampled_from(PATTERNS).map(lambda pattern: f"{name} matches {print_literal(pattern)}")
    kinds = st.sampled_from(("string", "number", "boolean", "timestamp")).map(
        lambda kind: f"{name} is {kind}"
    )
    booleans = st.sampled_from((f"{name} = true", f"{name} = false", f"{name} != true"))
    return st.one_of(
        st.just(f"exists {name}"),
        kinds,
        booleans,
        patterns,
        _constraints(name, NUMBERS, ORDER),
        _constraints(name, NUMBERS, ORDER),
        _constraints(name, TIMES, ORDER),
        _constraints(name, STRINGS, ORDER + texts),
        _constraints(name, STRINGS, texts),
    )


@cache
def _same_name(name: str) -> st.SearchStrategy[str]:
    """Several constraints on one attribute, which have to hold for the same value."""
    return st.lists(constraints(name), min_size=2, max_size=3).map(lambda parts: " and ".join(parts))


def _of_some(
    names: tuple[str, ...], strategy: Callable[[str], st.SearchStrategy[str]]
) -> st.SearchStrategy[str]:
    """One of the strategies by name; these are made once, which takes longer than to draw from them."""
    return st.one_of(*map(strategy, names))


def _context() -> st.SearchStrategy[str]:
    return _of_some(CONTEXT, lambda name: _constraints(name, ("a", "ab", *TYPES), (*ORDER, "prefix")))


@cache
def _texts() -> st.SearchStrategy[str]:
    leaves = st.one_of(
        _of_some(NAMES, constraints),
        _of_some(NAMES, _same_name),
        _context(),
        st.sampled_from(TYPES).map(lambda name: f"({name}:)"),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(lambda part: f"not ({part})"),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: " and ".join(f"({p})" for p in parts)),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: " or ".join(f"({p})" for p in parts)),
        ),
        max_leaves=5,
    )


def _parsed(text: str) -> Filter:
    try:
        return Filter.parse(text)
    except FilterLimitError:
        return Filter.parse("x = 1")


@cache
def filters() -> st.SearchStrategy[Filter]:
    """Any filter; now and then one that all events match, or none."""
    return st.one_of(
        _texts().map(_parsed),
        _texts().map(_parsed),
        st.sampled_from(("true", "false", "x = 1")).map(Filter.parse),
    )


SCALARS = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(NUMBERS),
    st.sampled_from((math.nan, math.inf, -math.inf, -0.0)),
    st.sampled_from(STRINGS),
    st.sampled_from(STRINGS),
    st.sampled_from(TIMES),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(alphabet="abz日", max_size=4),
)


@cache
def attributes() -> st.SearchStrategy[dict[str, Any]]:
    """The attributes of an event: some missing, some of another kind than filters ask for, some lists."""
    values = st.one_of(SCALARS, SCALARS, SCALARS, st.lists(SCALARS, max_size=3).map(tuple))
    return st.dictionaries(st.sampled_from((*NAMES, "unknown")), values, max_size=4)


@cache
def events() -> st.SearchStrategy[Event]:
    """Events with and without a context."""
    texts = st.sampled_from((None, "a", "ab", "abc"))
    return st.builds(
        lambda values, kind, source, subject: Event(values, type=kind, source=source, subject=subject),
        attributes(),
        st.sampled_from((None, *TYPES)),
        texts,
        texts,
    )
