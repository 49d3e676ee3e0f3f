"""Acyclic peer-to-peer servers (SIENA 5.2.3, 5.2.4).

With subscription forwarding, subscriptions go to all neighbours but those that know of a covering
one. With advertisement forwarding, advertisements do, and subscriptions go only to neighbours from
which a relevant advertisement came; a party may publish only what it has advertised (3.5).

The topology must be a tree. Each server tells its neighbours which servers it reaches; a connection
that would close a cycle is refused.

Departures from the paper: where the covering relation itself changes, because an event type became
known, filters with types are sent again, since a neighbour may have known the type before and have
taken one filter for covered by another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from angelia.errors import RoutingError
from angelia.event import Event
from angelia.filter import Advertisement, Filter, advertisement_poset, subscription_poset
from angelia.messages import (
    Advertise,
    Message,
    Notify,
    Reach,
    Send,
    Subscribe,
    Unadvertise,
    Unsubscribe,
)
from angelia.routing.base import Interests, Interface, Party, Peer, Routed, Router
from angelia.routing.forwarding import Change, Forwarding
from angelia.types import TypeRegistry

__all__ = ["AdvertisementForwarding", "SubscriptionForwarding"]

NOWHERE = Routed(frozenset(), [])


class SubscriptionForwarding(Router):
    """A server of an acyclic peer-to-peer network with subscription forwarding (5.2.3)."""

    def __init__(self, name: str, registry: TypeRegistry) -> None:
        super().__init__(name, registry)
        self.subscriptions: Forwarding[Filter] = Forwarding(
            lambda: subscription_poset(registry), self.neighbors_of, _not_on_any_spanning_tree
        )
        self.interests = Interests(registry)
        self.reach: dict[str, frozenset[str]] = {}  # the servers beyond each neighbour
        self._handlers: dict[type, Callable[[Peer, Any], list[Send]]] = {
            Subscribe: lambda peer, message: self._subscribe(peer, message.filter),
            Unsubscribe: lambda peer, message: self._unsubscribe(peer, message.filter),
            Reach: self._on_reach,
        }

    def neighbors_of(self, filter: Filter) -> Iterable[str]:  # noqa: A002 - what it is
        """The neighbours that a subscription may be forwarded to: `neighbors_s` of 5.2.4."""
        return self.peers

    # ------------------------------------------------ subscriptions

    def subscribe(self, party: Party, filter: Filter) -> list[Send]:  # noqa: A002
        """A local party subscribes."""
        return self._subscribe(party, filter)

    def unsubscribe(self, party: Party, filter: Filter) -> list[Send]:  # noqa: A002
        """A local party cancels all its subscriptions that the filter covers."""
        return self._unsubscribe(party, filter)

    def leave(self, party: Party) -> list[Send]:
        """A local party is gone."""
        return self._dropped(party, *self.subscriptions.remove_all(party))

    def _subscribe(self, who: Interface, filter: Filter) -> list[Send]:  # noqa: A002
        added, dropped, changes = self.subscriptions.add(who, filter)
        for item in added:
            self.interests.add(who, item)
        return self._dropped(who, dropped, changes)

    def _unsubscribe(self, who: Interface, filter: Filter) -> list[Send]:  # noqa: A002
        return self._dropped(who, *self.subscriptions.remove(who, filter))

    def _dropped(self, who: Interface, items: list[Filter], changes: list[Change[Filter]]) -> list[Send]:
        for item in items:
            self.interests.remove(who, item)
        return self._tell(changes)

    def _tell(self, changes: list[Change[Filter]]) -> list[Send]:
        return [
            Send(peer, Subscribe(self.name, item) if added else Unsubscribe(self.name, item))
            for peer, item, added in changes
            if peer in self.peers
        ]

    # ------------------------------------------------ notifications

    def publish(self, notification: Notify) -> Routed:
        """Send a notification to every subscriber of a filter that covers it (5.2.3.5)."""
        return self._route(notification, None)

    def _route(self, notification: Notify, sender: Peer | None) -> Routed:
        interested = self.interests.interested(notification.event) - {sender}
        return Routed(
            frozenset(who.identity for who in interested if isinstance(who, Party)),
            [Send(peer, notification) for peer in sorted(w.name for w in interested if isinstance(w, Peer))],
        )

    # ------------------------------------------------ the network

    def peer_up(self, peer: str, master: bool) -> list[Send]:
        """Connect a neighbour and forward the roots to it (5.2.3.2)."""
        super().peer_up(peer, master)
        self.reach[peer] = frozenset()
        return [self._reach_for(peer), *self._tell(self.subscriptions.refresh())]

    def peer_down(self, peer: str) -> list[Send]:
        """Disconnect a neighbour: it no longer subscribes, and nothing is forwarded to it."""
        super().peer_down(peer)
        del self.reach[peer]
        self.subscriptions.forget(peer)
        dropped = self._dropped(Peer(peer), *self.subscriptions.remove_all(Peer(peer)))
        return [*dropped, *self._tell_reach(peer)]

    def _on_reach(self, peer: Peer, message: Reach) -> list[Send]:
        known = {self.name}.union(*(names for other, names in self.reach.items() if other != peer.name))
        twice = sorted(known & message.servers)
        if twice:
            raise RoutingError(
                f"the connection of {self.name} with {peer.name} closes a cycle: both reach "
                f"{', '.join(twice[:3])}; an acyclic network may not have one"
            )
        self.reach[peer.name] = message.servers
        return self._tell_reach(peer.name)

    def _tell_reach(self, but: str) -> list[Send]:
        return [self._reach_for(peer) for peer in self.peers if peer != but]

    def _reach_for(self, peer: str) -> Send:
        others = (names for other, names in self.reach.items() if other != peer)
        return Send(peer, Reach(frozenset({self.name}).union(*others)))

    def receive(self, peer: str, message: Message) -> Routed:
        """Process a message of a neighbour."""
        self.check_peer(peer)
        if isinstance(message, Notify):
            return self._route(message, Peer(peer))
        handler = self._handlers.get(type(message))
        if handler is None:
            raise RoutingError(f"{type(self).__name__} does not understand {type(message).__name__}")
        return Routed(frozenset(), handler(Peer(peer), message))

    def types_changed(self) -> list[Send]:
        """An event type became known or changed: what covers what may have changed."""
        changes = self._tell(self.subscriptions.rebuild())
        again = [
            Send(peer, Subscribe(self.name, item))
            for item in self.subscriptions.poset
            if any(part.types for part in item.conjunctions)
            for peer in sorted(self.subscriptions.forwards(item))
        ]
        return list(dict.fromkeys([*changes, *again]))

    def state(self) -> Mapping[str, Any]:
        """The subscriptions with their subscribers and forwards."""
        return {"subscriptions": self.subscriptions.table(), "neighbors": tuple(self.peers)}


class AdvertisementForwarding(SubscriptionForwarding):
    """A server of an acyclic peer-to-peer network with advertisement forwarding (5.2.4)."""

    def __init__(self, name: str, registry: TypeRegistry) -> None:
        super().__init__(name, registry)
        self.advertisements: Forwarding[Advertisement] = Forwarding(
            lambda: advertisement_poset(registry), lambda _: self.peers, _not_on_any_spanning_tree
        )
        self._handlers |= {
            Advertise: lambda peer, message: self._advertise(peer, message.advertisement),
            Unadvertise: lambda peer, message: self._unadvertise(peer, message.advertisement),
        }

    def neighbors_of(self, filter: Filter) -> Iterable[str]:  # noqa: A002
        """The neighbours that advertised something relevant to the subscription."""
        return {
            who.name
            for advertisement in self.advertisements.poset
            if any(isinstance(who, Peer) for who in self.advertisements.subscribers(advertisement))
            and advertisement.overlaps(filter, self.registry)
            for who in self.advertisements.subscribers(advertisement)
            if isinstance(who, Peer) and who.name in self.peers
        }

    def advertise(self, party: Party, advertisement: Advertisement) -> list[Send]:
        """A local party advertises."""
        return self._advertise(party, advertisement)

    def unadvertise(self, party: Party, advertisement: Advertisement) -> list[Send]:
        """A local party cancels all its advertisements that this one covers."""
        return self._unadvertise(party, advertisement)

    def leave(self, party: Party) -> list[Send]:
        """A local party is gone."""
        return [*super().leave(party), *self._advertisements_gone(*self.advertisements.remove_all(party))]

    def _advertise(self, who: Interface, advertisement: Advertisement) -> list[Send]:
        added, dropped, changes = self.advertisements.add(who, advertisement)
        return [*self._tell_advertisements(changes), *self._tell(self._relevant([*added, *dropped]))]

    def _unadvertise(self, who: Interface, advertisement: Advertisement) -> list[Send]:
        return self._advertisements_gone(*self.advertisements.remove(who, advertisement))

    def _advertisements_gone(
        self, dropped: list[Advertisement], changes: list[Change[Advertisement]]
    ) -> list[Send]:
        return [*self._tell_advertisements(changes), *self._tell(self._relevant(dropped))]

    def _relevant(self, advertisements: list[Advertisement]) -> list[Change[Filter]]:
        """Forward anew the subscriptions that a change of advertisements concerns.

        To them, an advertiser that appears or goes is a neighbour that connects or disconnects.
        """
        if not advertisements:
            return []
        return self.subscriptions.refresh(
            [
                item
                for item in self.subscriptions.poset
                if any(advertisement.overlaps(item, self.registry) for advertisement in advertisements)
            ]
        )

    def _tell_advertisements(self, changes: list[Change[Advertisement]]) -> list[Send]:
        return [
            Send(peer, Advertise(self.name, item) if added else Unadvertise(self.name, item))
            for peer, item, added in changes
            if peer in self.peers
        ]

    def check_publication(self, party: Party, event: Event) -> None:
        """Refuse an event that its publisher has not advertised (3.5)."""
        if not any(a.advertises(event, self.registry) for a in self.advertisements.of(party)):
            raise RoutingError(f"{party.identity} has not advertised this event; advertise it first")

    def peer_up(self, peer: str, master: bool) -> list[Send]:
        """Connect a neighbour and forward the advertisements to it."""
        reach = super().peer_up(peer, master)
        return [*reach, *self._tell_advertisements(self.advertisements.refresh())]

    def peer_down(self, peer: str) -> list[Send]:
        """Disconnect a neighbour: it no longer advertises or subscribes."""
        sends = super().peer_down(peer)
        self.advertisements.forget(peer)
        return [*sends, *self._advertisements_gone(*self.advertisements.remove_all(Peer(peer)))]

    def types_changed(self) -> list[Send]:
        """An event type became known or changed."""
        advertisements = self._tell_advertisements(self.advertisements.rebuild())
        return [*advertisements, *super().types_changed()]

    def state(self) -> Mapping[str, Any]:
        """The subscriptions and advertisements with their subscribers, advertisers and forwards."""
        return {**super().state(), "advertisements": self.advertisements.table()}


def _not_on_any_spanning_tree(_: object, subscribers: frozenset[Interface]) -> Iterable[str]:
    """NST(f) in a tree: a neighbour is upstream of all subscribers if it is the only one."""
    if len(subscribers) != 1:
        return ()
    (only,) = subscribers
    return (only.name,) if isinstance(only, Peer) else ()
