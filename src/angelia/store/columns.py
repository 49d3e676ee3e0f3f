"""Events as Arrow columns, and back.

A column holds one datatype, or lists of one. A value goes into the column of its attribute if it fits:
integers fit into a column of floats if they are exact there. What does not fit (another kind than the column
was made for, an attribute beyond the limit) goes into `@rest`, a JSON object, where nothing is lost:
timestamps are written there as `{"$timestamp": …}`, floats that JSON does not know as `{"$float": "NaN"}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from angelia.event import Datatype, Event, Trusted, Value, format_timestamp, parse_timestamp
from angelia.store.segment import Parts
from angelia.types import Attribute

__all__ = [
    "CONTEXT_SCHEMA",
    "MAX_COLUMNS",
    "REST",
    "TIME",
    "Column",
    "Columns",
    "column_of",
    "conformed",
    "declared",
    "discover",
    "events_of",
    "rest_of",
    "schema_of",
    "table_of",
    "tagged",
    "untagged",
    "widened",
]

TIME = pa.timestamp("us", tz="UTC")
REST = "@rest"
MAX_COLUMNS = 256  # that are made of what events bring; what is declared always has a column

CONTEXT_SCHEMA = pa.schema(
    [
        ("@id", pa.string()),
        ("@type", pa.string()),
        ("@source", pa.string()),
        ("@subject", pa.string()),
        ("@time", TIME),
    ]
)


class Column(NamedTuple):
    """What an attribute's column holds; its text is that of an attribute, such as `integer[]`."""

    datatype: Datatype
    repeated: bool

    @classmethod
    def parse(cls, text: str) -> Column:
        """The column of a text such as `string[]`."""
        return column_of(text)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type."""
        scalar = _ARROW[self.datatype]
        return pa.list_(scalar) if self.repeated else scalar

    def __str__(self) -> str:
        return f"{self.datatype}{'[]' if self.repeated else ''}"


Columns = dict[str, Column]

_ARROW = {
    Datatype.STRING: pa.string(),
    Datatype.INTEGER: pa.int64(),
    Datatype.FLOAT: pa.float64(),
    Datatype.BOOLEAN: pa.bool_(),
    Datatype.TIMESTAMP: TIME,
}
_BY_ARROW = {arrow: datatype for datatype, arrow in _ARROW.items()}
_DATATYPES: dict[type, Datatype] = {
    str: Datatype.STRING,
    int: Datatype.INTEGER,
    float: Datatype.FLOAT,
    bool: Datatype.BOOLEAN,
    datetime: Datatype.TIMESTAMP,
}
_FITTING: dict[Datatype, frozenset[type]] = {
    datatype: frozenset({cls, type(None)}) for cls, datatype in _DATATYPES.items()
} | {Datatype.FLOAT: frozenset({int, float, type(None)})}
_NUMBERS = frozenset({Datatype.INTEGER, Datatype.FLOAT})
_SEQUENCES = frozenset({list, tuple, type(None)})


def column_of(attribute: Attribute | str) -> Column:
    """The column of a declared attribute, or of its text."""
    known = Attribute.parse(attribute) if isinstance(attribute, str) else attribute
    return Column(known.datatype, known.repeated)


def declared(attributes: Mapping[str, Attribute]) -> Columns:
    """The columns of a type's attributes."""
    return {name: column_of(attribute) for name, attribute in attributes.items()}


def arrow_column(kind: pa.DataType) -> Column | None:
    """The column that has an Arrow type, if one has."""
    if pa.types.is_list(kind):
        datatype = _BY_ARROW.get(kind.value_type)
        return None if datatype is None else Column(datatype, True)
    datatype = _BY_ARROW.get(kind)
    return None if datatype is None else Column(datatype, False)


def widened(a: Column, b: Column) -> Column | None:
    """A column for the values of both: of floats, if one has integers and the other floats; else None."""
    if a == b:
        return a
    if a.repeated == b.repeated and {a.datatype, b.datatype} == _NUMBERS:
        return Column(Datatype.FLOAT, a.repeated)
    return None


def schema_of(columns: Columns, type_name: str | None = None) -> pa.Schema:
    """The schema of a file: the context, the attributes, and the rest."""
    fields = [pa.field(name, column.arrow) for name, column in columns.items()]
    metadata = {"angelia.format": "1", "angelia.type": type_name or ""}
    return pa.schema([*CONTEXT_SCHEMA, *fields, pa.field(REST, pa.string())], metadata=metadata)


# ---------------------------------------------------------------- discovery


def _column_of_value(value: Any) -> Column | None:
    if not isinstance(value, list | tuple):
        return Column(_DATATYPES[type(value)], False)
    kinds = {_DATATYPES[type(element)] for element in value}
    if len(kinds) == 1:
        return Column(kinds.pop(), True)
    return Column(Datatype.FLOAT, True) if kinds == _NUMBERS else None


def discover(rows: Iterable[Mapping[str, Any]], known: Columns) -> Columns:
    """The `known` columns, and those of what else is in `rows`: of two kinds that conflict, the first.

    Integers and floats together are floats, known ones included.
    """
    found = dict(known)
    for row in rows:
        for name, value in row.items():
            column = _column_of_value(value)
            if column is None:
                continue
            there = found.get(name)
            if there is None:
                if len(found) < MAX_COLUMNS:
                    found[name] = column
            elif there != column:
                found[name] = widened(there, column) or there
    return found


# ---------------------------------------------------------------- events -> columns


def table_of(rows: Sequence[Parts], columns: Columns, type_name: str | None) -> pa.Table:
    """Events of one type as a table, in their order."""
    attributes = [row.attributes for row in rows]
    rest: dict[int, dict[str, Any]] = {}
    arrays = [
        pa.array([row.id for row in rows], pa.string()),
        pa.array([row.type for row in rows], pa.string()),
        pa.array([row.source for row in rows], pa.string()),
        pa.array([row.subject for row in rows], pa.string()),
        pa.array([row.time for row in rows], TIME),
    ]
    for name, column in columns.items():
        arrays.append(_array(name, [row.get(name) for row in attributes], column, rest))
    for name in set().union(*attributes) - columns.keys():
        for position, row in enumerate(attributes):
            if name in row:
                rest.setdefault(position, {})[name] = row[name]
    arrays.append(_rest_array(rest, len(rows)))
    return pa.Table.from_arrays(arrays, schema=schema_of(columns, type_name))


def _array(name: str, values: list[Any], column: Column, rest: dict[int, dict[str, Any]]) -> pa.Array:
    if _fit(values, column):
        try:
            return pa.array(values, column.arrow)
        except pa.ArrowInvalid:
            pass  # an integer that is no float
    kept: list[Any] = []
    for position, value in enumerate(values):
        fits = value is None or fits_into(value, column)
        kept.append(_as(value, column) if fits else None)
        if not fits:
            rest.setdefault(position, {})[name] = value
    return pa.array(kept, column.arrow)


def _as(value: Any, column: Column) -> Any:
    """A value that fits, as Arrow takes it: it refuses large integers as floats, exact or not."""
    if value is None or column.datatype is not Datatype.FLOAT:
        return value
    return [float(element) for element in value] if column.repeated else float(value)


def _fit(values: list[Any], column: Column) -> bool:
    """Whether the types of all values are those of a column."""
    fitting = _FITTING[column.datatype]
    if not column.repeated:
        return fitting.issuperset(map(type, values))
    if not _SEQUENCES.issuperset(map(type, values)):
        return False
    return fitting.issuperset(map(type, chain.from_iterable(value for value in values if value)))


def fits_into(value: Any, column: Column) -> bool:
    """Whether a column can hold a value as it is."""
    if isinstance(value, list | tuple) != column.repeated:
        return False
    for element in value if column.repeated else (value,):
        if type(element) not in _FITTING[column.datatype] or element is None:
            return False
        if column.datatype is Datatype.FLOAT and type(element) is int and int(float(element)) != element:
            return False
    return True


# ---------------------------------------------------------------- the rest


def _rest_array(rest: Mapping[int, dict[str, Any]], count: int) -> pa.Array:
    if not rest:
        return pa.nulls(count, pa.string())
    return pa.array([_rest_text(rest[i]) if i in rest else None for i in range(count)], pa.string())


def _rest_text(values: Mapping[str, Any]) -> str:
    return msgspec.json.encode({name: tagged(values[name]) for name in sorted(values)}).decode()


def tagged(value: Any) -> Any:
    """A value as JSON can have it."""
    if isinstance(value, list | tuple):
        return [tagged(element) for element in value]
    if isinstance(value, datetime):
        return {"$timestamp": format_timestamp(value)}
    if isinstance(value, float) and value - value != 0:
        return {"$float": str(value)}
    return value


def rest_of(text: str) -> dict[str, Value]:
    """The attributes that a `@rest` holds."""
    return {name: untagged(value) for name, value in msgspec.json.decode(text).items()}


def untagged(value: Any) -> Any:
    """A value that `tagged` made."""
    match value:
        case list():
            return tuple([untagged(element) for element in value])
        case {"$timestamp": str(text)}:
            return parse_timestamp(text)
        case {"$float": str(text)}:
            return float(text)
    return value


# ---------------------------------------------------------------- columns -> events

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _values(array: pa.Array) -> list[Any]:
    """An array as values of events."""
    if pa.types.is_timestamp(array.type):
        return [
            at if at is None else _EPOCH + timedelta(microseconds=at)
            for at in array.cast("int64").to_pylist()
        ]
    if not pa.types.is_list(array.type):
        return array.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(array.type.value_type):
        micros = array.cast(pa.list_(pa.int64())).to_pylist()
        return [
            each if each is None else tuple([_EPOCH + timedelta(microseconds=at) for at in each])
            for each in micros
        ]
    return [each if each is None else tuple(each) for each in array.to_pylist()]


def events_of(batch: pa.RecordBatch | pa.Table) -> Iterator[Event]:
    """The events of a batch."""
    named = {name: _values(_whole(batch.column(name))) for name in batch.schema.names}
    nothing = [None] * batch.num_rows
    ids, types, sources, subjects, times = (
        named.pop(name, nothing) for name in ("@id", "@type", "@source", "@subject", "@time")
    )
    rests = named.pop(REST, nothing)
    names = tuple(named)
    rows: Iterable[tuple[Any, ...]] = zip(*named.values(), strict=True) if named else ((),) * batch.num_rows
    for values, rest, *context in zip(rows, rests, types, sources, subjects, ids, times, strict=True):
        attributes = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        if rest is not None:
            attributes |= rest_of(rest)
        yield Trusted(attributes, *context)


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


# ---------------------------------------------------------------- columns -> other columns


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch with the columns of `schema`: nulls where it has none, what does not fit in `@rest`."""
    if batch.schema.equals(schema):
        return batch.replace_schema_metadata(schema.metadata)
    rest: dict[int, dict[str, Any]] = {}
    arrays: dict[str, pa.Array] = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        kind = schema.field(name).type if name in schema.names else None
        if name == REST or array.null_count == len(array):
            continue
        fitting = None if kind is None else _cast(array, kind)
        if fitting is None:
            _move(name, array, kind, arrays, rest)
        else:
            arrays[name] = fitting
    if REST in schema.names and (rest or REST in batch.schema.names):
        old = batch.column(REST).to_pylist() if REST in batch.schema.names else [None] * batch.num_rows
        for position, text in enumerate(old):
            if text is not None:
                rest[position] = rest_of(text) | rest.get(position, {})
        arrays[REST] = _rest_array(rest, batch.num_rows)
    columns = [arrays.get(field.name, pa.nulls(batch.num_rows, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The array as another type, if every value is the same there."""
    mine, wanted = arrow_column(array.type), arrow_column(kind)
    if mine is None or wanted is None or widened(mine, wanted) != wanted:
        return None
    try:
        return array.cast(kind)  # refuses integers that are no floats
    except pa.ArrowInvalid:
        return None


def _move(
    name: str,
    array: pa.Array,
    kind: pa.DataType | None,
    arrays: dict[str, pa.Array],
    rest: dict[int, dict[str, Any]],
) -> None:
    """Put values into the rest, but for those that fit."""
    values = _values(array)
    wanted = None if kind is None else arrow_column(kind)
    if wanted is not None:
        arrays[name] = _array(name, values, wanted, rest)
        return
    for position, value in enumerate(values):
        if value is not None:
            rest.setdefault(position, {})[name] = value
