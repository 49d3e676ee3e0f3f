"""One client: its requests, and the names of its subscriptions; and one whose broker is in this process."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from angelia.bus.mailbox import Ticket
from angelia.bus.party import Item, Party, Wanted
from angelia.errors import AngeliaError, ClosedError, EventTypeError, RequestError
from angelia.event import Event
from angelia.filter import Advertisement, Filter, check_filter
from angelia.messages import (
    Advertise,
    ClientDown,
    DefineType,
    Interest,
    PublishAll,
    RemoveType,
    Request,
    Subscribe,
    SubscribePattern,
    Unadvertise,
    Unsubscribe,
    UnsubscribePattern,
)
from angelia.pattern import Pattern
from angelia.types import EventType, TypeRegistry, to_event, type_of
from angelia.types.binding import event_classes

if TYPE_CHECKING:
    from angelia.bus.core import Core
    from angelia.store.seam import CatchUp

__all__ = ["Requests", "Session", "subscription"]


class Requests(ABC):
    """A client as its own side sees it: what it asks for, in terms of the model. The shells speak for it."""

    def __init__(self, name: str, registry: TypeRegistry) -> None:
        self.name = name
        self.registry = registry
        # Numbers of closed subscriptions are used again: a node remembers every name it has seen.
        self._free: list[int] = []
        self._highest = 0

    @property
    @abstractmethod
    def broker(self) -> str:
        """The name of its broker."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise a `ClosedError` if it was closed."""

    @abstractmethod
    def past(self, wanted: Filter | Pattern, since: datetime | str) -> CatchUp | None:
        """What the next subscription wants of the time before it; None if the broker sees to it.

        A `RequestError` where there is no past.
        """

    @abstractmethod
    def _request(self, request: Request) -> Any:
        """Have a request done, or raise why not; what is returned is for the shell to wait for."""

    @abstractmethod
    def enter(self, name: str, party: Party[Any]) -> int:
        """Note a subscription; returns its number among all."""

    @abstractmethod
    def forget(self, party: Party[Any]) -> bool:
        """Drop a subscription; whether it was there."""

    @abstractmethod
    def count_failure(self) -> None:
        """A callback raised."""

    @abstractmethod
    def close(self) -> None:
        """End the client with all its subscriptions; what is in queues can still be read."""

    # ------------------------------------------------ publishers

    def publish_all(self, things: Iterable[object]) -> Any:
        """Publish events or instances."""
        return self._request(PublishAll(self.name, self.events_of(things)))

    def events_of(self, things: Iterable[object]) -> tuple[Event, ...]:
        """Events, and instances as events."""
        self._check_open()
        return tuple(one if isinstance(one, Event) else self._event_of(one) for one in things)

    def _event_of(self, instance: object) -> Event:
        if isinstance(instance, Mapping):
            raise RequestError(
                f"publish an Event, not a {type(instance).__name__}: Event({{…}}) makes one of it"
            )
        try:
            event = to_event(instance)
        except EventTypeError as error:
            raise RequestError(f"publish an Event or an instance of an event class: {error}") from None
        self._introduce(type(instance))
        return event

    def advertise(self, what: str | Advertisement | type[Any]) -> Any:
        """Tell what this client is going to publish."""
        self._check_open()
        return self._request(Advertise(self.name, self._advertisement(what)))

    def unadvertise(self, what: str | Advertisement | type[Any]) -> Any:
        """Cancel the advertisements of this client that this one covers."""
        self._check_open()
        return self._request(Unadvertise(self.name, self._advertisement(what)))

    def _advertisement(self, what: str | Advertisement | type[Any]) -> Advertisement:
        if isinstance(what, Advertisement):
            return what
        if isinstance(what, str):
            return Advertisement.parse(what)
        return Advertisement(None, self._type_name("an advertisement is a text, an Advertisement", what))

    def interest(self, what: str | Filter | type[Any]) -> Any:
        """Ask whether somebody has subscribed to some of this."""
        self._check_open()
        return self._request(Interest(self.name, self._filter(what)))

    # ------------------------------------------------ types

    def define(self, what: EventType | type[Any]) -> list[Any]:
        """Add an event type, or change it in a compatible way; a class with its ancestors."""
        self._check_open()
        types = [what] if isinstance(what, EventType) else map(type_of, event_classes(what))
        return [self._request(DefineType(self.name, event_type)) for event_type in types]

    def remove_type(self, name: str, owner: str | None = None) -> Any:
        """Remove an event type; what anybody has subscribed to and advertised of it is over."""
        self._check_open()
        return self._request(RemoveType(self.name, name, owner))

    def _introduce(self, cls: type[Any]) -> None:
        """Define the types of a class that are not known yet. Those that are may have grown since."""
        if type_of(cls).name not in self.registry:
            for event_type in map(type_of, event_classes(cls)):
                if event_type.name not in self.registry:
                    self._request(DefineType(self.name, event_type))

    def _type_name(self, usage: str, what: object) -> str:
        if not isinstance(what, type):
            raise RequestError(f"{usage} or an event class, not {type(what).__name__}")
        self._introduce(what)
        return type_of(what).name

    # ------------------------------------------------ subscribers

    def wanted(self, what: Wanted[Any], where: str | Filter | None) -> Filter | Pattern:
        """The filter or pattern of a subscription; `where` narrows a filter."""
        self._check_open()
        asked = Pattern.parse(what) if isinstance(what, str) else what
        if isinstance(asked, Pattern) and not asked.is_simple:
            if where is not None:
                raise RequestError("where narrows a filter; of a pattern, narrow the filters themselves")
            return asked
        found = asked.filters[0] if isinstance(asked, Pattern) else self._filter(asked)
        return found if where is None else found & self._filter(where)

    def _filter(self, what: str | Filter | type[Any]) -> Filter:
        if isinstance(what, Filter):
            return what
        if isinstance(what, str):
            return Filter.parse(what)
        return Filter.of_type(self._type_name("a filter is a text, a Filter, a Pattern", what))

    def subscribe(self, party: Party[Any]) -> tuple[str, int]:
        """Enter a subscription; returns its name and number."""
        number = heapq.heappop(self._free) if self._free else self._highest + 1
        self._highest = max(self._highest, number)
        party.name = f"{self.name}#{number}"
        age = self.enter(party.name, party)  # first: events may come before the answer is seen
        try:
            self._request(subscription(party.name, party.filter))
        except AngeliaError:
            self.forget(party)
            heapq.heappush(self._free, number)
            raise
        return party.name, age

    def unsubscribe(self, party: Party[Any]) -> Any:
        """Cancel a subscription, unless it is over."""
        if not self.forget(party):
            return None
        name, wanted = party.name, party.filter
        done = self._request(
            UnsubscribePattern(name, wanted) if isinstance(wanted, Pattern) else Unsubscribe(name, wanted)
        )
        heapq.heappush(self._free, int(party.name.rpartition("#")[2]))
        return done


def subscription(name: str, wanted: Filter | Pattern) -> Subscribe | SubscribePattern:
    """The request of a subscription."""
    return SubscribePattern(name, wanted) if isinstance(wanted, Pattern) else Subscribe(name, wanted)


class Session(Requests):
    """A client at a broker in the same process."""

    def __init__(self, core: Core, name: str, broker: str) -> None:
        super().__init__(name, core.network.node(broker).registry)
        self.core = core
        self.is_closed = False
        self._broker = broker

    @property
    def broker(self) -> str:
        """The name of its broker."""
        return self._broker

    def _check_open(self) -> None:
        self.core.check_open()
        if self.is_closed:
            raise ClosedError(f"the client {self.name!r} is closed")

    def _request(self, request: Request) -> list[Ticket[Item]]:
        """Have a request done, or raise why not; a publication returns who is to be waited for."""
        reply, tickets = self.core.request(self, request)
        if reply.error is not None:
            raise _refusal(request, reply.error, self.registry)
        if isinstance(request, PublishAll):
            self.core.published += len(request.events)
        return tickets

    def past(self, wanted: Filter | Pattern, since: datetime | str) -> CatchUp:
        """What a subscription wants of the time before it, from the lake of the bus."""
        if self.core.lake is None:
            raise RequestError("this bus keeps no past to subscribe to; make it with Bus(lake=DIRECTORY)")
        if isinstance(wanted, Pattern):
            raise RequestError("a pattern cannot be subscribed to in the past, only a filter")
        from angelia.store.seam import CatchUp

        return CatchUp(self.core.lake, wanted, self.registry, since)

    def interest(self, what: str | Filter | type[Any]) -> bool:
        """Whether somebody has subscribed to some of this."""
        self._check_open()
        return bool(self.core.request(self, Interest(self.name, self._filter(what)))[0].value)

    def enter(self, name: str, party: Party[Any]) -> int:
        """Note a subscription; returns its number among all."""
        return self.core.enter(name, party)

    def forget(self, party: Party[Any]) -> bool:
        """Drop a subscription; whether it was there."""
        if self.core.parties.get(party.name) is not party:
            return False
        self.core.forget(party)
        return True

    def count_failure(self) -> None:
        """A callback raised."""
        self.core.failed += 1

    def close(self) -> None:
        """End the client with all its subscriptions; what is in queues can still be read."""
        if self.is_closed:
            return
        self.is_closed = True
        del self.core.sessions[self.name]
        self.core.network.run([(self.broker, ClientDown(self.name))], self.core.clock())
        for party in [one for one in self.core.parties.values() if one.session is self]:
            self.core.forget(party)
            party.mailbox.finish()


def _refusal(request: Request, reason: str, registry: TypeRegistry) -> AngeliaError:
    """Why a request was refused: the error behind the reason where it can be told, or a `RequestError`."""
    try:
        for event in request.events if isinstance(request, PublishAll) else ():
            registry.check(event)
        if isinstance(request, Subscribe | SubscribePattern):
            for wanted in _filters(request.filter if isinstance(request, Subscribe) else request.pattern):
                check_filter(wanted, registry)
    except AngeliaError as error:
        if str(error) == reason:
            return error
    return RequestError(reason)


def _filters(wanted: Filter | Pattern) -> tuple[Filter, ...]:
    return wanted.filters if isinstance(wanted, Pattern) else (wanted,)
