"""The operators of the filter language, each as the domain of values for which it holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import re2

from angelia.errors import EventError, FilterError
from angelia.event import Kind, Scalar, kind_of, plain_scalar
from angelia.filter.domain import Domain, after, before, compiled, prefix_end

__all__ = [
    "MAX_PATTERN_LENGTH",
    "MAX_POINTS",
    "OPERATORS",
    "between",
    "contains",
    "equal",
    "greater",
    "greater_or_equal",
    "less",
    "less_or_equal",
    "matches",
    "of_kind",
    "one_of",
    "prefix",
    "suffix",
    "unequal",
]

MAX_POINTS = 10_000
MAX_PATTERN_LENGTH = 1_000


def operand(value: object) -> Scalar:
    """A value as a filter compares with it: equal numbers become the same object kind."""
    try:
        plain = plain_scalar(value)
    except EventError as error:
        raise FilterError(str(error)) from None
    if type(plain) is not float:
        return plain
    if not math.isfinite(plain):
        raise FilterError(f"{plain} cannot be compared with; a number in a filter must be finite")
    return int(plain) if plain.is_integer() and -(2.0**63) <= plain < 2.0**63 else plain


def _ordered(value: object) -> tuple[Kind, Scalar]:
    plain = operand(value)
    kind = kind_of(plain)
    if kind is Kind.BOOLEAN:
        raise FilterError("booleans have no order; compare them with = or !=")
    return kind, plain


def _text(value: object) -> str:
    plain = operand(value)
    if not isinstance(plain, str):
        raise FilterError(f"this operator needs a string, not a {kind_of(plain)}")
    return plain


def equal(value: object) -> Domain:
    """`= value`"""
    plain = operand(value)
    return Domain.of(kind_of(plain), points=(plain,))


def unequal(value: object) -> Domain:
    """`!= value`: another value of the same kind."""
    plain = operand(value)
    return Domain.of(kind_of(plain), excluded=(plain,))


def less(value: object) -> Domain:
    """`< value`"""
    kind, plain = _ordered(value)
    return Domain.of(kind, high=before(plain))


def less_or_equal(value: object) -> Domain:
    """`<= value`"""
    kind, plain = _ordered(value)
    return Domain.of(kind, high=after(plain))


def greater(value: object) -> Domain:
    """`> value`"""
    kind, plain = _ordered(value)
    return Domain.of(kind, low=after(plain))


def greater_or_equal(value: object) -> Domain:
    """`>= value`"""
    kind, plain = _ordered(value)
    return Domain.of(kind, low=before(plain))


def between(low: object, high: object) -> Domain:
    """`between low and high`, both ends included."""
    (kind, bottom), (other, top) = _ordered(low), _ordered(high)
    if kind is not other:
        raise FilterError(f"the ends of between are of two kinds, {kind} and {other}")
    return Domain.of(kind, low=before(bottom), high=after(top))


def of_kind(name: object) -> Domain:
    """`is kind`: any value of a kind, but for NaN."""
    kinds: tuple[str, ...] = tuple(Kind)
    if name not in kinds:
        raise FilterError(f"{name!r} is not a kind of value: {', '.join(kinds)}")
    return Domain.of(Kind(name))


def one_of(values: Iterable[object]) -> Domain:
    """`in (…)`: one of several values of one kind."""
    plain = [operand(value) for value in values]
    if not plain:
        raise FilterError("in () needs at least one value")
    if len(plain) > MAX_POINTS:
        raise FilterError(f"in (…) has {len(plain)} values; at most {MAX_POINTS} are allowed")
    kinds = {kind_of(value): None for value in plain}
    if len(kinds) > 1:
        raise FilterError(f"the values of in (…) are of several kinds: {', '.join(kinds)}")
    return Domain.of(kind_of(plain[0]), points=plain)


def prefix(value: object) -> Domain:
    """`prefix "…"`"""
    text = _text(value)
    return Domain.of(Kind.STRING, low=before(text), high=prefix_end(text))


def suffix(value: object) -> Domain:
    """`suffix "…"`"""
    return Domain.of(Kind.STRING, suffixes=(_text(value),))


def contains(value: object) -> Domain:
    """`contains "…"`"""
    return Domain.of(Kind.STRING, contains=(_text(value),))


def matches(value: object) -> Domain:
    """`matches "regex"`: the pattern is found somewhere in the string (RE2 syntax)."""
    pattern = _text(value)
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise FilterError(
            f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN_LENGTH} are allowed"
        )
    try:
        compiled(pattern)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error.args[0]
        raise FilterError(f"the pattern {pattern!r} is not valid RE2: {reason}") from None
    return Domain.of(Kind.STRING, patterns=(pattern,))


OPERATORS: dict[str, Callable[[object], Domain]] = {
    "=": equal,
    "!=": unequal,
    "<": less,
    "<=": less_or_equal,
    ">": greater,
    ">=": greater_or_equal,
    "prefix": prefix,
    "suffix": suffix,
    "contains": contains,
    "matches": matches,
}
"""The operators that take one value. `between` takes two, `in` many, `is` a kind, `exists` none."""
