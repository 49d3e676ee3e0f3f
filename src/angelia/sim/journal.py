"""The journal: what happened in a run, one record a line, for checks, diagrams and pipelines.

One format, two files: JSON lines and Parquet have the same fields, in the same order.

| field    | what it says                                                                         |
|----------|--------------------------------------------------------------------------------------|
| `time`   | virtual seconds since the run began                                                  |
| `record` | what happened, one of `RECORDS`                                                      |
| `at`     | the broker where it happened (empty: nowhere in particular)                          |
| `peer`   | the broker at the other end of the link, or the party (the client, when it leaves)   |
| `kind`   | the kind of message or request, the fault, or what became of the link                |
| `number` | the message's or request's own number: a message is sent and received under the same |
| `cause`  | the number of the request or fault at the root of it all                             |
| `hops`   | how many links lie between the cause and this                                        |
| `detail` | an event's id, a filter's text, an error                                             |

A row costs some 30 bytes: strings are kept once, as numbers, and the rows in columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from angelia.messages import Message, Request
from angelia.sim.errors import SimulationError

__all__ = ["RECORDS", "Journal", "Row", "check_parent", "check_path", "detail_of", "write", "write_lines"]

RECORDS = ("sent", "received", "dropped", "request", "reply", "delivery", "link", "fault")

_CHUNK = 1 << 16  # rows that are kept as they are before they become columns


class Row(NamedTuple):
    """One record."""

    time: float
    record: str
    at: str
    peer: str
    kind: str
    number: int
    cause: int
    hops: int
    detail: str


_WIDTH = len(Row._fields)
_STRINGS = ("record", "at", "peer", "kind", "detail")
_DTYPES: dict[str, Any] = dict.fromkeys(Row._fields, np.int32) | {
    "time": np.float64,
    "record": np.int8,
    "kind": np.int8,
    "number": np.int64,
    "cause": np.int64,
    "hops": np.int16,
}
Columns = dict[str, NDArray[Any]]


class Journal:
    """Takes records in the order in which they happen; iterating gives them back as rows."""

    def __init__(self) -> None:
        self._flat: list[Any] = []  # the fields of one row after those of the other
        self._chunks: list[Columns] = []
        self._codes: dict[str, dict[str, int]] = {name: {} for name in _STRINGS}

    def add(
        self,
        time: float,
        record: str,
        at: str,
        peer: str,
        kind: str,
        number: int,
        cause: int,
        hops: int,
        detail: str,
    ) -> None:
        """Add a record."""
        self._flat += (time, record, at, peer, kind, number, cause, hops, detail)
        if len(self._flat) >= _CHUNK * _WIDTH:
            self._pack()

    def _pack(self) -> None:
        """Make columns of the rows."""
        if not self._flat:
            return
        packed: Columns = {}
        for place, name in enumerate(Row._fields):
            values = self._flat[place::_WIDTH]
            coded: Iterable[Any] = self._coded(name, values) if name in self._codes else values
            packed[name] = np.fromiter(coded, _DTYPES[name], len(values))
        self._chunks.append(packed)
        self._flat.clear()

    def _coded(self, name: str, values: Iterable[Any]) -> Iterator[int]:
        codes = self._codes[name]
        for value in dict.fromkeys(values):
            codes.setdefault(value, len(codes))
        return map(codes.__getitem__, values)

    def chunks(self) -> Iterator[Columns]:
        """The columns, a part of the rows at a time; strings are numbers into `names`."""
        self._pack()
        return iter(self._chunks)

    def names(self, column: str) -> list[str]:
        """The strings of a column, by their numbers."""
        return list(self._codes[column])

    def __len__(self) -> int:
        return len(self._flat) // _WIDTH + sum(len(chunk["time"]) for chunk in self._chunks)

    def __iter__(self) -> Iterator[Row]:
        self._pack()
        names = {column: self.names(column) for column in _STRINGS}
        for chunk in self._chunks:
            columns = [
                [names[name][code] for code in chunk[name]] if name in names else chunk[name].tolist()
                for name in Row._fields
            ]
            yield from map(Row._make, zip(*columns, strict=True))


# ---------------------------------------------------------------- files


def check_path(path: Path) -> None:
    """Raise a `SimulationError` if a journal cannot be written to a file of that name."""
    if path.suffix not in (".jsonl", ".parquet"):
        raise SimulationError(
            f"a journal is written to a file that ends in .jsonl or .parquet, not {path.name!r}"
        )
    check_parent(path)


def check_parent(path: Path) -> None:
    """Raise a `SimulationError` if the directory that a file is to be in is not there."""
    if not path.parent.is_dir():
        raise SimulationError(f"there is no directory {path.parent}")


def write(journal: Journal, path: Path) -> None:
    """Write a journal to a file; its ending, `.jsonl` or `.parquet`, says how."""
    check_path(path)
    if path.suffix == ".parquet":
        _write_parquet(journal, path)
    else:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            write_lines(journal, file)


def write_lines(journal: Journal, file: IO[str]) -> None:
    """Write a journal as JSON lines."""
    quoted: dict[str, str] = {}  # most strings come again and again

    def quote(text: str) -> str:
        return quoted.get(text) or quoted.setdefault(text, json.dumps(text, ensure_ascii=False))

    for time, record, at, peer, kind, number, cause, hops, detail in journal:
        file.write(
            f'{{"time":{time!r},"record":"{record}","at":{quote(at)},"peer":{quote(peer)},"kind":"{kind}",'
            f'"number":{number},"cause":{cause},"hops":{hops},"detail":{quote(detail)}}}\n'
        )


def _write_parquet(journal: Journal, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    chunks = list(journal.chunks())
    names = {column: pa.array(journal.names(column), pa.string()) for column in _STRINGS}
    schema = pa.schema([(name, _arrow_type(pa, name)) for name in Row._fields])
    with pq.ParquetWriter(path, schema) as writer:
        for chunk in chunks:
            columns = [
                pa.DictionaryArray.from_arrays(chunk[name].astype(np.int32), names[name])
                if name in names
                else pa.array(chunk[name])
                for name in Row._fields
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _arrow_type(pa: Any, name: str) -> Any:
    return pa.dictionary(pa.int32(), pa.string()) if name in _STRINGS else pa.from_numpy_dtype(_DTYPES[name])


def detail_of(what: Request | Message) -> str:
    """What a request or message is about, in short."""
    for name in ("filter", "advertisement"):
        if (item := getattr(what, name, None)) is not None:
            return "; instead: ".join(map(str, (item, *getattr(what, "uncovered", ()))))
    if (event := getattr(what, "event", None)) is not None:
        return event.id or ""
    if (event_type := getattr(what, "event_type", None)) is not None:
        return f"{event_type.name} {event_type.version}"
    return f"{what.origin} {what.version}" if hasattr(what, "origin") else ""  # type: ignore[union-attr]
