"""The workloads of the pipeline's benchmark, and the baselines: what a user would otherwise write.

- "equalities and ranges": a word and a range, or two ranges, which NumPy masks are at their best with. Each
  filter matches MATCHES / count of all events, however many filters there are.
- "the standard workload": the events and filters of the matching benchmark (`workload.py`).
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import workload
from angelia import Filter, attr
from angelia.filter.domain import Domain

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it

WORDS = [f"word{i:02d}" for i in range(100)]
NUMBERS = ("n0", "n1", "n2", "n3")
MATCHES = 5  # that an event has of equalities and ranges, on average
START = int(np.datetime64("2026-01-01T00:00:00", "us").astype(np.int64))
DAY = 86_400_000_000
SIZE = 100_000  # events that are made at once


@dataclass(frozen=True)
class Workload:
    """Events and filters, and what is measured with them."""

    name: str
    type: str  # of the events
    batches: Callable[[int], Iterator[pa.RecordBatch]]
    filters: Callable[[int], list[Filter]]
    sizes: tuple[int, ...]  # numbers of filters
    masks: dict[int, int]  # of ten days, those whose events the masks are run over, by the number of filters
    plain: dict[int, int]  # the same for masks that compare strings as they are
    stops: bool  # whether masks are faster if they stop when no row is left
    joins: bool  # whether there is a cross join, too


# ---------------------------------------------------------------- equalities and ranges


def simple_batches(count: int, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """Events of ten attributes over ten days, in order of time; one in a thousand is an alarm."""
    draw = np.random.default_rng(seed)
    words = pa.array(WORDS)
    for start in range(0, count, SIZE):
        rows = min(SIZE, count - start)
        alarms = pa.array(draw.random(rows) < 0.001)
        columns = _context(start, rows, count) | {
            "@type": pc.if_else(alarms, "bench.Alarm", "bench.Reading"),
            "@source": words.take(pa.array(draw.integers(0, 100, rows))),
            "s0": words.take(pa.array(draw.integers(0, 10, rows))),
            "s1": words.take(pa.array(draw.integers(0, 100, rows))),
            "s2": words.take(pa.array(draw.zipf(1.5, rows) % 100)),
            "order": pa.array(np.arange(start, start + rows) // 10),
            "device": pa.array(draw.integers(0, 1000, rows)),
            "b": pa.array(draw.random(rows) < 0.5),
        }
        columns |= {name: pa.array(draw.random(rows) * 1000) for name in NUMBERS}
        yield pa.RecordBatch.from_pydict(columns)


def _context(start: int, rows: int, count: int) -> dict[str, pa.Array]:
    number = np.arange(start, start + rows)
    return {
        "@id": pc.binary_join_element_wise("event", pa.array(number).cast(pa.string()), "-"),
        "@time": pa.array(START + number * (10 * DAY // count)).cast(pa.timestamp("us", "UTC")),
    }


def simple_filters(count: int, seed: int = 2) -> list[Filter]:
    """A word and a range, or two ranges; each matches MATCHES / count of all events."""
    draw = random.Random(seed)
    share = MATCHES / count

    def span(name: str, width: float) -> Filter:
        low = draw.random() * 1000 * (1 - width)
        return attr(name).between(low, low + 1000 * width)

    made = []
    for _ in range(count):
        if draw.random() < 0.6:
            word = attr("s1") == draw.choice(WORDS)
            made.append(word & span(draw.choice(NUMBERS), share * 100))
        else:
            first, second = draw.sample(NUMBERS, 2)
            made.append(span(first, share**0.5) & span(second, share**0.5))
    return made


SIMPLE = Workload(
    "equalities and ranges",
    "bench.Reading",
    simple_batches,
    simple_filters,
    sizes=(1_000, 10_000, 100_000),
    masks={1_000: 10, 10_000: 2},
    plain={},
    stops=False,
    joins=True,
)


# ---------------------------------------------------------------- the standard workload


def standard_batches(count: int, seed: int = 1) -> Iterator[pa.RecordBatch]:
    """Events as `workload.events` has them, over ten days, in order of time."""
    draw = np.random.default_rng(seed)
    vocabularies = {name: pa.array(words) for name, words in workload.VOCABULARIES.items()}
    for start in range(0, count, SIZE):
        rows = min(SIZE, count - start)
        columns = _context(start, rows, count)
        columns["@type"] = pa.repeat("bench.Standard", rows)
        columns |= {name: words.take(_zipf(draw, len(words), rows)) for name, words in vocabularies.items()}
        columns |= {name: pa.array(draw.random(rows) * 1000) for name in NUMBERS}
        columns["b"] = pa.array(draw.random(rows) < 0.5)
        columns["t"] = pa.array(START + draw.integers(0, DAY, rows)).cast(pa.timestamp("us", "UTC"))
        yield pa.RecordBatch.from_pydict(columns)


def _zipf(draw: np.random.Generator, size: int, rows: int) -> pa.Array:
    """Places of words, the n-th with a weight of 1 / n."""
    upto = np.cumsum(1 / np.arange(1, size + 1))
    return pa.array(np.searchsorted(upto, draw.random(rows) * upto[-1], side="right"))


def standard_filters(count: int, seed: int = 2) -> list[Filter]:
    """Standard filters; from 10,000 on, with a range that a tenth is in on a number that is still free.

    So an event has as many matches with 10,000 of them as with 1,000.
    """
    draw = random.Random(seed)
    if count < 10_000:
        return [workload.standard(draw) for _ in range(count)]
    made: list[Filter] = []
    while len(made) < count:
        each = workload.standard(draw)
        free = [name for name in NUMBERS if name not in each.attributes()]
        if free:
            low = draw.random() * 900
            made.append(each & attr(draw.choice(free)).between(low, low + 100))
    return made


STANDARD = Workload(
    "the standard workload",
    "bench.Standard",
    standard_batches,
    standard_filters,
    sizes=(1_000, 10_000),
    masks={1_000: 10, 10_000: 5},
    plain={1_000: 5, 10_000: 1},
    stops=True,
    joins=False,
)


# ---------------------------------------------------------------- filters as a user has rules

Check = tuple[str, str, Any]  # a name, an operator, and what it compares with
Rule = list[Check]  # the most selective first, as the filters are made


def rules(filters: Iterable[Filter]) -> list[Rule]:
    """Filters of the workloads as plain data."""
    return [
        [
            _check(name, condition.some)
            for conjunction in each.conjunctions
            for name, condition in conjunction.conditions.items()
            if condition.some is not None
        ]
        for each in filters
    ]


def _check(name: str, domain: Domain) -> Check:
    if domain.kind is None:
        return name, "exists", None
    if domain.points is not None:
        return name, "=", next(iter(domain.points))
    if domain.prefix:
        return name, "prefix", domain.prefix
    if domain.suffix:
        return name, "suffix", domain.suffix
    if domain.contains:
        return name, "contains", next(iter(domain.contains))
    if domain.excluded:
        return name, "!=", next(iter(domain.excluded))
    if not domain.has_low:
        return name, "<", domain.high[1]
    if not domain.has_high:
        return name, ">", domain.low[1]
    return name, "between", (domain.low[1], domain.high[1])


# ---------------------------------------------------------------- the baselines


def cross_join(events: DataFrame, some: list[Rule]) -> DataFrame:
    """A table of rules with a column for each bound, null where a rule does not ask; joined by comparison.

    Of equalities and ranges alone.
    """
    rows = []
    for number, rule in enumerate(some):
        asked = {name: operand for name, _, operand in rule}
        bounds = [bound for name in NUMBERS for bound in asked.get(name, (None, None))]
        rows.append([number, asked.get("s1"), *bounds])
    columns = [f"{name}_{end} double" for name in NUMBERS for end in ("low", "high")]
    table = events.sparkSession.createDataFrame(
        rows, f"subscription_id bigint, word string, {', '.join(columns)}"
    )
    condition = F.col("word").isNull() | (F.col("word") == F.col("s1"))
    for name in NUMBERS:
        inside = F.col(name).between(F.col(f"{name}_low"), F.col(f"{name}_high"))
        condition &= F.col(f"{name}_low").isNull() | inside
    return events.join(F.broadcast(table), condition).select(
        F.col("`@id`").alias("event_id"), "subscription_id"
    )


def masks(events: DataFrame, some: list[Rule], *, stops: bool, coded: bool = True) -> DataFrame:
    """mapInArrow, with one NumPy mask a subscription; strings are compared as `Words`, or as they are."""
    shared = events.sparkSession.sparkContext.broadcast(some)

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from masked(batch, shared.value, stops, coded)

    names = sorted({name for rule in some for name, _, _ in rule})
    narrow = events.select(F.col("`@id`").alias("id"), *names)
    return narrow.mapInArrow(run, "event_id string, subscription_id bigint")


def masked(batch: pa.RecordBatch, some: list[Rule], stops: bool, coded: bool) -> Iterator[pa.RecordBatch]:
    """The pairs of a batch; `stops` as soon as a mask has no row left, which pays if most have none early."""
    columns = {name: column_of(batch.column(name), coded) for name in batch.schema.names if name != "id"}
    rows, ids = [], []
    for number, rule in enumerate(some):
        mask = None
        for name, operator, operand in rule:
            part = TESTS[operator](columns[name], operand)
            mask = part if mask is None else mask & part
            if stops and not mask.any():
                break
        found = np.flatnonzero(mask)
        if len(found):
            rows.append(found)
            ids.append(np.full(len(found), number))
    if rows:
        event_ids = batch.column("id").take(pa.array(np.concatenate(rows)))
        yield pa.RecordBatch.from_arrays(
            [event_ids, pa.array(np.concatenate(ids))], ["event_id", "subscription_id"]
        )


class Words:
    """A column of strings: each different word once, and which of them a row has."""

    def __init__(self, column: pa.Array) -> None:
        encoded = column.dictionary_encode()
        self.words, self.codes = encoded.dictionary, encoded.indices.to_numpy()
        self._places = {word: place for place, word in enumerate(self.words.to_pylist())}

    def equal(self, word: str) -> Any:
        """A comparison of integers; or nothing, if no row has the word."""
        place = self._places.get(word)
        return np.False_ if place is None else self.codes == place

    def holding(self, test: Callable[[pa.Array, str], pa.Array], text: str) -> Any:
        """Words are tested, and rows take what was found for theirs."""
        return test(self.words, text).to_numpy(zero_copy_only=False)[self.codes]


class Texts:
    """A column of strings as it is: every row is compared."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def equal(self, word: str) -> Any:
        """A comparison of strings."""
        return self.holding(pc.equal, word)

    def holding(self, test: Callable[[pa.Array, str], pa.Array], text: str) -> Any:
        """Rows are tested."""
        return test(self._column, text).to_numpy(zero_copy_only=False)


def column_of(column: pa.Array, coded: bool) -> Any:
    """What masks are made of. The workloads have no nulls."""
    if pa.types.is_string(column.type):
        return Words(column) if coded else Texts(column)
    return column.to_numpy()


TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda column, word: column.equal(word),
    "!=": lambda column, word: ~column.equal(word),
    "exists": lambda column, _: np.True_,
    "prefix": lambda column, text: column.holding(pc.starts_with, text),
    "suffix": lambda column, text: column.holding(pc.ends_with, text),
    "contains": lambda column, text: column.holding(pc.match_substring, text),
    "<": lambda values, bound: values < bound,
    ">": lambda values, bound: values > bound,
    "between": lambda values, bounds: (values >= bounds[0]) & (values <= bounds[1]),
}
