"""Candidates for covering: the indexes behind the poset.

What covers a filter can ask only for attributes that the filter asks for, with the same values
where both are equalities, around its interval where it has one, and with no text or refused value that
the filter does not have (`demands`). An index proposes what passes such tests; the poset then asks each
of them. It may propose too many, never too few. Of some it is sure: of filters that are nothing but
intervals, and a type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from angelia.event import Scalar
from angelia.filter.above import ASKED, Above, Key, keys_of, tidy
from angelia.filter.advertisement import Advertisement
from angelia.filter.conjunction import Condition, Conjunction
from angelia.filter.demands import Column, Lower, is_special, span_of
from angelia.filter.domain import ABOVE_ALL, BELOW_ALL, Domain
from angelia.filter.filter import Filter
from angelia.filter.spans import Members, Span, Spans, bits_of, numbers_in

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["AdvertisementIndex", "SubscriptionIndex"]

_FREE: Key = (None, "free")  # advertisements that allow everything
_Rank = tuple[frozenset[str], int, int, int]
_LOOKED_AT = 16  # alternatives of a filter, to find a rare one
_ALL: Span = (BELOW_ALL, ABOVE_ALL)
_NOBODY, _NO_SPANS = Members(), Spans()
_NO_VALUES = frozenset[Scalar]()


class SubscriptionIndex:
    """Candidates by the attributes, values, intervals and types of conjunctions.

    To find what covers a filter, each alternative is filed by itself. To find what a filter covers, one
    alternative of each, the rarest, is filed under all its conditions.
    """

    def __init__(self, registry: TypeRegistry | None = None) -> None:
        self._registry = registry
        self._items: dict[int, Filter] = {}
        self._singles = Above(registry)  # filters of one alternative, under their own numbers
        self._several = _Several(registry)  # the others
        self._below: dict[Key, Members] = {}
        self._lower: dict[Key, Lower] = {}
        self._columns: dict[str, Column] = {}  # of conditions that are not just intervals
        self._types: dict[str, Members] = {}
        self._rare: dict[int, Conjunction] = {}  # of filters of several alternatives, the one that is filed
        self._breadths: dict[int, int] = {}
        self._ranks: dict[int, _Rank | None] = {}
        self._all = self._empty = self._single = self._clear = 0  # bits
        self.plain = 0  # of filters of which the index is sure what they cover

    def add(self, number: int, item: Filter) -> None:
        """File a filter under its number."""
        self._items[number] = item
        self._breadths[number] = sum(map(_breadth, item.conjunctions))
        self._ranks[number] = _rank(item)
        self._mark(number, item)
        if len(item.conjunctions) == 1:
            self._singles.add(number, item.conjunctions[0])
            self._add_below(number, item.conjunctions[0])
        elif item.conjunctions:
            self._several.add(number, item)
            self._rare[number] = min(item.conjunctions[:_LOOKED_AT], key=self._commonness)
            self._add_below(number, self._rare[number])

    def _add_below(self, number: int, part: Conjunction) -> None:
        for key in _places(part):
            self._below.setdefault(key, Members()).add(number)
        for name, some in _asked(part):
            key = (name, some.kind)
            if key not in self._lower:
                self._lower[key] = Lower()
            self._lower[key].add(number, some)
        for name, condition in _special(part):
            self._columns.setdefault(name, Column()).add(number, condition)
        for name in part.types:
            self._types.setdefault(name, Members()).add(number)

    def remove(self, number: int, item: Filter) -> None:
        """Forget a filter."""
        self._mark(number, item)
        if len(item.conjunctions) == 1:
            self._singles.remove(number)
            self._remove_below(number, item.conjunctions[0])
        elif item.conjunctions:
            self._several.remove(number)
            self._remove_below(number, self._rare.pop(number))
        del self._items[number], self._breadths[number], self._ranks[number]

    def _remove_below(self, number: int, part: Conjunction) -> None:
        for key in _places(part):
            self._below[key].remove(number)
            tidy(self._below, key)
        for name, some in _asked(part):
            self._lower[name, some.kind].remove(number, some)
            tidy(self._lower, (name, some.kind))
        for name, condition in _special(part):
            self._columns[name].remove(number, condition)
            tidy(self._columns, name)
        for name in part.types:
            self._types[name].remove(number)
            tidy(self._types, name)

    def _commonness(self, part: Conjunction) -> int:
        """How many ask, of some attribute, for something of the sort of an alternative, or have its type."""
        types = [len(self._types.get(name, ())) for name in part.types]
        return min([*types, *map(self._size, part.conditions.items())], default=len(self._items))

    def _mark(self, number: int, item: Filter) -> None:
        """Note what sort of filter it is, or that it is no more."""
        bit = 1 << number
        self._all ^= bit
        if not item.conjunctions:
            self._empty ^= bit
        if len(item.conjunctions) == 1:
            self._single ^= bit
        if _is_clear(item):
            self._clear ^= bit
        if _is_plain(item):
            self.plain ^= bit

    def breadth(self, number: int) -> int:
        """How much a filter asks for: what covers it asks no more, if both have one alternative."""
        return self._breadths[number]

    def rank(self, number: int) -> object:
        """What two filters have in common of which surely none covers the other; None if nothing is known."""
        return self._ranks[number]

    # ------------------------------------------------ what covers a filter

    def may_cover(self, item: Filter) -> int:
        """What may cover the item: all its alternatives, of which as many are looked at as is needed."""
        found = self._all
        for part in item.conjunctions:
            found &= self._singles.around(part) | self._several.around(part)
            if found.bit_count() <= ASKED:
                break
        return found

    def is_unlike_others(self, item: Filter) -> bool:
        """Whether no other is equivalent to an item without being equal."""
        return _is_clear(item) and not item.conjunctions[0].types

    def may_equal(self, item: Filter, covering: int) -> int:
        """Of what may cover an item, what may be equivalent to it without being equal."""
        if _is_clear(item):
            covering &= ~self._clear
        return covering and covering & self.may_be_covered_by(item)

    def surely_cover(self, item: Filter) -> int:
        """The plain ones that cover an item of one alternative."""
        if len(item.conjunctions) != 1:
            return 0
        found, few = self._singles.sure(item.conjunctions[0])
        few &= self.plain & ~found
        sure = [number for number in numbers_in(few) if self._items[number].covers(item, self._registry)]
        return found & self.plain | bits_of(sure)

    def guesses(self, item: Filter) -> Iterator[int]:
        """Some that may well cover an item, the nearest first."""
        return self._singles.guesses(item.conjunctions[0]) if len(item.conjunctions) == 1 else iter(())

    def near(self, item: Filter, among: int, turn: int) -> int:
        """One that has an end as near as possible to that of the item; each turn another end."""
        ends = [
            (lower.spans, span_of(some))
            for part in item.conjunctions[:1]
            for name, some in _asked(part)
            if (lower := self._lower.get((name, some.kind))) is not None
        ]
        spans, span = ends[turn // 2 % len(ends)] if ends else (_NO_SPANS, _ALL)
        found = spans.near(span, among, upper=turn % 2 == 0)
        return among.bit_length() - 1 if found is None else found

    # ------------------------------------------------ what a filter covers

    def may_be_covered_by(self, item: Filter) -> int:
        """What the item may cover."""
        found = self._empty
        for part in item.conjunctions:
            found |= self._of_type(self._within(part), part)
        return found

    def surely_covered_by(self, item: Filter) -> int:
        """Some of what the item covers: all of one alternative, if it is plain."""
        if not _is_plain(item):
            return 0
        (part,) = item.conjunctions
        found = self._single
        for name, condition in part.conditions.items():
            if found and condition.some is not None:
                found &= self._lying_in(name, condition.some)
        return found and self._of_type(found, part)

    def _of_type(self, found: int, part: Conjunction) -> int:
        """Those of the found that ask for all types that an alternative asks for."""
        for name in part.types:
            fitting = 0
            for each in self._at_or_below(name) if found else ():
                fitting |= self._types.get(each, _NOBODY).bits
            found &= fitting
        return found

    def _at_or_below(self, name: str) -> Iterable[str]:
        if self._registry is None or name not in self._registry:
            return (name,)
        lower = self._registry.descendants(name)
        return (name, *(each for each in self._types if each in lower))

    def _within(self, part: Conjunction) -> int:
        """What asks for no less than an alternative does."""
        found = self._all
        for name, condition in sorted(part.conditions.items(), key=self._size):
            found &= self._asking(name, condition)
            if not found:
                return 0
        for name, condition in part.conditions.items():
            if name in self._columns and found.bit_count() > ASKED:
                kind = condition.some and condition.some.kind
                found = self._columns[name].below(found, condition, self._lower.get((name, kind)))
        return found

    def _size(self, asked: tuple[str, Condition]) -> int:
        """How many ask of an attribute something of the sort."""
        name, condition = asked
        return sum(
            len(self._below.get(key, ()) or self._lower.get(key, ())) for key in keys_of(name, condition)
        )

    def _asking(self, name: str, condition: Condition) -> int:
        """Filters that ask of the attribute what the condition may cover."""
        some = condition.some
        if some is None:
            return self._below.get((name,), _NOBODY).bits
        if some.points is not None and len(some.points) <= 8:
            found = 0
            for point in some.points:
                found |= self._below.get((name, some.kind, point), _NOBODY).bits
            return found
        return self._lying_in(name, some)

    def _lying_in(self, name: str, some: Domain) -> int:
        """Filters that ask for a value between the ends of a domain."""
        if some.kind is None:
            return self._below.get((name, "some"), _NOBODY).bits
        lower = self._lower.get((name, some.kind))
        return 0 if lower is None else lower.lying_in(some)


class _Several:
    """Filters of several alternatives, each of which is filed under a number of its own, its slot."""

    def __init__(self, registry: TypeRegistry | None) -> None:
        self._above = Above(registry)
        self._slots: dict[int, list[int]] = {}  # of each filter
        self._owners: dict[int, int] = {}  # the filter of each slot
        self._free: list[int] = []

    def add(self, number: int, item: Filter) -> None:
        """File all alternatives of a filter."""
        self._slots[number] = slots = []
        for part in item.conjunctions:
            slot = self._free.pop() if self._free else len(self._owners)
            slots.append(slot)
            self._owners[slot] = number
            self._above.add(slot, part)

    def remove(self, number: int) -> None:
        """Forget a filter."""
        for slot in self._slots.pop(number):
            self._above.remove(slot)
            del self._owners[slot]
            self._free.append(slot)

    def around(self, part: Conjunction) -> int:
        """The filters that have an alternative which may cover another."""
        if not self._owners:
            return 0
        return bits_of({self._owners[slot] for slot in numbers_in(self._above.around(part))})


def _breadth(part: Conjunction) -> int:
    """How much an alternative asks for: a value is more than several, and these are more than an interval."""
    total = 0
    for condition in part.conditions.values():
        points = None if condition.some is None else condition.some.points
        total += 2 if points is None else 4 - (len(points) > 1)
    return total


def _rank(item: Filter) -> _Rank | None:
    """How many values a filter asks for and how many it excludes, if it does nothing else.

    Of two filters that are the same in that, one covers the other only if they are equal.
    """
    if len(item.conjunctions) != 1 or item.conjunctions[0].not_types:
        return None
    values = excluded = 0
    for condition in item.conjunctions[0].conditions.values():
        some = condition.some
        if some is None or condition.none:
            return None
        if some.points is not None and len(some.points) == 1:
            values += 1
        elif some.excluded and msgspec.structs.replace(some, excluded=_NO_VALUES).is_whole_kind:
            excluded += len(some.excluded)
        else:
            return None
    return item.conjunctions[0].types, len(item.conjunctions[0].conditions), values, excluded


def _is_clear(item: Filter) -> bool:
    """Whether another of the same sort is equivalent to a filter only if it is equal.

    One of another sort never is, unless the filter asks for a type: what types are, the registry knows.
    """
    if len(item.conjunctions) != 1:
        return False
    (part,) = item.conjunctions
    if part.not_types or len(part.types) > 1:
        return False
    return all(condition.some is not None and not condition.none for condition in part.conditions.values())


def _is_plain(item: Filter) -> bool:
    """Whether a filter is nothing but intervals, and a type: then it covers all that lies in them."""
    if len(item.conjunctions) != 1:
        return False
    (part,) = item.conjunctions
    if part.not_types or len(part.types) > 1:
        return False
    for condition in part.conditions.values():
        some = condition.some
        if some is None or condition.none or some.excluded or some.reads_text:
            return False
        if some.points is not None and len(some.points) > 1:
            return False
    return True


def _special(part: Conjunction) -> list[tuple[str, Condition]]:
    """The attributes with conditions that are not just intervals."""
    return [(name, condition) for name, condition in part.conditions.items() if is_special(condition)]


def _asked(part: Conjunction) -> list[tuple[str, Domain]]:
    """The attributes of which a value of some kind is asked for."""
    conditions = part.conditions.items()
    return [(name, c.some) for name, c in conditions if c.some is not None and c.some.kind is not None]


def _places(part: Conjunction) -> list[Key]:
    """Every key, but for intervals, under which what may cover an alternative looks for it."""
    places: list[Key] = []
    for name, condition in part.conditions.items():
        some = condition.some
        places.append((name,))
        if some is not None:
            places.append((name, "some"))
            places += [(name, some.kind, point) for point in some.points or ()]
    return places


class AdvertisementIndex:
    """Candidates by the attributes that advertisements mention."""

    def __init__(self) -> None:
        self._mentions: dict[Key, Members] = {}
        self._all = 0  # bits

    def add(self, number: int, item: Advertisement) -> None:
        """File an advertisement under its number."""
        self._all |= 1 << number
        for key in self._keys(item):
            self._mentions.setdefault(key, Members()).add(number)

    def remove(self, number: int, item: Advertisement) -> None:
        """Forget an advertisement."""
        self._all ^= 1 << number
        for key in self._keys(item):
            self._mentions[key].remove(number)
            tidy(self._mentions, key)

    @staticmethod
    def _keys(item: Advertisement) -> list[Key]:
        if item.allowed is None:
            return [_FREE]
        names = _attributes(item)
        return [_first(names), *((name,) for name in names)]

    def may_cover(self, item: Advertisement) -> int:
        """What may cover the item."""
        free = self._mentions.get(_FREE, _NOBODY).bits
        if item.allowed is None:
            return free
        names = _attributes(item)
        if not names:
            return self._all
        return free | min((self._mentions.get((name,), _NOBODY) for name in names), key=len).bits

    def may_be_covered_by(self, item: Advertisement) -> int:
        """What the item may cover."""
        if item.allowed is None:
            return self._all
        found = self._mentions.get(_first([]), _NOBODY).bits
        for name in item.allowed:
            found |= self._mentions.get(_first([name]), _NOBODY).bits
        return found

    def is_unlike_others(self, item: Advertisement) -> bool:
        """Not known."""
        return False

    def may_equal(self, item: Advertisement, covering: int) -> int:
        """Anything."""
        return covering & self.may_be_covered_by(item)

    def surely_cover(self, item: Advertisement) -> int:
        """Of none it is sure."""
        return 0

    surely_covered_by = surely_cover
    plain = 0

    def guesses(self, item: Advertisement) -> Iterator[int]:
        """None."""
        return iter(())

    def near(self, item: Advertisement, among: int, turn: int) -> int:
        """Any."""
        return among.bit_length() - 1

    def breadth(self, number: int) -> int:
        """Not known."""
        return 0

    def rank(self, number: int) -> None:
        """Not known."""


def _attributes(item: Advertisement) -> list[str]:
    """The attributes that an event may have: one whose constraints nothing satisfies is as good as absent."""
    allowed = (item.allowed or {}).items()
    return [n for n, domains in allowed if n[0] != "@" and any(not domain.is_empty for domain in domains)]


def _first(names: list[str]) -> Key:
    """The key of the advertisements that mention `names[0]` before any other name, or nothing."""
    return (None, "first", *names[:1])
