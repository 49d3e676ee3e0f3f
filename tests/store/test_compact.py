"""Compaction: fewer files, the same events, while brokers write and others read."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.store.helpers import START, events, ids, lake_of, registry

from angelia import Event
from angelia.errors import LakeError
from angelia.store import Lake, LakeWriter, Limits
from angelia.store.compact import compact


def many(path: Path) -> Lake:
    return lake_of(path, *(events(start, start + 6) for start in range(0, 60, 6)))


def test_small_files_become_one_a_type_and_day(tmp_path: Path) -> None:
    lake = many(tmp_path)
    assert len(lake.files()) == 30
    done = compact(tmp_path)
    assert (done.merged, done.made, done.rows) == (30, 3, 60)
    assert len(lake.files()) == 3
    assert list(lake.events()) == events(0, 60)
    for file in lake.files():
        times = pq.read_table(file.path, partitioning=None).column("@time").to_pylist()
        assert times == sorted(times)


def test_to_compact_again_changes_nothing(tmp_path: Path) -> None:
    lake = many(tmp_path)
    compact(tmp_path)
    before = lake.files()
    done = compact(tmp_path)
    assert (done.merged, done.made, done.removed) == (0, 0, 0)
    assert lake.files() == before


def test_plain_readers_see_each_event_once_afterwards(tmp_path: Path) -> None:
    many(tmp_path)
    compact(tmp_path)
    assert sum(1 for path in (tmp_path / "events").rglob("_replaced-*")) == 30
    found = ds.dataset(tmp_path / "events" / "flights.Quote", partitioning="hive").to_table()
    assert found.num_rows == 20


def test_who_has_listed_files_can_still_read_them(tmp_path: Path) -> None:
    lake = many(tmp_path)
    snapshot = lake.snapshot()
    compact(tmp_path)
    assert list(lake.events(snapshot=snapshot)) == events(0, 60)
    done = compact(tmp_path, grace=0)
    assert done.removed == 30
    with pytest.raises(LakeError, match="read the lake again"):
        list(lake.events(snapshot=snapshot))
    assert list(lake.events()) == events(0, 60)


def test_old_columns_of_integers_are_brought_up_to_date(tmp_path: Path) -> None:
    at = START
    lake_of(tmp_path, [Event({"x": 1}, id="1", time=at)])
    lake = lake_of(tmp_path, [Event({"x": 1.5}, id="2", time=at + timedelta(days=1))])
    kinds = lambda: {str(pq.read_schema(file.path).field("x").type) for file in lake.files()}  # noqa: E731
    assert kinds() == {"int64", "double"}
    compact(tmp_path)
    assert kinds() == {"double"}
    assert [e["x"] for e in lake.events()] == [1.0, 1.5]


def test_a_file_whose_segment_is_there_is_left_alone(tmp_path: Path) -> None:
    with LakeWriter(tmp_path, "b1", registry(), background=False) as writer:
        for start in (0, 6):
            token = writer.hold(writer.position())  # a reader follows: rolled segments stay
            writer.append(events(start, start + 6))
            writer.roll()
        assert len(Lake(tmp_path).snapshot().segments) == 2
        assert compact(tmp_path).merged == 0
        assert list(Lake(tmp_path).events()) == events(0, 12)
        writer.release(token)


def test_an_unreadable_file_is_left_alone_and_told(tmp_path: Path) -> None:
    lake = many(tmp_path)
    bad = Path(lake.files("flights.LastMinute")[0].path)
    bad.write_bytes(b"PAR1 no")
    done = compact(tmp_path)
    assert done.skipped == 1
    assert bad.exists()
    assert len(list(lake.events())) == 58


def test_there_is_one_compaction_at_a_time(tmp_path: Path) -> None:
    from angelia.store.catalog import open_locked

    many(tmp_path)
    handle = open_locked(tmp_path / ".compact.lock", wait=False)
    assert handle is not None
    with pytest.raises(LakeError, match="under way"):
        compact(tmp_path)
    with pytest.raises(LakeError, match="no lake"):
        compact(tmp_path / "nowhere")


def test_a_writer_a_reader_and_a_compaction_at_once(tmp_path: Path) -> None:
    """Whenever a reader looks, it has everything that was appended before, once."""
    stop = threading.Event()
    appended = [0]
    failures: list[str] = []
    writer = LakeWriter(
        tmp_path, "b1", registry(), fsync="none", limits=Limits(rows=30), interval=0.01, background=True
    )

    def write() -> None:
        while not stop.is_set():
            writer.append(events(appended[0], appended[0] + 10))
            appended[0] += 10
            time.sleep(0.003)

    def tidy() -> None:
        while not stop.is_set():
            compact(tmp_path, grace=5)

    def read() -> None:
        while not stop.is_set():
            before = appended[0]
            found = [int(each or -1) for each in ids(Lake(tmp_path).events())]
            if len(set(found)) != len(found):
                failures.append(f"twice: {sorted(n for n in set(found) if found.count(n) > 1)[:5]}")
            if missing := set(range(before)) - set(found):
                failures.append(f"missing: {sorted(missing)[:5]} of {before}")

    threads = [threading.Thread(target=work) for work in (write, tidy, read, read)]
    for thread in threads:
        thread.start()
    time.sleep(4)
    stop.set()
    for thread in threads:
        thread.join()
    writer.close()
    assert failures == []
    assert appended[0] > 300
    compact(tmp_path)
    assert ids(Lake(tmp_path).events()) == [str(n) for n in range(appended[0])]
