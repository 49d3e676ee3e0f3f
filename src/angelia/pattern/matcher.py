"""Matching of sequences with the simplest possible semantics (SIENA 3.3).

A matcher waits for one part of its pattern at a time. It takes the first occurrence that it meets and
that was generated after the part before; all else it ignores. When the whole sequence is there, the
matching begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from angelia.event import Event
from angelia.pattern.pattern import Pattern

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["SequenceMatcher"]


class SequenceMatcher:
    """Recognises a sequence of parts: filters (as simple patterns), or patterns recognised elsewhere."""

    __slots__ = ("_events", "_next", "_parts")

    def __init__(self, parts: Iterable[Pattern]) -> None:
        self._parts = tuple(parts)
        self._next = 0
        self._events: tuple[Event, ...] = ()

    @classmethod
    def of(cls, pattern: Pattern) -> SequenceMatcher:
        """A matcher that recognises each filter of a pattern itself."""
        return cls(Pattern([item]) for item in pattern.filters)

    def see(self, event: Event, registry: TypeRegistry | None = None) -> tuple[Event, ...] | None:
        """Take an event, if it is what is waited for; returns the whole sequence when it is complete."""
        part = self._parts[self._next]
        if part.is_simple and part.filters[0].matches(event, registry):
            return self._take((event,))
        return None

    def hear(self, part: Pattern, events: tuple[Event, ...]) -> tuple[Event, ...] | None:
        """Take an occurrence of a pattern that was recognised elsewhere, if it is what is waited for."""
        return self._take(events) if part == self._parts[self._next] else None

    def _take(self, events: tuple[Event, ...]) -> tuple[Event, ...] | None:
        if self._events and not _is_after(events[0], self._events[-1]):
            return None
        self._events += events
        self._next += 1
        if self._next < len(self._parts):
            return None
        whole, self._events, self._next = self._events, (), 0
        return whole


def _is_after(event: Event, before: Event) -> bool:
    """Whether an event was generated after another; events without a time are, as they come."""
    return event.time is None or before.time is None or event.time > before.time
