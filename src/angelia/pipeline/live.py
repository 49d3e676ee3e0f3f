"""A broker as a stream: notifications of a subscription, kept on disk until the query has read them.

What is received is written to a *spool*, a directory, before it counts; an offset is how many events were
spooled so far. So what was received is read exactly once, over restarts and kills of the query. What is
published while no query runs is not received, nor is what a process that is killed had not spooled yet;
unless the stream has the option `since`, and the broker a lake: then a restarted query asks for the past
from a minute before the last event that it had, and leaves out what it knows by its id.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from angelia.errors import AngeliaError, ClosedError
from angelia.event import Event, parse_timestamp
from angelia.filter import Filter
from angelia.pipeline.errors import PipelineError
from angelia.pipeline.java import cache_directory
from angelia.pipeline.source import arrow_schema
from angelia.store.catalog import open_locked
from angelia.store.columns import CONTEXT_SCHEMA, REST, arrow_column, conformed, table_of
from angelia.store.segment import Parts, encode_event, read_segment, record

__all__ = ["SCHEMA", "BrokerStream", "Spool", "spool_directory"]

SCHEMA = pa.schema([*CONTEXT_SCHEMA, pa.field(REST, pa.string())])
FILE = 16 << 20  # bytes of a file of the spool
TASK = 10_000  # events that a task is given at most
AT_ONCE = 1_000  # events that are spooled at once at most
QUEUE = 65_536  # events that wait to be spooled
KNOWN = 65_536  # ids that are remembered
OVERLAP = timedelta(minutes=1)  # of the past that is asked for again


def spool_directory(options: Mapping[str, str], what: str) -> Path:
    """The directory of the option `spool`, or one of our own for these options."""
    if given := options.get("spool"):
        return Path(given).absolute()
    names = ("broker", "type", "filter", "client", "sink")
    told = "\n".join(f"{name}={options.get(name, '')}" for name in names)
    return cache_directory() / f"{what}-{sha256(told.encode()).hexdigest()[:16]}"


class Spool:
    """Events on disk, numbered from 0, until they are forgotten. One process at a time has it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        lock = open_locked(directory / "lock", wait=False)
        if lock is None:
            raise PipelineError(
                f"another query has the spool {directory}; give this one a name with the option client"
            )
        self._lock = lock
        self._files = sorted(int(path.stem) for path in directory.glob("*.spool"))
        self._ids: dict[str | None, None] = {}
        self.latest: datetime | None = None  # the time of the last event
        self.end = self._recovered()
        self._begin()

    def _path(self, first: int) -> Path:
        return self._directory / f"{first:016d}.spool"

    def _recovered(self) -> int:
        """Where the spool ends; what was cut short at its end is cut off."""
        end = size = 0
        for first in self._files:
            end, size = first, 0
            for size, events in read_segment(self._path(first)):  # noqa: B007 - the last one counts
                end += len(events)
                self._remember(events)
        if self._files:
            os.truncate(self._path(self._files[-1]), size)
        return end

    def _remember(self, events: Sequence[Event | Parts]) -> None:
        for event in events:
            self._ids[event.id] = None
            if event.time is not None and (self.latest is None or event.time > self.latest):
                self.latest = event.time
        for _ in range(len(self._ids) - KNOWN):
            del self._ids[next(iter(self._ids))]

    def knows(self, event: Event) -> bool:
        """Whether an event was spooled lately."""
        return event.id is not None and event.id in self._ids

    def _begin(self) -> None:
        """Go on in a new file."""
        self._file = open(self._path(self.end), "ab")  # noqa: SIM115 - it stays open
        if self.end not in self._files:
            self._files.append(self.end)

    def append(self, events: Sequence[Event]) -> None:
        """Keep events; they are on the disk when this returns."""
        self._file.write(record([encode_event(event) for event in events]))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.end += len(events)
        self._remember(events)
        if self._file.tell() >= FILE:
            self._file.close()
            self._begin()

    def read(self, start: int, end: int) -> list[Parts]:
        """The events from one number up to, but without, another."""
        found: list[Parts] = []
        for first, following in zip(self._files, [*self._files[1:], self.end + 1], strict=True):
            if first < end and following > start:
                rows = [row for _, rows in read_segment(self._path(first)) for row in rows]
                found += rows[max(0, start - first) : end - first]
        if len(found) < end - start:
            raise PipelineError(
                f"{end - start - len(found)} events of the spool {self._directory} are gone; begin anew"
            )
        return found

    def forget(self, before: int) -> None:
        """Remove files that have nothing but what came before a number; the last two stay, for their ids."""
        for first, following in zip(self._files[:-2], self._files[1:-1], strict=True):
            if following <= before:
                self._path(first).unlink(missing_ok=True)
                self._files.remove(first)

    def close(self) -> None:
        """Let another process have it."""
        self._file.close()
        os.close(self._lock)


class BrokerStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of what a broker notifies."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options, self._schema = dict(options), schema
        wanted = Filter.parse(options.get("filter", "true"))
        if (type_name := options.get("type")) is not None:
            wanted = Filter.of_type(type_name) & wanted
        self._filter = str(wanted)
        self._receiver: _Receiver | None = None
        self._bound: int | None = None

    def _received(self) -> _Receiver:
        """Begin to receive, once."""
        if self._receiver is None:
            spool = Spool(spool_directory(self._options, "spool"))
            self._receiver = _Receiver(self._options, self._filter, spool)
        return self._receiver

    def initialOffset(self) -> dict[str, Any]:
        return {"events": self._received().spool.end}

    def prepareForTriggerAvailableNow(self) -> None:
        self._bound = self._received().end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        end = self._received().end() if self._bound is None else self._bound
        return {"events": max(end, int(start["events"]))}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        rows = self._received().read(int(start["events"]), int(end["events"]))
        return [InputPartition(rows[place : place + TASK]) for place in range(0, len(rows), TASK)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        columns = {field.name: arrow_column(field.type) for field in schema if field.name[0] != "@"}
        known = {name: column for name, column in columns.items() if column is not None}
        for batch in table_of(partition.value, known, None).to_batches():
            yield conformed(batch, schema)

    def commit(self, end: dict[str, Any]) -> None:
        self._received().forget(int(end["events"]))

    def stop(self) -> None:
        if self._receiver is not None:
            self._receiver.close()


class _Receiver:
    """Subscribes, and spools what comes, in a thread of its own."""

    def __init__(self, options: Mapping[str, str], filter_: str, spool: Spool) -> None:
        from angelia import connect_sync

        self.spool = spool
        self._lock = threading.Lock()
        self._problem: BaseException | None = None
        self._overlaps = "since" in options
        try:
            self._client = connect_sync(options["broker"], name=options.get("client"))
            since = None if "since" not in options else parse_timestamp(options["since"])
            if since is not None and spool.latest is not None:
                since = max(since, spool.latest - OVERLAP)
            self._subscription = self._client.subscribe(filter_, size=QUEUE, since=since)
        except BaseException:
            spool.close()
            raise
        self._thread = threading.Thread(target=self._run, name="angelia-spool", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while True:
                come = [self._subscription.get(), *self._subscription.drain()]
                events = [event for event in come if not self._overlaps or not self.spool.knows(event)]
                for start in range(0, len(events), AT_ONCE):
                    with self._lock:
                        self.spool.append(events[start : start + AT_ONCE])
        except ClosedError:
            pass
        except (AngeliaError, OSError) as error:
            self._problem = error

    def end(self) -> int:
        """How many events were spooled so far."""
        if self._problem is not None:
            raise PipelineError(f"the stream of the broker ended: {self._problem}")
        with self._lock:
            return self.spool.end

    def read(self, start: int, end: int) -> list[Parts]:
        """Events of the spool."""
        with self._lock:
            return self.spool.read(start, end)

    def forget(self, before: int) -> None:
        """Remove what is not needed any more."""
        with self._lock:
            self.spool.forget(before)

    def close(self) -> None:
        """Unsubscribe and leave."""
        self._subscription.close()
        self._client.close()
        self._thread.join(5)
        with self._lock:
            self.spool.close()
