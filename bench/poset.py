"""How much faster the indexed poset is than one that compares each new filter with every other.

    python bench/poset.py [--filters 20000]

Prints JSON. The pairwise build asks, of each new filter and each that is there, whether one covers the other
and the other way round; what a poset has to do besides is not counted. It is timed on a part of the filters
and extrapolated by the number of pairs, all of which are compared; `--pairwise 20000` runs it to the end
(minutes). Two ratios are printed: for inserting all filters, as routers do, and for inserting them and then
asking for the immediate successors of each. Times are of CPU.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable

from angelia.filter import Filter
from angelia.filter.builder import attr
from angelia.filter.poset import Poset, subscription_poset

_letters = random.Random(7)
WORDS = [
    "".join(_letters.choices("abcdefghijklmnopqrstuvwxyz", k=_letters.randrange(4, 9))) for _ in range(10_000)
]


def word(rng: random.Random, size: int) -> str:
    """A word of a vocabulary in which the r-th is about 1/r as frequent as the first."""
    return WORDS[int(size ** rng.random()) - 1]


def constraint(rng: random.Random) -> Filter:
    """The workload of the matching notes: half equalities, ranges, prefixes and the rest."""
    text = rng.randrange(4)
    name, size = f"s{text}", 10 ** (text + 1)
    number, low = f"n{rng.randrange(4)}", rng.uniform(0, 1000)
    kind = rng.random()
    if kind < 0.5:
        return attr(name) == word(rng, size)
    if kind < 0.6:
        return attr(name).prefix(word(rng, size)[: rng.randrange(2, 4)])
    if kind < 0.75:
        return attr(number).between(low, low + rng.uniform(1, 200))
    if kind < 0.9:
        return attr(number) < low if rng.random() < 0.5 else attr(number) > low
    if kind < 0.925:
        return attr(name) != word(rng, size)
    if kind < 0.95:
        return attr(name).exists()
    if kind < 0.975:
        return attr(name).suffix(word(rng, size)[-2:])
    return attr(name).contains(word(rng, size)[1:3])


def random_filter(rng: random.Random) -> Filter:
    """A conjunction of one to four constraints that some event can match."""
    while True:
        result = constraint(rng)
        for _ in range(rng.randrange(4)):
            result = result & constraint(rng)
        if result.is_satisfiable:
            return result


SHAPES: dict[str, Callable[[int, int], str]] = {
    "ranges and prefixes": lambda i, n: (
        f'x >= {i * 7919 % 1000} and x < {i * 7919 % 1000 + 10} and h prefix "{i % 97}.rack"'
    ),
    "chain": lambda i, n: f"x < {i * 7919 % n}",
    "incomparable": lambda i, n: f"x < {i} and y < {n - i}",
    "unequal": lambda i, n: f"x != {i}",
    "parts": lambda i, n: f'x contains "{i:06}"',
    "two layers": lambda i, n: f"x > {i % 2 * 4 * n - i} and x < {i % 2 * -4 * n + 20 * n - i}",
    "alternatives": lambda i, n: f"x > {i} and x < {n + i} or y = {i}",
}


def grown(size: int) -> dict[str, dict[str, float]]:
    """Seconds for shapes that strangers may choose, at half the size and at all of it, and pairwise."""
    rows = {}
    for name, shape in SHAPES.items():
        half, whole = ([Filter.parse(shape(i, n)) for i in range(n)] for n in (size // 2, size))
        rows[name] = {
            "half_s": round(build(half)[1], 2),
            "whole_s": round(build(whole)[1], 2),
            "pairwise_s": round(extrapolated(whole, size // 16)[0], 1),
        }
    return rows


def build(filters: list[Filter]) -> tuple[Poset[Filter], float]:
    """A poset of all, and the seconds that it took."""
    poset = subscription_poset()
    start = time.process_time()
    for item in filters:
        poset.insert(item)
    return poset, time.process_time() - start


def pairwise(filters: list[Filter]) -> tuple[dict[Filter, set[Filter]], float]:
    """What covers each filter, by comparing each new one with every other, and the seconds that it took."""
    above: dict[Filter, set[Filter]] = {}
    start = time.process_time()
    for item in filters:
        uppers = {other for other in above if other.covers(item)}
        for lower in [other for other in above if item.covers(other)]:
            above[lower].add(item)
        above[item] = uppers
    return above, time.process_time() - start


def extrapolated(filters: list[Filter], part: int) -> tuple[float, float]:
    """Seconds of the pairwise build of all, by the number of pairs, and of a part of them, as measured."""
    _, seconds = pairwise(filters[:part])
    return seconds * (len(filters) * (len(filters) - 1)) / (part * (part - 1)), seconds


def is_same(filters: list[Filter]) -> bool:
    """Whether both ways give the same poset, by its roots and immediate relations."""
    poset, _ = build(filters)
    above, _ = pairwise(filters)
    return {item for item in above if not above[item]} == set(poset.roots) and all(
        poset.successors(item) == uppers.difference(*(above[upper] for upper in uppers))
        for item, uppers in above.items()
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filters", type=int, default=20_000)
    parser.add_argument("--pairwise", type=int, default=2_000, help="filters of the pairwise build")
    parser.add_argument("--shapes", type=int, default=8_000, help="filters of each further shape")
    args = parser.parse_args()
    rng = random.Random(20260101)
    distinct: dict[Filter, None] = {}
    while len(distinct) < args.filters:
        distinct[random_filter(rng)] = None
    filters = list(distinct)
    _, half = build(filters[: args.filters // 2])
    poset, seconds = build(filters)
    start = time.process_time()
    relations = sum(len(poset.successors(item)) for item in filters)
    asked = time.process_time() - start
    baseline, measured = extrapolated(filters, args.pairwise)
    row = {
        "benchmark": "poset",
        "filters": len(poset),
        "roots": len(poset.roots),
        "insert_half_s": round(half, 2),
        "insert_s": round(seconds, 2),
        "inserted_per_s": round(len(filters) / seconds),
        "relations": relations,
        "relations_s": round(asked, 2),
        "pairwise": {
            "filters": args.pairwise,
            "measured_s": round(measured, 2),
            "extrapolated_s": round(baseline, 1),
            "how": "by the number of pairs, all of which are compared, both ways: "
            f"measured_s * ({args.filters}*{args.filters - 1}) / ({args.pairwise}*{args.pairwise - 1})",
        },
        "same_poset": is_same(filters[: args.pairwise // 2]),
        "ratio": round(baseline / seconds, 1),
        "ratio_with_relations": round(baseline / (seconds + asked), 1),
        "target_ratio": 20,
        "shapes": {"filters": args.shapes, **grown(args.shapes)},
    }
    print(json.dumps(row, indent=2))


if __name__ == "__main__":
    main()
