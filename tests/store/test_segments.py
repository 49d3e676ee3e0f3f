"""Segments tell what is damaged in them, and give the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.helpers import event, events, ids, registry

from angelia import Event
from angelia.errors import LakeError
from angelia.store import Lake
from angelia.store.segment import Damage, encode_event, event_of, read_segment, record
from angelia.store.writer import LakeWriter


def written(path: Path, *batches: list[Event]) -> bytes:
    data = b"".join(record([encode_event(each) for each in batch]) for batch in batches)
    path.write_bytes(data)
    return data


def read(path: Path) -> tuple[list[Event], list[Damage]]:
    damage: list[Damage] = []
    return [event_of(row) for _, rows in read_segment(path, damage=damage) for row in rows], damage


def test_what_was_written_is_read(tmp_path: Path) -> None:
    written(tmp_path / "s", events(0, 5), events(5, 6))
    assert read(tmp_path / "s") == (events(0, 6), [])


def test_a_segment_that_is_cut_anywhere_gives_all_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first, second = record([encode_event(event(0))]), record([encode_event(event(1))])
    data = first + second
    for length in range(len(data)):
        path.write_bytes(data[:length])
        found, damage = read(path)
        assert ids(found) == (["0"] if length >= len(first) else [])
        torn = length not in (0, len(first))
        assert len(damage) == torn
        if torn:
            assert damage[0].is_tail
            assert damage[0].offset + damage[0].length == length


def test_a_flipped_bit_anywhere_costs_one_record_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "s"
    data = written(path, events(0, 2), events(2, 4), events(4, 6))
    start = len(record([encode_event(each) for each in events(0, 2)]))
    end = start + len(record([encode_event(each) for each in events(2, 4)]))
    for position in range(start, end, 7):
        path.write_bytes(data[:position] + bytes([data[position] ^ 4]) + data[position + 1 :])
        found, damage = read(path)
        assert ids(found) == ["0", "1", "4", "5"]
        assert [each.is_tail for each in damage] == [False]


def test_garbage_is_no_segment(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"\xa7WAL" * 50)
    found, damage = read(tmp_path / "s")
    assert found == []
    assert damage[0].length == 200


def test_a_torn_tail_is_reported_and_cut_at_the_next_start(tmp_path: Path) -> None:
    whole, torn = (record([encode_event(each) for each in batch]) for batch in (events(0, 4), events(4, 8)))
    folder = tmp_path / "wal" / "b1"
    folder.mkdir(parents=True)
    (folder / "0000000000000007.wal").write_bytes(whole + torn[:-3])
    with LakeWriter(tmp_path, "b1", registry(), background=False) as writer:
        (recovery,) = writer.recovered
        assert [(each.offset, each.is_tail) for each in recovery.damage] == [(len(whole), True)]
        assert list(folder.glob("*.wal")) == []
    assert ids(Lake(tmp_path).events()) == ["0", "1", "2", "3"]


def test_a_segment_that_is_damaged_inside_is_kept_for_its_owner(tmp_path: Path) -> None:
    records = [record([encode_event(each)]) for each in events(0, 3)]
    broken = records[1][:-2] + b"xx"
    folder = tmp_path / "wal" / "b1"
    folder.mkdir(parents=True)
    (folder / "0000000000000007.wal").write_bytes(records[0] + broken + records[2])
    with LakeWriter(tmp_path, "b1", registry(), background=False) as writer:
        assert len(writer.recovered) == 1
    kept = folder / "0000000000000007.damaged"
    assert kept.read_bytes() == records[0] + broken + records[2]


def test_a_batch_beyond_all_measure_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("angelia.store.segment._MAX_RECORD", 1000)
    with pytest.raises(LakeError, match="too large"):
        record([b"x" * 100] * 10)
