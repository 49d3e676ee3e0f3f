"""Publishing to a broker: the rows of a data frame, and the past of a lake.

Rows go to the driver, which publishes them in order when all tasks of a batch are done, and notes in a
*ledger* how far it came. A batch that is committed again goes on there. If the process dies between a
broker's answer and the note, the last part of a batch, `AT_ONCE` events at most, is published again, with
the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from angelia.event import Event
from angelia.filter import Filter
from angelia.pipeline.live import spool_directory
from angelia.pipeline.options import Query
from angelia.pipeline.staging import as_events
from angelia.store.catalog import write_whole
from angelia.store.columns import events_of
from angelia.store.seam import replay
from angelia.store.segment import Parts, encode_event, event_of

__all__ = ["BatchPublisher", "BrokerSink", "StreamPublisher", "republish"]

AT_ONCE = 500  # events that are published as one

_decoder = msgspec.msgpack.Decoder(Parts)


@dataclass
class Rows(WriterCommitMessage):
    """The events of a task, encoded."""

    events: list[bytes]


class BrokerSink:
    """Publishes batches, each once."""

    def __init__(self, options: Mapping[str, str], sink: str) -> None:
        self._broker, self._sink = options["broker"], sink
        self._ledger = spool_directory({**options, "sink": sink}, "ledger")

    def collect(self, batches: Iterator[pa.RecordBatch]) -> Rows:
        """The events of a task."""
        events = (event for batch in batches for event in events_of(as_events(batch, is_stamped=False)))
        return Rows([encode_event(event) for event in events])

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """Publish what was not published before of a batch."""
        from angelia import connect_sync

        encoded = [row for each in messages if isinstance(each, Rows) for row in each.events]
        done = self._published(batch)
        if done >= len(encoded):
            return
        with connect_sync(self._broker, name=f"spark-{self._sink}") as client:
            for start in range(done, len(encoded), AT_ONCE):
                rows = encoded[start : start + AT_ONCE]
                client.publish_all([self._stamped(row, batch, n) for n, row in enumerate(rows, start)])
                self._note(batch, start + len(rows))

    def _stamped(self, row: bytes, batch: int, number: int) -> Event:
        event = event_of(_decoder.decode(row))
        return event if event.id is not None else event.replace(id=f"{self._sink}-{batch}-{number}")

    def _published(self, batch: int) -> int:
        try:
            noted = (self._ledger / "published.json").read_bytes()
        except FileNotFoundError:
            return 0
        last, done = msgspec.json.decode(noted, type=tuple[int, int])
        return done if last == batch else 2**63 if last > batch else 0

    def _note(self, batch: int, done: int) -> None:
        self._ledger.mkdir(parents=True, exist_ok=True)
        write_whole(Path(self._ledger / "published.json"), msgspec.json.encode((batch, done)))


class BatchPublisher(DataSourceArrowWriter):
    """`df.write` to a broker."""

    def __init__(self, sink: BrokerSink, batch: int) -> None:
        self._sink, self._batch = sink, batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.collect(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.commit(messages, self._batch)


class StreamPublisher(DataSourceStreamArrowWriter):
    """`df.writeStream` to a broker."""

    def __init__(self, sink: BrokerSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.collect(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.commit(messages, batchId)


def republish(query: Query, broker: str, rate: float | None) -> int:
    """Publish the events of a query again, in order of time, not more than `rate` a second; how many."""
    from angelia import connect_sync

    wanted = query.filter if query.filter is not None else Filter.parse("true")
    if query.type is not None:
        wanted = Filter.of_type(query.type) & wanted
    events = replay(query.open(), wanted, query.since, query.until, rate=rate)
    count = 0
    with connect_sync(broker) as client:
        at_once = AT_ONCE if rate is None else max(1, min(AT_ONCE, int(rate // 10)))
        while some := list(islice(events, at_once)):
            client.publish_all(some)
            count += len(some)
    return count
