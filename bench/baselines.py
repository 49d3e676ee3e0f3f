"""What one would otherwise do: the baselines of the matching benchmark.

All take the conjunctions of filters apart into plain Python closures once, and match dictionaries.

- `Naive`: every filter is evaluated.
- `AccessPredicate` (B2): a filter is filed under its rarest equality, that of the attribute with the most
  values; what a value leads to is verified. Filters without an equality are all verified.
- `Roaring`: a compressed bitmap of filters for each equality; those of an event's values are intersected,
  and what is left is verified.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from math import inf
from typing import Any

from pyroaring import BitMap

from angelia import Filter
from angelia.event import Kind
from angelia.filter.domain import Domain

Check = Callable[[Any], bool]
Checks = list[tuple[str, Check]]


def check_of(domain: Domain) -> Check:
    """A closure for a domain as the workloads have them, with single values of the right kind."""
    if domain.kind is None:
        return lambda value: value is not None
    if domain.points is not None:
        points = domain.points
        return lambda value: value in points
    if domain.prefix:
        prefix = domain.prefix
        return lambda value: value is not None and value.startswith(prefix)
    if domain.suffix:
        suffix = domain.suffix
        return lambda value: value is not None and value.endswith(suffix)
    if domain.contains:
        (part,) = domain.contains
        return lambda value: value is not None and part in value
    if domain.excluded:
        excluded = domain.excluded
        return lambda value: value is not None and value not in excluded
    return _range_check(domain)


def _range_check(domain: Domain) -> Check:
    assert domain.kind is Kind.NUMBER
    low = domain.low[1] if domain.has_low else float("-inf")
    high = domain.high[1] if domain.has_high else float("inf")
    open_low, open_high = domain.low[-1] == 1, domain.high[-1] == 0

    def check(value: Any) -> bool:
        return (
            value is not None
            and low <= value <= high
            and not ((open_low and value == low) or (open_high and value == high))
        )

    return check


def _domains(filter_: Filter) -> dict[str, Domain]:
    (conjunction,) = filter_.conjunctions
    return {name: condition.some for name, condition in conjunction.conditions.items() if condition.some}


def _holds(checks: Checks, event: dict[str, Any]) -> bool:
    for name, check in checks:  # noqa: SIM110 - a generator would cost as much as the checks
        if not check(event.get(name)):
            return False
    return True


class Naive:
    """Every filter is evaluated."""

    def __init__(self, filters: list[Filter]) -> None:
        self._filters = [
            (id_, [(name, check_of(domain)) for name, domain in _domains(each).items()])
            for id_, each in enumerate(filters)
        ]

    def match(self, event: dict[str, Any]) -> list[int]:
        """The filters that an event matches."""
        return [id_ for id_, checks in self._filters if _holds(checks, event)]


def _equalities(filters: list[Filter]) -> tuple[list[dict[str, Domain]], dict[str, int]]:
    """The domains of the filters, and how many values of each attribute they name."""
    domains = [_domains(each) for each in filters]
    values = {
        (name, point)
        for each in domains
        for name, domain in each.items()
        if domain.points is not None and len(domain.points) == 1
        for point in domain.points
    }
    return domains, Counter(name for name, _ in values)


MANY = 8  # filters under one value from which on they are put together by attribute


class _Candidates:
    """Filters that are verified, as fast as a loop in Python does: those with a range or a prefix are put
    together by attribute, so that it is looked up once and most of them cost one comparison.
    """

    def __init__(self, members: list[tuple[int, dict[str, Domain]]]) -> None:
        self.ranges: dict[str, list[tuple[float, float, int, Checks]]] = defaultdict(list)
        self.prefixes: dict[str, list[tuple[str, int, Checks]]] = defaultdict(list)
        self.others: list[tuple[int, Checks]] = []
        for id_, domains in members:
            self._add(id_, domains, len(members) >= MANY)

    def _add(self, id_: int, domains: dict[str, Domain], together: bool) -> None:
        ranges = {
            name: (domain.low[1] if domain.has_low else -inf, domain.high[1] if domain.has_high else inf)
            for name, domain in domains.items()
            if domain.kind is Kind.NUMBER and domain.points is None
        }
        narrow = min(ranges, key=lambda name: ranges[name][1] - ranges[name][0], default=None)
        prefix = max((name for name in domains if domains[name].prefix), key=str, default=None)
        best = narrow if prefix is None or (narrow and ranges[narrow][1] - ranges[narrow][0] < 10) else prefix
        # The ends of a range may be open: it is checked again, which few get to.
        checks = [
            (name, check_of(domain)) for name, domain in domains.items() if name != best or best == narrow
        ]
        if best is None or not together:
            self.others.append((id_, [(name, check_of(domain)) for name, domain in domains.items()]))
        elif best == narrow:
            self.ranges[best].append((*ranges[best], id_, checks))
        else:
            self.prefixes[best].append((domains[best].prefix, id_, checks))

    def verify(self, event: dict[str, Any], found: list[int]) -> None:
        """Add those that match to what was found."""
        for name, ranges in self.ranges.items():
            value = event.get(name)
            if value is not None:
                for low, high, id_, checks in ranges:
                    if low <= value <= high and _holds(checks, event):
                        found.append(id_)
        for name, prefixes in self.prefixes.items():
            value = event.get(name)
            if value is not None:
                begins = value.startswith
                for prefix, id_, checks in prefixes:
                    if begins(prefix) and _holds(checks, event):
                        found.append(id_)
        for id_, checks in self.others:
            if _holds(checks, event):
                found.append(id_)


class AccessPredicate:
    """B2: a filter is filed under its rarest equality, and verified if the event has that."""

    def __init__(self, filters: list[Filter]) -> None:
        domains, distinct = _equalities(filters)
        filed: dict[str, dict[Any, list[tuple[int, dict[str, Domain]]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        rest: list[tuple[int, dict[str, Domain]]] = []
        for id_, each in enumerate(domains):
            keys = [name for name, domain in each.items() if domain.points and len(domain.points) == 1]
            best = max(keys, key=distinct.__getitem__, default=None)
            others = {name: domain for name, domain in each.items() if name != best}
            if best is None:
                rest.append((id_, others))
            else:
                (value,) = each[best].points or ()
                filed[best][value].append((id_, others))
        self._rest = _Candidates(rest)
        self._filed = {
            name: {value: _Candidates(members) for value, members in by_value.items()}
            for name, by_value in filed.items()
        }

    def match(self, event: dict[str, Any]) -> list[int]:
        """The filters that an event matches."""
        found: list[int] = []
        for name, filed in self._filed.items():
            candidates = filed.get(event.get(name))
            if candidates is not None:
                candidates.verify(event, found)
        self._rest.verify(event, found)
        return found


class Roaring:
    """Bitmaps of filters for equalities are intersected, and the rest is verified."""

    def __init__(self, filters: list[Filter]) -> None:
        domains, distinct = _equalities(filters)
        self._free = {name: BitMap() for name in distinct}
        self._equal: dict[str, dict[Any, BitMap]] = {name: {} for name in distinct}
        self._checks: list[Checks] = []
        members: dict[tuple[str, Any], list[int]] = defaultdict(list)
        for id_, each in enumerate(domains):
            checks = []
            for name, domain in each.items():
                if domain.points is not None and len(domain.points) == 1:
                    (value,) = domain.points
                    members[name, value].append(id_)
                else:
                    checks.append((name, check_of(domain)))
            self._checks.append(checks)
        everything = BitMap(range(len(filters)))
        for (name, value), ids in members.items():
            self._equal[name][value] = BitMap(ids)
        for name, by_value in self._equal.items():
            self._free[name] = everything - BitMap.union(*by_value.values())
        self._everything = everything

    def match(self, event: dict[str, Any]) -> list[int]:
        """The filters that an event matches."""
        left = None
        for name, by_value in self._equal.items():
            equal = by_value.get(event.get(name))
            allowed = self._free[name] if equal is None else self._free[name] | equal
            left = allowed if left is None else left & allowed
        checks = self._checks
        return [id_ for id_ in (self._everything if left is None else left) if _holds(checks[id_], event)]
