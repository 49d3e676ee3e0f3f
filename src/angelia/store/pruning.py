"""The coarse part of a filter as an Arrow expression, for skipping files' row groups by their statistics.

Sound: a row that matches satisfies the expression. What an expression cannot say (negations, the text of
strings, elements of lists, types) is left out, bounds are taken as closed, and a row with something in
`@rest` is always let through: the exact answer is the matcher's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from angelia.event import Datatype, Kind, Scalar
from angelia.filter import Filter
from angelia.filter.conjunction import Conjunction
from angelia.filter.domain import ABOVE_ALL, BELOW_ALL, Domain
from angelia.store.columns import REST, TIME, Column, arrow_column

__all__ = ["pruning_expression", "time_expression"]

EVERYTHING = ds.scalar(True)
NOTHING = ds.scalar(False)

_KINDS = {
    Datatype.STRING: Kind.STRING,
    Datatype.INTEGER: Kind.NUMBER,
    Datatype.FLOAT: Kind.NUMBER,
    Datatype.BOOLEAN: Kind.BOOLEAN,
    Datatype.TIMESTAMP: Kind.TIMESTAMP,
}
_LEAST, _GREATEST = -(2**63), 2**63 - 1


def pruning_expression(filter: Filter, schema: pa.Schema) -> ds.Expression:  # noqa: A002 - what it is
    """An expression on the columns of `schema` that every row which matches satisfies."""
    alternatives = [_conjunction(each, schema) for each in filter.conjunctions]
    if any(each is EVERYTHING for each in alternatives):
        return EVERYTHING
    if REST in schema.names and alternatives:
        alternatives.append(ds.field(REST).is_valid())
    return _any(alternatives)


def time_expression(since: datetime | None, until: datetime | None) -> ds.Expression:
    """An expression for a range of time: from `since` up to, but without, `until`."""
    parts = []
    if since is not None:
        parts.append(ds.field("@time") >= pa.scalar(since, TIME))
    if until is not None:
        parts.append(ds.field("@time") < pa.scalar(until, TIME))
    return _all(parts)


def _any(parts: Iterable[ds.Expression]) -> ds.Expression:
    kept = [part for part in parts if part is not NOTHING]
    return reduce(lambda a, b: a | b, kept) if kept else NOTHING


def _all(parts: Iterable[ds.Expression]) -> ds.Expression:
    kept = [part for part in parts if part is not EVERYTHING]
    if any(part is NOTHING for part in kept):
        return NOTHING
    return reduce(lambda a, b: a & b, kept) if kept else EVERYTHING


def _conjunction(conjunction: Conjunction, schema: pa.Schema) -> ds.Expression:
    return _all(
        _wanted(name, condition.some, schema)
        for name, condition in conjunction.conditions.items()
        if condition.some is not None
    )


def _wanted(name: str, domain: Domain, schema: pa.Schema) -> ds.Expression:
    """That a column has a value in a domain."""
    if name not in schema.names:
        return NOTHING  # but for @rest, which is looked at anyway
    column = arrow_column(schema.field(name).type)
    if column is None:
        return EVERYTHING  # not a column of ours: who knows
    field = ds.field(name)
    if domain.kind is None or column.repeated:
        return field.is_valid()
    if _KINDS[column.datatype] is not domain.kind:
        return NOTHING
    if domain.points is not None:
        return _one_of(field, column, domain.points)
    return _between(field, column, domain)


def _one_of(field: ds.Expression, column: Column, points: Iterable[Scalar]) -> ds.Expression:
    values = [value for point in points for value in _stored(point, column)]
    return field.isin(pa.array(values, column.arrow)) if values else NOTHING


def _stored(point: Scalar, column: Column) -> list[Any]:
    """The values of a column that equal a point."""
    if column.datatype is Datatype.INTEGER:
        is_there = math.isfinite(point) and point == int(point) and _LEAST <= point <= _GREATEST  # type: ignore[arg-type,operator]
        return [int(point)] if is_there else []  # type: ignore[arg-type]
    if column.datatype is Datatype.FLOAT:
        value = _float(point)
        return [0.0, -0.0] if value == 0 else [value] if value == point else []
    return [point]


def _between(field: ds.Expression, column: Column, domain: Domain) -> ds.Expression:
    parts = []
    if domain.low != BELOW_ALL:
        low = _bound(domain.low[1], column, down=True)
        if low is not None:
            parts.append(field >= pa.scalar(low, column.arrow))
        elif domain.low[1] > 0:
            return NOTHING  # beyond all integers
    if domain.high != ABOVE_ALL:
        high = _bound(domain.high[1], column, down=False)
        if high is not None:
            parts.append(field <= pa.scalar(high, column.arrow))
        elif domain.high[1] < 0:
            return NOTHING
    return _all([field.is_valid(), *parts]) if not parts else _all(parts)


def _bound(value: Any, column: Column, down: bool) -> Any:
    """A bound as the column has it, not inside the domain; None if no integer is that far."""
    if column.datatype is Datatype.FLOAT:
        return _float(value)  # rounded, perhaps, but no float lies between
    if column.datatype is Datatype.INTEGER:
        if math.isinf(value):
            return None
        whole = math.floor(value) if down else math.ceil(value)
        return whole if _LEAST <= whole <= _GREATEST else None
    return value


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)
