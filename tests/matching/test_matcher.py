"""The matcher as its users see it: adding, removing, asking, explaining, sending away."""

from __future__ import annotations

import pickle
import threading
import time
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.matching.strategies import registry

from angelia import Event, EventType, Filter, TypeRegistry
from angelia.errors import AngeliaError, EventError
from angelia.matching import Matcher, MatcherError, UnknownFilterError, store

ENGINES: Any = ("pure", "compiled")
both = pytest.mark.parametrize("engine", ENGINES)
F = Filter.parse


def settled(found: Matcher) -> None:
    """Wait for what is built in the background."""
    while (worker := found._store.worker) is not None:
        worker.join()


@both
def test_a_filter_matches_from_the_next_event_on_and_never_after_its_removal(engine: Any) -> None:
    found = Matcher(engine=engine)
    assert found.match({"x": 1}) == []
    found.add("s1", F("x = 1"))
    assert found.match({"x": 1}) == ["s1"]
    found.remove("s1")
    assert found.match({"x": 1}) == []
    assert not found.match_any({"x": 1})


@both
def test_an_id_is_used_once_until_it_is_removed(engine: Any) -> None:
    found = Matcher(engine=engine)
    found.add("s1", F("x = 1"))
    with pytest.raises(MatcherError, match=r"s1.*already"):
        found.add("s1", F("x = 2"))
    with pytest.raises(MatcherError, match=r"s1.*already"):
        found.add_all({"s2": F("x = 2"), "s1": F("x = 2")})
    with pytest.raises(MatcherError, match="twice"):
        found.add_all([("s3", F("x = 2")), ("s3", F("x = 3"))])
    assert list(found) == ["s1"]
    found.remove("s1")
    found.add("s1", F("x = 2"))
    assert found.match({"x": 2}) == ["s1"]
    with pytest.raises(UnknownFilterError, match="nobody"):
        found.remove("nobody")
    with pytest.raises(MatcherError, match="Filter"):
        found.add("text", "x = 1")  # type: ignore[arg-type]
    assert "s1" in found
    assert len(found) == 1


@both
def test_an_alternative_is_enough_and_an_id_is_reported_once(engine: Any) -> None:
    found = Matcher(engine=engine)
    found.add_all({"s": F('x = 1 or y = 1 or z contains "a"')})
    assert found.match({"x": 1, "y": 1, "z": "a"}) == ["s"]
    offsets, ids = found.match_batch({"x": [1, 2], "y": [1, 1], "z": ["a", "b"]})
    assert (list(offsets), list(ids)) == ([0, 1, 2], ["s", "s"])


@both
def test_dictionaries_are_taken_as_events_take_them(engine: Any) -> None:
    found = Matcher(registry(), engine=engine)
    found.add_all({1: F("order.total > 5"), 2: F("Base:"), 3: F('@source = "feeds"'), 4: F("tags = 2")})
    assert found.match({"order": {"total": 7}}) == [1]
    assert found.match({"order.total": np.int64(7), "x": None}) == [1]
    assert sorted(found.match({"@type": "Leaf", "@source": "feeds"})) == [2, 3]
    assert found.match({"tags": [1, 2]}) == found.match({"tags": (2, 2, 2)}) == [4]
    assert sorted(found.match(Event({"order.total": 7}, type="Mid"))) == [1, 2]
    assert found.match_any({"tags": [2, 1]})
    for odd in ({"tags": 2**63}, {"tags": object()}, {"tags": datetime(2026, 1, 1)}, {"tags": [b""]}, 5):
        with pytest.raises(EventError):
            found.match(odd)  # type: ignore[arg-type]
    assert found.match({"tags": 2}) == [4]


@both
def test_lists_of_events_are_taken_as_single_ones_are(engine: Any) -> None:
    found = Matcher(registry(), engine=engine)
    found.add_all({1: F("order.total > 5"), 2: F("Base:"), 3: F('@source = "feeds"'), 4: F("tags = 2")})
    some: list[Any] = [
        {"order": {"total": 7}}, {"order.total": np.int64(7)}, {"@type": "Leaf", "@source": "feeds"},
        {"tags": [1, 2]}, {"tags": (2, 2, 2)}, Event({"order.total": 7}, type="Mid"), {}, {"tags": None},
        {"order.total": 2**53 + 1, "tags": 2}, {"order.total": 5.5, "tags": True}, {"order.total": "7"},
    ]  # fmt: skip
    for events in (some, some[:3], some[2:], [], [{f"a{i}": 1} for i in range(50)] + some):
        offsets, ids = found.match_events(events)
        want = [sorted(found.match(event)) for event in events]
        assert [sorted(ids[offsets[i] : offsets[i + 1]]) for i in range(len(events))] == want
    for odd in (
        {"tags": 2**63},
        {"tags": object()},
        {"tags": datetime(2026, 1, 1)},
        {"tags": [b""]},
        5,
        "tags",
    ):
        for events in ([odd], [{"tags": 2}] * 20 + [odd]):
            with pytest.raises(EventError):
                found.match_events(events)


@both
@pytest.mark.parametrize("count", [3, 20, 200])
def test_an_error_says_which_event_of_a_list_is_at_fault(engine: Any, count: int) -> None:
    found = Matcher(engine=engine)
    found.add_all({i: F(f"x = {i}") for i in range(10)})
    events: list[Any] = [{"x": i} for i in range(count)]
    events[2] = {"x": 2**70}
    with pytest.raises(EventError, match="event 2: "):
        found.match_events(events)


def test_micro_batches_count_fresh_filters_at_once() -> None:
    found = Matcher(engine="compiled")
    found.add_all({i: F(f"x = {i}") for i in range(100)}, link="old")
    events = [{"x": i % 110} for i in range(220)]
    for i in range(100, 110):
        found.add(i, F(f"x = {i}"), link="new" if i % 2 else "old")
        for _ in range(3):  # by the pure index, then compiled
            offsets, ids = found.match_events(events[:i])
            assert ids.tolist() == list(range(i))
            offsets, ids = found.match_events(events)
            assert sorted(ids.tolist()) == sorted([*range(i + 1)] * 2)
            offsets, links = found.route_events(events)
            assert links[offsets[i]] == ("new" if i % 2 else "old")
    found.remove(105)
    assert 105 not in found.match_events(events)[1]


@both
def test_links_are_found_once_and_filters_without_one_not(engine: Any) -> None:
    found = Matcher(engine=engine)
    found.add("a", F("x > 1"), link="north")
    found.add("b", F("x > 2"), link="north")
    found.add("c", F("x > 3"), link="south")
    found.add("d", F("x > 0"))
    for _ in range(2):
        assert found.match_links({"x": 3}) == ["north"]
        assert sorted(found.match_links(Event({"x": 9}))) == ["north", "south"]
        assert found.match_links({"x": 1}) == []
        offsets, links = found.route_batch({"x": [3, 9, 1]})
        assert list(offsets) == [0, 1, 3, 3]
        assert sorted(links) == ["north", "north", "south"]
        found.compact()
    found.remove("c")
    assert found.match_links({"x": 9}) == ["north"]


@both
def test_an_explanation_says_what_held_and_what_did_not(engine: Any) -> None:
    found = Matcher(engine=engine)
    found.add("s", F('x = 1 and y = "a"'))
    why = found.explain("s", {"x": 1, "y": "b"})
    assert not why.matched
    assert "✓ x = 1" in str(why)
    assert '✗ y = "a"' in str(why)
    with pytest.raises(UnknownFilterError):
        found.explain("t", {"x": 1})


@both
def test_results_follow_the_hierarchy_of_types(engine: Any) -> None:
    types = TypeRegistry([EventType("Base")])
    found = Matcher(types, engine=engine)
    found.add_all({"base": F("Base:"), "not": F("not (Base:)")})
    event = Event({}, type="Leaf")
    assert found.match(event) == ["not"]
    types.add(EventType("Leaf", parent="Base"))
    assert found.match(event) == ["base"]
    types.remove("Leaf")
    assert found.match(event) == ["not"]


def test_fresh_filters_become_snapshots_in_the_background() -> None:
    found = Matcher(engine="compiled")
    total = 5 * store.FRESH
    for i in range(total):
        found.add(i, F(f"x = {i % 50}"))
        if i % 100 == 0:
            assert len(found.match({"x": 0})) == i // 50 + 1
    settled(found)
    stats = found.stats()
    assert (stats.filters, stats.engine, stats.tombstones) == (total, "compiled", 0)
    assert stats.snapshots >= 1
    assert stats.delta < store.FRESH
    assert stats.bytes > 0
    assert len(found.match({"x": 3})) == len([i for i in range(total) if i % 50 == 3])


def test_removed_filters_are_dropped_once_they_are_many() -> None:
    found = Matcher(engine="compiled")
    found.add_all({i: F(f"x > {i}") for i in range(1000)})
    for i in range(200):
        found.remove(i)
    assert found.stats().tombstones == 200
    for i in range(200, 400):
        found.remove(i)
    settled(found)
    assert found.stats().tombstones < 200
    assert sorted(found.match({"x": 2000})) == list(range(400, 1000))


def test_a_removal_during_a_build_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Matcher(engine="compiled")
    found.add_all({i: F("x = 1") for i in range(100)})
    read = found._store._read

    def read_and_change(sources: Any) -> Any:
        members = read(sources)
        found.remove(7)
        found.remove(8)
        found.add(8, F("x = 2"))
        return members

    monkeypatch.setattr(found._store, "_read", read_and_change)
    found.compact()
    assert sorted(found.match({"x": 1})) == [i for i in range(100) if i not in (7, 8)]
    assert found.match({"x": 2}) == [8]


def test_a_snapshot_can_be_sent_away() -> None:
    types = registry()
    found = Matcher(types, engine="compiled")
    found.add_all({f"s{i}": F(f'Base: x = {i % 10} and s prefix "a" and s suffix "b"') for i in range(100)})
    found.add("late", F("x = 3"))
    found.remove("s3")
    sent = pickle.loads(pickle.dumps(found.snapshot()))
    sent = pickle.loads(pickle.dumps(sent))
    table = pa.table({"x": [3, 4, 11], "s": ["ab", "ab", "ab"], "@type": ["Leaf", "Other", "Base"]})
    offsets, ids = sent.match_batch(table)
    want_offsets, want = found.match_batch(table)
    assert offsets.tolist() == want_offsets.tolist()
    assert sorted(ids[: offsets[1]]) == sorted(want[: offsets[1]])
    assert "s3" not in sent
    assert len(sent) == 100


def test_100_000_filters_pickle_well_below_100_megabytes() -> None:
    filters = {i: F(f'x = {i} and s prefix "w{i % 1000}"') for i in range(20_000)}
    found = Matcher(engine="compiled")
    found.add_all(filters)
    assert 5 * len(pickle.dumps(found.snapshot())) < 25_000_000


def test_two_threads_match_while_a_third_changes_filters() -> None:
    found = Matcher(engine="compiled")
    stable = {i: F(f'x >= {i % 10} and s contains "a"') for i in range(3000)}
    found.add_all(stable)
    want = [sorted(i for i in stable if i % 10 <= x) for x in range(10)]
    problems: list[str] = []
    done = threading.Event()
    table = pa.table({"x": np.arange(200) % 10, "s": [f"a{i}" for i in range(200)]})

    def match_single() -> None:
        n = 0
        while not done.is_set():
            n += 1
            seen = sorted(i for i in found.match({"x": n % 10, "s": f"ba{n % 999}"}) if i < 3000)
            if seen != want[n % 10]:
                problems.append(f"single {n}: {len(seen)} instead of {len(want[n % 10])}")

    def match_batches() -> None:
        while not done.is_set():
            offsets, ids = found.match_batch(table)
            for row in range(0, 200, 37):
                seen = ids[offsets[row] : offsets[row + 1]]
                if sorted(seen[seen < 3000].tolist()) != want[row % 10]:
                    problems.append(f"batch {row}")

    threads = [threading.Thread(target=f) for f in (match_single, match_batches)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 3
    i = 3000
    while time.monotonic() < until:
        found.add(i, F(f"x = {i % 10}"))
        assert i in found.match({"x": i % 10})
        if i % 3 == 0:
            found.remove(i)
            assert i not in found.match({"x": i % 10})
        i += 1
    done.set()
    for thread in threads:
        thread.join()
    settled(found)
    assert not problems, problems[:5]
    assert len(found.match({"x": 5})) == len([k for k in range(3000, i) if k % 10 == 5 and k % 3])


def test_errors_are_ours() -> None:
    assert issubclass(MatcherError, AngeliaError)
    assert issubclass(UnknownFilterError, LookupError)


def test_small_numbers_beside_integers_that_no_float_equals() -> None:
    found = Matcher(engine="compiled")
    found.add_all({1: F("x = 1"), 2: F("not x in (9007199254740993, 5)"), 3: F("x < 9007199254740993")})
    assert found.match({"x": True}) == [2]
    assert sorted(found.match({"x": 1})) == [1, 2, 3]
    assert found.match({"x": 2**53 + 1}) == []
    assert sorted(found.match({"x": 2**53})) == [2, 3]
