"""Batches of a data frame as Parquet files of a lake: one a type and day, checked against the types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from angelia.pipeline.errors import PipelineError
from angelia.store import Lake
from angelia.store.catalog import Catalog
from angelia.store.columns import CONTEXT_SCHEMA, REST, TIME, arrow_column, conformed, declared, schema_of
from angelia.store.layout import folder_of
from angelia.store.rolling import write_table
from angelia.types import TypeRegistry

__all__ = ["Staged", "as_events", "stage"]

ROWS = 131_072  # of a file


@dataclass(frozen=True)
class Staged:
    """A file that waits to be moved."""

    path: str
    type: str | None
    day: str


def stage(lake: Path, folder: Path, batches: Iterable[pa.RecordBatch]) -> list[Staged]:
    """Write events to files in a folder; they have the columns that the lake has for their types."""
    registry, catalog = Lake(lake).registry(), Catalog(lake)
    folder.mkdir(parents=True, exist_ok=True)
    waiting: dict[tuple[str | None, str], list[pa.RecordBatch]] = {}
    staged: list[Staged] = []

    def write(key: tuple[str | None, str]) -> None:
        parts = waiting.pop(key)
        widest = _settled(key[0], parts, registry, catalog)
        table = pa.Table.from_batches([conformed(part, widest) for part in parts])
        path = folder / f"{uuid4().hex}.parquet"
        write_table(table.sort_by("@time"), path)
        staged.append(Staged(str(path), *key))

    for batch in batches:
        for key, part in _split(as_events(batch)):
            waiting.setdefault(key, []).append(part)
            if sum(each.num_rows for each in waiting[key]) >= ROWS:
                write(key)
    for key in list(waiting):
        write(key)
    return staged


def as_events(batch: pa.RecordBatch, *, is_stamped: bool = True) -> pa.RecordBatch:
    """A batch with columns as events have them: structs taken apart, numbers wide, times in UTC."""
    table = pa.Table.from_batches([batch])
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    columns = {name: _plain(name, table.column(name).combine_chunks()) for name in table.column_names}
    for field in CONTEXT_SCHEMA:
        columns[field.name] = columns.get(field.name, pa.nulls(batch.num_rows)).cast(field.type)
    for name in ("@id", "@time") if is_stamped else ():
        if columns[name].null_count:
            raise PipelineError(f"events of a lake need a column {name!r} without nulls")
    return pa.RecordBatch.from_pydict(columns)


def _plain(name: str, array: pa.Array) -> pa.Array:
    types, kind = pa.types, array.type
    if types.is_list(kind) or types.is_large_list(kind):
        values = _plain(name, array.flatten())
        return array.cast(pa.list_(values.type))
    if types.is_string(kind) or types.is_large_string(kind):
        return array.cast(pa.string())
    if types.is_boolean(kind) or types.is_null(kind):
        return array
    if types.is_integer(kind):
        return array.cast(pa.int64())
    if types.is_floating(kind):
        return array.cast(pa.float64())
    if types.is_timestamp(kind):
        return array.cast(TIME)
    raise PipelineError(
        f"column {name!r} is of type {kind}, which an event cannot have: "
        "use strings, integers, floats, booleans, timestamps, or arrays of these"
    )


def _split(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str | None, str], pa.RecordBatch]]:
    """The rows of a batch by type and day."""
    days = pc.strftime(batch.column("@time"), "date=%Y-%m-%d").dictionary_encode()
    kinds = batch.column("@type").dictionary_encode(null_encoding="encode")
    for kind_code, kind in enumerate(kinds.dictionary.to_pylist()):
        for day_code, day in enumerate(days.dictionary.to_pylist()):
            mask = pc.and_(pc.equal(kinds.indices, kind_code), pc.equal(days.indices, day_code))
            if mask.true_count:
                yield (kind, day), batch.filter(mask)


def _settled(
    type_name: str | None, parts: list[pa.RecordBatch], registry: TypeRegistry, catalog: Catalog
) -> pa.Schema:
    """The columns that files of a type have; refuses events that do not conform to it."""
    if type_name is not None and type_name in registry:
        columns = declared(registry.attributes(type_name))
        _check(type_name, parts, registry)
    else:
        columns = {
            name: column
            for part in parts
            for name, array in zip(part.schema.names, part.columns, strict=True)
            if name[0] != "@" and array.null_count < len(array) and (column := arrow_column(array.type))
        }
    return schema_of(catalog.settle(folder_of(type_name), columns), type_name)


def _check(type_name: str, parts: list[pa.RecordBatch], registry: TypeRegistry) -> None:
    for name, attribute in registry.attributes(type_name).items():
        for part in parts:
            array = part.column(name) if name in part.schema.names else pa.nulls(part.num_rows)
            missing = array.null_count
            if missing and not attribute.optional and REST not in part.schema.names:
                raise PipelineError(f"not a valid {type_name}: {name!r} is missing in {missing} events")
