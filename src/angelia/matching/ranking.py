"""Ranking bounds, the second step of building an index: their order, and the tables that rank values.

This is plain Python where bounds are Python objects, and holds the GIL: it works in slices and calls
`pause` between them, so that a build in a background thread does not stop the matching.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from angelia.matching.draft import Bounds, Draft, SlotDraft, Spans
from angelia.matching.layout import (
    EXACT_FLOAT,
    EXACT_INT,
    S_CELL_COUNT,
    S_CELL_SCALE,
    S_CELLS,
    S_END,
    SLOT_WORDS,
)
from angelia.matching.slots import Slot, TextIndex

__all__ = ["Ranking", "Words", "are_exact", "ends_of", "gathered", "let_go", "microseconds", "points_of"]

Words = NDArray[np.uint32]
Ends = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]

SLICE = 4096  # values gathered between two pauses
SORT_SLICE = 2048  # strings sorted between two pauses

_NONE = np.zeros(0, np.int64)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def microseconds(at: datetime) -> int:
    """A timestamp as an integer."""
    return (at - _EPOCH) // _MICROSECOND


def gathered(values: Iterable[Any], count: int, kind: Any, pause: Callable[[], None]) -> NDArray[Any]:
    """An array of Python values, made in slices."""
    if count <= SLICE:
        return np.fromiter(values, kind, count)
    out = np.empty(count, kind)
    rest = iter(values)
    for start in range(0, count, SLICE):
        size = min(SLICE, count - start)
        out[start : start + size] = np.fromiter(islice(rest, size), kind, size)
        pause()
    return out


def let_go(objects: NDArray[Any], pause: Callable[[], None]) -> None:
    """Empty an array of Python objects, in slices: a million at once would take a while."""
    for start in range(0, len(objects), SLICE):
        objects[start : start + SLICE] = None
        pause()


@dataclass(frozen=True, slots=True)
class RankedSpans:
    """Ranges and equalities of a kind in a slot: between which ranks they lie, and where they belong."""

    slot: int
    below: int  # the number of the bound below all of the kind
    places: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]


class Ranking:
    """Ranks for all bounds of a draft, and the tables by which a value finds its own."""

    def __init__(self, draft: Draft, pause: Callable[[], None]) -> None:
        self.ranks = np.zeros(draft.bound_count, np.uint32)
        self.sizes = np.ones(draft.bound_count, np.int64)  # of a kind, at the bound below all of it
        self.rows = np.zeros((max(1, len(draft.slots)), SLOT_WORDS), np.uint32)
        self.floats: list[NDArray[np.float64]] = []
        self.ints: list[NDArray[np.int64]] = []
        self.flags: list[Words] = []
        self.cells: list[Words] = []
        self._cell_count = 0
        self._scales: list[float] = []
        self.slots: list[Slot] = []
        self.ranges: list[RankedSpans] = []
        self._float_count = self._int_count = 0
        self._next = 2
        self._pause = pause
        # Slots in which single bounds count come first: tables by bound then end with the last of these.
        for slot in sorted(draft.slots.values(), key=lambda slot: not slot.has_points):
            self.slots.append(self._rank_slot(slot))
            pause()
        self.slots.sort(key=lambda slot: slot.index)

    def packed_flags(self) -> Words:
        """The flags of all bounds of numbers, sixteen in a word."""
        flags = np.concatenate([*self.flags, np.zeros(16 - self._float_count % 16, np.uint32)])
        shifted = flags.reshape(-1, 16) << np.arange(0, 32, 2, dtype=np.uint32)
        packed: Words = np.bitwise_or.reduce(shifted, axis=1)
        return packed

    @property
    def end(self) -> int:
        """A number that is greater than all ranks."""
        return self._next

    def _rank_slot(self, draft: SlotDraft) -> Slot:
        row = self.rows[draft.index]
        row[0] = self.ranks[draft.first] = first = self._next
        self._next += 2
        false = self._zone(draft.bools, self._numbers(draft.bools)) + 1
        self._rank_numbers(row, draft)
        self._rank_timestamps(row, draft.times)
        strings, string_zone = self._rank_strings(draft)
        self.ranks[draft.last] = row[S_END] = self._next
        self.sizes[draft.first] = self._next - first
        texts = TextIndex([(op, text, number) for (op, text), number in draft.texts.items()])
        return Slot(
            draft.name,
            draft.index,
            first,
            false,
            string_zone,
            strings,
            draft.orders_strings,
            draft.has_points,
            texts,
        )

    def _zone(
        self,
        bounds: Bounds,
        numbers: NDArray[np.int64],
        places: NDArray[np.int64] | None = None,
        count: int | None = None,
    ) -> int:
        """Give ranks to the bounds of a kind, by their numbers; the first of the ranks.

        The numbers are given in order, or else with their places among `count` bounds.
        """
        count = len(numbers) if count is None else count
        zone = self._next
        if len(numbers):
            self.ranks[numbers] = zone + 1 + 2 * (np.arange(count) if places is None else places)
        self.ranks[bounds.below], self.ranks[bounds.above] = zone, zone + 2 * count + 1
        self.sizes[bounds.below] = 2 * count + 1
        self._next += 2 * count + 2
        return zone

    def _rank_numbers(self, row: Words, draft: SlotDraft) -> None:
        bounds = draft.numbers
        if not bounds.index and not (draft.number_spans.places or draft.number_spans.points):
            row[1:6] = self._zone(bounds, _NONE), 0, 0, self._float_count, self._int_count
            return
        given, ends = points_of(draft, self._pause), ends_of(draft)
        if are_exact(given):
            floats = np.unique(np.concatenate((given, *(end[~np.isnan(end)] for end in ends))))
            exact = np.ones(len(floats), bool)
            self._pause()
            ints, whole = _ceilings(floats)
            zone = self._zone(bounds, self._numbers(bounds), np.searchsorted(floats, given), len(floats))
            self._pause()
            places = [np.where(np.isnan(end), -1, np.searchsorted(floats, end)) for end in ends]
            self._rank_spans(draft.index, bounds, draft.number_spans, zone, len(floats), *places)
        else:
            values = list(bounds.index)
            order, floats, exact = _exact_order(values)
            ints, whole = _exact_integers([values[i] for i in order])
            zone = self._zone(bounds, self._numbers(bounds)[order])
        row[1:6] = zone, len(floats), len(ints), self._float_count, self._int_count
        self._keep(ints)
        self._put_cells(row, floats)
        self.floats.append(floats)
        self.flags.append((exact * EXACT_FLOAT + whole * EXACT_INT).astype(np.uint32))
        self._float_count += len(floats)

    def _put_cells(self, row: Words, floats: NDArray[np.float64]) -> None:
        """Lay a grid over the bounds of numbers: a value has few to search then. Kernels do the same sum."""
        if not len(floats):  # all that is asked is whether it is a number
            return
        count, span = max(1, len(floats) // 2), float(floats[-1]) - float(floats[0])
        scale = count / span if span > 0 and np.isfinite(span) else 0.0
        if not np.isfinite(scale) or scale == 0.0:
            count, scale = 1, 0.0
        cells = np.zeros(len(floats), np.int64)
        if count > 1:
            cells = np.minimum(((floats - floats[0]) * scale).astype(np.int64), count - 1)
        row[S_CELLS], row[S_CELL_COUNT] = self._cell_count, count
        row[S_CELL_SCALE] = len(self._scales)  # among the scales, which lie behind all bounds
        self.cells.append(np.searchsorted(cells, np.arange(count + 1)).astype(np.uint32))
        self._cell_count += count + 1
        self._scales.append(scale)

    def all_floats(self) -> NDArray[np.float64]:
        """The bounds of numbers of all slots, and then the scales of their cells."""
        self.rows[:, S_CELL_SCALE] += np.uint32(self._float_count)
        return np.concatenate([*self.floats, np.array([*self._scales, 0.0])])

    def _rank_spans(
        self,
        slot: int,
        bounds: Bounds,
        spans: Spans,
        zone: int,
        count: int,
        lows: NDArray[np.int64],
        highs: NDArray[np.int64],
        points: NDArray[np.int64],
    ) -> None:
        """The ranks between which ranges and equalities lie, given the places of their ends among the bounds.

        The place of an end that there is none of is -1.
        """
        if spans.places:
            sides, places = np.frombuffer(spans.sides, np.uint8), np.frombuffer(spans.places, np.int64)
            low = np.where(lows < 0, zone, zone + 1 + 2 * lows + (sides & 1))
            high = np.where(highs < 0, zone + 2 * count + 1, zone + 1 + 2 * highs + (sides >> 1))
            self.ranges.append(RankedSpans(slot, bounds.below, places, low, high))
        if spans.point_places:
            low, places = zone + 1 + 2 * points, np.frombuffer(spans.point_places, np.int64)
            self.ranges.append(RankedSpans(slot, bounds.below, places, low, low + 1))

    def _rank_timestamps(self, row: Words, bounds: Bounds) -> None:
        if not bounds.index:
            row[6:9] = self._zone(bounds, _NONE), 0, self._int_count
            return
        ints = gathered(map(microseconds, bounds.index), len(bounds.index), np.int64, self._pause)
        order = np.argsort(ints, kind="stable")
        zone = self._zone(bounds, self._numbers(bounds)[order])
        row[6:9] = zone, len(ints), self._int_count
        self._keep(ints[order])

    def _keep(self, ints: NDArray[np.int64]) -> None:
        self.ints.append(ints)
        self._int_count += len(ints)

    def _rank_strings(self, draft: SlotDraft) -> tuple[list[str], int]:
        bounds, spans, words = draft.strings, draft.string_spans, draft.words
        for value in bounds.index:
            words.setdefault(value, len(words))
        if not words:
            return [], self._zone(bounds, _NONE)
        ordered = _sorted_in_slices(list(words), self._pause)
        places = np.empty(len(words) + 1, np.int64)
        places[self._word_numbers(words, ordered)] = np.arange(len(words))
        places[-1] = -1  # of an end that there is none of
        lows, highs, points = (
            places[np.frombuffer(each, np.int64)] for each in (spans.lows, spans.highs, spans.points)
        )
        given = places[self._word_numbers(words, bounds.index)]
        zone = self._zone(bounds, self._numbers(bounds), given, len(ordered))
        self._rank_spans(draft.index, bounds, spans, zone, len(ordered), lows, highs, points)
        return ordered, zone

    def _word_numbers(self, words: dict[str, int], some: Collection[str]) -> NDArray[np.int64]:
        return gathered(map(words.__getitem__, some), len(some), np.int64, self._pause)

    def _numbers(self, bounds: Bounds) -> NDArray[np.int64]:
        """The numbers of bounds as they came."""
        if not bounds.index:
            return _NONE
        return gathered(bounds.index.values(), len(bounds.index), np.int64, self._pause)


def ends_of(slot: SlotDraft) -> Ends:
    """The values at which the ranges of numbers of a slot begin, at which they end, and of equalities."""
    spans = slot.number_spans
    low, high, points = (np.frombuffer(each, np.float64) for each in (spans.lows, spans.highs, spans.points))
    return low, high, points


def points_of(slot: SlotDraft, pause: Callable[[], None]) -> NDArray[np.float64]:
    """The other numbers that filters compare a slot with."""
    return gathered(slot.numbers.index, len(slot.numbers.index), np.float64, pause)


def are_exact(*numbers: NDArray[np.float64]) -> bool:
    """Whether all integers among these are what they were before they became floats."""
    return not any(len(each) and np.any(np.abs(each) >= 2.0**53) for each in numbers)


def _ceilings(floats: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The least integer that is not below each of some floats, and whether that is the same."""
    ceilings = np.ceil(floats)
    return ceilings.astype(np.int64), ceilings == floats


def _sorted_in_slices(values: list[str], pause: Callable[[], None]) -> list[str]:
    if len(values) <= SORT_SLICE:
        return sorted(values)
    runs = []
    for start in range(0, len(values), SORT_SLICE):
        runs.append(sorted(values[start : start + SORT_SLICE]))
        pause()
    ordered: list[str] = []
    for i, value in enumerate(merge(*runs)):
        ordered.append(value)
        if i % SORT_SLICE == 0:
            pause()
    return ordered


def _exact_order(values: list[Any]) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.bool_]]:
    """The order of numbers of which some are integers that no float equals.

    With it the least float that is not below each, and whether that is the number itself.
    """
    order = sorted(range(len(values)), key=values.__getitem__)
    floats = np.array([_float_from(values[i]) for i in order])
    exact = np.array([float(f) == values[i] for f, i in zip(floats, order, strict=True)])
    return np.array(order), floats, exact


def _float_from(value: Any) -> float:
    near = float(value)
    return near if near >= value else float(np.nextafter(near, np.inf))


def _exact_integers(values: list[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The least integer that is not below each number, as far as there is one of 64 bits."""
    ceilings = []
    for value in values:
        ceiling = value if isinstance(value, int) else int(np.ceil(value))
        if ceiling >= 2**63:
            break
        ceilings.append(max(ceiling, -(2**63)))
    whole = [value == int(value) for value in values]
    whole = [w and -(2**63) <= v < 2**63 for w, v in zip(whole, values, strict=True)]
    return np.array(ceilings, np.int64), np.array(whole, bool)
