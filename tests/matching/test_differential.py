"""Both engines find exactly what `Filter.matches` says, however filters come and go.

`ANGELIA_LONG=1` runs ten times as many cases.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.matching.strategies import TYPES, events, filters, registry

from angelia import Event, EventType, Filter
from angelia.matching import Matcher

CASES = int(os.environ.get("ANGELIA_LONG", "0")) * 9 + 1
ENGINES = ("pure", "compiled")
checked = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def flat(event: Event) -> dict[str, Any]:
    context = {f"@{name}": value for name in ("type", "source", "subject") if (value := getattr(event, name))}
    return {**event.attributes, **context}


def expected(found: dict[Any, Filter], event: Event, types: Any) -> list[Any]:
    return sorted(id_ for id_, filter_ in found.items() if filter_.matches(event, types))


def filled(engine: Any, found: dict[Any, Filter], types: Any, link: Any = None) -> Matcher:
    matcher = Matcher(types, engine=engine)
    matcher.add_all(found, link)
    return matcher


@pytest.mark.parametrize("engine", ENGINES)
@settings(checked, max_examples=700 * CASES)
@given(st.lists(filters(), max_size=8), st.lists(events(), min_size=1, max_size=5), st.booleans())
def test_a_match_is_what_the_filters_say(
    engine: str, some: list[Filter], seen: list[Event], with_types: bool
) -> None:
    types = registry() if with_types else None
    found = dict(enumerate(some))
    matcher = filled(engine, found, types)
    for event in seen:
        want = expected(found, event, types)
        assert sorted(matcher.match(event)) == want
        assert sorted(matcher.match(flat(event))) == want
        assert matcher.match_any(event) == bool(want)


@pytest.mark.parametrize("engine", ENGINES)
@settings(checked, max_examples=250 * CASES)
@given(st.lists(filters(), max_size=6), st.lists(events(), max_size=8))
def test_a_batch_is_what_the_filters_say_of_each_row(
    engine: str, some: list[Filter], seen: list[Event]
) -> None:
    types = registry()
    found = dict(enumerate(some))
    names = sorted({name for event in seen for name in flat(event)})
    rows = [flat(event) for event in seen]
    columns = {name: [row.get(name) for row in rows] for name in names} or {"x": [None] * len(rows)}
    offsets, ids = filled(engine, found, types).match_batch(columns)
    assert len(offsets) == len(rows) + 1
    for i, event in enumerate(seen):
        assert sorted(ids[offsets[i] : offsets[i + 1]]) == expected(found, event, types)


@pytest.mark.parametrize("engine", ENGINES)
@settings(checked, max_examples=250 * CASES)
@given(
    st.lists(filters(), max_size=6),
    st.lists(filters(), max_size=2),
    st.lists(events(), min_size=1, max_size=8),
    st.integers(1, 12),
)
def test_a_list_of_events_is_what_the_filters_say_of_each(
    engine: str, some: list[Filter], fresh: list[Filter], seen: list[Event], times: int
) -> None:
    types = registry()
    matcher = filled(engine, dict(enumerate(some)), types, "link")
    found = dict(enumerate(some + fresh))
    for i, each in enumerate(fresh, len(some)):
        matcher.add(i, each)
    rows = [event if i % 3 else flat(event) for i, event in enumerate(seen * times)]
    offsets, ids = matcher.match_events(rows)
    link_offsets, links = matcher.route_events(rows)
    assert len(offsets) == len(link_offsets) == len(rows) + 1
    for i, event in enumerate(seen * times):
        want = expected(found, event, types)
        assert sorted(ids[offsets[i] : offsets[i + 1]]) == want
        linked = ["link"] if any(id_ < len(some) for id_ in want) else []
        assert list(links[link_offsets[i] : link_offsets[i + 1]]) == linked


@pytest.mark.parametrize("engine", ENGINES)
@settings(checked, max_examples=200 * CASES)
@given(
    st.lists(st.tuples(filters(), st.sampled_from("pqr")), max_size=8),
    st.lists(events(), min_size=1, max_size=4),
)
def test_links_are_those_of_the_filters_that_match(
    engine: str, some: list[tuple[Filter, str]], seen: list[Event]
) -> None:
    types = registry()
    matcher = Matcher(types, engine=engine)  # type: ignore[arg-type]
    for link in "pqr":
        matcher.add_all({i: f for i, (f, of) in enumerate(some) if of == link}, link)
    matcher.add("no link", Filter.parse("true"))
    rows = [flat(event) for event in seen]
    names = {name for row in rows for name in row} or {"x"}
    offsets, links = matcher.route_batch({name: [row.get(name) for row in rows] for name in names})
    for i, event in enumerate(seen):
        want = sorted({link for filter_, link in some if filter_.matches(event, types)})
        assert sorted(matcher.match_links(event)) == want
        assert sorted(links[offsets[i] : offsets[i + 1]]) == want


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 9), filters()),
        st.tuples(st.just("bulk"), st.lists(filters(), max_size=4), st.none()),
        st.tuples(st.just("remove"), st.integers(0, 30), st.none()),
        st.tuples(st.just("compact"), st.none(), st.none()),
        st.tuples(st.just("types"), st.sampled_from(TYPES), st.none()),
        st.tuples(st.just("match"), events(), st.none()),
    ),
    max_size=14,
)


@pytest.mark.parametrize("engine", ENGINES)
@settings(checked, max_examples=150 * CASES)
@given(CHANGES)
def test_filters_come_and_go_between_matches(engine: str, changes: list[tuple[str, Any, Any]]) -> None:
    types = registry()
    matcher = Matcher(types, engine=engine)  # type: ignore[arg-type]
    found: dict[Any, Filter] = {}
    for change, subject, filter_ in changes:
        if change == "add" and subject not in found:
            found[subject] = filter_
            matcher.add(subject, filter_)
        elif change == "bulk":
            new = {max(found, default=10) + 1 + i: each for i, each in enumerate(subject)}
            found.update(new)
            matcher.add_all(new)
        elif change == "remove" and subject in found:
            del found[subject]
            matcher.remove(subject)
        elif change == "compact" and engine == "compiled":
            matcher.compact()
            assert matcher.stats().snapshots <= 1
        elif change == "types" and f"New{subject}" not in types and subject in types:
            types.add(EventType(f"New{subject}", parent=subject))
        elif change == "match":
            for kind in (subject.type, f"New{subject.type}"):
                event = subject.replace(type=kind)
                assert sorted(matcher.match(event)) == expected(found, event, types)
    assert len(matcher) == len(found)
    assert sorted(matcher) == sorted(found)
