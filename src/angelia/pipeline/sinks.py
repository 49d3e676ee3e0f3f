"""Writing events: to a lake, or to a broker. What is written twice under one batch id is there once.

A task stages files, out of sight of readers. The commit writes a manifest, which is the moment that counts:
it says which staged file becomes which file of the lake. Then the files are moved, behind a write-ahead log
that is empty, so that readers see all of them or none. Whoever commits the same batch of the same sink again
completes what the manifest says, and throws away what was staged anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec
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
from angelia.store.catalog import locked, write_whole
from angelia.store.layout import (
    events_folder,
    file_name,
    folder_of,
    segment_path,
    sync_folder,
    wal_folder,
)

__all__ = ["batch_writer", "stream_writer"]

MOST = 10_000  # files of a batch
TRIES = 100  # how often a batch may be cut short and taken up again
KEPT = 100  # manifests of earlier batches


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


class Move(msgspec.Struct, array_like=True):
    """A staged file, and what it is to be."""

    staged: str
    final: str
    segment: int
    type: str | None


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
        for folder in (self._folder, wal_folder(self._lake, self._name)):
            folder.mkdir(parents=True, exist_ok=True)
        with locked(wal_folder(self._lake, self._name) / "lock"):
            manifest = self._folder / f"{batch:012d}.json"
            if manifest.exists():
                self.discard(staged)
                moves = self._taken_up(msgspec.json.decode(manifest.read_bytes(), type=list[Move]))
            else:
                moves = self._moves(staged, batch * MOST * TRIES)
                self._forget(manifest.name)
            write_whole(manifest, msgspec.json.encode(moves))
            self._complete(moves)

    def discard(self, staged: Sequence[Staged]) -> None:
        """Remove what was staged in vain."""
        for each in staged:
            Path(each.path).unlink(missing_ok=True)

    def _moves(self, staged: Sequence[Staged], first: int) -> list[Move]:
        if len(staged) > MOST:
            raise PipelineError(
                f"a batch of {len(staged)} files is too much for a lake; write fewer partitions"
            )
        ordered = sorted(staged, key=lambda each: (each.day, each.type or "", each.path))
        return [
            Move(each.path, str(self._final(each.type, each.day, first + place)), first + place, each.type)
            for place, each in enumerate(ordered)
        ]

    def _final(self, type_name: str | None, day: str, segment: int) -> Path:
        name = file_name(self._name, segment, type_name)
        return events_folder(self._lake) / folder_of(type_name) / day / name

    def _taken_up(self, moves: list[Move]) -> list[Move]:
        """What is left of a batch that was cut short, with numbers after all that was moved before.

        Whoever follows the lake has perhaps gone past the old numbers.
        """
        left = [move for move in moves if os.path.exists(move.staged)]
        first = (max((move.segment for move in moves), default=0) // MOST + 1) * MOST
        return [
            Move(
                move.staged,
                str(self._final(move.type, Path(move.final).parent.name, segment)),
                segment,
                move.type,
            )
            for segment, move in enumerate(left, first)
        ]

    def _complete(self, moves: Sequence[Move]) -> None:
        """Move files to their places; readers see them when the last one is there."""
        guards = [segment_path(self._lake, self._name, move.segment) for move in moves]
        for guard in guards:
            guard.touch()
        for move in moves:
            final = Path(move.final)
            final.parent.mkdir(parents=True, exist_ok=True)
            os.replace(move.staged, final)
            sync_folder(final.parent)
        for guard in guards:
            guard.unlink(missing_ok=True)

    def _forget(self, newest: str) -> None:
        """Remove old manifests: only the last batches of a query can come again."""
        known = sorted(path.name for path in self._folder.glob("*.json") if path.name <= newest)
        for name in known[:-KEPT]:
            (self._folder / name).unlink(missing_ok=True)


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
