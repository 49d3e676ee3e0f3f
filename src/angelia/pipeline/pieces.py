"""Pieces of a lake: what one task reads of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from angelia.pipeline.errors import PipelineError
from angelia.pipeline.options import Query
from angelia.pipeline.workers import task
from angelia.store import Lake, LakeFile, Segment, Snapshot
from angelia.store.scan import Scan

__all__ = ["Piece", "check_problems", "pieces", "read_piece", "scan_of"]

LEAST, MOST = 1 << 20, 64 << 20  # bytes of files that a task reads, if there is a choice
TASKS = 32  # that a lake is worth, at least, if it is large enough


@dataclass(frozen=True)
class Piece:
    """Files, and segments that are not rolled yet."""

    files: tuple[LakeFile, ...] = ()
    segments: tuple[Segment, ...] = ()


def pieces(files: Sequence[LakeFile], segments: Sequence[Segment] = ()) -> list[Piece]:
    """Files in pieces of similar size, none of which is split; segments one by one."""
    size = min(MOST, max(LEAST, sum(file.size for file in files) // TASKS))
    found: list[list[LakeFile]] = []
    filled = 0
    for file in files:
        if not found or filled + file.size > size:
            found.append([])
            filled = 0
        found[-1].append(file)
        filled += file.size
    return [Piece(tuple(some)) for some in found] + [Piece((), (segment,)) for segment in segments]


def scan_of(query: Query, lake: Lake, piece: Piece) -> Scan:
    """The query, put to a piece."""
    snapshot = Snapshot(piece.files, piece.segments)
    return Scan(lake, query.type, query.filter, query.since, query.until, snapshot)


def read_piece(query: Query, piece: Piece, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The events of a piece that are asked for, with these columns.

    Files that cannot be read are logged and left out, or fail the job, as the query says.
    """
    with task():
        lake = query.open()
        for batch in scan_of(query, lake, piece).batches(columns):
            check_problems(query, lake)
            yield batch
        check_problems(query, lake)


def check_problems(query: Query, lake: Lake) -> None:
    """Fail if something could not be read and the query does not put up with it."""
    if query.fails and lake.problems:
        problem = lake.problems[0]
        raise PipelineError(f"{problem.path} cannot be read: {problem.reason}")
