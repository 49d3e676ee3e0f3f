"""Rows that become events: arguments, JSON lines, CSV and Parquet.

What is under `@type`, `@id`, … is an event's context. JSON has no timestamps, and CSV has nothing but text:
if the broker knows the type of an event, the type says what such a value is.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from angelia.errors import ConformanceError, EventError, RequestError
from angelia.event import CONTEXT, Datatype, Event, parse_timestamp
from angelia.types import TypeRegistry

__all__ = ["Row", "event_of", "from_arguments", "from_file"]


class Row(NamedTuple):
    """Values by name, and where they stand; the values are read from text if `is_text`."""

    place: str
    values: dict[str, Any]
    is_text: bool = False


def event_of(row: Row, context: Mapping[str, Any], registry: TypeRegistry) -> Event:
    """The event of a row; `context` is for what the row itself does not say."""
    try:
        return _event(row, context, registry)
    except (EventError, ConformanceError) as error:
        if row.place:
            error.args = (f"{row.place}: {error}",)
        raise


def _event(row: Row, context: Mapping[str, Any], registry: TypeRegistry) -> Event:
    said = {name[1:]: value for name, value in row.values.items() if name[:1] == "@" and value is not None}
    values = {name: value for name, value in row.values.items() if name[:1] != "@"}
    unknown = said.keys() - set(CONTEXT)
    if unknown:
        raise EventError(f"there is no context @{sorted(unknown)[0]}")
    if isinstance(said.get("time"), str):
        said["time"] = parse_timestamp(said["time"])
    stated = {**context, **said}
    type_name = stated.get("type")
    is_known = isinstance(type_name, str) and type_name in registry
    if row.is_text:
        texts = _strings(registry, str(type_name)) if is_known else set()
        values = {name: value if name in texts else _value(value) for name, value in values.items()}
    event = Event(values, **stated)
    if is_known:
        event = Event(registry.from_json(values, str(type_name)), **stated)
        registry.check(event)
    return event


def _strings(registry: TypeRegistry, type_name: str) -> set[str]:
    """The attributes of a type that are strings: of their text nothing else can be made."""
    return {
        name
        for name, attribute in registry.attributes(type_name).items()
        if attribute.datatype is Datatype.STRING and not attribute.repeated
    }


def _value(text: str) -> Any:
    """A number, a boolean, a timestamp, a list or an object where it reads as one; else a string."""
    if text.startswith("t"):
        with suppress(EventError):
            return parse_timestamp(text[1:].strip('"'))
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if value is None else value


# ---------------------------------------------------------------- where they come from


def from_arguments(texts: Iterable[str]) -> Row:
    """The one row of `name=value` arguments."""
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign:
            raise RequestError(f"{text!r} is no attribute; write it as name=value")
        if name in found:
            raise RequestError(f"the attribute {name!r} is given twice")
        if name[:1] == "@":
            raise RequestError(f"{name} is no attribute; there are --type, --source and --subject")
        found[name] = value
    return Row("", found, is_text=True)


def from_file(file: Path | None) -> tuple[Iterator[Row], int | None]:
    """The rows of a file, or of stdin, and how many there are if that is known."""
    try:
        if file is None or str(file) == "-":
            # Not sys.stdin: a thread that waits for that keeps the program from ending.
            return _json_lines("stdin", open(sys.stdin.fileno(), "rb", closefd=False)), None
        if file.suffix == ".parquet":
            return _parquet(file)
        stream = file.open("rb")
    except OSError as error:
        raise RequestError(f"cannot read {file}: {error.strerror}") from None
    return (_csv if file.suffix == ".csv" else _json_lines)(str(file), stream), None


def _decoded(name: str, stream: Iterable[bytes]) -> Iterator[str]:
    """The lines of a stream; what is wrong with it is told as an error of ours."""
    try:
        for number, line in enumerate(stream, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")  # a BOM is no part of a name
            except UnicodeDecodeError as error:
                raise EventError(f"{name}, line {number}: not valid UTF-8: {error.reason}") from None
    except OSError as error:
        raise RequestError(f"cannot read {name}: {error.strerror}") from None


def _json_lines(name: str, stream: Iterable[bytes]) -> Iterator[Row]:
    for number, line in enumerate(_decoded(name, stream), 1):
        if line.strip():
            try:
                row = json.loads(line, object_pairs_hook=_object)
            except (ValueError, RecursionError) as error:
                raise EventError(f"{name}, line {number}: not valid JSON: {error}") from None
            if not isinstance(row, dict):
                raise EventError(f"{name}, line {number}: an event is a JSON object")
            yield Row(f"{name}, line {number}", row)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"the member {_twice(name for name, _ in pairs)!r} is there twice")
    return found


def _csv(name: str, stream: Iterable[bytes]) -> Iterator[Row]:
    reader = csv.DictReader(_decoded(name, stream))
    try:
        columns = reader.fieldnames or ()
        if len(set(columns)) < len(columns):
            raise EventError(f"{name}, line 1: the column {_twice(columns)!r} is there twice")
        for row in reader:
            place = f"{name}, line {reader.line_num}"
            if None in row or None in row.values():
                raise EventError(f"{place}: not as many values as there are columns")
            yield Row(place, {key: value for key, value in row.items() if value != ""}, is_text=True)
    except csv.Error as error:
        raise EventError(f"{name}, line {reader.line_num}: {error}") from None


def _twice(names: Iterable[str]) -> str:
    seen: set[str] = set()
    return next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def _parquet(file: Path) -> tuple[Iterator[Row], int]:
    try:
        import pyarrow.parquet as pq
    except ModuleNotFoundError:
        raise RequestError("Parquet needs pyarrow: pip install 'angelia[match]'") from None
    try:
        opened = pq.ParquetFile(file)
    except Exception as error:  # pyarrow raises what it likes
        raise RequestError(f"{file} is not a Parquet file: {error}") from None

    def rows() -> Iterator[Row]:
        number = 0
        for batch in opened.iter_batches(batch_size=4096):
            for row in batch.to_pylist():
                number += 1
                yield Row(f"{file}, row {number}", {name: _zoned(value) for name, value in row.items()})

    return rows(), opened.metadata.num_rows


def _zoned(value: Any) -> Any:
    """A timestamp of Parquet without a zone is UTC, as everywhere."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value
