"""A progress bar of Spark's tasks, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["shown", "waiting"]

PAUSE = 0.2  # seconds between two looks


@contextmanager
def waiting(label: str) -> Iterator[None]:
    """Show that something goes on."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(label):
        yield


@contextmanager
def shown(spark: SparkSession, label: str) -> Iterator[None]:
    """Show how many tasks are done, as long as the block lasts."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        done = Event()
        watcher = Thread(target=_watch, args=(spark, progress, label, done), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _watch(spark: SparkSession, progress: Progress, label: str, done: Event) -> None:
    bar = progress.add_task(label, total=None)
    tracker = spark.sparkContext.statusTracker()
    stages: dict[int, tuple[int, int]] = {}
    while not done.wait(PAUSE):
        for stage in {*tracker.getActiveStageIds(), *stages}:
            info = tracker.getStageInfo(stage)
            if info is not None:
                stages[stage] = info.numTasks, info.numCompletedTasks
        if stages:
            total, completed = map(sum, zip(*stages.values(), strict=True))
            progress.update(bar, total=total, completed=completed)
