"""Slots: the attributes a compiled index knows, and how a value of one becomes a rank.

Numbers and timestamps are ranked by kernels. Strings are looked up here: their rank, and which of the
slot's *texts* hold. A text is a condition on a string that is no range: a suffix, a part, a pattern,
or, for `@type`, an event type that it is or descends from. Each distinct string is looked at once and
kept in caches of limited size, so that a text costs nothing on the way of most events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from angelia.filter.conjunction import is_a
from angelia.filter.domain import search

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["Slot", "TextIndex"]


class TextIndex:
    """Numbered suffixes, parts, patterns and event types, and which of them hold for a string.

    A suffix or part is found by a key, its last or first characters, as many as the greatest power of
    two that it has: few lengths to try, and a string of n characters is looked up n times for each.
    """

    __slots__ = ("_parts", "_patterns", "_suffixes", "_types")

    def __init__(self, texts: Iterable[tuple[str, str, int]] = ()) -> None:
        self._suffixes: dict[int, dict[str, list[tuple[str, int]]]] = {}
        self._parts: dict[int, dict[str, list[tuple[str, int]]]] = {}
        self._patterns: list[tuple[str, int]] = []
        self._types: list[tuple[str, int]] = []
        for op, text, number in texts:
            self.add(op, text, number)

    def add(self, op: str, text: str, number: int) -> None:
        """Add a text under its number."""
        size = _key_size(text)
        if op == "suffix":
            self._suffixes.setdefault(size, {}).setdefault(text[-size:], []).append((text, number))
        elif op == "contains":
            self._parts.setdefault(size, {}).setdefault(text[:size], []).append((text, number))
        else:
            (self._patterns if op == "pattern" else self._types).append((text, number))

    def discard(self, op: str, text: str, number: int) -> None:
        """Take a suffix or part out."""
        size = _key_size(text)
        sizes = self._suffixes if op == "suffix" else self._parts
        key = text[-size:] if op == "suffix" else text[:size]
        sizes[size][key].remove((text, number))
        if not sizes[size][key]:
            del sizes[size][key]

    def __bool__(self) -> bool:
        return bool(self._suffixes or self._parts or self._patterns or self._types)

    @property
    def has_types(self) -> bool:
        """Whether the answer depends on the hierarchy of event types."""
        return bool(self._types)

    def holding(self, value: str, registry: TypeRegistry | None) -> list[int]:
        """The numbers of the texts that hold for a string, sorted."""
        found = set(self._found(value))
        found.update(number for name, number in self._types if is_a(value, name, registry))
        return sorted(found)

    def _found(self, value: str) -> Iterator[int]:
        for size, keys in self._suffixes.items():
            for text, number in keys.get(value[-size:], ()):
                if value.endswith(text):
                    yield number
        for size, keys in self._parts.items():
            for start in range(len(value) - size + 1):
                for text, number in keys.get(value[start : start + size], ()):
                    if value.startswith(text, start):
                        yield number
        for pattern, number in self._patterns:
            if search(pattern, value):
                yield number


def _key_size(text: str) -> int:
    return 1 << max(0, len(text).bit_length() - 1)


class Slot:
    """An attribute of a compiled index."""

    __slots__ = (
        "false",
        "has_points",
        "index",
        "name",
        "nan",
        "orders_strings",
        "strings",
        "texts",
        "unknown",
        "zone",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        index: int,
        nan: int,
        false: int,
        zone: int,
        strings: list[str],
        orders_strings: bool,
        has_points: bool,
        texts: TextIndex,
    ) -> None:
        self.name, self.index = name, index
        self.nan, self.false = nan, false
        self.zone, self.strings, self.orders_strings = zone, strings, orders_strings
        self.has_points = has_points  # whether single bounds count, and not only where a range ends
        self.texts = texts
        # The rank of all strings that are no bounds, if their order does not matter.
        self.unknown = zone + 2 if strings and strings[0] == "" else zone

    def rank_of_string(self, value: str) -> int:
        """The place of a string among the bounds."""
        place = bisect_left(self.strings, value)
        is_bound = place < len(self.strings) and self.strings[place] == value
        return self.zone + 2 * place + is_bound

    def rank_of_bool(self, value: bool) -> int:
        """The place of a boolean."""
        return self.false + 2 * value
