"""Building a compiled index from filters.

In three steps: `draft` reads the filters, `ranking` puts the values that they compare with in order, and
here the literals of each conjunction are ordered, rarest first, and the conjunctions laid out as a trie
(see `layout`). This last step is NumPy and kernels, which do not hold the GIL for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from angelia.filter import Filter
from angelia.matching import build_kernels as kernels
from angelia.matching.draft import Draft
from angelia.matching.layout import (
    CLASS_WORDS,
    COMPOSITE,
    H_BOUND_COUNT,
    H_BUCKETS,
    H_CELLS,
    H_CLASSES,
    H_DEPTH,
    H_FLAGS,
    H_LINEAR,
    H_LINK_COUNT,
    H_LINKS,
    H_NODE_COUNT,
    H_NODE_LINKS,
    H_NODES,
    H_OTHERS,
    H_OTHERS_END,
    H_OWNERS,
    H_PARTS,
    H_POINT_COUNT,
    H_POINT_ROOTS,
    H_POSTING_BOUNDS,
    H_POSTING_COUNT,
    H_POSTING_NODES,
    H_RANGE_LENGTHS,
    H_RANGE_LOWS,
    H_RANGE_NODES,
    H_SETS,
    H_SHARED,
    H_SLOT_COUNT,
    H_SLOTS,
    H_TEXT_COUNT,
    H_TEXT_ROOTS,
    HEADER_WORDS,
    NEGATIVE,
    NODE_WORDS,
    OP_MASK,
    OUTSIDE,
    PART_WORDS,
    POINT,
    RANGE,
    S_CLASS,
    S_CLASS_END,
    S_POSTINGS,
    SET,
    SLOT_SHIFT,
    TEXT,
)
from angelia.matching.ranking import Ranking, Words, are_exact, ends_of, points_of
from angelia.matching.slots import Slot

__all__ = ["Tables", "build"]

SLICE = 128  # filters read between two pauses
CLASS_SIZE = 64  # range roots of similar length that make a class of their own
TEXT_SHARE = 0.05  # of the strings of an attribute, assumed to satisfy a text literal


class Tables:
    """The arrays of a compiled index, its slots, and which filter has which number."""

    __slots__ = ("floats", "ints", "numbers", "slots", "words")

    def __init__(
        self,
        words: Words,
        ints: NDArray[np.int64],
        floats: NDArray[np.float64],
        slots: list[Slot],
        numbers: NDArray[np.int64],
    ) -> None:
        self.words, self.ints, self.floats = words, ints, floats
        self.slots = slots
        self.numbers = numbers  # by place in the list of filters


def build(
    filters: Sequence[Filter], links: Words | None = None, pause: Callable[[], None] = lambda: None
) -> Tables:
    """The tables of a compiled index; `links` gives the number of each filter's link."""
    draft = _drafted(filters, Draft(), pause)
    if not all(are_exact(*ends_of(slot), points_of(slot, pause)) for slot in draft.slots.values()):
        draft = _drafted(filters, Draft(takes_ranges=False), pause)
    ranking = Ranking(draft, pause)
    draft.dissolve(pause)
    return _Trie(draft, ranking, pause).tables(ranking, links)


def _drafted(filters: Sequence[Filter], draft: Draft, pause: Callable[[], None]) -> Draft:
    for start in range(0, len(filters), SLICE):
        draft.read(filters[start : start + SLICE])
        pause()
    return draft


class _Trie:
    """The literals in rank space, ordered by rarity, and the trie of the conjunctions."""

    def __init__(self, draft: Draft, ranking: Ranking, pause: Callable[[], None]) -> None:
        self._pause = pause
        self.reaches: list[int] = []  # how long a range root of each class is at most
        headers = np.array(draft.headers, np.uint32)
        a, b = np.array(draft.a, np.int64), np.array(draft.b, np.int64)
        kinds, flat = np.array(draft.kind_of, np.int64), np.array(draft.flat, np.uint32)
        self.conjunctions = np.array(draft.conjunctions, np.int64)
        self.starts = np.array(draft.ends, np.int64)
        self.text_count, self.bound_count = draft.text_count, ranking.end // 2 + 1
        self.sets = _ranked_sets(draft, ranking.ranks)
        self.parts = _ranked_parts(draft, ranking.ranks)
        op = headers & OP_MASK
        ranged = (op == RANGE) | (op == POINT)
        low, high = _cut_ranks(a[ranged], ranking.ranks), _cut_ranks(b[ranged], ranking.ranks)
        a[ranged], b[ranged] = low, high - low
        pause()
        headers, a, b, kinds = _with_ranges(headers, a, b, kinds, flat, ranking, pause)
        pause()
        share = self._shares(headers, a, b, ranking.sizes[kinds], flat)
        pause()
        order = np.argsort(share, kind="stable")
        pause()
        self.headers, self.a, self.b = headers[order], a[order].astype(np.uint32), b[order].astype(np.uint32)
        renumbered = np.empty(len(order), np.uint32)
        renumbered[order] = np.arange(len(order), dtype=np.uint32)
        pause()
        self.flat = renumbered[flat]
        pause()
        kernels.sort_sequences(self.flat, self.starts)

    def _shares(
        self, headers: Words, a: NDArray[Any], b: NDArray[Any], sizes: NDArray[Any], flat: Words
    ) -> NDArray[np.float64]:
        """For each literal, what share of events we expect to satisfy it; negated ones beyond 1.

        Nothing is known of the events, so the filters are asked: a value that many of them name is
        taken for frequent, a range for as frequent as it spans bounds of its attribute.
        """
        op, slot = headers & OP_MASK, headers >> SLOT_SHIFT
        named = np.bincount(flat, minlength=len(headers)).astype(np.float64)
        share = np.full(len(headers), 0.5)
        for kind in (POINT, TEXT):
            which = op == kind
            total = np.bincount(slot[which], named[which] + 1)
            share[which] = (named[which] + 1) / total[slot[which]]
        texts = op == TEXT
        share[texts] = np.maximum(share[texts], TEXT_SHARE)
        ranges = op == RANGE
        share[ranges] = b[ranges] / sizes[ranges]
        points_of_slot = np.bincount(slot[op == POINT], minlength=int(slot.max(initial=0)) + 1) + 1
        sets = op == SET
        share[sets] = np.minimum(1.0, b[sets] / (points_of_slot[slot[sets]] + b[sets]))
        composite = op == COMPOSITE
        share[composite] = self._composite_shares(a[composite], b[composite], sizes[composite])
        return np.where(headers & NEGATIVE, 2.0 - share, share)

    def _composite_shares(self, a: NDArray[Any], b: NDArray[Any], sizes: NDArray[Any]) -> NDArray[np.float64]:
        if not len(self.parts):
            return np.ones(len(a))
        first = self.parts[np.minimum(a, len(self.parts) - 1)]
        ranged = np.where(first[:, 0] == RANGE, first[:, 2] / sizes, 1.0)
        is_text = self.parts[:, 0] == TEXT
        texts = np.concatenate(([0], np.cumsum(is_text.astype(np.int64))))
        has_text = texts[np.minimum(a + b, len(is_text))] > texts[np.minimum(a, len(is_text))]
        return np.where(b == 0, 1.0, np.where(has_text, TEXT_SHARE, 1.0) * ranged)

    def tables(self, ranking: Ranking, links: Words | None) -> Tables:
        """Lay everything out."""
        pause = self._pause
        pause()
        places, classes = self._root_places(ranking)
        pause()
        order = self._ordered(places)
        pause()
        literals, skips, cids = (np.empty(len(self.flat) + 1, np.uint32) for _ in range(3))
        count, depth = kernels.grow_trie(self.flat, self.starts, order, literals, skips, cids)
        literals, skips, cids = literals[: count + 1], skips[: count + 1], cids[: count + 1]
        pause()
        owners, numbers, shared = self._owners(order)
        pause()
        words = _Words()
        words.put(H_NODES, self._nodes(literals, skips, cids))
        pause()
        words.put(H_SETS, self.sets)
        words.put(H_PARTS, self.parts)
        words.put(H_OWNERS, owners)
        words.put(H_FLAGS, ranking.packed_flags())
        words.put(H_CELLS, np.concatenate([*ranking.cells, np.zeros(1, np.uint32)]))
        floats = ranking.all_floats()
        self._put_roots(words, literals, skips, classes, ranking.rows)
        pause()
        words.put(H_SLOTS, ranking.rows)
        if links is not None:
            by_number = np.zeros(len(numbers), np.uint32)
            by_number[numbers] = links
            only = np.zeros(count, np.uint32)
            kernels.mark_only_links(skips, cids, owners, by_number, only)
            words.put(H_LINKS, by_number)
            words.put(H_NODE_LINKS, only)
            words.header[H_LINK_COUNT] = int(links.max()) + 1 if len(links) else 0
        words.header[[H_NODE_COUNT, H_DEPTH, H_SHARED]] = count, depth, shared
        words.header[[H_SLOT_COUNT, H_BOUND_COUNT]] = len(ranking.slots), self.bound_count
        words.header[H_TEXT_COUNT] = self.text_count
        ints = np.concatenate([*ranking.ints, np.zeros(1, np.int64)])
        pause()
        return Tables(words.assembled(), ints, floats, ranking.slots, numbers)

    def _root_places(self, ranking: Ranking) -> tuple[NDArray[np.int64], Words]:
        """For each literal, its place among the roots; and the classes of range roots, but for their ends.

        Roots that a table leads to come first, then the others, then ranges: of one slot and of
        similar length together, by their low ends, so that those that hold a rank lie close.
        """
        is_root = np.zeros(len(self.headers), bool)
        is_root[self.flat[self.starts[:-1]]] = True
        group = _root_group(self.headers)
        slot, length = self.headers >> SLOT_SHIFT, np.zeros(len(self.headers), np.int64)
        ranges = np.flatnonzero(is_root & (group == _RANGES))
        length[ranges] = np.frexp(self.b[ranges].astype(np.float64))[1]
        classes: list[tuple[int, int, int]] = []
        done = 0
        for s, of_slot in _by_slot(slot.astype(np.uint32), ranges):
            ranking.rows[s, S_CLASS] = len(classes)
            for members in _merged_classes(of_slot, length):
                length[members] = length[members].max()
                classes.append((done, done + len(members), 0))
                self.reaches.append(int(self.b[members].max()))
                done += len(members)
            ranking.rows[s, S_CLASS_END] = len(classes)
        self._pause()
        places = np.empty(len(self.headers), np.int64)
        low = np.where(group == _RANGES, self.a, 0)
        in_class = np.where(group == _RANGES, slot, 0)
        places[np.lexsort((low, length, in_class, group))] = np.arange(len(places))
        return places, np.array(classes, np.uint32).reshape(-1, CLASS_WORDS)

    def _ordered(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The conjunctions in the order of the trie."""
        first = self.starts[:-1]
        keys = places[self.flat[first]].astype(np.uint64) << np.uint64(32)
        longer = np.diff(self.starts) > 1
        keys[longer] |= self.flat[first[longer] + 1].astype(np.uint64) + np.uint64(1)
        self._pause()
        order = np.argsort(keys, kind="stable")
        kernels.refine_order(order, keys, self.flat, self.starts)
        return order

    def _nodes(self, literals: Words, skips: Words, cids: Words) -> Words:
        nodes = np.empty(len(skips) * NODE_WORDS, np.uint32)
        kernels.lay_nodes(self.headers, self.a, self.b, literals, skips, cids, nodes)
        return nodes

    def _owners(self, order: NDArray[np.int64]) -> tuple[Words, NDArray[np.int64], int]:
        """The number of the filter of each conjunction in the trie, the numbers of the filters, and
        how many have several conjunctions (they come first).
        """
        filter_of = kernels.repeated(self.conjunctions)[order]
        self._pause()
        numbers = np.full(len(self.conjunctions), -1, np.int64)
        several = np.flatnonzero(self.conjunctions > 1)
        numbers[several] = np.arange(len(several))
        single = filter_of[self.conjunctions[filter_of] == 1]
        numbers[single] = len(several) + np.arange(len(single))
        never = np.flatnonzero(self.conjunctions == 0)
        numbers[never] = len(several) + len(single) + np.arange(len(never))
        return numbers[filter_of].astype(np.uint32), numbers, len(several)

    def _put_roots(self, words: _Words, literals: Words, skips: Words, classes: Words, rows: Words) -> None:
        """The tables that lead to the roots of the trie."""
        roots = _roots(skips)
        root_literals = literals[roots]
        group = _root_group(self.headers)[root_literals]
        texts = np.zeros(self.text_count + 1, np.uint32)
        of = group == _POINTS
        bounds = self.a[root_literals[of]] >> 1
        points = np.zeros(int(bounds.max(initial=0)) + 1, np.uint32)
        points[bounds] = roots[of] + 1
        words.header[H_POINT_COUNT] = len(points)
        of = group == _TEXTS
        texts[self.a[root_literals[of]]] = roots[of] + 1
        words.put(H_POINT_ROOTS, points)
        words.put(H_TEXT_ROOTS, texts)
        self._put_postings(words, roots[group == _SETS], root_literals[group == _SETS], rows)
        # The groups lie in the order of their numbers: where each begins, and what comes after the last.
        ends = np.append(roots, len(skips) - 1)
        linear, others, ranges = np.searchsorted(group, (_SETS, _OTHERS, _RANGES))
        words.header[[H_LINEAR, H_OTHERS, H_OTHERS_END]] = ends[[linear, others, ranges]]
        of = group == _RANGES
        lows, nodes = self.a[root_literals[of]], np.append(roots[of], len(skips) - 1).astype(np.uint32)
        words.put(H_RANGE_LOWS, lows)
        words.put(H_RANGE_LENGTHS, self.b[root_literals[of]])
        words.put(H_RANGE_NODES, nodes)
        self._put_buckets(words, lows, nodes, classes, rows)

    def _put_buckets(self, words: _Words, lows: Words, nodes: Words, classes: Words, rows: Words) -> None:
        """The tables that lead a single event to range roots."""
        classes[:, 2] = nodes[classes[:, 1]]
        words.put(H_CLASSES, classes)
        buckets = np.empty(len(lows) + len(classes), np.uint32)
        reaches = np.array(self.reaches, np.int64)
        used = kernels.fill_buckets(rows.ravel(), classes.ravel(), reaches, lows, nodes, buckets)
        words.put(H_BUCKETS, buckets[:used])

    def _put_postings(self, words: _Words, roots: NDArray[Any], literals: Words, rows: Words) -> None:
        counts = self.b[literals].astype(np.int64)
        starts = (self.a[literals] - np.cumsum(counts) + counts)[kernels.repeated(counts)]
        bounds = self.sets[starts + np.arange(counts.sum())] >> 1
        order = np.argsort(bounds, kind="stable")
        words.put(H_POSTING_BOUNDS, bounds[order])
        words.put(H_POSTING_NODES, roots[kernels.repeated(counts)[order]].astype(np.uint32))
        words.header[H_POSTING_COUNT] = len(bounds)
        rows[self.headers[literals] >> SLOT_SHIFT, S_POSTINGS] = 1


# How the roots of the trie are found.
_POINTS, _TEXTS, _SETS, _OTHERS, _RANGES = range(5)
_GROUP_OF_OP = np.array([_RANGES, _POINTS, _TEXTS, _SETS, _OTHERS])


def _root_group(headers: Words) -> NDArray[np.int64]:
    groups: NDArray[np.int64] = np.where(headers & NEGATIVE, _OTHERS, _GROUP_OF_OP[headers & OP_MASK])
    return groups


def _roots(skips: Words) -> NDArray[np.int64]:
    """The nodes that have no parent: those that no earlier node reaches over."""
    reach = np.maximum.accumulate(skips[:-1])
    is_root = np.ones(len(skips) - 1, bool)
    is_root[1:] = reach[:-1] <= np.arange(1, len(reach))
    return np.flatnonzero(is_root)


def _by_slot(slot: Words, which: NDArray[np.int64]) -> Iterable[tuple[int, NDArray[np.int64]]]:
    ordered = which[np.argsort(slot[which], kind="stable")]
    cuts = np.flatnonzero(np.diff(slot[ordered])) + 1
    return ((int(slot[part[0]]), part) for part in np.split(ordered, cuts) if len(part))


def _merged_classes(ranges: NDArray[np.int64], length: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Ranges by length, short ones first, with those of small classes put together."""
    ordered = ranges[np.argsort(length[ranges], kind="stable")]
    cuts = np.flatnonzero(np.diff(length[ordered])) + 1
    merged: list[NDArray[np.int64]] = []
    for part in np.split(ordered, cuts):
        if merged and len(merged[-1]) < CLASS_SIZE:
            merged[-1] = np.concatenate((merged[-1], part))
        else:
            merged.append(part)
    return merged


def _with_ranges(
    headers: Words,
    a: NDArray[Any],
    b: NDArray[Any],
    kinds: NDArray[Any],
    flat: Words,
    ranking: Ranking,
    pause: Callable[[], None],
) -> tuple[Words, NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The literals and then those noted as they came, each distinct one once; `flat` is told of them."""
    if not ranking.ranges:
        return headers, a, b, kinds
    some = ranking.ranges
    low, high = np.concatenate([each.low for each in some]), np.concatenate([each.high for each in some])
    # Ranks of different slots do not overlap, so that one look at all of them is enough.
    keys, first, numbers = _distinct(low << 32 | high)
    pause()
    flat[np.concatenate([each.places for each in some])] = len(headers) + numbers
    pause()
    which = np.searchsorted(np.cumsum([len(each.places) for each in some]), first, side="right")
    index = np.array([each.slot for each in some], np.uint32)[which]
    kind = np.array([each.below for each in some], np.int64)[which]
    pause()
    low, high = keys >> 32, keys & 0xFFFFFFFF
    is_point = (low & 1).astype(bool) & (high == low + 1)
    more = np.where(is_point, POINT, RANGE).astype(np.uint32) | index << np.uint32(SLOT_SHIFT)
    joined = (np.concatenate(each) for each in ((headers, more), (a, low), (b, high - low), (kinds, kind)))
    headers, a, b, kinds = joined
    return headers, a, b, kinds


def _distinct(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.intp], NDArray[np.int64]]:
    """Values in order, each once; where each is first; and which of them each given one is.

    `np.unique` does the same, but sums truth values, which keeps the interpreter's lock for long.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    is_new = np.ones(len(values), np.int64)
    is_new[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(is_new)
    numbers = np.empty(len(values), np.int64)
    numbers[order] = np.cumsum(is_new) - 1
    return ordered[starts], order[starts], numbers


def _cut_ranks(cuts: NDArray[np.int64], ranks: Words) -> NDArray[np.int64]:
    of_bounds: NDArray[np.int64] = ranks[cuts >> 1].astype(np.int64)
    return of_bounds + (cuts & 1)


def _ranked_sets(draft: Draft, ranks: Words) -> Words:
    """The ranks of each set, sorted."""
    members = ranks[np.array(draft.sets, np.int64)]
    headers, a = np.array(draft.headers, np.uint32), np.array(draft.a, np.int64)
    parts = np.array(draft.parts, np.int64).reshape(-1, PART_WORDS)
    begins = np.zeros(len(members), np.int64)
    begins[a[headers & OP_MASK == SET]] = 1
    begins[parts[(parts[:, 0] == SET) | (parts[:, 0] == OUTSIDE), 1]] = 1
    return members[np.lexsort((members, np.cumsum(begins)))]


def _ranked_parts(draft: Draft, ranks: Words) -> Words:
    parts = np.array(draft.parts, np.int64).reshape(-1, PART_WORDS)
    ranged = parts[:, 0] == RANGE
    low, high = _cut_ranks(parts[ranged, 1], ranks), _cut_ranks(parts[ranged, 2], ranks)
    parts[ranged, 1], parts[ranged, 2] = low, high - low
    return parts.astype(np.uint32)


class _Words:
    """The array of words, put together from its tables."""

    def __init__(self) -> None:
        self.header = np.zeros(HEADER_WORDS, np.uint32)
        self._tables: list[Words] = [self.header]
        self._size = HEADER_WORDS

    def put(self, at: int, table: Words) -> None:
        """Append a table, whose place goes into the header."""
        self.header[at] = self._size
        self._tables.append(table.ravel())
        self._size += table.size

    def assembled(self) -> Words:
        """The whole array."""
        return np.concatenate(self._tables, dtype=np.uint32)
