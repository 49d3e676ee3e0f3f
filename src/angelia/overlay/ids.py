"""Node ids and keys: numbers of 128 bits on a ring, read as digits of base 2^b (HERMES 2.3.1, 4.4.1).

In messages they are texts of 32 hexadecimal digits, since no wire format has integers of 128 bits.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha1

from angelia.errors import RoutingError

__all__ = ["BITS", "as_id", "clockwise", "digit", "distance", "key_of", "number", "shared"]

BITS = 128
_RING = 1 << BITS


@lru_cache(1 << 16)
def key_of(name: str) -> str:
    """The id of a node, or the key of a type or topic, by its name: SHA-1, of which 128 bits are taken."""
    return sha1(name.encode(), usedforsecurity=False).hexdigest()[: BITS // 4]


@lru_cache(1 << 16)
def number(id: str) -> int:  # noqa: A002 - what it is
    """The number that a text stands for."""
    try:
        if len(id) == BITS // 4:
            return int(id, 16)
    except ValueError:
        pass
    raise RoutingError(f"{id[:40]!r} is no id of {BITS // 4} hexadecimal digits")


def as_id(value: int) -> str:
    """The text of a number."""
    return f"{value:0{BITS // 4}x}"


def shared(one: int, other: int, b: int) -> int:
    """How many leading digits two ids have in common."""
    return (BITS - (one ^ other).bit_length()) // b


def digit(id: int, row: int, b: int) -> int:  # noqa: A002
    """A digit of an id, the leading one being 0."""
    return (id >> (BITS - (row + 1) * b)) & ((1 << b) - 1)


def clockwise(start: int, end: int) -> int:
    """How far it is on the ring from one id to the next larger ones, up to another."""
    return (end - start) % _RING


def distance(one: int, other: int) -> int:
    """How near two ids are numerically, either way round the ring."""
    way = (one - other) % _RING
    return min(way, _RING - way)
