"""The index in pure Python: for small or fresh sets of filters, and where nothing is compiled.

Each conjunction is filed under one of its conditions, its *access*: an equality if it has one, else a
prefix, a suffix, a part, a range or an event type. An event leads, value by value, to the conjunctions
whose access it may satisfy; of these the other conditions are checked. Conjunctions that have nothing
to be filed under (negations only, patterns, `exists`) are checked for every event that has the
attribute, or for every event.

Filters can be added and removed at any time. The index is not safe for several threads by itself.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from math import frexp, inf, isinf
from typing import TYPE_CHECKING, Any

from angelia.event import Kind
from angelia.filter import Filter
from angelia.filter.conjunction import Condition, Conjunction
from angelia.filter.domain import Domain
from angelia.matching.slots import TextIndex

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["PureIndex"]

SLICE = 128  # filters let go of between two pauses
CROWD = 4  # entries under one value from which on another access may be better
NARROW = 64  # a range is narrow if so many would lie side by side among those that are known
CLASS_BITS = 4  # ranges are together whose lengths differ by less than a factor of two to the power of it
LONG_TEXT = 3  # characters from which on a suffix or part is taken for rare
MAX_KEYS = 64  # values of an `in` list up to which a conjunction is filed under each of them

Check = Callable[[Any], bool]

_LISTS = (tuple, list)


class _Entry:
    """A conjunction of a filter: what is left to check once its access holds.

    Most fresh filters are compiled before they are ever looked at, so checks are made when they are needed.
    """

    __slots__ = ("_checks", "conjunction", "held", "id", "is_typed", "link", "places", "shared")

    def __init__(self, id_: Hashable, link: Hashable | None, conjunction: Conjunction, shared: bool) -> None:
        self.id, self.link, self.conjunction, self.shared = id_, link, conjunction, shared
        self.is_typed = bool(conjunction.types or conjunction.not_types)
        self.held: str | None = None  # the attribute whose condition the access decides
        self.places: Sequence[_Place] = ()
        self._checks: list[tuple[str, Check]] | None = None

    @property
    def checks(self) -> list[tuple[str, Check]]:
        """The attributes that are left to check, and how."""
        if self._checks is None:
            conditions = self.conjunction.conditions
            self._checks = [(name, _check(c)) for name, c in conditions.items() if name != self.held]
        return self._checks


class _Place(dict[_Entry, None]):
    """Entries that are found together, in order; it leaves `home`, where it lies under `key`, when empty."""

    __slots__ = ("home", "key")

    def __init__(self, home: _Home | None = None, key: Any = None) -> None:
        self.home, self.key = home, key

    def discard(self, entry: _Entry) -> None:
        """Take an entry out."""
        del self[entry]
        if not self and self.home is not None:
            self.home.forget(self.key)


class _Home(dict[Any, _Place]):
    """Places by key."""

    def place(self, key: Any) -> _Place:
        """The place of a key, a new one if need be."""
        found = self.get(key)
        if found is None:
            found = self[key] = _Place(self, key)
        return found

    def forget(self, key: Any) -> None:
        """Drop an empty place."""
        del self[key]


class PureIndex:
    """Filters by id, in pure Python."""

    def __init__(self, registry: TypeRegistry | None = None) -> None:
        self._registry = registry
        self._accesses: dict[str, _Access] = {}
        self._always = _Place()
        self._entries: dict[Hashable, Sequence[_Entry]] = {}
        self._typed = _Home()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, id_: Hashable, filter_: Filter, link: Hashable | None = None) -> None:
        """File a filter."""
        shared = len(filter_.conjunctions) > 1
        entries = self._entries[id_] = [_Entry(id_, link, each, shared) for each in filter_.conjunctions]
        for entry in entries:
            entry.places = self._file(entry)
            for place in entry.places:
                place[entry] = None

    def remove(self, id_: Hashable) -> bool:
        """Take a filter out; whether it was there."""
        entries = self._entries.pop(id_, None)
        for entry in entries or ():
            for place in entry.places:
                place.discard(entry)
            entry.places = ()  # which closes no circle any more
        return entries is not None

    def dissolve(self, pause: Callable[[], None]) -> None:
        """Let go of everything, in slices. The index is of no use any more."""
        while self._entries:
            for id_ in list(islice(self._entries, SLICE)):
                self.remove(id_)
            pause()

    def _file(self, entry: _Entry) -> list[_Place]:
        """The places an entry belongs in; notes what these decide."""
        conditions = entry.conjunction.conditions
        best, name = (_NOWHERE, (0, 0)), ""
        for each, condition in conditions.items():
            if condition.some is not None:
                score = _rank_access(condition.some), self._crowd(each, condition.some)
                if score < best:
                    best, name = score, each
        if best[0] == _KEY and best[1][0] > CROWD:
            best, name = self._less_crowded(conditions, best, name)
        if name and best[0] <= _KEYS and not conditions[name].none:
            entry.held = name
        if best[0] >= _ONE_SIDED and entry.conjunction.types:
            return [self._typed.place(min(entry.conjunction.types))]
        if not name:
            return [self._always]
        access = self._accesses.get(name) or self._accesses.setdefault(name, _Access())
        domain = conditions[name].some
        assert domain is not None
        return access.places(domain, best[0])

    def _less_crowded(
        self, conditions: Mapping[str, Condition], best: tuple[int, tuple[int, int]], name: str
    ) -> tuple[tuple[int, tuple[int, int]], str]:
        """A prefix or narrow range that shares its place with fewer than a value that very many name."""
        least: float = best[1][0]
        for each, condition in conditions.items():
            domain, access = condition.some, self._accesses.get(each)
            if domain is not None and access is not None:
                rank = _rank_access(domain)
                if rank in (_PREFIX, _TWO_SIDED) and (crowd := access.neighbours(domain, rank)) < least:
                    best, name, least = (rank, (0, 0)), each, crowd
        return best, name

    def _crowd(self, name: str, domain: Domain) -> tuple[int, int]:
        """How many are filed under the values of a domain already; of equals, few other values are worse."""
        access = self._accesses.get(name)
        return (0, 0) if access is None else (access.crowd(domain), -access.distinct)

    # ---------------------------------------------------------------- matching

    def match(self, values: Mapping[str, Any]) -> list[Any]:
        """The ids that flat values match."""
        found: list[Any] = []
        seen: set[Any] = set()
        for entry in self._matching(values):
            if entry.shared:
                if entry.id in seen:
                    continue
                seen.add(entry.id)
            found.append(entry.id)
        return found

    def match_any(self, values: Mapping[str, Any]) -> bool:
        """Whether they match some filter."""
        return next(self._matching(values), None) is not None

    def match_links(self, values: Mapping[str, Any]) -> list[Any]:
        """The links of the filters that they match; a link that is found is not looked for again."""
        found: dict[Hashable, None] = {}
        for candidates, several in self._candidates(values):
            for entry in candidates:
                if entry.link is not None and entry.link not in found and self._holds(entry, values, several):
                    found[entry.link] = None
        return list(found)

    def _matching(self, values: Mapping[str, Any]) -> Iterator[_Entry]:
        get, registry = values.get, self._registry
        listed: set[int] = set()
        for candidates, several in self._candidates(values):
            if several:
                for entry in candidates:
                    if id(entry) not in listed and self._holds(entry, values, True):
                        listed.add(id(entry))
                        yield entry
                continue
            for entry in candidates:
                checks = entry._checks
                for name, check in entry.checks if checks is None else checks:
                    if not check(get(name)):
                        break
                else:
                    if not entry.is_typed or entry.conjunction.admits_type(get("@type"), registry):
                        yield entry

    def _holds(self, entry: _Entry, values: Mapping[str, Any], several: bool) -> bool:
        if several:
            held = all(c.holds(_value(values, n)) for n, c in entry.conjunction.conditions.items())
        else:
            held = all(check(values.get(name)) for name, check in entry.checks)
        return held and (
            not entry.is_typed or entry.conjunction.admits_type(values.get("@type"), self._registry)
        )

    def _candidates(self, values: Mapping[str, Any]) -> Iterator[tuple[Iterable[_Entry], bool]]:
        """Entries that may match, and whether they were found by one value of a list."""
        accesses = self._accesses
        if self._always:
            yield self._always, False
        for name, value in values.items():
            access = accesses.get(name)
            if access is None or value is None:
                continue
            if type(value) in _LISTS:
                for element in value:
                    for candidates in access.find(element):
                        yield candidates, True
            else:
                for candidates in access.find(value):
                    yield candidates, False
        if self._typed:
            yield from self._typed_candidates(values.get("@type"))

    def _typed_candidates(self, name: str | None) -> Iterator[tuple[Iterable[_Entry], bool]]:
        registry = self._registry
        ancestors: Iterable[str] = ()
        if registry is not None and name in registry:
            assert name is not None
            ancestors = registry.ancestors(name)
        for of in (name, *ancestors):
            if of in self._typed:
                yield self._typed[of], False


def _value(values: Mapping[str, Any], name: str) -> Any:
    value = values.get(name)
    return tuple(value) if type(value) is list else value


# ---------------------------------------------------------------- accesses

# How good an access a domain makes, the best first.
_KEY, _KEYS, _PREFIX, _TEXTS, _TWO_SIDED, _SHORT_TEXTS, _ONE_SIDED, _PRESENT, _NOWHERE = range(9)


def _rank_access(domain: Domain) -> int:
    if domain.points is not None:
        return _KEY if len(domain.points) == 1 else _KEYS if len(domain.points) <= MAX_KEYS else _PRESENT
    if domain.kind is Kind.STRING:
        if domain.prefix:
            return _PREFIX
        longest = max(len(domain.suffix), *map(len, domain.contains), 0)
        return _TEXTS if longest >= LONG_TEXT else _SHORT_TEXTS if longest else _PRESENT
    if domain.kind is None or not (domain.has_low or domain.has_high):
        return _PRESENT
    return _TWO_SIDED if domain.has_low and domain.has_high else _ONE_SIDED


class _Ranges(_Home):
    """Places by the low (or high) ends of ranges, which are also kept sorted. None is longer than `width`."""

    __slots__ = ("ends", "width")

    def __init__(self, width: float = inf) -> None:
        self.ends: list[Any] = []
        self.width = width

    def place(self, key: Any) -> _Place:
        """The place of an end, a new one if need be."""
        if key not in self:
            insort(self.ends, key)
        return super().place(key)

    def forget(self, key: Any) -> None:
        """Drop an empty place."""
        super().forget(key)
        del self.ends[bisect_left(self.ends, key)]

    def between(self, first: int, last: int | None) -> Iterable[_Place]:
        """The places of some of the ends."""
        return map(self.__getitem__, self.ends[first:last])

    def lowest(self, value: Any) -> Any:
        """What the low end of a range that holds a time, or a number of 2^53 or more, is not below."""
        width = self.width
        if isinstance(value, datetime):
            try:
                return value - timedelta(seconds=width)
            except OverflowError:
                return datetime.min.replace(tzinfo=value.tzinfo)
        if isinf(value) or isinf(width):
            return -inf
        # Beyond 2^53 a float less a little is the same float: integers are exact.
        return int(value) - int(max(width, 1.0))


class _Texts(_Home):
    """Places by the number of a suffix or part."""

    __slots__ = ("_index", "_next", "_numbers")

    def __init__(self) -> None:
        self._index = TextIndex()
        self._numbers: dict[tuple[str, str], int] = {}
        self._next = 0

    def place_of(self, domain: Domain) -> _Place:
        """The place of the longest text of a domain."""
        part = max(domain.contains, key=len, default="")
        key = ("suffix", domain.suffix) if len(domain.suffix) >= len(part) else ("contains", part)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._next
            self._next += 1
            self._index.add(*key, number)
            self[number] = _Place(self, (number, key))
        return self[number]

    def forget(self, key: Any) -> None:
        """Drop an empty place."""
        number, (op, text) = key
        super().forget(number)
        del self._numbers[op, text]
        self._index.discard(op, text, number)

    def find(self, value: str) -> Iterator[_Place]:
        """The places of the texts that hold for a string."""
        return map(self.__getitem__, self._index.holding(value, None))


class _Access:
    """The entries that are filed under one attribute."""

    __slots__ = ("_bools", "_classes", "_highs", "_lows", "_points", "_prefixes", "_present", "_texts")

    def __init__(self) -> None:
        self._points, self._bools = _Home(), _Home()
        self._prefixes: dict[int, _Home] = {}
        self._texts = _Texts()
        # Ranges of numbers, and of timestamps (True).
        self._lows, self._highs = (_Ranges(), _Ranges()), (_Ranges(), _Ranges())
        # Two-sided ones by length, within a factor of two, and by their low ends.
        self._classes: tuple[dict[int, _Ranges], dict[int, _Ranges]] = ({}, {})
        self._present = _Place()

    @property
    def distinct(self) -> int:
        """How many values have a place of their own."""
        return len(self._points)

    def crowd(self, domain: Domain) -> int:
        """How many entries lie where one with this domain would, if that is under values."""
        points = domain.points
        if points is None or len(points) > MAX_KEYS:
            return 0
        keys = self._bools if domain.kind is Kind.BOOLEAN else self._points
        if len(points) == 1:  # as most have
            (point,) = points
            return len(keys.get(point, ()))
        return sum(len(keys.get(point, ())) for point in points)

    def places(self, domain: Domain, access: int) -> list[_Place]:
        """The places that an entry with this domain goes into."""
        if access <= _KEYS:
            keys = self._bools if domain.kind is Kind.BOOLEAN else self._points
            return [keys.place(point) for point in domain.points or ()]
        if access == _PREFIX:
            prefix = domain.prefix
            return [self._prefixes.setdefault(len(prefix), _Home()).place(prefix)]
        if access in (_TEXTS, _SHORT_TEXTS):
            return [self._texts.place_of(domain)]
        if access == _PRESENT:
            return [self._present]
        return [self._ranges(domain, access).place(domain.low[1] if domain.has_low else domain.high[1])]

    def neighbours(self, domain: Domain, access: int) -> float:
        """How many entries lie where one with a prefix or a range does that is narrow; else very many."""
        if access == _PREFIX:
            prefix = domain.prefix
            prefixes = self._prefixes.get(len(prefix))
            return 0 if prefixes is None else len(prefixes.get(prefix, ()))
        if domain.kind is Kind.TIMESTAMP:
            return inf
        ranges = self._classes[False].get(_class_of(domain))
        if ranges is None or len(ranges) < 2:
            return inf
        low, high = domain.low[1], domain.high[1]
        if NARROW * (high - low) > ranges.ends[-1] - ranges.ends[0]:
            return inf
        return bisect_right(ranges.ends, high) - bisect_left(ranges.ends, low - ranges.width)

    def _ranges(self, domain: Domain, access: int) -> _Ranges:
        is_time = domain.kind is Kind.TIMESTAMP
        if access == _ONE_SIDED:
            return (self._lows if domain.has_low else self._highs)[is_time]
        of = _class_of(domain)
        found = self._classes[is_time].get(of)
        if found is None:
            found = self._classes[is_time][of] = _Ranges(inf if of == _UNBOUNDED else 2.0**of)
        return found

    def find(self, value: Any) -> list[_Place]:
        """The places that a value leads to."""
        cls = type(value)
        places: list[_Place] = []
        found = (self._bools if cls is bool else self._points).get(value)
        if found:
            places.append(found)
        if self._present:
            places.append(self._present)
        if cls is str:
            for size, prefixes in self._prefixes.items():
                found = prefixes.get(value[:size])
                if found:
                    places.append(found)
            if self._texts:
                places += self._texts.find(value)
        elif cls is not bool and value == value:
            self._find_ranges(value, cls is datetime, places)
        return places

    def _find_ranges(self, value: Any, is_time: bool, places: list[_Place]) -> None:
        lows, highs = self._lows[is_time], self._highs[is_time]
        if lows:
            places += lows.between(0, bisect_right(lows.ends, value))
        if highs:
            places += highs.between(bisect_left(highs.ends, value), None)
        is_exact = not is_time and -EXACT < value < EXACT
        for ranges in self._classes[is_time].values():
            ends = ranges.ends
            last = bisect_right(ends, value)
            if last:
                low = value - ranges.width if is_exact else ranges.lowest(value)
                first = bisect_left(ends, low, 0, last)
                if first < last:
                    places += ranges.between(first, last)


_UNBOUNDED = 1000  # an exponent that stands for any length
EXACT = 2**53  # integers below this are floats too


def _class_of(domain: Domain) -> int:
    """The class of a range by its length: an exponent, of a power of two that is well above that."""
    distance = domain.high[1] - domain.low[1]
    if isinstance(distance, timedelta):
        distance = distance.total_seconds()
    if isinf(distance):
        return _UNBOUNDED
    return min(-(-(frexp(distance)[1] + 1) // CLASS_BITS) * CLASS_BITS, _UNBOUNDED)


# ---------------------------------------------------------------- checks


def _check(condition: Condition) -> Check:
    """A function that tells whether a condition holds for a value; a fast one for common cases."""
    some, holds = condition.some, condition.holds
    if condition.none or some is None:
        return lambda value: holds(tuple(value) if type(value) is list else value)
    if some.kind is None:
        return lambda value: value is not None and value not in ((), [])
    if some.kind is Kind.NUMBER and some.points is None and not some.excluded:
        return _range_check(condition, some)
    if some.kind is Kind.STRING:
        return _string_check(condition, some)
    return lambda value: holds(tuple(value)) if type(value) in _LISTS else value is not None and value in some


def _string_check(condition: Condition, domain: Domain) -> Check:
    holds, test = condition.holds, _string_test(domain)

    def check(value: Any) -> bool:
        if type(value) is str:
            return test(value)
        return type(value) in _LISTS and holds(tuple(value))

    return check


def _string_test(domain: Domain) -> Callable[[str], bool]:
    """Whether a string is in a domain; without a call of ours for the plainest domains."""
    if domain.points is not None:
        return domain.points.__contains__
    plain = not (domain.excluded or domain.patterns or domain.low[2])
    prefix, suffix, contains = domain.prefix, domain.suffix, domain.contains
    if plain and prefix and not suffix and not contains:
        return lambda value: value.startswith(prefix)
    if plain and suffix and not contains and not domain.has_low and not domain.has_high:
        return lambda value: value.endswith(suffix)
    if plain and len(contains) == 1 and not suffix and not domain.has_low and not domain.has_high:
        (part,) = contains
        return lambda value: part in value
    return domain.__contains__


def _range_check(condition: Condition, domain: Domain) -> Check:
    low, high = domain.low, domain.high
    above = low[1] if low[0] == 0 else float("-inf")
    below = high[1] if high[0] == 0 else float("inf")
    closed_low, closed_high = low[0] != 0 or low[2] == 0, high[0] != 0 or high[2] == 1

    def check(value: Any) -> bool:
        if type(value) is float or type(value) is int:
            return (
                above < value < below
                or (closed_low and value == above and (above < below or closed_high))
                or (closed_high and value == below)
            )
        return type(value) in (tuple, list) and condition.holds(tuple(value))

    return check
