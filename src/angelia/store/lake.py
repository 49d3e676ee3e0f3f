"""A lake, seen by its readers: no broker is needed, and brokers may write meanwhile.

A *snapshot* is what there is at a moment: Parquet files, and segments that are not rolled yet. While a
segment is there, it counts and its files do not; what a compaction has replaced does not count, nor what a
batch holds back. So a snapshot has every event that was appended before it, once.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from angelia.errors import LakeError
from angelia.event import Event, parse_timestamp
from angelia.filter import Filter
from angelia.store.batches import holds
from angelia.store.catalog import Catalog
from angelia.store.columns import REST, Columns, declared, schema_of, widened
from angelia.store.layout import (
    UNTYPED,
    LakeFile,
    Segment,
    events_folder,
    folder_names,
    folder_of,
    is_marker,
    listed,
    marker_result,
    name_of,
    parse_date,
    parse_file,
    replaced_name,
    tag_of,
    wal_folder,
)
from angelia.store.scan import Scan
from angelia.types import TypeRegistry

__all__ = ["Lake", "Problem", "Snapshot", "moment"]

log = logging.getLogger("angelia.lake")

_TRIES = 100  # to see segments and files at one moment
_MIDNIGHT = time(tzinfo=UTC)

Moment = datetime | str


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be read, and why. What it held is missing from what was read."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there was in a lake at a moment."""

    files: tuple[LakeFile, ...]
    segments: tuple[Segment, ...]


def moment(at: Moment | None) -> datetime | None:
    """A time as a UTC datetime, from one with a time zone or from RFC 3339 text."""
    if at is None or isinstance(at, str):
        return None if at is None else parse_timestamp(at)
    if at.utcoffset() is None:
        raise LakeError(f"the time {at.isoformat()} has no time zone")
    return at.astimezone(UTC)


class Lake:
    """The event lake in a directory, for reading; one that is not there yet is empty.

    `problems` tells what could not be read so far.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise LakeError(f"{self.path} is not a directory")
        self.problems: list[Problem] = []
        self._catalog = Catalog(self.path)

    # ------------------------------------------------ types

    def registry(self) -> TypeRegistry:
        """The event types that the lake has seen, in their newest versions."""
        return self._catalog.registry()

    def types(self) -> list[str]:
        """The names of the types that there are events of, sorted; `Event` stands for events without."""
        names = {self.type_of(folder) for folder in folder_names(events_folder(self.path))}
        for segment in self._segments():
            names |= Scan(self).segment_types(segment).keys()
        return sorted(names)

    def type_of(self, folder: str) -> str:
        """The type whose folder this is."""
        name = name_of(folder)
        if name is not None:
            return name
        for file in self._files_in(folder, None, None):
            try:
                return str(pq.read_schema(file.path).metadata[b"angelia.type"].decode())
            except (OSError, pa.ArrowException, KeyError, TypeError):
                continue
        return folder

    def schema(self, type: str | None = None) -> pa.Schema:  # noqa: A002 - the name CloudEvents gives it
        """The columns of a type and its descendants (of all types, if none is named).

        Of two columns with one name, the first counts (integers and floats together are floats); values
        of another kind are in `@rest`.
        """
        registry = self.registry()
        known = {*registry, *self.types()} if type is None else self.type_names(type, registry)
        columns: Columns = {}
        for name in sorted(known, key=lambda each: (each != type, each)):
            own = declared(registry.attributes(name)) if name in registry else {}
            for attribute, column in (self._catalog.columns(folder_of(name)) | own).items():
                there = columns.get(attribute, column)
                columns[attribute] = widened(there, column) or there
        return schema_of(columns, type)

    def type_names(self, type: str, registry: TypeRegistry | None = None) -> set[str]:  # noqa: A002
        """A type and its descendants."""
        registry = self.registry() if registry is None else registry
        return {type, *(registry.descendants(type) if type in registry else ())}

    # ------------------------------------------------ what there is

    def snapshot(
        self,
        type: str | None = None,  # noqa: A002
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        types: Iterable[str] | None = None,
    ) -> Snapshot:
        """The files, and segments, that may hold events of a type (or `types`) and a range of time."""
        first, last = moment(since), moment(until)
        names = set(types) if types is not None else None if type is None else self.type_names(type)
        for _ in range(_TRIES):
            before, segments = holds(self.path), self._segments()
            files = self._all_files(names, first, last)
            still = {(each.broker, each.number) for each in self._segments()}
            unrolled = {(each.broker, each.number) for each in segments}
            hidden = holds(self.path)
            # Else one was rolled meanwhile, or a batch released, and its files may have been compacted.
            if unrolled <= still and not hidden.since(before):
                files = [file for file in files if (file.broker, file.segment) not in unrolled]
                return Snapshot(tuple([file for file in files if not hidden.hide(file)]), tuple(segments))
        raise LakeError(f"{self.path} changes faster than it can be listed")

    def files(
        self,
        type: str | None = None,  # noqa: A002
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> list[LakeFile]:
        """The Parquet files of a type and its descendants in a range of time, without what is not rolled."""
        return list(self.snapshot(type, since=since, until=until).files)

    def _segments(self) -> list[Segment]:
        found = []
        for broker in folder_names(wal_folder(self.path)):
            folder = wal_folder(self.path) / broker
            for name in listed(folder):
                stem, _, suffix = name.partition(".")
                if stem.isdigit() and suffix == "wal":
                    path = folder / name
                    try:
                        found.append(Segment(str(path), broker, int(stem), path.stat().st_size))
                    except FileNotFoundError:
                        continue  # rolled since
        return found

    def _all_files(
        self, names: set[str] | None, since: datetime | None, until: datetime | None
    ) -> list[LakeFile]:
        folders = folder_names(events_folder(self.path))
        if names is None:
            return [file for folder in folders for file in self._files_in(folder, since, until)]
        wanted = {folder_of(name).casefold() for name in names}
        tags = {tag_of(name) for name in names} | ({tag_of(None)} if UNTYPED in names else set())
        return [
            file
            for folder in folders
            if folder.casefold() in wanted
            for file in self._files_in(folder, since, until)
            if file.tag in tags
        ]

    def _files_in(self, folder: str, since: datetime | None, until: datetime | None) -> Iterator[LakeFile]:
        top = events_folder(self.path) / folder
        for name in folder_names(top):
            day = parse_date(name)
            if (
                day is None
                or (since is not None and day < since.date())
                or (until is not None and datetime.combine(day, _MIDNIGHT) >= until)
            ):
                continue
            for each in visible_files(top / name):
                path = str(top / name / each)
                file = parse_file(path, folder, day, _size(path))
                if file is not None:
                    yield file

    # ------------------------------------------------ reading

    def scan(
        self,
        type: str | None = None,  # noqa: A002
        filter: Filter | str | None = None,  # noqa: A002
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        columns: Iterable[str] | None = None,
        snapshot: Snapshot | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The events that match, as record batches with the columns of `schema(type)`, or some of them.

        A type is read with its descendants; `since` is included, `until` is not. Batches come file by file,
        each in order of time. What cannot be read is left out and told in `problems`.
        """
        schema = self.schema(type)
        names = None if columns is None else _some_of(schema, list(columns)).names
        scan = Scan(self, type, _parsed(filter), moment(since), moment(until), snapshot)
        return scan.batches(schema, names)

    def table(
        self,
        type: str | None = None,  # noqa: A002
        filter: Filter | str | None = None,  # noqa: A002
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        columns: Iterable[str] | None = None,
    ) -> pa.Table:
        """What `scan` finds, as one table in order of time."""
        names = None if columns is None else list(columns)
        schema = self.schema(type) if names is None else _some_of(self.schema(type), names)
        asked = names if names is None or "@time" in names else [*names, "@time"]
        batches = self.scan(type, filter, since=since, until=until, columns=asked)
        wide = schema if asked == names else _some_of(self.schema(type), asked or [])
        return pa.Table.from_batches(batches, wide).sort_by("@time").select(schema.names)

    def events(
        self,
        type: str | None = None,  # noqa: A002
        filter: Filter | str | None = None,  # noqa: A002
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        snapshot: Snapshot | None = None,
    ) -> Iterator[Event]:
        """The events that match, in order of time, read as they are asked for."""
        scan = Scan(self, type, _parsed(filter), moment(since), moment(until), snapshot)
        return scan.events()

    def report(self, path: str, error: object) -> None:
        """Note, and log, that a file could not be read."""
        problem = Problem(path, str(error).splitlines()[0] if str(error) else repr(error))
        self.problems.append(problem)
        log.warning("%s is left out: %s", problem.path, problem.reason)


def replaced_files(folder: Path, names: list[str]) -> set[str]:
    """The files of a folder whose events are in another one now: markers of compactions tell which."""
    gone: set[str] = set()
    there = set(names)
    for name in filter(is_marker, names):
        if marker_result(name) in there:
            gone.update(json.loads((folder / name).read_text("utf-8"))["replaces"])
    return gone


def visible_files(folder: Path) -> list[str]:
    """The files of a folder that count, at one moment."""
    while True:
        names = listed(folder)
        try:
            gone = replaced_files(folder, names)
        except FileNotFoundError:  # a marker went since, and with it what it told of
            continue
        return [name for name in names if name[0] not in "._" and name not in gone]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:  # replaced since it was listed, and kept for who has listed it
        folder, name = os.path.split(path)
        return os.stat(os.path.join(folder, replaced_name(name))).st_size


def _parsed(filter: Filter | str | None) -> Filter | None:  # noqa: A002
    return Filter.parse(filter) if isinstance(filter, str) else filter


def _some_of(schema: pa.Schema, names: list[str]) -> pa.Schema:
    missing = [name for name in names if name not in schema.names]
    if missing:
        known = ", ".join(name for name in schema.names if name != REST)
        raise LakeError(f"there is no column {missing[0]!r} in the lake; there are {known}")
    return pa.schema([schema.field(name) for name in names], metadata=schema.metadata)
