"""Subscribe to past and present: no gap, no duplicate, in order; and what a bus keeps."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.store.helpers import START, event, events, ids, lake_of, registry

from angelia import Bus, Event, EventType, SyncBus, event_type
from angelia.errors import EventError, EventTypeError, LakeError, RequestError
from angelia.store import Lake, LakeWriter, Limits
from angelia.store.seam import CatchUp, Seam, replay

LONG_AGO = "1970-01-01T00:00:00Z"


@event_type("store.Reading")
class Reading:
    celsius: float


def numbered(*numbers: int) -> list[Event]:
    return [Event({"n": n}) for n in range(*numbers)]


def test_what_is_published_is_in_the_lake(tmp_path: Path) -> None:
    with SyncBus(3, topology="line", lake=tmp_path) as bus:
        other = bus.client("other", broker="b3")
        bus.publish(Event({"n": 1}))
        other.publish(Reading(celsius=20.5))
        kept = list(Lake(tmp_path).events())
    assert [(e.type, dict(e.attributes)) for e in kept] == [
        (None, {"n": 1}),
        ("store.Reading", {"celsius": 20.5}),
    ]
    assert Lake(tmp_path).snapshot().segments == ()
    assert ids(Lake(tmp_path).events("store.Reading")) == [kept[1].id]


def test_what_is_refused_is_not_in_the_lake(tmp_path: Path) -> None:
    with SyncBus(lake=tmp_path) as bus:
        bus.define(EventType("T", {"x": "float"}))
        with pytest.raises(ValueError, match="expected float"):
            bus.publish(Event({"x": "text"}, type="T"))
    assert list(Lake(tmp_path).events()) == []


def test_a_type_that_conflicts_with_the_lake_is_refused_in_another_life(tmp_path: Path) -> None:
    with SyncBus(lake=tmp_path) as bus:
        bus.define(EventType("T", {"x": "float"}))
        bus.publish(Event({"x": 1.0}, type="T"))
    with SyncBus(2, lake=tmp_path) as bus, pytest.raises((EventTypeError, RequestError), match="'x' changes"):
        bus.define(EventType("T", {"x": "string"}))


def test_two_buses_share_a_directory(tmp_path: Path) -> None:
    with SyncBus(lake=tmp_path) as one, SyncBus(lake=tmp_path) as two:
        one.publish(Event({"n": 1}))
        two.publish(Event({"n": 2}))
        assert sorted(e["n"] for e in Lake(tmp_path).events()) == [1, 2]


def test_history_comes_first_then_the_present(tmp_path: Path) -> None:
    with SyncBus(lake=tmp_path) as bus:
        for each in numbered(10):
            bus.publish(each)
    with SyncBus(lake=tmp_path) as bus:
        for each in numbered(10, 20):
            bus.publish(each)
        with bus.subscribe("n >= 5", since=LONG_AGO) as subscription:
            for each in numbered(20, 25):
                bus.publish(each)
            assert [subscription.get(5)["n"] for _ in range(20)] == list(range(5, 25))
            bus.publish(Event({"n": 25}))
            assert subscription.get(5)["n"] == 25
            with pytest.raises(TimeoutError):
                subscription.get(0.05)


def test_since_is_a_moment_in_the_past(tmp_path: Path) -> None:
    with SyncBus(lake=tmp_path) as bus:
        for n in range(10):
            bus.publish(Event({"n": n}, time=START + timedelta(hours=n)))
        found = bus.subscribe("exists n", since=START + timedelta(hours=7))
        assert [found.get(5)["n"] for _ in range(3)] == [7, 8, 9]
        with pytest.raises(EventError, match="not a timestamp"):
            bus.subscribe("exists n", since="last week")
        with pytest.raises(LakeError, match="time zone"):
            bus.subscribe("exists n", since=datetime(2026, 1, 1))


def test_classes_have_a_past_too(tmp_path: Path) -> None:
    with SyncBus(lake=tmp_path) as bus:
        bus.publish(Reading(celsius=1.5))
        bus.publish(Reading(celsius=99.5))
        warm = bus.subscribe(Reading, where="celsius > 50", since=LONG_AGO)
        assert warm.get(5) == Reading(celsius=99.5)


def test_a_bus_without_a_lake_has_no_past(tmp_path: Path) -> None:
    with SyncBus() as bus, pytest.raises(RequestError, match=r"lake=DIRECTORY"):
        bus.subscribe("n = 1", since=LONG_AGO)
    with SyncBus(lake=tmp_path) as bus, pytest.raises(RequestError, match="pattern"):
        bus.subscribe("n = 1 then n = 2", since=LONG_AGO)


def test_a_refused_subscription_leaves_no_hold_on_the_lake(tmp_path: Path) -> None:
    with SyncBus(lake=tmp_path) as bus:
        bus.define(EventType("T", {"x": "float"}))
        bus.publish(Event({"x": 1.0}, type="T"))
        with pytest.raises(ValueError, match="y"):
            bus.subscribe("T: y = 1", since=LONG_AGO)
        assert bus._core.lake is not None
        assert bus._core.lake._holds == {}
        with bus.subscribe("T: x = 1", since=LONG_AGO):
            pass
        assert bus._core.lake._holds == {}


@pytest.mark.parametrize("callback", [False, True])
def test_no_gap_and_no_duplicate_while_threads_publish(tmp_path: Path, callback: bool) -> None:
    with SyncBus(lake=tmp_path, lake_sync="none") as bus:
        # Small segments, so that many are rolled while the subscriber is in the past.
        assert bus._core.lake is not None
        bus._core.lake._limits = Limits(rows=150)
        for n in range(500):
            bus.publish(Event({"n": n}))
        stop = threading.Event()
        published = [500]

        def publish() -> None:
            while not stop.is_set() and published[0] < 20_000:
                bus.publish(Event({"n": published[0]}))
                published[0] += 1

        publisher = threading.Thread(target=publish)
        publisher.start()
        got: list[object] = []
        subscription = bus.subscribe(
            "n >= 0", (lambda e: got.append(e["n"])) if callback else None, since=LONG_AGO
        )
        if not callback:
            while subscription._past is not None or len(got) < 1500:
                got.append(subscription.get(10)["n"])
        else:
            while subscription._past is not None:
                threading.Event().wait(0.01)
        stop.set()
        publisher.join()
        if not callback:
            got += [each["n"] for each in subscription.until_idle(0.2)]
    assert got == list(range(published[0]))


def test_a_slow_subscriber_in_the_past_does_not_hold_up_publishers(tmp_path: Path) -> None:
    with SyncBus(lake=tmp_path, lake_sync="none") as bus:
        bus.publish(Event({"n": 0}))
        slow = bus.subscribe("n >= 0", since=LONG_AGO, size=4)
        for n in range(1, 200):
            bus.publish(Event({"n": n}), timeout=0.5)  # with a queue of 4 and the policy block
        assert len(slow._mailbox) == 0
        assert [slow.get(5)["n"] for _ in range(200)] == list(range(200))
        assert slow.dropped == 0


async def _live(path: Path, callback: bool) -> list[object]:
    got: list[object] = []
    async with Bus(lake=path, lake_sync="none") as bus:
        for n in range(300):
            await bus.publish(Event({"n": n}))

        async def publish() -> None:
            for n in range(300, 900):
                await bus.publish(Event({"n": n}))
                await asyncio.sleep(0)

        publisher = asyncio.create_task(publish())
        if callback:
            bus.subscribe("n >= 0", lambda e: got.append(e["n"]), since=LONG_AGO)
            while len(got) < 900:
                await asyncio.sleep(0.01)
        else:
            async with bus.subscribe("n >= 0", since=LONG_AGO, size=16) as subscription:
                async for each in subscription:
                    got.append(each["n"])
                    if len(got) == 900:
                        break
                assert subscription.drain() == []
        await publisher
    return got


@pytest.mark.parametrize("callback", [False, True])
def test_no_gap_and_no_duplicate_in_an_event_loop(tmp_path: Path, callback: bool) -> None:
    assert asyncio.run(_live(tmp_path, callback)) == list(range(900))


def test_a_catch_up_is_exact_wherever_segments_end(tmp_path: Path) -> None:
    from angelia import Filter

    for rows in (1, 3, 7, 1000):
        path = tmp_path / str(rows)
        with LakeWriter(
            path, "b1", registry(), fsync="none", limits=Limits(rows=rows), background=False
        ) as writer:
            writer.append(events(0, 5))
            past = CatchUp(writer, Filter.parse("true"), None, LONG_AGO)
            writer.append(events(5, 10))
            found = ids(past.read(3))
            assert found == ["0", "1", "2"]
            for start in range(10, 40, 5):
                writer.append(events(start, start + 5))
                writer.roll() if start % 2 else None
                found += ids(past.read(4))
            while not past.is_done:
                found += ids(past.read(4))
            assert found == [str(n) for n in range(40)]
            assert past.read(5) == []
            past.close()
            writer.roll()
            assert Lake(path).snapshot().segments == ()


# ---------------------------------------------------------------- the seam by ids


def test_the_seam_gives_what_came_live_meanwhile_after_the_history_and_once() -> None:
    seam = Seam(iter(events(0, 10)))
    assert not seam.offer(event(8))  # is part of the history, too
    assert not seam.offer(event(10))
    assert ids(seam.read(4)) == ["0", "1", "2", "3"]
    assert not seam.offer(event(2))  # was there before
    assert not seam.offer(event(11))
    found = ids(seam.read(100))
    assert found == ["4", "5", "6", "7", "8", "9", "10", "11"]
    assert seam.is_live
    assert not seam.offer(event(9))  # late
    assert seam.offer(event(12))
    assert seam.read(5) == []


def test_the_seam_is_bounded() -> None:
    seam = Seam(iter(events(0, 10)), size=2, window=3)
    seam.offer(event(20))
    seam.offer(event(21))
    with pytest.raises(LakeError, match="too many to hold"):
        seam.offer(event(22))
    seam.read(10)
    assert len(seam._seen) == 3


# ---------------------------------------------------------------- replay


def test_a_replay_keeps_its_rate(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, events(0, 30))
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    found = list(replay(lake, "price >= 0", rate=10, clock=lambda: now[0], sleep=sleep))
    assert ids(found) == [str(n) for n in range(30) if n % 3 != 2]
    assert now[0] == pytest.approx(1.9)
    assert list(
        replay(
            lake,
            "price >= 0",
            since=START + timedelta(minutes=20),
            until=datetime(2026, 3, 1, 23, 25, tzinfo=UTC),
        )
    )
    with pytest.raises(LakeError, match="rate"):
        next(replay(lake, "true", rate=0))
