"""Subscriptions for a job: where they come from, and the compiled index that goes to the workers.

Subscriptions come as a mapping or pairs of id and filter, as a data frame or a file with `id` and
`filter`, or as a directory of such files. A file is JSON lines (`.jsonl`, `.json`, `.ndjson`) or Parquet.
`tcp://host:port` stands for a snapshot of what is subscribed to at a broker. Ids are strings or integers; if
both are there, all become strings.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from angelia.errors import FilterError
from angelia.filter import Filter
from angelia.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from angelia.matching.snapshot import Snapshot
    from angelia.types import TypeRegistry

__all__ = ["Index", "Subscriptions", "Watched", "is_broker", "load", "read_subscriptions"]

Id = str | int
Subscriptions = (
    "Mapping[Id, str | Filter] | Iterable[tuple[Id, str | Filter]] | DataFrame | str | Path | Index"
)

LINES = (".jsonl", ".ndjson", ".json")
MANY = 4_096  # filters, from which on they do not fit in a processor's cache
_INT64 = range(-(2**63), 2**63)

log = logging.getLogger("angelia.pipeline")


@dataclass(frozen=True)
class Index:
    """Filters, compiled: rows of a batch are matched to places in `ids`. It is pickled to the workers."""

    ids: pa.Array  # int64 or string
    snapshot: Snapshot
    attributes: frozenset[str]  # what the filters look at, the context as @type, …
    key: str | None = None  # the attribute that most of many filters compare with a value

    @classmethod
    def of(cls, filters: Mapping[Id, Filter], registry: TypeRegistry | None = None) -> Index:
        """The index of filters by id."""
        from angelia.matching.snapshot import Snapshot

        snapshot = Snapshot(range(len(filters)), list(filters.values()), None, registry)
        return cls(_ids(filters), snapshot, frozenset(_attributes(filters.values())), _key(filters.values()))

    @property
    def has_integers(self) -> bool:
        """Whether ids are integers."""
        return bool(pa.types.is_integer(self.ids.type))

    def __len__(self) -> int:
        return len(self.ids)

    def match(self, columns: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places of the filters that each row matches, as offsets and places."""
        return self.snapshot.match_batch(columns)


def _ids(given: Iterable[Id]) -> pa.Array:
    ids = list(given)
    if ids and all(type(each) is int and each in _INT64 for each in ids):
        return pa.array(ids, pa.int64())
    return pa.array([str(each) for each in ids], pa.string())


def _attributes(filters: Iterable[Filter]) -> Iterator[str]:
    for each in filters:
        yield from each.attributes()
        if any(c.types or c.not_types for c in each.conjunctions):
            yield "@type"


def _key(filters: Collection[Filter]) -> str | None:
    if len(filters) < MANY:
        return None
    counts = Counter(
        name
        for each in filters
        for conjunction in each.conjunctions
        for name, condition in conjunction.conditions.items()
        if condition.some is not None and condition.some.points is not None
    )
    return max(counts, key=counts.__getitem__, default=None)


# ---------------------------------------------------------------- where they come from


def load(subscriptions: Any, registry: TypeRegistry | None = None) -> Index:
    """The index of subscriptions, however they are given."""
    if isinstance(subscriptions, Index):
        return subscriptions
    if isinstance(subscriptions, str | Path):
        return Index.of(read_subscriptions(subscriptions), registry)
    if isinstance(subscriptions, Mapping):
        subscriptions = subscriptions.items()
    elif hasattr(subscriptions, "toArrow"):
        subscriptions = _pairs(subscriptions.toArrow(), "the table of subscriptions")
    return Index.of(_checked(("", id_, text) for id_, text in subscriptions), registry)


def is_broker(source: str | Path) -> bool:
    """Whether subscriptions are those of a broker."""
    return isinstance(source, str) and "://" in source


def read_subscriptions(source: str | Path) -> dict[Id, Filter]:
    """The subscriptions of a file, a directory, or a broker, by id."""
    if not is_broker(source):
        return _read_files(Path(source))
    from angelia.client import connect_sync

    with connect_sync(str(source)) as client:
        return _checked((f"{source}: {id_}", id_, text) for id_, text in client.subscriptions().items())


def _read_files(path: Path) -> dict[Id, Filter]:
    """The subscriptions of a file, or of all files of a directory, by id."""
    return _checked(row for file in _files(path) for row in _rows(file))


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise PipelineError(f"there are no subscriptions at {path}")
    if not path.is_dir():
        return [path]
    known = (*LINES, ".parquet")
    return sorted(
        each for each in path.iterdir() if each.suffix in known and not each.name.startswith(("_", "."))
    )


def _rows(file: Path) -> Iterator[tuple[str, Any, Any]]:
    """Where it stands, the id and the filter of each subscription of a file."""
    if file.suffix == ".parquet":
        try:
            table = pq.read_table(file)
        except (OSError, pa.ArrowException) as error:
            raise PipelineError(f"cannot read {file}: {error}") from None
        for number, (id_, text) in enumerate(_pairs(table, str(file)), 1):
            yield f"{file}, row {number}", id_, text
    elif file.suffix in LINES:
        yield from _lines(file)
    else:
        raise PipelineError(
            f"subscriptions are JSON lines ({', '.join(LINES)}) or .parquet; what is {file.name}?"
        )


def _lines(file: Path) -> Iterator[tuple[str, Any, Any]]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"cannot read {file}: {error}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PipelineError(f"{place}: not valid JSON: {error}") from None
        if not isinstance(row, dict) or "id" not in row or "filter" not in row:
            raise PipelineError(f'{place}: write a subscription as {{"id": …, "filter": …}}')
        yield place, row["id"], row["filter"]


def _pairs(table: pa.Table, what: str) -> Iterator[tuple[Any, Any]]:
    missing = {"id", "filter"} - set(table.column_names)
    if missing:
        raise PipelineError(f"{what} has no column {sorted(missing)[0]!r}; it needs 'id' and 'filter'")
    return zip(table["id"].to_pylist(), table["filter"].to_pylist(), strict=True)


def _checked(rows: Iterable[tuple[str, Any, Any]]) -> dict[Id, Filter]:
    """Filters by id; refuses a bad filter, and an id that is there twice."""
    filters: dict[Id, Filter] = {}
    for place, id_, given in rows:
        where = place or f"subscription {id_!r}"
        if type(id_) is not int and (not isinstance(id_, str) or not id_):
            raise PipelineError(f"{where}: an id is a string or an integer, not {id_!r}")
        if id_ in filters:
            raise PipelineError(f"{where}: the id {id_!r} is there twice")
        filters[id_] = _parsed(where, given)
    return filters


def _parsed(where: str, given: Any) -> Filter:
    if isinstance(given, Filter):
        return given
    if not isinstance(given, str):
        raise PipelineError(f"{where}: a filter is a text, not {type(given).__name__}")
    try:
        return Filter.parse(given)
    except FilterError as error:
        raise PipelineError(f"{where}: {error}") from None


# ---------------------------------------------------------------- files that change


@dataclass(frozen=True)
class Watched:
    """Subscriptions of a file or directory that may change while a query runs.

    A worker reads them again when they have changed, at the beginning of a task. A version that cannot be
    read is told in the log, and the one before it stays.
    """

    path: Path
    registry: TypeRegistry | None
    has_integers: bool

    def index(self) -> Index:
        """The index of the subscriptions as they are now."""
        known = _watched.get(self.path)
        try:
            version = self._version()
            if known is None or known[0] != version:
                known = _watched[self.path] = version, self._load()
        except (PipelineError, OSError) as error:
            if known is None:
                raise
            log.warning("the subscriptions stay as they were: %s", error)
        return known[1]

    def _version(self) -> object:
        stats = [(file.name, file.stat()) for file in _files(self.path)]
        return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)

    def _load(self) -> Index:
        index = load(self.path, self.registry)
        if self.has_integers and len(index) and not index.has_integers:
            raise PipelineError(f"{self.path}: ids were integers when the query began, and have to stay so")
        kind = pa.int64() if self.has_integers else pa.string()
        return replace(index, ids=index.ids.cast(kind))


_watched: dict[Path, tuple[object, Index]] = {}  # of this process
