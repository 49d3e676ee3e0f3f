"""The writer: limits, several brokers, numbers that are never used again, full disks."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from tests.store.helpers import event, events, ids, lake_of, registry

from angelia import Event
from angelia.errors import LakeError
from angelia.store import Lake, LakeWriter, Limits
from angelia.testing import VirtualClock


def test_a_segment_is_sealed_by_rows_by_size_and_by_age(tmp_path: Path) -> None:
    clock = VirtualClock(1000.0)
    limits = Limits(rows=10, size=4000, age=60)
    with LakeWriter(tmp_path, "b1", registry(), limits=limits, clock=clock, background=False) as writer:
        first = writer.position()
        writer.append(events(0, 9))
        assert writer.position().segment >= first.segment
        writer.append([event(9)])
        assert writer.position().offset == 0  # by rows
        writer.append([Event({"text": "x" * 5000}, id="large", time=event(0).time)])
        assert writer.position().offset == 0  # by size
        writer.append([event(10)])
        assert writer.position().offset > 0
        clock.advance(60)
        writer.append([event(11)])
        assert writer.position().offset == 0  # by age
        assert writer.roll() == 3
    assert len(list(Lake(tmp_path).events())) == 13


def test_segments_are_rolled_in_the_background(tmp_path: Path) -> None:
    with LakeWriter(
        tmp_path, "b1", registry(), limits=Limits(rows=50), fsync="interval", interval=0.05
    ) as writer:
        writer.append(events(0, 50))
        deadline = time.monotonic() + 20
        while Lake(tmp_path).snapshot().segments and time.monotonic() < deadline:
            time.sleep(0.02)
        assert Lake(tmp_path).snapshot().segments == ()
        assert len(Lake(tmp_path).files()) == 3
        assert writer.recovered == []


def test_an_old_segment_is_rolled_though_nothing_is_appended(tmp_path: Path) -> None:
    with LakeWriter(tmp_path, "b1", registry(), limits=Limits(age=0.1), fsync="none") as writer:
        writer.append(events(0, 3))
        deadline = time.monotonic() + 20
        while not Lake(tmp_path).files() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(Lake(tmp_path).files()) == 3


def test_several_brokers_share_a_lake(tmp_path: Path) -> None:
    writers = [LakeWriter(tmp_path, name, registry(), background=False) for name in ("b1", "b2", "b/3")]
    for number, writer in enumerate(writers):
        writer.append(events(10 * number, 10 * number + 10))
    assert ids(Lake(tmp_path).events()) == [str(n) for n in range(30)]
    for writer in writers:
        writer.close()
    assert ids(Lake(tmp_path).events()) == [str(n) for n in range(30)]
    assert {file.broker for file in Lake(tmp_path).files()} == {"b1", "b2", "b%2F3"}


def test_two_writers_of_one_name_are_refused(tmp_path: Path) -> None:
    with LakeWriter(tmp_path, "b1", background=False), pytest.raises(LakeError, match="names of their own"):
        LakeWriter(tmp_path, "b1", background=False)
    LakeWriter(tmp_path, "b1", background=False).close()


@pytest.mark.parametrize("name", ["", "compacted", "import"])
def test_some_names_are_not_a_brokers(tmp_path: Path, name: str) -> None:
    with pytest.raises(LakeError, match="needs a name"):
        LakeWriter(tmp_path, name)


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="batch, interval, none"):
        LakeWriter(tmp_path, "b1", fsync="never")  # type: ignore[arg-type]


def test_a_clock_that_goes_back_overwrites_nothing(tmp_path: Path) -> None:
    for now in (5000.0, 4000.0, 5000.0):
        clock = VirtualClock(now)
        with LakeWriter(tmp_path, "b1", registry(), clock=clock, background=False) as writer:
            writer.append([event(round(now) + len(Lake(tmp_path).files()))])
    assert len(list(Lake(tmp_path).events())) == 3
    assert len({file.segment for file in Lake(tmp_path).files()}) == 3


def test_a_full_disk_refuses_an_append_and_keeps_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LakeWriter(tmp_path, "b1", registry(), background=False) as writer:
        writer.append(events(0, 5))
        real = os.write

        def full(handle: int, data: bytes) -> int:
            if len(data) > 100:
                return real(handle, bytes(data)[:50])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(LakeError, match="No space left"):
            writer.append([event(5)])
        monkeypatch.undo()
        writer.append([event(6)])
        assert ids(Lake(tmp_path).events()) == ["0", "1", "2", "3", "4", "6"]


def test_threads_may_append_at_once(tmp_path: Path) -> None:
    with LakeWriter(tmp_path, "b1", registry(), fsync="none", limits=Limits(rows=100)) as writer:

        def append(first: int) -> None:
            for number in range(first, first + 100):
                writer.append([event(number)])

        threads = [threading.Thread(target=append, args=(100 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ids(Lake(tmp_path).events()) == [str(n) for n in range(400)]


def test_a_closed_writer_refuses(tmp_path: Path) -> None:
    writer = LakeWriter(tmp_path, "b1")
    writer.close()
    writer.close()
    with pytest.raises(LakeError, match="closed"):
        writer.append([event(0)])


def test_types_are_kept_before_their_events_are_rolled(tmp_path: Path) -> None:
    writer = LakeWriter(tmp_path, "b1", registry(), background=False)
    writer.append([event(1)])
    assert Lake(tmp_path).registry().is_subtype("flights.LastMinute", "flights.Quote")
    assert ids(Lake(tmp_path).events("flights.Quote")) == ["1"]
    writer.close()


def test_an_append_of_nothing_leaves_nothing(tmp_path: Path) -> None:
    lake_of(tmp_path, [])
    assert Lake(tmp_path).snapshot() == Lake(tmp_path / "none").snapshot()
