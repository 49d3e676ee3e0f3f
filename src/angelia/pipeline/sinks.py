"""Writing events: to a lake, or to a broker. What is written twice under one batch id is there once.

A task stages files, out of sight of readers. The commit puts them in place as a batch (`store/batches.py`),
of which readers see all or nothing. A batch that the same sink has committed before is completed if need be,
and what was staged anew is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from angelia.pipeline.errors import PipelineError
from angelia.pipeline.staging import Staged, stage
from angelia.store.batches import Move, commit_batch, held_path
from angelia.store.layout import events_folder, file_name, folder_of, wal_folder

__all__ = ["batch_writer", "stream_writer"]

MOST = 10_000  # files of a batch


def batch_writer(options: Mapping[str, str], schema: StructType) -> DataSourceWriter:
    """A writer for `df.write`. Without the options `sink` and `batch`, each write is one of its own."""
    sink = options.get("sink") or uuid4().hex
    text = options.get("batch", "0")
    if not text.isdigit():
        raise PipelineError(f"the option batch is a number that rises, not {text!r}")
    if "broker" in options:
        from angelia.pipeline.publishing import BatchPublisher, BrokerSink

        return BatchPublisher(BrokerSink(options, sink), int(text))
    return _BatchWriter(LakeSink(options["lake"], sink), int(text))


def stream_writer(options: Mapping[str, str], schema: StructType) -> DataSourceStreamWriter:
    """A writer for `df.writeStream`."""
    sink = options.get("sink")
    if not sink:
        raise PipelineError(
            "a stream that is written needs the option sink: a name that stays when it is restarted"
        )
    if "broker" in options:
        from angelia.pipeline.publishing import BrokerSink, StreamPublisher

        return StreamPublisher(BrokerSink(options, sink))
    return _StreamWriter(LakeSink(options["lake"], sink))


@dataclass
class Stage(WriterCommitMessage):
    """What a task has staged."""

    files: list[Staged]


class LakeSink:
    """Appends batches to a lake; a sink writes under a name of its own, as a broker does."""

    def __init__(self, lake: str, sink: str) -> None:
        self._lake = Path(lake).absolute()
        self._name = f"spark-{sink}"
        self._folder = self._lake / "staged" / wal_folder(self._lake, self._name).name

    def stage(self, batches: Iterator[pa.RecordBatch]) -> Stage:
        """Write the events of a task where nobody sees them yet."""
        return Stage(stage(self._lake, self._folder, batches))

    def commit(self, staged: Sequence[Staged], batch: int) -> None:
        """Make what was staged for a batch visible, once."""
        if len(staged) > MOST:
            raise PipelineError(
                f"a batch of {len(staged)} files is too much for a lake; write fewer partitions"
            )
        for folder in (self._folder, wal_folder(self._lake, self._name)):
            folder.mkdir(parents=True, exist_ok=True)
        first = batch * MOST
        hold = held_path(self._lake, self._name, first, first + MOST - 1)
        commit_batch(self._lake, hold, self._moves(staged, first))
        self.discard(staged)  # if it was committed before

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove what was staged in vain."""
        for each in staged:
            Path(each.path).unlink(missing_ok=True)

    def _moves(self, staged: Sequence[Staged], first: int) -> list[Move]:
        ordered = sorted(staged, key=lambda each: (each.day, each.type or "", each.path))
        return [
            Move(str(Path(each.path).relative_to(self._lake)), self._final(each.type, each.day, number))
            for number, each in enumerate(ordered, first)
        ]

    def _final(self, type_name: str | None, day: str, segment: int) -> str:
        name = file_name(self._name, segment, type_name)
        path = events_folder(self._lake) / folder_of(type_name) / day / name
        return str(path.relative_to(self._lake))


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [file for each in messages if isinstance(each, Stage) for file in each.files]


class _BatchWriter(DataSourceArrowWriter):
    """`df.write` to a lake."""

    def __init__(self, sink: LakeSink, batch: int) -> None:
        self._sink, self._batch = sink, batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.commit(_staged(messages), self._batch)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.discard(_staged(messages))


class _StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream` to a lake."""

    def __init__(self, sink: LakeSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._sink.stage(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.commit(_staged(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._sink.discard(_staged(messages))
