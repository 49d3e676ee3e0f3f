"""The seam between past and present: history from the lake, then live, with no gap and no duplicate.

There are two ways to know where history ends. Who drives them waits and locks as it likes: nothing here does.

`CatchUp` is exact, for a subscriber in the process that writes the lake. A position in what is appended parts
past from present: all before it comes from a snapshot, in order of time; what is appended meanwhile is read
from the segments behind it, which the writer keeps so long. When it has read all there is, and nobody can
append just now, the subscriber goes live. Nothing is queued before, however long it takes: memory is
bounded by what is read at once, and no publisher waits for a subscriber that is still in the past.

`Seam` is for subscribers that get live events from elsewhere, say from other brokers: the subscription stands
first, then the snapshot is taken. What comes live meanwhile is held, and what is in both is told by its id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice

from angelia.errors import LakeError
from angelia.event import Event
from angelia.filter import Filter
from angelia.store.lake import Lake, Moment, Snapshot, moment
from angelia.store.layout import wal_folder
from angelia.store.scan import Scan
from angelia.store.segment import Parts, event_of, read_segment
from angelia.store.writer import LakeWriter, Position
from angelia.types import TypeRegistry

__all__ = ["CatchUp", "Seam", "replay"]


class CatchUp:
    """What a subscription wants of the past, and of what has come since: `read` until `is_done`.

    Made, and asked whether it `is_done`, while nothing is appended; read whenever it suits.
    """

    def __init__(
        self,
        writer: LakeWriter,
        filter: Filter,  # noqa: A002 - what it is
        registry: TypeRegistry | None,
        since: Moment,
    ) -> None:
        self._writer = writer
        self._filter = filter
        self._registry = registry
        self._since = moment(since)
        self._position = self._stop = self._start = writer.position()
        self._token: object = writer.hold(self._position)
        self._history: Iterator[Event] | None = None
        self._records: Iterator[tuple[int, list[Parts]]] = iter(())
        self._in_past = True

    @property
    def is_done(self) -> bool:
        """Whether all that was appended so far has been read."""
        return not self._in_past and self._next() is None

    def read(self, limit: int) -> list[Event]:
        """The next events, `limit` at most (a batch that was appended as one may exceed it)."""
        if self._in_past:
            if self._history is None:
                self._history = self._past()
            events = list(islice(self._history, limit))
            self._in_past = bool(events)
            if events:
                return events
        return self._tail(limit)

    def close(self) -> None:
        """Let the writer go on without us."""
        self._writer.release(self._token)

    def _past(self) -> Iterator[Event]:
        lake = Lake(self._writer.lake)
        snapshot = _cut(lake.snapshot(since=self._since), self._writer, self._start)
        return Scan(lake, None, self._filter, self._since, None, snapshot).events()

    def _tail(self, limit: int) -> list[Event]:
        """What was appended since, in that order."""
        found: list[Event] = []
        while True:
            for offset, rows in self._records:
                self._position = Position(self._position.segment, offset)
                found += filter(self._wants, map(event_of, rows))
                if len(found) >= limit:
                    return found
            self._position = max(self._position, self._stop)  # past what was damaged, too
            piece = self._next()
            if piece is None:
                return found
            number, start, stop = piece
            self._position, self._stop = Position(number, start), Position(number, stop)
            self._writer.hold(self._position, self._token)
            self._records = read_segment(self._writer.path(number), start, stop)

    def _next(self) -> tuple[int, int, int] | None:
        """What is behind our position: a segment, from where to where; None if nothing is."""
        end = self._writer.position()
        number = self._writer.following(self._position.segment)
        while number is not None:
            start = self._position.offset if number == self._position.segment else 0
            stop = end.offset if number == end.segment else self._writer.path(number).stat().st_size
            if start < stop:
                return number, start, stop
            number = self._writer.following(number + 1)
        return None

    def _wants(self, event: Event) -> bool:
        is_late_enough = self._since is None or (event.time is not None and event.time >= self._since)
        return is_late_enough and self._filter.matches(event, self._registry)


def _cut(snapshot: Snapshot, writer: LakeWriter, at: Position) -> Snapshot:
    """A snapshot without what its writer appended from a position on."""
    own = wal_folder(writer.lake, writer.broker_id).name
    segments = tuple(
        replace(each, size=min(each.size, at.offset))
        if each.broker == own and each.number == at.segment
        else each
        for each in snapshot.segments
        if each.broker != own or each.number <= at.segment
    )
    files = tuple(each for each in snapshot.files if each.broker != own or each.segment < at.segment)
    return Snapshot(files, segments)


class Seam:
    """Joins a history to live events that may be part of it, by their ids.

    Give it what comes live (`offer`) from before the snapshot of the history was taken; `read` until it
    `is_live`. At most `size` live events are held; beyond, `offer` raises, and the subscription has to begin
    again. The ids of the last `window` events of the history are remembered.
    """

    def __init__(self, history: Iterator[Event], size: int = 65_536, window: int = 65_536) -> None:
        self.is_live = False
        self._history = history
        self._size = size
        self._window = window
        self._held: dict[str | None, list[Event]] = {}
        self._count = 0
        self._seen: dict[str | None, None] = {}

    def offer(self, event: Event) -> bool:
        """An event has come live. True: pass it on. False: its time will come, or it was there before."""
        if event.id in self._seen:
            return False
        if self.is_live:
            return True
        if self._count >= self._size:
            raise LakeError(
                f"{self._size} events came live while history was read: too many to hold; "
                "subscribe again, from a later time"
            )
        self._held.setdefault(event.id, []).append(event)
        self._count += 1
        return False

    def read(self, limit: int) -> list[Event]:
        """The next events of the history, `limit` at most; at its end, what was held, and we are live."""
        if self.is_live:
            return []
        events = list(islice(self._history, limit))
        for event in events:
            self._count -= len(self._held.pop(event.id, ()))
            self._seen[event.id] = None
        for _ in range(len(self._seen) - self._window):
            del self._seen[next(iter(self._seen))]
        if len(events) < limit:
            self.is_live = True
            events += [event for same in self._held.values() for event in same]
            self._held.clear()
        return events


def replay(
    lake: Lake,
    filter: Filter | str,  # noqa: A002
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    *,
    rate: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Event]:
    """Past events that a filter matches, in order of time; at most `rate` a second, if that is given."""
    if rate is not None and not rate > 0:
        raise LakeError(f"a rate is a number of events a second above 0, not {rate}")
    start = clock()
    for number, event in enumerate(lake.events(filter=filter, since=since, until=until)):
        if rate is not None and (ahead := start + number / rate - clock()) > 0:
            sleep(ahead)
        yield event
