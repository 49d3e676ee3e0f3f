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
from angelia.routing.base import NOWHERE, Interests, Local, Routed, Router, Seen
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
        return self._flood([notification], None)[0]

    def publish_all(self, notifications: list[Notify]) -> list[Routed]:
        """Send several notifications everywhere."""
        return self._flood(notifications, None)

    def receive_all(self, peer: str, notifications: list[Notify]) -> list[Routed]:
        """Pass several notifications on."""
        self.check_peer(peer)
        return self._flood(notifications, peer)

    def receive(self, peer: str, message: Message) -> Routed:
        """Pass a notification on."""
        self.check_peer(peer)
        if not isinstance(message, Notify):
            raise RoutingError(f"event flooding does not understand {type(message).__name__}")
        return self._flood([message], peer)[0]

    def _flood(self, notifications: list[Notify], sender: str | None) -> list[Routed]:
        hops = [peer for peer in self.peers if peer != sender]
        return [
            self._sent(notification, audience, hops) if self._is_new(notification, sender) else NOWHERE
            for notification, audience in zip(
                notifications, self.interests.audiences(notifications), strict=True
            )
        ]

    def _is_new(self, notification: Notify, sender: str | None) -> bool:
        """Whether it was not here yet: what comes back to its origin was, perhaps before a restart."""
        is_back = sender is not None and notification.origin == self.name
        return not is_back and self.seen.is_new(notification)

    def interest(self, filter: Filter) -> bool:  # noqa: A002
        """Whether a subscription is known that overlaps."""
        return bool(self.peers) or self.interests.overlap(filter)

    def state(self) -> Mapping[str, Any]:
        """The subscriptions of the local parties."""
        return {"subscriptions": self.interests.table(), "neighbors": tuple(self.peers)}
