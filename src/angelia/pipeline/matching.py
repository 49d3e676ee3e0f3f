"""Bulk matching: events × subscriptions -> pairs of ids, with the engine that brokers route with.

The index is compiled once, broadcast once, and runs over Arrow batches in the workers. Only the columns
that filters look at go there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from angelia.pipeline.columns import REST, map_batches, matchable, narrowed
from angelia.pipeline.errors import PipelineError
from angelia.pipeline.index import Index, Watched, is_broker, load
from angelia.pipeline.pieces import Piece, check_problems, pieces, scan_of
from angelia.pipeline.workers import task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from angelia.pipeline.meter import Meter
    from angelia.pipeline.options import Query
    from angelia.types import TypeRegistry

__all__ = ["match", "match_lake", "matches", "pair_schema", "pairs"]

AT_ONCE = 1 << 20  # pairs that a worker makes at once, about
FIRST = 512  # rows that tell how many pairs to expect
_CODES = 1 << 16  # values that are told apart when rows are gathered

GetIndex = Callable[[], Index]


def match(events: DataFrame, subscriptions: Any, *, registry: TypeRegistry | None = None) -> DataFrame:
    """Which events match which subscriptions: `(event_id, subscription_id)`, in batch or as a stream.

    `events` has a column `@id`, attributes by name and the rest of the context as `@type`, …. Forms of
    `subscriptions` are told in `index`. On a stream, a file or directory of subscriptions is watched: what
    is added to it counts from the next micro-batch on. `registry` knows the event types that filters name.
    """
    if "@id" not in events.columns:
        raise PipelineError(f"events need a column '@id'; there are {', '.join(events.columns)}")
    if events.isStreaming and isinstance(subscriptions, str | Path) and not is_broker(subscriptions):
        path = Path(subscriptions).absolute()
        integers = load(path, registry).has_integers
        current, attributes = Watched(path, registry, integers).index, None
    else:
        index = load(subscriptions, registry)
        shared = events.sparkSession.sparkContext.broadcast(index)
        integers, attributes = index.has_integers, index.attributes
        current = _Broadcast(shared).index
    names = narrowed(events, attributes, "@id")
    return map_batches(events, names, _Job(current), pair_schema(integers))


def pair_schema(integers: bool) -> str:
    """The columns of a result."""
    return f"event_id string, subscription_id {'bigint' if integers else 'string'}"


class _Broadcast:
    """An index that was broadcast."""

    def __init__(self, shared: Any) -> None:
        self._shared = shared

    def index(self) -> Index:
        """What was sent."""
        index: Index = self._shared.value
        return index


class _Job:
    """What a worker does with its part of the events."""

    def __init__(self, current: GetIndex) -> None:
        self._current = current

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index = self._current()
        for batch in batches:
            yield from pairs(batch, index)


# ---------------------------------------------------------------- straight from a lake


def match_lake(
    spark: SparkSession, query: Query, subscriptions: Any, meter: Meter | None = None
) -> DataFrame:
    """The same for what a lake holds now: workers read its files themselves, and send nothing but pairs.

    `meter` counts the events, and collects what could not be read.
    """
    index = load(subscriptions, query.open().registry())
    snapshot = query.snapshot()
    work = pieces(snapshot.files, snapshot.segments)
    shared = spark.sparkContext.broadcast((query, work, index))
    count = None if meter is None else meter.count

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _match_piece(*shared.value, number, count)

    tasks = spark.range(0, len(work), 1, max(1, len(work)))
    return tasks.mapInArrow(run, pair_schema(index.has_integers))


def _match_piece(
    query: Query, work: list[Piece], index: Index, number: int, count: Callable[[int, int, Any], None] | None
) -> Iterator[pa.RecordBatch]:
    lake, rows = query.open(), 0
    names = {"@id", REST, *index.attributes}
    for batch in scan_of(query, lake, work[number]).raw(names, is_ordered=False):
        rows += batch.num_rows
        yield from pairs(batch, index)
    check_problems(query, lake)
    if count is not None:
        count(number, rows, [(each.path, each.reason) for each in lake.problems])


# ---------------------------------------------------------------- in a worker


def pairs(batch: pa.RecordBatch, index: Index) -> Iterator[pa.RecordBatch]:
    """The pairs of a batch, in parts of bounded size."""
    if index.key is not None and index.key in batch.schema.names:
        batch = gathered(batch, index.key)
    ids = batch.column("@id")
    for start, offsets, places in matches(batch, index):
        rows = np.repeat(np.arange(start, start + len(offsets) - 1), np.diff(offsets))
        columns = [ids.take(pa.array(rows)), index.ids.take(pa.array(places))]
        yield pa.RecordBatch.from_arrays(columns, ["event_id", "subscription_id"])


def gathered(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    """Rows with one value beside each other: what the index has for it is then in the processor's cache."""
    column = batch.column(name)
    if not (pa.types.is_string(column.type) or pa.types.is_integer(column.type)):
        return batch
    codes = column.dictionary_encode(null_encoding="encode")
    if len(codes.dictionary) > _CODES:
        return batch
    order = np.argsort(codes.indices.to_numpy().astype(np.uint16), kind="stable")  # 16 bits: a radix sort
    return batch.take(pa.array(order))


def matches(batch: pa.RecordBatch, index: Index) -> Iterator[tuple[int, Any, Any]]:
    """For a part of the rows at a time: the first row, offsets, and the places of filters that match."""
    columns = matchable(batch, index.attributes)
    start, step = 0, FIRST if len(index) > AT_ONCE // batch.num_rows else batch.num_rows
    while start < batch.num_rows:
        part = {name: column[start : start + step] for name, column in columns.items()}
        offsets, places = index.match(part)
        if len(places):
            yield start, offsets, places
        start += len(offsets) - 1
        step = max(FIRST // 8, int(AT_ONCE * (len(offsets) - 1) / max(1, len(places))))
