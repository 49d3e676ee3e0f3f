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
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from angelia.pipeline import match, match_lake, open_session
from angelia.pipeline.index import Index
from angelia.pipeline.matching import pairs
from angelia.pipeline.options import Query, query_of
from angelia.pipeline.pieces import Piece, scan_of
from angelia.pipeline.sinks import LakeSink
from angelia.store import Lake, LakeFile
from bulk import MATCHES, SIMPLE, STANDARD, Rule, Workload, cross_join, masks, rules

Tables = dict[str, list[dict[str, Any]]]  # by the workload's name, a row for each number of subscriptions
DOCS = Path(__file__).parent.parent / "docs" / "benchmarks.md"
MASKS, PLAIN = "NumPy masks", "NumPy masks, strings as they are"


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


def kernel(lake: str, type_name: str, index: Index) -> tuple[float, float]:
    """Microseconds of processor time that an event takes in this process: to be read, and to be matched."""
    rows, spent = 0, [0.0, 0.0]
    query = query_of({"lake": lake, "type": type_name})
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

    def __init__(self, spark: SparkSession, workload: Workload, lake: str, count: int) -> None:
        self.spark, self.workload, self.lake, self.count = spark, workload, lake, count
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
        made = self.workload.filters(number)
        some, index = rules(made), Index.of(dict(enumerate(made)))
        found = self._check(some, index)
        reading, matching = kernel(self.lake, self.workload.type, index)
        ours = [_run(lambda: match_lake(self.spark, self.query, index)) for _ in range(3)]
        row = {
            "subscriptions": number,
            "matches an event": found,
            "match, from a lake": self.count / min(wall for wall, _ in ours),
            "match, of a data frame": self.count / seconds(lambda: match(self.events, index), 3),
            "reading, µs an event": reading,
            "kernel, µs an event": matching,
            "all, µs an event": min(spent for _, spent in ours) / self.count * 1e6,
        }
        if number in self.workload.masks:
            days = self.workload.masks[number]
            row |= self._sampled(MASKS, lambda frame: self._masks(frame, some), days)
        if number in self.workload.plain:
            days = self.workload.plain[number]
            row |= self._sampled(PLAIN, lambda frame: self._masks(frame, some, coded=False), days)
        if self.workload.joins and number == 1_000:
            row |= self._sampled("cross join", lambda frame: cross_join(frame, some), 1)
        return row

    def _masks(self, events: DataFrame, some: list[Rule], coded: bool = True) -> DataFrame:
        return masks(events, some, stops=self.workload.stops, coded=coded)

    def _check(self, some: list[Rule], index: Index) -> float:
        """They agree, and how many matches an event has.

        And everything is loaded, and compiled by the JVM, before something is measured.
        """
        query, events = self.days(1)
        wanted = digest(match_lake(self.spark, query, index))
        assert digest(match(events, index)) == wanted, "they do not agree"
        if len(some) in self.workload.masks:
            assert digest(self._masks(events, some)) == wanted, "they do not agree"
        if len(some) in self.workload.plain:
            assert digest(self._masks(events, some, coded=False)) == wanted, "they do not agree"
        if self.workload.joins and len(some) == 1_000:
            few = events.limit(5_000).localCheckpoint()
            assert digest(cross_join(few, some)) == digest(match(few, index)), "they do not agree"
        for _ in range(2):
            seconds(lambda: match_lake(self.spark, query, index))
            seconds(lambda: match(events, index))
        return float(wanted[0] / events.count())

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


def matching(spark: SparkSession, workload: Workload, place: Path, count: int) -> list[dict[str, Any]]:
    """A row for each number of subscriptions, on a lake that is there meanwhile."""
    bench, table = Bench(spark, workload, written(place, workload, count), count), []
    for number in workload.sizes:
        table.append(bench.row(number))
        print(json.dumps({"workload": workload.name} | table[-1]), flush=True)
    shutil.rmtree(place)
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


def targets(tables: Tables, replayed: list[dict[str, Any]]) -> dict[str, tuple[float, str]]:
    """What was asked for: what was measured, and the target."""
    small, medium, large = tables[SIMPLE.name]
    best = "match, from a lake"
    wanted = {1_000: "at least 3 times", 10_000: "at least 100 times"}
    over_masks = {
        f"{baseline}, {row['subscriptions']:,} subscriptions, {name}": (
            row[best] / row[baseline],
            wanted[row["subscriptions"]],
        )
        for name, table in tables.items()
        for row in table
        for baseline in (MASKS, PLAIN)
        if baseline in row
    }
    return {
        "cross join, 1,000 subscriptions": (small[best] / small["cross join"], "at least 10 times"),
        **over_masks,
        "time of 100,000 / time of 10,000 subscriptions": (medium[best] / large[best], "below 6"),
        "share of bytes read, rare type": (replayed[0]["share of bytes"], "below 0.05"),
        "share of bytes read, grows with time": (replayed[1]["share of bytes"], "below 0.05"),
        "share of bytes read, one scattered value": (replayed[2]["share of bytes"], "below 0.05"),
    }


def write_docs(result: dict[str, Any]) -> None:
    """Write our section of the page."""
    lines = [
        "<!-- pipeline:begin -->",
        "## The pipeline",
        "",
        f"Written by `python bench/pipeline.py --write-docs` on {result['date']}: {result['events']:,}",
        f"events of ten attributes, Spark {result['spark']}, {result['cores']} cores. Events a second, with",
        "reading the lake and without keeping the result, the fastest of three runs. Slow baselines are",
        "measured on the events of the first days (how many is in brackets), and their rate is taken to be",
        "the same for all. Masks compare words as integers, told apart once a batch, or else strings as they",
        "are, which is what one writes first; they stop when no row is left where that is faster. Then",
        "microseconds of processor time an event, in all processes: the",
        "kernel matches and makes pairs; Spark's is what is left: its workers, its JVM that takes pairs, and",
        "what the JVM still compiles.",
        "",
    ]
    for name, table in result["matching"].items():
        lines += [f"### {name[0].upper()}{name[1:]}", "", *ABOUT[name], "", *_rates(table), ""]
        lines += [*_shares(table), ""]
    lines += ["### Targets", "", "| match, from a lake, against | measured | target |", "|---|---|---|"]
    lines += [f"| {name} | {value:,.3g} | {target} |" for name, (value, target) in result["targets"].items()]
    lines += [
        "",
        "### Replay",
        "",
        f"In order of time, of about one in a thousand of {result['events replayed']:,} events:",
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


ABOUT = {
    SIMPLE.name: [
        "Filters of a word and a range, or of two ranges: few comparisons, where masks are at their best.",
        f"They are the narrower the more there are: an event has {MATCHES} matches throughout.",
    ],
    STANDARD.name: [
        "Events and filters of the matching benchmark: one to four constraints, half of them equalities of",
        "strings, 10% prefixes, 30% on numbers, 10% `!=`, exists, suffix or contains. With 10,000",
        "subscriptions, each has one more range on a number, which a tenth of the events is in, so that an",
        "event has about as many matches as with 1,000.",
    ],
}


def _rates(table: list[dict[str, Any]]) -> Iterable[str]:
    """Events a second, in Markdown."""
    names = ("match, from a lake", "match, of a data frame", MASKS, PLAIN, "cross join")
    names = tuple(name for name in names if name in table[0])
    yield "| subscriptions | matches an event | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 2) + "|"
    for row in table:
        cells = [f"{row['subscriptions']:,}", f"{row['matches an event']:.1f}"]
        for name in names:
            sample = f" ({row[name + ', sample']:,})" if f"{name}, sample" in row else ""
            cells.append(f"{row[name]:,.0f}{sample}" if name in row else "")
        yield "| " + " | ".join(cells) + " |"


def _shares(table: list[dict[str, Any]]) -> Iterable[str]:
    """Microseconds of processor time, in Markdown."""
    yield "| subscriptions | reading | kernel | Spark | all | NumPy masks, all |"
    yield "|---|---|---|---|---|---|"
    for row in table:
        read, matched, whole = (row[f"{name}, µs an event"] for name in ("reading", "kernel", "all"))
        cells = [f"{cell:.2f}" for cell in (read, matched, whole - read - matched, whole)]
        theirs = row.get(f"{MASKS}, µs an event")
        cells.append(f"{theirs:.2f}" if theirs else "")
        yield f"| {row['subscriptions']:,} | " + " | ".join(cells) + " |"


def written(lake: Path, workload: Workload, count: int) -> str:
    """A lake with so many events, written as Spark writes it."""
    started = time.perf_counter()
    sink = LakeSink(str(lake), "bench")
    sink.commit(sink.stage(workload.batches(count)).files, 0)
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
        tables = {
            workload.name: matching(spark, workload, place / "matched", count)
            for workload in (SIMPLE, STANDARD)
        }
        replayed = replays(written(place / "replayed", SIMPLE, options.replayed), options.replayed)
        result = {
            "date": date.today().isoformat(),
            "events": count,
            "events replayed": options.replayed,
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "spark": spark.version,
            "matching": tables,
            "replay": replayed,
            "targets": targets(tables, replayed),
        }
        print(json.dumps(result, indent=2))
        if options.write_docs:
            write_docs(result)
    finally:
        spark.stop()
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
