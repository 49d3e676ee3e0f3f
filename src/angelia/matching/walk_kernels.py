"""The compiled kernels that match one event: it walks the trie, or the parts of it that its values lead to.

`layout` says what the index holds. Events of a block walk alone too once few of them are left: see
`block_kernels`.

What a walk needs is passed as one tuple of pointers, `Walk`: to pass arrays from function to function
counts references, which costs more than a step. Integer types are chosen with care: numba makes a float
of an int64 and a uint64 together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from angelia.matching.jit import at_address, inlined, kernel, pointer, read_only
from angelia.matching.layout import (
    C_ALIVE,
    C_CODED,
    C_ELEMENTS,
    C_FLOATS,
    C_IDS,
    C_INTS,
    C_ITEMS,
    C_JOINED,
    C_LINKED,
    C_OUT,
    C_OWNERS,
    C_ROOM,
    C_STATE,
    C_TOUCHED,
    C_VALUES,
    C_WORDS,
    CLASS_WORDS,
    CODED,
    COMPOSITE,
    FOUND,
    H_BUCKETS,
    H_CLASSES,
    H_LINKS,
    H_NODE_LINKS,
    H_NODES,
    H_OTHERS,
    H_OTHERS_END,
    H_OWNERS,
    H_PARTS,
    H_POINT_COUNT,
    H_POINT_ROOTS,
    H_POSTING_BOUNDS,
    H_POSTING_COUNT,
    H_POSTING_NODES,
    H_SETS,
    H_SHARED,
    H_SLOT_COUNT,
    H_SLOTS,
    H_TEXT_ROOTS,
    LANES,
    LISTED,
    MISSING,
    NEGATIVE,
    NODE_WORDS,
    OP_MASK,
    PART_WORDS,
    POINT,
    S_BUCKETS,
    S_CLASS,
    S_CLASS_END,
    S_NAN,
    S_POSTINGS,
    S_SHIFT,
    SET,
    SEVERAL,
    SLOT_SHIFT,
    SLOT_WORDS,
    STAMP,
    TEXT,
)
from angelia.matching.rank_kernels import rank_of_coded

__all__ = [
    "Walk",
    "forget",
    "literal_holds",
    "match_one",
    "note_match",
    "point_root",
    "walk_event",
    "walk_nodes",
    "walk_of",
    "walk_root",
]

Array = Any  # what numba sees has no static type

_U32R, _I64R = read_only(types.uint32), read_only(types.int64)


class Walk(NamedTuple):
    """What walks read and write.

    The index is `words` and `alive`. Of the events, `values` has the ranks of all slots and then their
    texts, one event after another; `items` and `elements` are what texts and lists refer to. Matches go
    to `owners` and `events`, as far as there is `room`; `joined` has what several conjunctions decide
    together (a filter of alternatives, or a link): a row of bits each, or for one event the `stamp`.
    """

    words: Array
    alive: Array
    items: Array
    elements: Array
    values: Array
    owners: Array
    events: Array
    joined: Array
    state: Array
    room: int
    stamp: int
    limit: int
    by_link: bool


# ---------------------------------------------------------------- literals, one value at a time


@inlined
def _in_set(words: Array, a: int, b: int, rank: int) -> bool:
    start = np.int64(words[H_SETS]) + a
    low, count = start, b
    while count > 0:
        half = count >> 1
        if words[low + half] < rank:
            low += half + 1
            count -= half + 1
        else:
            count = half
    return bool(low < start + b and words[low] == rank)


@inlined
def _has_text(items: Array, texts: int, text: int) -> bool:
    """Whether a value's texts, a count and sorted numbers at `texts`, have `text` among them."""
    low, count = texts + 1, np.int64(items[texts])
    end = low + count
    while count > 0:
        half = count >> 1
        if items[low + half] < text:
            low += half + 1
            count -= half + 1
        else:
            count = half
    return bool(low < end and items[low] == text)


@inlined
def _part_holds(words: Array, items: Array, op: int, a: int, b: int, rank: int, texts: int) -> bool:
    if op <= POINT:
        return bool(a <= rank < a + b)
    if op == TEXT:
        return _has_text(items, texts, a)
    return _in_set(words, a, b, rank) == (op == SET)


@inlined
def _value_holds(words: Array, items: Array, op: int, a: int, b: int, rank: int, texts: int) -> bool:
    if op != COMPOSITE:
        return _part_holds(words, items, op, a, b, rank, texts)
    part = np.int64(words[H_PARTS]) + a * PART_WORDS
    for _ in range(b):
        a, b = np.int64(words[part + 1]), np.int64(words[part + 2])
        if not _part_holds(words, items, np.int64(words[part]), a, b, rank, texts):
            return False
        part += PART_WORDS
    return True


@inlined
def literal_holds(walk: Walk, op: int, a: int, b: int, rank: int, texts: int) -> bool:
    """Whether some value of an attribute is in a domain; of a list, `texts` says where it is."""
    words, items, elements = walk.words, walk.items, walk.elements
    if rank != SEVERAL:
        return _value_holds(words, items, op, a, b, rank, texts)
    place = texts + 1
    for _ in range(elements[texts]):
        if _value_holds(words, items, op, a, b, np.int64(elements[place]), np.int64(elements[place + 1])):
            return True
        place += 2
    return False


# ---------------------------------------------------------------- one event


@inlined
def note_match(walk: Walk, owner: int, event: int) -> None:
    """Note a match, or at least that there is one more."""
    found = walk.state[FOUND]
    if found < walk.room:
        walk.owners[found] = owner
        if walk.stamp == 0:
            walk.events[found] = event
    walk.state[FOUND] = found + 1


@inlined
def _is_joined(walk: Walk, number: int, event: int) -> bool:
    if walk.stamp != 0:
        return bool(walk.joined[number] == np.uint64(walk.stamp))
    return bool(walk.joined[number * LANES + (event >> 6)] >> np.uint64(event & 63) & np.uint64(1))


@inlined
def _join(walk: Walk, number: int, event: int) -> None:
    if walk.stamp != 0:
        walk.joined[number] = np.uint64(walk.stamp)
    else:
        walk.joined[number * LANES + (event >> 6)] |= np.uint64(1) << np.uint64(event & 63)


@inlined
def _end_here(walk: Walk, at: int, event: int) -> None:
    """Note the filters of the conjunctions that end at a node."""
    words = walk.words
    owners, shared = np.int64(words[H_OWNERS]), np.int64(words[H_SHARED])
    for cid in range(words[at + 2], words[at + NODE_WORDS + 2]):
        owner = np.int64(words[owners + cid])
        if walk.alive[owner] == 0:
            continue
        if walk.by_link or owner < shared:
            number = np.int64(words[np.int64(words[H_LINKS]) + owner]) if walk.by_link else owner
            if _is_joined(walk, number, event):
                continue
            _join(walk, number, event)
            if walk.stamp == 0:  # a block notes what is joined at its end
                continue
            owner = number
        note_match(walk, owner, event)


@inlined
def walk_nodes(walk: Walk, node: int, end: int, event: int) -> None:
    """Walk the nodes from `node` to `end` with one event."""
    words = walk.words
    nodes, slots = np.int64(words[H_NODES]), np.int64(words[H_SLOT_COUNT])
    node_links = np.int64(words[H_NODE_LINKS])
    ranks = event * 2 * slots
    while node < end:
        at = nodes + node * NODE_WORDS
        if walk.by_link:
            only = np.int64(words[node_links + node])
            if only != 0 and _is_joined(walk, only - 1, event):
                node = np.int64(words[at + 1])
                continue
        header = np.int64(words[at])
        op, slot = header & OP_MASK, header >> SLOT_SHIFT
        a, b = np.int64(words[at + 3]), np.int64(words[at + 4])
        rank = np.int64(walk.values[ranks + slot])
        if op <= POINT and rank != SEVERAL:
            held = a <= rank < a + b
        else:
            held = literal_holds(walk, op, a, b, rank, np.int64(walk.values[ranks + slots + slot]))
        if held == (header & NEGATIVE != 0):
            node = np.int64(words[at + 1])
            continue
        if words[at + 2] != words[at + NODE_WORDS + 2]:
            _end_here(walk, at, event)
            if walk.state[FOUND] == walk.limit:
                return
        node += 1


@inlined
def walk_root(walk: Walk, root: int, event: int) -> None:
    """Walk a root and its subtree with one event."""
    walk_nodes(walk, root, np.int64(walk.words[np.int64(walk.words[H_NODES]) + root * NODE_WORDS + 1]), event)


@inlined
def _first_beyond(words: Array, start: int, end: int, value: int) -> int:
    """The first of sorted words that is greater than `value`."""
    count = end - start
    while count > 0:
        half = count >> 1
        below = words[start + half] <= value
        start = start + half + 1 if below else start
        count = count - half - 1 if below else half
    return start


@inlined
def point_root(words: Array, bound: int) -> int:
    """The root of an equality, plus 1; or 0."""
    if bound >= words[H_POINT_COUNT]:
        return np.int64(0)
    return np.int64(words[np.int64(words[H_POINT_ROOTS]) + bound])


@inlined
def _walk_class(walk: Walk, node: int, end: int, rank: int) -> None:
    """Walk the range roots from `node` to `end`, sorted by their low ends, that hold a rank."""
    words = walk.words
    nodes = np.int64(words[H_NODES])
    while node < end and walk.state[FOUND] != walk.limit:
        at = nodes + node * NODE_WORDS
        low = np.int64(words[at + 3])
        if low > rank:
            return
        if rank - low < np.int64(words[at + 4]):
            walk_root(walk, node, 0)
        node = np.int64(words[at + 1])


@inlined
def _walk_from(walk: Walk, slot: int, rank: int, texts: int) -> None:
    """Walk the roots that one value of a single event leads to."""
    words, items = walk.words, walk.items
    if rank == MISSING:
        return
    row = np.int64(words[H_SLOTS]) + slot * SLOT_WORDS
    if rank & 1:
        root = point_root(words, rank >> 1)
        if root != 0:
            walk_root(walk, root - 1, 0)
        if words[row + S_POSTINGS] != 0:
            bounds = np.int64(words[H_POSTING_BOUNDS])
            end = bounds + np.int64(words[H_POSTING_COUNT])
            place = _first_beyond(words, bounds, end, (rank >> 1) - 1)
            while place < end and words[place] == rank >> 1 and walk.state[FOUND] != walk.limit:
                walk_root(walk, np.int64(words[np.int64(words[H_POSTING_NODES]) + place - bounds]), 0)
                place += 1
    for i in range(texts + 1, texts + 1 + np.int64(items[texts])):
        root = np.int64(words[np.int64(words[H_TEXT_ROOTS]) + np.int64(items[i])])
        if root != 0 and walk.state[FOUND] != walk.limit:
            walk_root(walk, root - 1, 0)
    first, last = np.int64(words[row + S_CLASS]), np.int64(words[row + S_CLASS_END])
    if first < last:
        bucket = (rank - np.int64(words[row + S_NAN])) >> np.int64(words[row + S_SHIFT])
        bucket = np.int64(words[H_BUCKETS]) + np.int64(words[row + S_BUCKETS]) + bucket * (last - first)
        end_at = np.int64(words[H_CLASSES]) + first * CLASS_WORDS + 2
        for i in range(last - first):
            node, end = np.int64(words[bucket + i]), np.int64(words[end_at + i * CLASS_WORDS])
            _walk_class(walk, node, end, rank)


_u32_at, _u64_at, _u8_at = at_address(types.uint32), at_address(types.uint64), at_address(types.uint8)
_i64_at, _f64_at = at_address(types.int64), at_address(types.float64)


@inlined
def walk_of(context: Array, limit: int, by_link: bool) -> Walk:
    """What one event walks with; nothing is found yet, and no marks of earlier events count."""
    owners, state = _u32_at(context[C_OWNERS]), _i64_at(context[C_STATE])
    state[FOUND] = 0
    state[STAMP] += 1
    return Walk(
        _u32_at(context[C_WORDS]), _u8_at(context[C_LINKED if by_link else C_ALIVE]),
        _u32_at(_i64_at(context[C_ITEMS])[0]), _u32_at(context[C_ELEMENTS]), _u32_at(context[C_VALUES]),
        owners, owners, _u64_at(context[C_JOINED]), state, context[C_ROOM], state[STAMP], limit, by_link,
    )  # fmt: skip


@inlined
def walk_event(walk: Walk, touched: Array, count: int) -> None:
    """Walk with one event, whose values are those of the slots in `touched`; they are zeros again then."""
    words, values, elements, state = walk.words, walk.values, walk.elements, walk.state
    slots = np.int64(words[H_SLOT_COUNT])
    walk_nodes(walk, np.int64(words[H_OTHERS]), np.int64(words[H_OTHERS_END]), 0)
    for i in range(count):
        slot = np.int64(touched[i])
        rank, texts = np.int64(values[slot]), np.int64(values[slots + slot])
        if state[FOUND] == walk.limit:
            break
        if rank != SEVERAL:
            _walk_from(walk, slot, rank, texts)
            continue
        for e in range(np.int64(elements[texts])):
            _walk_from(
                walk, slot, np.int64(elements[texts + 1 + 2 * e]), np.int64(elements[texts + 2 + 2 * e])
            )
    forget(walk, touched, count)


@inlined
def forget(walk: Walk, touched: Array, count: int) -> None:
    """Make the values of slots zeros again."""
    slots = np.int64(walk.words[H_SLOT_COUNT])
    for i in range(count):
        slot = np.int64(touched[i])
        walk.values[slot] = MISSING
        walk.values[slots + slot] = 0


@kernel(types.int64, _I64R, _U32R, types.int64, types.boolean)
def match_one(context_: Array, plan: Array, limit: int, by_link: bool) -> int:
    """The filters (or links) that one event matches: their number, and as many of them as there is room for.

    `context_` has the addresses of all else, as `layout` says: an array costs more to pass than
    most events to match. `plan` says for each of the coded values which slot it belongs to and how it is
    coded. `values` is all zeros, and is left so. With a list among the values a filter may be found twice,
    unless it is one of the shared: the caller sees to that.
    """
    context = pointer(context_)
    words, ints, floats = _u32_at(context[C_WORDS]), _i64_at(context[C_INTS]), _f64_at(context[C_FLOATS])
    coded, touched, out = _i64_at(context[C_CODED]), _u32_at(context[C_TOUCHED]), _i64_at(context[C_OUT])
    ids = _i64_at(context[C_IDS])
    walk = walk_of(context, limit, by_link)
    slots = np.int64(words[H_SLOT_COUNT])
    count = 0
    for i in range(plan.size // 2):
        slot, code, value = np.int64(plan[2 * i]), np.int64(plan[2 * i + 1]), coded[i]
        row = np.int64(words[H_SLOTS]) + slot * SLOT_WORDS
        texts = 0
        if code != LISTED:
            rank = rank_of_coded(words, ints, floats, row, code, value)
            if code == CODED:
                texts = value >> 32
        elif walk.elements[value] == 0:  # an empty list is as good as none
            continue
        else:
            rank, texts = SEVERAL, value
        walk.values[slot] = rank
        walk.values[slots + slot] = texts
        touched[count] = slot
        count += 1
    walk_event(walk, touched, count)
    found = walk.state[FOUND]
    for i in range(min(found, walk.room)):
        out[i] = np.int64(walk.owners[i]) if by_link else ids[walk.owners[i]]
    return np.int64(found)
