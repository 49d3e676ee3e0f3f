"""How much faster the indexed poset is than one that compares each new filter with every other.

    python bench/poset.py [--filters 20000]

Prints JSON. The pairwise build is the same poset with an index that proposes every filter. It grows
with about the square of their number, so it is timed at two sizes and extrapolated from there with
the exponent measured between them; `--pairwise 20000` runs it to the end instead (minutes). The exponent
is uncertain between small sizes: `ratio_if_square` is the ratio with an exponent of 2, the more careful one.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Iterator

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


class Everything:
    """The index of a poset that compares each new filter with every other."""

    def __init__(self) -> None:
        self.numbers = 0  # as bits

    def add(self, number: int, item: Filter) -> None:
        """Remember a number."""
        self.numbers |= 1 << number

    def remove(self, number: int, item: Filter) -> None:
        """Forget it."""
        self.numbers ^= 1 << number

    def may_cover(self, item: Filter) -> int:
        """Everything."""
        return self.numbers

    may_be_covered_by = may_cover
    plain = 0

    def surely_cover(self, item: Filter) -> int:
        """Nothing is known without asking."""
        return 0

    surely_covered_by = surely_cover

    def is_unlike_others(self, item: Filter) -> bool:
        """Not known."""
        return False

    def may_equal(self, item: Filter, covering: int) -> int:
        """Everything."""
        return covering

    def guesses(self, item: Filter) -> Iterator[int]:
        """None."""
        return iter(())

    def near(self, item: Filter, among: int, turn: int) -> int:
        """Any."""
        return among.bit_length() - 1

    def breadth(self, number: int) -> int:
        """The newest first: the order in which the poset can skip most."""
        return number


SHAPES: dict[str, Callable[[int, int], str]] = {
    "ranges and prefixes": lambda i, n: (
        f'x >= {i * 7919 % 1000} and x < {i * 7919 % 1000 + 10} and h prefix "{i % 97}.rack"'
    ),
    "chain": lambda i, n: f"x < {i * 7919 % n}",
    "incomparable": lambda i, n: f"x < {i} and y < {n - i}",
    "unequal": lambda i, n: f"x != {i}",
    "parts": lambda i, n: f'x contains "{i:06}"',
}


def grown(size: int) -> dict[str, dict[str, float]]:
    """Seconds for shapes that strangers may choose, at half the size and at all of it, and pairwise."""
    rows = {}
    for name, shape in SHAPES.items():
        half, whole = ([Filter.parse(shape(i, n)) for i in range(n)] for n in (size // 2, size))
        few = whole[: size // 16]
        rows[name] = {
            "half_s": round(build(subscription_poset(), half), 2),
            "whole_s": round(build(subscription_poset(), whole), 2),
            "sixteenth_s": round(build(subscription_poset(), few), 2),
            "sixteenth_pairwise_s": round(build(Poset(Everything()), few), 2),
        }
    return rows


def build(poset: Poset[Filter], filters: list[Filter]) -> float:
    """Seconds to insert all."""
    start = time.process_time()
    for item in filters:
        poset.insert(item)
    return time.process_time() - start


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
    poset = subscription_poset()
    seconds = build(poset, filters)
    sizes = [args.pairwise // 2, args.pairwise]
    half, whole = (build(Poset(Everything()), filters[:size]) for size in sizes)
    exponent = math.log2(whole / half)
    baseline = whole * (args.filters / args.pairwise) ** exponent
    same = build_roots(filters[: args.pairwise])
    print(
        json.dumps(
            {
                "benchmark": "poset",
                "filters": len(poset),
                "roots": len(poset.roots),
                "indexed_s": round(seconds, 2),
                "pairwise_measured_s": {
                    size: round(s, 2) for size, s in zip(sizes, (half, whole), strict=True)
                },
                "pairwise_exponent": round(exponent, 2),
                "pairwise_s": round(baseline, 1),
                "pairwise_extrapolated": args.pairwise < args.filters,
                "same_roots": same,
                "ratio": round(baseline / seconds, 1),
                "ratio_if_square": round(whole * (args.filters / args.pairwise) ** 2 / seconds, 1),
                "target_ratio": 20,
                "shapes": {"filters": args.shapes, **grown(args.shapes)},
            },
            indent=2,
        )
    )


def build_roots(filters: list[Filter]) -> bool:
    """Whether both ways give the same poset, by its roots and immediate relations."""
    indexed, pairwise = subscription_poset(), Poset(Everything())
    build(indexed, filters)
    build(pairwise, filters)
    return set(indexed.roots) == set(pairwise.roots) and all(
        indexed.successors(item) == pairwise.successors(item) for item in indexed
    )


if __name__ == "__main__":
    main()
