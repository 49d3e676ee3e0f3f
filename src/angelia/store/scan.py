"""A scan: what a filter wants of a snapshot, reading as little as can be.

Folders are chosen by type and day, row groups by their statistics (`pruning.py`); the columns that the filter
asks about are read first, and the others only of row groups where a row matches. The last word has the
matcher, or, for rows with something in `@rest`, the filter itself.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from angelia.event import Event, Kind
from angelia.filter import Filter
from angelia.filter.domain import ABOVE_ALL, BELOW_ALL
from angelia.matching import Matcher
from angelia.store.catalog import Catalog
from angelia.store.columns import REST, conformed, declared, discover, events_of, table_of
from angelia.store.files import UNREADABLE, Rows, StoredFile
from angelia.store.layout import (
    UNTYPED,
    LakeFile,
    Segment,
    events_folder,
    folder_of,
    listed,
    parse_date,
    replaced_name,
    tag_of,
)
from angelia.store.pruning import EVERYTHING, NOTHING, pruning_expression, time_expression
from angelia.store.segment import Damage, Parts, read_segment
from angelia.types import TypeRegistry

if TYPE_CHECKING:
    from angelia.store.lake import Lake, Snapshot

__all__ = ["Scan", "wanted_types"]

_TICK = timedelta(microseconds=1)
_LAST = datetime.max.replace(tzinfo=UTC)
_SLICE = 4096  # rows that become events at once


class Scan:
    """A question to a lake: a type, a filter, a range of time."""

    def __init__(
        self,
        lake: Lake,
        type_name: str | None = None,
        filter_: Filter | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._lake = lake
        self._registry = lake.registry()
        self._filter = filter_
        self._since, self._until = _narrowed(since, until, filter_)
        self._types = wanted_types(lake, type_name, filter_, self._registry)
        self._snapshot = snapshot
        self._matcher: Matcher | None = None
        self._needed: tuple[str, ...] = ()
        self._names: frozenset[str] | None = None  # the columns that are read; None: all
        self._is_ordered = True  # whether batches are in order of time within a file
        if filter_ is not None and not _is_true(filter_):
            self._matcher = Matcher(self._registry)
            self._matcher.add(0, filter_)
            self._needed = (*sorted(filter_.attributes()), "@type", REST)

    # ------------------------------------------------ answers

    def batches(self, schema: pa.Schema, names: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches of what matches, with the columns of `schema`, or those of them that `names` has."""
        asked = schema.names if names is None else names
        if REST in asked:  # what a file has beyond these columns is in it, so that all are read
            for batch in self._batches():
                yield conformed(batch, schema).select(asked)
            return
        narrow = pa.schema([schema.field(name) for name in asked], metadata=schema.metadata)
        for batch in self.raw(asked):
            yield conformed(batch.select([name for name in batch.schema.names if name in asked]), narrow)

    def raw(self, names: Iterable[str], *, is_ordered: bool = True) -> Iterator[pa.RecordBatch]:
        """Batches of what matches as they are in each file, with those of these columns that it has."""
        self._names, self._is_ordered = frozenset(names), is_ordered
        return self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        snapshot = self._taken()
        for source in (*map(self._from_file, snapshot.files), *map(self._from_segment, snapshot.segments)):
            yield from source

    def events(self) -> Iterator[Event]:
        """Events that match, in order of time: day by day, and each day from all its files at once."""
        snapshot = self._taken()
        fresh = map(self._segment_events, snapshot.segments)
        return heapq.merge(self._file_events(snapshot.files), *fresh, key=_time)

    def _file_events(self, files: Iterable[LakeFile]) -> Iterator[Event]:
        days: dict[Any, list[LakeFile]] = {}
        for file in files:
            days.setdefault(file.date, []).append(file)
        for day in sorted(days):
            yield from self._day(days[day])

    def _segment_events(self, segment: Segment) -> Iterator[Event]:
        try:
            tables = self._segment_tables(segment)
        except FileNotFoundError:  # rolled since the snapshot was taken
            yield from self._file_events(self._rolled(segment))
        else:
            yield from _events(_in_order(tables))

    def _day(self, files: list[LakeFile]) -> Iterator[Event]:
        """The events of a day's files in order of time; a file is open only while its time has come."""
        stored = [(file.path, each) for file in files if (each := self._stored(file)) is not None]
        waiting = deque(sorted((each.first_time(), path, each) for path, each in stored))
        active: list[tuple[datetime, int, Event, Iterator[Event]]] = []
        started = 0
        while waiting or active:
            while waiting and (not active or waiting[0][0] <= active[0][0]):
                started += 1
                _push(active, started, _events(self._read(*waiting.popleft()[1:])))
            if active:
                _, number, event, more = heapq.heappop(active)
                yield event
                _push(active, number, more)

    def segment_types(self, segment: Segment) -> Counter[str]:
        """The types of the events in a segment, and how many there are of each."""
        try:
            return Counter(row.type or UNTYPED for row in self._rows(segment))
        except FileNotFoundError:  # rolled since
            return Counter()

    def _taken(self) -> Snapshot:
        if self._snapshot is None:
            self._snapshot = self._lake.snapshot(types=self._types, since=self._since, until=self._until)
        return self._snapshot

    # ------------------------------------------------ files

    def _from_file(self, file: LakeFile) -> Iterator[pa.RecordBatch]:
        stored = self._stored(file)
        return iter(()) if stored is None else self._read(file.path, stored)

    def _stored(self, file: LakeFile) -> StoredFile | None:
        try:
            return StoredFile(file.path)
        except UNREADABLE as error:
            self._lake.report(file.path, error)
            return None

    def _read(self, path: str, stored: StoredFile) -> Iterator[pa.RecordBatch]:
        try:
            with stored:
                yield from self._blocks(stored)
        except UNREADABLE as error:
            self._lake.report(path, error)

    def _blocks(self, file: StoredFile) -> Iterator[pa.RecordBatch]:
        schema = _without_rest(file)
        coarse = self._coarse(schema)
        names = [name for name in schema.names if self._names is None or name in self._names]
        for rows in file.blocks(coarse):
            table = self._found(rows, schema, coarse, names)
            if table is not None and table.num_rows:
                if file.is_clustered and self._is_ordered:
                    table = table.sort_by("@time")
                yield from table.select(names).combine_chunks().to_batches()

    def _coarse(self, schema: pa.Schema) -> ds.Expression:
        parts = [time_expression(self._since, self._until)]
        if self._filter is not None:
            parts.append(pruning_expression(self._filter, schema))
        if any(part is NOTHING for part in parts):
            return NOTHING
        kept = [part for part in parts if part is not EVERYTHING]
        return EVERYTHING if not kept else kept[0] if len(kept) == 1 else kept[0] & kept[1]

    def _found(
        self, rows: Rows, schema: pa.Schema, coarse: ds.Expression, names: list[str]
    ) -> pa.Table | None:
        """The rows that match, with these columns and those that were looked at; None if there are none."""
        is_timed = self._is_ordered or self._since is not None or self._until is not None
        first = [name for name in schema.names if name in self._needed or (is_timed and name == "@time")]
        others = [name for name in names if name not in first]
        if self._matcher is None or not others:
            return self._matching(rows.columns([*first, *others]), coarse)
        numbered = rows.columns(first)
        numbered = numbered.append_column("#", pa.array(range(numbered.num_rows), pa.int32()))
        found = self._matching(numbered, coarse)
        if not found.num_rows:
            return None
        more = rows.taken(others, found.column("#"))
        for name in others:
            found = found.append_column(name, more.column(name))
        return found

    def _matching(self, table: pa.Table, coarse: ds.Expression) -> pa.Table:
        if coarse is not EVERYTHING:
            table = table.filter(coarse)
        if self._matcher is None or not table.num_rows:
            return table
        return table.filter(self._mask(table))

    def _mask(self, table: pa.Table) -> pa.Array:
        """Which rows match, exactly."""
        assert self._matcher is not None
        assert self._filter is not None
        asked = table.select([name for name in table.schema.names if name in self._needed and name != REST])
        offsets, _ = self._matcher.match_batch(asked.combine_chunks())
        ends = pa.array(offsets, pa.int64())
        mask = pc.not_equal(ends[1:], ends[:-1])
        rest = table.column(REST) if REST in table.schema.names else pa.nulls(0)
        if rest.null_count < len(rest):
            odd = pc.indices_nonzero(rest.is_valid()).to_pylist()
            found = mask.to_pylist()
            narrow = table.select([name for name in table.schema.names if name != "#"]).take(odd)
            for position, event in zip(odd, events_of(narrow), strict=True):
                found[position] = self._filter.matches(event, self._registry)
            mask = pa.array(found, pa.bool_())
        return mask

    # ------------------------------------------------ segments

    def _rows(self, segment: Segment) -> list[Parts]:
        damage: list[Damage] = []
        rows = [row for _, rows in read_segment(segment.path, 0, segment.size, damage) for row in rows]
        for each in damage:
            if not each.is_tail:  # the tail may be an append that is under way
                self._lake.report(segment.path, f"{each.reason} at byte {each.offset}")
        return rows

    def _from_segment(self, segment: Segment) -> Iterator[pa.RecordBatch]:
        try:
            tables = self._segment_tables(segment)
        except FileNotFoundError:  # rolled since the snapshot was taken
            for file in self._rolled(segment):
                yield from self._from_file(file)
            return
        for table in tables:
            yield from table.sort_by("@time").combine_chunks().to_batches()

    def _segment_tables(self, segment: Segment) -> list[pa.Table]:
        rows = self._rows(segment)
        return [self._matching(table, self._coarse(table.schema)) for table in self._tables(rows)]

    def _rolled(self, segment: Segment) -> list[LakeFile]:
        """The files that a segment was rolled to, of the types that are wanted."""
        files = _rolled_files(self._lake, segment)
        if self._types is None:
            return list(files)
        tags = {tag_of(None if name == UNTYPED else name) for name in self._types} | set(
            map(tag_of, self._types)
        )
        return [file for file in files if file.tag in tags]

    def _tables(self, rows: list[Parts]) -> Iterator[pa.Table]:
        """The events of a segment, type by type, with the columns that they would have in files."""
        by_type: dict[str | None, list[Parts]] = {}
        for row in rows:
            by_type.setdefault(row.type, []).append(row)
        catalog = Catalog(self._lake.path)
        for name, members in by_type.items():
            if self._types is None or (name or UNTYPED) in self._types:
                columns = catalog.columns(folder_of(name))
                if name is not None and name in self._registry:
                    columns |= declared(self._registry.attributes(name))
                else:
                    columns = discover((row.attributes for row in members), columns)
                yield table_of(members, columns, name)


def _without_rest(file: StoredFile) -> pa.Schema:
    """The columns of a file, without that for the rare rest if nothing is in it: it would be read in vain."""
    place = file.schema.get_field_index(REST)
    return file.schema if place < 0 or file.has_values(REST) else file.schema.remove(place)


def _narrowed(
    since: datetime | None, until: datetime | None, filter_: Filter | None
) -> tuple[datetime | None, datetime | None]:
    """The range of time that the filter leaves of another."""
    lows, highs = [], []
    for conjunction in filter_.conjunctions if filter_ is not None else ():
        asked = conjunction.conditions.get("@time")
        if asked is None or asked.some is None or asked.some.kind is not Kind.TIMESTAMP:
            return since, until
        spans = asked.some.spans() if asked.some.points is not None else [(asked.some.low, asked.some.high)]
        lows.append(min(low for low, _ in spans))
        highs.append(max(high for _, high in spans))
    if lows and min(lows) != BELOW_ALL:
        since = max(filter(None, (since, min(lows)[1])))
    if highs and max(highs) != ABOVE_ALL and max(highs)[1] < _LAST:
        until = min(filter(None, (until, max(highs)[1] + _TICK)))
    return since, until


def _is_true(filter_: Filter) -> bool:
    return any(not (c.conditions or c.types or c.not_types) for c in filter_.conjunctions)


def wanted_types(
    lake: Lake, type_name: str | None, filter_: Filter | None, registry: TypeRegistry
) -> set[str] | None:
    """The types whose folders are to be read; None: all."""
    wanted = None if type_name is None else lake.type_names(type_name, registry)
    if filter_ is None or not all(conjunction.types for conjunction in filter_.conjunctions):
        return wanted
    allowed: set[str] = set()
    for conjunction in filter_.conjunctions:
        allowed |= set.intersection(*(lake.type_names(name, registry) for name in conjunction.types))
    return allowed if wanted is None else wanted & allowed


def _rolled_files(lake: Lake, segment: Segment) -> Iterator[LakeFile]:
    """The files that a segment was rolled to, replaced ones included."""
    prefix = f"{segment.broker}-{segment.number:016d}-"
    for folder in sorted(events_folder(lake.path).iterdir()):
        for day in sorted(folder.iterdir()):
            on = parse_date(day.name)
            for name in {n.removeprefix(replaced_name("")) for n in listed(day)} if on else ():
                if name.startswith(prefix) and name.endswith(".parquet"):
                    assert on is not None
                    tag = name.removesuffix(".parquet").rpartition("-")[2]
                    yield LakeFile(str(day / name), folder.name, on, segment.broker, segment.number, tag, 0)


def _in_order(tables: list[pa.Table]) -> Iterator[pa.RecordBatch]:
    """Rows of tables with different columns, in order of time, as runs of one table each."""
    ordered = [table.sort_by("@time") for table in tables]
    heads = [
        [(at, i) for at in table.column("@time").cast(pa.int64()).to_pylist()]
        for i, table in enumerate(ordered)
    ]
    taken = [0] * len(tables)
    run, length = -1, 0
    for _, which in heapq.merge(*heads):
        if which != run and run >= 0:
            yield from ordered[run].slice(taken[run], length).combine_chunks().to_batches()
            taken[run], length = taken[run] + length, 0
        run, length = which, length + 1
    if run >= 0:
        yield from ordered[run].slice(taken[run], length).combine_chunks().to_batches()


def _events(batches: Iterable[pa.RecordBatch]) -> Iterator[Event]:
    for batch in batches:
        for start in range(0, batch.num_rows, _SLICE):
            yield from events_of(batch.slice(start, _SLICE))


def _push(
    active: list[tuple[datetime, int, Event, Iterator[Event]]], number: int, events: Iterator[Event]
) -> None:
    event = next(events, None)
    if event is not None:
        assert event.time is not None  # nothing is rolled without
        heapq.heappush(active, (event.time, number, event, events))


def _time(event: Event) -> Any:
    return event.time
