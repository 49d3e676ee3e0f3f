"""Columns of events: which of them a job needs, and how a batch is given to the matcher.

A data frame of events has attributes by their flat, dotted names (or as structs), the context as `@id`,
`@type`, `@source`, `@subject`, `@time`, and, if it comes from a lake, `@rest`: JSON with the attributes
that have no column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from angelia.pipeline.workers import task
from angelia.store.columns import REST, rest_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["REST", "column", "map_batches", "matchable", "narrowed"]

BatchFunction = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def column(name: str) -> Column:
    """A column by its own name, whatever signs are in it."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    return F.col("`" + name.replace("`", "``") + "`")


def map_batches(
    events: DataFrame, names: Iterable[str], function: BatchFunction, schema: str | StructType
) -> DataFrame:
    """`mapInArrow` over some columns, which may have dots in their names (Spark's own refuses these)."""
    wanted = list(names)
    safe = events.select(*(column(name).alias(f"c{place}") for place, name in enumerate(wanted)))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with task():
            yield from function(batch.rename_columns(wanted) for batch in batches)

    return safe.mapInArrow(run, schema)


def narrowed(events: DataFrame, attributes: Iterable[str] | None, *kept: str) -> list[str]:
    """The columns that hold these attributes (None: all of them), and those that are kept anyway."""
    if attributes is None:
        return events.columns
    wanted = {*kept, REST}
    for name in attributes:
        parts = name.split(".")
        wanted.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
    return [name for name in events.columns if name in wanted]


def matchable(batch: pa.RecordBatch, attributes: frozenset[str]) -> Mapping[str, Any]:
    """The columns of a batch for the matcher, with what stands in `@rest` put in its place."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    rest = columns.pop(REST, None)
    if rest is None or rest.null_count == len(rest):
        return columns
    values: dict[str, list[Any]] = {}
    for row, text in enumerate(rest.to_pylist()):
        for name, value in rest_of(text).items() if text is not None else ():
            if name in attributes:
                if name not in values:
                    values[name] = columns[name].to_pylist() if name in columns else [None] * batch.num_rows
                values[name][row] = value
    return columns | values
