"""Candidates for covering: the indexes behind the poset.

What covers a filter can ask only for attributes that the filter asks for, with the same values
where both are equalities, around its interval where it has one, and with no text or refused value that
the filter does not have (`demands`). An index proposes what passes such tests; the poset then asks each
of them. It may propose too many, never too few. Of some it is sure: of filters that are nothing but
intervals, and a type.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sized
from typing import TYPE_CHECKING, TypeVar

from angelia.event import Kind
from angelia.filter.advertisement import Advertisement
from angelia.filter.conjunction import Condition, Conjunction
from angelia.filter.demands import Column, Lower, is_special, span_of
from angelia.filter.domain import ABOVE_ALL, BELOW_ALL, Domain
from angelia.filter.filter import Filter
from angelia.filter.spans import FEW, Members, Span, Spans, bits_of, numbers_in

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["AdvertisementIndex", "SubscriptionIndex"]

Key = tuple[object, ...]
_FREE: Key = (None, "free")  # advertisements that allow everything

_ALL: Span = (BELOW_ALL, ABOVE_ALL)
_ASKED = 16  # candidates that are rather asked than put through further tests
_NOBODY, _NO_SPANS = Members(), Spans()
# The attributes of an alternative, with what they are asked for: "" is nothing but negations,
# "some" is any value, else a kind. What covers it has a part of them, or asks for less.
Shape = frozenset[tuple[str, str]]
_KINDS = frozenset[str](Kind)

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V", bound=Sized)


class SubscriptionIndex:
    """Candidates by the attributes, values, intervals and types of conjunctions.

    To find what covers a filter, each alternative is filed under its rarest condition, then under
    its shape; there it is found by all its intervals. To find what a filter covers, the first
    alternative of each is filed under all its conditions.
    """

    def __init__(self, registry: TypeRegistry | None = None) -> None:
        self._registry = registry
        self._types = _Types(registry)
        self._items: dict[int, Filter] = {}
        self._above: dict[Key, dict[Shape, _Group]] = {}
        self._filed: dict[int, set[tuple[Key, Shape]]] = {}
        self._below: dict[Key, Members] = {}
        self._lower: dict[Key, Lower] = {}
        self._columns: dict[str, Column] = {}  # of conditions that are not just intervals
        self._marks: Counter[Key] = Counter()  # how many are filed to cover others, under a piece of text
        self._all = self._empty = self._single = self._clear = 0  # bits
        self.plain = 0  # of filters of which the index is sure what they cover

    def add(self, number: int, item: Filter) -> None:
        """File a filter under its number."""
        self._items[number] = item
        self._mark(number, item)
        self._filed[number] = filed = set()
        for part in item.conjunctions:
            shape = _shape(part)
            for key in self._rarest(part):
                if (key, shape) not in filed:
                    filed.add((key, shape))
                    self._marks[key] += len(key) == 3
                    groups = self._above.setdefault(key, {})
                    groups.setdefault(shape, _Group(key, shape)).add(number, self._items)
        for first in item.conjunctions[:1]:
            for key in _places(first):
                self._below.setdefault(key, Members()).add(number)
            for name, some in _asked(first):
                self._lower.setdefault((name, some.kind), Lower()).add(number, some)
            for name, condition in _special(first):
                column = self._columns.setdefault(name, Column())
                column.add(number, condition, above=len(item.conjunctions) == 1)

    def remove(self, number: int, item: Filter) -> None:
        """Forget a filter."""
        self._mark(number, item)
        for key, shape in self._filed.pop(number):
            self._marks[key] -= len(key) == 3
            if not self._marks[key]:
                del self._marks[key]
            groups = self._above[key]
            groups[shape].remove(number, item)
            _tidy(groups, shape)
            _tidy(self._above, key)
        for first in item.conjunctions[:1]:
            for key in _places(first):
                self._below[key].remove(number)
                _tidy(self._below, key)
            for name, some in _asked(first):
                self._lower[name, some.kind].remove(number, some)
                _tidy(self._lower, (name, some.kind))
            for name, condition in _special(first):
                self._columns[name].remove(number, condition, above=len(item.conjunctions) == 1)
                _tidy(self._columns, name)
        del self._items[number]

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
        self._types.mark(number, item)

    def _rarest(self, part: Conjunction) -> list[Key]:
        """The keys to file an alternative under: equalities before intervals."""
        if not part.conditions:
            return [()]
        choices = [_keys(name, condition) for name, condition in part.conditions.items()]
        return min(choices, key=lambda keys: (len(keys[0]) < 3, sum(map(self._count, keys))))

    def _count(self, key: Key) -> int:
        return len(self._below.get(key, ())) or len(self._lower.get(key, ())) or self._marks[key]

    def breadth(self, number: int) -> int:
        """How much a filter asks for: what covers it asks no more."""
        return sum(len(part.conditions) for part in self._items[number].conjunctions)

    # ------------------------------------------------ what covers a filter

    def may_cover(self, item: Filter) -> int:
        """What may cover the item.

        It covers the first alternative, so one of its own is filed where that is looked for.
        """
        if not item.conjunctions:
            return self._all
        first = item.conjunctions[0]
        found = 0
        for group in self._groups_above(first):
            found |= group.around(first.conditions)
        for name, condition in first.conditions.items():
            if name in self._columns and found.bit_count() > _ASKED:
                found = self._columns[name].above(found, condition)
        return found and self._types.above(found, first)

    def may_equal(self, item: Filter, covering: int) -> int:
        """Of what may cover an item, what may be equivalent to it without being equal."""
        if _is_clear(item):
            covering = covering & ~self._clear if item.conjunctions[0].types else 0
        return covering and covering & self.may_be_covered_by(item)

    def surely_cover(self, item: Filter) -> int:
        """The plain ones that cover an item of one alternative."""
        if len(item.conjunctions) != 1:
            return 0
        first = item.conjunctions[0]
        found = few = 0
        for group in self._groups_above(first):
            if group.is_exact:
                found |= group.around(first.conditions)
            else:
                few |= group.around(first.conditions)
        few &= self.plain & ~found
        found = self._types.above(found & self.plain, first)
        return found | bits_of([n for n in numbers_in(few) if self._items[n].covers(item, self._registry)])

    def _groups_above(self, part: Conjunction) -> Iterator[_Group]:
        """The groups of alternatives that ask for no more attributes than one does."""
        known = _known(part)
        yield from self._above.get((), {}).values()
        for name, condition in part.conditions.items():
            for key in _keys_above(name, condition):
                for shape, group in self._above.get(key, {}).items():
                    if shape <= known:
                        yield group

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
            found |= self._types.below(self._within(part), part)
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
        return found and self._types.below(found, part)

    def _within(self, part: Conjunction) -> int:
        """What asks for no less than an alternative does."""
        found = self._all
        for name, condition in sorted(part.conditions.items(), key=self._size):
            found &= self._asking(name, condition)
            if not found:
                return 0
        for name, condition in part.conditions.items():
            if name in self._columns and found.bit_count() > _ASKED:
                kind = condition.some and condition.some.kind
                found = self._columns[name].below(found, condition, self._lower.get((name, kind)))
        return found

    def _size(self, asked: tuple[str, Condition]) -> int:
        """How many ask of an attribute something of the sort."""
        name, condition = asked
        return sum(map(self._count, _keys(name, condition)))

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


class _Group:
    """Alternatives with the same shape, by their intervals: all of them if they are many, else one."""

    __slots__ = ("_few", "_members", "_shape", "_spans", "_tried")

    def __init__(self, key: Key, shape: Shape) -> None:
        names = sorted(name for name, asked in shape if asked in _KINDS)
        self._shape = shape
        self._spans: dict[str, Spans] = dict.fromkeys(names, _NO_SPANS)
        # Few are tried by one attribute, rather not by that under which they are filed.
        self._tried = next((name for name in names if name != key[0]), names[0] if names else "")
        self._few: dict[int, Span] | None = {}
        self._members = _NOBODY

    def add(self, number: int, items: Mapping[int, Filter]) -> None:
        """Add a filter, with all its alternatives of the shape."""
        if self._few is None:
            self._members.add(number)
            for name, spans in self._spans.items():
                spans.add(number, self._hull(name, items[number]))
            return
        self._few[number] = self._hull(self._tried, items[number]) if self._tried else _ALL
        if len(self._few) > FEW:
            few, self._few, self._members = self._few, None, Members()
            self._spans = {name: Spans() for name in self._spans}
            for each in few:
                self.add(each, items)

    def remove(self, number: int, item: Filter) -> None:
        """Remove a filter."""
        if self._few is not None:
            del self._few[number]
            return
        self._members.remove(number)
        for name, spans in self._spans.items():
            spans.remove(number, self._hull(name, item))

    def _hull(self, name: str, item: Filter) -> Span:
        """The least interval around what the alternatives of the shape ask of an attribute."""
        parts = item.conjunctions
        if len(parts) > 1:
            parts = tuple(part for part in parts if _shape(part) == self._shape)
        spans = [span_of(part.conditions[name].some) for part in parts]
        return min(low for low, _ in spans), max(high for _, high in spans)

    @property
    def is_exact(self) -> bool:
        """Whether all intervals are compared."""
        return self._few is None

    def around(self, conditions: Mapping[str, Condition]) -> int:
        """Those whose intervals are around those of the conditions, as bits."""
        if self._few is not None:
            if not self._tried:
                return bits_of(self._few)
            low, high = span_of(conditions[self._tried].some)
            return bits_of([n for n, (start, end) in self._few.items() if start <= low and end >= high])
        found = self._members.bits
        for name, spans in self._spans.items():
            found &= spans.around(*span_of(conditions[name].some))
            if not found:
                break
        return found

    def __len__(self) -> int:
        return len(self._members if self._few is None else self._few)


class _Types:
    """Filters by the event types that they ask for."""

    def __init__(self, registry: TypeRegistry | None) -> None:
        self._registry = registry
        self._typed = 0  # filters of one alternative that ask for types, as bits
        self._above: dict[str, Members] = {}  # those, by one of their types
        self._below: dict[str, Members] = {}  # all filters, by all types of their first alternative

    def mark(self, number: int, item: Filter) -> None:
        """Note the types of a filter, or forget them if they are noted."""
        if not item.conjunctions or not item.conjunctions[0].types:
            return
        types = item.conjunctions[0].types
        if len(item.conjunctions) == 1:
            self._typed ^= 1 << number
            _toggle(self._above, min(types), number)
        for name in types:
            _toggle(self._below, name, number)

    def above(self, found: int, part: Conjunction) -> int:
        """Those of the found that ask for no type, or for one that an alternative asks for."""
        if not self._typed:
            return found
        fitting = 0
        for name in part.types:
            for each in (name, *self._ancestors(name)):
                fitting |= self._above.get(each, _NOBODY).bits
        return found & ~(self._typed & ~fitting)

    def below(self, found: int, part: Conjunction) -> int:
        """Those of the found that ask for all types that an alternative asks for."""
        for name in part.types:
            fitting = 0
            for each in self._at_or_below(name) if found else ():
                fitting |= self._below.get(each, _NOBODY).bits
            found &= fitting
        return found

    def _ancestors(self, name: str) -> tuple[str, ...]:
        known = self._registry is not None and name in self._registry
        return self._registry.ancestors(name) if known and self._registry is not None else ()

    def _at_or_below(self, name: str) -> Iterable[str]:
        if self._registry is None or name not in self._registry:
            return (name,)
        lower = self._registry.descendants(name)
        return (name, *(each for each in self._below if each in lower))


def _toggle(table: dict[str, Members], name: str, number: int) -> None:
    members = table.setdefault(name, Members())
    (members.remove if number in members.numbers else members.add)(number)
    _tidy(table, name)


def _tidy(table: dict[_K, _V], key: _K) -> None:
    """Drop what has become empty."""
    if not len(table[key]):
        del table[key]


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


def _shape(part: Conjunction) -> Shape:
    return frozenset((name, _sort(condition)) for name, condition in part.conditions.items())


def _sort(condition: Condition) -> str:
    """What a condition asks for: "", "some" or a kind."""
    return "" if condition.some is None else condition.some.kind or "some"


def _known(part: Conjunction) -> set[tuple[str, str]]:
    """What the shape of something that covers an alternative may consist of."""
    known = {(name, sort) for name, condition in part.conditions.items() for sort in ("", _sort(condition))}
    return known | {(name, "some") for name, sort in known if sort}


def _asked(part: Conjunction) -> list[tuple[str, Domain]]:
    """The attributes of which a value of some kind is asked for."""
    conditions = part.conditions.items()
    return [(name, c.some) for name, c in conditions if c.some is not None and c.some.kind is not None]


def _special(part: Conjunction) -> list[tuple[str, Condition]]:
    """The attributes with conditions that are not just intervals."""
    return [(name, condition) for name, condition in part.conditions.items() if is_special(condition)]


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
            _tidy(self._mentions, key)

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

    def may_equal(self, item: Advertisement, covering: int) -> int:
        """Anything."""
        return covering & self.may_be_covered_by(item)

    def surely_cover(self, item: Advertisement) -> int:
        """Of none it is sure."""
        return 0

    surely_covered_by = surely_cover
    plain = 0

    def near(self, item: Advertisement, among: int, turn: int) -> int:
        """Any."""
        return among.bit_length() - 1

    def breadth(self, number: int) -> int:
        """Not known."""
        return 0


def _attributes(item: Advertisement) -> list[str]:
    """The attributes that an event may have: one whose constraints nothing satisfies is as good as absent."""
    allowed = (item.allowed or {}).items()
    return [n for n, domains in allowed if n[0] != "@" and any(not domain.is_empty for domain in domains)]


def _first(names: list[str]) -> Key:
    """The key of the advertisements that mention `names[0]` before any other name, or nothing."""
    return (None, "first", *names[:1])
