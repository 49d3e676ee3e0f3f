"""The matching engine against what one would otherwise do, in one run: `python bench/matching.py`.

Prints JSON. `--quick` stops at 10,000 filters (under a minute), the default goes to a million (under ten).
`--write-docs` also writes `docs/benchmarks.md` and its plot. Times are CPU time of this process, the best of
several repetitions; every engine has to find the same filters.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench")]  # it runs from a checkout, installed or not

# ruff: noqa: E402
import pyarrow as pa

from angelia import Filter
from angelia.matching import Matcher
from baselines import AccessPredicate, Naive, Roaring
from workload import WORST, WorstCase, events, filters, standard

BATCHES = (512, 8192)
TARGETS = {  # filters: events a second of a batch, of single events, and the batch's ratio to B2
    1_000: (2_500_000, 300_000, 26),
    10_000: (1_000_000, 200_000, 110),
    100_000: (150_000, 60_000, 470),
    1_000_000: (25_000, 7_000, 1_000),
}


def note(text: str) -> None:
    """Say on standard error what is going on."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- measuring


def rate(work: Callable[[Any], Any], things: Sequence[Any], seconds: float, weight: int = 1) -> float:
    """How many things (of `weight` events) are done in a second of CPU time; the best of three."""
    started, count = time.process_time(), 0
    while count < len(things) and (count == 0 or time.process_time() - started < seconds):
        work(things[count])
        count += 1
    best = min(_timed(work, things[:count]) for _ in range(3))
    return weight * count / best


def _timed(work: Callable[[Any], Any], things: Sequence[Any]) -> float:
    started = time.process_time()
    for thing in things:
        work(thing)
    return time.process_time() - started


def built(make: Callable[[], Any]) -> tuple[Any, float]:
    """What is made, and how many seconds of CPU time that took."""
    gc.collect()
    gc.freeze()  # or the collector walks over all filters again and again
    started = time.process_time()
    made = make()
    return made, time.process_time() - started


def compiled(some: Sequence[Filter]) -> Matcher:
    """A matcher with the filters."""
    matcher = Matcher(engine="compiled")
    matcher.add_all(list(enumerate(some)))
    return matcher


def pure(some: Sequence[Filter]) -> Matcher:
    """The same, in pure Python."""
    matcher = Matcher(engine="pure")
    matcher.add_all(list(enumerate(some)))
    return matcher


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    """Events as a table of plain columns."""
    names = sorted({name for row in rows for name in row})
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def batches_of(rows: list[dict[str, Any]], size: int) -> list[pa.RecordBatch]:
    """Events as record batches."""
    return table_of(rows).combine_chunks().to_batches(max_chunksize=size)


def check_equal(
    engines: dict[str, Callable[[Any], list[int]]], matcher: Matcher, rows: list[dict[str, Any]]
) -> float:
    """Fail unless all engines find the same; how many filters match an event."""
    offsets, ids = matcher.match_batch(table_of(rows))
    for i, row in enumerate(rows):
        want = sorted(ids[offsets[i] : offsets[i + 1]].tolist())
        for name, match in engines.items():
            found = sorted(match(row))
            assert found == want, f"{name} finds {len(found)} filters, the batch {len(want)}"
    return float(offsets[-1]) / len(rows)


# ---------------------------------------------------------------- the tables


def standard_row(some: Sequence[Filter], rows: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """All engines on the standard workload."""
    count = len(some)
    note(f"standard workload, {count:,} filters")
    matcher, build = built(lambda: compiled(some))
    result: dict[str, Any] = {"filters": count, "build_us": build / count * 1e6, "build_s": build}
    result["bytes"] = matcher.stats().bytes / count
    result["matches"] = check_equal({"match": matcher.match}, matcher, rows[:256])
    for size in BATCHES:
        batches = batches_of(rows, size)
        result[f"batch_{size}"] = rate(matcher.match_batch, batches, seconds, size)
    dictionary = table_of(rows)
    for name in ("s0", "s1", "s2", "s3"):
        place = dictionary.schema.names.index(name)
        dictionary = dictionary.set_column(place, name, dictionary[name].dictionary_encode())
    encoded = dictionary.combine_chunks().to_batches(max_chunksize=BATCHES[1])
    result["dictionary"] = rate(matcher.match_batch, encoded, seconds, BATCHES[1])
    result["single"] = rate(matcher.match, rows, seconds)
    result["links"] = _links(some, rows, seconds)
    baselines: dict[str, Any] = {"pure": pure, "b2": AccessPredicate, "roaring": Roaring, "naive": Naive}
    for name, make in baselines.items():
        note(f"  {name}")
        engine, result[f"{name}_build_s"] = built(lambda make=make: make(some))  # type: ignore[misc]
        check_equal({name: engine.match}, matcher, rows[: 2 if count >= 100_000 else 20])
        result[name] = rate(engine.match, rows, seconds / 2)
        del engine
    return result


def _links(some: Sequence[Filter], rows: list[dict[str, Any]], seconds: float) -> float:
    """Batches that ask for links only, of which there are 64."""
    matcher = Matcher(engine="compiled")
    for link in range(64):
        matcher.add_all([(i, some[i]) for i in range(link, len(some), 64)], link)
    matcher.compact()
    return rate(matcher.route_batch, batches_of(rows, BATCHES[1]), seconds, BATCHES[1])


def worst_row(case: WorstCase, count: int, seconds: float) -> dict[str, Any]:
    """A worst case against B2."""
    note(f"worst case, {count:,} filters: {case.name}")
    some = filters(count, 2, case.make)
    draw = random.Random(3)
    rows = events(4096, 5) if case.event is None else [case.event(draw) for _ in range(4096)]
    matcher, build = built(lambda: compiled(some))
    size = 512 if case.name in ("!= only", "50% selectivity") else 4096
    result: dict[str, Any] = {"case": case.name, "filters": count, "build_us": build / count * 1e6}
    result["bytes"] = matcher.stats().bytes / count
    b2 = AccessPredicate(some)
    result["matches"] = check_equal({"b2": b2.match, "match": matcher.match}, matcher, rows[:4])
    offsets, _ = matcher.match_batch(table_of(rows[:size]))
    result["matches"] = float(offsets[-1]) / size
    result["batch"] = rate(matcher.match_batch, batches_of(rows, size), seconds, size)
    result["single"] = rate(matcher.match, rows, seconds)
    result["b2"] = rate(b2.match, rows, seconds)
    result["pure"] = rate(pure(some).match, rows, seconds)
    return result


# ---------------------------------------------------------------- changes and starts


def longest_match(matcher: Matcher, rows: list[dict[str, Any]], meanwhile: Callable[[], None]) -> float:
    """How many seconds of the clock the longest match takes while another thread does something."""
    other = threading.Thread(target=meanwhile)
    other.start()
    longest = 0.0
    while other.is_alive():
        for row in rows:
            started = time.perf_counter()
            matcher.match(row)
            longest = max(longest, time.perf_counter() - started)
    return longest


def changes(some: Sequence[Filter], rows: list[dict[str, Any]]) -> dict[str, float]:
    """Adding and removing while matching goes on, and how long a match ever took."""
    note(f"changes on {len(some):,} filters")
    matcher = compiled(some[: len(some) // 2])
    late = some[len(some) // 2 :]
    gc.collect()
    gc.disable()  # its full collections are no work of the matcher's, and take longer than any of it
    visible = 0.0
    started = time.process_time()
    for i, each in enumerate(late):
        begun = time.perf_counter()
        matcher.add(("late", i), each)
        visible = max(visible, time.perf_counter() - begun)
    while matcher.stats().rebuilding:
        time.sleep(0.01)
    added = time.process_time() - started
    started = time.process_time()
    for i in range(len(some) // 10):
        matcher.remove(i)
    removed = time.process_time() - started
    begun = time.perf_counter()
    during = longest_match(matcher, rows, matcher.compact)
    took = time.perf_counter() - begun
    gc.enable()
    return {
        "filters": len(some),
        "add_us": added / len(late) * 1e6,
        "longest_add_ms": visible * 1e3,
        "remove_us": removed / (len(some) // 10) * 1e6,
        "longest_match_during_rebuild_ms": during * 1e3,
        "longest_match_otherwise_ms": longest_match(matcher, rows, lambda: time.sleep(took)) * 1e3,
        "pickle_mb": len(pickle.dumps(matcher.snapshot())) / 1e6,
    }


COLD_START = """
import json, time
from angelia import Filter
from angelia.matching import Matcher
from angelia.matching.ready import readiness
m = Matcher()
for i in range(3000):
    m.add(i, Filter.parse(f"x = {i % 500} and y > {i % 7}"))
longest, before = 0, time.perf_counter()
started = before
while m.stats().engine == "pure" and readiness.problem is None:
    m.match({"x": 3, "y": 9})
    time.sleep(0.0005)
    now = time.perf_counter()
    longest, before = max(longest, now - before), now
print(json.dumps({"ready_s": now - started, "longest_pause_ms": longest * 1e3}))
"""


def cold_starts() -> dict[str, Any]:
    """A process that starts, without and with a cache: when it is fast, and its longest pause till then."""
    found = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("without a cache", "with a cache"):
            note(f"cold start {name}")
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NUMBA_CACHE_DIR": cache}
            done = subprocess.run(
                [sys.executable, "-c", COLD_START],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            found[name] = json.loads(done.stdout)
    return found


# ---------------------------------------------------------------- the report


def machine() -> str:
    """What this ran on."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = next((x.partition(":")[2].strip() for x in cpuinfo.open() if x.startswith("model name")), "")
    return f"{model or platform.processor()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def short(number: float) -> str:
    """A number with three significant digits."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:.3g}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _standard_table(rows: list[dict[str, Any]]) -> str:
    def line(name: str, value: Callable[[dict[str, Any]], str]) -> list[str]:
        return [name, *(value(row) for row in rows)]

    def versus(target: int, value: Callable[[dict[str, Any]], float]) -> Callable[[dict[str, Any]], str]:
        return lambda row: f"**{short(value(row))}** ({short(TARGETS[row['filters']][target])})"

    return _table(
        ["", *(f"{row['filters']:,} filters" for row in rows)],
        [
            line("`match_batch`, 8,192 events (target)", versus(0, lambda row: row["batch_8192"])),
            line("`match_batch`, 512 events", lambda row: short(row["batch_512"])),
            line("`match_batch`, dictionary columns", lambda row: short(row["dictionary"])),
            line("`route_batch`, 64 links", lambda row: short(row["links"])),
            line("`match`, dict in, ids out (target)", versus(1, lambda row: row["single"])),
            line("our engine in pure Python", lambda row: short(row["pure"])),
            line("B2: access predicate in Python", lambda row: short(row["b2"])),
            line("roaring bitmaps, then verify", lambda row: short(row["roaring"])),
            line("naive loop", lambda row: short(row["naive"])),
            line("`match_batch` / B2 (target)", versus(2, lambda row: row["batch_8192"] / row["b2"])),
            line("`match_batch` / pure engine", lambda row: short(row["batch_8192"] / row["pure"])),
            line("matches an event", lambda row: short(row["matches"])),
            line("build, µs a filter", lambda row: f"{row['build_us']:.1f}"),
            line("index, bytes a filter", lambda row: f"{row['bytes']:.0f}"),
        ],
    )


def _worst_table(rows: list[dict[str, Any]], per_match: float) -> str:
    return _table(
        ["", "matches an event", "`match_batch`", "`match`", "B2", "batch / B2",
         "match / B2", "time a match, × standard"],
        [
            [
                row["case"], short(row["matches"]), short(row["batch"]), short(row["single"]),
                short(row["b2"]),
                short(row["batch"] / row["b2"]), short(row["single"] / row["b2"]),
                short(1 / row["batch"] / row["matches"] / per_match),
            ]
            for row in rows
        ],
    )  # fmt: skip


def write_docs(result: dict[str, Any]) -> None:
    """`docs/benchmarks.md` and its plot."""
    rows, changed, cold = result["standard"], result["changes"], result["cold_start"]
    at = next(row for row in rows if row["filters"] == result["worst"][0]["filters"])
    text = f"""# Benchmarks

Written by `make bench` (`python bench/matching.py --write-docs`) on {result["date"]}, on {result["machine"]}.
Do not edit.

## Matching

Events a second on one core, by CPU time. The workload is that of `bench/workload.py`: events of 10
attributes, filters of one to four constraints. All engines run on the same filters and events in one run,
and have to find the same filters. Targets are in brackets. Absolute figures vary from run to run on a
shared machine; ratios within a run are what counts.

{_standard_table(rows)}

B2 files a filter under its best equality and verifies what a value leads to; filters without one are all
verified. Our own engine in pure Python, which works where nothing is compiled, also files ranges, prefixes
and texts.

![Events a second by number of filters](img/matching.svg)

From {rows[0]["filters"]:,} to {
        rows[-1]["filters"]:,} filters the time of an event in a batch grows by a factor of
{short(rows[0]["batch_8192"] / rows[-1]["batch_8192"])}, and the number of its matches by
{short(rows[-1]["matches"] / rows[0]["matches"])}.

## Worst cases

With {
        result["worst"][0][
            "filters"
        ]:,} filters. No case may fall behind B2, nor take more than 50 times the time of
the standard workload for a match.

{_worst_table(result["worst"], 1 / at["batch_8192"] / at["matches"])}

## Changes

On a matcher of {changed["filters"] // 2:,} filters that grows to {changed["filters"]:,}, one by one:

{
        _table(
            ["", "measured", "target"],
            [
                ["`add`, amortised, with all rebuilding", f"{changed['add_us']:.1f} µs", "50 µs"],
                [
                    "longest `add`, after which the filter counts",
                    f"{changed['longest_add_ms']:.2f} ms",
                    "5 ms",
                ],
                ["`remove`", f"{changed['remove_us']:.1f} µs", "5 µs"],
                [
                    "longest `match` while all is rebuilt in another thread",
                    f"{changed['longest_match_during_rebuild_ms']:.2f} ms",
                    "5 ms",
                ],
                ["the same without", f"{changed['longest_match_otherwise_ms']:.2f} ms", ""],
                ["pickled snapshot", f"{changed['pickle_mb']:.1f} MB", "well under 100 MB"],
            ],
        )
    }

The longest times are those of the clock, and include what else the machine had to do. Python's garbage
collector is off here: with this many filters, whoever holds them, a full collection takes some tenths of a
second, so a process that holds them should `gc.freeze()` them.

## Cold start

{
        _table(
            ["", "until compiled, s", "longest pause of a loop that matches all the while, ms"],
            [[name, f"{of['ready_s']:.1f}", f"{of['longest_pause_ms']:.0f}"] for name, of in cold.items()],
        )
    }

Until then the pure engine answers. Kernels are compiled by another process; what pauses remain are the
loading of the compiler's library and of the kernels.
"""
    (ROOT / "docs" / "img").mkdir(parents=True, exist_ok=True)
    (ROOT / "docs" / "benchmarks.md").write_text(text)
    _plot(rows, ROOT / "docs" / "img" / "matching.svg")


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "angelia"
    from matplotlib import pyplot as plt

    lines = {
        "batch_8192": "match_batch", "links": "route_batch", "single": "match", "pure": "pure Python",
        "roaring": "roaring bitmaps", "b2": "B2", "naive": "naive loop",
    }  # fmt: skip
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for key, name in lines.items():
        axes.plot([row["filters"] for row in rows], [row[key] for row in rows], marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="filters", ylabel="events a second")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Run everything and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 10,000 filters only")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md and its plot")
    options = parser.parse_args()
    sizes = [size for size in TARGETS if size <= 10_000] if options.quick else list(TARGETS)
    seconds = 0.3 if options.quick else 1.0
    compiled(filters(1_000))  # loads the kernels, which is no part of building
    note("making filters and events")
    gc.disable()
    some = filters(sizes[-1], 1, standard)
    gc.enable()
    rows = events(2 * BATCHES[1], 7)
    result: dict[str, Any] = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        "cold_start": cold_starts(),
        "standard": [standard_row(some[:size], rows, seconds) for size in sizes],
        "changes": changes(some[: min(sizes[-1], 100_000)], rows[:100]),
        "worst": [worst_row(case, 10_000, seconds / 2) for case in WORST],
    }
    if options.write_docs:
        write_docs(result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
