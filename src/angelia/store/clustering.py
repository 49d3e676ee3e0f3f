"""Clustering: rows of one value beside each other, so that who asks for that value reads little.

Events come in order of time, and those of one device, customer or flight are scattered among all others:
sorted by time, every row group has some. So a large file is cut into blocks of time, and the rows of a block
are sorted by one attribute, the key, into small row groups, whose statistics then tell which values they
have. A reader puts a block back in order of time. A block is small enough to be held in memory, and fine
enough for those who ask for a time.

The key is the attribute with the most different values among those whose values recur all over a block: what
identifies things, not events. `compact` can be told another one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["BLOCK_KEY", "CLUSTER_KEY", "LEAST", "Clustered", "clustered"]

GROUP = 2048  # rows of a row group, at least: each costs a footer's entry a column
GROUPS = 48  # row groups of a block
ROWS = 196_608  # of a block, at most
LEAST = 8 * GROUP  # rows of a file that is worth it
SPREAD = 8  # slices of a block's time that a key's value is in, on average, at least
SLICES = 32

CLUSTER_KEY, BLOCK_KEY = b"angelia.cluster", b"angelia.block"  # of a file's metadata


class Clustered(NamedTuple):
    """Rows in the order in which they are written, by which attribute, and how many a row group has."""

    table: pa.Table
    key: str
    group: int


def clustered(table: pa.Table, key: str | None = None) -> Clustered | None:
    """A table that is in order of time, by blocks and a key; None if it is too small or has no key."""
    if table.num_rows < LEAST:
        return None
    group = max(GROUP, -(-table.num_rows // (-(-table.num_rows // ROWS) * GROUPS)))
    rows = group * GROUPS
    if key is None or key not in table.column_names:
        key = _key_of(table.slice(0, rows))
    if key is None:
        return None
    order = [(key, "ascending"), ("@time", "ascending")]
    blocks = [table.slice(start, rows).sort_by(order) for start in range(0, table.num_rows, rows)]
    metadata = (table.schema.metadata or {}) | {CLUSTER_KEY: key.encode(), BLOCK_KEY: b"%d" % GROUPS}
    return Clustered(pa.concat_tables(blocks).combine_chunks().replace_schema_metadata(metadata), key, group)


def _key_of(block: pa.Table) -> str | None:
    values = {name: _values(block.column(name)) for name in block.column_names if _may_be_key(block, name)}
    scattered = {name: count for name, (count, spread) in values.items() if spread >= SPREAD}
    return max(scattered, key=scattered.__getitem__, default=None)


def _may_be_key(block: pa.Table, name: str) -> bool:
    kind = block.schema.field(name).type
    return name not in ("@id", "@rest") and bool(pa.types.is_string(kind) or pa.types.is_integer(kind))


def _values(column: pa.ChunkedArray) -> tuple[int, float]:
    """How many values there are, and in how many slices of time each is, on average."""
    codes = column.combine_chunks().dictionary_encode()
    count = len(codes.dictionary)
    if count < SLICES:  # a row group would not be one value's
        return count, 0.0
    slices = np.arange(len(codes)) * SLICES // len(codes)
    pairs = pc.add(pc.multiply(codes.indices.cast(pa.int64()), SLICES), pa.array(slices))
    return count, pc.count_distinct(pairs, mode="only_valid").as_py() / count
