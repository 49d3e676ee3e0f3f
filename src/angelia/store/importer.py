"""Importing files into a lake: CSV, JSON lines, Parquet, and CloudEvents in batches.

CSV and Parquet go as columns all the way; JSON is read event by event. Rows that are no events are written
to a reject file, one JSON object a line with the row, the reason and what was read. Every row that was read
is either imported or rejected. A file that is in the lake already is not imported again.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from angelia.errors import AngeliaError, EventError, LakeError
from angelia.event import CONTEXT, Event, check_name, parse_timestamp
from angelia.store.casting import as_column, infer, parsed
from angelia.store.catalog import Catalog, is_owned
from angelia.store.columns import CONTEXT_SCHEMA, REST, Column, declared, discover, table_of, untagged
from angelia.store.ingest import ROW, Ingest, finish_imports
from angelia.store.layout import IMPORT, folder_of
from angelia.store.segment import Parts
from angelia.types import TypeRegistry

__all__ = ["FORMATS", "ImportReport", "Naming", "import_file"]

FORMATS = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".json": "cloudevents",
}

_BATCH = 10_000  # events of JSON that become a table at once
_BLOCK = 8 << 20  # bytes of CSV
_SHOWN = 2_000  # characters of a rejected row that are kept


@dataclass(frozen=True, slots=True)
class Naming:
    """Which columns are the time and the id, and what an event is that does not say so."""

    time: str | None = None
    id: str | None = None
    type: str | None = None
    source: str | None = None


@dataclass(slots=True)
class ImportReport:
    """What became of a file's rows: `read` is the sum of the others. `known`: it was there before."""

    path: str
    read: int = 0
    imported: int = 0
    rejected: int = 0
    known: bool = False


class _Rejects:
    """The file that bad rows go to; it is made for the first."""

    def __init__(self, path: Path, source: Path) -> None:
        self.path = path
        self.count = 0
        self._source = source.name
        self._file: IO[str] | None = None
        self.torn: list[int] = []  # rows of a CSV file that have no place in a table

    def __call__(self, row: int, reason: str, text: Any = None) -> None:
        """Reject a row, which is counted without the torn ones."""
        for torn in self.torn:
            row += torn <= row
        self.write(row, reason, text)

    def write(self, row: int, reason: str, text: Any = None) -> None:
        """Reject the row of this number."""
        if self._file is None:
            self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - closed with the import
        self.count += 1
        line: dict[str, Any] = {"file": self._source, "row": row, "reason": reason}
        if text is not None:
            line["text"] = (text if isinstance(text, str) else json.dumps(text, default=str))[:_SHOWN]
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def count_torn(self, line: int) -> int:
        """Note a row, counted from the header as 1, that has no place in a table; returns its number."""
        self.torn.append(line - 1)
        return line - 1

    def close(self) -> None:
        """No more rows."""
        if self._file is not None:
            self._file.close()


def import_file(
    path: Path,
    lake: Path,
    *,
    naming: Naming | None = None,
    rejects: Path | None = None,
    form: str | None = None,
    again: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> ImportReport:
    """Bring a file into a lake; `progress` is told bytes that were read, and of how many."""
    form = form or FORMATS.get(path.suffix.lower())
    if form not in _READERS:
        raise LakeError(
            f"{path.name}: what format is this? name one of {', '.join(sorted(_READERS))}, or use a file "
            f"that ends in {', '.join(FORMATS)}"
        )
    naming = naming or Naming()
    digest = _digest(path, naming)
    report = ImportReport(str(path))
    if (lake / "imports" / f"{digest}.json").exists() and not again:
        report.known = True
        if not is_owned(lake, IMPORT):
            finish_imports(lake)  # it was killed, perhaps, after it had said so
        return report
    lake.mkdir(parents=True, exist_ok=True)
    reject = _Rejects(rejects or path.with_name(f"{path.name}.rejects.jsonl"), path)
    ingest = Ingest(lake, reject, f"{path.stem}-{digest[:12]}")
    try:
        for count, table in _READERS[form](_Task(path, lake, naming, reject, progress)):
            report.read += count
            if table is not None and table.num_rows:
                ingest.add(table)
        ingest.commit(path.name, digest)
        report.imported, report.rejected = ingest.imported, reject.count
        return report
    except (OSError, pa.ArrowException) as error:
        raise LakeError(f"{path}: {str(error).splitlines()[0]}; nothing was imported") from None
    finally:
        ingest.close()
        reject.close()


def _digest(path: Path, naming: Naming) -> str:
    """The identity of an import: what is in the file, and how it is taken."""
    digest = sha256(repr(naming).encode())
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise LakeError(f"cannot read {path}: {error.strerror}") from None
    return digest.hexdigest()[:32]


# ---------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class _Task:
    path: Path
    lake: Path
    naming: Naming
    reject: _Rejects
    progress: Callable[[int, int], None]

    def columns(self) -> dict[str, Column]:
        """The columns that are known before the file is read: declared ones, or those of the lake."""
        catalog = Catalog(self.lake)
        registry, name = catalog.registry(), self.naming.type
        if name is not None and name in registry:
            return declared(registry.attributes(name))
        return catalog.columns(folder_of(name))

    def rename(self, name: str) -> str:
        """The lake's name of a column."""
        naming = self.naming
        if name == naming.time or (naming.time is None and name in ("@time", "time")):
            return "@time"
        if name == naming.id or (naming.id is None and name in ("@id", "id")):
            return "@id"
        return name


Rows = Iterator[tuple[int, pa.Table | None]]


def _checked(task: _Task, names: Iterable[str]) -> None:
    """Refuse a file whose columns cannot be attributes, or that has no time."""
    found = [task.rename(name) for name in names]
    if "@time" not in found:
        given = f"no column {task.naming.time!r}" if task.naming.time else "no column 'time'"
        raise LakeError(f"{task.path.name} has {given}; say which one is the time with --time-column")
    for name in found:
        if found.count(name) > 1:
            raise LakeError(f"{task.path.name} has two columns {name!r}")
        if name not in (*CONTEXT_SCHEMA.names, REST):
            try:
                check_name(name)
            except EventError as error:
                raise LakeError(f"{task.path.name}: {error}") from None


def _completed(task: _Task, columns: dict[str, Any], first: int, rows: int) -> pa.Table:
    """A table of the lake's columns: the context whole, and the number of each row."""
    table = {field.name: columns.pop(field.name, pa.nulls(rows, field.type)) for field in CONTEXT_SCHEMA}
    for name, given in (("@type", task.naming.type), ("@source", task.naming.source)):
        if given is not None:
            table[name] = pc.coalesce(table[name], pa.scalar(given))
    table |= columns
    table[ROW] = pa.array(range(first, first + rows), pa.int64())
    return pa.table(table)


def _without_rejected(table: pa.Table, wrong: dict[int, str], task: _Task, raw: pa.RecordBatch) -> pa.Table:
    if not wrong:
        return table
    for position, reason in sorted(wrong.items()):
        row = raw.slice(position, 1).to_pylist()[0]
        task.reject(table.column(ROW)[position].as_py(), reason, {k: _shown(v) for k, v in row.items()})
    mask = [position not in wrong for position in range(table.num_rows)]
    return table.filter(pa.array(mask))


def _shown(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _from_csv(task: _Task) -> Rows:
    with open(task.path, newline="", encoding="utf-8", errors="replace") as file:
        names = next(csv.reader(file), [])
    if not names:
        raise LakeError(f"{task.path.name} is empty: the first line of a CSV file names its columns")
    _checked(task, names)
    with open(task.path, "rb") as file:
        yield from _csv_batches(task, file, names)


def _csv_batches(task: _Task, file: IO[bytes], names: list[str]) -> Rows:
    torn = 0

    def invalid(row: Any) -> str:
        nonlocal torn
        torn += 1
        number = task.reject.count_torn(row.number)
        task.reject.write(
            number, f"it has {row.actual_columns} columns, not {row.expected_columns}", row.text
        )
        return "skip"

    reader = pa_csv.open_csv(
        file,
        read_options=pa_csv.ReadOptions(block_size=_BLOCK, use_threads=False),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=invalid),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.binary()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
        ),
    )
    size, kinds, first = task.path.stat().st_size, task.columns(), 1
    kinds |= {field.name: _CONTEXT[field.name] for field in CONTEXT_SCHEMA}
    for batch in reader:
        wrong: dict[int, str] = {}
        columns = {}
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            ours = task.rename(name)
            if ours not in kinds and values.null_count < len(values):
                kinds[ours] = infer(values)
            columns[ours] = parsed(name, values, kinds.get(ours, _CONTEXT["@id"]), wrong)
        table = _completed(task, columns, first, batch.num_rows)
        yield batch.num_rows, _without_rejected(table, wrong, task, batch)
        first += batch.num_rows
        task.progress(file.tell(), size)
    yield torn, None


_CONTEXT = {
    "@id": Column.parse("string"),
    "@type": Column.parse("string"),
    "@source": Column.parse("string"),
    "@subject": Column.parse("string"),
    "@time": Column.parse("timestamp"),
}


def _from_parquet(task: _Task) -> Rows:
    known, first = task.columns() | _CONTEXT, 1
    with pq.ParquetFile(task.path) as parquet:
        total = parquet.metadata.num_rows
        for each in parquet.iter_batches(batch_size=65_536):
            batch = _flattened(each)
            if first == 1:
                _checked(task, batch.schema.names)
            wrong: dict[int, str] = {}
            columns = {}
            for name, values in zip(batch.schema.names, batch.columns, strict=True):
                ours = task.rename(name)
                columns[ours] = as_column(name, values, known.get(ours), wrong)
            columns.pop(REST, None)
            table = _completed(task, columns, first, batch.num_rows)
            yield batch.num_rows, _without_rejected(table, wrong, task, batch)
            first += batch.num_rows
            task.progress(first - 1, total)
        if total == 0:
            _checked(task, parquet.schema_arrow.names)


def _flattened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Structs as dotted columns."""
    table = pa.Table.from_batches([batch])
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
    return table.combine_chunks().to_batches()[0] if table.num_rows else batch


# ---------------------------------------------------------------- JSON


def _from_lines(task: _Task) -> Rows:
    size, done = task.path.stat().st_size, 0

    def items() -> Iterator[tuple[int, Any, Any]]:
        nonlocal done
        with open(task.path, "rb") as file:
            for number, line in enumerate(file, 1):
                done += len(line)
                if line.strip():
                    try:
                        yield number, msgspec.json.decode(line), line
                    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                        yield number, LakeError(f"not JSON: {error}"), line

    yield from _events(task, items(), lambda: task.progress(done, size))


def _from_cloudevents(task: _Task) -> Rows:
    try:
        batch = msgspec.json.decode(task.path.read_bytes(), type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LakeError(f"{task.path.name} is not a JSON array of CloudEvents: {error}") from None
    total, done = len(batch), 0

    def items() -> Iterator[tuple[int, Any, Any]]:
        nonlocal done
        for done, raw in enumerate(batch, 1):
            try:
                item = msgspec.json.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                item = LakeError(f"not JSON: {error}")
            if isinstance(item, dict) and "specversion" not in item:
                item = LakeError("not a CloudEvent: it has no specversion")
            yield done, item, bytes(raw)

    yield from _events(task, items(), lambda: task.progress(done, total))


def _events(task: _Task, items: Iterator[tuple[int, Any, Any]], progress: Callable[[], None]) -> Rows:
    registry = Catalog(task.lake).registry()
    read, rows, numbers = 0, [], []
    for number, item, text in items:
        read += 1
        try:
            rows.append(_parts(task, registry, item))
            numbers.append(number)
        except AngeliaError as error:
            task.reject(number, str(error), text.decode(errors="replace"))
        if read >= _BATCH:
            yield from _tables(task, rows, numbers, read)
            read, rows, numbers = 0, [], []
            progress()
    yield from _tables(task, rows, numbers, read)
    progress()


def _tables(task: _Task, rows: list[Parts], numbers: list[int], read: int) -> Rows:
    yield read, None
    by_type: dict[str | None, list[tuple[int, Parts]]] = {}
    for number, row in zip(numbers, rows, strict=True):
        by_type.setdefault(row.type, []).append((number, row))
    catalog = Catalog(task.lake)
    for name, members in by_type.items():
        columns = discover((row.attributes for _, row in members), catalog.columns(folder_of(name)))
        table = table_of([row for _, row in members], columns, name)
        yield 0, table.append_column(ROW, pa.array([number for number, _ in members], pa.int64()))


def _parts(task: _Task, registry: TypeRegistry, item: Any) -> Parts:
    """An event from a JSON object: a CloudEvent, or attributes with the context as `@id`, `@time`, …"""
    if isinstance(item, LakeError):
        raise item
    if not isinstance(item, dict):
        raise LakeError(f"a JSON object was expected, not {type(item).__name__}")
    data, context = _cloudevent(item) if "specversion" in item else _object(task, item)
    context["type"] = context.get("type") or task.naming.type
    context["source"] = context.get("source") or task.naming.source
    time = context.get("time")
    if time is None:
        raise LakeError("it has no time")
    context["time"] = parse_timestamp(str(time))
    event = Event(data, **context)
    if event.type is not None and event.type in registry:
        event = Event(registry.from_json(data, event.type), **context)
        registry.check(event)
    return Parts(dict(event.attributes), event.type, event.source, event.subject, event.id, event.time)


def _cloudevent(item: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    if item["specversion"] != "1.0":
        raise LakeError(f"CloudEvents of version {item['specversion']!r} are not known, only 1.0")
    for name in ("id", "source", "type"):
        if not isinstance(item.get(name), str) or not item[name]:
            raise LakeError(f"not a CloudEvent: {name} must be a string that is not empty")
    data = item.get("data", {})
    if "data_base64" in item or not isinstance(data, dict):
        raise LakeError("the data of a CloudEvent must be a JSON object, to become attributes")
    return data, {name: item[name] for name in CONTEXT if item.get(name) is not None}


def _object(task: _Task, item: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    renamed = {task.rename(name): untagged(value) for name, value in item.items()}
    context = {name: renamed.pop(f"@{name}") for name in CONTEXT if f"@{name}" in renamed}
    return renamed, {name: value for name, value in context.items() if value is not None}


_READERS: dict[str, Callable[[_Task], Rows]] = {
    "csv": _from_csv,
    "jsonl": _from_lines,
    "parquet": _from_parquet,
    "cloudevents": _from_cloudevents,
}
