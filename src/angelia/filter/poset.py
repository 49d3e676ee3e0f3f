"""The filters poset (SIENA 5.2.1): filters ordered by covering, immediate relations stored.

The paper's words: a filter's *successors* are those that cover it, its *predecessors* those that it
covers; the *roots* have no successors. Only immediate relations are stored.

A new filter is not compared with every other. An index proposes few candidates: what covers a
filter can ask only for attributes that the filter asks for, with the same values where both are
equalities; and the other way round. Where candidates are many, as in a long chain, those that cannot be
immediate are put aside by the index, all at once, wherever it is sure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from angelia.errors import FilterError
from angelia.filter.advertisement import Advertisement
from angelia.filter.candidates import AdvertisementIndex, SubscriptionIndex
from angelia.filter.filter import Filter
from angelia.filter.spans import Members, bits_of, numbers_in

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["Insertion", "Part", "Place", "Poset", "advertisement_poset", "subscription_poset"]


class Coverable(Protocol):
    """What can be ordered: filters as subscriptions, and advertisements."""

    def covers(self, other: Any, registry: TypeRegistry | None = None, /) -> bool: ...
    def __hash__(self) -> int: ...


F = TypeVar("F", bound=Coverable)
G = TypeVar("G", bound=Coverable, contravariant=True)


class Place(Enum):
    """Where a filter came to stand: the three cases of SIENA 5.2.1."""

    ROOT = "root"
    EXISTING = "existing"
    COVERED = "covered"


class Insertion(NamedTuple, Generic[F]):
    """The filter that stands in the poset (an equivalent one, if that was there first), and where."""

    filter: F
    place: Place


class Index(Protocol[G]):
    """Proposes candidates, as the bits of their numbers: perhaps too many, never too few."""

    def add(self, number: int, item: G) -> None: ...
    def remove(self, number: int, item: G) -> None: ...
    def may_cover(self, item: G) -> int: ...
    def may_be_covered_by(self, item: G) -> int: ...

    @property
    def plain(self) -> int:
        """Filters of which the index is sure what they cover, at least of one alternative."""
        ...

    def surely_cover(self, item: G) -> int:
        """The plain ones that cover an item of one alternative."""
        ...

    def surely_covered_by(self, item: G) -> int:
        """What a plain item covers, of one alternative."""
        ...

    def near(self, item: G, among: int, above: bool, turn: int) -> int:
        """One of those that cover the item, or that it covers, likely near; each turn by another end."""
        ...

    def breadth(self, number: int) -> int:
        """How much a filter asks for: what covers it asks no more."""
        ...


_FEW = 24  # candidates that are rather asked one by one


class Poset(Generic[F]):
    """A partially ordered set. Make one with `subscription_poset` or `advertisement_poset`."""

    # Inside, filters are numbers: sets of them are what most of the time goes to.

    def __init__(self, index: Index[F], registry: TypeRegistry | None = None) -> None:
        self._index = index
        self._registry = registry
        self._numbers: dict[F, int] = {}
        self._items: dict[int, F] = {}
        self._successors: dict[int, set[int]] = {}
        self._predecessors: dict[int, set[int]] = {}
        self._roots: dict[int, None] = {}
        self._free: list[int] = []  # numbers of filters that are gone: the bits of an index stay short
        self._last: tuple[F, int | None, int] | None = None

    def insert(self, item: F) -> Insertion[F]:
        """Add a filter between its immediate successors and predecessors."""
        if item in self._numbers:
            return Insertion(item, Place.EXISTING)
        covered = self._covered(item)
        successors = self._nearest(item, self._may_cover(item), self._covers(item), above=True)
        for number in successors:
            if covered(self._items[number]):
                return Insertion(self._items[number], Place.EXISTING)
        predecessors = self._nearest(item, self._index.may_be_covered_by(item), covered, above=False)
        self._link(self._number(item), successors, predecessors)
        return Insertion(item, Place.COVERED if successors else Place.ROOT)

    def _may_cover(self, item: F) -> int:
        """What may cover an item. Whoever inserts one has often asked what covers it before."""
        version = None if self._registry is None else self._registry.version
        if self._last is None or self._last[0] is not item or self._last[1] != version:
            self._last = item, version, self._index.may_cover(item)
        return self._last[2]

    def _covers(self, item: F) -> Callable[[F], bool]:
        """Whether another covers `item`. (Not written as a function: this is called often.)"""
        return methodcaller("covers", item, self._registry)

    def _covered(self, item: F) -> Callable[[F], bool]:
        """Whether `item` covers another."""
        return item.covers if self._registry is None else lambda other: item.covers(other, self._registry)

    def _number(self, item: F) -> int:
        number = self._free.pop() if self._free else len(self._items)
        self._numbers[item] = number
        self._items[number] = item
        self._index.add(number, item)
        self._last = None
        return number

    def _nearest(self, item: F, candidates: int, related: Callable[[F], bool], above: bool) -> set[int]:
        """The related candidates from which no other is reached onwards: upwards, if they are above.

        What lies onwards of a related one is related too, and not nearest: it is not asked again.
        """
        items, onwards = self._items, self._successors if above else self._predecessors
        if candidates.bit_count() > _FEW:
            candidates, done = self._without_far(item, candidates, related, above)
            if done:
                return set(numbers_in(candidates))
        nearest: set[int] = set()
        beyond: set[int] = set()
        numbers = numbers_in(candidates)
        if len(numbers) > 1:  # what asks for more is nearer to what it covers
            numbers.sort(key=self._index.breadth, reverse=above)
        for number in numbers:
            if number not in beyond and related(items[number]):
                nearest.add(number)
                if onwards[number]:
                    _walk(onwards[number], onwards, beyond)
        return nearest - beyond

    def _without_far(
        self, item: F, candidates: int, related: Callable[[F], bool], above: bool
    ) -> tuple[int, bool]:
        """The candidates without those that the index knows to lie onwards of a related one.

        And whether these are the nearest. The work is limited by the number of candidates: if few are far,
        as between two layers where each covers each, the rest is left as it is.
        """
        index = self._index
        surely_onwards = index.surely_cover if above else index.surely_covered_by
        left, unasked = candidates, candidates & index.plain
        for turn in range(4 + candidates.bit_count() // 16):
            if not unasked:
                break
            number = index.near(item, unasked, above, turn)
            near = self._items[number]
            gone = surely_onwards(near) & ~(1 << number) if related(near) else 1 << number
            left &= ~gone
            unasked &= ~(gone | 1 << number)
        return left, not unasked and not left & ~index.plain

    def _link(self, number: int, successors: set[int], predecessors: set[int]) -> None:
        for lower in predecessors:
            for upper in self._successors[lower] & successors:
                self._predecessors[upper].discard(lower)
                self._successors[lower].discard(upper)
            self._successors[lower].add(number)
            self._roots.pop(lower, None)
        for upper in successors:
            self._predecessors[upper].add(number)
        self._successors[number] = successors
        self._predecessors[number] = predecessors
        if not successors:
            self._roots[number] = None

    def remove(self, item: F) -> frozenset[F]:
        """Take a filter out; returns those that became roots by that."""
        number = self._numbers.pop(self._standing(item))
        self._index.remove(number, self._items.pop(number))
        self._free.append(number)
        self._last = None
        successors, predecessors = self._successors.pop(number), self._predecessors.pop(number)
        self._roots.pop(number, None)
        for upper in successors:
            self._predecessors[upper].discard(number)
        for lower in predecessors:
            self._successors[lower].discard(number)
        self._rejoin(predecessors, successors)
        return self._filters(lower for lower in predecessors if lower in self._roots)

    def _rejoin(self, lowers: set[int], uppers: set[int]) -> None:
        """What stood between them is gone: an upper becomes immediate unless another way leads to it."""
        items, plain = self._items, self._index.plain
        below: dict[int, int] = {}
        for lower in lowers:
            others = self._successors[lower]
            if others and uppers:
                known = bits_of(others)
                below = below or {upper: self._index.surely_covered_by(items[upper]) for upper in uppers}
                joined = [upper for upper in uppers if not below[upper] & known]
                doubtful = [other for other in others if not plain >> other & 1]
                for upper in joined:
                    unsure = doubtful if plain >> upper & 1 else list(others)
                    if not any(self.is_covered(items[other], items[upper]) for other in unsure):
                        others.add(upper)
            else:
                others |= uppers
            for upper in others & uppers:
                self._predecessors[upper].add(lower)
            if not others:
                self._roots[lower] = None

    def _standing(self, item: F) -> F:
        if item not in self._numbers:
            raise FilterError(f"not in the poset: {item}")
        return item

    def _filters(self, numbers: Iterable[int]) -> frozenset[F]:
        return frozenset(self._items[number] for number in numbers)

    @property
    def roots(self) -> tuple[F, ...]:
        """The filters that no other covers, in the order in which they became roots."""
        return tuple(self._items[number] for number in self._roots)

    def is_root(self, item: F) -> bool:
        """Whether a filter is in the poset and no other covers it."""
        return self._numbers.get(item) in self._roots

    def successors(self, item: F) -> frozenset[F]:
        """The filters that immediately cover one of the poset."""
        return self._filters(self._successors[self._numbers[self._standing(item)]])

    def each_successor(self, item: F) -> Iterator[F]:
        """The same, one after the other: for those who need not see all."""
        return map(self._items.__getitem__, self._successors[self._numbers[self._standing(item)]])

    def uppers(self, item: F) -> frozenset[F]:
        """The filters that would immediately cover one that is not in the poset."""
        return self._filters(self._nearest(item, self._may_cover(item), self._covers(item), above=True))

    def predecessors(self, item: F) -> frozenset[F]:
        """The filters that one of the poset immediately covers."""
        return self._filters(self._predecessors[self._numbers[self._standing(item)]])

    def covering(self, item: F, among: Part[F] | None = None) -> frozenset[F]:
        """All filters of the poset, or among some, that cover this one (which may be outside); not itself."""
        number = self._numbers.get(item)
        if number is not None and among is None:
            return self._filters(_walk(self._successors[number], self._successors, set()))
        return self._proven(item, self._may_cover(item), self._covers(item), among)

    def covered_by(self, item: F, among: Part[F] | None = None) -> frozenset[F]:
        """All filters of the poset, or among some, that this one covers (it may be outside); not itself."""
        number = self._numbers.get(item)
        if number is not None and among is None:
            return self._filters(_walk(self._predecessors[number], self._predecessors, set()))
        return self._proven(item, self._index.may_be_covered_by(item), self._covered(item), among)

    def _proven(
        self, item: F, candidates: int, related: Callable[[F], bool], among: Part[F] | None
    ) -> frozenset[F]:
        if among is not None:
            candidates &= among.members.bits
        itself = self._numbers.get(item)
        return frozenset(
            other
            for number in numbers_in(candidates)
            if number != itself and related(other := self._items[number])
        )

    def part(self, items: Iterable[F] = ()) -> Part[F]:
        """Some filters of the poset, to look among."""
        return Part(self._numbers, items)

    def is_covered(self, item: F, by: F) -> bool:
        """Whether one filter covers another, as this poset knows the types; both may be outside."""
        return by.covers(item, self._registry)

    def __contains__(self, item: object) -> bool:
        return item in self._numbers

    def __iter__(self) -> Iterator[F]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class Part(Generic[F]):
    """Some filters of a poset; they leave it before they leave the poset."""

    def __init__(self, numbers: Mapping[F, int], items: Iterable[F]) -> None:
        self._numbers = numbers
        self.members = Members()
        for item in items:
            self.add(item)

    def add(self, item: F) -> None:
        """Add a filter of the poset."""
        self.members.add(self._numbers[item])

    def remove(self, item: F) -> None:
        """Remove a filter that is there."""
        self.members.remove(self._numbers[item])


def _walk(start: Iterable[int], links: dict[int, set[int]], found: set[int]) -> set[int]:
    """Add to `found` all that is reached from `start`, itself included, but not over what is found."""
    front = [number for number in start if number not in found]
    while front:
        number = front.pop()
        if number not in found:
            found.add(number)
            front.extend(links[number])
    return found


def subscription_poset(registry: TypeRegistry | None = None) -> Poset[Filter]:
    """A poset of subscriptions: the paper's P_S."""
    return Poset(SubscriptionIndex(registry), registry)


def advertisement_poset(registry: TypeRegistry | None = None) -> Poset[Advertisement]:
    """A poset of advertisements: the paper's P_A."""
    return Poset(AdvertisementIndex(), registry)
