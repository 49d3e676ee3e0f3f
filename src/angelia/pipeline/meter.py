"""What workers tell the driver beside their results: events that were read, files that could not be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.accumulators import AccumulatorParam

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Meter"]

Counts = dict[int, tuple[int, Any]]


class _Union(AccumulatorParam[Counts]):
    """Counts by piece: a task that runs again says the same again, which changes nothing."""

    def zero(self, value: Counts) -> Counts:
        return {}

    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:
        return {**value1, **value2}


class Meter:
    """Counts of a job over a lake; ask when the job is done."""

    def __init__(self, spark: SparkSession) -> None:
        self._counts = spark.sparkContext.accumulator({}, _Union())
        counts = self._counts

        def count(piece: int, events: int, problems: Any) -> None:
            counts.add({piece: (events, problems)})

        self.count = count

    @property
    def events(self) -> int:
        """How many events were read."""
        return sum(events for events, _ in self._counts.value.values())

    @property
    def problems(self) -> list[tuple[str, str]]:
        """The files that could not be read, and why."""
        return sorted(tuple(each) for _, problems in self._counts.value.values() for each in problems)
