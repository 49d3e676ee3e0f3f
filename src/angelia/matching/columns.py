"""Batches of columns: Arrow tables and record batches, and mappings of NumPy arrays or lists.

A column is an attribute, by its (dotted) name; `@type`, `@source`, `@subject`, `@id` and `@time` are the
context. A null is a missing attribute. What has no place in an event is refused with the name of the
column: decimals, dates, times of day, binary values, maps, unsigned integers of 2^63 and more. Columns
that no filter asks about are not looked at.

A struct column is taken apart into `struct.field` columns. A timestamp without a time zone is taken as
UTC, and digits beyond the microsecond are cut off. Null elements of a list are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from angelia.errors import BatchError, EventError
from angelia.event import plain_scalar
from angelia.matching import rank_kernels as kernels
from angelia.matching.encode import Encoder, Workspace
from angelia.matching.layout import FLOAT, HAS_LISTS, HAS_POINTS, HAS_TEXTS, INTEGER, TIMESTAMP
from angelia.matching.slots import Slot

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Elements",
    "Ranked",
    "RankedBatch",
    "batch_size",
    "rank_batch",
    "rank_objects",
    "slot_flags",
    "split",
]

Words = NDArray[np.uint32]
Ranked = tuple[Words, Words]
RankedBatch = tuple[Words, Words, Words, NDArray[np.uint8], Words]

MAX_ROWS = 1 << 14  # rows that are encoded at once
MIN_CHUNK = 512  # rows below which chunks are put together

_NO_BITS = np.zeros(0, np.uint8)
_PER_MICROSECOND = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


# ---------------------------------------------------------------- batches


def _is_arrow(columns: Any) -> bool:
    return type(columns).__module__.partition(".")[0] == "pyarrow"


def split(columns: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The parts of a batch that are encoded at once: how many rows, and the columns by name."""
    if _is_arrow(columns):
        yield from _split_arrow(columns)
        return
    rows = batch_size(columns)
    for start in range(0, rows, MAX_ROWS):
        stop = min(start + MAX_ROWS, rows)
        yield stop - start, {name: column[start:stop] for name, column in columns.items()}


def batch_size(columns: Any) -> int:
    """The number of rows; a `BatchError` if the columns do not agree, or are no columns at all."""
    if _is_arrow(columns):
        return int(columns.num_rows)
    if not isinstance(columns, Mapping):
        raise BatchError(
            f"a batch is a pyarrow Table or RecordBatch, or a mapping of NumPy columns, "
            f"not {type(columns).__name__}"
        )
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise BatchError(f"the columns have different lengths: {sizes}")
    return next(iter(sizes.values()), 0)


def _split_arrow(table: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    import pyarrow as pa

    names = table.schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BatchError(f"the column {twice!r} is there twice")
    if isinstance(table, pa.RecordBatch):
        batches: Any = [table]
    else:
        chunks = max((column.num_chunks for column in table.columns), default=1)
        if chunks > 1 and table.num_rows < MIN_CHUNK * chunks:
            table = table.combine_chunks()
        batches = table.to_batches(max_chunksize=MAX_ROWS)
    for batch in batches:
        for start in range(0, batch.num_rows, MAX_ROWS):
            part = batch if batch.num_rows <= MAX_ROWS else batch.slice(start, MAX_ROWS)
            yield part.num_rows, dict(zip(names, part.columns, strict=True))


def rank_batch(
    rows: int,
    columns: Mapping[str, Any],
    encoder: Encoder,
    workspace: Workspace,
    slots: Sequence[Slot],
    pitch: int,
) -> RankedBatch:
    """The ranks, texts, places and flags of columns as `kernels.match_blocks` takes them, and elements."""
    used = [(slot, column) for slot in slots if (column := _column(columns, slot.name)) is not None]
    ranks, texts = np.zeros((2, (len(used) + 1) * pitch), np.uint32)
    places, flags = np.zeros(len(slots), np.uint32), np.zeros(len(slots), np.uint8)
    elements = Elements()
    for i, (slot, column) in enumerate(used, 1):
        lists = elements.size
        try:
            ranked = _rank(column, slot, encoder, workspace, elements)
        except EventError as error:
            raise BatchError(f"column {slot.name!r}: {error}") from None
        ranks[i * pitch : i * pitch + rows], texts[i * pitch : i * pitch + rows] = ranked
        places[slot.index] = i
        flags[slot.index] = slot_flags(slot, elements.size > lists)
    return ranks, texts, places, flags, elements.array()


def slot_flags(slot: Slot, has_lists: bool) -> int:
    """What the column of a slot holds."""
    return HAS_POINTS * slot.has_points + HAS_TEXTS * bool(slot.texts) + HAS_LISTS * has_lists


def _column(columns: Mapping[str, Any], name: str) -> Any:
    """A column by name, looked for in structs if need be."""
    column = columns.get(name)
    if column is not None and not _is_struct(column):
        return column
    head, dot, rest = name.rpartition(".")
    while dot:
        parent = columns.get(head)
        if parent is not None and _is_struct(parent):
            return _field(parent, rest)
        head, dot, more = head.rpartition(".")
        rest = f"{more}.{rest}"
    return None


def _is_struct(column: Any) -> bool:
    return _is_arrow(column) and column.type.num_fields > 0 and str(column.type).startswith("struct<")


def _field(struct: Any, name: str) -> Any:
    """A field of a struct column, null where the struct is."""
    names = [field.name for field in struct.type]
    return _column(dict(zip(names, struct.flatten(), strict=True)), name)


class Elements:
    """The elements of the lists of a batch: counts, ranks and texts."""

    def __init__(self) -> None:
        self._parts: list[Words] = [np.zeros(1, np.uint32)]
        self.size = 1

    def append(self, part: Words) -> None:
        """Add the elements of a column."""
        self._parts.append(part)
        self.size += len(part)

    def array(self) -> Words:
        """All elements."""
        return np.concatenate(self._parts)


# ---------------------------------------------------------------- columns


def _rank(column: Any, slot: Slot, encoder: Encoder, workspace: Workspace, elements: Elements) -> Ranked:
    """The ranks and texts of a column of any kind."""
    if _is_arrow(column):
        return _rank_arrow(column, slot, encoder, workspace, elements)
    if isinstance(column, np.ndarray):
        return _rank_numpy(column, slot, encoder, elements)
    return rank_objects(column, slot, encoder, elements)


def _rank_arrow(
    column: Any, slot: Slot, encoder: Encoder, workspace: Workspace, elements: Elements
) -> Ranked:
    import pyarrow as pa

    kind, types = column.type, pa.types
    if isinstance(column, pa.ExtensionArray):
        return _rank_arrow(column.storage, slot, encoder, workspace, elements)
    if types.is_null(kind):
        return np.zeros((2, len(column)), np.uint32)  # type: ignore[return-value]
    if types.is_dictionary(kind):
        return _rank_dictionary(column, slot, encoder, workspace, elements)
    if types.is_string(kind) or types.is_large_string(kind):
        return _rank_strings(column, slot, workspace)
    if types.is_string_view(kind):
        return _rank_strings(column.cast(pa.large_string()), slot, workspace)
    if types.is_nested(kind):
        return _rank_lists(column, slot, encoder, workspace, elements)
    if types.is_boolean(kind):
        return _rank_booleans(_bits(column.buffers()[1], column), _bits(column.buffers()[0], column), slot)
    code, values = _arrow_numbers(column, slot)
    return _plain(encoder.rank_column(slot, code, values, _validity(column), column.offset))


def _plain(ranks: Words) -> Ranked:
    """Ranks of values that have no texts."""
    return ranks, np.zeros(len(ranks), np.uint32)


def _validity(column: pa.Array) -> NDArray[np.uint8]:
    bits = column.buffers()[0]
    return _NO_BITS if bits is None or column.null_count == 0 else np.frombuffer(bits, np.uint8)


def _bits(bits: Any, column: pa.Array) -> NDArray[np.bool_]:
    """A bitmap of an Arrow array as booleans; no bitmap means that all are set."""
    if bits is None:
        return np.ones(len(column), bool)
    start, stop = column.offset, column.offset + len(column)
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=stop, bitorder="little")[start:].astype(bool)


def _rank_booleans(values: NDArray[np.bool_], valid: NDArray[np.bool_], slot: Slot) -> Ranked:
    return _plain(np.where(valid, slot.false + 2 * values, 0).astype(np.uint32))


def _arrow_numbers(column: pa.Array, slot: Slot) -> tuple[int, NDArray[Any]]:
    """The values of a column of numbers or timestamps, as kernels take them; nulls have any value."""
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind)):
        _refuse(slot, str(kind))
    is_time = pa.types.is_timestamp(kind)
    values: NDArray[Any] = np.frombuffer(
        column.buffers()[1],
        np.int64 if is_time else kind.to_pandas_dtype(),
        len(column),
        column.offset * kind.bit_width // 8,
    )
    if is_time:
        valid = _bits(column.buffers()[0] if column.null_count else None, column)
        return TIMESTAMP, _microseconds(values, kind.unit, valid, slot)
    if pa.types.is_floating(kind):
        return FLOAT, values.astype(np.float64, copy=False)
    if pa.types.is_uint64(kind):
        _check_unsigned(values[_bits(column.buffers()[0] if column.null_count else None, column)], slot)
    return INTEGER, values.astype(np.int64, copy=False)


def _check_unsigned(values: NDArray[Any], slot: Slot) -> None:
    if values.size and values.max() >= 2**63:
        raise BatchError(
            f"column {slot.name!r}: the integer {values.max()} does not fit in 64 bits with a sign; "
            "use floats or strings"
        )


def _microseconds(
    values: NDArray[np.int64], unit: str, valid: NDArray[np.bool_], slot: Slot
) -> NDArray[np.int64]:
    times, divided = _PER_MICROSECOND[unit]
    limit = (2**63 - 1) // times
    if times > 1 and np.any(np.abs(values[valid]) > limit):
        raise BatchError(f"column {slot.name!r}: a timestamp is outside the years 1 to 9999")
    with np.errstate(over="ignore"):
        return values * times // divided if times * divided > 1 else values


def _refuse(slot: Slot, kind: str) -> NoReturn:
    raise BatchError(
        f"column {slot.name!r} is of type {kind}, which an event cannot have: "
        "use strings, integers, floats, booleans, timestamps, or lists of these"
    )


def _rank_strings(column: pa.Array, slot: Slot, workspace: Workspace) -> Ranked:
    import pyarrow as pa

    _, offsets, data = column.buffers()
    if len(column) == 0 or offsets is None:
        return _plain(np.zeros(len(column), np.uint32))
    width = np.int64 if pa.types.is_large_string(column.type) else np.int32
    starts = np.frombuffer(offsets, width)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else _NO_BITS
    return workspace.string_table(slot).rank(
        text, starts.astype(np.int64, copy=False), _validity(column), column.offset
    )


def _rank_dictionary(
    column: pa.DictionaryArray, slot: Slot, encoder: Encoder, workspace: Workspace, elements: Elements
) -> Ranked:
    """A dictionary's values are ranked once; nulls, of the column or the dictionary, are missing."""
    ranks, texts = _rank_arrow(column.dictionary, slot, encoder, workspace, elements)
    _, indices = _arrow_numbers(column.indices, slot)
    valid = _bits(column.indices.buffers()[0] if column.indices.null_count else None, column.indices)
    indices = np.where(valid, indices, len(ranks))
    return np.append(ranks, np.uint32(0))[indices], np.append(texts, np.uint32(0))[indices]


def _rank_lists(
    column: Any, slot: Slot, encoder: Encoder, workspace: Workspace, elements: Elements
) -> Ranked:
    import pyarrow as pa

    types, kind = pa.types, column.type
    if types.is_fixed_size_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        column = column.cast(pa.large_list(kind.value_type))
    elif not (types.is_list(kind) or types.is_large_list(kind)):
        _refuse(slot, str(kind))
    if types.is_nested(column.type.value_type):
        _refuse(slot, str(kind))
    offsets = column.offsets.to_numpy().astype(np.int64)
    child = column.values.slice(offsets[0], offsets[-1] - offsets[0])
    ranked = _rank_arrow(child, slot, encoder, workspace, elements)
    return _pack(offsets, _validity(column), column.offset, ranked, elements)


def _pack(
    offsets: NDArray[np.int64], validity: NDArray[np.uint8], offset: int, child: Ranked, elements: Elements
) -> Ranked:
    count = len(offsets) - 1
    packed = np.zeros(2 * len(child[0]) + count, np.uint32)
    ranks, texts = np.zeros((2, count), np.uint32)
    used = kernels.pack_lists(offsets, validity, offset, *child, elements.size, packed, ranks, texts)
    elements.append(packed[:used])
    return ranks, texts


def _rank_numpy(column: NDArray[Any], slot: Slot, encoder: Encoder, elements: Elements) -> Ranked:
    if column.ndim != 1:
        raise BatchError(f"column {slot.name!r} has {column.ndim} dimensions; a column has one")
    kind = column.dtype.kind
    masked = np.ma.getmaskarray(column)
    values = np.ma.getdata(column)
    if kind == "b":
        return _rank_booleans(values, ~masked, slot)
    if kind in "OUT":
        objects = [None if gone else value for value, gone in zip(values.tolist(), masked, strict=True)]
        return rank_objects(objects, slot, encoder, elements)
    if kind == "M":
        masked = masked | np.isnat(values)
        unit = np.datetime_data(values.dtype)[0]
        if unit not in _PER_MICROSECOND:
            _refuse(slot, str(values.dtype))
        code, values = TIMESTAMP, _microseconds(values.view(np.int64), unit, ~masked, slot)
    elif kind in "iu":
        _check_unsigned(values[~masked], slot)
        code, values = INTEGER, values.astype(np.int64)
    elif kind == "f" and values.dtype.itemsize <= 8:
        code, values = FLOAT, values.astype(np.float64)
    else:
        _refuse(slot, str(values.dtype))
    ranks = encoder.rank_column(slot, code, np.ascontiguousarray(values))
    return _plain(np.where(masked, np.uint32(0), ranks))


def rank_objects(values: Sequence[Any], slot: Slot, encoder: Encoder, elements: Elements) -> Ranked:
    """Python values, of any types: each is taken as an event would take it."""
    flat: list[Any] = []
    offsets = [0]
    for value in values:
        if isinstance(value, list | tuple):
            flat += map(_plain_object, value)
        elif value is not None:
            flat.append(_plain_object(value))
        offsets.append(len(flat))
    ranked = encoder.rank_objects(slot, flat)
    return _pack(np.array(offsets, np.int64), _NO_BITS, 0, ranked, elements)


def _plain_object(value: Any) -> Any:
    return value if type(value) in _PLAIN else plain_scalar(value)


_PLAIN = frozenset((bool, float))  # what needs no look: the rest may be out of bounds, or of a subclass
