"""Reading a Parquet file of a lake: which blocks of row groups are worth it, and some columns of them.

A block is what is put back in order of time at once: the row groups of a clustered file that share a range of
time, or one row group of a file that is in order of time anyway. A file's footer is read once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import groupby
from typing import BinaryIO, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from angelia.errors import LakeError
from angelia.store.clustering import BLOCK_KEY
from angelia.store.layout import replaced_name
from angelia.store.pruning import EVERYTHING, NOTHING

__all__ = ["UNREADABLE", "Rows", "StoredFile", "opened"]

UNREADABLE = (OSError, pa.ArrowException)

T = TypeVar("T")

_FORMAT = ds.ParquetFileFormat()
_MAGIC = b"PAR1"  # at the beginning of a Parquet file
_END = 8  # bytes: the length of the footer, and the same sign


class StoredFile:
    """A Parquet file of a lake: its footer, and, within a `with` block, its rows."""

    def __init__(self, path: str) -> None:
        self._path = path
        with opened(path, lambda place: open(place, "rb")) as file:
            self._fragment = _FORMAT.make_fragment(pa.BufferReader(_footer(file)))
        self._metadata = self._fragment.metadata
        self.schema: pa.Schema = self._metadata.schema.to_arrow_schema()
        block = (self.schema.metadata or {}).get(BLOCK_KEY)
        self.is_clustered = block is not None
        self._block = 1 if block is None else int(block)

    def __enter__(self) -> StoredFile:
        # Only what is asked for is read: a buffer would fill the gaps between columns.
        self._parquet = opened(
            self._path,
            lambda place: pq.ParquetFile(
                place, metadata=self._metadata, page_checksum_verification=True, pre_buffer=False
            ),
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._parquet.close()

    def blocks(self, coarse: ds.Expression) -> Iterator[Rows]:
        """The row groups whose statistics do not exclude a match, block by block."""
        for _, groups in groupby(self._groups(coarse), lambda group: group // self._block):
            yield Rows(self._parquet, list(groups))

    def _groups(self, coarse: ds.Expression) -> Sequence[int]:
        if coarse is NOTHING:
            return ()
        if coarse is EVERYTHING:
            return range(self._metadata.num_row_groups)
        chosen = self._fragment.subset(filter=coarse, schema=self.schema)
        return [group.id for group in chosen.row_groups]

    def has_values(self, name: str) -> bool:
        """Whether a column has something in it, as far as statistics tell."""
        place = self.schema.get_field_index(name)
        groups = map(self._metadata.row_group, range(self._metadata.num_row_groups))
        columns = ((group.num_rows, group.column(place).statistics) for group in groups)
        return any(known is None or known.null_count != rows for rows, known in columns)

    def first_time(self) -> datetime:
        """The time of the first event, by statistics; the beginning of time, if it cannot be told."""
        place = self.schema.get_field_index("@time")
        first = range(min(self._block, self._metadata.num_row_groups))
        try:
            times = [self._metadata.row_group(group).column(place).statistics.min for group in first]
            first_time: datetime = min(times)
            return first_time
        except (AttributeError, IndexError, ValueError):
            return datetime.min.replace(tzinfo=UTC)


class Rows:
    """The rows of some row groups."""

    def __init__(self, parquet: pq.ParquetFile, groups: list[int]) -> None:
        self._parquet, self._groups = parquet, groups

    def columns(self, names: list[str]) -> pa.Table:
        """These columns of all rows."""
        # A name may lead to more columns than meant: Parquet takes dots for nesting.
        return self._parquet.read_row_groups(self._groups, columns=names, use_threads=False).select(names)

    def taken(self, names: list[str], places: pa.Array) -> pa.Table:
        """These columns of the rows at `places`, which rise; row groups without one are not read."""
        metadata = self._parquet.metadata
        ends = np.cumsum([metadata.row_group(group).num_rows for group in self._groups])
        wanted = places.to_numpy()
        held = np.searchsorted(ends, wanted, side="right")
        hit, where = np.unique(held, return_inverse=True)
        lengths = np.diff(ends, prepend=0)
        moved = (np.cumsum(lengths[hit]) - lengths[hit])[where] + wanted - (ends - lengths)[held]
        some = Rows(self._parquet, [self._groups[each] for each in hit])
        return some.columns(names).take(pa.array(moved))


def _footer(file: BinaryIO) -> bytes:
    """The end of a file, as much as tells what is in it: Arrow itself would guess, and read more."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END))
    end = file.read()
    length = int.from_bytes(end[:4], "little") + _END
    file.seek(max(0, size - length))
    return _MAGIC + file.read(length - _END) + end


def opened(path: str, open_: Callable[[str], T]) -> T:
    """Open a file of a snapshot, wherever it is: a compaction that replaces it keeps it for a while."""
    folder, name = os.path.split(path)
    for place in (path, os.path.join(folder, replaced_name(name))):
        with suppress(FileNotFoundError):
            return open_(place)
    raise LakeError(f"{path} was compacted away while it was to be read; read the lake again")
