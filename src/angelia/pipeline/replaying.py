"""Replay: past events that match a subscription, in the order of their times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from angelia.pipeline.columns import column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from angelia.filter import Filter

__all__ = ["replay"]


def replay(
    spark: SparkSession,
    lake: str,
    filter: str | Filter | None = None,  # noqa: A002 - what it is
    since: str | None = None,
    until: str | None = None,
    *,
    type: str | None = None,  # noqa: A002 - the name CloudEvents gives it
) -> DataFrame:
    """The events of a lake that match, in order of time; `since` is included, `until` is not."""
    given = {"filter": filter, "since": since, "until": until, "type": type}
    options = {name: str(value) for name, value in given.items() if value is not None}
    events = spark.read.format("angelia").options(lake=str(lake), **options).load()
    return events.orderBy(column("@time"), column("@id"))
