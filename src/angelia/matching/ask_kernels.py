"""The compiled kernel that takes an event as a dictionary, and gives the ids of the filters that it matches.

It does what `Encoder` and `match_one` do, for what most events are: names to strings that are known,
numbers, booleans and timestamps in UTC. For all else it returns None, and the caller goes the longer way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from angelia.matching import capi
from angelia.matching.capi import OVERHEAD
from angelia.matching.jit import at_address, inlined
from angelia.matching.layout import (
    C_CODES,
    C_FLOATS,
    C_IDS,
    C_INTS,
    C_IS_LARGE,
    C_NAMES,
    C_OBJECTS,
    C_STATE,
    C_TOUCHED,
    C_TYPES,
    FOUND,
    H_SLOT_COUNT,
    H_SLOTS,
    IS_BUSY,
    KEY,
    OVERFLOW,
    POSITION,
    SLOT_WORDS,
    T_BOOL,
    T_DATETIME,
    T_DICT,
    T_FLOAT,
    T_INT,
    T_LIST,
    T_NONE,
    T_STR,
    T_TUPLE,
    T_UTC,
    VALUE,
)
from angelia.matching.rank_kernels import rank_of_float, rank_of_integer, rank_of_timestamp
from angelia.matching.walk_kernels import Walk, forget, walk_event, walk_of

__all__ = ["ask"]

Array = Any  # what numba sees has no static type
Object = Any  # the address of a Python object
Integer = Any

_i64_at, _f64_at, _u32_at = at_address(types.int64), at_address(types.float64), at_address(types.uint32)
_words_in = at_address(types.int64, OVERHEAD)
_bytes_in = at_address(types.uint8, OVERHEAD)

ODD = -1
NO_MOMENT = -(1 << 62)
NO_LIMIT = -1


@inlined
def _microseconds(value: Object, utc: Object) -> Integer:
    """The microseconds since 1970 of a `datetime`, or `NO_MOMENT` if it is not in UTC.

    The layout is that of CPython's `datetime.h`: a hash, whether there is a time zone, ten bytes, the zone.
    """
    if _bytes_in(value)[8] == 0 or _words_in(value)[3] != utc:
        return np.int64(NO_MOMENT)
    data = _bytes_in(value)
    year, month = np.int64(data[9]) << 8 | np.int64(data[10]), np.int64(data[11])
    hours, minutes, seconds = np.int64(data[13]), np.int64(data[14]), np.int64(data[15])
    fraction = np.int64(data[16]) << 16 | np.int64(data[17]) << 8 | np.int64(data[18])
    # A year begins in March here, so that a leap day is its last one.
    year -= 1 if month <= 2 else 0
    month += 9 if month <= 2 else -3
    days = year * 365 + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + np.int64(data[12])
    days -= 719469  # from March 1st of the year 0 to 1970, and the day that months begin with
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction


@inlined
def _is_known(types_: Array, cls: Object) -> bool:
    """Whether a value of a type that no filter asks about needs no closer look."""
    return bool(
        cls == types_[T_STR]
        or cls == types_[T_FLOAT]
        or cls == types_[T_INT]
        or cls == types_[T_BOOL]
        or cls == types_[T_NONE]
        or cls == types_[T_DATETIME]
        or cls == types_[T_LIST]
        or cls == types_[T_TUPLE]
    )


@inlined
def _rank_values(context: Array, walk: Walk, touched: Array, event: Object) -> Integer:
    """Note the ranks and texts of the values that filters ask about; how many, or `ODD` after none."""
    words, state, types_ = walk.words, walk.state, _i64_at(context[C_TYPES])
    ints, floats, codes = _i64_at(context[C_INTS]), _f64_at(context[C_FLOATS]), _i64_at(context[C_CODES])
    names, slots, rows = context[C_NAMES], np.int64(words[H_SLOT_COUNT]), np.int64(words[H_SLOTS])
    at = context[C_STATE]
    count, odd = 0, False
    state[POSITION] = 0
    while not odd and capi.dict_next(event, at + 8 * POSITION, at + 8 * KEY, at + 8 * VALUE) != 0:
        key, value = state[KEY], state[VALUE]
        cls = capi.type_of(value)[0]
        if capi.type_of(key)[0] != types_[T_STR]:
            odd = True
            continue
        number = capi.dict_get(names, key)
        if number == 0 or cls == types_[T_NONE]:
            odd = not _is_known(types_, cls)
            continue
        slot = capi.int_value(number)
        row = rows + slot * SLOT_WORDS
        rank: Integer = np.int64(0)
        texts: Integer = np.int64(0)
        if cls == types_[T_FLOAT]:
            rank = rank_of_float(words, floats, row, capi.float_value(value))
        elif cls == types_[T_STR] or cls == types_[T_BOOL]:
            code = capi.dict_get(codes[slot], value)
            if code == 0:
                odd = True
                continue
            both = capi.int_value(code)
            rank, texts = both & 0xFFFFFFFF, both >> 32
        elif cls == types_[T_INT]:
            integer = capi.int_value_of(value, at + 8 * OVERFLOW)
            odd = _u32_at(at + 8 * OVERFLOW)[0] != 0
            rank = rank_of_integer(words, ints, row, integer)
        elif cls == types_[T_DATETIME]:
            moment = _microseconds(value, types_[T_UTC])
            odd = moment == NO_MOMENT
            rank = rank_of_timestamp(words, ints, row, moment)
        else:
            odd = True
            continue
        walk.values[slot] = rank
        walk.values[slots + slot] = texts
        touched[count] = slot
        count += 1
    if odd:
        forget(walk, touched, count)
        return np.int64(ODD)
    return np.int64(count)


@inlined
def _list_of(context: Array, walk: Walk, found: int) -> Object:
    """The ids of the filters that were found, as a Python list; 0 if there is no memory for it."""
    result = capi.list_new(found)
    if result == 0:
        return result
    ids, objects = _i64_at(context[C_IDS]), _i64_at(context[C_OBJECTS])
    items = _i64_at(_words_in(result)[1])  # after the size, as in CPython's `listobject.h`
    for i in range(found):
        owner = np.int64(walk.owners[i])
        if context[C_OBJECTS] == 0:
            items[i] = capi.new_int(ids[owner])
            if items[i] == 0:
                capi.drop_reference(result)
                return np.int64(0)
        else:
            capi.new_reference(objects[owner])
            items[i] = objects[owner]
    return result


@capi.method
def ask(bound: Object, event: Object) -> Object:
    """The ids of the filters that an event matches, or None if it is not for this kernel to say.

    Bound is a tuple of the address of a context (see `layout`), what keeps that alive, and None.
    """
    context = _i64_at(capi.int_value(capi.tuple_item(bound, 0)))
    nothing = capi.tuple_item(bound, 2)
    state, touched = _i64_at(context[C_STATE]), _u32_at(context[C_TOUCHED])
    if state[IS_BUSY] != 0 or capi.type_of(event)[0] != _i64_at(context[C_TYPES])[T_DICT]:
        capi.new_reference(nothing)
        return nothing
    # To make a list may start the garbage collector, which may let other threads run.
    state[IS_BUSY] = 1
    walk = walk_of(context, NO_LIMIT, False)
    count = _rank_values(context, walk, touched, event)
    if count != ODD:
        if context[C_IS_LARGE] != 0:
            thread = capi.unlock()
            walk_event(walk, touched, count)
            capi.lock_back(thread)
        else:
            walk_event(walk, touched, count)
    if count == ODD or state[FOUND] > walk.room:
        capi.new_reference(nothing)
        result = nothing
    else:
        result = _list_of(context, walk, state[FOUND])
    state[IS_BUSY] = 0
    return result
