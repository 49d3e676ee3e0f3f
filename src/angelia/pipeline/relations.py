"""How subscriptions relate: which cover which, and how many filters covering and merging would save."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from angelia.filter import Filter, merge, subscription_poset

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["Relations", "merged", "relations", "saved"]


class Relations(NamedTuple):
    """What a poset of the subscriptions tells: a row a subscription, and a row a pair.

    Pairs are those that cover each other immediately. Of equal filters, none covers the others.
    """

    each: pa.Table  # subscription_id, filter, covers, covered_by, is_root
    pairs: pa.Table  # subscription_id, covers


def relations(filters: Mapping[Any, Filter], ids: pa.Array, registry: TypeRegistry | None) -> Relations:
    """How subscriptions cover each other; `ids` are theirs, as a column has them."""
    poset = subscription_poset(registry)
    places: dict[Filter, list[int]] = {}
    for place, each in enumerate(filters.values()):
        poset.insert(each)
        places.setdefault(each, []).append(place)
    known = [each if each in poset else None for each in filters.values()]
    pairs = [
        (above, below)
        for each in poset
        for other in poset.predecessors(each)
        for above in places[each]
        for below in places[other]
    ]
    columns = {
        "subscription_id": ids,
        "filter": [str(each) for each in filters.values()],
        "covers": [0 if each is None else len(poset.covered_by(each)) for each in known],
        "covered_by": [0 if each is None else len(poset.covering(each)) for each in known],
        "is_root": [each is not None and poset.is_root(each) for each in known],
    }
    above, below = (
        pa.array(numbers, pa.int64()) for numbers in (zip(*pairs, strict=True) if pairs else ([], []))
    )
    return Relations(
        pa.table(columns), pa.table({"subscription_id": ids.take(above), "covers": ids.take(below)})
    )


def saved(filters: Iterable[Filter], registry: TypeRegistry | None) -> pa.Table:
    """How many filters a broker would keep: all, different ones, the roots, and the roots when merged."""
    every = list(filters)
    different = list(dict.fromkeys(every))
    poset = subscription_poset(registry)
    for each in different:
        poset.insert(each)
    roots = list(poset.roots)
    steps = {
        "subscriptions": len(every),
        "different filters": len(different),
        "after covering": len(roots),
        "after perfect merging": len(merged(roots, registry)),
    }
    return pa.table({"step": list(steps), "filters": list(steps.values())})


def merged(filters: Iterable[Filter], registry: TypeRegistry | None = None) -> list[Filter]:
    """Fewer filters that match exactly the same events: perfect merges, until none is left to find.

    Only filters that differ in one attribute can be merged perfectly, so these alone are tried.
    """
    current = list(filters)
    while True:
        names = sorted({name for each in current for name in each.attributes()})
        before = len(current)
        for name in names:
            current = _merged_over(current, name, registry)
        if len(current) == before:
            return current


def _merged_over(filters: list[Filter], name: str, registry: TypeRegistry | None) -> list[Filter]:
    """Merge filters that ask the same of all attributes but one."""
    groups: dict[Any, list[Filter]] = {}
    for each in filters:
        groups.setdefault(_all_but(each, name), []).append(each)
    kept: list[Filter] = []
    for members in groups.values():
        kept += _folded(sorted(members, key=str), registry)
    return kept


def _all_but(filter_: Filter, name: str) -> Any:
    if len(filter_.conjunctions) != 1 or name not in filter_.conjunctions[0].conditions:
        return filter_
    (only,) = filter_.conjunctions
    others = frozenset(item for item in only.conditions.items() if item[0] != name)
    return others, only.types, only.not_types


def _folded(filters: list[Filter], registry: TypeRegistry | None) -> list[Filter]:
    """Merge each filter into the first that it makes a perfect merge with."""
    kept: list[Filter] = []
    for each in filters:
        for place, other in enumerate(kept):
            result = merge(other, each, registry)
            if result.perfect:
                kept[place] = result.filter
                break
        else:
            kept.append(each)
    return kept
