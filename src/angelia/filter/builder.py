"""Filters written in Python: `(attr("price") < 500) & attr("airline").in_("UA", "AA")`."""

from __future__ import annotations

from typing import NoReturn

from angelia.errors import FilterError
from angelia.event import CONTEXT
from angelia.filter import operators
from angelia.filter.domain import ANY, Domain
from angelia.filter.filter import Filter
from angelia.filter.normal import expand
from angelia.filter.parser import Constraint, checked_name

__all__ = ["Attribute", "attr"]


def attr(name: str) -> Attribute:
    """An attribute to build constraints on; `@type`, `@source`, `@subject`, `@id`, `@time` too."""
    return Attribute(name)


class Attribute:
    """An attribute whose comparisons are filters."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        if isinstance(name, str) and name.startswith("@"):
            if name[1:] not in CONTEXT:
                raise FilterError(f"{name} is not part of an event's context: {', '.join(CONTEXT)}")
        else:
            checked_name(name)
        self._name = name

    def _filter(self, values: Domain) -> Filter:
        return Filter(expand(Constraint(self._name, values)))

    def __eq__(self, value: object) -> Filter:  # type: ignore[override]
        return self._filter(operators.equal(value))

    def __ne__(self, value: object) -> Filter:  # type: ignore[override]
        return self._filter(operators.unequal(value))

    def __lt__(self, value: object) -> Filter:
        return self._filter(operators.less(value))

    def __le__(self, value: object) -> Filter:
        return self._filter(operators.less_or_equal(value))

    def __gt__(self, value: object) -> Filter:
        return self._filter(operators.greater(value))

    def __ge__(self, value: object) -> Filter:
        return self._filter(operators.greater_or_equal(value))

    def between(self, low: object, high: object) -> Filter:
        """From `low` to `high`, both included."""
        return self._filter(operators.between(low, high))

    def in_(self, *values: object) -> Filter:
        """One of the values."""
        if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset):
            raise FilterError("in_ takes the values themselves: in_(1, 2), or in_(*values) for a list")
        return self._filter(operators.one_of(values))

    def is_(self, kind: str) -> Filter:
        """Any value of a kind: `string`, `number`, `boolean` or `timestamp`."""
        return self._filter(operators.of_kind(kind))

    def prefix(self, text: str) -> Filter:
        """A string that starts with `text`."""
        return self._filter(operators.prefix(text))

    def suffix(self, text: str) -> Filter:
        """A string that ends with `text`."""
        return self._filter(operators.suffix(text))

    def contains(self, text: str) -> Filter:
        """A string with `text` in it."""
        return self._filter(operators.contains(text))

    def matches(self, pattern: str) -> Filter:
        """A string in which the RE2 pattern is found."""
        return self._filter(operators.matches(pattern))

    def exists(self) -> Filter:
        """Any value at all."""
        return self._filter(ANY)

    def __bool__(self) -> NoReturn:
        raise FilterError("an attribute is not a filter; compare it, or use .exists()")

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"attr({self._name!r})"
