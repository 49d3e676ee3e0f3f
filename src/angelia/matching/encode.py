"""Encoding: from the values of events to ranks and texts.

An `Encoder` belongs to one index. It keeps what it learnt about strings: a dictionary a slot, from the
string to its *code* (its rank, and above that where its texts begin in `items`). A batch looks its
strings up in hash tables that kernels can read; these belong to a thread's `Workspace`, as do the
other arrays that a kernel writes.

What is learnt is limited: with `MAX_LEARNT` strings, or when event types change, an index starts over
with a new encoder. The old one is never changed then, so a thread that still uses it is right.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import getitem, itemgetter
from threading import Lock
from types import NoneType
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from angelia.event import Scalar
from angelia.matching import rank_kernels as kernels
from angelia.matching.build import Tables
from angelia.matching.layout import (
    C_ALIVE,
    C_CODED,
    C_CODES,
    C_ELEMENTS,
    C_FLOATS,
    C_IDS,
    C_INTS,
    C_IS_LARGE,
    C_ITEMS,
    C_JOINED,
    C_LINKED,
    C_NAMES,
    C_OBJECTS,
    C_OUT,
    C_OWNERS,
    C_ROOM,
    C_STATE,
    C_TOUCHED,
    C_TYPES,
    C_VALUES,
    C_WORDS,
    CODED,
    CONTEXT_WORDS,
    FLOAT,
    H_BOUND_COUNT,
    H_LINK_COUNT,
    H_NODE_COUNT,
    H_SHARED,
    H_TEXT_COUNT,
    INTEGER,
    LISTED,
    STATE_WORDS,
    TIMESTAMP,
)
from angelia.matching.ranking import microseconds
from angelia.matching.slots import Slot

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["Encoder", "Plan", "StringTable", "Workspace"]

MAX_LEARNT = 1 << 17
MAX_PLANS = 512
SLICE = 4096  # strings forgotten between two pauses

_SEED = int.from_bytes(os.urandom(8), "little")
_NONE = np.zeros(1, np.uint8)[:0]  # "no validity bitmap"
NO_ELEMENTS = np.zeros(1, np.uint32)
LARGE = 1 << 16  # nodes from which on a walk is worth that other threads run meanwhile
ROOM = 256  # matches of one event that there is room for at first

# What `ask` knows: the order is that of `layout`.
_TYPES = np.array([*map(id, (dict, str, float, int, bool, NoneType, datetime, list, tuple, UTC))], np.int64)

_CODES = {
    str: CODED,
    bool: CODED,
    float: FLOAT,
    int: INTEGER,
    datetime: TIMESTAMP,
    tuple: LISTED,
    list: LISTED,
}
_FORMATS = {CODED: "q", FLOAT: "d", INTEGER: "q", TIMESTAMP: "q", LISTED: "q"}


class _Codes(dict[Any, int]):
    """The codes of the strings and booleans of a slot; an unknown string is learnt when it is asked for.

    The encoder has these, and is let go of when its index is: not by the garbage collector, some time later.
    """

    __slots__ = ("_encoder", "_slot")

    def __init__(self, encoder: Encoder, slot: Slot) -> None:
        self._encoder, self._slot = ref(encoder), slot
        self[None] = 0  # which is missing

    def __missing__(self, value: Any) -> int:
        encoder = self._encoder()
        assert encoder is not None  # who looks up a code has the encoder
        return encoder.learn(self._slot, value)


class Plan:
    """How events with certain names and types of values are encoded: what to take, and how to pack it."""

    __slots__ = ("coded", "codes", "is_simple", "listed", "numbers", "pack", "slots", "table", "times")

    def __init__(self, encoder: Encoder, names: Sequence[str], types: Sequence[type]) -> None:
        groups: dict[int, list[str]] = {code: [] for code in range(5)}
        for name, cls in zip(names, types, strict=True):
            if cls is not NoneType:
                code = _CODES[cls]
                if name in encoder.slots:
                    groups[code].append(name)
        self.coded, self.numbers = _getter(groups[CODED]), _getter(groups[FLOAT] + groups[INTEGER])
        self.times, self.listed = _getter(groups[TIMESTAMP]), _getter(groups[LISTED])
        self.is_simple = not (groups[TIMESTAMP] or groups[LISTED])
        self.codes = [encoder.codes[name] for name in groups[CODED]]
        self.slots = [encoder.slots[name] for name in groups[LISTED]]
        table, form = [], "="
        for code in (CODED, FLOAT, INTEGER, TIMESTAMP, LISTED):
            for name in groups[code]:
                table += [encoder.slots[name].index, code]
                form += _FORMATS[code]
        self.table = np.array(table, np.uint32)
        self.pack = struct.Struct(form).pack_into


def _heads(name: str) -> list[str]:
    """What `a.b.c` may be nested in: `a` and `a.b`."""
    return [name[:i] for i, character in enumerate(name) if character == "."]


def _getter(names: list[str]) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
    """What takes the values of some names out of a dictionary."""
    if not names:
        return lambda values: ()
    if len(names) == 1:
        (name,) = names
        return lambda values: (values[name],)
    return itemgetter(*names)


class Encoder:
    """What one index knows about values."""

    def __init__(self, tables: Tables, registry: TypeRegistry | None) -> None:
        self.slots = {slot.name: slot for slot in tables.slots}
        self.heads = frozenset(head for name in self.slots for head in _heads(name))
        self.codes = {name: _Codes(self, slot) for name, slot in self.slots.items()}
        # For kernels: the number of a slot by its name, and the dictionary of its codes by number.
        self.names = {name: slot.index for name, slot in self.slots.items()}
        self.code_tables = np.zeros(len(self.slots) + 1, np.int64)
        for name, codes in self.codes.items():
            self.code_tables[self.slots[name].index] = id(codes)
        self.items = np.zeros(1024, np.uint32)  # texts: a count and numbers; at 0 none
        self.items_at = np.array([self.items.ctypes.data])
        self._outgrown: list[NDArray[np.uint32]] = []
        self.plans: dict[tuple[Any, ...], Plan] = {}
        self._used = 1
        self._learnt = 0
        self.is_full = False
        self._lock = Lock()
        self.tables, self._registry = tables, registry
        self._watched = registry if any(slot.texts.has_types for slot in tables.slots) else None
        self._version = registry.version if registry is not None else 0

    @property
    def is_watching(self) -> bool:
        """Whether what it knows changes with the event types."""
        return self._watched is not None

    def is_outdated(self) -> bool:
        """Whether it is time for a new encoder."""
        return self.is_full or (self._watched is not None and self._watched.version != self._version)

    def dissolve(self, pause: Callable[[], None]) -> None:
        """Let go of what was learnt, in slices. The encoder is of no use any more."""
        for codes in self.codes.values():
            while codes:
                for _ in range(min(SLICE, len(codes))):
                    codes.popitem()
                pause()

    # ---------------------------------------------------------------- single values

    def learn(self, slot: Slot, value: Any) -> int:
        """The code of a string or boolean that is not known yet."""
        with self._lock:
            return self._learn(slot, value)

    def _learn(self, slot: Slot, value: Any) -> int:
        if value is True or value is False:
            code = slot.rank_of_bool(value)
        else:
            value.encode()  # a lone surrogate is no valid string: the caller says so
            code = slot.rank_of_string(value)
            if slot.texts:
                code |= self._keep(slot.texts.holding(value, self._registry)) << 32
            self._learnt += 1 + len(value) // 64
            self.is_full = self._learnt > MAX_LEARNT
        self.codes[slot.name][value] = code
        return code

    def _keep(self, texts: list[int]) -> int:
        """Note texts among the items; where."""
        if not texts:
            return 0
        place, end = self._used, self._used + 1 + len(texts)
        if end > len(self.items):
            # Codes that are in use keep their meaning: the longer array begins with the shorter one, which
            # is kept: another thread may be reading it.
            longer = np.zeros(2 * end, np.uint32)
            longer[: self._used] = self.items[: self._used]
            self._outgrown.append(self.items)
            self.items = longer
            self.items_at[0] = longer.ctypes.data
        self.items[place] = len(texts)
        self.items[place + 1 : end] = texts
        self._used = end
        self._learnt += len(texts) // 16
        return place

    def plan(self, key: tuple[Any, ...]) -> Plan:
        """A new plan for names followed by types; a `KeyError` if values of a type need a closer look."""
        if len(self.plans) >= MAX_PLANS:
            self.plans.clear()
        half = len(key) // 2
        plan = self.plans[key] = Plan(self, key[:half], key[half:])
        return plan

    def pack_slowly(self, plan: Plan, values: Mapping[str, Any], buffer: bytearray) -> NDArray[np.uint32]:
        """Put the coded values of an event with timestamps or lists into a buffer; the lists' elements."""
        elements, places = self._pack_lists(plan, plan.listed(values))
        plan.pack(
            buffer, 0, *map(getitem, plan.codes, plan.coded(values)), *plan.numbers(values),
            *map(microseconds, plan.times(values)), *places,
        )  # fmt: skip
        return elements

    def _pack_lists(
        self, plan: Plan, lists: Iterable[Sequence[Scalar]]
    ) -> tuple[NDArray[np.uint32], list[int]]:
        elements, places = [0], []
        for slot, values in zip(plan.slots, lists, strict=True):
            ranks, texts = self.rank_objects(slot, values)
            places.append(len(elements))
            elements.append(len(values))
            elements += np.stack((ranks, texts), axis=1).ravel().tolist()
        return np.array(elements, np.uint32), places

    # ---------------------------------------------------------------- several values

    def rank_objects(
        self, slot: Slot, values: Sequence[Any]
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The ranks and texts of Python scalars; None has the rank of a missing value."""
        ranks, texts = np.zeros(len(values), np.uint32), np.zeros(len(values), np.uint32)
        codes = self.codes[slot.name]
        by_type: dict[type, list[int]] = {float: [], int: [], datetime: []}
        for i, value in enumerate(values):
            if type(value) in by_type:
                by_type[type(value)].append(i)
            elif value is not None:
                code = codes[value]
                ranks[i], texts[i] = code & 0xFFFFFFFF, code >> 32
        for cls, places in by_type.items():
            if places:
                of_type: list[Any] = [values[i] for i in places]
                if cls is datetime:
                    of_type = list(map(microseconds, of_type))
                column = np.array(of_type, np.float64 if cls is float else np.int64)
                ranks[places] = self.rank_column(slot, _CODES[cls], column)
        return ranks, texts

    def rank_column(
        self,
        slot: Slot,
        code: int,
        values: NDArray[Any],
        validity: NDArray[np.uint8] = _NONE,
        offset: int = 0,
    ) -> NDArray[np.uint32]:
        """The ranks of numbers or timestamps, with Arrow's validity bitmap."""
        out = np.empty(len(values), np.uint32)
        tables = self.tables
        if code == FLOAT:
            kernels.rank_floats(tables.words, tables.floats, slot.index, values, validity, offset, out)
        elif code == INTEGER:
            kernels.rank_integers(tables.words, tables.ints, slot.index, values, validity, offset, out)
        else:
            kernels.rank_timestamps(tables.words, tables.ints, slot.index, values, validity, offset, out)
        return out


class StringTable:
    """A hash table of strings, in UTF-8, with their codes: what an encoder knows, for kernels."""

    def __init__(self, encoder: Encoder, slot: Slot) -> None:
        self._encoder, self._slot = encoder, slot
        # Where all strings but the bounds are alike, the bounds are all there is to know.
        self._unknown = -1 if slot.orders_strings or slot.texts else slot.unknown
        self._heads = np.zeros(64, np.uint32)
        self._entries = np.zeros(0, np.uint32)
        self._arena = np.zeros(0, np.uint8)
        self._count = self._used = 0
        if self._unknown >= 0:
            self._insert(slot.strings)

    def _insert(self, strings: Sequence[str]) -> None:
        codes = self._encoder.codes[self._slot.name]
        found = np.array([codes[string] for string in strings], np.int64)
        encoded = [string.encode() for string in strings]
        data = np.frombuffer(b"".join(encoded), np.uint8)
        offsets = np.concatenate(([0], np.cumsum([len(each) for each in encoded]))).astype(np.int64)
        self._reserve(len(strings), len(data))
        kernels.insert_strings(
            data, offsets, (found & 0xFFFFFFFF).astype(np.uint32), (found >> 32).astype(np.uint32),
            self._heads, self._entries, self._arena, self._count, self._used, _SEED,
        )  # fmt: skip
        self._count += len(strings)
        self._used += len(data)

    def _reserve(self, strings: int, size: int) -> None:
        if self._used + size > len(self._arena):
            self._arena = np.resize(self._arena, 2 * (self._used + size))
        count = self._count + strings
        if count * kernels.ENTRY_WORDS > len(self._entries):
            self._entries = np.resize(self._entries, 2 * count * kernels.ENTRY_WORDS)
        if 2 * count > len(self._heads):
            self._heads = np.zeros(1 << (4 * count).bit_length(), np.uint32)
            mask = len(self._heads) - 1
            for entry in range(self._count):
                place = int(self._entries[entry * kernels.ENTRY_WORDS]) & mask
                while self._heads[place]:
                    place = (place + 1) & mask
                self._heads[place] = entry + 1

    def rank(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], validity: NDArray[np.uint8], offset: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The ranks and texts of a column of strings."""
        count = len(offsets) - 1
        ranks, texts = np.empty(count, np.uint32), np.zeros(count, np.uint32)
        missed = np.empty(count if self._unknown < 0 else 0, np.int64)

        def lookup() -> int:
            return kernels.rank_strings(
                data, offsets, validity, offset, self._heads, self._entries, self._arena, _SEED,
                self._unknown, ranks, texts, missed,
            )  # fmt: skip

        misses = lookup()
        if misses:
            new = {bytes(data[offsets[i] : offsets[i + 1]]) for i in missed[:misses].tolist()}
            self._insert([each.decode() for each in new])
            lookup()
        return ranks, texts


class Workspace:
    """The arrays that kernels write, for one thread at a time."""

    __slots__ = ("_arrays", "buffer", "context", "encoder", "out", "row_of", "strings")

    def __init__(
        self,
        encoder: Encoder,
        ids: NDArray[np.int64],
        objects: NDArray[Any] | None,
        alive: NDArray[np.uint8],
        linked: NDArray[np.uint8],
        room: int = ROOM,
    ) -> None:
        """For a snapshot with these arrays; `objects` are its ids if they are no integers."""
        tables = encoder.tables
        words, slots = tables.words, len(tables.slots)
        self.encoder = encoder
        self.strings: dict[str, StringTable] = {}
        # For one event: its values as they are packed, then as ranks and texts.
        self.buffer = bytearray(8 * (slots + 1))
        self.context = np.zeros(CONTEXT_WORDS, np.int64)
        self._arrays: dict[int, NDArray[Any]] = {}
        joined = 1 + max(int(words[H_SHARED]), int(words[H_LINK_COUNT]))
        arrays: dict[int, NDArray[Any]] = {
            C_WORDS: words,
            C_INTS: tables.ints,
            C_FLOATS: tables.floats,
            C_IDS: ids,
            C_ALIVE: alive,
            C_LINKED: linked,
            C_ITEMS: encoder.items_at,
            C_ELEMENTS: NO_ELEMENTS,
            C_CODED: np.frombuffer(self.buffer, np.int64),
            C_VALUES: np.zeros(2 * slots + 1, np.uint32),
            C_TOUCHED: np.zeros(slots + 1, np.uint32),
            C_JOINED: np.zeros(joined, np.uint64),
            C_STATE: np.zeros(STATE_WORDS, np.int64),
            C_CODES: encoder.code_tables,
            C_TYPES: _TYPES,
        }
        for place, used in arrays.items():
            self._use(place, used)
        if objects is not None:
            self._use(C_OBJECTS, objects)
        self.context[C_NAMES] = id(encoder.names)
        self.context[C_IS_LARGE] = words[H_NODE_COUNT] > LARGE
        self.reserve(room)
        # For batches: which row of bits belongs to a bound or text.
        self.row_of = np.zeros(int(words[H_BOUND_COUNT]) + int(words[H_TEXT_COUNT]), np.uint32)

    def _use(self, place: int, used: NDArray[Any]) -> None:
        self._arrays[place] = used  # which keeps it alive
        self.context[place] = used.ctypes.data

    def reserve(self, count: int) -> None:
        """Make room for what one event matches."""
        self.out = np.empty(count, np.int64)
        self._use(C_OUT, self.out)
        self._use(C_OWNERS, np.empty(count, np.uint32))
        self.context[C_ROOM] = count

    def use_elements(self, elements: NDArray[np.uint32]) -> None:
        """Have match_one work with the elements of an event's lists."""
        self._use(C_ELEMENTS, elements)

    def string_table(self, slot: Slot) -> StringTable:
        """The table of the strings of a slot."""
        table = self.strings.get(slot.name)
        if table is None:
            table = self.strings[slot.name] = StringTable(self.encoder, slot)
        return table
