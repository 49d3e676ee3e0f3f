"""Conformance of filters to event types (thesis Definition 3.3): errors before events."""

from __future__ import annotations

from collections.abc import Iterator

from angelia.errors import ConformanceError
from angelia.event import ENVELOPE, Datatype, Kind
from angelia.filter.conjunction import Condition, Conjunction
from angelia.filter.filter import Filter
from angelia.filter.printer import constraints
from angelia.types import TypeRegistry
from angelia.types.conformance import did_you_mean

__all__ = ["check_filter"]

_KIND_OF: dict[Datatype, Kind] = {
    Datatype.STRING: Kind.STRING,
    Datatype.INTEGER: Kind.NUMBER,
    Datatype.FLOAT: Kind.NUMBER,
    Datatype.BOOLEAN: Kind.BOOLEAN,
    Datatype.TIMESTAMP: Kind.TIMESTAMP,
}
_CONTEXT_KIND = {"@time": Kind.TIMESTAMP}


def check_filter(filter: Filter, registry: TypeRegistry) -> None:  # noqa: A002 - what it is
    """Raise an error if the filter asks for an unknown type, attribute, or a value of the wrong kind.

    An `UnknownTypeError`, or a `ConformanceError` with every problem. Of an alternative without a
    type only the context is checked. It is the filter's canonical form that is checked: what a
    filter says of a type in an alternative that nothing can match is not seen.
    """
    for conjunction in filter.conjunctions:
        for name in sorted(conjunction.types | conjunction.not_types):
            registry.get(name)
        found = list(_problems(conjunction, registry))
        if found:
            raise ConformanceError(" and ".join(sorted(conjunction.types)) or "filter", found)


def _problems(conjunction: Conjunction, registry: TypeRegistry) -> Iterator[str]:
    for name, condition in sorted(conjunction.conditions.items()):
        if name.startswith("@"):
            yield from _kind_problems(name, condition, _CONTEXT_KIND.get(name, Kind.STRING))
            continue
        for type_name in sorted(conjunction.types):
            attribute = registry.attributes(type_name).get(name)
            if attribute is None and name.startswith(ENVELOPE):
                continue  # it is of the envelope, not of the type
            if attribute is None:
                hint = did_you_mean(name, registry.attributes(type_name))
                yield f"{type_name} has no attribute {name!r}{hint}"
            else:
                yield from _kind_problems(name, condition, _KIND_OF[attribute.datatype])


def _kind_problems(name: str, condition: Condition, expected: Kind) -> Iterator[str]:
    for domain in (condition.some, *condition.none):
        if domain is not None and domain.kind not in (None, expected):
            texts = " and ".join(constraints(name, Condition(domain)))
            yield f"{texts} asks {name!r} for a {domain.kind}, expected a {expected}"
