"""Clients of the simulated brokers, as a client library is: they know what they asked for.

After a restart of their broker they ask for it again; and the checkers know from them who wants what.
Event types are not theirs to repeat: brokers learn them from each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.messages import Advertise, Request, Subscribe, Unadvertise, Unsubscribe
from angelia.types import TypeRegistry

__all__ = ["Client"]


class Client:
    """A client of a broker, with the parties that it speaks for."""

    def __init__(self, name: str, broker: str) -> None:
        self.name = name
        self.broker = broker
        self.subscriptions: dict[str, list[Filter]] = {}
        self.advertisements: dict[str, list[Advertisement]] = {}

    def note(self, request: Request, registry: TypeRegistry) -> None:
        """A request was granted: what stands now."""
        who = request.identity
        match request:
            case Subscribe():
                self.subscriptions.setdefault(who, []).append(request.filter)
            case Unsubscribe(filter=cancel):
                left = [f for f in self.subscriptions.get(who, ()) if not cancel.covers(f, registry)]
                self.subscriptions[who] = left
            case Advertise():
                self.advertisements.setdefault(who, []).append(request.advertisement)
            case Unadvertise(advertisement=cancel_all):
                kept = [a for a in self.advertisements.get(who, ()) if not cancel_all.covers(a, registry)]
                self.advertisements[who] = kept

    def lose(self, event_type: str, registry: TypeRegistry) -> None:
        """An event type was removed: what was asked for and advertised of it does not stand."""
        for who in {*self.subscriptions, *self.advertisements}:
            self.note(Unsubscribe(who, Filter.of_type(event_type)), registry)
            self.note(Unadvertise(who, Advertisement(None, event_type)), registry)

    def forget(self) -> None:
        """Nothing stands any more: the broker was restarted, and the client does not ask again."""
        self.subscriptions.clear()
        self.advertisements.clear()

    def standing(self) -> Iterator[Request]:
        """The requests that bring a new broker to where the old one was."""
        for who, advertisements in self.advertisements.items():
            yield from (Advertise(who, item) for item in advertisements)
        for who, filters in self.subscriptions.items():
            yield from (Subscribe(who, item) for item in filters)

    def wants(self, identity: str, event: Event, registry: TypeRegistry) -> bool:
        """Whether a party of this client is to have an event."""
        return any(item.matches(event, registry) for item in self.subscriptions.get(identity, ()))

    def allowing(self, identity: str, event: Event) -> list[Advertisement]:
        """The advertisements of a party that allow an event, whatever types inherit from which."""
        return [item for item in self.advertisements.get(identity, ()) if item.advertises(event)]

    def may_publish(self, identity: str, event: Event, registry: TypeRegistry) -> bool:
        """Whether a party has advertised an event."""
        return any(item.advertises(event, registry) for item in self.advertisements.get(identity, ()))
