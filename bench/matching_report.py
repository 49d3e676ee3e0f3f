"""What `bench/matching.py` found, as a section of `docs/benchmarks.md` and a plot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from report import ROOT, short, table, write_section

MICRO = (16, 128, 512)
TARGETS = {  # filters: events a second of a batch, of single events, and the batch's ratio to B2
    1_000: (2_500_000, 300_000, 26),
    10_000: (1_000_000, 200_000, 110),
    100_000: (150_000, 60_000, 470),
    1_000_000: (25_000, 7_000, 1_000),
}


def _standard_table(rows: list[dict[str, Any]]) -> str:
    def line(name: str, value: Callable[[dict[str, Any]], str]) -> list[str]:
        return [name, *(value(row) for row in rows)]

    def versus(target: int, value: Callable[[dict[str, Any]], float]) -> Callable[[dict[str, Any]], str]:
        return lambda row: f"**{short(value(row))}** ({short(TARGETS[row['filters']][target])})"

    return table(
        ["", *(f"{row['filters']:,} filters" for row in rows)],
        [
            line("`match_batch`, 8,192 events (target)", versus(0, lambda row: row["batch_8192"])),
            line("`match_batch`, 512 events", lambda row: short(row["batch_512"])),
            line("`match_batch`, dictionary columns", lambda row: short(row["dictionary"])),
            line("`route_batch`, 64 links", lambda row: short(row["links"])),
            line("`match`, dict in, ids out (target)", versus(1, lambda row: row["single"])),
            *(
                line(f"`match_events`, {size} dicts", lambda row, size=size: short(row[f"events_{size}"]))  # type: ignore[misc]
                for size in MICRO
            ),
            line("our engine in pure Python", lambda row: short(row["pure"])),
            line("B2: access predicate in Python", lambda row: short(row["b2"])),
            line("roaring bitmaps, then verify", lambda row: short(row["roaring"])),
            line("naive loop", lambda row: short(row["naive"])),
            line("`match_batch` / B2 (target)", versus(2, lambda row: row["batch_8192"] / row["b2"])),
            line("`match_batch` / pure engine", lambda row: short(row["batch_8192"] / row["pure"])),
            line("matches an event", lambda row: short(row["matches"])),
            line(
                "build, µs a filter (target: 5, and 10 at 1,000,000)",
                lambda row: f"{row['build_us']:.1f}",
            ),
            line("index, bytes a filter (target: 100)", lambda row: f"{row['bytes']:.0f}"),
        ],
    )


def _worst_summary(rows: list[dict[str, Any]], per_match: dict[int, float]) -> str:
    """How far the worst of the worst cases is from what is allowed."""

    def least(key: str) -> str:
        row = min(rows, key=lambda row: row[key] / row["b2"])
        return (
            f"{short(row[key] / row['b2'])} times as fast as B2 ({row['case']}, {row['filters']:,} filters)"
        )

    def slow(row: dict[str, Any]) -> float:
        return float(1 / row["batch"] / row["matches"] / per_match[row["filters"]])

    row = max(rows, key=slow)
    return (
        f"At least, a batch is {least('batch')},\nand a single event {least('single')}. "
        f"At most, a match in a batch takes\n{short(slow(row))} times as long as in the standard workload "
        f"({row['case']}, {row['filters']:,} filters)."
    )


def _worst_table(rows: list[dict[str, Any]], per_match: dict[int, float]) -> str:
    return table(
        ["", "filters", "matches an event", "`match_batch`", "`match`", "B2", "batch / B2",
         "match / B2", "time a match, × standard", "bytes a filter", "bytes a constraint"],
        [
            [
                row["case"], f"{row['filters']:,}", short(row["matches"]), short(row["batch"]),
                short(row["single"]), short(row["b2"]), short(row["batch"] / row["b2"]),
                short(row["single"] / row["b2"]),
                short(1 / row["batch"] / row["matches"] / per_match[row["filters"]]),
                f"{row['bytes']:.0f}", f"{row['bytes'] / row['constraints']:.0f}",
            ]
            for row in rows
        ],
    )  # fmt: skip


def write_docs(result: dict[str, Any]) -> None:
    """The section of `docs/benchmarks.md`, and its plot."""
    rows, cold, micro = result["standard"], result["cold_start"], result["micro"]
    per_match = {row["filters"]: 1 / row["batch_8192"] / row["matches"] for row in rows}
    text = f"""## Matching

By `python bench/matching.py {result["options"]}` on {result["date"]}, on {result["machine"]}; the run took
{result["minutes"]:.0f} minutes.

Events a second on one core, by CPU time. The workload is that of `bench/workload.py`: events of 10
attributes, filters of one to four constraints, half of which are equalities of strings, 10% prefixes, 30%
ranges of numbers, 10% `!=`, `exists`, suffixes and parts. All engines run on the same filters and events in
one run, and have to find the same filters. Targets are in brackets.

{_standard_table(rows)}

B2 files a filter under its rarest equality and verifies what a value leads to; filters without one are all
verified, those with a range or prefix together by attribute. Our own engine in pure Python, which works where
nothing is compiled, also files ranges, prefixes and texts. Builds are by CPU time, with the collector as
`add_all` has it.

![Events a second by number of filters](img/matching.svg)

From {rows[0]["filters"]:,} to {
        rows[-1]["filters"]:,} filters the time of an event in a batch grows by a factor of
{short(rows[0]["batch_8192"] / rows[-1]["batch_8192"])}, and the number of its matches by {
        short(rows[-1]["matches"] / rows[0]["matches"])
    }.

Lists of 128 dictionaries of 10 attributes (`match_events`): {
        micro["nothing_us"]:.2f} µs an event against 1,000 filters
of which none matches, {micro["equalities_us"]:.2f} µs against 10,000 filters of which 10 match.

### Worst cases

No case may fall behind B2, nor take more than 50 times the time of the standard workload for a match.

{_worst_table(result["worst"], per_match)}

{_worst_summary(result["worst"], per_match)}

The bound of 100 bytes a filter is one for the standard workload, whose filters have 2.5 constraints. What an
index takes grows with the constraints, and with how many of them are no other filter's.

### Changes

Filters are added one by one, then a tenth is removed, then all are rebuilt in another thread while this one
matches. The garbage collector is on; what was loaded before is frozen (`gc.freeze()`). A pause by the clock
includes what else the machine had to do, which the control shows, in which nothing is rebuilt; one by the
thread's CPU time is only what the call did itself.

{_changes_table(result["changes"])}

### Cold start

What an asyncio loop sees that matches all the while, from the start of a process until its filters are
compiled:

{
        table(
            ["", "until compiled, s", "longest gap, ms", "99.9%, ms", "gaps above 5 ms"],
            [
                [
                    name,
                    f"{of['ready_s']:.1f}",
                    f"{of['longest_ms']:.0f}",
                    f"{of['p99.9_ms']:.1f}",
                    f"{of['over_5_ms']} of {of['gaps']:,}",
                ]
                for name, of in cold.items()
            ],
        )
    }

Until then the pure engine answers. Kernels are compiled by another process.
"""
    (ROOT / "docs" / "img").mkdir(parents=True, exist_ok=True)
    write_section("matching", text)
    _plot(rows, ROOT / "docs" / "img" / "matching.svg")


def _changes_table(changed: list[dict[str, Any]]) -> str:
    def line(name: str, value: Callable[[dict[str, Any]], str], target: str = "") -> list[str]:
        return [name, *(value(each) for each in changed), target]

    def pauses(key: str, kind: str) -> Callable[[dict[str, Any]], str]:
        return lambda each: f"{each[key][kind]['p99.9']:.2f} / {each[key][kind]['longest']:.2f} ms"

    return table(
        ["", *(f"{each['filters']:,} filters" for each in changed), "target"],
        [
            line("`add`, amortised, with all rebuilding", lambda each: f"{each['add_us']:.1f} µs", "50 µs"),
            line("`add`, 99.9% / longest, by the clock", pauses("add", "clock"), "5 ms"),
            line("the same, CPU", pauses("add", "cpu")),
            line("longest collection meanwhile", lambda each: f"{each['add']['collector_ms']:.1f} ms"),
            line("`remove`", lambda each: f"{each['remove_us']:.1f} µs", "5 µs"),
            line("`match` during a rebuild, by the clock", pauses("match_during_rebuild", "clock"), "5 ms"),
            line("the same, CPU", pauses("match_during_rebuild", "cpu")),
            line("the control: `match` without a rebuild", pauses("match_otherwise", "clock")),
            line("the same, CPU", pauses("match_otherwise", "cpu")),
            line(
                "pickled snapshot",
                lambda each: f"{each['pickle_mb']:.1f} MB" if "pickle_mb" in each else "",
                "well under 100 MB",
            ),
        ],
    )


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
