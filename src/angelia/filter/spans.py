"""Sets of numbers, and intervals with numbers: what the index of a poset is made of.

A set of numbers is also had as *bits*: an integer in which bit `n` says whether `n` is a member. However many
members they have, two sets meet in one operation of the machine for 64 numbers. So a question about several
attributes costs about the same whether its answer is empty or not, and whatever was asked for before: those
who choose filters cannot make it slow.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from angelia.filter.domain import ABOVE_ALL, BELOW_ALL, Cut

__all__ = ["FEW", "Members", "Span", "Spans", "bits_of", "numbers_in"]

Span = tuple[Cut, Cut]

FEW = 48  # members that are rather looked at one by one
_BLOCK = 64  # ends in a block, at most, if there are not more than _BLOCKS of them
_BLOCKS = 160
_BIT = tuple(1 << place for place in range(8))
_AFTER = float("inf")  # above any number: behind all ends at a cut


def bits_of(numbers: Iterable[int]) -> int:
    """A set of numbers as bits."""
    numbers = list(numbers)
    if len(numbers) < 3:
        return sum(1 << number for number in numbers)
    found = bytearray((max(numbers) >> 3) + 1)
    for number in numbers:
        found[number >> 3] |= _BIT[number & 7]
    return int.from_bytes(found, "little")


def numbers_in(bits: int) -> list[int]:
    """The members of a set that is given as bits, in ascending order."""
    numbers = []
    if bits.bit_count() < 8:
        while bits:
            last = bits.bit_length() - 1
            numbers.append(last)
            bits ^= 1 << last
        numbers.reverse()
        return numbers
    digits = bin(bits)[:1:-1]
    at = digits.find("1")
    while at >= 0:
        numbers.append(at)
        at = digits.find("1", at + 1)
    return numbers


class Members:
    """A set of numbers, as a set and, when asked for, as bits."""

    __slots__ = ("_bits", "numbers")

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self._bits: int | None = None

    def add(self, number: int) -> None:
        """Add a number."""
        self.numbers.add(number)
        if self._bits is not None:
            self._bits |= 1 << number

    def remove(self, number: int) -> None:
        """Remove a number that is there."""
        self.numbers.remove(number)
        if self._bits is not None:
            self._bits ^= 1 << number

    @property
    def bits(self) -> int:
        """The set as bits, which are kept if it is large."""
        if self._bits is not None:
            return self._bits
        bits = bits_of(self.numbers)
        if len(self.numbers) > FEW:
            self._bits = bits
        return bits

    def __len__(self) -> int:
        return len(self.numbers)


class Spans:
    """Intervals with numbers. Which lie within another, and which lie around it?"""

    __slots__ = ("_count", "_few", "_highs", "_lows")

    def __init__(self) -> None:
        self._few: dict[int, Span] | None = {}
        self._lows = self._highs = _NO_ENDS
        self._count = 0

    def add(self, number: int, span: Span) -> None:
        """Add an interval."""
        self._count += 1
        if self._few is None:
            self._lows.add(span[0], number)
            self._highs.add(span[1], number)
            return
        self._few[number] = span
        if len(self._few) > FEW:
            few, self._few = self._few, None
            self._lows, self._highs, self._count = _Ends(), _Ends(), 0
            for each, known in few.items():
                self.add(each, known)

    def remove(self, number: int, span: Span) -> None:
        """Remove an interval that was added."""
        self._count -= 1
        if self._few is None:
            self._lows.remove(span[0], number)
            self._highs.remove(span[1], number)
        else:
            del self._few[number]

    def within(self, low: Cut, high: Cut) -> int:
        """The intervals that another contains, as bits."""
        if self._few is not None:
            return bits_of([n for n, (start, end) in self._few.items() if start >= low and end <= high])
        found = self._lows.bits if high == ABOVE_ALL else self._highs.before((high, _AFTER))
        return found if low == BELOW_ALL or not found else found & ~self._lows.before((low, -1))

    def around(self, low: Cut, high: Cut) -> int:
        """The intervals that contain another, as bits."""
        if self._few is not None:
            return bits_of([n for n, (start, end) in self._few.items() if start <= low and end >= high])
        found = self._lows.before((low, _AFTER))
        return found and found & ~self._highs.before((high, -1))

    def near(self, span: Span, among: int, upper: bool) -> int | None:
        """Of some intervals that contain another: one whose end is near to its end."""
        low, high = span
        return self._highs.first((high, -1), among) if upper else self._lows.last((low, _AFTER), among)

    def __len__(self) -> int:
        return self._count


class _Ends:
    """Cuts with numbers, in order, in blocks whose numbers are had as bits."""

    __slots__ = ("_bits", "_blocks", "_count", "_lasts", "bits")

    def __init__(self) -> None:
        self.bits = 0
        self._count = 0
        self._blocks: list[list[tuple[Cut, int]]] = []
        self._lasts: list[tuple[Cut, int]] = []  # the last of each block
        self._bits: list[int] = []  # the numbers of each block

    def add(self, cut: Cut, number: int) -> None:
        """Add a number at a cut."""
        end, bit = (cut, number), 1 << number
        self.bits |= bit
        self._count += 1
        if not self._blocks:
            self._blocks, self._lasts, self._bits = [[end]], [end], [bit]
            return
        place = min(bisect_left(self._lasts, end), len(self._blocks) - 1)
        block = self._blocks[place]
        insort(block, end)
        self._bits[place] |= bit
        self._lasts[place] = block[-1]
        if len(block) > _BLOCK and len(block) * _BLOCKS > self._count:
            self._split(place)

    def _split(self, place: int) -> None:
        block = self._blocks[place]
        halves = [block[: len(block) // 2], block[len(block) // 2 :]]
        self._blocks[place : place + 1] = halves
        self._lasts[place : place + 1] = [half[-1] for half in halves]
        self._bits[place : place + 1] = [self._bits_of(half) for half in halves]

    def _bits_of(self, ends: list[tuple[Cut, int]]) -> int:
        found = bytearray((self.bits.bit_length() >> 3) + 1)
        for _, number in ends:
            found[number >> 3] |= _BIT[number & 7]
        return int.from_bytes(found, "little")

    def remove(self, cut: Cut, number: int) -> None:
        """Remove a number from a cut where it is."""
        end, bit = (cut, number), 1 << number
        place = bisect_left(self._lasts, end)
        block = self._blocks[place]
        del block[bisect_left(block, end)]
        self.bits ^= bit
        self._count -= 1
        self._bits[place] ^= bit
        if block:
            self._lasts[place] = block[-1]
        else:
            del self._blocks[place], self._lasts[place], self._bits[place]

    def before(self, end: tuple[Cut, float]) -> int:
        """The numbers of all ends before one, as bits."""
        place = bisect_left(self._lasts, end)
        if place == len(self._blocks):
            return self.bits
        block, bits = self._blocks[place], self._bits[place]
        inside = bisect_left(block, end)
        # Of the block, and of all blocks, the shorter side is put together.
        if inside * 2 <= len(block):
            found = self._bits_of(block[:inside])
        else:
            found = bits ^ self._bits_of(block[inside:])
        if place * 2 <= len(self._blocks):
            for each in self._bits[:place]:
                found |= each
            return found
        rest = bits ^ found
        for each in self._bits[place + 1 :]:
            rest |= each
        return self.bits ^ rest

    def first(self, end: tuple[Cut, float], among: int) -> int | None:
        """The number of the first end after one that is among others."""
        for place in range(bisect_left(self._lasts, end), len(self._blocks)):
            if here := self._bits[place] & among:
                for each in self._blocks[place]:
                    if each > end and here >> each[1] & 1:
                        return each[1]
        return None

    def last(self, end: tuple[Cut, float], among: int) -> int | None:
        """The number of the last end before one that is among others."""
        start = min(bisect_left(self._lasts, end), len(self._blocks) - 1)
        for place in range(start, -1, -1):
            if here := self._bits[place] & among:
                for each in reversed(self._blocks[place]):
                    if each < end and here >> each[1] & 1:
                        return each[1]
        return None


_NO_ENDS = _Ends()
