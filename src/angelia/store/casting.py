"""Columns of files from elsewhere as columns of the lake, and which of their values do not fit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from angelia.errors import EventError, LakeError
from angelia.event import Datatype, parse_timestamp
from angelia.store.columns import TIME, Column, arrow_column, widened

__all__ = ["as_column", "infer", "parsed"]

_GUESSES = (Datatype.INTEGER, Datatype.FLOAT, Datatype.BOOLEAN, Datatype.TIMESTAMP)
_SAMPLE = 10_000  # values that tell what a column of text holds


# ---------------------------------------------------------------- text


def infer(values: pa.Array) -> Column:
    """The column that a sample of texts is of."""
    some = values.drop_null().slice(0, _SAMPLE)
    for datatype in _GUESSES:
        wrong: dict[int, str] = {}
        parsed("", some, Column(datatype, False), wrong, limit=1)
        if not wrong:
            return Column(datatype, False)
    return Column(Datatype.STRING, False)


def parsed(
    name: str, values: pa.Array, column: Column, wrong: dict[int, str], limit: int | None = None
) -> pa.Array:
    """Texts as values of a column; what is none is null, and told in `wrong` by its position."""
    if column.repeated:
        raise LakeError(f"the column {name!r} holds lists ({column}), which CSV cannot; use JSON lines")
    try:
        return _whole(values, column)
    except pa.ArrowInvalid:
        return _one_by_one(name, values, column, wrong, limit)


def _whole(values: pa.Array, column: Column) -> pa.Array:
    texts = values.cast(pa.string())
    if column.datatype is not Datatype.TIMESTAMP:
        return texts.cast(column.arrow)
    try:
        return texts.cast(TIME)
    except pa.ArrowInvalid:  # without a time zone: UTC
        return texts.cast(pa.timestamp("us")).cast(TIME)


def _one_by_one(
    name: str, values: pa.Array, column: Column, wrong: dict[int, str], limit: int | None
) -> pa.Array:
    kept: list[Any] = []
    for position, raw in enumerate(values.to_pylist()):
        value = None
        if raw is not None and position not in wrong:
            try:
                value = _PARSERS[column.datatype](raw.decode())
            except (ValueError, EventError) as error:
                shown = raw[:64].decode(errors="replace")
                why = "is not valid UTF-8" if isinstance(error, UnicodeDecodeError) else f"is no {column}"
                wrong[position] = f"{name}: {shown!r} {why}"
                if limit is not None and len(wrong) >= limit:
                    break
        kept.append(value)
    return pa.array(kept, column.arrow)


def _integer(text: str) -> int:
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise ValueError(text)
    return value


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _no(text)


def _no(text: str) -> Any:
    raise ValueError(text)


def _timestamp(text: str) -> datetime:
    try:
        return parse_timestamp(text)
    except EventError:
        at = datetime.fromisoformat(text)
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


_PARSERS: dict[Datatype, Callable[[str], Any]] = {
    Datatype.STRING: str,
    Datatype.INTEGER: _integer,
    Datatype.FLOAT: float,
    Datatype.BOOLEAN: _boolean,
    Datatype.TIMESTAMP: _timestamp,
}


# ---------------------------------------------------------------- columns


def as_column(name: str, values: pa.Array, wanted: Column | None, wrong: dict[int, str]) -> pa.Array:
    """A column of any Arrow type as one of the lake: of `wanted`, or of what it is nearest to."""
    plain = _plain(name, values, wrong)
    column = arrow_column(plain.type)
    if wanted is None or column is None or column == wanted:
        return plain
    if widened(column, wanted) == wanted:
        try:
            return plain.cast(wanted.arrow)
        except pa.ArrowInvalid:
            return plain
    if column.datatype is Datatype.STRING and not column.repeated and not wanted.repeated:
        return parsed(name, plain.cast(pa.binary()), wanted, wrong)
    return plain


def _plain(name: str, values: pa.Array, wrong: dict[int, str]) -> pa.Array:
    kind, types = values.type, pa.types
    if types.is_dictionary(kind):
        return _plain(name, values.dictionary_decode(), wrong)
    if types.is_null(kind):
        return values.cast(pa.string())
    if types.is_large_string(kind) or types.is_string_view(kind) or types.is_string(kind):
        return values.cast(pa.string())
    if types.is_boolean(kind):
        return values
    if types.is_uint64(kind):
        return _unsigned(name, values, wrong)
    if types.is_integer(kind):
        return values.cast(pa.int64())
    if types.is_floating(kind):
        return values.cast(pa.float64())
    if types.is_timestamp(kind) or types.is_date(kind):
        zoned = values if types.is_timestamp(kind) else values.cast(pa.timestamp("ms"))
        unzoned = zoned.cast(pa.timestamp(zoned.type.unit))  # both zones count from 1970 in UTC
        return unzoned.cast(pa.timestamp("us"), safe=False).cast(TIME)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _list(name, values, wrong)
    raise LakeError(
        f"the column {name!r} is of type {kind}, which an event cannot have: use strings, integers, floats, "
        "booleans, timestamps, or lists of these"
    )


def _unsigned(name: str, values: pa.Array, wrong: dict[int, str]) -> pa.Array:
    large = pc.greater(values, pa.scalar(2**63 - 1, pa.uint64()))
    for position in pc.indices_nonzero(pc.fill_null(large, False)).to_pylist():
        wrong[position] = f"{name}: the integer {values[position]} does not fit in 64 bits"
    return pc.if_else(large, pa.scalar(None, pa.uint64()), values).cast(pa.int64())


def _list(name: str, values: pa.Array, wrong: dict[int, str]) -> pa.Array:
    lists = values if pa.types.is_list(values.type) else values.cast(pa.list_(values.type.value_type))
    flat = lists.flatten()
    inner = _plain(name, flat, {})
    if pa.types.is_list(inner.type):
        raise LakeError(f"the column {name!r} holds lists of lists, which an event cannot have")
    if inner.null_count:
        for position, each in enumerate(lists.to_pylist()):
            if each is not None and None in each:
                wrong[position] = f"{name}: a list with a null in it"
    lengths = pc.coalesce(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, inner, mask=lists.is_null() if lists.null_count else None)
