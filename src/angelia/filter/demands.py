"""What filters ask of an attribute beside an interval: texts, patterns, and values that it must not have.

Thousands of filters with the same interval may differ in these alone, as `x != 1`, `x != 2` and so on do.
Each is filed under one such demand, the rarest, which whatever it covers has to meet. As in all of the index,
what is found may be too much, never too little.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from itertools import accumulate, islice
from os.path import commonprefix
from typing import TypeVar

from angelia.event import Kind, Scalar
from angelia.filter.conjunction import Condition
from angelia.filter.domain import ABOVE_ALL, BELOW_ALL, Domain, after, before, prefix_end
from angelia.filter.spans import Members, Span, Spans, bits_of

__all__ = ["Column", "Demands", "Lower", "is_special", "span_of"]

_ALL: Span = (BELOW_ALL, ABOVE_ALL)
_SIZES = (32, 24, 16, 12, 8, 6, 4, 3, 2, 1)  # of the pieces of texts that are keys
_ENDING = 64  # characters of a suffix that are a key, at most
_POINTS = 64  # values that are looked at one by one, at most
_FRESH = 64  # texts that are not joined yet, at least
_NOBODY = Members()

_K = TypeVar("_K", bound=Hashable)
_Key = tuple[str, str]
_Value = tuple[Kind | None, Scalar | None]
_EVERY: _Value = (None, None)  # what `not exists` refuses


def span_of(some: Domain | None) -> Span:
    """The least cuts around a domain."""
    if some is None or some.kind is None:
        return _ALL
    if some.points is None:
        return some.low, some.high
    if len(some.points) == 1:
        (point,) = some.points
        return before(point), after(point)
    spans = some.spans()
    return spans[0][0], spans[-1][1]


def is_special(condition: Condition) -> bool:
    """Whether a condition is more, or less, than one interval or value."""
    some = condition.some
    if condition.none or some is None:
        return True
    return bool(some.excluded or some.reads_text or (some.points is not None and len(some.points) > 1))


class Lower:
    """Domains of one kind with numbers. Which of them may lie in another?"""

    __slots__ = ("_domains", "_ends", "_patterns", "_points", "_several", "_texts", "spans")

    def __init__(self) -> None:
        self.spans = Spans()
        self._several = 0  # domains that are a list of values
        self._domains: dict[int, Domain] = {}  # of strings
        self._patterns: dict[str, Members] = {}
        self._points = Members()  # strings that are given, all of them
        # Texts from their ends, and for looking into: made when somebody asks for a suffix, or for a part.
        self._ends: Spans | None = None
        self._texts: _Texts | None = None

    def add(self, number: int, domain: Domain) -> None:
        """Add a domain."""
        self.spans.add(number, span_of(domain))
        self._several += domain.points is not None and len(domain.points) > 1
        if domain.kind is not Kind.STRING:
            return
        self._domains[number] = domain
        for pattern in domain.patterns:
            self._patterns.setdefault(pattern, Members()).add(number)
        if domain.points is not None:
            self._points.add(number)
        if self._ends is not None:
            self._ends.add(number, _end_of(domain))
        if self._texts is not None:
            self._texts.add(number, _text_of(domain))

    def remove(self, number: int, domain: Domain) -> None:
        """Remove a domain that was added."""
        self.spans.remove(number, span_of(domain))
        self._several -= domain.points is not None and len(domain.points) > 1
        if domain.kind is not Kind.STRING:
            return
        del self._domains[number]
        for pattern in domain.patterns:
            _discard(self._patterns, pattern, number)
        if domain.points is not None:
            self._points.remove(number)
        if self._ends is not None:
            self._ends.remove(number, _end_of(domain))
        if self._texts is not None:
            self._texts.remove(number)

    def lying_in(self, domain: Domain) -> int:
        """What may lie in a domain, as bits."""
        if domain.points is not None and len(domain.points) <= _POINTS and not self._several:
            return self.at(domain.points)
        found = self.spans.within(*span_of(domain))
        return self._reading(found, domain) if found and domain.reads_text else found

    def at(self, points: Iterable[Scalar]) -> int:
        """What is nothing but one of some values, as bits."""
        found = 0
        for point in points:
            found |= self.spans.within(before(point), after(point))
        return found

    def _reading(self, found: int, domain: Domain) -> int:
        """What may read as a domain of strings asks for: by its suffix, one of the parts and one pattern."""
        if domain.suffix:
            if self._ends is None:
                self._ends = Spans()
                for number, each in self._domains.items():
                    self._ends.add(number, _end_of(each))
            start = domain.suffix[::-1]
            found &= self._ends.within(before(start), prefix_end(start))
        for pattern in islice(domain.patterns, 1):
            found &= self._patterns.get(pattern, _NOBODY).bits | self._points.bits
        if domain.contains and found:
            if self._texts is None:
                self._texts = _Texts()
                for number, each in self._domains.items():
                    self._texts.add(number, _text_of(each))
            found &= self._texts.containing(max(domain.contains, key=len))
        return found

    def __len__(self) -> int:
        return len(self.spans)


class _Texts:
    """Texts with numbers. Which of them contain another? They are searched as one."""

    __slots__ = ("_fresh", "_joined", "_numbers", "_starts", "_texts")

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}
        self._fresh: dict[int, None] = {}  # not joined yet
        self._joined, self._numbers, self._starts = "", list[int](), list[int]()

    def add(self, number: int, text: str) -> None:
        """Add a text."""
        self._texts[number] = text
        self._fresh[number] = None

    def remove(self, number: int) -> None:
        """Remove a text. It stays among those that are joined until these are joined anew."""
        del self._texts[number]
        self._fresh.pop(number, None)

    def containing(self, part: str) -> int:
        """The numbers of the texts that contain one, as bits."""
        texts, unjoined = self._texts, max(_FRESH, len(self._texts) // 16)
        if len(self._fresh) > unjoined or len(self._numbers) > 2 * len(texts) + unjoined:
            self._join()
        found = {number for number in self._fresh if part in texts[number]}
        at = self._joined.find(part)
        while at >= 0:
            place = bisect_right(self._starts, at)
            number = self._numbers[place - 1]
            if part in texts.get(number, ""):
                found.add(number)
            at = self._joined.find(part, self._starts[place]) if place < len(self._starts) else -1
        return bits_of(found)

    def _join(self) -> None:
        texts = list(self._texts.values())
        self._joined, self._numbers = "\n".join(texts), list(self._texts)
        self._starts = [0, *accumulate(len(text) + 1 for text in texts[:-1])]
        self._fresh.clear()


class _Upper:
    """Domains that read text, of each number one or several. Which numbers may have one around another?"""

    __slots__ = ("_keys", "_known", "_patterned", "_sizes", "members")

    def __init__(self) -> None:
        self.members = Members()
        self._keys: dict[int, set[_Key]] = {}
        self._known: dict[_Key, Members] = {}
        self._patterned = Members()  # those that are filed under a pattern
        self._sizes: Counter[tuple[str, int]] = Counter()  # of the other keys

    def add(self, number: int, domains: Iterable[Domain]) -> None:
        """Add domains that read text: each under that of its demands that fewest have."""
        rarest = {min(_demands(domain), key=lambda key: len(self._known.get(key, ()))) for domain in domains}
        if not rarest:
            return
        self.members.add(number)
        self._keys[number] = rarest
        for key in rarest:
            self._known.setdefault(key, Members()).add(number)
        self._count(number, rarest, 1)

    def remove(self, number: int) -> None:
        """Remove the domains of a number, if there are any."""
        keys = self._keys.pop(number, None)
        if keys is None:
            return
        self.members.remove(number)
        for key in keys:
            _discard(self._known, key, number)
        self._count(number, keys, -1)

    def _count(self, number: int, keys: set[_Key], change: int) -> None:
        if any(sort == "matches" for sort, _ in keys):
            (self._patterned.add if change > 0 else self._patterned.remove)(number)
        for sort, text in keys:
            if sort != "matches":
                _add(self._sizes, (sort, len(text)), change)

    def around(self, domain: Domain) -> int:
        """Those of which a domain may lie around one, as bits."""
        if domain.kind is not Kind.STRING:
            return 0
        found = 0 if domain.points is None else self._patterned.bits
        for key in set(self._met(domain)):
            if key in self._known:
                found |= self._known[key].bits
        return found

    def _met(self, domain: Domain) -> Iterator[_Key]:
        """The demands, of those that there are, that all strings of a domain may meet."""
        if domain.points is None:
            ending, texts = domain.suffix, [domain.suffix, domain.common_prefix, *domain.contains]
            yield from (("matches", pattern) for pattern in domain.patterns)
        else:
            ending = str(next(iter(domain.points)))
            texts = [ending]
        for sort, size in self._sizes:
            if sort == "suffix" and size <= len(ending):
                yield ("suffix", ending[-size:])
            elif sort == "contains":
                for text in texts:
                    for start in range(len(text) - size + 1):
                        yield ("contains", text[start : start + size])


def _demands(domain: Domain) -> Iterator[_Key]:
    """What is asked of a text, in pieces that are keys."""
    if domain.suffix:
        yield ("suffix", domain.suffix[-_ENDING:])
    yield from (("matches", pattern) for pattern in domain.patterns)
    for text in (domain.suffix, *domain.contains):
        size = next((size for size in _SIZES if size <= len(text)), 0)
        rest = len(text) - size
        if size:
            for start in {*range(0, rest, max(1, rest // 8)), rest}:
                yield ("contains", text[start : start + size])


def _end_of(domain: Domain) -> Span:
    """What all strings of a domain end with, backwards."""
    points = [str(point)[::-1] for point in domain.points or ()]
    start = commonprefix(points) if points else domain.suffix[::-1]
    return before(start), after(start)


def _text_of(domain: Domain) -> str:
    """A text that contains whatever all strings of a domain are known to contain."""
    if domain.points is not None:
        return str(next(iter(domain.points)))
    return "\n".join((domain.common_prefix, domain.suffix, *domain.contains))


class Demands:
    """The special conditions on one attribute: which of them cannot cover another?"""

    def __init__(self) -> None:
        self._texts = _Upper()
        self._holes: dict[Kind | None, Lower] = {}  # one value each that is excluded
        self._refused: dict[Kind | None, Lower] = {}  # one domain each that is refused
        self._refusing = Members()
        self._chosen: dict[int, list[tuple[dict[Kind | None, Lower], Domain]]] = {}
        self._uses: Counter[Domain] = Counter()  # how often one was chosen

    def __len__(self) -> int:
        return len(self._chosen)

    def add(self, number: int, condition: Condition) -> None:
        """File a condition."""
        some = condition.some
        chosen = self._chosen[number] = []
        if some is not None and some.reads_text:
            self._texts.add(number, (some,))
        if some is not None and some.excluded:
            chosen.append((self._holes, self._rarest(some.kind, some.excluded)))
        if condition.none:
            # Of several values, each has to be refused by what is covered: so has any of them.
            choices = (d if d.points is None else self._rarest(d.kind, d.points) for d in condition.none)
            chosen.append((self._refused, min(choices, key=self._uses.__getitem__)))
            self._refusing.add(number)
        for table, domain in chosen:
            _add(self._uses, domain, 1)
            table.setdefault(domain.kind, Lower()).add(number, domain)

    def remove(self, number: int, condition: Condition) -> None:
        """Forget a condition."""
        self._texts.remove(number)
        if condition.none:
            self._refusing.remove(number)
        for table, domain in self._chosen.pop(number):
            _add(self._uses, domain, -1)
            table[domain.kind].remove(number, domain)

    def _rarest(self, kind: Kind | None, points: Iterable[Scalar]) -> Domain:
        """That of several values which was chosen least."""
        return min(
            (Domain(kind, frozenset((point,))) for point in islice(points, _POINTS)),
            key=self._uses.__getitem__,
        )

    def above(self, found: int, condition: Condition) -> int:
        """Those of the found that may cover a condition."""
        some = condition.some
        if some is not None:
            if len(self._texts.members):
                found &= ~self._texts.members.bits | self._texts.around(some)
            if found and some.kind in self._holes:
                found &= ~self._surely_in(self._holes[some.kind], condition)
        if found and len(self._refusing):
            met = 0
            for domain in condition.none:
                if domain.kind is None:
                    return found
                if domain.kind in self._refused:
                    met |= self._refused[domain.kind].lying_in(domain)
            found &= ~self._refusing.bits | met
        return found

    @staticmethod
    def _surely_in(values: Lower, condition: Condition) -> int:
        """Which values, for sure, satisfy a condition."""
        some = condition.some
        if some is None or some.reads_text or len(some.excluded) > _POINTS:
            return 0
        if some.points is not None:
            return values.at(some.points) if len(some.points) <= _POINTS else 0
        inside = values.spans.within(some.low, some.high)
        inside &= ~values.at(some.excluded)
        for domain in condition.none:
            if domain.kind is None:
                return 0
            if inside and domain.kind is some.kind:
                inside &= ~values.lying_in(domain)
        return inside


class Column:
    """The special conditions on one attribute: which of them cannot be covered by another?"""

    def __init__(self) -> None:
        self._count = 0
        self._out: dict[_Value, Members] = {}  # by values that are excluded or refused
        self._no: dict[_Value, Members] = {}  # by values that are refused
        self._walls: dict[Kind | None, Spans] = {}  # the intervals around others that are refused
        self._unread = _Upper()  # texts that are refused
        self._unsure = Members()  # it is not known which values they ask for

    def __len__(self) -> int:
        return self._count

    def add(self, number: int, condition: Condition) -> None:
        """File a condition."""
        self._count += 1
        if _is_unsure(condition):
            self._unsure.add(number)
        for table, values in ((self._out, _out(condition)), (self._no, _refused(condition))):
            for value in values:
                table.setdefault(value, Members()).add(number)
        for kind, wall in _walls(condition).items():
            self._walls.setdefault(kind, Spans()).add(number, wall)
        self._unread.add(number, (domain for domain in condition.none if domain.reads_text))

    def remove(self, number: int, condition: Condition) -> None:
        """Forget a condition."""
        self._count -= 1
        if _is_unsure(condition):
            self._unsure.remove(number)
        for table, values in ((self._out, _out(condition)), (self._no, _refused(condition))):
            for value in values:
                _discard(table, value, number)
        for kind, wall in _walls(condition).items():
            self._walls[kind].remove(number, wall)
        self._unread.remove(number)

    def below(self, found: int, condition: Condition, lower: Lower | None) -> int:
        """Those of the found that a condition may cover; `lower` is what they all ask for."""
        some = condition.some
        if some is not None and lower is not None:
            for point in islice(some.excluded, _POINTS):
                if not found:
                    return 0
                inside = lower.spans.around(before(point), after(point)) & ~self._unsure.bits
                found &= ~inside | self._out.get((some.kind, point), _NOBODY).bits
        for domain in islice(condition.none, _POINTS):
            found = found and found & self._refusing_all(domain)
        return found

    def _refusing_all(self, domain: Domain) -> int:
        """What may refuse a whole domain."""
        found = self._no.get(_EVERY, _NOBODY).bits
        if domain.kind is None:
            return found
        if domain.points is not None:  # each value is refused: so is any of them
            values = ((domain.kind, point) for point in islice(domain.points, _POINTS))
            value = min(values, key=lambda value: len(self._no.get(value, ())))
            domain = Domain(domain.kind, frozenset(value[1:]))
            found |= self._no.get(value, _NOBODY).bits
        if domain.kind in self._walls:
            found |= self._walls[domain.kind].around(*span_of(domain))
        return found | self._unread.around(domain)


def _is_unsure(condition: Condition) -> bool:
    some = condition.some
    if some is None or some.reads_text or len(some.excluded) > _POINTS:
        return True
    return (some.points is not None and len(some.points) > 1) or not all(map(_has_few, condition.none))


def _has_few(domain: Domain) -> bool:
    return domain.points is not None and len(domain.points) <= _POINTS


def _refused(condition: Condition) -> set[_Value]:
    """The values that a condition refuses, as far as they are few."""
    found: set[_Value] = {
        (domain.kind, point) for domain in condition.none if _has_few(domain) for point in domain.points or ()
    }
    return found | {_EVERY} if any(domain.kind is None for domain in condition.none) else found


def _out(condition: Condition) -> set[_Value]:
    """The values that do not satisfy a condition, as far as they are few."""
    some, found = condition.some, _refused(condition)
    if some is not None and len(some.excluded) <= _POINTS:
        found |= {(some.kind, point) for point in some.excluded}
    return found


def _walls(condition: Condition) -> dict[Kind | None, Span]:
    """Of each kind, the least interval around what is refused, but for single values and texts."""
    walls: dict[Kind | None, Span] = {}
    for domain in condition.none:
        if domain.kind is not None and not domain.reads_text and not _has_few(domain):
            low, high = span_of(domain)
            known = walls.get(domain.kind, (low, high))
            walls[domain.kind] = min(low, known[0]), max(high, known[1])
    return walls


def _discard(table: dict[_K, Members], key: _K, number: int) -> None:
    table[key].remove(number)
    if not len(table[key]):
        del table[key]


def _add(counts: Counter[_K], key: _K, change: int) -> None:
    """Count, and forget what has become nothing."""
    counts[key] += change
    if not counts[key]:
        del counts[key]
