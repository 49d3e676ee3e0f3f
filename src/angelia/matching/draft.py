"""Reading filters, the first step of building an index.

Each distinct literal (an attribute, a domain, a sign) gets a number, and each conjunction becomes a list
of these. The values that literals compare with, the *bounds*, are collected per attribute and numbered as
they come; `ranking` gives them their order.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from datetime import datetime
from math import nan
from typing import Any

from angelia.event import Kind
from angelia.filter import Filter
from angelia.filter.domain import ABOVE_ALL, BELOW_ALL, Cut, Domain
from angelia.matching.layout import (
    COMPOSITE,
    NEGATIVE,
    OUTSIDE,
    PART_WORDS,
    POINT,
    RANGE,
    SET,
    SLOT_SHIFT,
    TEXT,
)

__all__ = ["Bounds", "Draft", "SlotDraft", "Spans"]

SLICE = 4096  # things forgotten between two pauses


class Bounds:
    """The values of one kind that filters compare an attribute with, numbered as they come."""

    __slots__ = ("above", "below", "index")

    def __init__(self, below: int, above: int) -> None:
        self.below, self.above = below, above
        self.index: dict[Any, int] = {}


class Spans:
    """Ranges and equalities of one kind as they come, equal ones too.

    Of ranges these are the values at both ends (NaN or -1: there is none), on which sides of these they
    end, and where in `flat` each belongs; of equalities the values, and where they belong. Strings are
    numbers here, or the garbage collector would look at all of them.
    """

    __slots__ = (
        "highs", "lows", "note_high", "note_low", "note_place", "note_point", "note_point_place", "note_side",
        "places", "point_places", "points", "sides",
    )  # fmt: skip

    def __init__(self, lows: array[Any], highs: array[Any], points: array[Any]) -> None:
        self.lows, self.highs, self.points = lows, highs, points
        self.sides = array("B")
        self.places, self.point_places = array("q"), array("q")
        self.note_low, self.note_high = self.lows.append, self.highs.append
        self.note_side, self.note_place = self.sides.append, self.places.append
        self.note_point, self.note_point_place = self.points.append, self.point_places.append


class SlotDraft:
    """An attribute while filters are read: its bounds, and the numbers of its literals by what they say."""

    __slots__ = (
        "bools", "domains", "first", "has_points", "index", "last", "name", "number_spans", "numbers",
        "orders_strings", "points", "ranges", "string_spans", "strings", "takes_ranges", "texts", "times",
        "words",
    )  # fmt: skip

    def __init__(self, name: str, index: int, first: int, takes_ranges: bool) -> None:
        self.name, self.index, self.first, self.last = name, index, first, first + 1
        self.points: dict[Any, int] = {}  # literals `= value`, of numbers and timestamps
        self.ranges: dict[tuple[Cut, Cut], int] = {}
        self.takes_ranges = takes_ranges
        self.number_spans = Spans(array("d"), array("d"), array("d"))
        self.string_spans = Spans(array("q"), array("q"), array("q"))
        self.words: dict[Any, int] = {}  # the numbers of the strings in these
        self.domains: dict[tuple[Domain, bool], int] = {}  # all others
        self.texts: dict[tuple[str, str], int] = {}
        self.has_points = False
        self.orders_strings = False  # whether it matters where an unknown string lies among the bounds
        self.bools, self.numbers, self.strings, self.times = (
            Bounds(first + 2 + 2 * i, first + 3 + 2 * i) for i in range(4)
        )

    def bounds_of(self, value: Any) -> Bounds:
        """The bounds of the kind of a number or timestamp."""
        return self.times if type(value) is datetime else self.numbers

    def bounds_of_kind(self, kind: Kind) -> Bounds:
        """The bounds of a kind."""
        if kind is Kind.STRING:
            return self.strings
        return self.times if kind is Kind.TIMESTAMP else self.bools if kind is Kind.BOOLEAN else self.numbers


_SLOT_BOUNDS = 2 + 2 * len(Kind)  # what stands for NaN, the end of a slot, and the ends of each kind


class Draft:
    """The literals and conjunctions of filters. Bounds and cuts are numbers until they are ranked.

    A cut is written as twice a bound's number, plus one if it lies behind the bound.
    """

    def __init__(self, takes_ranges: bool = True) -> None:
        """Without `takes_ranges` each literal is numbered when it comes: exact for any integers."""
        self._takes_ranges = takes_ranges
        self.slots: dict[str, SlotDraft] = {}
        self.bound_count = 0
        self.text_count = 0
        self.headers, self.a, self.b = array("I"), array("q"), array("q")
        self.kind_of = array("I")  # for ranges: the number of the bound below all of its kind
        self.parts = array("q")  # op, a, b
        self.sets = array("q")
        self.flat = array("I")  # the literals of all conjunctions
        self.ends = array("q", [0])
        self.conjunctions = array("I")  # of each filter
        self.always: int | None = None

    def read(self, filters: Iterable[Filter]) -> None:
        """Add filters. The commonest literals, of numbers and strings, are noted here as they are."""
        slots, flat, ends, number, string = self.slots, self.flat, self.ends, Kind.NUMBER, Kind.STRING
        note = flat.append
        for filter_ in filters:
            conjunctions = filter_.conjunctions
            for conjunction in conjunctions:
                for name, condition in conjunction.conditions.items():
                    slot = slots.get(name) or self._slot(name)
                    some = condition.some
                    if some is not None:
                        kind, points = some.kind, some.points
                        if kind is string and points is not None and len(points) == 1:
                            (value,) = points
                            spans, words = slot.string_spans, slot.words
                            spans.note_point(words.setdefault(value, len(words)))
                            spans.note_point_place(len(flat))
                            slot.has_points = True
                            note(0)  # which `build` knows later
                        elif kind is number and slot.takes_ranges and not some.excluded and points is None:
                            low, high, spans = some.low, some.high, slot.number_spans
                            spans.note_low(low[1] if len(low) > 1 else nan)
                            spans.note_high(high[1] if len(high) > 1 else nan)
                            spans.note_side((low[-1] & 1) + 2 * (high[-1] & 1))
                            spans.note_place(len(flat))
                            note(0)
                        elif (
                            kind is string
                            and points is None
                            and not (some.excluded or some.suffix or some.contains or some.patterns)
                        ):
                            low, high, spans, words = some.low, some.high, slot.string_spans, slot.words
                            spans.note_low(words.setdefault(low[1], len(words)))
                            spans.note_high(words.setdefault(high[1], len(words)) if len(high) > 1 else -1)
                            spans.note_side((low[-1] & 1) + 2 * (high[-1] & 1))
                            spans.note_place(len(flat))
                            note(0)
                            if len(high) > 1 or low[1] != "":
                                slot.orders_strings = True
                        elif kind is number and slot.takes_ranges and points is not None and len(points) == 1:
                            (value,) = points
                            slot.number_spans.note_point(value)
                            slot.number_spans.note_point_place(len(flat))
                            slot.has_points = True
                            note(0)
                        else:
                            note(self._new(slot, some))
                    if condition.none:
                        for domain in condition.none:
                            note(self._literal(slot, domain, True))
                if conjunction.types or conjunction.not_types:
                    self._read_types(conjunction.types, conjunction.not_types)
                if len(flat) == ends[-1]:
                    note(self._always())
                ends.append(len(flat))
            self.conjunctions.append(len(conjunctions))

    def _new(self, slot: SlotDraft, some: Domain) -> int:
        """The number of a literal that `read` does not note as it is."""
        points, low, high = some.points, some.low, some.high
        if points is not None and len(points) == 1 and some.kind is not Kind.BOOLEAN:
            (value,) = points
            if value in slot.points:
                return slot.points[value]
            bounds = slot.bounds_of(value)
            bound = self._bound(bounds, value)
            slot.has_points = True
            literal = slot.points[value] = self._add(slot, POINT, 2 * bound, 2 * bound + 1, bounds.below)
            return literal
        is_plain = not (some.excluded or some.suffix or some.contains or some.patterns)
        if points is not None or not is_plain or (low == BELOW_ALL and high == ABOVE_ALL):
            return self._literal(slot, some, False)
        if (low, high) in slot.ranges:
            return slot.ranges[low, high]
        bounds = slot.bounds_of(low[1] if low[0] == 0 else high[1])
        a, b = self._cut(bounds, low), self._cut(bounds, high)
        literal = slot.ranges[low, high] = self._add(slot, RANGE, a, b, bounds.below)
        return literal

    def dissolve(self, pause: Callable[[], None]) -> None:
        """Forget what only reading needs, in slices: to let go of a million things at once takes a while."""
        for slot in self.slots.values():
            kinds = (slot.bools, slot.numbers, slot.strings, slot.times)
            for table in (
                slot.points,
                slot.ranges,
                slot.domains,
                slot.words,
                *(kind.index for kind in kinds),
            ):
                _empty(table, pause)

    def _read_types(self, types: Iterable[str], not_types: Iterable[str]) -> None:
        slot = self.slots.get("@type") or self._slot("@type")
        for names, sign in ((types, 0), (not_types, NEGATIVE)):
            for name in names:
                key = (Domain(Kind.STRING, frozenset((name,)), suffix="type"), bool(sign))
                literal = slot.domains.get(key)
                if literal is None:
                    literal = slot.domains[key] = self._add(
                        slot, TEXT | sign, self._text(slot, "type", name), 0
                    )
                self.flat.append(literal)

    def _slot(self, name: str) -> SlotDraft:
        slot = self.slots[name] = SlotDraft(name, len(self.slots), self.bound_count, self._takes_ranges)
        self.bound_count += _SLOT_BOUNDS
        for value in (False, True):
            self._bound(slot.bools, value)
        return slot

    def _bound(self, bounds: Bounds, value: Any) -> int:
        number = bounds.index.get(value)
        if number is None:
            number = bounds.index[value] = self.bound_count
            self.bound_count += 1
        return number

    def _cut(self, bounds: Bounds, cut: Cut) -> int:
        if cut == BELOW_ALL:
            return 2 * bounds.below
        if cut == ABOVE_ALL:
            return 2 * bounds.above
        return 2 * self._bound(bounds, cut[1]) + int(cut[2])

    def _text(self, slot: SlotDraft, op: str, text: str) -> int:
        number = slot.texts.get((op, text))
        if number is None:
            number = slot.texts[op, text] = self.text_count
            self.text_count += 1
        return number

    def _set(self, bounds: Bounds, values: Iterable[Any]) -> tuple[int, int]:
        start = len(self.sets)
        self.sets.extend(self._bound(bounds, value) for value in values)
        return start, len(self.sets) - start

    def _add(self, slot: SlotDraft | None, op: int, a: int, b: int, kind: int = 0) -> int:
        self.headers.append(op | (slot.index if slot else 0) << SLOT_SHIFT)
        self.a.append(a)
        self.b.append(b)
        self.kind_of.append(kind)
        return len(self.headers) - 1

    def _always(self) -> int:
        """The literal that every event satisfies: of no parts."""
        if self.always is None:
            if not self.slots:
                self._slot("@type")
            self.always = self._add(None, COMPOSITE, 0, 0)
        return self.always

    def _literal(self, slot: SlotDraft, domain: Domain, negative: bool) -> int:
        """The number of a literal, a new one if it has none yet."""
        key = (domain, negative)
        known = slot.domains.get(key)
        if known is not None:
            return known
        parts, kind = self._parts_of(slot, domain)
        sign = NEGATIVE if negative else 0
        if len(parts) == 1 and parts[0][0] != OUTSIDE:
            op, a, b = parts[0]
        else:
            op, a, b = COMPOSITE, len(self.parts) // PART_WORDS, len(parts)
            for part in parts:
                self.parts.extend(part)
        literal = slot.domains[key] = self._add(slot, op | sign, a, b, kind)
        return literal

    def _parts_of(self, slot: SlotDraft, domain: Domain) -> tuple[list[tuple[int, int, int]], int]:
        """What a value in the domain satisfies, as operators and operands; and the kind of a range."""
        if domain.kind is None:
            return [(RANGE, 2 * slot.first, 2 * slot.last)], slot.first
        bounds = slot.bounds_of_kind(domain.kind)
        slot.has_points |= domain.points is not None or bool(domain.excluded)
        if domain.points is not None:
            if len(domain.points) == 1:
                (value,) = domain.points
                bound = self._bound(bounds, value)
                return [(POINT, 2 * bound, 2 * bound + 1)], bounds.below
            return [(SET, *self._set(bounds, domain.points))], bounds.below
        parts = [(TEXT, self._text(slot, op, text), 0) for op, text in _texts_of(domain)]
        if not parts or domain.has_low or domain.has_high or domain.excluded:
            parts.insert(0, (RANGE, self._cut(bounds, domain.low), self._cut(bounds, domain.high)))
            slot.orders_strings |= domain.kind is Kind.STRING and (domain.has_high or domain.low[1] != "")
        if domain.excluded:
            parts.append((OUTSIDE, *self._set(bounds, domain.excluded)))
        return parts, bounds.below


def _empty(table: dict[Any, int], pause: Callable[[], None]) -> None:
    while table:
        for _ in range(min(SLICE, len(table))):
            table.popitem()
        pause()


def _texts_of(domain: Domain) -> list[tuple[str, str]]:
    found = [("suffix", domain.suffix)] if domain.suffix else []
    found += [("contains", part) for part in domain.contains]
    return found + [("pattern", pattern) for pattern in domain.patterns]
