"""Looking over a lake: what there is, and whether all of it can be read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from angelia.errors import LakeError
from angelia.store.batches import held_path, holds
from angelia.store.catalog import is_owned, open_locked
from angelia.store.columns import CONTEXT_SCHEMA
from angelia.store.lake import Lake, Problem
from angelia.store.layout import (
    COMPACTED,
    LakeFile,
    Segment,
    events_folder,
    folder_names,
    listed,
    parse_date,
    replaced_name,
    temporary_owner,
    wal_folder,
)
from angelia.store.scan import Scan
from angelia.store.segment import Damage, read_segment

__all__ = ["TypeSummary", "Verification", "summary", "verify"]


@dataclass(slots=True)
class TypeSummary:
    """What there is of a type."""

    type: str
    files: int = 0
    rows: int = 0
    bytes: int = 0
    unrolled: int = 0
    first: str = ""
    last: str = ""


@dataclass(slots=True)
class Verification:
    """What was looked at, and what is wrong."""

    files: int = 0
    segments: int = 0
    events: int = 0
    problems: list[Problem] = field(default_factory=list)


def summary(lake: Lake) -> list[TypeSummary]:
    """Each type with its files, rows, bytes, days and what is not rolled yet."""
    snapshot = lake.snapshot()
    found: dict[str, TypeSummary] = {}
    for file in snapshot.files:
        name = lake.type_of(file.folder)
        one = found.setdefault(name, TypeSummary(name))
        try:
            one.rows += pq.read_metadata(file.path).num_rows
        except (OSError, pa.ArrowException) as error:
            lake.report(file.path, error)
            continue
        one.files += 1
        one.bytes += file.size
        day = file.date.isoformat()
        one.first, one.last = min(one.first or day, day), max(one.last, day)
    for segment in snapshot.segments:
        for name, count in Scan(lake).segment_types(segment).items():
            found.setdefault(name, TypeSummary(name)).unrolled += count
    return [found[name] for name in sorted(found)]


def verify(
    path: str | os.PathLike[str], progress: Callable[[int, int], None] = lambda done, total: None
) -> Verification:
    """Read everything in a lake, with checksums; tells what is damaged, half-written or out of place."""
    lake = Lake(path)
    if not lake.path.is_dir():
        raise LakeError(f"there is no lake in {lake.path}")
    snapshot = lake.snapshot()
    done = Verification()
    total = len(snapshot.files) + len(snapshot.segments)
    for file in snapshot.files:
        done.files += 1
        _verify_file(file, done)
        progress(done.files, total)
    for segment in snapshot.segments:
        done.segments += 1
        _verify_segment(lake, segment, done)
        progress(done.files + done.segments, total)
    done.problems += _left_behind(lake)
    return done


def _verify_file(file: LakeFile, done: Verification) -> None:
    try:
        with pq.ParquetFile(_there(file.path), page_checksum_verification=True) as parquet:
            problem = _misplaced(parquet, file)
            for group in range(parquet.num_row_groups):
                done.events += parquet.read_row_group(group).num_rows
    except (OSError, pa.ArrowException) as error:
        problem = f"corrupted: {str(error).splitlines()[0]}"
    if problem:
        done.problems.append(Problem(file.path, problem))


def _there(path: str) -> str:
    folder, name = os.path.split(path)
    return path if os.path.exists(path) else os.path.join(folder, replaced_name(name))


def _misplaced(parquet: pq.ParquetFile, file: LakeFile) -> str | None:
    """What is wrong with a file that can be read."""
    schema = parquet.schema_arrow
    for wanted in CONTEXT_SCHEMA:
        if wanted.name not in schema.names or schema.field(wanted.name).type != wanted.type:
            return f"the column {wanted.name} is missing, or not of type {wanted.type}"
    for group in range(parquet.num_row_groups):
        times = parquet.read_row_group(group, columns=["@time"]).column("@time")
        days = pc.min_max(pc.cast(times, pa.timestamp("us")).cast(pa.date32()))
        if len(times) and {days["min"].as_py(), days["max"].as_py()} != {file.date}:
            return f"has events of {days['min']} to {days['max']}, not only of {file.date}"
    return None


def _verify_segment(lake: Lake, segment: Segment, done: Verification) -> None:
    damage: list[Damage] = []
    try:
        for _, events in read_segment(segment.path, 0, segment.size, damage):
            done.events += len(events)
    except FileNotFoundError:
        return  # rolled since
    for each in damage:
        if each.is_tail and is_owned(lake.path, segment.broker):
            continue  # an append that is under way
        what = "half-written" if each.is_tail else "corrupted"
        reason = f"{what}: {each.reason} at byte {each.offset} ({each.length} bytes)"
        done.problems.append(Problem(segment.path, reason))


def _left_behind(lake: Lake) -> Iterator[Problem]:
    """Files that nobody will finish, and damaged segments that were kept."""
    for folder in _days(lake):
        for name in listed(folder):
            owner = temporary_owner(name)
            if owner is not None and not _is_busy(lake.path, owner):
                yield Problem(
                    str(folder / name), "half-written: nobody writes it any more; `lake compact` removes it"
                )
    for hold in sorted(holds(lake.path).held):
        if not is_owned(lake.path, hold.writer):
            path = held_path(lake.path, hold.writer, hold.first, hold.last)
            yield Problem(str(path), "a batch that was cut short; `lake compact` completes it")
    for broker in folder_names(wal_folder(lake.path)):
        for name in listed(wal_folder(lake.path) / broker):
            if name.endswith(".damaged"):
                path = wal_folder(lake.path) / broker / name
                yield Problem(
                    str(path), "a damaged segment, kept for you to look at; what could be read is rolled"
                )


def _is_busy(lake: Path, owner: str) -> bool:
    if owner != COMPACTED:
        return is_owned(lake, owner)
    handle = open_locked(lake / ".compact.lock", wait=False)
    if handle is None:
        return True
    os.close(handle)
    return False


def _days(lake: Lake) -> Iterator[Path]:
    top = events_folder(lake.path)
    for folder in folder_names(top):
        for day in folder_names(top / folder):
            if parse_date(day) is not None:
                yield top / folder / day
