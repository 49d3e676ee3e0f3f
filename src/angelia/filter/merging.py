"""Merging: one filter that covers two, to shrink routing state. It never loses an event.

A merge is *perfect* if the result matches nothing else than the two did. It is so if one covers the
other, or if they differ in one attribute only and the union of what they ask of it is a domain
(`x < 5` and `x between 3 and 9` make `x <= 9`; `x = 1` and `x = 2` make `x in (1, 2)`). Every other
merge is imperfect: of each attribute that both ask something of, it keeps the smallest domain
around both; it drops the other attributes, and goes to the nearest common ancestor of two types.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from angelia.filter.conjunction import Condition, Conjunction, within
from angelia.filter.domain import Domain, join
from angelia.filter.filter import Filter

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["Merge", "merge"]


class Merge(NamedTuple):
    """A filter that covers others, and whether it matches nothing else."""

    filter: Filter
    perfect: bool


def merge(first: Filter, second: Filter, registry: TypeRegistry | None = None) -> Merge:
    """A filter of one alternative that covers both, or the one that covers the other."""
    if first.covers(second, registry):
        return Merge(first, True)
    if second.covers(first, registry):
        return Merge(second, True)

    def step(so_far: tuple[Conjunction, bool], other: Conjunction) -> tuple[Conjunction, bool]:
        merged, exact = _merged(so_far[0], other, registry)
        return merged, exact and so_far[1]

    head, *rest = (*first.conjunctions, *second.conjunctions)
    conjunction, perfect = reduce(step, rest, (head, True))
    return Merge(Filter((conjunction,)), perfect)


def _merged(a: Conjunction, b: Conjunction, registry: TypeRegistry | None) -> tuple[Conjunction, bool]:
    if a.covers(b, registry):
        return a, True
    if b.covers(a, registry):
        return b, True
    same_types = a.types == b.types and a.not_types == b.not_types
    types = a.types if same_types else _common_types(a.types, b.types, registry)
    conditions: dict[str, Condition] = {}
    exact = same_types and a.conditions.keys() == b.conditions.keys()
    differing = 0
    for name in a.conditions.keys() & b.conditions.keys():
        joined, whole = _joined(a.conditions[name], b.conditions[name])
        differing += a.conditions[name] != b.conditions[name]
        exact = exact and whole
        if joined is not None:
            conditions[name] = joined
    return Conjunction(conditions, types, a.not_types & b.not_types), exact and differing == 1


def _joined(a: Condition, b: Condition) -> tuple[Condition | None, bool]:
    """A condition that follows from either (None: nothing follows), and whether it says all they do."""
    if a == b:
        return a, True
    none = a.none if a.none == b.none else _refused_by_both(a.none, b.none)
    if a.some is None or b.some is None:
        return (Condition(None, none) if none else None), False
    some, exact = join(a.some, b.some)
    return Condition.of(some, none), exact and a.none == b.none


def _refused_by_both(a: tuple[Domain, ...], b: tuple[Domain, ...]) -> tuple[Domain, ...]:
    return tuple(domain for domain in a if within(domain, b)) + tuple(
        domain for domain in b if within(domain, a)
    )


def _common_types(a: Iterable[str], b: Iterable[str], registry: TypeRegistry | None) -> frozenset[str]:
    """The nearest types that all events of either side have."""
    if registry is None:
        return frozenset(a) & frozenset(b)

    def line(name: str) -> tuple[str, ...]:
        return (name, *registry.ancestors(name)) if name in registry else (name,)

    theirs = {ancestor for name in b for ancestor in line(name)}
    nearest = (next((t for t in line(name) if t in theirs), None) for name in a)
    return frozenset(name for name in nearest if name is not None)
