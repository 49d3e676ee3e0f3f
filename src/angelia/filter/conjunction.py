"""Conditions and conjunctions: what one alternative of a filter asks of an event.

An attribute of an event is a set of values: none if it is missing, one usually, several if it is a
list. A condition asks that *some* value lies in a domain (the constraints, all of the same value)
and that *none* lies in certain others (the negated constraints). On single values that is plain
logic; on lists it means that a list satisfies a constraint if some element does, and `not` a
constraint if no element does. A missing attribute satisfies negated constraints only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from angelia.event import Event, Value
from angelia.filter.domain import NOTHING, Domain, in_any, subtract, united

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["Condition", "Conjunction"]


class Condition(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """Some value of the attribute lies in `some` (unless that is None), and none in any of `none`."""

    some: Domain | None
    none: tuple[Domain, ...] = ()

    @staticmethod
    def of(some: Domain | None, none: Iterable[Domain] = ()) -> Condition | None:
        """The canonical condition, or None if nothing can satisfy it."""
        refused = united(none)
        if some is not None:
            some = subtract(some, refused)
            if some.is_empty or any(domain.covers(some) for domain in refused):
                return None
        return Condition(some, refused)

    def holds(self, value: Value | None) -> bool:
        """Whether an attribute with this value (None: missing) satisfies the condition."""
        if value is None:
            return self.some is None
        values = value if isinstance(value, tuple) else (value,)
        if self.some is not None and not any(element in self.some for element in values):
            return False
        return not self.none or not any(in_any(element, self.none) for element in values)

    def covers(self, other: Condition) -> bool:
        """Whether every set of values that satisfies `other` satisfies this one."""
        if self.none and not all(within(domain, other.none) for domain in self.none):
            return False
        if self.some is None:
            return True
        return other.some is not None and self.some.covers(other.some, other.none)

    def intersection(self, other: Condition) -> Condition | None:
        """Both conditions at once, about the same value; None if that cannot be."""
        if self.some is None or other.some is None:
            some = self.some or other.some
        else:
            some = self.some.intersection(other.some)
        return Condition.of(some, (*self.none, *other.none))


def within(domain: Domain, others: tuple[Domain, ...]) -> bool:
    """Whether the union of `others` covers `domain`; both come from `united`."""
    if domain.points is not None:
        return all(in_any(point, others) for point in domain.points)
    return any(other.covers(domain) for other in others)


class Conjunction(msgspec.Struct, eq=False, gc=False):
    """One alternative of a filter: types that the event has (or not), and a condition an attribute.

    Event types are names; an event is of a type if its own type is that one or a descendant in the
    registry given to the question. Without a registry only the name itself counts.
    """

    conditions: Mapping[str, Condition] = {}
    types: frozenset[str] = NOTHING
    not_types: frozenset[str] = NOTHING
    _hash: int = 0

    def __post_init__(self) -> None:
        self.types, self.not_types = self.types or NOTHING, self.not_types or NOTHING
        self._hash = hash((frozenset(self.conditions.items()), self.types, self.not_types))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Conjunction):
            return NotImplemented
        return (
            self._hash == other._hash
            and self.conditions == other.conditions
            and self.types == other.types
            and self.not_types == other.not_types
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, ...]:
        return Conjunction, (dict(self.conditions), self.types, self.not_types)

    def matches(self, event: Event, registry: TypeRegistry | None = None) -> bool:
        """Whether an event satisfies every condition."""
        return all(condition.holds(event.get(name)) for name, condition in self.conditions.items()) and (
            self.admits_type(event.type, registry)
        )

    def admits_type(self, name: str | None, registry: TypeRegistry | None) -> bool:
        """Whether an event of this type has the types asked for and none of the others."""
        return all(is_a(name, of, registry) for of in self.types) and not any(
            is_a(name, of, registry) for of in self.not_types
        )

    def covers(self, other: Conjunction, registry: TypeRegistry | None = None) -> bool:
        """Whether every event that matches `other` matches this (SIENA 3.6, for one alternative)."""
        theirs = other.conditions
        for name, condition in self.conditions.items():
            their = theirs.get(name)
            if their is None:
                return False
            # Condition.covers without the call where nothing is negated: posets spend their time here.
            some, wanted = condition.some, their.some
            if some is None or wanted is None or condition.none or their.none:
                if not condition.covers(their):
                    return False
            elif not some.covers(wanted):
                return False
        return not (self.types or self.not_types) or self._covers_types(other, registry)

    def _covers_types(self, other: Conjunction, registry: TypeRegistry | None) -> bool:
        return all(any(is_a(sub, of, registry) for sub in other.types) for of in self.types) and all(
            any(is_a(of, no, registry) for no in other.not_types)
            or any(_unrelated(of, sub, registry) for sub in other.types)
            for of in self.not_types
        )

    def intersection(self, other: Conjunction) -> Conjunction | None:
        """Both at once; None if no event can match both, whatever the types' hierarchy."""
        conditions = dict(self.conditions)
        for name, condition in other.conditions.items():
            mine = conditions.get(name)
            both = condition if mine is None else mine.intersection(condition)
            if both is None:
                return None
            conditions[name] = both
        types, not_types = self.types | other.types, self.not_types | other.not_types
        return None if types & not_types else Conjunction(conditions, types, not_types)

    def is_possible(self, registry: TypeRegistry | None) -> bool:
        """Whether some event type can have all the types asked for and none of the refused."""
        return all(
            is_a(a, b, registry) or is_a(b, a, registry) for a in self.types for b in self.types
        ) and not any(is_a(a, no, registry) for a in self.types for no in self.not_types)


def is_a(name: str | None, of: str, registry: TypeRegistry | None) -> bool:
    """Whether a type is `of` or one of its descendants."""
    if name == of:
        return True
    return name is not None and registry is not None and registry.is_subtype(name, of)


def _unrelated(a: str, b: str, registry: TypeRegistry | None) -> bool:
    """Whether no event can be of both types: with single inheritance, if neither descends from the other."""
    if registry is None:
        return a != b
    return a in registry and b in registry and not is_a(a, b, registry) and not is_a(b, a, registry)
