"""Micro-batches: a list of events as dictionaries, such as a network delivers them.

A batch is taken apart by attribute, so that what is done for each value (take it out, look at its type,
look up its code, pack it) is a loop in the interpreter's own C code. A column of strings and booleans, or
of numbers of one type, is packed as it is, and one kernel ranks all of these; columns that mix types, or
lack some numbers, are ranked as columns of objects.

Attributes that no filter asks about are not looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from types import NoneType
from typing import Any

import numpy as np

from angelia.matching import rank_kernels as kernels
from angelia.matching.columns import Elements, RankedBatch, rank_objects, slot_flags
from angelia.matching.encode import Encoder
from angelia.matching.layout import CODED, FLOAT, INTEGER, TIMESTAMP
from angelia.matching.ranking import microseconds
from angelia.matching.slots import Slot

__all__ = ["rank_events"]

Values = Mapping[str, Any]

_CODED = frozenset((str, bool, NoneType))
_FORMATS = {CODED: "q", FLOAT: "d", INTEGER: "q", TIMESTAMP: "q"}
_NUMBERS = {float: FLOAT, int: INTEGER, datetime: TIMESTAMP}
FEW_SLOTS = 8  # that no harm is done by asking each event for, besides twice those that the first one has


def rank_events(events: Sequence[Values], encoder: Encoder, slots: Sequence[Slot], pitch: int) -> RankedBatch:
    """The ranks, texts, places and flags of flat values as `match_blocks` takes them, and elements.

    One of the errors in `values.ODD` if an event needs a closer look.
    """
    if encoder.heads and any(_is_nested(event, encoder.heads) for event in events):
        raise ValueError("an attribute is a mapping, to be flattened")
    packed: list[tuple[Slot, int, Sequence[Any]]] = []
    mixed: list[tuple[Slot, Sequence[Any]]] = []
    for name, values in _columns(events, encoder):
        slot, kinds = encoder.slots[name], set(map(type, values))
        if kinds <= _CODED:
            packed.append((slot, CODED, list(map(encoder.codes[name].__getitem__, values))))
        elif len(kinds) == 1 and (code := _NUMBERS.get(next(iter(kinds)))) is not None:
            packed.append((slot, code, list(map(microseconds, values)) if code == TIMESTAMP else values))
        else:
            mixed.append((slot, values))
    ranks, texts = np.zeros((2, (len(packed) + len(mixed) + 1) * pitch), np.uint32)
    places, flags = np.zeros(len(slots), np.uint32), np.zeros(len(slots), np.uint8)
    elements = Elements()
    _rank_packed(packed, len(events), pitch, encoder, ranks, texts)
    for i, (slot, _, _) in enumerate(packed, 1):
        places[slot.index], flags[slot.index] = i, slot_flags(slot, False)
    for i, (slot, values) in enumerate(mixed, len(packed) + 1):
        lists, at = elements.size, slice(i * pitch, i * pitch + len(events))
        ranks[at], texts[at] = rank_objects(values, slot, encoder, elements)
        places[slot.index], flags[slot.index] = i, slot_flags(slot, elements.size > lists)
    return ranks, texts, places, flags, elements.array()


def _is_nested(event: Values, heads: frozenset[str]) -> bool:
    return not heads.isdisjoint(event) and any(isinstance(event.get(head), Mapping) for head in heads)


def _columns(events: Sequence[Values], encoder: Encoder) -> list[tuple[str, Sequence[Any]]]:
    """The values of the attributes that filters ask about, None where an event has none."""
    slots, first = encoder.slots, events[0]
    names = [name for name in first if name in slots]
    if len(slots) > 2 * len(names) + FEW_SLOTS:
        return _scattered(events, slots)
    try:
        columns = list(zip(names, zip(*map(_getter(tuple(names)), events), strict=True), strict=True))
    except KeyError:
        return [(name, [event.get(name) for event in events]) for name in slots]
    others = [name for name in slots if name not in first]
    rest = ((name, [event.get(name) for event in events]) for name in others)
    return columns + [(name, values) for name, values in rest if any(value is not None for value in values)]


def _scattered(events: Sequence[Values], slots: Mapping[str, Slot]) -> list[tuple[str, Sequence[Any]]]:
    """The same where events have few of very many attributes."""
    found: dict[str, list[Any]] = {}
    for i, event in enumerate(events):
        for name, value in event.items():
            if name in slots:
                column = found.get(name)
                if column is None:
                    column = found[name] = [None] * len(events)
                column[i] = value
    return list(found.items())


@lru_cache(maxsize=256)
def _getter(names: tuple[str, ...]) -> Callable[[Values], Sequence[Any]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: tuple(values[name] for name in names)


@lru_cache(maxsize=4096)
def _packer(count: int, code: int) -> Callable[..., None]:
    return struct.Struct(f"={count}{_FORMATS[code]}").pack_into


def _rank_packed(
    columns: list[tuple[Slot, int, Sequence[Any]]], count: int, pitch: int, encoder: Encoder,
    ranks: Any, texts: Any,
) -> None:  # fmt: skip
    """Rank columns whose values are of one type."""
    buffer = bytearray(8 * count * len(columns))
    plan = np.empty(2 * len(columns), np.uint32)
    for i, (slot, code, values) in enumerate(columns):
        _packer(count, code)(buffer, 8 * count * i, *values)
        plan[2 * i], plan[2 * i + 1] = slot.index, code
    tables, coded = encoder.tables, np.frombuffer(buffer, np.int64)
    kernels.rank_packed(tables.words, tables.ints, tables.floats, plan, coded, count, pitch, ranks, texts)
