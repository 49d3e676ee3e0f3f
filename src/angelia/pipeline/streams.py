"""Streams that are kept as files: one folder a micro-batch, written as a whole, so that none is there twice.

After a crash Spark repeats the last micro-batch, with the same events. It overwrites its folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["EVERY", "keep"]

EVERY = "1 second"  # an idle query would ask its source without a pause


def keep(
    result: DataFrame, out: str | Path, checkpoint: str | Path, *, every: str = EVERY, once: bool = False
) -> StreamingQuery:
    """Start a query that keeps its result as Parquet in `out/batch=…`; `once`: what there is, and no more."""
    target = str(Path(out).absolute())

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{target}/batch={number}")

    stream = result.writeStream.foreachBatch(write).option(
        "checkpointLocation", str(Path(checkpoint).absolute())
    )
    return stream.trigger(availableNow=True).start() if once else stream.trigger(processingTime=every).start()
