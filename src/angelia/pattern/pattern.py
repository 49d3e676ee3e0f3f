"""Patterns: sequences of filters, matched by temporally ordered sequences of events (SIENA 3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from angelia.errors import FilterError, FilterLimitError
from angelia.filter import Filter
from angelia.filter.parser import split_sequence

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["MAX_FILTERS", "Pattern"]

MAX_FILTERS = 64  # patterns come from strangers, and each of their filters is a subscription


class Pattern:
    """An immutable sequence of filters: `Pattern.parse('stock = "MSFT" then stock = "NSCP"')`.

    A pattern of one filter is *simple* (3.3).
    """

    __slots__ = ("_hash", "filters")

    filters: tuple[Filter, ...]
    _hash: int

    def __init__(self, filters: Iterable[Filter]) -> None:
        object.__setattr__(self, "filters", tuple(filters))
        object.__setattr__(self, "_hash", hash(self.filters))
        if not 0 < len(self.filters) <= MAX_FILTERS:
            raise FilterError(f"a pattern has 1 to {MAX_FILTERS} filters, not {len(self.filters)}")

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """The pattern of filters joined by `then`, or a `FilterSyntaxError` that points at the column."""
        spans = split_sequence(text)
        if len(spans) > MAX_FILTERS:
            raise FilterLimitError(
                f"a pattern has at most {MAX_FILTERS} filters, not {len(spans)}", text, spans[MAX_FILTERS][0]
            )
        return cls(_filter(text, start, end) for start, end in spans)

    @property
    def is_simple(self) -> bool:
        """Whether this is a single filter."""
        return len(self.filters) == 1

    def covers(self, other: Pattern, registry: TypeRegistry | None = None) -> bool:
        """Whether each filter covers that of `other` in its place (3.7); patterns of other lengths never.

        This is what an unsubscription cancels. It does not mean that one pattern can stand for the
        other: which events a pattern waits for depends on those that it has taken.
        """
        return len(self) == len(other) and all(
            mine.covers(theirs, registry) for mine, theirs in zip(self.filters, other.filters, strict=True)
        )

    def __len__(self) -> int:
        return len(self.filters)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pattern):
            return NotImplemented
        return self._hash == other._hash and self.filters == other.filters

    def __hash__(self) -> int:
        return self._hash

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Pattern is immutable")

    def __reduce__(self) -> tuple[object, ...]:
        return Pattern, (self.filters,)

    def __str__(self) -> str:
        """Canonical text: `Pattern.parse(str(p)) == p`."""
        return " then ".join(map(str, self.filters))

    def __repr__(self) -> str:
        return f"Pattern({str(self)!r})"


def _filter(text: str, start: int, end: int) -> Filter:
    try:
        return Filter.parse(text[start:end])
    except FilterLimitError as error:
        raise FilterLimitError(error.message, text, start) from None
