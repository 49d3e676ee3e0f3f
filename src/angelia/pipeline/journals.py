"""What travelled: tables from journals of the simulator or of brokers (`angelia.sim.journal` has the fields).

A message that an event caused is *useful* if it was the first to bring the event to its receiver, and the
receiver delivered the event or sent a useful message on; every other one is *wasted*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from angelia.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FIELDS", "Traffic", "read_journal", "traffic"]

FIELDS = (
    "time double, record string, at string, peer string, kind string, number bigint, cause bigint, "
    "hops int, detail string"
)
PERCENTILES = (0.5, 0.9, 0.99, 1.0)

_VERDICTS = "`from` string, `to` string, kind string, useful boolean"


class Traffic(NamedTuple):
    """The tables.

    | table     | columns                                                                        |
    |-----------|--------------------------------------------------------------------------------|
    | `links`   | `from`, `to`, `kind`, `sent`, `received`, `dropped`                            |
    | `hops`    | `hops` (-1: not known), `deliveries`                                           |
    | `latency` | `hops` (null: all), `deliveries`, `mean`, `p50`, `p90`, `p99`, `max`, in seconds |
    | `waste`   | `from`, `to`, `kind`, `messages`, `wasted`, of messages that events caused     |
    """

    links: DataFrame
    hops: DataFrame
    latency: DataFrame
    waste: DataFrame


def read_journal(spark: SparkSession, *paths: str | Path) -> DataFrame:
    """A journal as a data frame: those of all brokers of a network, or that of one simulation.

    Not of several simulations: what they number, they number alike.
    """
    kinds = {Path(path).suffix for path in paths}
    missing = [str(path) for path in paths if not Path(path).exists()]
    if missing:
        raise PipelineError(f"there is no journal {missing[0]}")
    if kinds == {".parquet"}:
        return spark.read.schema(FIELDS).parquet(*map(str, paths))
    if kinds == {".jsonl"}:
        return spark.read.schema(FIELDS).json([str(path) for path in paths])
    raise PipelineError("a journal is a file that ends in .jsonl or .parquet; give files of one kind")


def traffic(journal: DataFrame) -> Traffic:
    """The tables of a journal."""
    return Traffic(_links(journal), *_deliveries(journal), _waste(journal))


def _links(journal: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    def there(record: str) -> Any:
        return F.sum((F.col("record") == record).cast("long")).alias(record)

    # What is received is told by the receiver: the link leads from its peer to it.
    moved = journal.where(F.col("record").isin("sent", "received", "dropped"))
    by_sender = F.col("record") != "received"
    return (
        moved.withColumn("from", F.when(by_sender, F.col("at")).otherwise(F.col("peer")))
        .withColumn("to", F.when(by_sender, F.col("peer")).otherwise(F.col("at")))
        .groupBy("from", "to", "kind")
        .agg(there("sent"), there("received"), there("dropped"))
        .orderBy("from", "to", "kind")
    )


def _deliveries(journal: DataFrame) -> tuple[DataFrame, DataFrame]:
    from pyspark.sql import functions as F  # noqa: N812

    requests = journal.where("record = 'request'").select(
        F.col("number").alias("cause"), F.col("time").alias("begun")
    )
    delivered = journal.where("record = 'delivery'").join(requests, "cause")
    delivered = delivered.join(_distances(journal), ["cause", "at"], "left")
    delivered = delivered.withColumn("hops", F.coalesce("hops", "distance", F.lit(-1)))
    delivered = delivered.withColumn("latency", F.col("time") - F.col("begun"))
    hops = delivered.groupBy("hops").agg(F.count("*").alias("deliveries")).orderBy("hops")
    names = [f"p{100 * p:g}" if p < 1 else "max" for p in PERCENTILES]
    latency = (
        delivered.rollup("hops")
        .agg(
            F.count("*").alias("deliveries"),
            F.mean("latency").alias("mean"),
            *(F.percentile("latency", p).alias(name) for p, name in zip(PERCENTILES, names, strict=True)),
        )
        .where("deliveries > 0")
        .orderBy(F.col("hops").asc_nulls_first())
    )
    return hops, latency


def _distances(journal: DataFrame) -> DataFrame:
    """How many links an event had come when it came to a broker, where the journal does not say."""
    from pyspark.sql import functions as F  # noqa: N812

    untold = journal.where("hops is null and cause != 0")
    first = F.min_by("peer", "time").alias("peer")
    came = untold.where("record = 'received'").groupBy("cause", "at").agg(first)
    began = untold.where("record = 'request'").select("cause", "at", F.lit(None).cast("string").alias("peer"))
    ways = began.unionByName(came).groupBy("cause").agg(F.collect_list(F.struct("at", "peer")).alias("ways"))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pylist(
                [
                    {"cause": cause, "at": at, "distance": distance}
                    for cause, ways in zip(*batch.to_pydict().values(), strict=True)
                    for at, distance in _from_origin(ways).items()
                ],
                pa.schema({"cause": pa.int64(), "at": pa.string(), "distance": pa.int32()}),
            )

    return ways.mapInArrow(run, "cause bigint, at string, distance int")


def _from_origin(ways: list[dict[str, str | None]]) -> dict[str, int]:
    """How far each broker is from the one where it began, which got it from nobody (`peer` is None)."""
    before = {way["at"]: way["peer"] for way in sorted(ways, key=lambda way: way["peer"] is None)}
    found: dict[str, int] = {}
    for broker in before:
        steps, at = 0, broker
        while steps <= len(before) and before.get(at) is not None:
            steps, at = steps + 1, before[at]
        if broker is not None and at in before and steps <= len(before):
            found[broker] = steps
    return found


# ---------------------------------------------------------------- waste


def _waste(journal: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    published = journal.where("record = 'request' and kind = 'Publish'").select(
        F.col("number").alias("cause")
    )
    caused = journal.where(F.col("record").isin("sent", "received", "delivery")).join(published, "cause")
    columns = ("cause", "time", "record", "at", "peer", "kind", "number")
    ordered = caused.select(*columns).repartition("cause").sortWithinPartitions("cause", "time", "number")

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True))
        for _, group in groupby(rows, itemgetter(0)):
            verdicts = list(_verdicts(list(group)))
            if verdicts:
                arrays = [pa.array(values) for values in zip(*verdicts, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, ["from", "to", "kind", "useful"])

    return (
        ordered.mapInArrow(run, _VERDICTS)
        .groupBy("from", "to", "kind")
        .agg(F.count("*").alias("messages"), F.sum((~F.col("useful")).cast("long")).alias("wasted"))
        .orderBy("from", "to", "kind")
    )


def _verdicts(rows: list[tuple[Any, ...]]) -> Iterator[tuple[str, str, str, bool]]:
    """For each message of one cause, in the order of time: its way, and whether it was useful."""
    delivering = {at for _, _, record, at, _, _, _ in rows if record == "delivery"}
    first: dict[str, int] = {}  # the message that came first to a broker
    sent = []
    for _, _, record, at, peer, kind, number in rows:
        if record == "received":
            first.setdefault(at, number)
        elif record == "sent":
            sent.append((at, peer, kind, number))
    useful_from: set[str] = set()  # brokers that sent something useful on
    useful: set[int] = set()
    for at, peer, _, number in reversed(sent):  # what was sent on was sent later
        if first.get(peer) == number and (peer in delivering or peer in useful_from):
            useful.add(number)
            useful_from.add(at)
    for at, peer, kind, number in sent:
        yield at, peer, kind, number in useful
