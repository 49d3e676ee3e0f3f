"""The compiled kernels that build an index: ordering conjunctions and laying out their trie."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from angelia.matching.jit import array, inlined, kernel, pointer, read_only
from angelia.matching.layout import (
    CLASS_WORDS,
    NODE_WORDS,
    S_BUCKETS,
    S_CLASS,
    S_CLASS_END,
    S_END,
    S_NAN,
    S_SHIFT,
    SLOT_WORDS,
)

__all__ = [
    "fill_buckets",
    "grow_trie",
    "lay_nodes",
    "mark_only_links",
    "refine_order",
    "repeated",
    "sort_sequences",
]

Array = Any  # what numba sees has no static type

_U32, _U32R = array(types.uint32), read_only(types.uint32)
_I64, _I64R = array(types.int64), read_only(types.int64)
_U64 = array(types.uint64)


@kernel(types.void, _U32, _I64R)
def sort_sequences(flat: Array, starts: Array) -> None:
    """Sort each of the sequences that lie one after another in `flat`."""
    for i in range(starts.size - 1):
        first, last = starts[i], starts[i + 1]
        if last - first > 24:
            flat[first:last] = np.sort(flat[first:last])
            continue
        for j in range(first + 1, last):
            word, k = flat[j], j
            while k > first and flat[k - 1] > word:
                flat[k] = flat[k - 1]
                k -= 1
            flat[k] = word


@inlined
def _comes_first(flat: Array, starts: Array, left: int, right: int) -> bool:
    """Whether one sequence comes before another in the order of words, the first two being equal."""
    i, j = starts[left] + 2, starts[right] + 2
    while i < starts[left + 1] and j < starts[right + 1]:
        if flat[i] != flat[j]:
            return bool(flat[i] < flat[j])
        i += 1
        j += 1
    return bool(i >= starts[left + 1] and j < starts[right + 1])


@kernel(types.void, _I64, _U64, _U32R, _I64R)
def refine_order(order: Array, keys: Array, flat: Array, starts: Array) -> None:
    """Finish an order of sequences that was made by their first two words only (`keys`), by merge sort."""
    spare = np.empty_like(order)
    words, places = pointer(flat), pointer(starts)
    run = 0
    while run < order.size:
        end = run + 1
        while end < order.size and keys[order[end]] == keys[order[run]]:
            end += 1
        width = 1
        while width < end - run:
            for low in range(run, end, 2 * width):
                middle, high = min(low + width, end), min(low + 2 * width, end)
                i, j = low, middle
                for k in range(low, high):
                    if j >= high or (i < middle and not _comes_first(words, places, order[j], order[i])):
                        spare[k] = order[i]
                        i += 1
                    else:
                        spare[k] = order[j]
                        j += 1
            order[run:end] = spare[run:end]
            width *= 2
        run = end


@kernel(types.Tuple((types.int64, types.int64)), _U32R, _I64R, _I64R, _U32, _U32, _U32)
def grow_trie(flat: Array, starts: Array, order: Array, literals: Array, skips: Array, cids: Array) -> Any:
    """The nodes of the trie of sequences given in order: how many there are, and how deep they lie."""
    deepest, count = 0, 0
    for i in range(order.size):
        deepest = max(deepest, starts[order[i] + 1] - starts[order[i]])
    path = np.zeros(deepest + 1, np.int64)
    depth = 0
    for cid in range(order.size):
        first, last = starts[order[cid]], starts[order[cid] + 1]
        common = 0
        if cid > 0:
            before = starts[order[cid - 1]]
            while common < depth and common < last - first and flat[before + common] == flat[first + common]:
                common += 1
        while depth > common:
            depth -= 1
            skips[path[depth]] = count
        for i in range(first + common, last):
            path[depth] = count
            literals[count] = flat[i]
            cids[count] = cid
            depth += 1
            count += 1
    while depth > 0:
        depth -= 1
        skips[path[depth]] = count
    literals[count], skips[count], cids[count] = 0, count, order.size
    return count, deepest


@kernel(types.void, _U32R, _U32R, _U32R, _U32R, _U32R, _U32R, _U32)
def lay_nodes(
    headers: Array, a: Array, b: Array, literals: Array, skips: Array, cids: Array, nodes: Array
) -> None:
    """The words of the nodes; there is one more than have literals, which is the end."""
    for node in range(skips.size):
        at = node * NODE_WORDS
        nodes[at + 1], nodes[at + 2] = skips[node], cids[node]
        if node < skips.size - 1:
            literal = literals[node]
            nodes[at], nodes[at + 3], nodes[at + 4] = headers[literal], a[literal], b[literal]
        else:
            nodes[at], nodes[at + 3], nodes[at + 4] = 0, 0, 0


@kernel(_I64, _I64R)
def repeated(counts: Array) -> Array:
    """Each number from 0 on as often as `counts` says. NumPy's own does it with the interpreter's lock."""
    out, used = np.empty(counts.sum(), np.int64), 0
    for number in range(counts.size):
        for _ in range(counts[number]):
            out[used] = number
            used += 1
    return out


@kernel(types.void, _U32R, _U32R, _U32R, _U32R, _U32)
def mark_only_links(skips: Array, cids: Array, owners: Array, links: Array, only: Array) -> None:
    """For each node, 1 + the link of all filters in its subtree, or 0 if there are several."""
    for node in range(only.size - 1, -1, -1):
        found = np.int64(-1)
        for cid in range(cids[node], cids[node + 1]):
            link = np.int64(links[owners[cid]]) + 1
            found = link if found == -1 or found == link else 0
        child = node + 1
        while child < skips[node]:
            link = np.int64(only[child])
            found = link if found == -1 or found == link else 0
            child = np.int64(skips[child])
        only[node] = found


@kernel(types.int64, _U32, _U32R, _I64R, _U32R, _U32R, _U32)
def fill_buckets(
    rows: Array, classes: Array, reaches: Array, lows: Array, nodes: Array, buckets: Array
) -> int:
    """For each slot, some high bits of a rank, and class of range roots: the first that may hold the rank.

    There are at most as many as range roots and classes together. `reaches` has the greatest length in each
    class. The rows are told where their buckets begin, and how many low bits of a rank do not count.
    """
    used = 0
    for row in range(0, rows.size, SLOT_WORDS):
        first, last = np.int64(rows[row + S_CLASS]), np.int64(rows[row + S_CLASS_END])
        if first == last:
            continue
        roots = np.int64(classes[(last - 1) * CLASS_WORDS + 1]) - np.int64(classes[first * CLASS_WORDS])
        low = np.int64(rows[row + S_NAN])
        span, shift = np.int64(rows[row + S_END]) - low, 0
        while (span >> shift) * (last - first) > roots:
            shift += 1
        rows[row + S_BUCKETS], rows[row + S_SHIFT] = used, shift
        count = (span >> shift) + 1
        for c in range(first, last):
            root, end = np.int64(classes[c * CLASS_WORDS]), np.int64(classes[c * CLASS_WORDS + 1])
            for i in range(count):
                while root < end and np.int64(lows[root]) + reaches[c] <= low + (i << shift):
                    root += 1
                buckets[used + i * (last - first) + c - first] = nodes[root]
        used += count * (last - first)
    return np.int64(used)
