"""The kernel that takes dictionaries as they are: what it answers, and what it leaves to others."""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from angelia import Event, EventType, Filter, TypeRegistry
from angelia.errors import EventError
from angelia.matching import Matcher, encode
from angelia.matching.snapshot import Snapshot

F = Filter.parse


def only(matcher: Matcher) -> Snapshot:
    """The snapshot that all filters of a matcher are in."""
    found = matcher._store.view.only
    assert found is not None
    return found


def matcher_of(filters: dict[Any, Filter], first: dict[str, Any], registry: Any = None) -> Matcher:
    """A matcher that has seen one event, with which its kernel answers."""
    matcher = Matcher(registry, engine="compiled")
    matcher.add_all(filters)
    matcher.match(first)
    return matcher


def moments() -> list[datetime]:
    draw = random.Random(5)
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    span = (last - first) // timedelta(microseconds=1)
    some = [first + timedelta(microseconds=draw.randrange(span)) for _ in range(2000)]
    leap = [datetime(year, month, day, 12, tzinfo=UTC) for year in (4, 1600, 1900, 2000, 2024, 2100)
            for month, day in ((2, 28), (3, 1), (12, 31), (1, 1))]  # fmt: skip
    leap += [datetime(year, 2, 29, tzinfo=UTC) for year in (4, 1600, 2000, 2024)]
    return [first, last, datetime(1970, 1, 1, tzinfo=UTC), *leap, *some]


def test_moments_of_all_years_are_read_to_the_microsecond() -> None:
    times = moments()
    step = timedelta(microseconds=1)
    filters = {i: F(f't = t"{at.isoformat()}"') for i, at in enumerate(times)}
    matcher = matcher_of(filters, {"t": times[0]})
    for i, at in enumerate(times):
        assert i in (only(matcher).ask({"t": at}) or ())
        for near in (at - step if at > times[0] else at, at + step if at < times[1] else at):
            assert only(matcher).ask({"t": near}) == [i for i, other in enumerate(times) if other == near]


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "event",
    [
        {"s": "unknown"},
        {"t": datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))},
        {"x": [1, 2]},
        {"s": Text("known")},
        {Text("s"): "known"},
        {"a": {"b": 5}},
    ],
)
def test_what_the_kernel_leaves_to_others_is_answered_all_the_same(event: dict[str, Any]) -> None:
    filters = {
        "known": F('s = "known"'),
        "other": F('s prefix "un"'),
        "time": F('t = t"2026-01-01T00:00:00Z"'),
        "number": F("x = 2"),
        "nested": F("a.b > 4"),
    }
    matcher = matcher_of(filters, {"s": "known"})
    assert only(matcher).ask({"s": "known"}) == ["known"]
    assert only(matcher).ask(event) is None
    for _ in range(2):
        assert matcher.match(event) == [id_ for id_, each in filters.items() if each.matches(Event(event))]


@pytest.mark.parametrize("event", [{"x": 2**63}, {"y": {1, 2}}, {"t": datetime(2026, 1, 1)}, {"s": "\ud800"}])
def test_what_no_event_may_have_is_refused(event: dict[Any, Any]) -> None:
    matcher = matcher_of({"x": F('x > 1 and s != "a" and exists t')}, {"x": 1, "s": "a", "y": 1})
    assert only(matcher).ask(event) is None
    with pytest.raises(EventError):
        matcher.match(event)


def test_values_of_a_refused_event_are_forgotten() -> None:
    matcher = matcher_of({1: F("x > 1"), 2: F("not exists y")}, {"x": 5.0})
    assert only(matcher).ask({"x": 7, "y": (1, 2)}) is None
    assert only(matcher).ask({}) == [2]


def test_no_reference_is_lost_or_kept() -> None:
    ids = [("id", i) for i in range(50)]
    event = {
        "s": "a string",
        "x": 2.5,
        "n": 12345678901,
        "b": True,
        "none": None,
        "t": datetime(2026, 1, 1, tzinfo=UTC),
    }
    filters = {id_: F('s = "a string" and x > 2 and n > 5 and b = true and exists t') for id_ in ids}
    matcher = matcher_of(filters, event)
    things = [*ids, *event, *event.values(), event, only(matcher)]
    before = [sys.getrefcount(each) for each in things]
    for _ in range(1000):
        assert len(only(matcher).ask(event) or ()) == len(ids)
        assert only(matcher).ask({"s": "unknown", "x": 2.5}) is None
    after = [sys.getrefcount(each) for each in things]
    some = 50  # references to None and True that others take or leave meanwhile
    assert all(abs(new - old) <= (some if each in (None, True) else 0)
               for each, old, new in zip(things, before, after, strict=True))  # fmt: skip


def test_an_event_that_matches_more_than_there_is_room_for_is_answered_by_the_kernel_next_time() -> None:
    matcher = matcher_of({i: F(f"x >= {i}") for i in range(3 * encode.ROOM)}, {"x": 1})
    much = {"x": 3 * encode.ROOM}
    assert only(matcher).ask(much) is None
    assert sorted(matcher.match(much)) == list(range(3 * encode.ROOM))
    assert sorted(only(matcher).ask(much) or ()) == list(range(3 * encode.ROOM))


def test_strings_beyond_what_is_kept_are_learnt_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MAX_LEARNT", 100)
    matcher = matcher_of({1: F('s contains "7"')}, {"s": "7"})
    for i in range(1000):
        assert matcher.match({"s": str(i)}) == ([1] if "7" in str(i) else [])
        assert matcher.match({"s": str(i)}) == ([1] if "7" in str(i) else [])
    assert only(matcher).ask({"s": "999"}) == []


def test_texts_that_are_learnt_after_the_kernel_was_made_hold() -> None:
    """What holds for strings lies in an array that grows, and moves."""
    matcher = matcher_of({i: F(f's contains "{i}"') for i in range(200)}, {"s": "none"})
    for n in range(2000, 3000):
        matcher.match({"s": str(n)})
        assert sorted(only(matcher).ask({"s": str(n)}) or ()) == [i for i in range(200) if str(i) in str(n)]


def test_a_new_type_counts_at_once() -> None:
    types = TypeRegistry()
    types.add(EventType("A"))
    matcher = matcher_of({1: F("A: x > 1")}, {"@type": "B", "x": 2}, types)
    assert only(matcher).ask({"@type": "B", "x": 2}) == []
    types.add(EventType("B", parent="A"))
    assert matcher.match({"@type": "B", "x": 2}) == [1]
    assert only(matcher).ask({"@type": "B", "x": 2}) == [1]


def test_a_fresh_filter_counts_beside_a_snapshot() -> None:
    matcher = matcher_of({1: F("x > 1")}, {"x": 2})
    matcher.add(2, F("x > 0"))
    assert matcher._store.view.only is None
    assert sorted(matcher.match({"x": 2})) == [1, 2]
    matcher.compact()
    assert sorted(only(matcher).match({"x": 2})) == [1, 2]


@contextmanager
def collecting_often(callback: Any) -> Iterator[None]:
    threshold = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(1, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(callback)


def test_a_match_within_a_match_disturbs_neither() -> None:
    """The garbage collector may run when the kernel makes its list, and call what matches another event."""
    matcher = matcher_of({i: F(f"x = {i % 10}") for i in range(100)}, {"x": 1})
    inner: list[list[Any]] = []

    def callback(phase: str, _: Any) -> None:
        if phase == "start" and len(inner) < 500:
            inner.append(sorted(matcher.match({"x": 3})))

    with collecting_often(callback):
        for _ in range(300):
            kept = [[] for _ in range(3)]  # type: ignore[var-annotated] # what the collector counts
            assert sorted(matcher.match({"x": 7})) == list(range(7, 100, 10))
            del kept
    assert inner
    assert all(found == list(range(3, 100, 10)) for found in inner)


def test_threads_match_a_large_index_at_once() -> None:
    """A walk through a large index lets other threads run, which then have kernels of their own."""
    values = 4096
    matcher = matcher_of(
        {i: F(f"x = {i % values} and y >= {i} and z != {i}") for i in range(40_000)},
        {"x": 1, "y": 1, "z": -1},
    )
    assert only(matcher).predicates > encode.LARGE
    wrong: list[Any] = []

    def match(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(2000):
            x, y = draw.randrange(values), draw.randrange(40_000)
            if sorted(matcher.match({"x": x, "y": y, "z": -1})) != list(range(x, y + 1, values)):
                wrong.append((x, y))

    threads = [threading.Thread(target=match, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
