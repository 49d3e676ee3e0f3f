"""Compaction: few large files instead of many small ones, while brokers write and others read.

Within the folder of a type and day, small files become one. In this order:

1. the new file is written under a hidden name;
2. a marker, `_marker-<new file>.json`, tells which files it replaces. It counts once the new file is there;
3. the new file is renamed to its name: this is the moment. Readers of ours see the old ones, or the new one;
4. the old ones are renamed to `_replaced-…`, which hides them from everybody;
5. after a while (`grace`), when nobody who listed them can still be reading, they and the marker go.

A crash anywhere leaves what the next compaction finishes, or takes back. Between 3 and 4, a reader that does
not know of markers sees both: twice for a moment, but never not at all.

A file whose segment is still there is left alone: if its broker died just now, it will be made again. A batch
that a sink had committed when it died is completed first; one that is under way is left alone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from angelia.errors import LakeError
from angelia.store.batches import finish_batches, holds
from angelia.store.catalog import Catalog, is_owned, open_locked, write_whole
from angelia.store.clustering import BLOCK_KEY, CLUSTER_KEY, LEAST
from angelia.store.columns import CONTEXT_SCHEMA, REST, arrow_column, conformed, schema_of
from angelia.store.ingest import finish_imports
from angelia.store.lake import Lake, replaced_files
from angelia.store.layout import (
    COMPACTED,
    IMPORT,
    LakeFile,
    compacted_name,
    events_folder,
    folder_names,
    is_marker,
    listed,
    marker_name,
    marker_result,
    name_of,
    parse_date,
    parse_file,
    replaced_name,
    sync_folder,
    temporary_owner,
    wal_folder,
)
from angelia.store.rolling import hidden_table
from angelia.store.writer import LakeWriter

__all__ = ["GRACE", "Compaction", "compact"]

GRACE = 3600.0  # seconds that replaced files are kept for readers that have listed them
SMALL = 32 << 20  # bytes of a file that is worth merging
ROWS = 1_000_000  # that a compacted file has at most
BYTES = 128 << 20  # that are merged at once at most


@dataclass(slots=True)
class Compaction:
    """What a compaction did."""

    rolled: int = 0
    merged: int = 0
    made: int = 0
    removed: int = 0
    rows: int = 0
    skipped: int = 0


def compact(
    path: str | os.PathLike[str],
    *,
    grace: float = GRACE,
    cluster: str | None = None,
    clock: Callable[[], float] = time.time,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Compaction:
    """Merge small files, roll what dead brokers left, and tidy up. To do it again changes nothing.

    Large files are clustered by the attribute `cluster` where they have it, and else by what suits them;
    those that are clustered by another one are written anew.
    """
    lake = Lake(path)
    if not lake.path.is_dir():
        raise LakeError(f"there is no lake in {lake.path}")
    if cluster is not None:
        _check_key(lake, cluster)
    lock = open_locked(lake.path / ".compact.lock", wait=False)
    if lock is None:
        raise LakeError(f"another compaction of {lake.path} is under way")
    try:
        done = Compaction()
        if not is_owned(lake.path, IMPORT):
            finish_imports(lake.path)
        done.removed += finish_batches(lake.path)
        _roll_orphans(lake, done)
        days = list(_days(lake.path))
        for number, (folder, on) in enumerate(days, 1):
            _Day(lake, folder, on, grace, cluster, clock, done).run()
            progress(number, len(days))
        return done
    finally:
        os.close(lock)


def _check_key(lake: Lake, name: str) -> None:
    schema = lake.schema()
    fitting = [each.name for each in schema if each.name != REST and not pa.types.is_list(each.type)]
    if name not in fitting:
        raise LakeError(f"the lake cannot be clustered by {name!r}, but by {', '.join(fitting)}")


def _days(lake: Path) -> Iterator[tuple[str, date]]:
    """The folders of types and days."""
    for folder in folder_names(events_folder(lake)):
        for name in folder_names(events_folder(lake) / folder):
            day = parse_date(name)
            if day is not None:
                yield folder, day


def _roll_orphans(lake: Lake, done: Compaction) -> None:
    for broker in folder_names(wal_folder(lake.path)):
        left = len(list((wal_folder(lake.path) / broker).glob("*.wal")))
        if left and not is_owned(lake.path, broker):
            with suppress(LakeError):  # it has come back
                LakeWriter(lake.path, name_of(broker) or broker, background=False).close()
                done.rolled += left


class _Day:
    """The folder of a type and day."""

    def __init__(
        self,
        lake: Lake,
        folder: str,
        on: date,
        grace: float,
        cluster: str | None,
        clock: Callable[[], float],
        done: Compaction,
    ) -> None:
        self._lake = lake
        self._folder = folder
        self._on = on
        self._path = events_folder(lake.path) / folder / f"date={on.isoformat()}"
        self._grace = grace
        self._cluster = cluster
        self._clock = clock
        self._done = done

    def run(self) -> None:
        """Finish what another compaction began, then merge."""
        self._finish()
        self._tidy()
        columns = Catalog(self._lake.path).columns(self._folder)
        by_tag: dict[str, list[LakeFile]] = {}
        for file in self._settled():
            by_tag.setdefault(file.tag, []).append(file)
        for tag, files in by_tag.items():
            wanted = schema_of(columns)
            for group in _groups(self._readable(files, wanted)):
                self._merge(tag, group, wanted)

    # ------------------------------------------------ leftovers

    def _finish(self) -> None:
        """Hide what a marker says is replaced; take back a marker whose file never came."""
        names = listed(self._path)
        for marker in filter(is_marker, names):
            if marker_result(marker) not in names:
                (self._path / marker).unlink()
        self._hide(replaced_files(self._path, names) & set(names))

    def _hide(self, names: set[str]) -> None:
        for name in sorted(names):
            os.replace(self._path / name, self._path / replaced_name(name))
        if names:
            sync_folder(self._path)

    def _tidy(self) -> None:
        """Remove what nobody reads any more, and what nobody will finish."""
        names = set(listed(self._path))
        now = time.time()
        for name in sorted(names):
            path = self._path / name
            if name.startswith(replaced_name("")):
                # Renaming set the time of change, on the file system's clock.
                if now - path.stat().st_ctime >= self._grace:
                    path.unlink()
                    names.discard(name)
                    self._done.removed += 1
            elif self._is_abandoned(name):
                path.unlink(missing_ok=True)
                self._done.removed += 1
        for marker in filter(is_marker, sorted(names)):
            replaced = json.loads((self._path / marker).read_text("utf-8"))["replaces"]
            if not any(name in names or replaced_name(name) in names for name in replaced):
                (self._path / marker).unlink()

    def _is_abandoned(self, name: str) -> bool:
        """Whether a file is half-written, and nobody writes it any more: compactions come one by one."""
        if name[0] == ".":
            return name.endswith(".tmp")  # a marker
        owner = temporary_owner(name)
        return owner is not None and (owner == COMPACTED or not is_owned(self._lake.path, owner))

    # ------------------------------------------------ merging

    def _settled(self) -> Iterator[LakeFile]:
        """Files that are there for good: their segments are gone, and no batch holds them back."""
        names, hidden = listed(self._path), holds(self._lake.path)  # in this order: a hold comes before files
        for name in names:
            path = self._path / name
            file = parse_file(str(path), self._folder, self._on, path.stat().st_size)
            if file is not None and name[0] not in "._":
                segment = wal_folder(self._lake.path) / file.broker / f"{file.segment:016d}.wal"
                if not segment.exists() and not hidden.hide(file):
                    yield file

    def _readable(self, files: list[LakeFile], schema: pa.Schema) -> list[tuple[LakeFile, int, bool]]:
        """Files with their rows, and whether their columns, or their order, are not those of today."""
        found = []
        for file in files:
            try:
                with pq.ParquetFile(file.path) as parquet:
                    rows, kinds = parquet.metadata.num_rows, parquet.schema_arrow
            except (OSError, pa.ArrowException) as error:
                self._lake.report(file.path, error)
                self._done.skipped += 1
                continue
            if kinds.names[: len(CONTEXT_SCHEMA.names)] != CONTEXT_SCHEMA.names:
                self._done.skipped += 1
                continue
            is_old = any(
                field.name in schema.names
                and arrow_column(field.type) != arrow_column(schema.field(field.name).type)
                for field in kinds
            )
            found.append((file, rows, is_old or self._is_otherwise(kinds, rows)))
        return found

    def _is_otherwise(self, schema: pa.Schema, rows: int) -> bool:
        """Whether a file is to be clustered by another attribute than it is."""
        if self._cluster not in schema.names or rows < LEAST:
            return False
        return bool((schema.metadata or {}).get(CLUSTER_KEY, b"").decode() != self._cluster)

    def _merge(self, tag: str, files: list[LakeFile], schema: pa.Schema) -> None:
        tables = []
        try:
            for file in files:
                whole = pq.read_table(file.path, partitioning=None, page_checksum_verification=True)
                batches = whole.combine_chunks().to_batches()
                tables += [conformed(batch, schema) for batch in batches]
                metadata = whole.schema.metadata
        except (OSError, pa.ArrowException) as error:
            self._lake.report(file.path, error)
            self._done.skipped += len(files)
            return
        kept = {key: value for key, value in metadata.items() if key not in (CLUSTER_KEY, BLOCK_KEY)}
        table = pa.Table.from_batches(tables, schema).replace_schema_metadata(kept).sort_by("@time")
        name = self._free_name(tag)
        temporary = hidden_table(table, self._path / name, key=self._cluster)
        names = [os.path.basename(file.path) for file in files]
        write_whole(self._path / marker_name(name), msgspec.json.encode({"replaces": names}))
        os.replace(temporary, self._path / name)
        sync_folder(self._path)
        self._hide(set(names))
        self._done.merged += len(files)
        self._done.made += 1
        self._done.rows += table.num_rows

    def _free_name(self, tag: str) -> str:
        number = round(self._clock() * 1e6)
        while (self._path / compacted_name(number, tag)).exists():
            number += 1
        return compacted_name(number, tag)


def _groups(files: list[tuple[LakeFile, int, bool]]) -> Iterator[list[LakeFile]]:
    """Small files, the oldest first, in groups that make one; and files that are of yesterday."""
    group: list[LakeFile] = []
    rows = size = 0
    old = False
    for file, count, is_old in sorted(files, key=lambda each: each[0].segment):
        if file.size >= SMALL and not is_old:
            continue
        if group and (rows + count > ROWS or size + file.size > BYTES):
            if len(group) > 1 or old:
                yield group
            group, rows, size, old = [], 0, 0, False
        group.append(file)
        rows, size, old = rows + count, size + file.size, old or is_old
    if len(group) > 1 or old:
        yield group
