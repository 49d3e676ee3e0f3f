"""What is in a lake, and what subscriptions make of it: volume, attributes, selectivity, merging."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from angelia.pipeline.columns import column, map_batches, narrowed
from angelia.pipeline.errors import PipelineError
from angelia.pipeline.index import Index
from angelia.pipeline.matching import matches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from angelia.filter import Filter
    from angelia.types import TypeRegistry

__all__ = ["BUCKETS", "Summary", "summarise"]

BUCKETS = {"minute": 60, "hour": 3600, "day": 86_400}
TOP = 5  # values that are told of an attribute

_SECOND = 1_000_000


class Summary(NamedTuple):
    """The tables. The last four are None without subscriptions.

    | table           | columns                                                                            |
    |-----------------|------------------------------------------------------------------------------------|
    | `volume`        | `type`, `source`, `start`, `events`                                                |
    | `attributes`    | `type`, `attribute`, `kind`, `events`, `present`, `distinct`, `least`, `greatest`, `mean`, `deviation`, `skewness`, `top` (values with counts), `top_share` |
    | `subscriptions` | `subscription_id`, `filter`, `matches`, `selectivity`, `verdict` (never, always, sometimes), `covers`, `covered_by`, `is_root` |
    | `matches`       | `subscription_id`, `start`, `matches`                                              |
    | `covering`      | `subscription_id`, `covers`: the pairs of which one covers the other immediately   |
    | `merging`       | `step`, `filters`: how many filters a broker would have to keep                    |
    """  # noqa: E501 - a table

    volume: DataFrame
    attributes: DataFrame
    subscriptions: DataFrame | None
    matches: DataFrame | None
    covering: DataFrame | None
    merging: DataFrame | None


def summarise(
    events: DataFrame,
    subscriptions: Mapping[Any, Filter] | None = None,
    *,
    bucket: str = "hour",
    registry: TypeRegistry | None = None,
) -> Summary:
    """The tables of events, and of subscriptions over them: filters by id, as of `read_subscriptions`."""
    if bucket not in BUCKETS:
        raise PipelineError(f"volume is counted by {', '.join(BUCKETS)}, not by {bucket!r}")
    volume, attributes = _volume(events, bucket), _attributes(events)
    if subscriptions is None:
        return Summary(volume, attributes, None, None, None, None)
    from angelia.pipeline.relations import relations, saved

    index = Index.of(subscriptions, registry)
    over_time = _matches(events, index, bucket)
    spark = events.sparkSession
    each, pairs = map(spark.createDataFrame, relations(subscriptions, index.ids, registry))
    merging = spark.createDataFrame(saved(subscriptions.values(), registry))
    return Summary(volume, attributes, _verdicts(events, each, over_time), over_time, pairs, merging)


# ---------------------------------------------------------------- volume


def _volume(events: DataFrame, bucket: str) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    start = F.date_trunc(bucket, column("@time"))
    keys = (column("@type").alias("type"), column("@source").alias("source"), start.alias("start"))
    return events.groupBy(*keys).agg(F.count("*").alias("events")).orderBy("start", "type", "source")


# ---------------------------------------------------------------- attributes


def _attributes(events: DataFrame) -> DataFrame:
    """One pass over all columns; a row for each type and attribute that is there at all."""
    from pyspark.sql import functions as F  # noqa: N812

    fields = [field for field in events.schema.fields if field.name[0] != "@"]
    aggregates = [_statistics(field.name, field.dataType).alias(f"a{i}") for i, field in enumerate(fields)]
    by_type = events.groupBy(column("@type").alias("type")).agg(F.count("*").alias("events"), *aggregates)
    if not fields:
        return by_type.select("type", "events").where("false").select(F.lit("").alias("attribute"), "type")
    each = by_type.select(
        "type", "events", F.explode(F.array(*(f"a{i}" for i in range(len(fields))))).alias("a")
    )
    share = (F.col("a.top")[0]["count"] / F.col("a.present")).alias("top_share")
    names = ("attribute", "kind", "events", "present", "distinct", "least", "greatest", "mean", "deviation")
    columns = ["events" if name == "events" else f"a.{name}" for name in names]
    return (
        each.where("a.present > 0")
        .select("type", *columns, "a.skewness", "a.top", share)
        .orderBy("type", "attribute")
    )


def _statistics(name: str, kind: DataType) -> Column:
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import ArrayType, NumericType

    value = column(name)
    is_list = isinstance(kind, ArrayType)
    number = value.cast("double") if isinstance(kind, NumericType) else F.lit(None).cast("double")
    text = F.to_json(value) if is_list else value.cast("string")
    ordered = F.lit(None) if is_list else value
    quoted = name.replace("`", "``")
    top = F.expr(f"approx_top_k({'to_json' if is_list else 'string'}(`{quoted}`), {TOP}, 10000)")
    top_values = F.transform(
        F.filter(top, lambda each: each["item"].isNotNull()),
        lambda each: F.struct(each["item"].alias("value"), each["count"].alias("count")),
    )
    return F.struct(
        F.lit(name).alias("attribute"),
        F.lit(kind.simpleString()).alias("kind"),
        F.count(value).alias("present"),
        F.approx_count_distinct(text).alias("distinct"),
        F.min(ordered).cast("string").alias("least"),
        F.max(ordered).cast("string").alias("greatest"),
        F.mean(number).alias("mean"),
        F.stddev(number).alias("deviation"),
        F.skewness(number).alias("skewness"),
        top_values.alias("top"),
    )


# ---------------------------------------------------------------- subscriptions


def _matches(events: DataFrame, index: Index, bucket: str) -> DataFrame:
    """How many events each subscription matches, over time; counted in the workers, batch by batch."""
    from pyspark.sql import functions as F  # noqa: N812

    shared = events.sparkSession.sparkContext.broadcast(index)
    width = BUCKETS[bucket] * _SECOND

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from _counts(batch, shared.value, width)

    kind = "bigint" if index.has_integers else "string"
    names = narrowed(events, index.attributes, "@id", "@time")
    counted = map_batches(events, names, run, f"subscription_id {kind}, start timestamp, matches bigint")
    return counted.groupBy("subscription_id", "start").agg(F.sum("matches").alias("matches"))


def _counts(batch: pa.RecordBatch, index: Index, width: int) -> Iterator[pa.RecordBatch]:
    times = batch.column("@time").cast(pa.timestamp("us", "UTC"))
    micros = times.fill_null(0).cast(pa.int64()).to_numpy()
    starts, number = np.unique(micros // width, return_inverse=True)
    for start, offsets, places in matches(batch, index):
        rows = np.repeat(np.arange(start, start + len(offsets) - 1), np.diff(offsets))
        codes, counts = np.unique(number[rows] * len(index) + places, return_counts=True)
        yield pa.RecordBatch.from_pydict(
            {
                "subscription_id": index.ids.take(pa.array(codes % len(index))),
                "start": pa.array(starts[codes // len(index)] * width).cast(pa.timestamp("us", "UTC")),
                "matches": pa.array(counts),
            }
        )


def _verdicts(events: DataFrame, known: DataFrame, over_time: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    total = events.select(F.count("*").alias("total"))
    sums = over_time.groupBy("subscription_id").agg(F.sum("matches").alias("matches"))
    count = F.coalesce(F.col("matches"), F.lit(0))
    verdict = F.when(count == 0, "never").when(count == F.col("total"), "always").otherwise("sometimes")
    return (
        known.join(sums, "subscription_id", "left")
        .crossJoin(total)
        .select(
            "subscription_id",
            "filter",
            count.alias("matches"),
            F.when(F.col("total") > 0, count / F.col("total")).alias("selectivity"),
            verdict.alias("verdict"),
            "covers",
            "covered_by",
            "is_root",
        )
        .orderBy(F.desc("matches"), "subscription_id")
    )
