"""An interested party: one subscription of a client, with a queue of its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from angelia.bus.history import CHUNK
from angelia.bus.mailbox import Mailbox, Policy
from angelia.errors import AngeliaError, EventTypeError, RequestError
from angelia.event import Event
from angelia.filter import Filter
from angelia.pattern import Pattern
from angelia.types import from_event

if TYPE_CHECKING:
    from angelia.bus.session import Requests
    from angelia.store.seam import CatchUp

__all__ = ["Handle", "Item", "Party", "SubscriptionStats", "Wanted", "log", "removed_type"]

T = TypeVar("T")

Item = Event | tuple[Event, ...]  # an event, or those that match a pattern
Wanted = str | Filter | Pattern | type[T]

log = logging.getLogger("angelia.bus")


@dataclass(frozen=True)
class SubscriptionStats:
    """A subscription, seen from outside. `received` is all that matched; `dropped` is part of it."""

    name: str
    filter: Filter | Pattern
    policy: Policy
    size: int
    queued: int
    received: int
    dropped: int
    failed: int


def removed_type(name: str) -> EventTypeError:
    """Why the subscriptions of a type are over."""
    return EventTypeError(f"the event type {name} was removed, and with it what was subscribed to of it")


class Party(Generic[T]):
    """Who wants what, and what has come for it."""

    __slots__ = ("_class", "age", "failed", "filter", "mailbox", "name", "session")

    def __init__(
        self,
        session: Requests,
        what: Wanted[T],
        where: str | Filter | None,
        mailbox: Mailbox[Item],
    ) -> None:
        self.session = session
        self.filter = session.wanted(what, where)
        self.mailbox = mailbox
        self.failed = 0
        self.name, self.age = session.subscribe(self)
        self._class = what if isinstance(what, type) else None

    def decode(self, item: Item) -> T:
        """What the subscriber sees of an event: an instance, if it asked for a class."""
        if self._class is None or isinstance(item, tuple):
            return item  # type: ignore[return-value] # T is Item where no class is asked for
        return from_event(self._class, item, self.session.registry)

    def is_of(self, event_type: str) -> bool:
        """Whether nothing comes of this if there are no events of a type."""
        filters = self.filter.filters if isinstance(self.filter, Pattern) else (self.filter,)
        wanted = Filter.of_type(event_type)
        return any(wanted.covers(item) for item in filters)

    def take_all(self) -> list[T]:
        """All that is in the queue."""
        return [self.decode(self.mailbox.get()) for _ in range(len(self.mailbox))]

    def close(self) -> None:
        """Unsubscribe, and forget what is in the queue."""
        self.session.unsubscribe(self)
        self.mailbox.discard()

    def count_failure(self) -> None:
        """Its callback raised."""
        self.failed += 1
        self.session.count_failure()

    def report_failure(self, item: Item) -> None:
        """Tell in the log what its callback raised."""
        ids = ", ".join(str(event.id) for event in (item if isinstance(item, tuple) else (item,)))
        log.exception("the callback of %s (%s) failed for the event %s", self.name, self.filter, ids)

    def stats(self) -> SubscriptionStats:
        """The subscription as numbers."""
        box = self.mailbox
        return SubscriptionStats(
            name=self.name,
            filter=self.filter,
            policy=box.policy,
            size=box.size,
            queued=len(box),
            received=box.received,
            dropped=box.dropped,
            failed=self.failed,
        )


class Handle(Generic[T]):
    """What a subscription of either shell tells of itself."""

    __slots__ = ("__weakref__", "_callback", "_mailbox", "_party", "_past")

    def __init__(
        self,
        session: Requests,
        what: Wanted[T],
        where: str | Filter | None,
        size: int,
        policy: Policy,
        arrived: Callable[[], None],
        callback: Callable[[T], object] | None,
        since: datetime | str | None = None,
    ) -> None:
        self._callback = callback
        self._mailbox: Mailbox[Item] = Mailbox(size, policy, arrived)
        self._past: CatchUp | None = None
        if since is not None:
            self._past = session.past(session.wanted(what, where), since)
            self._mailbox.is_behind = self._past is not None
        try:
            self._party: Party[T] = Party(session, what, where, self._mailbox)
        except AngeliaError:
            self._leave_past()
            raise

    @property
    def _past_chunk(self) -> int:
        return min(CHUNK, self._mailbox.size)

    def _take_past(self, events: Iterable[Event]) -> None:
        """Queue what was read of the past; at its end go live. Nothing is appended while this runs."""
        if self._past is None or not self._mailbox.is_open:
            self._leave_past()
            return
        self._mailbox.feed(events)
        if self._past.is_done:
            self._leave_past()

    def _leave_past(self) -> None:
        self._mailbox.is_behind = False
        if self._past is not None:
            self._past.close()
            self._past = None

    def _check_readable(self) -> None:
        if self._callback is not None:
            raise RequestError("the events of this subscription go to its callback")

    @property
    def name(self) -> str:
        """The name of the subscription, while it is open."""
        return self._party.name

    @property
    def filter(self) -> Filter | Pattern:
        """What it is for."""
        return self._party.filter

    @property
    def dropped(self) -> int:
        """How many events the queue had no room for."""
        return self._mailbox.dropped

    def limit_bytes(self, most: int) -> None:
        """Drop the oldest events in the queue also where all take more bytes than this."""
        self._mailbox.limit_bytes(most)

    def stats(self) -> SubscriptionStats:
        """The subscription as numbers."""
        return self._party.stats()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {str(self.filter)!r}>"
