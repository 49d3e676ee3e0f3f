"""Event flooding: every event goes everywhere and is filtered at the edge.

The simplest routing there is (SIENA 5, first alternative of section 2), on any topology: a
notification that was here already goes no further. It is the oracle for all other routers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from angelia.errors import RoutingError
from angelia.filter import Filter
from angelia.messages import Message, Notify, Send
from angelia.routing.base import Interests, Local, Routed, Router, Seen
from angelia.types import TypeRegistry

__all__ = ["EventFlooding"]


class EventFlooding(Router):
    """A server that passes every notification on to all its neighbours."""

    def __init__(self, name: str, registry: TypeRegistry) -> None:
        super().__init__(name, registry)
        self.interests = Interests(registry)
        self.seen = Seen()

    def subscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002 - what it is
        """A local party subscribes; nobody else needs to know."""
        self.interests.add(party, filter)
        return []

    def unsubscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002
        """A local party cancels all its subscriptions that the filter covers."""
        for item in self.interests.of(party):
            if filter.covers(item, self.registry):
                self.interests.remove(party, item)
        return []

    def drop(self, party: Local) -> list[Send]:
        """Cancel all subscriptions of a local party."""
        for item in self.interests.of(party):
            self.interests.remove(party, item)
        return []

    def publish(self, notification: Notify) -> Routed:
        """Send a notification everywhere."""
        return self._flood(notification, None)

    def receive(self, peer: str, message: Message) -> Routed:
        """Pass a notification on."""
        self.check_peer(peer)
        if not isinstance(message, Notify):
            raise RoutingError(f"event flooding does not understand {type(message).__name__}")
        if message.origin == self.name:  # it has gone round; perhaps this server was restarted meanwhile
            return Routed(frozenset(), [])
        return self._flood(message, peer)

    def _flood(self, notification: Notify, sender: str | None) -> Routed:
        if not self.seen.is_new(notification):
            return Routed(frozenset(), [])
        interested = self.interests.interested(notification.event)
        return self._routed(notification, interested, (peer for peer in self.peers if peer != sender))

    def interest(self, filter: Filter) -> bool:  # noqa: A002
        """Whether a subscription is known that overlaps."""
        return bool(self.peers) or self.interests.overlap(filter)

    def state(self) -> Mapping[str, Any]:
        """The subscriptions of the local parties."""
        return {"subscriptions": self.interests.table(), "neighbors": tuple(self.peers)}
