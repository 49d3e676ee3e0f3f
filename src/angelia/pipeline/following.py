"""A lake as a stream: files as they are rolled, each once.

A broker rolls its segments in order, and names files by segment. So an offset is, for each broker, the last
segment that was read, and the number of files so far. A segment counts once a file of it was seen and its
write-ahead log is gone; only then are its files listed, so that none is missed.

Compaction does not disturb a stream: what `compact` made when the stream began is read like a broker's; what
it makes later holds events that come from the originals anyway, which stay for a while under another name. If
they are gone before they were read, the number of files tells, and the query fails rather than lose events.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from angelia.pipeline.errors import PipelineError
from angelia.pipeline.options import Query
from angelia.pipeline.pieces import pieces, read_piece
from angelia.pipeline.source import arrow_schema, partitions_of
from angelia.store import LakeFile
from angelia.store.batches import holds
from angelia.store.files import opened
from angelia.store.layout import (
    COMPACTED,
    events_folder,
    folder_names,
    folder_of,
    is_marker,
    listed,
    marker_result,
    parse_date,
    parse_file,
    replaced_name,
    tag_of,
    wal_folder,
)

__all__ = ["LakeStream"]

Offset = dict[str, Any]
Place = tuple[int, str]  # of a segment: its number and broker


class LakeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of the events that come into a lake."""

    def __init__(self, query: Query, schema: StructType, files: str | None = None) -> None:
        self._query, self._schema = query, schema
        self._files = _count(files)
        self._is_bounded = False
        self._target: dict[Place, int] | None = None  # all that a bounded query is to read

    # ------------------------------------------------ offsets

    def initialOffset(self) -> Offset:
        """Before everything; it notes which compacted files there are."""
        compacted = [file.segment for file in self._query.open().files() if file.broker == COMPACTED]
        return {"marks": {}, "files": 0, "compacted": max(compacted, default=-1)}

    def getDefaultReadLimit(self) -> ReadLimit:
        """As the option `maxFilesPerTrigger` says."""
        return ReadAllAvailable() if self._files is None else ReadMaxFiles(self._files)

    def prepareForTriggerAvailableNow(self) -> None:
        """What comes after the first look does not count."""
        self._is_bounded = True

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """As far as there is something to read, and the limit allows."""
        there = self._complete(start["compacted"]) if self._target is None else self._target
        self._target = there if self._is_bounded else None
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else None
        marks, files = dict(start["marks"]), int(start["files"])
        for (number, broker), count in sorted(there.items()):
            if not _is_new(broker, number, start):
                continue
            if most is not None and files > start["files"] and files + count > start["files"] + most:
                break
            marks[broker] = number
            files += count
        return {"marks": marks, "files": files, "compacted": start["compacted"]}

    def _complete(self, compacted: int) -> dict[Place, int]:
        """The segments whose files are all there, and how many files each has."""
        lake = Path(self._query.lake)
        while True:
            hidden = holds(lake)
            before = {(file.segment, file.broker) for file in _listed(lake, compacted)}
            growing = _growing(lake)
            counts: dict[Place, int] = {}
            for file in _listed(lake, compacted):
                place = file.segment, file.broker
                if place in before and file.segment < growing.get(file.broker, file.segment + 1):
                    counts[place] = counts.get(place, 0) + 1
            if not holds(lake).since(hidden):  # else a batch, with many numbers, may have been seen in part
                return counts

    # ------------------------------------------------ reading

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The files between two offsets; the same ones whenever it is asked."""
        files = [
            file
            for file in _listed(self._query.lake, start["compacted"])
            if _is_new(file.broker, file.segment, start) and file.segment <= end["marks"].get(file.broker, -1)
        ]
        missing = int(end["files"]) - int(start["files"]) - len(files)
        if missing:
            raise PipelineError(
                f"{missing} files of {self._query.lake} were compacted away before this query had read them; "
                "begin anew with another checkpoint"
            )
        return partitions_of(pieces(self._wanted(files)))

    def _wanted(self, files: Sequence[LakeFile]) -> list[LakeFile]:
        query = self._query
        types = query.types(query.open())
        if types is not None:
            folders, tags = {folder_of(name) for name in types}, {tag_of(name) for name in types}
            tags |= {tag_of(None)} if "Event" in types else set()
            files = [file for file in files if file.folder in folders and file.tag in tags]
        first = date.min if query.since is None else query.since.date()
        last = date.max if query.until is None else query.until.date()
        chosen = sorted(file for file in files if first <= file.date <= last)
        return [replace(file, size=opened(file.path, os.stat).st_size) for file in chosen]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a piece."""
        return read_piece(self._query, partition.value, arrow_schema(self._schema))


def _growing(lake: Path) -> dict[str, int]:
    """For each broker, the first segment that is not rolled, or number that is held back."""
    first = {hold.writer: hold.first for hold in sorted(holds(lake).held, reverse=True)}
    for broker in folder_names(wal_folder(lake)):
        for name in listed(wal_folder(lake) / broker):
            if name.endswith(".wal"):
                first[broker] = min(int(name[:-4]), first.get(broker, int(name[:-4])))
    return first


def _is_new(broker: str, number: int, start: Offset) -> bool:
    if broker == COMPACTED and number > int(start["compacted"]):
        return False
    return number > int(start["marks"].get(broker, -1))


def _listed(lake: str | Path, compacted: int = -1) -> Iterator[LakeFile]:
    """All files of a lake, those that a compaction has replaced as well, under their own names.

    But for those that compactions up to a number have replaced: they are in its files.
    """
    top = events_folder(Path(lake))
    for folder in folder_names(top):
        for day in folder_names(top / folder):
            on = parse_date(day)
            if on is None:
                continue
            for name in _names(top / folder / day, compacted):
                file = parse_file(str(top / folder / day / name), folder, on, 0)
                if file is not None:
                    yield file


def _names(folder: Path, compacted: int) -> set[str]:
    there = listed(folder)
    names = {name.removeprefix(replaced_name("")) for name in there}
    for marker in filter(is_marker, there):
        result = parse_file(marker_result(marker), "", date.min, 0)
        if result is not None and result.segment <= compacted:
            with suppress(FileNotFoundError):  # it went, and with it all that it told of
                names -= set(json.loads((folder / marker).read_text("utf-8"))["replaces"])
    return {name for name in names if name[0] not in "._"}


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdigit() or int(text) < 1:
        raise PipelineError(f"maxFilesPerTrigger is a number of files, not {text!r}")
    return int(text)
