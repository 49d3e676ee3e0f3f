"""A client whose broker is elsewhere: what both shells share. Calls and deliveries must not overlap."""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import Any

import msgspec

from angelia.bus.mailbox import Ticket
from angelia.bus.party import Item, Party, removed_type
from angelia.bus.session import Requests, subscription
from angelia.client.uplink import Done, Options, Uplink, refusal
from angelia.errors import AngeliaError, ClosedError, EventTypeError, RequestError
from angelia.event import Event, parse_timestamp
from angelia.filter import Advertisement, Filter
from angelia.messages import (
    Advertise,
    DefineType,
    Request,
    Subscribe,
    SubscribePattern,
    Unadvertise,
    Unsubscribe,
    UnsubscribePattern,
)
from angelia.pattern import Pattern
from angelia.types import EventType, TypeRegistry
from angelia.wire import Answer, Told

__all__ = ["RemoteSession", "number_of"]


class RemoteSession(Requests):
    """The subscriptions, advertisements and types of a client, and its uplink. `lock` guards them."""

    def __init__(self, options: Options, lock: AbstractContextManager[Any]) -> None:
        super().__init__(options.name, TypeRegistry())
        self.options = options
        self.uplink: Uplink | None = None
        self.failed = 0
        self._lock = lock
        self._entered = 0
        self._parties: dict[int, Party[Any]] = {}
        self._advertisements: dict[Advertisement, None] = {}
        self._defined: dict[str, EventType] = {}
        self._end: AngeliaError | None = None
        self._since: datetime | None = None  # of the next subscription

    @property
    def broker(self) -> str:
        """The name of the broker it is, or was last, connected to."""
        return self.uplink.broker if self.uplink is not None else ""

    def party(self, name: str) -> Party[Any] | None:
        """The subscription of that name, if it is open."""
        return self._parties.get(number_of(name))

    @abstractmethod
    def submit(self, action: Callable[[Uplink, Done], None]) -> Any:
        """Have an action of the uplink done that calls back when it is answered."""

    def subscriptions_after(self, identity: str) -> Any:
        """Ask for a page of what is subscribed to at the broker: identities with filters."""
        return self.submit(lambda uplink, done: uplink.subscriptions(identity, done))

    @abstractmethod
    def soon(self, action: Callable[[], None]) -> None:
        """Call something in the uplink's loop."""

    def _check_open(self) -> None:
        if self._end is not None:
            raise self._end
        if self.uplink is None:
            raise ClosedError("not connected yet: use `async with connect(…)`, or await it")

    def _request(self, request: Request) -> Any:
        self._remember(request)
        since, self._since = self._since, None
        if since is not None and isinstance(request, Subscribe):
            wanted = Subscribe(str(number_of(request.identity)), request.filter)
            return self.submit(lambda uplink, done: uplink.recall(wanted, since, done))
        return self.submit(lambda uplink, done: uplink.request(_own(request), done))

    def _remember(self, request: Request) -> None:
        """Note what must be asked for again at another broker."""
        match request:
            case Advertise(_, advertisement):
                self._advertisements[advertisement] = None
            case Unadvertise(_, advertisement):
                for one in list(self._advertisements):
                    if advertisement.covers(one, self.registry):
                        del self._advertisements[one]
            case DefineType(_, event_type):
                self._defined[event_type.name] = event_type
                self._learn(event_type)

    def past(self, wanted: Filter | Pattern, since: datetime | str) -> None:
        """The next subscription begins in the past, which its broker tells."""
        if isinstance(wanted, Pattern):
            raise RequestError("a pattern cannot be subscribed to in the past, only a filter")
        self._since = parse_timestamp(since) if isinstance(since, str) else since
        if self._since.tzinfo is None:
            self._since = None
            raise RequestError("since is a time with a time zone")

    def _learn(self, event_type: EventType) -> None:
        with suppress(EventTypeError):  # the broker says what is wrong with it
            self.registry.adopt(event_type)

    def answered(self, answer: Answer | AngeliaError) -> Any:
        """The value of an answer, or its error."""
        if isinstance(answer, AngeliaError):
            raise type(answer)(*answer.args)  # anew, for each its own
        if answer.error is not None:
            raise refusal(answer)
        return answer.value

    # ------------------------------------------------ subscriptions

    def enter(self, name: str, party: Party[Any]) -> int:
        """Note a subscription; returns its number among all."""
        self._parties[number_of(name)] = party
        self._entered += 1
        return self._entered

    def forget(self, party: Party[Any]) -> bool:
        """Drop a subscription; whether it was there."""
        number = number_of(party.name)
        if self._parties.get(number) is not party:
            return False
        del self._parties[number]
        return self._end is None

    def count_failure(self) -> None:
        """A callback raised."""
        self.failed += 1

    # ------------------------------------------------ what comes in (see `Listener`)

    def on_events(self, items: Sequence[Told[Event]]) -> None:
        """Put events into the queues of their subscriptions."""
        with self._lock:
            for item in items:
                for number in item.numbers:
                    self._put(number, item.event)

    def _put(self, number: int, event: Event) -> None:
        party = self._parties.get(number)
        if party is not None:
            ticket = party.mailbox.put(event)
            if ticket is not None:
                self._full(party, ticket)

    def on_sequence(self, numbers: tuple[int, ...], events: tuple[Event, ...]) -> None:
        """Put events that match a pattern into queues."""
        with self._lock:
            for number in numbers:
                party = self._parties.get(number)
                ticket = party.mailbox.put(events) if party is not None else None
                if party is not None and ticket is not None:
                    self._full(party, ticket)

    def _full(self, party: Party[Any], ticket: Ticket[Item]) -> None:
        """A queue is full: hold back the broker, or end the subscription, if that is its policy."""
        if not ticket.admitted:
            self._hold(ticket)
        if not party.mailbox.is_open:  # by its policy, just now
            self.soon(lambda: self.unsubscribe_quietly(party))

    def unsubscribe_quietly(self, party: Party[Any]) -> None:
        """Cancel a subscription, if it is there; nobody waits for the answer."""
        with self._lock:
            if self.forget(party) and self.uplink is not None:
                self.uplink.unsubscribe(_end(party), self._freeing(party, _nobody))

    def unsubscribe(self, party: Party[Any]) -> Any:
        """Cancel a subscription, unless it is over."""
        if not self.forget(party):
            return None
        return self.submit(lambda uplink, done: uplink.unsubscribe(_end(party), self._freeing(party, done)))

    def _freeing(self, party: Party[Any], done: Done) -> Done:
        """Use the number of a subscription again once the broker has let go of it.

        Before, events for the old one may come. The answer follows them, unless events are held.
        """

        def freed(answer: Answer | AngeliaError) -> None:
            with self._lock:
                if isinstance(answer, Answer) and self.uplink is not None and not self.uplink.is_held:
                    heapq.heappush(self._free, number_of(party.name))
            done(answer)

        return freed

    def _hold(self, ticket: Ticket[Item]) -> None:
        """A queue is full and wants its publisher to wait: the publisher is the broker."""
        uplink = self.uplink
        assert uplink is not None  # something came in
        uplink.hold()
        ticket.wake = lambda: self.soon(uplink.release)

    def on_types(self, event_types: tuple[EventType, ...]) -> None:
        """Learn event types."""
        with self._lock:
            for event_type in event_types:
                self._learn(event_type)

    def on_type_removed(self, name: str) -> None:
        """An event type is gone: what was subscribed to and advertised of it is over."""
        with self._lock:
            if name in self.registry:
                self.registry.adopt_removal(self.registry.get(name))
            self._defined.pop(name, None)
            offered = Advertisement(None, name)
            for one in [one for one in self._advertisements if offered.covers(one)]:
                del self._advertisements[one]
            for number, party in list(self._parties.items()):
                if party.is_of(name):
                    del self._parties[number]
                    party.mailbox.fail(removed_type(name))

    def standing(self) -> Iterable[Request]:
        """Types, advertisements and subscriptions, for a broker that knows nothing of them."""
        with self._lock:
            return [
                *(DefineType(self.name, event_type) for event_type in self._defined.values()),
                *(Advertise(self.name, advertisement) for advertisement in self._advertisements),
                *(subscription(str(number), party.filter) for number, party in self._parties.items()),
            ]

    def on_end(self, error: AngeliaError) -> None:
        """No more will come."""
        with self._lock:
            self._end = error
            for party in self._parties.values():
                party.mailbox.finish() if isinstance(error, ClosedError) else party.mailbox.fail(error)
            self._parties.clear()


def number_of(name: str) -> int:
    """The number of a subscription, of its name."""
    return int(name.rpartition("#")[2])


def _end(party: Party[Any]) -> Unsubscribe | UnsubscribePattern:
    number, wanted = str(number_of(party.name)), party.filter
    return UnsubscribePattern(number, wanted) if isinstance(wanted, Pattern) else Unsubscribe(number, wanted)


def _own(request: Request) -> Request:
    """The request as the broker wants it: it knows who asks; a subscription has a number."""
    if isinstance(request, Subscribe | SubscribePattern | Unsubscribe | UnsubscribePattern):
        return msgspec.structs.replace(request, identity=request.identity.rpartition("#")[2])
    return request


def _nobody(answer: Answer | AngeliaError) -> None:
    """Nobody waits for the answer."""
