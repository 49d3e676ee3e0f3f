"""The filters poset (SIENA 5.2.1): filters ordered by covering.

The paper's words: a filter's *successors* are those that cover it, its *predecessors* those that it
covers; the *roots* have no successors.

Departure from the paper: immediate relations are not stored, but found when asked for. Between two layers in
which each filter covers each there are as many relations as pairs, and filters come from strangers. What is
stored of each filter is its *parent*, one that covers it, as near as is found at little cost. That is enough
to know the roots: a filter with a parent is none, and when the parent goes, another one is looked for.

A new filter is not compared with every other. An index proposes few candidates: what covers a
filter can ask only for attributes that the filter asks for, with the same values where both are
equalities; and the other way round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from angelia.errors import FilterError
from angelia.filter.advertisement import Advertisement
from angelia.filter.candidates import AdvertisementIndex, SubscriptionIndex
from angelia.filter.filter import Filter
from angelia.filter.spans import bits_of, numbers_in

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

    def is_unlike_others(self, item: G) -> bool:
        """Whether no other is equivalent to an item without being equal."""
        ...

    def may_equal(self, item: G, covering: int) -> int:
        """Of what may cover an item, what may be equivalent to it without being equal."""
        ...

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

    def guesses(self, item: G) -> Iterator[int]:
        """Some that may well cover an item, the nearest first: to look no further if one does."""
        ...

    def near(self, item: G, among: int, turn: int) -> int:
        """One of those that may cover the item, likely near; each turn by another end."""
        ...

    def breadth(self, number: int) -> int:
        """How much a filter asks for: what covers it asks no more."""
        ...

    def rank(self, number: int) -> object:
        """What two filters have in common of which surely none covers the other; None if nothing is known."""
        ...


_GUESSES = 12
_SIBLINGS = 8
_RECENT = 16
_FEW = 24  # candidates that are rather asked one by one
_MANY = 256  # candidates of which the index is rather asked whether it is sure
_PAIRS = 512  # filters that are rather compared with each other than looked up


class Poset(Generic[F]):
    """A partially ordered set. Make one with `subscription_poset` or `advertisement_poset`."""

    # Inside, filters are numbers: sets of them are what most of the time goes to.

    def __init__(self, index: Index[F], registry: TypeRegistry | None = None) -> None:
        self._index = index
        self._registry = registry
        self._numbers: dict[F, int] = {}
        self._items: dict[int, F] = {}
        self._parents: dict[int, int] = {}  # of all but the roots
        self._children: dict[int, set[int]] = {}  # of those that have some
        self._roots: dict[int, None] = {}
        self._root_bits = 0
        self._free: list[int] = []  # numbers of filters that are gone: the bits of an index stay short
        self._asked: tuple[F, int | None, dict[bool, int]] | None = None

    # ------------------------------------------------ changes

    def insert(self, item: F) -> Insertion[F]:
        """Add a filter below one that covers it, or else above the roots that it covers."""
        if item in self._numbers:
            return Insertion(item, Place.EXISTING)
        same = self._equivalent(item)
        if same is not None:
            return Insertion(same, Place.EXISTING)
        parent = self._parent(item)
        lower = self._covered_roots(item) if parent is None else self._covered_children(item, parent)
        number = self._number(item)
        self._put(number, parent)
        for each in lower:
            self._put(each, number)
        return Insertion(item, Place.ROOT if parent is None else Place.COVERED)

    def remove(self, item: F) -> frozenset[F]:
        """Take a filter out; returns those that became roots by that."""
        return self.remove_all((item,))

    def remove_all(self, items: Iterable[F]) -> frozenset[F]:
        """Take filters out, all at once; returns those that became roots by that."""
        gone = {self._numbers[self._standing(item)]: None for item in items}
        orphans = [
            (child, self._above_all(number, gone))
            for number in gone
            for child in self._children.get(number, ())
            if child not in gone
        ]
        for number in gone:
            self._put(number, None)
            del self._roots[number]
            item = self._items.pop(number)
            del self._numbers[item]
            self._index.remove(number, item)
        self._root_bits &= ~bits_of(gone)
        self._free.extend(gone)
        self._asked = None
        self._rehouse(orphans)
        return self._filters(orphan for orphan, _ in orphans if orphan in self._roots)

    def _above_all(self, number: int, gone: Mapping[int, None]) -> int | None:
        """The nearest ancestor of a filter that stays."""
        parent = self._parents.get(number)
        while parent is not None and parent in gone:
            parent = self._parents.get(parent)
        return parent

    def _rehouse(self, orphans: list[tuple[int, int | None]]) -> None:
        """Find new parents. Each is given with an ancestor, which serves if they are too many.

        What is above one of them is often above others: between two layers, one question to the index does
        for all. They go to different ones, so that not all have to move again when the next one goes.
        """
        many, recent = len(orphans) > _FEW, deque[int](maxlen=_RECENT)
        for orphan, ancestor in orphans:
            item = self._items[orphan]
            covers = self._covers(item)
            recent.rotate()
            parent = next((n for n in recent if n != orphan and covers(self._items[n])), None)
            if parent is None:
                parent = ancestor if many and ancestor is not None else self._parent(item)
                if many and parent is not None:
                    others = numbers_in(self._candidates(item, above=True)) if ancestor is None else [parent]
                    recent.extend(others[:: len(others) // _RECENT + 1])
            self._put(orphan, parent)

    def _number(self, item: F) -> int:
        number = self._free.pop() if self._free else len(self._items)
        self._numbers[item] = number
        self._items[number] = item
        self._index.add(number, item)
        if self._asked is not None and self._asked[0] is not item:
            self._asked = None
        return number

    def _put(self, number: int, parent: int | None) -> None:
        """Put a filter below another, or among the roots."""
        old = self._parents.pop(number, None)
        if old is not None:
            self._children[old].discard(number)
            if not self._children[old]:
                del self._children[old]
        if parent is None:
            self._roots[number] = None
            self._root_bits |= 1 << number
            return
        if number in self._roots:
            del self._roots[number]
            self._root_bits ^= 1 << number
        self._parents[number] = parent
        self._children.setdefault(parent, set()).add(number)

    def _equivalent(self, item: F) -> F | None:
        """The filter that covers an item and that it covers, if there is one."""
        if self._index.is_unlike_others(item):
            return None
        for number in numbers_in(self._index.may_equal(item, self._candidates(item, above=True))):
            other = self._items[number]
            if self.is_covered(item, other) and self.is_covered(other, item):
                return other
        return None

    def _parent(self, item: F) -> int | None:
        """One that covers an item, as near to it as is found at little cost; not itself."""
        itself, covers = self._numbers.get(item), self._covers(item)
        for number in islice(self._index.guesses(item), _GUESSES):
            if number != itself and covers(self._items[number]):
                return number
        candidates = self._candidates(item, above=True)
        return self._near(item, candidates if itself is None else candidates & ~(1 << itself))

    def _covered_roots(self, item: F) -> list[int]:
        """The roots that an item covers."""
        covered, roots = self._covered(item), self._root_bits
        if len(self._roots) > _FEW:
            roots &= self._candidates(item, above=False)
        return [number for number in numbers_in(roots) if covered(self._items[number])]

    def _covered_children(self, item: F, parent: int) -> list[int]:
        """The children of a filter that an item covers, if they are few: so a chain stays one."""
        children = self._children.get(parent, ())
        covered = self._covered(item)
        return [n for n in children if covered(self._items[n])] if len(children) <= _SIBLINGS else []

    def _near(self, item: F, candidates: int) -> int | None:
        """One of the candidates that covers an item, as near to it as is found at little cost."""
        if not candidates:
            return None
        covers, items = self._covers(item), self._items
        many = candidates.bit_count() - _FEW
        if many > 0:
            for turn in range(4 + many // 16):
                number = self._index.near(item, candidates, turn)
                if covers(items[number]):
                    return number
                candidates ^= 1 << number
                if not candidates:
                    return None
        numbers = numbers_in(candidates)
        if len(numbers) > 1:  # what asks for more is nearer to what it covers
            numbers.sort(key=self._index.breadth, reverse=True)
        for place, number in enumerate(numbers):
            if covers(items[number]):
                return number if many > 0 else self._lowest(number, numbers[place + 1 :], covers)
        return None

    def _lowest(self, number: int, others: list[int], covers: Callable[[F], bool]) -> int:
        """Of a filter and some of those below it that cover something, one with no such child."""
        below: dict[int, list[int]] = {}
        for other in others:
            below.setdefault(self._parents.get(other, -1), []).append(other)
        while True:
            lower = next((n for n in below.get(number, ()) if covers(self._items[n])), None)
            if lower is None:
                return number
            number = lower

    # ------------------------------------------------ questions to the index

    def _candidates(self, item: F, above: bool) -> int:
        """What may cover an item, or be covered by it. Who inserts one has often asked before."""
        version = None if self._registry is None else self._registry.version
        if self._asked is None or self._asked[0] is not item or self._asked[1] != version:
            self._asked = item, version, {}
        known = self._asked[2]
        if above not in known:
            known[above] = self._index.may_cover(item) if above else self._index.may_be_covered_by(item)
        return known[above]

    def _covers(self, item: F) -> Callable[[F], bool]:
        """Whether another covers `item`. (Not written as a function: this is called often.)"""
        return methodcaller("covers", item, self._registry)

    def _covered(self, item: F) -> Callable[[F], bool]:
        """Whether `item` covers another."""
        return item.covers if self._registry is None else lambda other: item.covers(other, self._registry)

    def _related(self, item: F, above: bool, among: Part[F] | None = None) -> list[int]:
        """What covers an item, or what it covers; not itself. Where the index is sure nothing is asked."""
        candidates = self._candidates(item, above)
        if among is not None:
            candidates &= among.bits
        if item in self._numbers:
            candidates &= ~(1 << self._numbers[item])
        sure = 0
        if candidates.bit_count() > _MANY:
            index = self._index
            sure = candidates & (index.surely_cover(item) if above else index.surely_covered_by(item))
            candidates &= ~sure & (~index.plain if above and sure else -1)
        related = self._covers(item) if above else self._covered(item)
        return [*numbers_in(sure), *(n for n in numbers_in(candidates) if related(self._items[n]))]

    def _immediate(self, item: F, above: bool) -> list[int]:
        """Of what covers an item, or of what it covers, what has no other of these in between."""
        related = self._related(item, above)
        if above:  # a parent has its child in between
            left = set(related).difference(map(self._parents.get, related))
        else:
            known = set(related)
            left = {number for number in related if self._parents.get(number) not in known}
        if len(left) < 2:
            return list(left)
        bits = bits_of(left)
        for number in sorted(left, key=self._index.breadth, reverse=above):
            if number in left:
                left -= self._beyond(number, left, bits, above)
        return list(left)

    def _beyond(self, number: int, left: set[int], bits: int, above: bool) -> set[int]:
        """Of some filters, those that cover one of them, or that it covers."""
        item, index = self._items[number], self._index
        others: Iterable[int] = left
        if len(left) > _PAIRS:
            others = numbers_in(bits & (index.may_cover(item) if above else index.may_be_covered_by(item)))
        related = self._covers(item) if above else self._covered(item)
        rank = index.rank(number)
        return {
            n
            for n in others
            if n != number
            and n in left
            and (rank is None or index.rank(n) != rank)
            and related(self._items[n])
        }

    def _standing(self, item: F) -> F:
        if item not in self._numbers:
            raise FilterError(f"not in the poset: {item}")
        return item

    def _filters(self, numbers: Iterable[int]) -> frozenset[F]:
        return frozenset(map(self._items.__getitem__, numbers))

    # ------------------------------------------------ questions

    @property
    def roots(self) -> tuple[F, ...]:
        """The filters that no other covers, in the order in which they became roots."""
        return tuple(self._items[number] for number in self._roots)

    def is_root(self, item: F) -> bool:
        """Whether a filter is in the poset and no other covers it."""
        return self._numbers.get(item) in self._roots

    def parent(self, item: F) -> F | None:
        """One that covers a filter of the poset; None of a root."""
        parent = self._parents.get(self._numbers[self._standing(item)])
        return None if parent is None else self._items[parent]

    def coverer(self, item: F, among: Part[F]) -> F | None:
        """One among some filters that covers this one (which may be outside), and is not itself."""
        candidates = self._candidates(item, above=True) & among.bits
        if item in self._numbers:
            candidates &= ~(1 << self._numbers[item])
        number = self._near(item, candidates)
        return None if number is None else self._items[number]

    def successors(self, item: F) -> frozenset[F]:
        """The filters that immediately cover one of the poset."""
        return self._filters(self._immediate(self._standing(item), above=True))

    def predecessors(self, item: F) -> frozenset[F]:
        """The filters that one of the poset immediately covers."""
        return self._filters(self._immediate(self._standing(item), above=False))

    def covering(self, item: F, among: Part[F] | None = None) -> frozenset[F]:
        """All filters of the poset, or among some, that cover this one (which may be outside); not itself."""
        return self._filters(self._related(item, True, among))

    def covered_by(self, item: F, among: Part[F] | None = None) -> frozenset[F]:
        """All filters of the poset, or among some, that this one covers (it may be outside); not itself."""
        return self._filters(self._related(item, False, among))

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

    def __init__(self, numbers: Mapping[F, int], items: Iterable[F] = ()) -> None:
        self._numbers = numbers
        self.bits = bits_of([numbers[item] for item in items])

    def add(self, *items: F) -> None:
        """Add filters of the poset."""
        self.bits |= bits_of([self._numbers[item] for item in items])

    def remove(self, *items: F) -> None:
        """Remove filters of the poset."""
        self.bits &= ~bits_of([self._numbers[item] for item in items])

    def __contains__(self, item: F) -> bool:
        return bool(self.bits >> self._numbers[item] & 1)

    def __or__(self, other: Part[F]) -> Part[F]:
        both = Part(self._numbers)
        both.bits = self.bits | other.bits
        return both

    def __bool__(self) -> bool:
        return bool(self.bits)


def subscription_poset(registry: TypeRegistry | None = None) -> Poset[Filter]:
    """A poset of subscriptions: the paper's P_S."""
    return Poset(SubscriptionIndex(registry), registry)


def advertisement_poset(registry: TypeRegistry | None = None) -> Poset[Advertisement]:
    """A poset of advertisements: the paper's P_A."""
    return Poset(AdvertisementIndex(), registry)
