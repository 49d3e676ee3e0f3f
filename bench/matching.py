"""The matching engine against what one would otherwise do, in one run: `python bench/matching.py`.

Prints JSON. The default goes to 100,000 filters, `--quick` to 10,000 (a minute of CPU time, and what it takes
to compile once), `--full` to a million. `--write-docs` also writes its section of `docs/benchmarks.md` and
the plot. Rates are by CPU time of this process, the best of several repetitions; all engines have to find the
same filters.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench")]  # it runs from a checkout, installed or not

# ruff: noqa: E402
import pyarrow as pa

from angelia import Filter, attr
from angelia.matching import Matcher
from baselines import AccessPredicate, Naive, Roaring
from matching_report import MICRO, TARGETS, write_docs
from report import machine, today
from workload import WORST, WorstCase, events, filters, standard

BATCHES = (512, 8192)


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


def built(make: Callable[[Any], Any], some: Any) -> tuple[Any, float]:
    """What is made of some filters, and how many seconds of CPU time that took."""
    gc.collect()
    gc.freeze()  # or the collector walks over all filters again and again
    started = time.process_time()
    made = make(some)
    return made, time.process_time() - started


def compiled(some: Mapping[int, Filter]) -> Matcher:
    """A matcher with the filters."""
    matcher = Matcher(engine="compiled")
    matcher.add_all(some)
    return matcher


def pure(some: Sequence[Filter]) -> Matcher:
    """The same, in pure Python."""
    matcher = Matcher(engine="pure")
    matcher.add_all(enumerate(some))
    return matcher


def by_number(some: Sequence[Filter]) -> dict[int, Filter]:
    """Filters with ids."""
    return dict(enumerate(some))


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
    matcher, build = built(compiled, by_number(some))
    for _ in range(2 if count <= 100_000 else 0):  # the best of three, as everywhere
        build = min(build, built(compiled, by_number(some))[1])
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
    for size in MICRO:
        lists = [rows[i : i + size] for i in range(0, len(rows), size)]
        result[f"events_{size}"] = rate(matcher.match_events, lists, seconds / 2, size)
    result["links"] = _links(some, rows, seconds)
    baselines: dict[str, Any] = {"pure": pure, "b2": AccessPredicate, "roaring": Roaring, "naive": Naive}
    for name, make in baselines.items():
        note(f"  {name}")
        engine, result[f"{name}_build_s"] = built(make, some)
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


def micro_batches() -> dict[str, float]:
    """Lists of 128 dictionaries of 10 attributes: microseconds an event."""
    note("micro-batches")
    draw = random.Random(4)
    rows = [
        {f"a{j}": f"value {draw.randrange(50)}" if j < 5 else draw.random() * 1000 for j in range(9)}
        | {"key": draw.randrange(1000)}
        for _ in range(128)
    ]
    nothing, equal = Matcher(engine="compiled"), Matcher(engine="compiled")
    nothing.add_all(
        [(i, (attr(f"a{i % 5}") == f"no {i}") & (attr(f"a{5 + i % 4}") > 500)) for i in range(1000)]
    )
    equal.add_all(
        [(i, (attr("key") == i // 10) & attr("a0").exists() & (attr("b") == 1)) for i in range(10_000)]
    )
    hit = [row | {"b": 1} for row in rows]
    assert nothing.match_events(rows)[1].size == 0
    assert equal.match_events(hit)[1].size == 10 * len(hit)
    return {
        "nothing_us": 1e6 / rate(nothing.match_events, [rows] * 100, 0.5, len(rows)),
        "equalities_us": 1e6 / rate(equal.match_events, [hit] * 100, 0.5, len(hit)),
    }


def worst_row(case: WorstCase, count: int, seconds: float) -> dict[str, Any]:
    """A worst case against B2."""
    note(f"worst case, {count:,} filters: {case.name}")
    some = filters(count, 2, case.make)
    draw = random.Random(3)
    rows = events(4096, 5) if case.event is None else [case.event(draw) for _ in range(4096)]
    matcher, build = built(compiled, by_number(some))
    size = 512 if case.name in ("!= only", "50% selectivity") else 4096
    result: dict[str, Any] = {"case": case.name, "filters": count, "build_us": build / count * 1e6}
    result["bytes"] = matcher.stats().bytes / count
    result["constraints"] = sum(len(c.conditions) for each in some for c in each.conjunctions) / count
    b2 = AccessPredicate(some)
    result["matches"] = check_equal({"b2": b2.match, "match": matcher.match}, matcher, rows[:4])
    offsets, _ = matcher.match_batch(table_of(rows[:size]))
    result["matches"] = float(offsets[-1]) / size
    result["batch"] = rate(matcher.match_batch, batches_of(rows, size), seconds, size)
    result["single"] = rate(matcher.match, rows, seconds)
    result["b2"] = rate(b2.match, rows, seconds)
    return result


# ---------------------------------------------------------------- changes and starts


def spread(times: list[float]) -> dict[str, float]:
    """Percentiles, in milliseconds."""
    times.sort()
    return {
        name: 1e3 * times[min(len(times) - 1, int(len(times) * share))]
        for name, share in (("median", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("longest", 1.0))
    }


class Watch:
    """Times of the clock and of the thread's CPU, and the longest pause of the garbage collector."""

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.cpu: list[float] = []
        self.collector = 0.0
        self._begun = 0.0

    def __enter__(self) -> Watch:
        gc.callbacks.append(self._collect)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._collect)

    def _collect(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._begun = time.perf_counter()
        else:
            self.collector = max(self.collector, time.perf_counter() - self._begun)

    def call(self, work: Callable[..., Any], *arguments: Any) -> None:
        """Do something, and take its time."""
        clock, cpu = time.perf_counter(), time.thread_time()
        work(*arguments)
        self.cpu.append(time.thread_time() - cpu)
        self.clock.append(time.perf_counter() - clock)

    def result(self) -> dict[str, Any]:
        """What was seen."""
        longest = self.collector * 1e3
        return {"clock": spread(self.clock), "cpu": spread(self.cpu), "collector_ms": longest}


def matching_while(
    matcher: Matcher, rows: list[dict[str, Any]], meanwhile: Callable[[], None]
) -> dict[str, Any]:
    """How long matches take while another thread does something."""
    other = threading.Thread(target=meanwhile)
    with Watch() as watch:
        other.start()
        while other.is_alive():
            for row in rows:
                watch.call(matcher.match, row)
    return watch.result()


def changes(some: Sequence[Filter], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Adding and removing while matching goes on, with the garbage collector on; filters that were loaded
    before are frozen, as the guide says.
    """
    note(f"changes on {len(some):,} filters")
    late = some[-min(len(some) // 2, 20_000) :]
    matcher = compiled(by_number(some[: len(some) - len(late)]))
    gc.collect()
    gc.freeze()
    started = time.process_time()
    with Watch() as watch:
        for i, each in enumerate(late):
            watch.call(matcher.add, ("late", i), each)
    while matcher.stats().rebuilding:
        time.sleep(0.01)
    added = (time.process_time() - started) / len(late)
    removed = len(some) // 10
    started = time.process_time()
    for i in range(removed):
        matcher.remove(i)
    remove = (time.process_time() - started) / removed
    while matcher.stats().rebuilding:
        time.sleep(0.01)
    begun = time.perf_counter()
    during = matching_while(matcher, rows, matcher.compact)
    took = min(5.0, time.perf_counter() - begun)
    result = {
        "filters": len(some),
        "added": len(late),
        "add_us": added * 1e6,
        "add": watch.result(),
        "remove_us": remove * 1e6,
        "match_during_rebuild": during,
        "match_otherwise": matching_while(matcher, rows, lambda: time.sleep(took)),
    }
    if len(some) <= 100_000:
        result["pickle_mb"] = len(pickle.dumps(matcher.snapshot())) / 1e6
    gc.unfreeze()
    return result


COLD_START = """
import asyncio, json, time
from angelia import Filter
from angelia.matching import Matcher
from angelia.matching.ready import readiness
m = Matcher()
for i in range(3000):
    m.add(i, Filter.parse(f"x = {i % 500} and y > {i % 7}"))

async def main():
    gaps, before = [], time.perf_counter()
    started = before
    while m.stats().engine == "pure" and readiness.problem is None:
        m.match({"x": 3, "y": 9})
        await asyncio.sleep(0.0005)
        now = time.perf_counter()
        gaps.append(now - before)
        before = now
    gaps.sort()
    print(json.dumps({
        "ready_s": before - started,
        "longest_ms": gaps[-1] * 1e3, "p99.9_ms": gaps[int(len(gaps) * 0.999)] * 1e3,
        "over_5_ms": sum(gap > 0.005 for gap in gaps), "gaps": len(gaps), "problem": readiness.problem,
    }))

asyncio.run(main())
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


def main() -> None:
    """Run everything and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 10,000 filters only")
    parser.add_argument("--full", action="store_true", help="up to a million filters")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md and its plot")
    options = parser.parse_args()
    largest = 10_000 if options.quick else 1_000_000 if options.full else 100_000
    sizes = [size for size in TARGETS if size <= largest]
    seconds, begun = 0.3 if options.quick else 1.0, time.perf_counter()
    compiled(by_number(filters(1_000)))  # loads the kernels, which is no part of building
    note("making filters and events")
    gc.disable()
    some = filters(sizes[-1], 1, standard)
    gc.enable()
    rows = events(2 * BATCHES[1], 7)
    result: dict[str, Any] = {
        "date": today(),
        "options": " ".join(sys.argv[1:]),
        "machine": machine(),
        "cold_start": cold_starts(),
        "standard": [standard_row(some[:size], rows, seconds) for size in sizes],
        "micro": micro_batches(),
        "changes": [changes(some[:size], rows[:100]) for size in sizes if size >= 10_000],
        "worst": [
            worst_row(case, size, seconds / 2)
            for case in WORST
            for size in sizes
            if 10_000 <= size <= 100_000
        ],
    }
    result["minutes"] = (time.perf_counter() - begun) / 60
    if options.write_docs:
        write_docs(result)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
