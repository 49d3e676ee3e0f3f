"""Filters built to blow up an index cost memory and time in proportion to their text, or are refused."""

from __future__ import annotations

import time
from functools import reduce
from operator import and_
from typing import Any

import pytest

from angelia import Filter, attr
from angelia.errors import FilterLimitError
from angelia.matching import Matcher

COUNT = 100_000


def measured(filters: list[Filter], event: dict[str, Any]) -> tuple[float, float, list[Any], int]:
    """Microseconds a filter to build and to match one event, what matches, and bytes a filter."""
    found = Matcher(engine="compiled")
    started = time.process_time()
    found.add_all(list(enumerate(filters)))
    built = time.process_time()
    ids = found.match(event)
    ended = time.process_time()
    scale = 1e6 / len(filters)
    return (built - started) * scale, (ended - built) * scale, ids, found.stats().bytes // len(filters)


def test_shared_prefixes() -> None:
    filters = [attr("s").prefix("a" * 60 + f"{i:06}") for i in range(COUNT)]
    build, match, ids, size = measured(filters, {"s": "a" * 60 + "000007z"})
    assert ids == [7]
    assert (build < 100, match < 10, size < 300) == (True, True, True)


def test_parts_that_all_begin_alike() -> None:
    filters = [attr("s").contains("a" * 16 + f"{i:06}") for i in range(COUNT)]
    build, match, ids, size = measured(filters, {"s": "a" * 40 + "000007z"})
    assert ids == [7]
    assert (build < 100, match < 100, size < 300) == (True, True, True)


def test_long_in_lists() -> None:
    filters = [attr("x").in_(*range(i, i + 500)) for i in range(COUNT // 100)]
    build, _, ids, size = measured(filters, {"x": 499})
    assert len(ids) == min(500, len(filters))
    assert build < 500 * 10
    assert size < 500 * 64  # of each of the 500 values


def test_many_alternatives() -> None:
    texts = [" or ".join(f"a{j} = {i}" for j in range(64)) for i in range(COUNT // 100)]
    build, _, ids, size = measured([Filter.parse(text) for text in texts], {"a5": 7, "a6": 7})
    assert ids == [7]
    assert build < 64 * 20
    assert size < 64 * 150


def test_many_negations() -> None:
    none = reduce(and_, [~attr("s").contains(f"{i:03}") for i in range(60)])
    build, _, ids, _ = measured([none & (attr("x") == i) for i in range(COUNT // 1000)], {"x": 3})
    assert ids == [3]
    assert build < 60 * 50


def test_a_disjunction_that_would_expand_without_end_is_refused() -> None:
    text = " and ".join(f"(a{i} = 1 or b{i} = 1)" for i in range(20))
    with pytest.raises(FilterLimitError):
        Filter.parse(text)


def test_many_attributes() -> None:
    filters = [attr(f"name{i}") == 1 for i in range(COUNT // 20)]
    _, _, ids, size = measured(filters, {"name77": 1})
    assert ids == [77]
    assert size < 1000


@pytest.mark.parametrize("engine", ["pure", "compiled"])
def test_an_event_of_long_lists(engine: Any) -> None:
    found = Matcher(engine=engine)
    found.add_all({i: Filter.parse(f"x > {i} and x < {i + 2}") for i in range(1000)})
    started = time.process_time()
    assert len(found.match({"x": list(range(10_000))})) == 1000
    assert time.process_time() - started < 5
