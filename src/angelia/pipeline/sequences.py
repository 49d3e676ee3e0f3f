"""Sequences in event-time order: the matcher of SIENA 3.3 over rows that say which parts an event matches.

`angelia.pattern.SequenceMatcher` looks at whole events one by one. Here the engine has found the parts
beforehand, in bulk, as bits of a mask, so that an event is its id, its time and its mask. Everything else
is the same: one part is waited for at a time, the first event that matches it and is later than the one
before is taken, and when the sequence is whole the matching begins anew. With `within`, a sequence that
was begun longer ago than that is given up, and the event at hand may begin another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["Found", "Seen", "Sequences", "Taken"]

Taken = list[tuple[int, str]]  # times (microseconds) and ids of the events of a sequence so far


class Seen(NamedTuple):
    """An event that matches some part; sorts by its time."""

    time: int
    id: str
    key: str
    parts: int  # bit i: the i-th filter matches


class Found(NamedTuple):
    """A whole sequence."""

    key: str
    events: Taken


class Sequences:
    """The sequences of all keys; `taken` is all the state there is."""

    def __init__(self, length: int, within: int | None = None, taken: dict[str, Taken] | None = None) -> None:
        self._length = length
        self._within = within
        self.taken: dict[str, Taken] = {} if taken is None else taken

    def see(self, events: Iterable[Seen]) -> Iterator[Found]:
        """Take events, in the order of their times; gives the sequences that they complete."""
        for event in events:
            taken = self.taken.get(event.key, [])
            if taken and self._is_over(taken, event.time):
                taken = self.taken[event.key] = []
            if not event.parts >> len(taken) & 1 or (taken and event.time <= taken[-1][0]):
                continue
            taken = [*taken, (event.time, event.id)]
            if len(taken) == self._length:
                self.taken.pop(event.key, None)
                yield Found(event.key, taken)
            else:
                self.taken[event.key] = taken

    def expire(self, now: int) -> None:
        """Forget sequences that nothing after `now` can complete."""
        over = [key for key, taken in self.taken.items() if not taken or self._is_over(taken, now)]
        for key in over:
            del self.taken[key]

    def _is_over(self, taken: Taken, time: int) -> bool:
        return self._within is not None and time - taken[0][0] > self._within
