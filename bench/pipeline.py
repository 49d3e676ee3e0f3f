"""The pipeline's benchmark: bulk matching against what a user would otherwise write, and replay by bytes.

All run on the same lake in one run, and the same workers; what a slow baseline would need for all events is
extrapolated from those of the first days, which the output says. Prints JSON; `--write-docs` writes the
section of docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from angelia import Filter
from angelia.pipeline import match, match_lake, open_session
from angelia.pipeline.index import Index
from angelia.pipeline.matching import pairs
from angelia.pipeline.options import Query, query_of
from angelia.pipeline.pieces import Piece, scan_of
from angelia.pipeline.sinks import LakeSink
from angelia.store import Lake, LakeFile

WORDS = [f"word{i:02d}" for i in range(100)]
NUMBERS = ("n0", "n1", "n2", "n3")
MATCHES = 5  # that an event has, on average, however many subscriptions there are
START = int(np.datetime64("2026-01-01T00:00:00", "us").astype(np.int64))
DAY = 86_400_000_000
DOCS = Path(__file__).parent.parent / "docs" / "benchmarks.md"


# ---------------------------------------------------------------- the workload


def batches(count: int, seed: int = 1, size: int = 100_000) -> Iterator[pa.RecordBatch]:
    """Events of ten attributes over ten days, in order of time; one in a thousand is an alarm."""
    draw = np.random.default_rng(seed)
    words = pa.array(WORDS)
    for start in range(0, count, size):
        rows = min(size, count - start)
        number = np.arange(start, start + rows)
        alarms = pa.array(draw.random(rows) < 0.001)
        columns = {
            "@id": pc.binary_join_element_wise("event", pa.array(number).cast(pa.string()), "-"),
            "@type": pc.if_else(alarms, "bench.Alarm", "bench.Reading"),
            "@source": words.take(pa.array(draw.integers(0, 100, rows))),
            "@time": pa.array(START + number * (10 * DAY // count)).cast(pa.timestamp("us", "UTC")),
            "s0": words.take(pa.array(draw.integers(0, 10, rows))),
            "s1": words.take(pa.array(draw.integers(0, 100, rows))),
            "s2": words.take(pa.array(draw.zipf(1.5, rows) % 100)),
            "order": pa.array(number // 10),
            "device": pa.array(draw.integers(0, 1000, rows)),
            "b": pa.array(draw.random(rows) < 0.5),
        }
        columns |= {name: pa.array(draw.random(rows) * 1000) for name in NUMBERS}
        yield pa.RecordBatch.from_pydict(columns)


Rule = tuple[str | None, dict[str, tuple[float, float]]]  # a word of s1, and ranges of numbers


def rules(count: int, seed: int = 2) -> list[Rule]:
    """Subscriptions, as rules: a word and a range, or two ranges; each matches MATCHES / count of all."""
    draw = random.Random(seed)
    share = MATCHES / count

    def span(width: float) -> tuple[float, float]:
        low = draw.random() * 1000 * (1 - width)
        return low, low + 1000 * width

    made: list[Rule] = []
    for _ in range(count):
        if draw.random() < 0.6:
            made.append((draw.choice(WORDS), {draw.choice(NUMBERS): span(share * 100)}))
        else:
            first, second = draw.sample(NUMBERS, 2)
            made.append((None, {first: span(share**0.5), second: span(share**0.5)}))
    return made


def filters(some: Iterable[Rule]) -> dict[int, Filter]:
    """The same as filters."""
    texts = (
        " and ".join(
            [f's1 = "{word}"'] * (word is not None)
            + [f"{n} between {a!r} and {b!r}" for n, (a, b) in spans.items()]
        )
        for word, spans in some
    )
    return {number: Filter.parse(text) for number, text in enumerate(texts)}


# ---------------------------------------------------------------- the baselines


def cross_join(events: DataFrame, some: list[Rule]) -> DataFrame:
    """A table of rules with a column for each bound, null where a rule does not ask; joined by comparison."""
    rows = []
    for number, (word, spans) in enumerate(some):
        rows.append([number, word, *(b for name in NUMBERS for b in spans.get(name, (None, None)))])
    bounds = [f"{name}_{end} double" for name in NUMBERS for end in ("low", "high")]
    table = events.sparkSession.createDataFrame(
        rows, f"subscription_id bigint, word string, {', '.join(bounds)}"
    )
    condition = F.col("word").isNull() | (F.col("word") == F.col("s1"))
    for name in NUMBERS:
        inside = F.col(name).between(F.col(f"{name}_low"), F.col(f"{name}_high"))
        condition &= F.col(f"{name}_low").isNull() | inside
    return events.join(F.broadcast(table), condition).select(
        F.col("`@id`").alias("event_id"), "subscription_id"
    )


def masks(events: DataFrame, some: list[Rule]) -> DataFrame:
    """mapInArrow, with one NumPy mask a subscription; words are compared as numbers."""
    shared = events.sparkSession.sparkContext.broadcast(some)

    def run(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        codes = {word: place for place, word in enumerate(WORDS)}
        vocabulary = pa.array(WORDS)
        for batch in parts:
            words = pc.index_in(batch.column("s1"), vocabulary).to_numpy(zero_copy_only=False)
            numbers = {name: batch.column(name).to_numpy() for name in NUMBERS}
            rows, ids = [], []
            for number, (word, spans) in enumerate(shared.value):
                mask = words == codes[word] if word is not None else np.True_
                for name, (low, high) in spans.items():
                    values = numbers[name]
                    mask = mask & (values >= low) & (values <= high)
                found = np.flatnonzero(mask)
                if len(found):
                    rows.append(found)
                    ids.append(np.full(len(found), number))
            if rows:
                event_ids = batch.column("id").take(pa.array(np.concatenate(rows)))
                yield pa.RecordBatch.from_arrays(
                    [event_ids, pa.array(np.concatenate(ids))], ["event_id", "subscription_id"]
                )

    narrow = events.select(F.col("`@id`").alias("id"), "s1", *NUMBERS)
    return narrow.mapInArrow(run, "event_id string, subscription_id bigint")


# ---------------------------------------------------------------- measuring


def seconds(make: Callable[[], DataFrame], runs: int = 1) -> float:
    """How long a result takes that nobody keeps; the fastest of some runs."""
    return min(_run(make)[0] for _ in range(runs))


def _run(make: Callable[[], DataFrame]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time in all processes."""
    before, started = _processor_time(), time.perf_counter()
    make().write.format("noop").mode("overwrite").save()
    return time.perf_counter() - started, _processor_time() - before


def _processor_time() -> float:
    """Seconds of processor time of this process and of those that it started: Spark's JVM and workers."""
    parents, spent = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # one that ended meanwhile
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            spent[int(path.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    ours, size = {os.getpid()}, 0
    while len(ours) > size:
        size = len(ours)
        ours |= {process for process, parent in parents.items() if parent in ours}
    return sum(spent.get(process, 0.0) for process in ours)


def digest(frame: DataFrame) -> Any:
    """What two results have in common only if they have the same pairs, in whatever order."""
    return frame.selectExpr("count(*)", "bit_xor(xxhash64(event_id, subscription_id))").first()


def kernel(lake: str, index: Index) -> tuple[float, float]:
    """Microseconds of processor time that an event takes in this process: to be read, and to be matched."""
    rows, spent = 0, [0.0, 0.0]
    query = query_of({"lake": lake, "type": "bench.Reading"})
    scan = scan_of(query, query.open(), Piece(query.snapshot().files))
    times = [time.process_time()] * 2
    for batch in scan.raw({"@id", *index.attributes}, is_ordered=False):
        times[0] = time.process_time()
        spent[0] += times[0] - times[1]
        rows += batch.num_rows
        for _ in pairs(batch, index):
            pass
        times[1] = time.process_time()
        spent[1] += times[1] - times[0]
        if rows >= 500_000:
            break
    return spent[0] / rows * 1e6, spent[1] / rows * 1e6


class Bench:
    """A lake in Spark: its events as ours reads them and as Spark does, all of them and of the first days."""

    def __init__(self, spark: SparkSession, lake: str, count: int) -> None:
        self.spark, self.lake, self.count = spark, lake, count
        self.query = query_of({"lake": lake})
        self.events = self._read(Lake(lake).files())

    def days(self, number: int) -> tuple[Query, DataFrame]:
        """What the first days have: for ours, and for Spark."""
        until = f"2026-01-{number + 1:02d}T00:00:00Z"
        return query_of({"lake": self.lake, "until": until}), self._read(Lake(self.lake).files(until=until))

    def _read(self, files: Iterable[LakeFile]) -> DataFrame:
        return self.spark.read.parquet(*(file.path for file in files))

    def row(self, number: int) -> dict[str, Any]:
        """Events a second of ours and of the baselines, with so many subscriptions."""
        some = rules(number)
        index = Index.of(filters(some))
        self._check(some, index)
        reading, matching = kernel(self.lake, index)
        ours = [_run(lambda: match_lake(self.spark, self.query, index)) for _ in range(3)]
        row = {
            "subscriptions": number,
            "match, from a lake": self.count / min(wall for wall, _ in ours),
            "match, of a data frame": self.count / seconds(lambda: match(self.events, index), 3),
            "reading, µs an event": reading,
            "kernel, µs an event": matching,
            "all, µs an event": min(spent for _, spent in ours) / self.count * 1e6,
        }
        if number == 1_000:
            row |= self._sampled("NumPy masks", lambda frame: masks(frame, some), 10)
            row |= self._sampled("cross join", lambda frame: cross_join(frame, some), 1)
        elif number == 10_000:
            row |= self._sampled("NumPy masks", lambda frame: masks(frame, some), 2)
        return row

    def _check(self, some: list[Rule], index: Index) -> None:
        """They agree; and everything is loaded, and compiled by the JVM, before something is measured."""
        query, events = self.days(1)
        wanted = digest(match_lake(self.spark, query, index))
        assert digest(match(events, index)) == wanted, "they do not agree"
        if len(some) <= 10_000:
            assert digest(masks(events, some)) == wanted, "they do not agree"
        if len(some) <= 1_000:
            few = events.limit(5_000).localCheckpoint()
            assert digest(cross_join(few, some)) == digest(match(few, index)), "they do not agree"
        for _ in range(2):
            seconds(lambda: match_lake(self.spark, query, index))
            seconds(lambda: match(events, index))

    def _sampled(self, name: str, make: Callable[[DataFrame], DataFrame], days: int) -> dict[str, Any]:
        """The events a second of a baseline, and the processor's time, on the events of some days."""
        _, events = self.days(days)
        count = events.count()
        runs = [_run(lambda: make(events)) for _ in range(3 if days != 1 else 1)]
        return {
            name: count / min(wall for wall, _ in runs),
            f"{name}, sample": count,
            f"{name}, µs an event": min(spent for _, spent in runs) / count * 1e6,
        }


def matching(spark: SparkSession, lake: str, count: int) -> list[dict[str, Any]]:
    """A row for each number of subscriptions."""
    bench, table = Bench(spark, lake, count), []
    for number in (1_000, 10_000, 100_000):
        table.append(bench.row(number))
        print(json.dumps(table[-1]), flush=True)
    return table


def replays(lake: str, count: int) -> list[dict[str, Any]]:
    """The share of a lake's bytes that the replay of one in a thousand events reads, by what selects them.

    Large files are clustered by `device`, which nobody told: it has the most values that recur.
    """
    total = sum(file.size for file in Lake(lake).files())
    last = count // 10
    questions = {
        "a rare event type": "bench.Alarm: true",
        "an attribute that grows with time": f"order between {last // 2} and {last // 2 + last // 1000}",
        "one value of a scattered attribute, by which files are clustered": "device = 7",
        "scattered attributes by which files are not clustered": 's1 = "word07" and n0 < 100',
    }
    table = []
    for _ in Lake(lake).scan(filter="device = 1"):  # whatever is loaded once
        pass
    for what, text in questions.items():
        before, rows = _bytes_read(), 0
        for _ in Lake(lake).events(filter=text):  # in order of time
            rows += 1
        read = _bytes_read() - before
        table.append(
            {
                "selected by": what,
                "events": rows,
                "share of events": rows / count,
                "share of bytes": read / total,
            }
        )
        print(json.dumps(table[-1]), flush=True)
    return table


def _bytes_read() -> int:
    """What this thread has read so far, from wherever."""
    fields = dict(line.split(": ") for line in Path("/proc/thread-self/io").read_text().splitlines())
    return int(fields["rchar"])


# ---------------------------------------------------------------- the docs


def targets(table: list[dict[str, Any]], replayed: list[dict[str, Any]]) -> dict[str, tuple[float, str]]:
    """What was asked for: what was measured, and the target."""
    small, medium, large = table
    best = "match, from a lake"
    return {
        "cross join, 1,000 subscriptions": (small[best] / small["cross join"], "at least 10 times"),
        "NumPy masks, 1,000 subscriptions": (small[best] / small["NumPy masks"], "at least 3 times"),
        "NumPy masks, 10,000 subscriptions": (medium[best] / medium["NumPy masks"], "at least 100 times"),
        "time of 100,000 / time of 10,000 subscriptions": (medium[best] / large[best], "below 6"),
        "share of bytes read, rare type": (replayed[0]["share of bytes"], "below 0.05"),
        "share of bytes read, grows with time": (replayed[1]["share of bytes"], "below 0.05"),
        "share of bytes read, one scattered value": (replayed[2]["share of bytes"], "below 0.05"),
    }


def write_docs(result: dict[str, Any]) -> None:
    """Write our section of the page."""
    names = ("match, from a lake", "match, of a data frame", "NumPy masks", "cross join")
    lines = [
        "<!-- pipeline:begin -->",
        "## The pipeline",
        "",
        f"Written by `python bench/pipeline.py --write-docs` on {result['date']}: {result['events']:,}",
        f"events of ten attributes, Spark {result['spark']}, {result['cores']} cores, {MATCHES} matches each",
        "throughout. Events a second, with reading the lake and without keeping the result, the fastest of",
        "three runs. Slow baselines are measured on the events of the first days (how many is in brackets),",
        "and their rate is taken to be the same for all.",
        "",
        "| subscriptions | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for row in result["matching"]:
        cells = []
        for name in names:
            sample = f" ({row[name + ', sample']:,})" if f"{name}, sample" in row else ""
            cells.append(f"{row[name]:,.0f}{sample}" if name in row else "")
        lines.append(f"| {row['subscriptions']:,} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Microseconds of processor time an event, in all processes. The kernel matches and makes pairs;",
        "Spark's is what is left: its workers, its JVM that takes pairs, and what the JVM still compiles.",
        "",
        "| subscriptions | reading | kernel | Spark | all | NumPy masks, all |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["matching"]:
        read, matched, whole = (row[f"{name}, µs an event"] for name in ("reading", "kernel", "all"))
        theirs = row.get("NumPy masks, µs an event")
        cells = [read, matched, whole - read - matched, whole, *([theirs] if theirs else [])]
        cells = [f"{cell:.2f}" for cell in cells] + [""] * (5 - len(cells))
        lines.append(f"| {row['subscriptions']:,} | " + " | ".join(cells) + " |")
    lines += ["", "| | measured | target |", "|---|---|---|"]
    lines += [f"| {name} | {value:,.3g} | {target} |" for name, (value, target) in result["targets"].items()]
    lines += [
        "",
        f"Replay, in order of time, of about one in a thousand of {result['events replayed']:,} events:",
        "",
        "| selected by | events | of the bytes |",
        "|---|---|---|",
    ]
    lines += [
        f"| {row['selected by']} | {row['events']:,} | {row['share of bytes']:.2%} |"
        for row in result["replay"]
    ]
    lines.append("<!-- pipeline:end -->")
    text = DOCS.read_text("utf-8")
    head, _, rest = text.partition("<!-- pipeline:begin -->")
    tail = rest.partition("<!-- pipeline:end -->")[2]
    DOCS.write_text(head.rstrip() + "\n\n" + "\n".join(lines) + (tail or "\n"), "utf-8")


def written(lake: Path, count: int) -> str:
    """A lake with so many events, written as Spark writes it."""
    started = time.perf_counter()
    sink = LakeSink(str(lake), "bench")
    sink.commit(sink.stage(batches(count)).files, 0)
    print(json.dumps({"events": count, "writing the lake, s": time.perf_counter() - started}), flush=True)
    return str(lake)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--five-million", action="store_true", help="match 5,000,000 events")
    parser.add_argument("--replayed", type=int, default=5_000_000, help="events of the lake that is replayed")
    parser.add_argument("--write-docs", action="store_true")
    options = parser.parse_args()
    count = 5_000_000 if options.five_million else options.events
    place = Path(tempfile.mkdtemp(prefix="angelia-bench-"))
    spark = open_session()
    try:
        table = matching(spark, written(place / "matched", count), count)
        shutil.rmtree(place / "matched")
        replayed = replays(written(place / "replayed", options.replayed), options.replayed)
        result = {
            "date": date.today().isoformat(),
            "events": count,
            "events replayed": options.replayed,
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "spark": spark.version,
            "matching": table,
            "replay": replayed,
            "targets": targets(table, replayed),
        }
        print(json.dumps(result, indent=2))
        if options.write_docs:
            write_docs(result)
    finally:
        spark.stop()
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
