"""The compiled kernels that turn columns of values into ranks (see `layout`), and strings into texts too.

Functions that kernels share take pointers instead of arrays: to pass an array from function to
function counts its references, which costs more than most of these functions do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from angelia.matching.jit import array, eight_bytes, inlined, kernel, pointer, read_only, to_float
from angelia.matching.layout import (
    CODED,
    EXACT_FLOAT,
    EXACT_INT,
    FLOAT,
    H_CELLS,
    H_FLAGS,
    H_SLOTS,
    INTEGER,
    MISSING,
    S_CELL_COUNT,
    S_CELL_SCALE,
    S_CELLS,
    S_FLOATS,
    S_INT_COUNT,
    S_INTS,
    S_NAN,
    S_NUMBER,
    S_NUMBER_COUNT,
    S_TIME,
    S_TIME_COUNT,
    S_TIMES,
    SEVERAL,
    SLOT_WORDS,
)

__all__ = [
    "ENTRY_WORDS",
    "insert_strings",
    "pack_lists",
    "rank_floats",
    "rank_integers",
    "rank_of_coded",
    "rank_of_float",
    "rank_of_integer",
    "rank_of_timestamp",
    "rank_packed",
    "rank_strings",
    "rank_timestamps",
]

Array = Any  # what numba sees has no static type

_U32, _U32R = array(types.uint32), read_only(types.uint32)
_U8, _U8R = array(types.uint8), read_only(types.uint8)
_I64, _I64R = array(types.int64), read_only(types.int64)
_F64R = read_only(types.float64)

ENTRY_WORDS = 5  # of a string in a table: hash, start and length in the arena, rank, texts
_MIX = 0x9E3779B97F4A7C15


# ---------------------------------------------------------------- numbers and timestamps


@inlined
def _has_flag(words: Array, bound: int, flag: int) -> bool:
    """Whether a bound of numbers has a flag."""
    flags = np.int64(words[np.int64(words[H_FLAGS]) + (bound >> 4)])
    return bool(flags >> (2 * (bound & 15)) & flag)


@inlined
def _places_up_to(bounds: Array, start: int, count: int, value: Any) -> int:
    """The end of the sorted `bounds`, `count` from `start` on, that are at most `value`."""
    low = start
    while count > 0:  # written so that it compiles to no branch: which way it goes is chance
        half = count >> 1
        above = bounds[low + half] <= value
        low = low + half + 1 if above else low
        count = count - half - 1 if above else half
    return low


@inlined
def rank_of_float(words: Array, floats: Array, row: int, value: float) -> int:
    """The rank of a float."""
    if value != value:
        return np.int64(words[row + S_NAN])
    start = np.int64(words[row + S_FLOATS])
    if words[row + S_NUMBER_COUNT] == 0:
        return np.int64(words[row + S_NUMBER])
    # The cell is found as it was for the bounds; what lies before them, or behind, counts to the nearest.
    cells, last = np.int64(words[H_CELLS]) + np.int64(words[row + S_CELLS]), words[row + S_CELL_COUNT] - 1
    position = (value - floats[start]) * floats[words[row + S_CELL_SCALE]]
    if position >= last:
        cells += np.int64(last)
    elif position >= 1:
        cells += np.int64(position)
    low, end = start + np.int64(words[cells]), start + np.int64(words[cells + 1])
    low = _places_up_to(floats, low, end - low, value)
    zone = np.int64(words[row + S_NUMBER])
    if low > start and floats[low - 1] == value and _has_flag(words, low - 1, EXACT_FLOAT):
        return zone + 2 * (low - start) - 1
    return zone + 2 * (low - start)


@inlined
def rank_of_integer(words: Array, ints: Array, row: int, value: int) -> int:
    """The rank of an integer."""
    start = np.int64(words[row + S_INTS])
    low = _places_up_to(ints, start, np.int64(words[row + S_INT_COUNT]), value)
    zone = np.int64(words[row + S_NUMBER])
    bound = np.int64(words[row + S_FLOATS]) + low - start - 1
    if low > start and ints[low - 1] == value and _has_flag(words, bound, EXACT_INT):
        return zone + 2 * (low - start) - 1
    return zone + 2 * (low - start)


@inlined
def rank_of_timestamp(words: Array, ints: Array, row: int, value: int) -> int:
    """The rank of a timestamp in microseconds."""
    start = np.int64(words[row + S_TIMES])
    low = _places_up_to(ints, start, np.int64(words[row + S_TIME_COUNT]), value)
    zone = np.int64(words[row + S_TIME])
    if low > start and ints[low - 1] == value:
        return zone + 2 * (low - start) - 1
    return zone + 2 * (low - start)


@inlined
def _is_valid(nullable: bool, validity: Array, offset: int, i: int) -> bool:
    """Whether Arrow's bitmap, if there is one, has a value at row `i`."""
    return not nullable or bool(validity[(offset + i) >> 3] >> ((offset + i) & 7) & 1)


@kernel(types.void, _U32R, _F64R, types.int64, _F64R, _U8R, types.int64, _U32)
def rank_floats(
    words: Array, floats: Array, slot: int, values: Array, validity: Array, offset: int, out: Array
) -> None:
    """The ranks of a column of floats."""
    table, bounds, bits = pointer(words), pointer(floats), pointer(validity)
    row = np.int64(words[H_SLOTS]) + slot * SLOT_WORDS
    for i in range(values.size):
        if _is_valid(validity.size > 0, bits, offset, i):
            out[i] = rank_of_float(table, bounds, row, values[i])
        else:
            out[i] = MISSING


@kernel(types.void, _U32R, _I64R, types.int64, _I64R, _U8R, types.int64, _U32)
def rank_integers(
    words: Array, ints: Array, slot: int, values: Array, validity: Array, offset: int, out: Array
) -> None:
    """The ranks of a column of integers."""
    table, bounds, bits = pointer(words), pointer(ints), pointer(validity)
    row = np.int64(words[H_SLOTS]) + slot * SLOT_WORDS
    for i in range(values.size):
        if _is_valid(validity.size > 0, bits, offset, i):
            out[i] = rank_of_integer(table, bounds, row, values[i])
        else:
            out[i] = MISSING


@kernel(types.void, _U32R, _I64R, types.int64, _I64R, _U8R, types.int64, _U32)
def rank_timestamps(
    words: Array, ints: Array, slot: int, values: Array, validity: Array, offset: int, out: Array
) -> None:
    """The ranks of a column of microseconds since 1970."""
    table, bounds, bits = pointer(words), pointer(ints), pointer(validity)
    row = np.int64(words[H_SLOTS]) + slot * SLOT_WORDS
    for i in range(values.size):
        if _is_valid(validity.size > 0, bits, offset, i):
            out[i] = rank_of_timestamp(table, bounds, row, values[i])
        else:
            out[i] = MISSING


@inlined
def rank_of_coded(words: Array, ints: Array, floats: Array, row: int, code: int, value: int) -> int:
    """The rank of a value as single events have it; its texts are in the upper half, if it has a code."""
    if code == CODED:
        return value & 0xFFFFFFFF
    if code == FLOAT:
        return rank_of_float(words, floats, row, to_float(value))
    if code == INTEGER:
        return rank_of_integer(words, ints, row, value)
    return rank_of_timestamp(words, ints, row, value)


@kernel(types.void, _U32R, _I64R, _F64R, _U32R, _I64R, types.int64, types.int64, _U32, _U32)
def rank_packed(
    words: Array, ints: Array, floats: Array, plan: Array, coded: Array, count: int, pitch: int,
    ranks: Array, texts: Array,
) -> None:  # fmt: skip
    """The ranks and texts of several columns of one type each; `plan` has their slots and types.

    They go to the columns from the second on: the first is that of what is missing.
    """
    table, whole, real = pointer(words), pointer(ints), pointer(floats)
    for i in range(plan.size // 2):
        row = np.int64(words[H_SLOTS]) + np.int64(plan[2 * i]) * SLOT_WORDS
        code = np.int64(plan[2 * i + 1])
        for j in range(count):
            value = coded[i * count + j]
            ranks[(i + 1) * pitch + j] = rank_of_coded(table, whole, real, row, code, value)
            if code == CODED:
                texts[(i + 1) * pitch + j] = value >> 32


# ---------------------------------------------------------------- strings and lists


@inlined
def _hash(data: Array, start: int, end: int, seed: int) -> int:
    """A hash of some bytes that is seeded, because strings come from strangers."""
    h = np.uint64(seed) ^ np.uint64(end - start)
    while end - start >= 8:
        h = (h ^ eight_bytes(data, start)) * np.uint64(_MIX)
        h ^= h >> np.uint64(29)
        start += 8
    rest = np.uint64(0)
    while start < end:
        rest = (rest << np.uint64(8)) | np.uint64(data[start])
        start += 1
    h = (h ^ rest) * np.uint64(_MIX)
    return np.uint32(h >> np.uint64(32))


@inlined
def _same_bytes(left: Array, i: int, right: Array, j: int, length: int) -> bool:
    while length >= 8:
        if eight_bytes(left, i) != eight_bytes(right, j):
            return False
        i += 8
        j += 8
        length -= 8
    while length > 0:
        if left[i] != right[j]:
            return False
        i += 1
        j += 1
        length -= 1
    return True


@kernel(types.void, _U8R, _I64R, _U32R, _U32R, _U32, _U32, _U8, types.int64, types.int64, types.uint64)
def insert_strings(
    data: Array,
    offsets: Array,
    ranks: Array,
    texts: Array,
    heads: Array,
    entries: Array,
    arena: Array,
    count: int,
    used: int,
    seed: int,
) -> None:
    """Put strings that it lacks into a table that has room for them; it has `count`, of `used` bytes."""
    mask, text = heads.size - 1, pointer(data)
    for i in range(ranks.size):
        length = offsets[i + 1] - offsets[i]
        h = _hash(text, offsets[i], offsets[i + 1], seed)
        place = np.int64(h) & mask
        while heads[place] != 0:
            place = (place + 1) & mask
        arena[used : used + length] = data[offsets[i] : offsets[i + 1]]
        at = count * ENTRY_WORDS
        entries[at], entries[at + 1], entries[at + 2] = h, used, length
        entries[at + 3], entries[at + 4] = ranks[i], texts[i]
        used += length
        count += 1
        heads[place] = count


@kernel(
    types.int64, _U8R, _I64R, _U8R, types.int64, _U32R, _U32R, _U8R, types.uint64, types.int64, _U32, _U32,
    _I64,
)  # fmt: skip
def rank_strings(
    data: Array,
    offsets: Array,
    validity: Array,
    offset: int,
    heads: Array,
    entries: Array,
    arena: Array,
    seed: int,
    unknown: int,
    ranks: Array,
    texts: Array,
    missed: Array,
) -> int:
    """The ranks and texts of a column of strings, by a table of them.

    A string that is not in the table has the rank `unknown`; if there is no such (-1), its row goes to
    `missed`. Returns how many did.
    """
    mask, misses = heads.size - 1, 0
    text, known, bits = pointer(data), pointer(arena), pointer(validity)
    for i in range(offsets.size - 1):
        if not _is_valid(validity.size > 0, bits, offset, i):
            ranks[i] = MISSING
            continue
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        h = _hash(text, start, start + length, seed)
        place = np.int64(h) & mask
        while True:
            entry = np.int64(heads[place])
            if entry == 0:
                if unknown < 0:
                    missed[misses] = i
                    misses += 1
                else:
                    ranks[i] = unknown
                break
            at = (entry - 1) * ENTRY_WORDS
            if (
                entries[at] == h
                and entries[at + 2] == length
                and _same_bytes(text, start, known, np.int64(entries[at + 1]), length)
            ):
                ranks[i] = entries[at + 3]
                texts[i] = entries[at + 4]
                break
            place = (place + 1) & mask
    return misses


@kernel(types.int64, _I64R, _U8R, types.int64, _U32R, _U32R, types.int64, _U32, _U32, _U32)
def pack_lists(
    offsets: Array,
    validity: Array,
    offset: int,
    child_ranks: Array,
    child_texts: Array,
    base: int,
    elements: Array,
    ranks: Array,
    texts: Array,
) -> int:
    """The ranks of a column of lists whose elements have been ranked; how many `elements` it takes.

    A list of one element is that element. The place of a longer one, with `base` added, is its texts.
    """
    used, bits = 0, pointer(validity)
    for i in range(offsets.size - 1):
        first, last = offsets[i] - offsets[0], offsets[i + 1] - offsets[0]
        if not _is_valid(validity.size > 0, bits, offset, i) or first == last:
            ranks[i] = MISSING
        elif last - first == 1:
            ranks[i], texts[i] = child_ranks[first], child_texts[first]
        else:
            ranks[i], texts[i] = SEVERAL, base + used
            elements[used] = last - first
            used += 1
            for j in range(first, last):
                elements[used], elements[used + 1] = child_ranks[j], child_texts[j]
                used += 2
    return used
