"""Detection of patterns over history and over streams, in the order of the events' own times.

The engine finds in bulk which filters of the pattern each event matches; only events that match one go on,
as an id, a time and a mask. Over history they are grouped by key and sorted. Over a stream they wait in
state until the watermark has passed them, and are then taken in order; what comes later than the
watermark is dropped, as Spark's metrics tell. Keys share a fixed number of shards, each with one value of
state that is read and written once a micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa

from angelia.pattern import Pattern
from angelia.pipeline.columns import column, map_batches, narrowed
from angelia.pipeline.errors import PipelineError
from angelia.pipeline.index import Index
from angelia.pipeline.matching import matches
from angelia.pipeline.sequences import Found, Seen, Sequences, Taken

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from angelia.types import TypeRegistry

__all__ = ["OCCURRENCES", "SHARDS", "detect"]

OCCURRENCES = "key string, started timestamp, ended timestamp, event_ids array<string>"
SHARDS = 8
EVERYTHING = ""  # the key of all events where no key is asked for

_PARTS = "shard int, id string, time timestamp, key string, parts bigint"
_SECOND = 1_000_000


def detect(
    events: DataFrame,
    pattern: str | Pattern,
    *,
    within: timedelta | None = None,
    key: str | None = None,
    delay: timedelta = timedelta(seconds=10),
    shards: int = SHARDS,
    registry: TypeRegistry | None = None,
) -> DataFrame:
    """The occurrences of a pattern: `(key, started, ended, event_ids)`.

    Events are taken in the order of `@time`, and of `@id` where times are equal; events without a time have
    no place in it. With `key`, an attribute, each of its values has sequences of its own, and events without
    it have none. With `within`, the events of an occurrence are at most so far apart. On a stream, events
    may come `delay` late.
    """
    pattern = Pattern.parse(pattern) if isinstance(pattern, str) else pattern
    for name in ("@id", "@time", *([key] if key else [])):
        if name not in events.columns:
            raise PipelineError(f"events need a column {name!r}; there are {', '.join(events.columns)}")
    found = _parts(events, pattern, key, shards, registry)
    span = None if within is None else round(within.total_seconds() * _SECOND)
    if not events.isStreaming:
        return _over_history(found, "key" if key else "shard", len(pattern), span)
    from angelia.pipeline.shards import processor

    return (
        found.withWatermark("time", f"{delay.total_seconds()} seconds")
        .groupBy("shard")
        .transformWithStateInPandas(
            processor(len(pattern), span), OCCURRENCES, outputMode="Append", timeMode="EventTime"
        )
    )


# ---------------------------------------------------------------- which parts


def _parts(
    events: DataFrame, pattern: Pattern, key: str | None, shards: int, registry: TypeRegistry | None
) -> DataFrame:
    """The events that match some filter of the pattern, and which."""
    index = Index.of(dict(enumerate(pattern.filters)), registry)
    shared = events.sparkSession.sparkContext.broadcast(index)
    kept = ("@id", "@time", *([key] if key else []))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _matched(batch, shared.value, key, shards)

    timed = events.where(column("@time").isNotNull())
    return map_batches(timed, narrowed(events, index.attributes, *kept), run, _PARTS)


def _matched(batch: pa.RecordBatch, index: Index, key: str | None, shards: int) -> Iterator[pa.RecordBatch]:
    masks = np.zeros(batch.num_rows, np.int64)
    for start, offsets, places in matches(batch, index):
        rows = np.repeat(np.arange(start, start + len(offsets) - 1), np.diff(offsets))
        np.bitwise_or.at(masks, rows, np.int64(1) << places)
    keys = pa.array([EVERYTHING] * batch.num_rows) if key is None else _texts(batch.column(key))
    rows = pa.array(np.flatnonzero((masks != 0) & keys.is_valid().to_numpy(zero_copy_only=False)))
    if len(rows):
        keys = keys.take(rows)
        columns = {
            "shard": pa.array([_shard(each, shards) for each in keys.to_pylist()], pa.int32()),
            "id": batch.column("@id").take(rows),
            "time": batch.column("@time").take(rows),
            "key": keys,
            "parts": pa.array(masks).take(rows),
        }
        yield pa.RecordBatch.from_pydict(columns)


def _texts(values: pa.Array) -> pa.Array:
    """Keys as strings."""
    if pa.types.is_nested(values.type):
        raise PipelineError("a key is an attribute with one value, not a list")
    return values.cast(pa.string())


def _shard(key: str, shards: int) -> int:
    return crc32(key.encode()) % shards


# ---------------------------------------------------------------- in order


def _over_history(parts: DataFrame, group: str, length: int, within: int | None) -> DataFrame:
    def run(rows: pa.Table) -> pa.Table:
        return occurrences(Sequences(length, within).see(sorted(seen(rows))))

    return parts.groupBy(group).applyInArrow(run, OCCURRENCES)


def seen(rows: pa.Table) -> Iterator[Seen]:
    """Rows as events that are seen."""
    times = rows["time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    columns = (rows[name].to_pylist() for name in ("id", "key", "parts"))
    return map(Seen._make, zip(times, *columns, strict=True))


def occurrences(found: Iterable[Found]) -> pa.Table:
    """Occurrences as rows."""
    whole = list(found)
    time = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "key": pa.array([each.key for each in whole], pa.string()),
            "started": pa.array([each.events[0][0] for each in whole], pa.int64()).cast(time),
            "ended": pa.array([each.events[-1][0] for each in whole], pa.int64()).cast(time),
            "event_ids": pa.array([[i for _, i in each.events] for each in whole], pa.list_(pa.string())),
        }
    )


class State(msgspec.Struct, array_like=True):
    """What a shard remembers: events that wait for the watermark, and sequences that were begun."""

    waiting: list[Seen]
    taken: dict[str, Taken]
    passed: int = -(2**63)  # how far the watermark had come
    timer: int | None = None

    @classmethod
    def decode(cls, data: bytes | None) -> State:
        """From the bytes that are kept."""
        return cls([], {}) if data is None else msgspec.msgpack.decode(data, type=cls)

    def encode(self) -> bytes:
        """As bytes to keep."""
        return msgspec.msgpack.encode(self)

    def advance(self, to: int, length: int, within: int | None) -> list[Found]:
        """Take in order what the watermark has passed."""
        self.waiting = sorted(event for event in self.waiting if event.time > self.passed)
        self.passed = to
        due = [event for event in self.waiting if event.time <= to]
        del self.waiting[: len(due)]
        sequences = Sequences(length, within, self.taken)
        found = list(sequences.see(due))
        sequences.expire(to)
        return found
