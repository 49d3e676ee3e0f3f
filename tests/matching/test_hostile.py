"""Filters built to blow up an index cost memory and time in proportion to their text, or are refused.

Each attack is made of 100,000 filters. Bounds are a filter's, by CPU time, and far above what is usual on an
idle machine: what they are to tell apart is in proportion and out of proportion.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from angelia import Filter, attr
from angelia.errors import FilterLimitError
from angelia.event import Kind
from angelia.filter.conjunction import Condition, Conjunction
from angelia.filter.domain import Domain
from angelia.filter.operators import contains, equal
from angelia.matching import Matcher

COUNT = 100_000


def measured(
    filters: list[Filter], event: dict[str, Any], also: dict[str, Any]
) -> tuple[float, float, float, list[Any], int]:
    """Microseconds a filter to build, to match an event, and to match a batch of 512, half of which are
    another event; what the first matches; and bytes a filter.
    """
    found = Matcher(engine="compiled")
    started = time.process_time()
    found.add_all(list(enumerate(filters)))
    built = time.process_time()
    ids = found.match(event)
    matched = time.process_time()
    offsets, batch = found.match_events([event, also] * 256)
    ended = time.process_time()
    assert sorted(batch[offsets[510] : offsets[511]]) == sorted(ids)
    scale = 1e6 / len(filters)
    times = (built - started) * scale, (matched - built) * scale, (ended - matched) * scale
    return *times, ids, found.stats().bytes // len(filters)


def conjunction(**conditions: Condition) -> Conjunction:
    return Conjunction(conditions)


def test_shared_prefixes() -> None:
    filters = [attr("s").prefix("a" * 60 + f"{i:06}") for i in range(COUNT)]
    build, match, batch, ids, size = measured(filters, {"s": "a" * 60 + "000007z"}, {"s": "a" * 60})
    assert ids == [7]
    assert (build < 100, match < 10, batch < 10, size < 300) == (True,) * 4


def test_parts_that_all_begin_alike() -> None:
    filters = [attr("s").contains("a" * 16 + f"{i:06}") for i in range(COUNT)]
    build, match, batch, ids, size = measured(filters, {"s": "a" * 40 + "000007z"}, {"s": "a" * 40})
    assert ids == [7]
    assert (build < 100, match < 100, batch < 100, size < 300) == (True,) * 4


def test_long_in_lists() -> None:
    """Of 50 values, each list another; 5,000,000 in all."""
    lists = (Domain(Kind.NUMBER, frozenset(range(i, i + 50))) for i in range(COUNT))  # as `in` makes them
    filters = [Filter((conjunction(x=Condition(each)),)) for each in lists]
    assert filters[7] == attr("x").in_(*range(7, 57))
    build, match, batch, ids, size = measured(filters, {"x": 4999}, {"x": 6000})
    assert sorted(ids) == list(range(4950, 5000))
    assert (build < 50 * 10, match < 10, batch < 50, size < 50 * 32) == (True,) * 4


def test_many_alternatives() -> None:
    names = [f"a{j}" for j in range(5)]
    filters = [
        Filter(tuple(Conjunction({name: Condition(equal(i))}) for name in names)) for i in range(COUNT)
    ]
    build, match, batch, ids, size = measured(filters, {"a3": 7, "a4": 7}, {"a3": 8})
    assert ids == [7]
    assert (build < 5 * 50, match < 10, batch < 50, size < 5 * 100) == (True,) * 4


def test_many_negations() -> None:
    none = Condition(None, tuple(contains(f"{i:03}") for i in range(20)))
    filters = [Filter((conjunction(s=none, x=Condition(equal(i))),)) for i in range(COUNT)]
    build, match, batch, ids, size = measured(filters, {"x": 3}, {"x": 3, "s": "in 003"})
    assert ids == [3]
    assert (build < 20 * 20, match < 10, batch < 10, size < 20 * 40) == (True,) * 4


def test_a_disjunction_that_would_expand_without_end_is_refused() -> None:
    text = " and ".join(f"(a{i} = 1 or b{i} = 1)" for i in range(20))
    with pytest.raises(FilterLimitError):
        Filter.parse(text)


def test_as_many_attributes_as_filters() -> None:
    filters = [Filter((Conjunction({f"name{i}": Condition(equal(1))}),)) for i in range(COUNT)]
    build, match, batch, ids, size = measured(filters, {"name77": 1}, {"name78": 1})
    assert ids == [77]
    assert (build < 500, match < 20, batch < 20, size < 1000) == (True,) * 4


@pytest.mark.parametrize("engine", ["pure", "compiled"])
def test_an_event_of_long_lists(engine: Any) -> None:
    found = Matcher(engine=engine)
    found.add_all({i: Filter.parse(f"x > {i} and x < {i + 2}") for i in range(1000)})
    started = time.process_time()
    assert len(found.match({"x": list(range(10_000))})) == 1000
    assert time.process_time() - started < 5
