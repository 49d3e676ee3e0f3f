"""The covering side of the index: alternatives of filters, by what they ask for. Which may cover another?

Each is filed under its rarest condition, then under its shape; there it is found by all its intervals. What
passes is tried by its other demands, and by its types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sized
from functools import lru_cache
from itertools import chain, combinations
from typing import TYPE_CHECKING, TypeVar

from angelia.event import Kind
from angelia.filter.conjunction import Condition, Conjunction
from angelia.filter.demands import Demands, is_special, span_of
from angelia.filter.domain import ABOVE_ALL, BELOW_ALL, Domain
from angelia.filter.spans import FEW, Members, Span, Spans, bits_of, numbers_in

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["ASKED", "Above", "Key", "keys_of", "tidy"]

Key = tuple[object, ...]

ASKED = 16  # candidates that are rather asked than put through further tests
_ALL: Span = (BELOW_ALL, ABOVE_ALL)
_WIDE = 5  # attributes: of more, there are too many parts to look at each
_NEAREST = 4  # members of a group that are worth a guess
_NOBODY, _NO_SPANS = Members(), Spans()
# The attributes of an alternative, with what they are asked for: "" is nothing but negations,
# "some" is any value, else a kind. What covers it has a part of them, or asks for less.
Shape = frozenset[tuple[str, str]]
_KINDS = frozenset[str](Kind)

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V", bound=Sized)


class Above:
    """Alternatives with numbers, their slots."""

    def __init__(self, registry: TypeRegistry | None) -> None:
        self._registry = registry
        self._parts: dict[int, Conjunction] = {}
        self._groups: dict[Key, dict[Shape, _Group]] = {}
        self._shapes: Counter[Shape] = Counter()  # how many groups there are of each
        self._filed: dict[int, tuple[Shape, list[Key]]] = {}
        self._uses: Counter[Key] = Counter()  # how many could be filed under a key
        self._columns: dict[str, Demands] = {}  # of conditions that are not just intervals
        self._typed = 0  # those that ask for types, as bits
        self._types: dict[str, Members] = {}  # those, by one of their types

    def add(self, slot: int, part: Conjunction) -> None:
        """File an alternative."""
        self._parts[slot] = part
        shape, keys = _shape(part), self._rarest(part)
        self._filed[slot] = shape, keys
        for key in keys:
            groups = self._groups.setdefault(key, {})
            if shape not in groups:
                groups[shape] = _Group(key, shape)
                self._shapes[shape] += 1
            groups[shape].add(slot, self._parts)
        for name, condition in part.conditions.items():
            for key in keys_of(name, condition):
                self._uses[key] += 1
            if is_special(condition):
                self._columns.setdefault(name, Demands()).add(slot, condition)
        if part.types:
            self._typed |= 1 << slot
            self._types.setdefault(min(part.types), Members()).add(slot)

    def remove(self, slot: int) -> None:
        """Forget an alternative."""
        part = self._parts.pop(slot)
        shape, keys = self._filed.pop(slot)
        for key in keys:
            groups = self._groups[key]
            groups[shape].remove(slot, part)
            if not len(groups[shape]):
                del groups[shape]
                _less(self._shapes, shape)
            tidy(self._groups, key)
        for name, condition in part.conditions.items():
            for key in keys_of(name, condition):
                _less(self._uses, key)
            if is_special(condition):
                self._columns[name].remove(slot, condition)
                tidy(self._columns, name)
        if part.types:
            self._typed ^= 1 << slot
            self._types[min(part.types)].remove(slot)
            tidy(self._types, min(part.types))

    def _rarest(self, part: Conjunction) -> list[Key]:
        """The keys to file an alternative under: equalities before intervals."""
        if not part.conditions:
            return [()]
        choices = [keys_of(name, condition) for name, condition in part.conditions.items()]
        if len(choices) == 1:
            return choices[0]
        return min(choices, key=lambda keys: (len(keys[0]) < 3, sum(map(self._uses.__getitem__, keys))))

    # ------------------------------------------------ what may cover

    def around(self, part: Conjunction) -> int:
        """The slots of what may cover an alternative."""
        found = 0
        for group in self._around(part):
            found |= group.around(part.conditions)
        for name, condition in part.conditions.items():
            if name in self._columns and found.bit_count() > ASKED:
                found = self._columns[name].above(found, condition)
        return found and self.of_type(found, part)

    def sure(self, part: Conjunction) -> tuple[int, int]:
        """Those whose intervals are all around those of an alternative; and others of which some may be."""
        found = few = 0
        for group in self._around(part):
            if group.is_exact:
                found |= group.around(part.conditions)
            else:
                few |= group.around(part.conditions)
        return self.of_type(found, part), few

    def _around(self, part: Conjunction) -> Iterator[_Group]:
        """The groups of alternatives that ask for no more attributes than one does."""
        known = _known(part)
        yield from self._groups.get((), {}).values()
        for name, condition in part.conditions.items():
            for key in _keys_above(name, condition):
                for shape, group in self._groups.get(key, {}).items():
                    if shape <= known:
                        yield group

    def of_type(self, found: int, part: Conjunction) -> int:
        """Those of the found that ask for no type, or for one that an alternative asks for."""
        if not self._typed:
            return found
        fitting = 0
        for name in part.types:
            for each in (name, *self._ancestors(name)):
                fitting |= self._types.get(each, _NOBODY).bits
        return found & ~(self._typed & ~fitting)

    def _ancestors(self, name: str) -> tuple[str, ...]:
        if self._registry is None or name not in self._registry:
            return ()
        return self._registry.ancestors(name)

    def guesses(self, part: Conjunction) -> Iterator[int]:
        """Some that may well cover an alternative: those that ask for most of its attributes come first."""
        conditions = part.conditions
        if len(conditions) > _WIDE:
            return
        known = {
            name: [groups for key in _keys_above(name, condition) if (groups := self._groups.get(key))]
            for name, condition in conditions.items()
        }
        sorts = sorted((name, _sort(condition)) for name, condition in conditions.items())
        wide = [frozenset(((name, "some"),)) for name, _ in sorts]
        for shape in chain(_parts_of(sorts), wide):
            if shape in self._shapes:
                for name, _ in shape:
                    for groups in known[name]:
                        if shape in groups:
                            yield from groups[shape].nearest(conditions)


class _Group:
    """Alternatives with the same shape, by their intervals: all of them if they are many, else one."""

    __slots__ = ("_few", "_members", "_spans", "_tried")

    def __init__(self, key: Key, shape: Shape) -> None:
        names = sorted(name for name, asked in shape if asked in _KINDS)
        self._spans: dict[str, Spans] = dict.fromkeys(names, _NO_SPANS)
        # Few are tried by one attribute, rather not by that under which they are filed.
        self._tried = next((name for name in names if name != key[0]), names[0] if names else "")
        self._few: dict[int, Span] | None = {}
        self._members = _NOBODY

    def add(self, slot: int, parts: Mapping[int, Conjunction]) -> None:
        """Add an alternative."""
        if self._few is None:
            self._members.add(slot)
            for name, spans in self._spans.items():
                spans.add(slot, _span(name, parts[slot]))
            return
        self._few[slot] = _span(self._tried, parts[slot]) if self._tried else _ALL
        if len(self._few) > FEW:
            few, self._few, self._members = self._few, None, Members()
            self._spans = {name: Spans() for name in self._spans}
            for each in few:
                self.add(each, parts)

    def remove(self, slot: int, part: Conjunction) -> None:
        """Remove an alternative."""
        if self._few is not None:
            del self._few[slot]
            return
        self._members.remove(slot)
        for name, spans in self._spans.items():
            spans.remove(slot, _span(name, part))

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

    def nearest(self, conditions: Mapping[str, Condition]) -> list[int]:
        """Some of those whose intervals are around those of the conditions."""
        found = self.around(conditions)
        if found.bit_count() <= _NEAREST:
            return numbers_in(found)[::-1]
        for name, spans in self._spans.items() if self._few is None else ():
            span = span_of(conditions[name].some)
            near = spans.near(span, found, upper=span[1] != ABOVE_ALL)
            return [found.bit_length() - 1 if near is None else near]
        return [found.bit_length() - 1]

    def __len__(self) -> int:
        return len(self._members if self._few is None else self._few)


def _span(name: str, part: Conjunction) -> Span:
    return span_of(part.conditions[name].some)


def tidy(table: dict[_K, _V], key: _K) -> None:
    """Drop what has become empty."""
    if not len(table[key]):
        del table[key]


def _less(counts: Counter[_K], key: _K) -> None:
    """Count one less, and forget what has become nothing."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


@lru_cache(maxsize=1024)
def _parts(size: int) -> tuple[tuple[int, ...], ...]:
    return tuple(places for length in range(size, 0, -1) for places in combinations(range(size), length))


def _parts_of(sorts: list[tuple[str, str]]) -> Iterator[Shape]:
    """All parts of a shape, the large ones first."""
    return (frozenset([sorts[place] for place in places]) for places in _parts(len(sorts)))


def _shape(part: Conjunction) -> Shape:
    return frozenset((name, _sort(condition)) for name, condition in part.conditions.items())


def _sort(condition: Condition) -> str:
    """What a condition asks for: "", "some" or a kind."""
    return "" if condition.some is None else condition.some.kind or "some"


def _known(part: Conjunction) -> set[tuple[str, str]]:
    """What the shape of something that covers an alternative may consist of."""
    known = {(name, sort) for name, condition in part.conditions.items() for sort in ("", _sort(condition))}
    return known | {(name, "some") for name, sort in known if sort}


def keys_of(name: str, condition: Condition) -> list[Key]:
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
