"""The oracle of patterns: what is delivered as a sequence is what a matcher of our own finds.

Beside a pattern, a client subscribes to each of its filters, by another party of its own. So it is told of
every event that comes to its broker for the pattern, in the order in which they come; a matcher that is fed
with these must find the same sequences, no more and no fewer, whatever happens to the network meanwhile.

Where neighbours recognise parts of a pattern (`advertisement`), what is found may differ, as
`docs/routing.md` tells; then a sequence must match its pattern, in order, and come once.
"""

from __future__ import annotations

from itertools import pairwise

from angelia.event import Event
from angelia.pattern import Pattern, SequenceMatcher
from angelia.sim.errors import Violation
from angelia.types import TypeRegistry

__all__ = ["EXACT", "Sequences"]

# The routers that recognise patterns at the access point alone.
EXACT = frozenset({"flooding", "subscription_flooding", "hierarchical", "peer", "general", "hybrid"})


class Sequences:
    """The patterns that are watched."""

    def __init__(self, is_exact: bool) -> None:
        self._is_exact = is_exact
        self._patterns: dict[str, Pattern] = {}
        self._matchers: dict[str, tuple[str, SequenceMatcher]] = {}  # by who observes: for whom
        self._due: list[tuple[str, tuple[Event, ...]]] = []
        self._came: set[tuple[str, tuple[str | None, ...]]] = set()

    def watch(self, identity: str, observer: str, pattern: Pattern) -> None:
        """A party asks for a pattern, and an observer for its filters, now."""
        self._patterns[identity] = pattern
        self._matchers[observer] = identity, SequenceMatcher.of(pattern)

    def forget(self, observer: str) -> None:
        """An observer and its pattern are gone."""
        identity, _ = self._matchers.pop(observer, ("", None))
        self._patterns.pop(identity, None)
        self._due = [due for due in self._due if due[0] != identity]

    def observed(self, observer: str, event: Event, registry: TypeRegistry) -> None:
        """An event came to an observer."""
        if observer in self._matchers:
            identity, matcher = self._matchers[observer]
            if self._is_exact and (found := matcher.see(event, registry)):
                self._due.append((identity, found))

    def came(self, identity: str, events: tuple[Event, ...], registry: TypeRegistry) -> None:
        """A sequence came to a party."""
        pattern = self._patterns.get(identity)
        if pattern is None:
            raise Violation(f"a sequence came to {identity}, which has not asked for one")
        if self._is_exact:
            if (identity, events) not in self._due:
                raise Violation(f"{_ids(events)} came to {identity} as a sequence, which it is not")
            self._due.remove((identity, events))
        self._check(identity, pattern, events, registry)

    def _check(
        self, identity: str, pattern: Pattern, events: tuple[Event, ...], registry: TypeRegistry
    ) -> None:
        matches = [f.matches(e, registry) for f, e in zip(pattern.filters, events, strict=True)]
        rises = [a.time < b.time for a, b in pairwise(events) if a.time and b.time]
        if not all(matches) or not all(rises):
            raise Violation(f"{_ids(events)} came to {identity}, but does not match its pattern")
        key = identity, tuple(event.id for event in events)
        if key in self._came:
            raise Violation(f"{_ids(events)} came to {identity} twice")
        self._came.add(key)

    def end(self) -> None:
        """At rest: nothing is missing."""
        for identity, events in self._due:
            raise Violation(f"the sequence {_ids(events)} did not come to {identity}")


def _ids(events: tuple[Event, ...]) -> str:
    return " ".join(event.id or "?" for event in events)
