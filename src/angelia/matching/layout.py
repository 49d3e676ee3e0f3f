"""The layout of a compiled index: what lies where in its arrays.

An index is four NumPy arrays, so that a kernel call passes few arguments, a pickle is a copy, and a
walk reads memory in order:

- `words` (uint32): a header of offsets, then the tables below;
- `ints` (int64) and `floats` (float64): the bounds of timestamps and numbers, sorted per attribute;
- `ids` (int64): the identifiers of the filters, by owner number.

**Ranks.** Each attribute (a *slot*) has sorted bounds: the values that filters compare with. A value of
an event becomes a rank, its place among them: an odd number at a bound, an even one between two. All
comparisons are then of 32-bit integers and exact, whatever the values were. Ranks of different slots,
and of the kinds of value within a slot, do not overlap; 0 is a missing value. `rank >> 1` is a number
for the bound itself, by which tables are indexed.

**Nodes.** Conjunctions lie in a trie of literals, rarest first, in preorder: a node is five words, and
what follows it is its first child. `skip` is the node after its subtree. `cid` counts the conjunctions
that end before this node, so those that end here are from its `cid` up to the next node's.
"""

from __future__ import annotations

__all__: list[str] = []

# The header of `words`: offsets of the tables, and counts.
(
    H_NODES,  # nodes: header, skip, cid, a, b
    H_NODE_COUNT,
    H_SETS,  # the bounds' ranks of `in` lists and excluded points, sorted
    H_PARTS,  # parts of composite literals: op, a, b
    H_SLOTS,  # one row of `SLOT_WORDS` a slot
    H_SLOT_COUNT,
    H_POINT_ROOTS,  # by bound: root node of the equality, plus 1; bounds beyond have none
    H_POINT_COUNT,
    H_TEXT_ROOTS,  # by text: root node of the text literal, plus 1
    H_POSTING_BOUNDS,  # bounds of the `in` lists that are roots, sorted ...
    H_POSTING_NODES,  # ... and the root node of each
    H_POSTING_COUNT,
    H_LINEAR,  # first of the roots that a block looks at one by one: those of `in` lists, and ...
    H_OTHERS,  # ... first and last of those that no table leads to
    H_OTHERS_END,
    H_CLASSES,  # classes of range roots: first, last (in the tables below), and the node after the last
    H_RANGE_LOWS,  # the low ranks of the range roots, sorted within a class ...
    H_RANGE_LENGTHS,  # ... how far they reach ...
    H_RANGE_NODES,  # ... and their nodes, and after the last one the end
    H_BUCKETS,  # by slot, the high bits of a rank, and class: the first root that may hold the rank
    H_OWNERS,  # by cid: the number of the filter
    H_SHARED,  # filters with several conjunctions have the numbers below this one
    H_LINKS,  # by owner: its link's number; 0 if no filter has a link
    H_NODE_LINKS,  # by node: 1 + the only link of its subtree, or 0 if there are several
    H_LINK_COUNT,
    H_BOUND_COUNT,
    H_TEXT_COUNT,
    H_DEPTH,
    H_FLAGS,  # by number bound, two bits each: `EXACT_FLOAT`, `EXACT_INT`
    H_CELLS,  # the span of a slot's number bounds in equal cells: how many bounds lie before each
    HEADER_WORDS,
) = range(31)

NODE_WORDS = 5
PART_WORDS = 3
CLASS_WORDS = 3

# A slot's row: rank of NaN, which is its first one; the number zone (first rank, bounds, of these within
# int64, place of the bounds in `floats`, in `ints`); the timestamp zone (first rank, bounds, place in
# `ints`); where the cells of its numbers are, how many, and how many make one (in `floats`); the first rank
# beyond; its classes; where its buckets are, and how many low bits of a rank these leave out.
(
    S_NAN,
    S_NUMBER,
    S_NUMBER_COUNT,
    S_INT_COUNT,
    S_FLOATS,
    S_INTS,
    S_TIME,
    S_TIME_COUNT,
    S_TIMES,
    S_CELLS,
    S_CELL_COUNT,
    S_CELL_SCALE,
    S_END,
    S_CLASS,
    S_CLASS_END,
    S_BUCKETS,
    S_SHIFT,
    S_POSTINGS,
    SLOT_WORDS,
) = range(19)

EXACT_FLOAT, EXACT_INT = 1, 2

# What a literal tests, in the low bits of a node's header; then a sign bit; then the slot.
RANGE = 0  # rank in [a, a + b)
POINT = 1  # rank equal to a
TEXT = 2  # text number a holds
SET = 3  # rank among the b ranks at a in the sets
COMPOSITE = 4  # all of the b parts at a, of one value
OUTSIDE = 5  # (parts only) rank not among the b ranks at a
OP_BITS = 3
OP_MASK = 7
NEGATIVE = 8
SLOT_SHIFT = 4

# How a value of a single event is passed: as a rank with its texts, or as a number to be ranked.
CODED, FLOAT, INTEGER, TIMESTAMP, LISTED = range(5)

# What a walk with a single event needs, as an array of addresses: those of arrays, unless it says else.
(
    C_WORDS,
    C_INTS,
    C_FLOATS,
    C_IDS,
    C_OBJECTS,  # the ids as objects, or 0 if all are integers
    C_ALIVE,
    C_LINKED,
    C_ITEMS,  # of one address: that of the encoder's items, which move
    C_ELEMENTS,
    C_CODED,  # the values of an event as `match_one` takes them
    C_VALUES,  # by slot: the ranks, and then the texts
    C_TOUCHED,  # the slots of which an event has values
    C_JOINED,
    C_OWNERS,
    C_OUT,
    C_ROOM,  # a number: how long these two are
    C_STATE,
    C_NAMES,  # a dictionary: the number of a slot by its name
    C_CODES,  # by slot: a dictionary of the codes of strings
    C_TYPES,  # the types that `ask` knows, and a time zone
    C_IS_LARGE,  # a number: whether a walk is worth that other threads run meanwhile
    CONTEXT_WORDS,
) = range(22)

# What is in the state of a walk: how many matches there are, the mark of this event, whether a thread is at
# work, and what CPython's functions write to.
FOUND, STAMP, IS_BUSY, POSITION, KEY, VALUE, OVERFLOW, STATE_WORDS = range(8)

# The types that `ask` knows.
T_DICT, T_STR, T_FLOAT, T_INT, T_BOOL, T_NONE, T_DATETIME, T_LIST, T_TUPLE, T_UTC = range(10)

# What the column of a slot holds in a batch: bounds that count by themselves, texts, lists.
HAS_POINTS, HAS_TEXTS, HAS_LISTS = 1, 2, 4

MISSING = 0
SEVERAL = 0xFFFFFFFF  # in place of a rank: a list of values, each with its own

BLOCK = 512  # events of a batch that are matched at once, one bit each
LANES = BLOCK // 64
