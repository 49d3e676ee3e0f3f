"""Sweeps: the runs of an experiment as Spark tasks. Each is what a process of this machine would do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["on_spark", "sweep"]

ROUNDS = 16  # parts of the work that a core gets one after the other


def sweep(spark: SparkSession, function: Callable[[Any], Any], work: Sequence[Any]) -> Iterable[Any]:
    """Call a function with each piece of work; results come in any order, as they are ready."""
    context = spark.sparkContext
    cores = context.defaultParallelism
    size = max(1, len(work) // (cores * ROUNDS))
    parts = [work[start : start + size] for start in range(0, len(work), size)]

    def run(part: Sequence[Any]) -> list[Any]:
        return context.parallelize(part, 1).map(function).collect()

    with ThreadPoolExecutor(cores) as pool:  # as many jobs at a time as there are cores
        jobs = [pool.submit(run, part) for part in parts]
        try:
            for job in as_completed(jobs):
                yield from job.result()
        finally:
            for job in jobs:
                job.cancel()


def on_spark(master: str | None) -> Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]:
    """A runner of experiments with a session of its own."""

    def run(function: Callable[[Any], Any], work: Sequence[Any]) -> Iterable[Any]:
        from angelia.pipeline.session import open_session

        spark = open_session(master, name="angelia experiment")
        try:
            yield from sweep(spark, function, work)
        finally:
            spark.stop()

    return run
