"""Disjunctive normal form: a filter as alternatives of which no one is redundant.

A disjunction is a tuple of conjunctions in canonical order. Combining them is a product, so the
number of alternatives is limited: a filter that would expand beyond `MAX_CONJUNCTIONS` is refused.
So is one whose simplification would take long: filters come from strangers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import NoReturn, Protocol, TypeGuard

from angelia.errors import FilterLimitError
from angelia.event import MAX_ATTRIBUTES
from angelia.filter.conjunction import Condition, Conjunction
from angelia.filter.domain import Domain, intersected
from angelia.filter.parser import And, Constant, Constraint, Node, Not, Or, Typed
from angelia.filter.printer import print_conjunction

__all__ = [
    "FALSE",
    "MAX_COMPARED",
    "MAX_CONJUNCTIONS",
    "MAX_PAIRS",
    "MAX_TEXTS",
    "TRUE",
    "Disjunction",
    "complement",
    "expand",
    "product",
    "union",
]

MAX_CONJUNCTIONS = 256
MAX_PAIRS = 4_096  # alternatives of two parts that are combined, over a whole filter
MAX_COMPARED = 150_000  # alternatives that are compared, to find the redundant ones, over a whole filter
MAX_TEXTS = 64  # contains, matches and negated constraints on text, of one attribute in one alternative


class _NegatedConstraint(Protocol):
    part: Constraint


Disjunction = tuple[Conjunction, ...]
TRUE: Disjunction = (Conjunction(),)
FALSE: Disjunction = ()


def expand(node: Node) -> Disjunction:
    """The disjunction that a syntax tree denotes."""
    return _expand(node, _Work())


class _Work:
    """How many pairs of alternatives were combined, and compared, for one filter."""

    def __init__(self) -> None:
        self._pairs = 0
        self._compared = 0

    def product(self, left: Disjunction, right: Disjunction) -> Disjunction:
        """`left and right`, unless that has become too much work."""
        self._pairs += len(left) * len(right)
        if self._pairs > MAX_PAIRS:
            raise FilterLimitError(
                f"to expand the filter takes more than {MAX_PAIRS} combinations of alternatives. "
                "Use in (…) for several values of one attribute, or several filters"
            )
        return product(left, right, self)

    def compare(self, pairs: int) -> None:
        """Note that alternatives are compared, unless that has become too much work."""
        self._compared += pairs
        if self._compared > MAX_COMPARED:
            raise FilterLimitError(
                f"to simplify the filter takes more than {MAX_COMPARED} comparisons of alternatives. "
                "Use in (…) for several values of one attribute, or several filters"
            )


def _expand(node: Node, work: _Work) -> Disjunction:
    match node:
        case Constraint():
            return _together((node,))
        case Constant(value):
            return TRUE if value else FALSE
        case Typed(name, part):
            return work.product((Conjunction(types=frozenset((name,))),), _expand(part, work))
        case Not(Constraint() as part):
            return _together((), (part,))
        case Not(part):
            return _all_of(list(map(_negated, _expand(part, work))), work)
        case Or():
            expanded = [_expand(part, work) for part in _flat(node)]
            return _simplified((c for each in expanded for c in each), work)
        case And(parts):
            # Constraints and negated constraints are put together at once, not one after the other.
            plain = [part for part in parts if isinstance(part, Constraint)]
            negated = [part.part for part in parts if _is_negated(part)]
            others = [p for p in parts if not isinstance(p, Constraint) and not _is_negated(p)]
            factors = dict.fromkeys(_expand(part, work) for part in others)
            return reduce(work.product, factors, _together(plain, negated))


def _all_of(factors: list[Disjunction], work: _Work) -> Disjunction:
    """All at once. Those of one alternative are put together before they are combined with the others."""
    single = [factor[0] for factor in factors if len(factor) == 1]
    return reduce(work.product, [factor for factor in factors if len(factor) != 1], _joined(single))


def _joined(conjunctions: list[Conjunction]) -> Disjunction:
    """Conjunctions joined by `and`: one, or nothing if they contradict each other."""
    by_name: dict[str, list[Condition]] = {}
    for conjunction in conjunctions:
        for name, condition in conjunction.conditions.items():
            by_name.setdefault(name, []).append(condition)
    conditions: dict[str, Condition] = {}
    for name, several in by_name.items():
        some = [condition.some for condition in several if condition.some is not None]
        none = dict.fromkeys(domain for condition in several for domain in condition.none)
        _check_texts(sum(domain.reads_text for domain in none))
        both = Condition.of(_intersection(some) if some else None, none)
        if both is None:
            return FALSE
        conditions[name] = both
    types = frozenset[str]().union(*(each.types for each in conjunctions))
    not_types = frozenset[str]().union(*(each.not_types for each in conjunctions))
    return FALSE if types & not_types else (_checked(Conjunction(conditions, types, not_types)),)


def _flat(node: Or) -> Iterator[Node]:
    """The parts of a disjunction, and those of its parts that are disjunctions: to be simplified once."""
    for part in node.parts:
        if isinstance(part, Or):
            yield from _flat(part)
        else:
            yield part


def _is_negated(node: Node) -> TypeGuard[_NegatedConstraint]:
    return isinstance(node, Not) and isinstance(node.part, Constraint)


def _together(constraints: Sequence[Constraint], negated: Sequence[Constraint] = ()) -> Disjunction:
    """Constraints joined by `and`: one conjunction, or nothing if they contradict each other."""
    asked: dict[str, dict[Domain, None]] = {}
    for constraint in constraints:
        asked.setdefault(constraint.name, {})[constraint.domain] = None
    domains = {name: _intersection(list(several)) for name, several in asked.items()}
    refused: dict[str, dict[Domain, None]] = {}
    for constraint in negated:
        if not constraint.domain.is_empty:  # to refuse nothing asks for nothing
            refused.setdefault(constraint.name, {})[constraint.domain] = None
    _check_width(len({**domains, **refused}))
    if any(domain.is_empty for domain in domains.values()):
        return FALSE
    conditions: dict[str, Condition | None] = {name: Condition(domain) for name, domain in domains.items()}
    for name, none in refused.items():
        some = domains.get(name)
        texts = 0 if some is None else len(some.contains) + len(some.patterns)
        _check_texts(texts + sum(domain.reads_text for domain in none))
        conditions[name] = Condition.of(some, none)
    possible = {name: condition for name, condition in conditions.items() if condition is not None}
    return (Conjunction(possible),) if len(possible) == len(conditions) else FALSE


def _intersection(domains: list[Domain]) -> Domain:
    texts = frozenset[str]().union(*(domain.contains | domain.patterns for domain in domains))
    if len(texts) <= MAX_TEXTS:
        return intersected(domains)
    found = domains[0]  # most of the texts may follow from others
    for domain in domains[1:]:
        found = found.intersection(domain)
        _check_texts(len(found.contains) + len(found.patterns))
    return found


def product(left: Disjunction, right: Disjunction, work: _Work | None = None) -> Disjunction:
    """`left and right`"""
    if len(left) * len(right) > MAX_CONJUNCTIONS:
        _refuse_size(len(left) * len(right))
    pairs = (a.intersection(b) for a in left for b in right)
    return _simplified((_checked(pair) for pair in pairs if pair is not None), work)


def union(*disjunctions: Disjunction) -> Disjunction:
    """`left or right or …`"""
    return _simplified(conjunction for disjunction in disjunctions for conjunction in disjunction)


def complement(disjunction: Disjunction) -> Disjunction:
    """`not disjunction`"""
    return reduce(product, map(_negated, disjunction), TRUE)


def _negated(conjunction: Conjunction) -> Disjunction:
    parts = [Conjunction(not_types=frozenset((name,))) for name in conjunction.types]
    parts += [Conjunction(types=frozenset((name,))) for name in conjunction.not_types]
    for name, condition in conjunction.conditions.items():
        if condition.some is not None:
            parts.append(Conjunction({name: Condition(None, (condition.some,))}))
        parts += [Conjunction({name: Condition(domain)}) for domain in condition.none]
    return _simplified(parts)


def _checked(conjunction: Conjunction) -> Conjunction:
    _check_width(len(conjunction.conditions))
    for condition in conjunction.conditions.values():
        if condition.none or (condition.some is not None and condition.some.reads_text):
            _check_texts(_texts(condition))
    return conjunction


def _texts(condition: Condition) -> int:
    """How many constraints on text a condition holds, that each cost a look at the others."""
    some = 0 if condition.some is None else len(condition.some.contains) + len(condition.some.patterns)
    return some + sum(domain.reads_text for domain in condition.none)


def _check_texts(texts: int) -> None:
    if texts > MAX_TEXTS:
        raise FilterLimitError(
            f"a filter has at most {MAX_TEXTS} contains, matches and negated suffixes on one attribute; "
            'use matches "…|…" for one of several texts'
        )


def _check_width(conditions: int) -> None:
    if conditions > MAX_ATTRIBUTES:
        raise FilterLimitError(f"a filter is about at most {MAX_ATTRIBUTES} attributes, not {conditions}")


def _refuse_size(alternatives: int) -> NoReturn:
    raise FilterLimitError(
        f"the filter expands to {alternatives} alternatives; at most {MAX_CONJUNCTIONS} are allowed. "
        "Use in (…) for several values of one attribute, or several filters"
    )


# ---------------------------------------------------------------- canonical form


def _simplified(conjunctions: Iterable[Conjunction], work: _Work | None = None) -> Disjunction:
    """The alternatives that no other covers, in canonical order.

    These are the same in whatever order and grouping the alternatives come, so that filters with
    the same alternatives are equal. Merging `x = 1 or x = 2` into one alternative would not be.
    """
    found = list(dict.fromkeys(conjunctions))
    if len(found) > 4 * MAX_CONJUNCTIONS:  # even if most were redundant, to find out would take long
        _refuse_size(len(found))
    if len(found) > 1:
        found.sort(key=print_conjunction)
        found = _without_covered(found, work or _Work())
    if len(found) > MAX_CONJUNCTIONS:
        _refuse_size(len(found))
    return tuple(found)


def _without_covered(conjunctions: list[Conjunction], work: _Work) -> list[Conjunction]:
    """Those that no other covers; of two that cover each other, the first."""
    alike: dict[frozenset[str], list[Conjunction]] = {}  # by attributes: what covers another has no more
    for each in conjunctions:
        alike.setdefault(frozenset(each.conditions), []).append(each)
    gone: set[Conjunction] = set()
    for names, group in alike.items():
        wider = [other for others in alike if others <= names for other in alike[others]]
        work.compare(len(wider) * len(group))
        for each in group:
            for other in wider:
                if other is not each and other not in gone and other.covers(each):
                    gone.add(each)
                    break
    return [each for each in conjunctions if each not in gone]
