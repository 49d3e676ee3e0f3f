"""Canonical text of conditions and conjunctions: what `Filter.parse` reads back as the same."""

from __future__ import annotations

from typing import Any

from angelia.event import Scalar
from angelia.filter.conjunction import Condition, Conjunction
from angelia.filter.domain import Domain
from angelia.filter.parser import print_literal, print_name

__all__ = ["constraints", "count_constraints", "print_conjunction"]


def print_conjunction(conjunction: Conjunction) -> str:
    """An alternative of a filter, with its types."""
    first, *types = sorted(conjunction.types) or [""]
    parts = [f"({print_name(name)}: true)" for name in types]
    parts += [f"not ({print_name(name)}: true)" for name in sorted(conjunction.not_types)]
    for name in sorted(conjunction.conditions):
        parts.extend(constraints(name, conjunction.conditions[name]))
    text = " and ".join(parts) or "true"
    return f"{print_name(first)}: {text}" if first else text


def count_constraints(conjunction: Conjunction) -> int:
    """How many constraints `print_conjunction` writes, types included."""
    asked = (c.some for c in conjunction.conditions.values() if c.some is not None)
    refused = (domain for c in conjunction.conditions.values() for domain in c.none)
    return (
        len(conjunction.types)
        + len(conjunction.not_types)
        + sum(len(_parts("x", domain)) for domain in (*asked, *refused))
    )


def constraints(name: str, condition: Condition) -> list[str]:
    """The constraints that make up a condition, each as text."""
    shown = print_name(name)
    texts = [] if condition.some is None else _parts(shown, condition.some)
    for domain in condition.none:
        parts = _parts(shown, domain)
        texts.append(f"not {parts[0]}" if len(parts) == 1 else f"not ({' and '.join(parts)})")
    return texts


def _parts(name: str, domain: Domain) -> list[str]:
    if domain.kind is None:
        return [f"exists {name}"]
    if domain.is_whole_kind:
        return [f"{name} is {domain.kind}"]
    if domain.is_empty:
        return [f'{name} < ""']  # what nothing satisfies, as a constraint of an advertisement
    if domain.points is not None:
        values = [print_literal(point) for point in _sorted(domain.points)]
        return [f"{name} = {values[0]}" if len(values) == 1 else f"{name} in ({', '.join(values)})"]
    parts = _interval_parts(name, domain)
    parts += [f"{name} != {print_literal(point)}" for point in _sorted(domain.excluded)]
    parts += [f"{name} suffix {print_literal(domain.suffix)}"] if domain.suffix else []
    parts += [f"{name} contains {print_literal(part)}" for part in sorted(domain.contains)]
    parts += [f"{name} matches {print_literal(pattern)}" for pattern in sorted(domain.patterns)]
    return parts


def _interval_parts(name: str, domain: Domain) -> list[str]:
    low, high = domain.low, domain.high
    if prefix := domain.prefix:
        alone = low[2] and domain.reads(prefix)  # the prefix itself is left out, and not by the text
        return [f"{name} prefix {print_literal(prefix)}"] + (
            [f"{name} != {print_literal(prefix)}"] if alone else []
        )
    if domain.has_low and domain.has_high and not low[2] and high[2]:
        return [f"{name} between {print_literal(low[1])} and {print_literal(high[1])}"]
    parts = []
    if domain.has_low:
        parts.append(f"{name} {'>' if low[2] else '>='} {print_literal(low[1])}")
    if domain.has_high:
        parts.append(f"{name} {'<=' if high[2] else '<'} {print_literal(high[1])}")
    return parts


def _sorted(values: frozenset[Scalar]) -> list[Any]:
    return sorted(values)
