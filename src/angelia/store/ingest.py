"""Columns from elsewhere into the lake: checked against their type, cut into days, made visible at once.

Rows that are not events go, with the reason, to whoever asked (`reject`). What is written stays hidden until
`commit`, which writes down what is to be renamed and renames it: from then on it is in the lake, whatever
happens.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from angelia.errors import LakeError
from angelia.event import MAX_EVENT_BYTES
from angelia.store.batches import held_path, release
from angelia.store.catalog import Catalog, open_locked, write_whole
from angelia.store.columns import (
    MAX_COLUMNS,
    Columns,
    arrow_column,
    conformed,
    declared,
    schema_of,
    widened,
)
from angelia.store.layout import IMPORT, events_folder, file_name, folder_of, sync_folder, wal_folder
from angelia.store.rolling import hidden_table
from angelia.types import TypeRegistry

__all__ = ["ROW", "Ingest", "finish_imports"]

ROW = "#"  # the column with the number of a row in its file

_CHUNK = 500_000  # rows that are sorted and written at once

Reject = Callable[[int, str], None]


class _Pending(msgspec.Struct):
    """What is to be renamed, within a lake."""

    file: str
    rows: int
    moves: list[tuple[str, str]]


class Ingest:
    """An import of one file: `add` tables, then `commit`."""

    def __init__(self, lake: Path, reject: Reject, prefix: str) -> None:
        self._lake = lake
        self._reject = reject
        self._prefix = prefix
        self._catalog = Catalog(lake)
        self._registry: TypeRegistry = self._catalog.registry()
        self._waiting: dict[str | None, list[pa.Table]] = {}
        self._rows = 0
        self._moves: list[tuple[str, str]] = []
        self._number = round(time.time() * 1e6)
        self.imported = 0
        folder = wal_folder(lake, IMPORT)
        folder.mkdir(parents=True, exist_ok=True)
        lock = open_locked(folder / "lock", wait=False)
        if lock is None:
            raise LakeError(f"another import into {lake} is under way")
        self._lock = lock
        finish_imports(lake)

    # ------------------------------------------------ rows

    def add(self, table: pa.Table) -> None:
        """Take rows in: columns as in a file of the lake, and `#`, the number of each row."""
        table = self._without(table, pc.is_null(table.column("@time")), "it has no time")
        types = table.column("@type")
        for name in pc.unique(types).to_pylist():
            mask = pc.is_null(types) if name is None else pc.equal(types, name)
            self._add(name, table.filter(mask) if len(pc.unique(types)) > 1 else table)
        if self._rows >= _CHUNK:
            self._write()

    def _add(self, type_name: str | None, table: pa.Table) -> None:
        if type_name is not None and type_name in self._registry:
            table = self._conforming(table, type_name)
        table = self._small(table)
        ids = table.column("@id")
        if ids.null_count:
            made = pc.binary_join_element_wise(self._prefix, table.column(ROW).cast(pa.string()), "-")
            table = table.set_column(table.schema.get_field_index("@id"), "@id", pc.coalesce(ids, made))
        if table.num_rows:
            self._waiting.setdefault(type_name, []).append(table.drop_columns([ROW]))
            self._rows += table.num_rows
            self.imported += table.num_rows

    def _conforming(self, table: pa.Table, type_name: str) -> pa.Table:
        """Without the rows that are not events of the type, which has the last word on columns."""
        attributes = self._registry.attributes(type_name)
        for name, attribute in attributes.items():
            if name not in table.schema.names:
                table = table.append_column(
                    name, pa.nulls(table.num_rows, declared({name: attribute})[name].arrow)
                )
            if not attribute.optional:
                missing = pc.is_null(table.column(name))
                table = self._without(table, missing, f"missing attribute {name!r}, expected {attribute}")
        for name in table.schema.names:
            if name[0] == "@" or name == ROW:
                continue
            there = pc.is_valid(table.column(name))
            if name not in attributes:
                table = self._without(table, there, f"unknown attribute {name!r}").drop_columns([name])
                continue
            column, wanted = arrow_column(table.schema.field(name).type), declared(attributes)[name]
            if column is None or widened(column, wanted) != wanted:
                reason = f"attribute {name!r}: expected {wanted}, got {column}"
                table = self._without(table, there, reason)
        return table

    def _small(self, table: pa.Table) -> pa.Table:
        """Without the rows that are too large for an event."""
        size = pa.scalar(0, pa.int64())
        for name, kind in zip(table.schema.names, table.schema.types, strict=True):
            if pa.types.is_string(kind):
                size = pc.add(size, pc.coalesce(pc.binary_length(table.column(name)).cast(pa.int64()), 0))
            elif pa.types.is_list(kind):
                size = pc.add(size, pc.multiply(pc.coalesce(pc.list_value_length(table.column(name)), 0), 9))
        return self._without(
            table, pc.greater(size, MAX_EVENT_BYTES), f"it takes more than {MAX_EVENT_BYTES} bytes"
        )

    def _without(self, table: pa.Table, wrong: Any, reason: str) -> pa.Table:
        if not isinstance(wrong, pa.ChunkedArray | pa.Array) or not pc.any(wrong).as_py():
            return table
        for row in table.column(ROW).filter(wrong).to_pylist():
            self._reject(row, reason)
        return table.filter(pc.invert(wrong))

    # ------------------------------------------------ files

    def _write(self) -> None:
        for type_name, tables in self._waiting.items():
            table = pa.concat_tables(tables, promote_options="permissive")
            schema = schema_of(self._columns(type_name, table.schema), type_name)
            batches = [conformed(batch, schema) for batch in table.combine_chunks().to_batches()]
            self._write_days(type_name, pa.Table.from_batches(batches, schema).sort_by("@time"))
        self._waiting, self._rows = {}, 0

    def _columns(self, type_name: str | None, schema: pa.Schema) -> Columns:
        if type_name is not None and type_name in self._registry:
            return self._catalog.settle(folder_of(type_name), declared(self._registry.attributes(type_name)))
        known = self._catalog.columns(folder_of(type_name))
        for field in schema:
            column = arrow_column(field.type)
            if field.name[0] == "@" or column is None:
                continue
            if field.name in known:
                known[field.name] = widened(known[field.name], column) or known[field.name]
            elif len(known) < MAX_COLUMNS:
                known[field.name] = column
        return self._catalog.settle(folder_of(type_name), known)

    def _write_days(self, type_name: str | None, table: pa.Table) -> None:
        self._number += 1
        days = pc.cast(table.column("@time"), pa.timestamp("us")).cast(pa.date32())
        start = 0
        for counted in pc.value_counts(days):  # sorted, as the table is
            day, count = counted["values"].as_py(), counted["counts"].as_py()
            folder = events_folder(self._lake) / folder_of(type_name) / f"date={day.isoformat()}"
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / file_name(IMPORT, self._number, type_name)
            hidden = hidden_table(table.slice(start, count), path)
            self._moves.append((str(hidden.relative_to(self._lake)), str(path.relative_to(self._lake))))
            start += count

    # ------------------------------------------------ the end

    def commit(self, name: str, digest: str) -> None:
        """Make all of it visible, and remember that the file was imported."""
        self._write()
        pending = _Pending(name, self.imported, self._moves)
        imports = self._lake / "imports"
        imports.mkdir(exist_ok=True)
        write_whole(imports / f"{digest}.json", msgspec.json.encode(pending))
        self._moves = []
        finish_imports(self._lake)

    def close(self) -> None:
        """Give up what was not committed."""
        for hidden, _ in self._moves:
            (self._lake / hidden).unlink(missing_ok=True)
        os.close(self._lock)


def finish_imports(lake: Path) -> None:
    """Rename what an import that was committed did not come to rename."""
    for path in sorted((lake / "imports").glob("*.json")):
        pending = msgspec.json.decode(path.read_bytes(), type=_Pending)
        if not pending.moves:
            continue
        numbers = [int(final.rsplit("-", 2)[1]) for _, final in pending.moves]
        hold = held_path(lake, IMPORT, min(numbers), max(numbers))
        hold.touch()
        folders: set[Path] = set()
        for hidden, final in pending.moves:
            if (lake / hidden).exists():
                os.replace(lake / hidden, lake / final)
                folders.add((lake / final).parent)
        for folder in folders:
            sync_folder(folder)
        release(hold)
        write_whole(path, msgspec.json.encode(_Pending(pending.file, pending.rows, [])))
