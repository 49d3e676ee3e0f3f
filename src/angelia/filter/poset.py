"""The filters poset (SIENA 5.2.1): filters ordered by covering, immediate relations stored.

The paper's words: a filter's *successors* are those that cover it, its *predecessors* those that it
covers; the *roots* have no successors. Only immediate relations are stored.

A new filter is not compared with every other. An index proposes few candidates: what covers a
filter can ask only for attributes that the filter asks for, with the same values where both are
equalities; and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from angelia.errors import FilterError
from angelia.filter.advertisement import Advertisement
from angelia.filter.candidates import AdvertisementIndex, SubscriptionIndex
from angelia.filter.filter import Filter

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["Insertion", "Place", "Poset", "advertisement_poset", "subscription_poset"]


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
    """Proposes candidates, as numbers: perhaps too many, never too few, those near to the item first."""

    def add(self, number: int, item: G) -> None: ...
    def remove(self, number: int, item: G) -> None: ...
    def may_cover(self, item: G) -> Iterable[int]: ...
    def may_be_covered_by(self, item: G) -> Iterable[int]: ...


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
        self._next = 0

    def insert(self, item: F) -> Insertion[F]:
        """Add a filter between its immediate successors and predecessors."""
        if item in self._numbers:
            return Insertion(item, Place.EXISTING)
        covered, covers = self._covered(item), self._covers(item)
        successors = self._nearest(self._index.may_cover(item), covers, self._successors)
        for number in successors:
            if covered(self._items[number]):
                return Insertion(self._items[number], Place.EXISTING)
        predecessors = self._nearest(self._index.may_be_covered_by(item), covered, self._predecessors)
        self._link(self._number(item), successors, predecessors)
        return Insertion(item, Place.COVERED if successors else Place.ROOT)

    def _covers(self, item: F) -> Callable[[F], bool]:
        """Whether another covers `item`. (Not written as a function: this is called often.)"""
        return methodcaller("covers", item, self._registry)

    def _covered(self, item: F) -> Callable[[F], bool]:
        """Whether `item` covers another."""
        return item.covers if self._registry is None else lambda other: item.covers(other, self._registry)

    def _number(self, item: F) -> int:
        number = self._next
        self._next += 1
        self._numbers[item] = number
        self._items[number] = item
        self._index.add(number, item)
        return number

    def _nearest(
        self, candidates: Iterable[int], related: Callable[[F], bool], onwards: dict[int, set[int]]
    ) -> set[int]:
        """The related candidates from which no other is reached `onwards`.

        What lies onwards of a related one is related too, and not nearest: it is not asked again.
        """
        items = self._items
        nearest: set[int] = set()
        beyond: set[int] = set()
        for candidate in candidates:
            if candidate not in beyond and related(items[candidate]):
                nearest.add(candidate)
                if onwards[candidate]:
                    _walk(onwards[candidate], onwards, beyond)
        return nearest - beyond

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
        successors, predecessors = self._successors.pop(number), self._predecessors.pop(number)
        self._roots.pop(number, None)
        for upper in successors:
            self._predecessors[upper].discard(number)
        for lower in predecessors:
            self._successors[lower].discard(number)
            # An upper neighbour becomes immediate unless another way leads to it.
            for upper in successors - _walk(self._successors[lower], self._successors, set()):
                self._successors[lower].add(upper)
                self._predecessors[upper].add(lower)
            if not self._successors[lower]:
                self._roots[lower] = None
        return self._filters(lower for lower in predecessors if lower in self._roots)

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

    def predecessors(self, item: F) -> frozenset[F]:
        """The filters that one of the poset immediately covers."""
        return self._filters(self._predecessors[self._numbers[self._standing(item)]])

    def covering(self, item: F) -> frozenset[F]:
        """All filters of the poset that cover this one (which may be outside); not itself."""
        number = self._numbers.get(item)
        if number is not None:
            return self._filters(_walk(self._successors[number], self._successors, set()))
        proposed = (self._items[other] for other in self._index.may_cover(item))
        return frozenset(filter(self._covers(item), proposed))

    def covered_by(self, item: F) -> frozenset[F]:
        """All filters of the poset that this one covers (it may be outside); not itself."""
        number = self._numbers.get(item)
        if number is not None:
            return self._filters(_walk(self._predecessors[number], self._predecessors, set()))
        proposed = (self._items[other] for other in self._index.may_be_covered_by(item))
        return frozenset(filter(self._covered(item), proposed))

    def is_covered(self, item: F, by: F) -> bool:
        """Whether one filter covers another, as this poset knows the types; both may be outside."""
        return by.covers(item, self._registry)

    def __contains__(self, item: object) -> bool:
        return item in self._numbers

    def __iter__(self) -> Iterator[F]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


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
    return Poset(SubscriptionIndex(), registry)


def advertisement_poset(registry: TypeRegistry | None = None) -> Poset[Advertisement]:
    """A poset of advertisements: the paper's P_A."""
    return Poset(AdvertisementIndex(), registry)
