"""Monitors: how a server recognises the patterns that it was asked for (SIENA 5.3.3).

A pattern is split into factors. A factor that is one filter is a simple subscription, made by the
monitor as if it were a client; a longer one is recognised by a neighbour, which sends its occurrences.
Whoever asked for the pattern has a matcher of its own, so that matching begins when it asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from angelia.event import Event
from angelia.pattern import Pattern, SequenceMatcher
from angelia.routing.interfaces import Party, Peer
from angelia.types import TypeRegistry

__all__ = ["Factor", "Monitors", "Occurrence"]


class Factor(NamedTuple):
    """A part of a pattern, and the neighbour that recognises it; None if it is a filter."""

    pattern: Pattern
    delegate: str | None = None


class Occurrence(NamedTuple):
    """The events that match a pattern, and who asked for it."""

    pattern: Pattern
    subscriber: Party | Peer
    events: tuple[Event, ...]


class Monitors:
    """The patterns of a server with their factors and their subscribers."""

    def __init__(self, registry: TypeRegistry) -> None:
        self._registry = registry
        self._factors: dict[Pattern, tuple[Factor, ...]] = {}
        self._matchers: dict[Pattern, dict[Party | Peer, SequenceMatcher]] = {}

    # ------------------------------------------------ questions

    def __iter__(self) -> Iterator[Pattern]:
        return iter(list(self._matchers))

    def subscribers(self, pattern: Pattern) -> frozenset[Party | Peer]:
        """Who asked for a pattern."""
        return frozenset(self._matchers.get(pattern, ()))

    def factors(self, pattern: Pattern) -> tuple[Factor, ...]:
        """The factors of a pattern; none before it is split."""
        return self._factors.get(pattern, ())

    def of(self, who: Party | Peer) -> list[Pattern]:
        """The patterns that somebody asked for."""
        return [pattern for pattern, matchers in self._matchers.items() if who in matchers]

    def delegated(self) -> set[tuple[str, Pattern]]:
        """What the neighbours are asked to recognise."""
        return {(f.delegate, f.pattern) for several in self._factors.values() for f in several if f.delegate}

    def table(self) -> Mapping[Pattern, tuple[frozenset[Party | Peer], tuple[Factor, ...]]]:
        """Each pattern with its subscribers and factors."""
        return {pattern: (self.subscribers(pattern), self.factors(pattern)) for pattern in self}

    # ------------------------------------------------ changes

    def add(self, who: Party | Peer, pattern: Pattern) -> None:
        """Somebody asks for a pattern; to ask again changes nothing."""
        self._matchers.setdefault(pattern, {}).setdefault(who, self._matcher(pattern))

    def remove(self, who: Party | Peer, pattern: Pattern) -> bool:
        """Somebody no longer asks for a pattern; returns whether nobody does."""
        matchers = self._matchers[pattern]
        del matchers[who]
        if matchers:
            return False
        del self._matchers[pattern]
        self._factors.pop(pattern, None)
        return True

    def split(self, pattern: Pattern, factors: Iterable[Factor]) -> None:
        """Recognise a pattern by these factors from now on; what was half matched is lost."""
        self._factors[pattern] = tuple(factors)
        for who in self._matchers[pattern]:
            self._matchers[pattern][who] = self._matcher(pattern)

    def _matcher(self, pattern: Pattern) -> SequenceMatcher:
        return SequenceMatcher(factor.pattern for factor in self.factors(pattern))

    # ------------------------------------------------ matching

    def see(self, patterns: Iterable[Pattern], event: Event) -> list[Occurrence]:
        """An event for the monitors of some patterns; returns what it completes."""
        found = (
            (pattern, who, matcher.see(event, self._registry))
            for pattern in patterns
            for who, matcher in self._matchers[pattern].items()
        )
        return [Occurrence(pattern, who, events) for pattern, who, events in found if events]

    def hear(self, peer: str, part: Pattern, events: tuple[Event, ...]) -> list[Occurrence]:
        """An occurrence that a neighbour recognised; returns what it completes."""
        found = (
            (pattern, who, matcher.hear(part, events))
            for pattern, factors in self._factors.items()
            if Factor(part, peer) in factors
            for who, matcher in self._matchers[pattern].items()
        )
        return [Occurrence(pattern, who, events) for pattern, who, events in found if events]
