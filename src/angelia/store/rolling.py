"""Rolling: what segments hold becomes Parquet, one file a type and day, in order of time or clustered.

The name of a file follows from its segment, so that rolling again, after a crash, replaces files by the same.
A segment goes when all its files are there. Until then whoever reads the lake reads the segment, not them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from angelia.store.catalog import Catalog
from angelia.store.clustering import clustered
from angelia.store.columns import Columns, declared, discover, table_of
from angelia.store.layout import date_folder, events_folder, file_name, folder_of, sync_folder, temporary_name
from angelia.store.segment import Parts
from angelia.types import TypeRegistry

__all__ = ["ROW_GROUP", "hidden_table", "roll", "settled_columns", "write_table"]

ROW_GROUP = 32_768  # rows whose least and greatest values are known, and which are skipped as a whole

_BLOOM = 0.01  # of ids that are not there seem to be
_SAMPLE = 2048  # rows that tell which columns' values recur


def roll(
    lake: Path,
    broker: str,
    number: int,
    rows: Sequence[Parts],
    catalog: Catalog,
    registry: TypeRegistry,
    *,
    durable: bool = True,
) -> list[Path]:
    """Write the events of a segment to Parquet; returns the files."""
    groups: dict[tuple[str | None, str], list[Parts]] = {}
    started = datetime.fromtimestamp(number / 1e6, UTC)
    for position, row in enumerate(rows):
        if row.time is None:  # of an event that nobody stamped
            row.time = started
        if row.id is None:
            row.id = f"{broker}-{number}-{position}"
        groups.setdefault((row.type, date_folder(row.time)), []).append(row)
    columns = _columns_of_types(groups, catalog, registry)
    files = []
    for (type_name, day), members in groups.items():
        folder = events_folder(lake) / folder_of(type_name) / day
        path = folder / file_name(broker, number, type_name)
        table = table_of(members, columns[type_name], type_name)
        write_table(table.sort_by("@time"), path, durable=durable)
        files.append(path)
    return files


def _columns_of_types(
    groups: dict[tuple[str | None, str], list[Parts]], catalog: Catalog, registry: TypeRegistry
) -> dict[str | None, Columns]:
    """The columns of each type in `groups`, settled with whoever else writes this lake."""
    by_type: dict[str | None, list[Parts]] = {}
    for (type_name, _), members in groups.items():
        by_type.setdefault(type_name, []).extend(members)
    return {
        type_name: settled_columns(type_name, (row.attributes for row in members), catalog, registry)
        for type_name, members in by_type.items()
    }


def settled_columns(
    type_name: str | None,
    rows: Iterable[dict[str, object]],
    catalog: Catalog,
    registry: TypeRegistry,
) -> Columns:
    """The columns of a type: the declared ones, or those that the events have."""
    folder = folder_of(type_name)
    if type_name is not None and type_name in registry:
        return catalog.settle(folder, declared(registry.attributes(type_name)))
    return catalog.settle(folder, discover(rows, catalog.columns(folder)))


# ---------------------------------------------------------------- files


def write_table(table: pa.Table, path: Path, *, durable: bool = True) -> None:
    """Write a file of what is in order of time, and make it visible as a whole."""
    is_new = not path.parent.is_dir()
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(hidden_table(table, path, durable=durable), path)
    if durable:
        sync_folder(path.parent)
        if is_new:
            sync_folder(path.parent.parent)
            sync_folder(path.parent.parent.parent)


def hidden_table(table: pa.Table, path: Path, *, durable: bool = True, key: str | None = None) -> Path:
    """Write what is to become the file `path` under a name that readers take no notice of.

    A large table is clustered, by `key` or by what suits it.
    """
    temporary = path.with_name(temporary_name(path.name))
    found = clustered(table, key)
    order = ["@time"] if found is None else [found.key, "@time"]
    table, rows = (table, ROW_GROUP) if found is None else (found.table, found.group)
    pq.write_table(
        table,
        temporary,
        row_group_size=rows,
        compression="zstd",
        use_dictionary=[*_recurring(table)],
        column_encoding=dict.fromkeys(_counted(table.schema), "DELTA_BINARY_PACKED"),
        write_page_index=found is None,  # a small row group is a page
        write_page_checksum=True,
        sorting_columns=[pq.SortingColumn(table.schema.get_field_index(name)) for name in order],
        bloom_filter_options={"@id": {"ndv": max(1, min(table.num_rows, rows)), "fpp": _BLOOM}},
    )
    if durable:
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
    return temporary


def _recurring(table: pa.Table) -> Iterator[str]:
    """The columns whose values recur: a dictionary of others makes a file larger, and slower to read."""
    some = table.slice(0, _SAMPLE)
    for field in table.schema:
        if pa.types.is_nested(field.type):
            yield f"{field.name}.list.element"
        elif pa.types.is_string(field.type) or pa.types.is_floating(field.type):
            values = some.column(field.name)
            if 2 * pc.count_distinct(values, mode="all").as_py() <= len(values):
                yield field.name


def _counted(schema: pa.Schema) -> Iterator[str]:
    """The columns of integers and times: each is near the one before it, or small."""
    for field in schema:
        if pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type):
            yield field.name
