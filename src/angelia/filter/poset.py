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
from angelia.event import Kind
from angelia.filter.advertisement import Advertisement
from angelia.filter.conjunction import Condition, Conjunction
from angelia.filter.domain import ABOVE_ALL, BELOW_ALL, Cut, Domain, after, before
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
    return Poset(_SubscriptionIndex(), registry)


def advertisement_poset(registry: TypeRegistry | None = None) -> Poset[Advertisement]:
    """A poset of advertisements: the paper's P_A."""
    return Poset(_AdvertisementIndex(), registry)


# ---------------------------------------------------------------- candidates

Key = tuple[object, ...]
_EMPTY: Key = (None, "empty")  # filters that match nothing: every filter covers them
_FREE: Key = (None, "free")  # advertisements that allow everything


Span = tuple[Cut, Cut]
_ALL: Span = (BELOW_ALL, ABOVE_ALL)


class _SubscriptionIndex:
    """Candidates by the attributes and values of conjunctions.

    To find what covers a filter, each alternative is filed once: under its rarest condition, then
    under the set of its attributes. To find what a filter covers, the first alternative of each is
    filed under all its conditions. With each goes the span of values that the condition lies in,
    so that most of what an interval proposes is dropped by two comparisons.
    """

    def __init__(self) -> None:
        self._above: dict[Key, dict[frozenset[str], dict[int, Span]]] = {}
        self._below: dict[Key, dict[int, Span]] = {}
        self._filed: dict[int, list[tuple[Key, frozenset[str]]]] = {}
        self._breadth: dict[int, int] = {}  # how much a filter asks for: what covers it asks no more

    def add(self, number: int, item: Filter) -> None:
        self._breadth[number] = sum(len(part.conditions) for part in item.conjunctions)
        self._filed[number] = filed = []
        for part in item.conjunctions:
            names = frozenset(part.conditions)
            name, keys = self._rarest(part)
            for key in keys:
                filed.append((key, names))
                group = self._above.setdefault(key, {}).setdefault(names, {})
                group[number] = _span(part.conditions[name]) if name else _ALL
        for key, span in _places(item):
            self._below.setdefault(key, {})[number] = span

    def remove(self, number: int, item: Filter) -> None:
        del self._breadth[number]
        for key, names in set(self._filed.pop(number)):
            groups = self._above[key]
            del groups[names][number]
            if not groups[names]:
                del groups[names]
        for key, _ in _places(item):
            del self._below[key][number]
            if not self._below[key]:
                del self._below[key]

    def _rarest(self, part: Conjunction) -> tuple[str, list[Key]]:
        """The attribute to file an alternative under, and the keys: equalities before intervals."""
        if not part.conditions:
            return "", [()]
        choices = [(name, _keys(name, condition)) for name, condition in part.conditions.items()]
        return min(choices, key=lambda choice: (len(choice[1][0]) < 3, sum(map(self._count, choice[1]))))

    def _count(self, key: Key) -> int:
        return len(self._below.get(key, ()))

    def may_cover(self, item: Filter) -> Iterable[int]:
        if not item.conjunctions:
            return list(self._filed)
        # What covers the filter covers its first alternative, so one of its own is filed there.
        first = item.conjunctions[0].conditions
        known = frozenset(first)
        found: dict[int, list[int]] = {0: list(self._above.get((), {}).get(frozenset(), ()))}
        for name, condition in first.items():
            low, high = _span(condition)
            for key in _keys_above(name, condition):
                for names, group in self._above.get(key, {}).items():
                    if names <= known:
                        found.setdefault(len(names), []).extend(
                            [n for n, (start, end) in group.items() if start <= low and end >= high]
                        )
        # Those that ask for more are nearer.
        return dict.fromkeys(number for size in sorted(found, reverse=True) for number in found[size])

    def may_be_covered_by(self, item: Filter) -> Iterable[int]:
        found = set(self._below.get(_EMPTY, ()))
        for part in item.conjunctions:
            if not part.conditions:
                return list(self._filed)
            asked = [
                (self._asking(name, condition), *_span(condition))
                for name, condition in part.conditions.items()
            ]
            (smallest, low, high), *others = sorted(asked, key=lambda triple: len(triple[0]))
            fitting = [n for n, (start, end) in smallest.items() if start >= low and end <= high]
            for filters, low, high in others:
                spans = ((n, filters.get(n)) for n in fitting)
                fitting = [n for n, span in spans if span and span[0] >= low and span[1] <= high]
            found.update(fitting)
        return sorted(found, key=self._breadth.__getitem__)

    def _asking(self, name: str, condition: Condition) -> dict[int, Span]:
        """Filters that ask of the attribute something of the same sort."""
        some = condition.some
        if some is None or some.points is None:
            return self._below.get(_key_below(name, some), {})
        found: dict[int, Span] = {}
        for point in some.points:
            found.update(self._below.get((name, some.kind, point), {}))
        return found


def _span(condition: Condition) -> Span:
    """The least cuts around what a condition asks for."""
    some = condition.some
    if some is None or some.kind is None:
        return _ALL
    if some.points is None:
        return some.low, some.high
    if len(some.points) == 1:
        (point,) = some.points
        return before(point), after(point)
    spans = some.spans()
    return spans[0][0], spans[-1][1]


def _keys(name: str, condition: Condition) -> list[Key]:
    """The keys of a condition: one a value where it has few, else its kind."""
    some = condition.some
    if some is None:
        return [(name,)]
    if some.points is not None and len(some.points) <= 8:
        return [(name, some.kind, point) for point in some.points]
    if some.suffix:
        return [(name, "suffix", _ending(some))]
    if some.contains:
        return [(name, "contains", min(some.contains)[:2])]
    return [(name, some.kind or "some")]


def _key_below(name: str, some: Domain | None) -> Key:
    """Where what an infinite condition covers is filed."""
    if some is None:
        return (name,)
    return (name, "suffix", _ending(some)) if some.suffix else (name, some.kind or "some")


def _pieces(domain: Domain) -> set[str]:
    """One or two characters that all strings of a domain contain."""
    texts = [str(next(iter(domain.points)))] if domain.points else [domain.suffix, *domain.contains]
    texts += [domain.common_prefix] if not domain.points else []
    return {text[i : i + size] for text in texts for i in range(len(text)) for size in (1, 2)}


def _ending(domain: Domain) -> str:
    """The character that all strings of a domain end with, if it says one."""
    if domain.kind is not Kind.STRING:
        return ""
    text = domain.suffix if domain.points is None else next(iter(domain.points))
    return str(text)[-1:]


def _keys_above(name: str, condition: Condition) -> list[Key]:
    """Where a condition that covers this one may be filed."""
    some = condition.some
    if some is None:
        return [(name,)]
    keys: list[Key] = [(name,), (name, "some")]
    if some.kind is not None:
        keys.append((name, some.kind))
    if ending := _ending(some):
        keys.append((name, "suffix", ending))
    if some.kind is Kind.STRING:
        keys += [(name, "contains", piece) for piece in _pieces(some)]
    if some.points is not None:
        # All points must be in what covers it: looking under one of them is enough.
        keys.append((name, some.kind, next(iter(some.points))))
    return keys


def _places(item: Filter) -> list[tuple[Key, Span]]:
    """Every key under which what may cover a filter looks for it."""
    if not item.conjunctions:
        return [(_EMPTY, _ALL)]
    places: list[tuple[Key, Span]] = []
    for name, condition in item.conjunctions[0].conditions.items():
        some, span = condition.some, _span(condition)
        places.append(((name,), _ALL))
        if some is not None:
            places.append(((name, "some"), _ALL))
            places += [((name, some.kind), span)] if some.kind is not None else []
            places += [((name, "suffix", ending), span)] if (ending := _ending(some)) else []
            places += [((name, some.kind, point), span) for point in some.points or ()]
    return places


class _AdvertisementIndex:
    """Candidates by the attributes that advertisements mention."""

    def __init__(self) -> None:
        self._mentions: dict[Key, dict[int, None]] = {}
        self._all: dict[int, None] = {}

    def add(self, number: int, item: Advertisement) -> None:
        self._all[number] = None
        for key in self._keys(item):
            self._mentions.setdefault(key, {})[number] = None

    def remove(self, number: int, item: Advertisement) -> None:
        del self._all[number]
        for key in self._keys(item):
            del self._mentions[key][number]

    @staticmethod
    def _keys(item: Advertisement) -> list[Key]:
        if item.allowed is None:
            return [_FREE]
        names = _attributes(item)
        return [_first(names), *((name,) for name in names)]

    def may_cover(self, item: Advertisement) -> Iterable[int]:
        free = self._mentions.get(_FREE, {})
        if item.allowed is None:
            return list(free)
        names = _attributes(item)
        if not names:
            return list(self._all)
        rarest = min((self._mentions.get((name,), {}) for name in names), key=len)
        return {**rarest, **free}

    def may_be_covered_by(self, item: Advertisement) -> Iterable[int]:
        if item.allowed is None:
            return list(self._all)
        found = dict(self._mentions.get(_first([]), {}))
        for name in item.allowed:
            found.update(self._mentions.get(_first([name]), {}))
        return found


def _attributes(item: Advertisement) -> list[str]:
    return [name for name in item.allowed or () if not name.startswith("@")]


def _first(names: list[str]) -> Key:
    """The key of the advertisements that mention `names[0]` before any other name, or nothing."""
    return (None, "first", *names[:1])
