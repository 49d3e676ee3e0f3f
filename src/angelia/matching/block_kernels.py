"""The compiled kernels that match a batch, in blocks of 512 events.

A bit stands for an event, and a node of the trie costs one step for all events that are left: equalities
and texts have a row of bits each, set when the block is prepared; ranges compare 64 ranks at once. Where few
events are left, each walks on alone, as a single event does (`walk_kernels`). The roots of the trie are not
all looked at: bounds and texts of the block lead to theirs, and ranges, where there are many, are merged with
the block's ranks in order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from angelia.matching.jit import (
    array,
    count_ones,
    first_one,
    in_range_mask,
    inlined,
    kernel,
    pointer,
    read_only,
)
from angelia.matching.layout import (
    BLOCK,
    CLASS_WORDS,
    COMPOSITE,
    FOUND,
    H_BOUND_COUNT,
    H_CLASSES,
    H_DEPTH,
    H_LINEAR,
    H_LINK_COUNT,
    H_LINKS,
    H_NODE_LINKS,
    H_NODES,
    H_OTHERS_END,
    H_OWNERS,
    H_PARTS,
    H_RANGE_LENGTHS,
    H_RANGE_LOWS,
    H_RANGE_NODES,
    H_SETS,
    H_SHARED,
    H_SLOT_COUNT,
    H_SLOTS,
    H_TEXT_ROOTS,
    HAS_LISTS,
    HAS_POINTS,
    HAS_TEXTS,
    LANES,
    MISSING,
    NEGATIVE,
    NODE_WORDS,
    OP_MASK,
    OUTSIDE,
    PART_WORDS,
    POINT,
    RANGE,
    S_CLASS,
    S_CLASS_END,
    SET,
    SEVERAL,
    SLOT_SHIFT,
    SLOT_WORDS,
    TEXT,
)
from angelia.matching.walk_kernels import (
    Walk,
    literal_holds,
    note_match,
    point_root,
    walk_nodes,
    walk_root,
)

__all__ = ["match_blocks"]

Array = Any  # what numba sees has no static type

_U32, _U32R = array(types.uint32), read_only(types.uint32)
_U8R = read_only(types.uint8)
_I64, _I64R = array(types.int64), read_only(types.int64)

FEW = 6  # events up to which each walks alone
FEW_ROWS = 16  # values of a set up to which their rows are joined
MANY_RANGES = 192  # range roots of a slot from which on the block's ranks are sorted


class Block(NamedTuple):
    """What a block has besides: ranks and texts by column, rows of bits, and the stack of survivors."""

    ranks: Array
    texts: Array
    columns: Array
    flags: Array
    rows: Array
    row_of: Array
    stack: Array
    ends: Array
    pitch: int
    base: int


@inlined
def _narrow_each(walk: Walk, block: Block, op: int, a: int, b: int, column: int, level: int) -> None:
    """Keep the survivors at a level of the stack that satisfy a literal, looking at one after another."""
    stack = block.stack
    for w in range(LANES):
        rest = stack[level + w]
        kept = rest
        while rest != 0:
            bit = first_one(rest)
            at = column + w * 64 + np.int64(bit)
            if not literal_holds(walk, op, a, b, np.int64(block.ranks[at]), np.int64(block.texts[at])):
                kept &= ~(np.uint64(1) << bit)
            rest &= rest - np.uint64(1)
        stack[level + w] = kept


@inlined
def _narrow(walk: Walk, block: Block, op: int, a: int, b: int, column: int, listed: bool, level: int) -> None:
    """Keep the survivors at a level of the stack that satisfy one literal or part."""
    words, stack, rows, row_of = walk.words, block.stack, block.rows, block.row_of
    if op == RANGE and not listed:
        for w in range(LANES):
            stack[level + w] &= in_range_mask(block.ranks, column + w * 64, a, b)
    elif op == POINT or op == TEXT:  # noqa: SIM109 - a tuple compiles to more
        key = a >> 1 if op == POINT else np.int64(words[H_BOUND_COUNT]) + a
        row = np.int64(row_of[key]) * LANES
        for w in range(LANES):
            stack[level + w] &= rows[row + w]
    elif (op == SET or (op == OUTSIDE and not listed)) and b <= FEW_ROWS:
        start = np.int64(words[H_SETS]) + a
        for w in range(LANES):
            joined = np.uint64(0)
            for i in range(b):
                joined |= rows[np.int64(row_of[words[start + i] >> 1]) * LANES + w]
            stack[level + w] &= joined if op == SET else ~joined
    else:
        _narrow_each(walk, block, op, a, b, column, level)


@inlined
def _narrow_rarely(walk: Walk, block: Block, header: int, a: int, b: int, under: int, level: int) -> None:
    """The survivors of a node that is no plain range or equality."""
    words, stack = walk.words, block.stack
    op, slot = header & OP_MASK, header >> SLOT_SHIFT
    column = np.int64(block.columns[slot]) * block.pitch + block.base
    listed = block.flags[slot] & HAS_LISTS != 0
    for w in range(LANES):
        stack[level + w] = stack[under + w]
    if op != COMPOSITE:
        _narrow(walk, block, op, a, b, column, listed, level)
    elif listed:
        _narrow_each(walk, block, op, a, b, column, level)
    else:
        part = np.int64(words[H_PARTS]) + a * PART_WORDS
        for _ in range(b):
            of, x, y = np.int64(words[part]), np.int64(words[part + 1]), np.int64(words[part + 2])
            _narrow(walk, block, of, x, y, column, False, level)
            part += PART_WORDS
    if header & NEGATIVE:
        for w in range(LANES):
            stack[level + w] = stack[under + w] & ~stack[level + w]


@inlined
def _step(walk: Walk, block: Block, node: int, under: int, level: int) -> bool:
    """The survivors of a node, given those above it; whether there are any."""
    words, stack = walk.words, block.stack
    at = np.int64(words[H_NODES]) + node * NODE_WORDS
    header = np.int64(words[at])
    slot = header >> SLOT_SHIFT
    a, b = np.int64(words[at + 3]), np.int64(words[at + 4])
    left = np.uint64(0)
    if header & (OP_MASK | NEGATIVE) == POINT:
        row = np.int64(block.row_of[a >> 1]) * LANES
        if row == 0:
            return False
        for w in range(LANES):
            bits = stack[under + w] & block.rows[row + w]
            stack[level + w] = bits
            left |= bits
    elif header & (OP_MASK | NEGATIVE) == RANGE and block.flags[slot] & HAS_LISTS == 0:
        column = np.int64(block.columns[slot]) * block.pitch + block.base
        for w in range(LANES):
            bits = stack[under + w] & in_range_mask(block.ranks, column + w * 64, a, b)
            stack[level + w] = bits
            left |= bits
    else:
        _narrow_rarely(walk, block, header, a, b, under, level)
        for w in range(LANES):
            left |= stack[level + w]
    if walk.by_link and left != 0:
        only = np.int64(words[np.int64(words[H_NODE_LINKS]) + node])
        if only != 0:
            left = np.uint64(0)
            for w in range(LANES):
                stack[level + w] &= ~walk.joined[(only - 1) * LANES + w]
                left |= stack[level + w]
    return bool(left != 0)


@inlined
def _end_block_here(walk: Walk, block: Block, at: int, level: int) -> None:
    """Note the filters of the conjunctions that end at a node, for all events that are left."""
    words, stack = walk.words, block.stack
    owners, shared = np.int64(words[H_OWNERS]), np.int64(words[H_SHARED])
    for cid in range(words[at + 2], words[at + NODE_WORDS + 2]):
        owner = np.int64(words[owners + cid])
        if walk.alive[owner] == 0:
            continue
        if walk.by_link or owner < shared:
            number = np.int64(words[np.int64(words[H_LINKS]) + owner]) if walk.by_link else owner
            for w in range(LANES):
                walk.joined[number * LANES + w] |= stack[level + w]
            continue
        for w in range(LANES):
            rest = stack[level + w]
            while rest != 0:
                note_match(walk, owner, w * 64 + np.int64(first_one(rest)))
                rest &= rest - np.uint64(1)


@inlined
def _walk_apart(walk: Walk, block: Block, node: int, end: int, level: int) -> bool:
    """Walk some nodes with each event that is left, if these are few; whether they were."""
    stack = block.stack
    left = np.uint64(0)
    for w in range(LANES):
        left += count_ones(stack[level + w])
    if left > FEW:
        return False
    for w in range(LANES):
        rest = stack[level + w]
        while rest != 0:
            walk_nodes(walk, node, end, w * 64 + np.int64(first_one(rest)))
            rest &= rest - np.uint64(1)
    return True


@inlined
def _descend(walk: Walk, block: Block, root: int, level: int) -> None:
    """Walk the subtree of a root whose survivors lie at a level of the stack."""
    words, ends = walk.words, block.ends
    nodes = np.int64(words[H_NODES])
    at = nodes + root * NODE_WORDS
    _end_block_here(walk, block, at, level)
    end = np.int64(words[at + 1])
    node = root + 1
    if node == end or _walk_apart(walk, block, node, end, level):
        return
    top = 0
    ends[0] = end
    while node < end:
        while node >= ends[top]:
            top -= 1
        at = nodes + node * NODE_WORDS
        skip = np.int64(words[at + 1])
        below = level + (top + 1) * LANES
        if not _step(walk, block, node, level + top * LANES, below):
            node = skip
            continue
        if words[at + 2] != words[at + NODE_WORDS + 2]:
            _end_block_here(walk, block, at, below)
        node += 1
        if skip > node:
            if _walk_apart(walk, block, node, skip, below):
                node = skip
            else:
                top += 1
                ends[top] = skip


@inlined
def _walk_rows(walk: Walk, block: Block, touched: Array, row_count: int) -> None:
    """Walk the roots that the bounds and texts of the block lead to."""
    words, stack = walk.words, block.stack
    bounds = np.int64(words[H_BOUND_COUNT])
    for row in range(1, row_count + 1):
        key = np.int64(touched[row])
        if key < bounds:
            root = point_root(words, key)
        else:
            root = np.int64(words[np.int64(words[H_TEXT_ROOTS]) + key - bounds])
        if root != 0:
            for w in range(LANES):
                stack[LANES + w] = block.rows[row * LANES + w]
            skip = np.int64(words[H_NODES]) + (root - 1) * NODE_WORDS + 1
            if not _walk_apart(walk, block, root - 1, np.int64(words[skip]), LANES):
                _descend(walk, block, root - 1, LANES)


@inlined
def _walk_linear(walk: Walk, block: Block, node: int, end: int) -> None:
    """Walk roots one after another."""
    nodes = np.int64(walk.words[H_NODES])
    while node < end:
        if _step(walk, block, node, 0, LANES):
            _descend(walk, block, node, LANES)
        node = np.int64(walk.words[nodes + node * NODE_WORDS + 1])


@inlined
def _sort_ranks(block: Block, column: int, size: int, order: Array, spare: Array, buckets: Array) -> int:
    """Sort the events of a block that have a value by rank, each as `rank << 16 | event`; how many."""
    count = 0
    highest = np.uint64(0)
    for event in range(size):
        rank = np.uint64(block.ranks[column + event])
        if rank != MISSING:
            order[count] = rank << np.uint64(16) | np.uint64(event)
            highest = max(highest, rank)
            count += 1
    shift = np.uint64(16)
    source, target = order, spare
    passes = 0
    while highest != 0:
        for i in range(256):
            buckets[i] = 0
        for i in range(count):
            buckets[source[i] >> shift & np.uint64(255)] += 1
        total = 0
        for i in range(256):
            total, buckets[i] = total + buckets[i], total
        for i in range(count):
            digit = source[i] >> shift & np.uint64(255)
            target[buckets[digit]] = source[i]
            buckets[digit] += 1
        source, target = target, source
        shift += np.uint64(8)
        highest >>= np.uint64(8)
        passes += 1
    if passes & 1:
        for i in range(count):
            order[i] = spare[i]
    return count


@inlined
def _walk_ranges(walk: Walk, block: Block, row: int, order: Array, count: int) -> None:
    """Walk the range roots of a slot that hold the rank of some event, the events being in order."""
    words, stack = walk.words, block.stack
    lows, lengths = np.int64(words[H_RANGE_LOWS]), np.int64(words[H_RANGE_LENGTHS])
    nodes = np.int64(words[H_RANGE_NODES])
    for c in range(words[row + S_CLASS], words[row + S_CLASS_END]):
        at = np.int64(words[H_CLASSES]) + c * CLASS_WORDS
        first = 0
        for i in range(words[at], words[at + 1]):
            low = np.int64(words[lows + i])
            while first < count and np.int64(order[first] >> np.uint64(16)) < low:
                first += 1
            if first == count:
                break
            high = low + np.int64(words[lengths + i])
            last = first
            while last < count and np.int64(order[last] >> np.uint64(16)) < high:
                last += 1
            if last == first:
                continue
            root = np.int64(words[nodes + i])
            if last - first <= FEW:
                for j in range(first, last):
                    walk_root(walk, root, np.int64(order[j] & np.uint64(0xFFFF)))
                continue
            for w in range(LANES):
                stack[LANES + w] = 0
            for j in range(first, last):
                event = order[j] & np.uint64(0xFFFF)
                stack[LANES + np.int64(event >> np.uint64(6))] |= np.uint64(1) << (event & np.uint64(63))
            _descend(walk, block, root, LANES)


@inlined
def _set_bit(block: Block, touched: Array, key: int, event: int, count: int) -> int:
    """Set an event's bit in the row of a bound or text; the number of rows in use then."""
    rows, row_of = block.rows, block.row_of
    row = np.int64(row_of[key])
    if row == 0:
        count += 1
        row = count
        row_of[key] = row
        touched[row] = key
        for w in range(LANES):
            rows[row * LANES + w] = 0
    rows[row * LANES + (event >> 6)] |= np.uint64(1) << np.uint64(event & 63)
    return count


@inlined
def _rows_needed(walk: Walk, block: Block, slots: int) -> int:
    """At most how many rows of bits a block needs."""
    items, elements = walk.items, walk.elements
    needed = 1
    for slot in range(slots):
        column = np.int64(block.columns[slot]) * block.pitch + block.base
        if block.columns[slot] == 0 or block.flags[slot] == 0:
            continue
        needed += BLOCK
        if block.flags[slot] < HAS_TEXTS:
            continue
        for event in range(BLOCK):
            place = np.int64(block.texts[column + event])
            if block.ranks[column + event] == SEVERAL:
                for i in range(np.int64(elements[place])):
                    needed += 1 + np.int64(items[np.int64(elements[place + 2 + 2 * i])])
            else:
                needed += np.int64(items[place])
    return needed


@inlined
def _prepare(walk: Walk, block: Block, touched: Array, slots: int, size: int) -> int:
    """Lay the block's values out by event, and set the rows of its bounds and texts; how many there are."""
    words, items, elements, values = walk.words, walk.items, walk.elements, walk.values
    bounds = np.int64(words[H_BOUND_COUNT])
    count = 0
    for slot in range(slots):
        if block.columns[slot] == 0:  # as most are where filters name very many attributes
            continue
        column = np.int64(block.columns[slot]) * block.pitch + block.base
        flags = block.flags[slot]
        for event in range(size):
            values[event * 2 * slots + slot] = block.ranks[column + event]
            values[event * 2 * slots + slots + slot] = block.texts[column + event]
        if flags == 0:
            continue
        for event in range(size):
            rank = np.int64(block.ranks[column + event])
            if rank != SEVERAL:
                if rank & 1 and flags & HAS_POINTS:
                    count = _set_bit(block, touched, rank >> 1, event, count)
                if flags & HAS_TEXTS:
                    place = np.int64(block.texts[column + event])
                    for i in range(place + 1, place + 1 + np.int64(items[place])):
                        count = _set_bit(block, touched, bounds + np.int64(items[i]), event, count)
                continue
            listed = np.int64(block.texts[column + event])
            for e in range(np.int64(elements[listed])):
                rank = np.int64(elements[listed + 1 + 2 * e])
                place = np.int64(elements[listed + 2 + 2 * e])
                if rank & 1:
                    count = _set_bit(block, touched, rank >> 1, event, count)
                for i in range(place + 1, place + 1 + np.int64(items[place])):
                    count = _set_bit(block, touched, bounds + np.int64(items[i]), event, count)
    return count


@inlined
def _match_block(
    walk: Walk, block: Block, touched: Array, order: Array, spare: Array, buckets: Array, size: int
) -> None:
    """Walk the whole trie with a block of events, and note what they match."""
    words = walk.words
    slots = np.int64(words[H_SLOT_COUNT])
    row_count = _prepare(walk, block, touched, slots, size)
    for w in range(LANES):
        ones = min(64, max(0, size - w * 64))
        full = ~np.uint64(0)
        block.stack[w] = full if ones == 64 else (np.uint64(1) << np.uint64(ones)) - np.uint64(1)
    _walk_rows(walk, block, touched, row_count)
    _walk_linear(walk, block, np.int64(words[H_LINEAR]), np.int64(words[H_OTHERS_END]))
    for slot in range(slots):
        row = np.int64(words[H_SLOTS]) + slot * SLOT_WORDS
        first, last = np.int64(words[row + S_CLASS]), np.int64(words[row + S_CLASS_END])
        if first == last or block.columns[slot] == 0:
            continue
        classes = np.int64(words[H_CLASSES])
        first = np.int64(words[classes + first * CLASS_WORDS])
        last = np.int64(words[classes + (last - 1) * CLASS_WORDS + 1])
        if last - first < MANY_RANGES or block.flags[slot] & HAS_LISTS:
            nodes = np.int64(words[H_RANGE_NODES])
            _walk_linear(walk, block, np.int64(words[nodes + first]), np.int64(words[nodes + last]))
        else:
            column = np.int64(block.columns[slot]) * block.pitch + block.base
            _walk_ranges(walk, block, row, order, _sort_ranks(block, column, size, order, spare, buckets))
    for row in range(1, row_count + 1):
        block.row_of[touched[row]] = 0


@inlined
def _note_joined(walk: Walk, rows: int) -> None:
    """Note the filters of several conjunctions, or the links, that the events of a block match."""
    for number in range(rows):
        for w in range(LANES):
            rest = walk.joined[number * LANES + w]
            while rest != 0:
                note_match(walk, number, w * 64 + np.int64(first_one(rest)))
                rest &= rest - np.uint64(1)


@kernel(
    types.Tuple((_I64, _I64, types.int64)), _U32R, _I64R, _U8R, _U32R, _U32R, _U32R, _U8R, types.int64,
    _U32R, _U32R, _U32, types.boolean,
)  # fmt: skip
def match_blocks(
    words_: Array, ids: Array, alive: Array, ranks: Array, texts: Array, columns: Array, flags: Array,
    events: int, items: Array, elements: Array, row_of: Array, by_link: bool,
) -> Any:  # fmt: skip
    """The filters (or links) that each event of a batch matches, as offsets and ids; and a size.

    `ranks` and `texts` have one column of events after another, `columns` says which is a slot's (0: the
    batch has none), and `flags` what it holds. `row_of` is all zeros, and is left so.
    """
    words = pointer(words_)
    pitch = -(-events // BLOCK) * BLOCK
    slots = np.int64(words[H_SLOT_COUNT])
    joined_rows = np.int64(words[H_LINK_COUNT]) if by_link else np.int64(words[H_SHARED])
    depth = np.int64(words[H_DEPTH]) + 3

    offsets, out = np.zeros(events + 1, np.int64), np.empty(max(64, 4 * events), np.int64)
    written = 0
    rows, touched = np.zeros(LANES, np.uint64), np.zeros(1, np.uint32)
    stack, ends = np.zeros(depth * LANES, np.uint64), np.zeros(depth, np.int64)
    values = np.zeros(2 * slots * BLOCK + 1, np.uint32)
    joined = np.zeros(max(1, joined_rows) * LANES, np.uint64)
    owners, who = np.empty(1 << 14, np.uint32), np.empty(1 << 14, np.uint16)
    order, spare, buckets = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64), np.empty(256, np.int64)
    cursor, state = np.zeros(BLOCK + 1, np.int64), np.zeros(1, np.int64)

    for base in range(0, events, BLOCK):
        size = min(BLOCK, events - base)
        while True:
            walk = Walk(
                words, pointer(alive), pointer(items), pointer(elements), pointer(values), pointer(owners),
                pointer(who), pointer(joined), pointer(state), owners.size, 0, -1, by_link,
            )  # fmt: skip
            block = Block(
                pointer(ranks), pointer(texts), pointer(columns), pointer(flags), pointer(rows),
                pointer(row_of), pointer(stack), pointer(ends), pitch, base,
            )  # fmt: skip
            needed = _rows_needed(walk, block, slots)
            if needed >= touched.size:
                rows = np.zeros((needed + 1) * LANES, np.uint64)
                touched = np.zeros(needed + 1, np.uint32)
                continue
            joined[:] = 0
            state[FOUND] = 0
            _match_block(
                walk, block, pointer(touched), pointer(order), pointer(spare), pointer(buckets), size
            )
            _note_joined(walk, joined_rows)
            if state[FOUND] <= owners.size:
                break
            # There was not enough room: now it is known how much is needed.
            owners, who = np.empty(2 * state[FOUND], np.uint32), np.empty(2 * state[FOUND], np.uint16)
        found = state[FOUND]
        if written + found > out.size:
            # As much as it comes to if the rest matches as often as the events so far, and some more.
            expected = (written + found) * (events + BLOCK) // (base + size)
            larger = np.empty(expected + expected // 8, np.int64)
            larger[:written] = out[:written]
            out = larger
        cursor[:] = 0
        for i in range(found):
            cursor[np.int64(who[i]) + 1] += 1
        cursor[0] = written
        for event in range(size):
            cursor[event + 1] += cursor[event]
            offsets[base + event + 1] = cursor[event + 1]
        for i in range(found):
            event = np.int64(who[i])
            out[cursor[event]] = np.int64(owners[i]) if by_link else ids[owners[i]]
            cursor[event] += 1
        written += found
    # The sizes are returned so that the arrays live as long as the pointers to them.
    kept = rows.size + touched.size + stack.size + ends.size + values.size + joined.size
    kept += owners.size + who.size + order.size + spare.size + buckets.size + state.size
    return offsets, out[:written], kept
