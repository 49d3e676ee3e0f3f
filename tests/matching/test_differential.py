"""Both engines find exactly what `Filter.matches` says, however filters come and go.

`ANGELIA_LONG=1` runs ten times as many cases.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.matching.strategies import TYPES, events, filters, registry

from angelia import Event, EventType, Filter
from angelia.matching import Matcher

CASES = int(os.environ.get("ANGELIA_LONG", "0")) * 9 + 1
ENGINES = ("pure", "compiled")
checked = settings(
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


def flat(event: Event) -> dict[str, Any]:
    context = {f"@{name}": value for name in ("type", "source", "subject") if (value := getattr(event, name))}
    return {**event.attributes, **context}


def expected(found: dict[Any, Filter], event: Event, types: Any) -> list[Any]:
    return sorted(id_ for id_, filter_ in found.items() if filter_.matches(event, types))


def filled(engine: Any, some: list[tuple[Filter, str | None]], fresh: int, types: Any) -> Matcher:
    """A matcher in which the filters from `fresh` on were added one by one."""
    matcher = Matcher(types, engine=engine)
    for link in (None, "p", "q"):
        matcher.add_all({i: f for i, (f, of) in enumerate(some[:fresh]) if of == link}, link)
    for i, (filter_, link) in enumerate(some[fresh:], min(fresh, len(some))):
        matcher.add(i, filter_, link)
    return matcher


def parts(offsets: Any, found: Any) -> list[list[Any]]:
    return [sorted(found[offsets[i] : offsets[i + 1]]) for i in range(len(offsets) - 1)]


@settings(checked, max_examples=2000 * CASES)
@given(
    st.lists(st.tuples(filters(), st.sampled_from((None, "p", "q"))), max_size=8),
    st.integers(0, 8),
    st.lists(events(), min_size=1, max_size=5),
    st.integers(1, 10),
    st.booleans(),
)
def test_every_way_to_ask_finds_what_the_filters_say(
    some: list[tuple[Filter, str | None]], fresh: int, seen: list[Event], times: int, with_types: bool
) -> None:
    """Single events, lists and columns, ids and links; some filters in snapshots, others fresh."""
    types = registry() if with_types else None
    found = {i: filter_ for i, (filter_, _) in enumerate(some)}
    want = [expected(found, event, types) for event in seen]
    links = [sorted({link for i in ids if (link := some[i][1]) is not None}) for ids in want]
    for engine in ENGINES:
        matcher = filled(engine, some, fresh, types)
        for event, ids, of in zip(seen, want, links, strict=True):
            assert sorted(matcher.match(event)) == ids
            assert sorted(matcher.match(flat(event))) == ids
            assert matcher.match_any(event) == bool(ids)
            assert sorted(matcher.match_links(event)) == of
        mixed = [event if i % 3 else flat(event) for i, event in enumerate(seen * times)]
        assert parts(*matcher.match_events(mixed)) == want * times
        assert parts(*matcher.route_events(mixed)) == links * times
        rows = [flat(event) for event in seen]
        names = sorted({name for row in rows for name in row})
        columns = {name: [row.get(name) for row in rows] for name in names} or {"x": [None] * len(rows)}
        assert parts(*matcher.match_batch(columns)) == want
        assert parts(*matcher.route_batch(columns)) == links


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
