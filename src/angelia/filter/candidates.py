"""Candidates for covering: the indexes behind the poset.

What covers a filter can ask only for attributes that the filter asks for, with the same values
where both are equalities, and around its interval where it has one. An index proposes what passes
such tests; the poset then asks each of them. It may propose too many, never too few.
"""

from __future__ import annotations

from collections.abc import Iterable

from angelia.event import Kind
from angelia.filter.advertisement import Advertisement
from angelia.filter.conjunction import Condition, Conjunction
from angelia.filter.domain import ABOVE_ALL, BELOW_ALL, Cut, Domain, after, before
from angelia.filter.filter import Filter

__all__ = ["AdvertisementIndex", "SubscriptionIndex"]

Key = tuple[object, ...]
_EMPTY: Key = (None, "empty")  # filters that match nothing: every filter covers them
_FREE: Key = (None, "free")  # advertisements that allow everything

Span = tuple[Cut, Cut]
_ALL: Span = (BELOW_ALL, ABOVE_ALL)
# With a span goes one of the values, if they are few strings: a `contains` is tried on it first.
Filed = tuple[Cut, Cut, str | None]


class SubscriptionIndex:
    """Candidates by the attributes and values of conjunctions.

    To find what covers a filter, each alternative is filed once: under its rarest condition, then
    under the set of its attributes. To find what a filter covers, the first alternative of each is
    filed under all its conditions. With each goes the span of values that the condition lies in,
    so that most of what an interval proposes is dropped by two comparisons.
    """

    def __init__(self) -> None:
        self._above: dict[Key, dict[frozenset[str], dict[int, Span]]] = {}
        self._below: dict[Key, dict[int, Filed]] = {}
        self._filed: dict[int, list[tuple[Key, frozenset[str]]]] = {}
        self._breadth: dict[int, int] = {}  # how much a filter asks for: what covers it asks no more

    def add(self, number: int, item: Filter) -> None:
        """File a filter under its number."""
        self._breadth[number] = sum(len(part.conditions) for part in item.conjunctions)
        self._filed[number] = filed = []
        for part in item.conjunctions:
            names = frozenset(part.conditions)
            name, keys = self._rarest(part)
            for key in keys:
                filed.append((key, names))
                group = self._above.setdefault(key, {}).setdefault(names, {})
                # Two alternatives may lie in one place: the span is around both.
                low, high = _span(part.conditions[name]) if name else _ALL
                known_low, known_high = group.get(number, (low, high))
                group[number] = min(low, known_low), max(high, known_high)
        for key, filed_as in _places(item):
            self._below.setdefault(key, {})[number] = filed_as

    def remove(self, number: int, item: Filter) -> None:
        """Forget a filter."""
        del self._breadth[number]
        for key, names in set(self._filed.pop(number)):
            groups = self._above[key]
            del groups[names][number]
            if not groups[names]:
                del groups[names]
            if not groups:
                del self._above[key]
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
        """What may cover the item, the nearest first."""
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
        """What the item may cover, the nearest first."""
        found = set(self._below.get(_EMPTY, ()))
        for part in item.conjunctions:
            if not part.conditions:
                return list(self._filed)
            asked = [
                (self._asking(name, condition), condition) for name, condition in part.conditions.items()
            ]
            asked.sort(key=lambda pair: len(pair[0]))
            fitting: Iterable[int] | None = None
            for filters, condition in asked:
                fitting = _fitting(filters, condition, fitting)
            found.update(fitting or ())
        return sorted(found, key=self._breadth.__getitem__)

    def _asking(self, name: str, condition: Condition) -> dict[int, Filed]:
        """Filters that ask of the attribute something of the same sort."""
        some = condition.some
        if some is None or some.points is None:
            return self._below.get(_key_below(name, some), {})
        found: dict[int, Filed] = {}
        for point in some.points:
            found.update(self._below.get((name, some.kind, point), {}))
        return found


def _fitting(filters: dict[int, Filed], condition: Condition, among: Iterable[int] | None) -> list[int]:
    """The filters whose span, and value if there is one, a condition may cover."""
    low, high = _span(condition)
    part = next(iter(condition.some.contains), "") if condition.some is not None else ""
    filed = filters.items() if among is None else [(n, filters[n]) for n in among if n in filters]
    if not part:
        return [n for n, (start, end, _) in filed if start >= low and end <= high]
    return [
        n
        for n, (start, end, text) in filed
        if start >= low and end <= high and (text is None or part in text)
    ]


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


def _places(item: Filter) -> list[tuple[Key, Filed]]:
    """Every key under which what may cover a filter looks for it."""
    anything: Filed = (*_ALL, None)
    if not item.conjunctions:
        return [(_EMPTY, anything)]
    places: list[tuple[Key, Filed]] = []
    for name, condition in item.conjunctions[0].conditions.items():
        some = condition.some
        places.append(((name,), anything))
        if some is not None:
            places.append(((name, "some"), anything))
            value = next(iter(some.points), None) if some.points else None
            filed: Filed = (*_span(condition), value if isinstance(value, str) else None)
            places += [((name, some.kind), filed)] if some.kind is not None else []
            places += [((name, "suffix", ending), filed)] if (ending := _ending(some)) else []
            places += [((name, some.kind, point), filed) for point in some.points or ()]
    return places


class AdvertisementIndex:
    """Candidates by the attributes that advertisements mention."""

    def __init__(self) -> None:
        self._mentions: dict[Key, dict[int, None]] = {}
        self._all: dict[int, None] = {}

    def add(self, number: int, item: Advertisement) -> None:
        """File an advertisement under its number."""
        self._all[number] = None
        for key in self._keys(item):
            self._mentions.setdefault(key, {})[number] = None

    def remove(self, number: int, item: Advertisement) -> None:
        """Forget an advertisement."""
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
        """What may cover the item, the nearest first."""
        free = self._mentions.get(_FREE, {})
        if item.allowed is None:
            return list(free)
        names = _attributes(item)
        if not names:
            return list(self._all)
        rarest = min((self._mentions.get((name,), {}) for name in names), key=len)
        return {**rarest, **free}

    def may_be_covered_by(self, item: Advertisement) -> Iterable[int]:
        """What the item may cover, the nearest first."""
        if item.allowed is None:
            return list(self._all)
        found = dict(self._mentions.get(_first([]), {}))
        for name in item.allowed:
            found.update(self._mentions.get(_first([name]), {}))
        return found


def _attributes(item: Advertisement) -> list[str]:
    """The attributes that an event may have: one whose constraints nothing satisfies is as good as absent."""
    allowed = (item.allowed or {}).items()
    return [n for n, domains in allowed if n[0] != "@" and any(not domain.is_empty for domain in domains)]


def _first(names: list[str]) -> Key:
    """The key of the advertisements that mention `names[0]` before any other name, or nothing."""
    return (None, "first", *names[:1])
