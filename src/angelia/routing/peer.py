"""Acyclic peer-to-peer servers with subscription forwarding (SIENA 5.2.3).

Subscriptions go to all neighbours but those that know of a covering one.

The topology must be a tree. Each server tells its neighbours which servers it reaches; a connection
that would close a cycle is refused.

Departures from the paper: where the covering relation itself changes, because an event type became
known, what has a type is sent again, since a neighbour may have known the type before and have
taken one filter for covered by another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from angelia.errors import RoutingError
from angelia.filter import Filter, subscription_poset
from angelia.messages import Effect, Message, Notify, Reach, Send, SetTimer, Subscribe, Unsubscribe
from angelia.routing.base import Audience, Interests, Interface, Local, Peer, Routed, Router
from angelia.routing.forwarding import Change, Collector, Forwarding, Outcome, pieces
from angelia.types import TypeRegistry

_LEAVING = "leaving"  # a timer
_AT_ONCE = 256  # subscriptions that are cancelled in one step: some milliseconds of work

__all__ = ["SubscriptionForwarding", "not_on_any_spanning_tree", "once"]


class SubscriptionForwarding(Router):
    """A server of an acyclic peer-to-peer network with subscription forwarding (5.2.3)."""

    def __init__(self, name: str, registry: TypeRegistry) -> None:
        super().__init__(name, registry)
        self.subscriptions: Forwarding[Filter] = Forwarding(
            lambda: subscription_poset(registry), self.neighbors_of, not_on_any_spanning_tree
        )
        self._uncovered: Collector[Filter] = Collector()
        self.interests = Interests(registry)
        self.reach: dict[str, set[str]] = {}  # the servers beyond each neighbour
        self._handlers: dict[type, Callable[[Peer, Any], list[Send]]] = {
            Subscribe: lambda peer, message: self._subscribe(peer, message.filter),
            Unsubscribe: self._on_unsubscribe,
            Reach: self._on_reach,
        }

    def neighbors_of(self, filter: Filter) -> Iterable[str]:  # noqa: A002 - what it is
        """The neighbours that a subscription may be forwarded to: `neighbors_s` of 5.2.4."""
        return self.peers

    # ------------------------------------------------ subscriptions

    def subscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002
        """A local party subscribes."""
        return self._subscribe(party, filter)

    def unsubscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002
        """A local party cancels all its subscriptions that the filter covers."""
        return self._cancel(party, self.subscriptions.covered(party, filter))

    def drop(self, party: Local) -> list[Send]:
        """Cancel all subscriptions of a local party."""
        return self._cancel(party, self.subscriptions.of(party))

    def _cancel(self, who: Interface, items: list[Filter]) -> list[Send]:
        """Cancel subscriptions. If they are many, nothing goes there any more, the rest is done by and by.

        None of them covers another, so that it makes no difference to the neighbours.
        """
        if len(items) <= _AT_ONCE:
            return self._changed(who, self.subscriptions.drop(who, items))
        self.interests.silence(who, items)
        self.subscriptions.leave(who, items)
        self.outbox.append(SetTimer(_LEAVING, 0.0))
        return []

    def timer(self, name: str) -> list[Effect]:
        """Go on with what was left to be done."""
        if name != _LEAVING:
            raise RoutingError(f"{self.name} has set no timer {name!r}")
        self.interests.tidy(_AT_ONCE)
        sends = self._tell(self.subscriptions.drop_some(_AT_ONCE))
        if self.subscriptions.is_leaving or self.interests.is_untidy:
            self.outbox.append(SetTimer(_LEAVING, 0.0))
        return [*sends]

    def _subscribe(self, who: Interface, filter: Filter) -> list[Send]:  # noqa: A002
        return self._changed(who, self.subscriptions.add(who, filter))

    def _unsubscribe(self, who: Interface, filter: Filter, uncovered: Iterable[Filter] = ()) -> list[Send]:  # noqa: A002
        return self._changed(who, self.subscriptions.remove(who, filter, uncovered))

    def _on_unsubscribe(self, peer: Peer, message: Unsubscribe) -> list[Send]:
        uncovered = self._uncovered.add(peer.name, message.uncovered, message.more)
        return [] if uncovered is None else self._unsubscribe(peer, message.filter, uncovered)

    def _changed(self, who: Interface, outcome: Outcome[Filter]) -> list[Send]:
        for item in outcome.dropped:
            self.interests.remove(who, item)
        for item in outcome.added:
            self.interests.add(who, item)
        return self._tell(outcome.changes)

    def _tell(self, changes: list[Change[Filter]]) -> list[Send]:
        return [
            Send(peer, Subscribe(self.name, item) if added else Unsubscribe(self.name, item, *piece))
            for peer, item, added, uncovered in changes
            if peer in self.peers
            for piece in pieces(uncovered)
        ]

    # ------------------------------------------------ notifications

    def publish(self, notification: Notify) -> Routed:
        """Send a notification to every subscriber of a filter that covers it (5.2.3.5)."""
        return self._route([notification], None)[0]

    def publish_all(self, notifications: list[Notify]) -> list[Routed]:
        """Send several notifications."""
        return self._route(notifications, None)

    def receive_all(self, peer: str, notifications: list[Notify]) -> list[Routed]:
        """Process several notifications of a neighbour."""
        self.check_peer(peer)
        return self._route(notifications, peer)

    def _route(self, notifications: list[Notify], sender: str | None) -> list[Routed]:
        audiences = self.interests.audiences(notifications)
        return [
            self._sent(notification, audience, self._hops(audience, sender))
            for notification, audience in zip(notifications, audiences, strict=True)
        ]

    def _hops(self, audience: Audience, sender: str | None) -> list[str]:
        """The neighbours that a notification goes to."""
        return sorted(audience.peers - {sender}) if audience.peers else []

    # ------------------------------------------------ the network

    def peer_up(self, peer: str, master: bool) -> list[Send]:
        """Connect a neighbour and forward the roots to it (5.2.3.2)."""
        super().peer_up(peer, master)
        reached = frozenset({self.name}).union(*self.reach.values())
        self.reach[peer] = set()
        return [self._tell_reach(peer, reached), *self._tell(self.subscriptions.refresh())]

    def peer_down(self, peer: str) -> list[Send]:
        """Disconnect a neighbour: it no longer subscribes, and nothing is forwarded to it."""
        super().peer_down(peer)
        gone = frozenset(self.reach.pop(peer))
        self._uncovered.forget(peer)
        self.subscriptions.forget(peer)
        dropped = self._cancel(Peer(peer), self.subscriptions.of(Peer(peer)))
        return [*dropped, *(self._tell_reach(other, gone=gone) for other in self.peers)]

    def _on_reach(self, peer: Peer, message: Reach) -> list[Send]:
        others = [other for other in self.peers if other != peer.name]
        known = ({self.name}, *(self.reach[other] for other in others))
        twice = sorted(name for names in known for name in names & message.servers)
        if twice:
            raise RoutingError(
                f"the connection of {self.name} with {peer.name} closes a cycle: both reach "
                f"{', '.join(twice[:3])}; an acyclic network may not have one"
            )
        self.reach[peer.name].difference_update(message.gone)
        self.reach[peer.name].update(message.servers)
        return [self._tell_reach(other, message.servers, message.gone) for other in others]

    def _tell_reach(
        self, peer: str, servers: frozenset[str] = frozenset(), gone: frozenset[str] = frozenset()
    ) -> Send:
        return Send(peer, Reach(servers, gone))

    def receive(self, peer: str, message: Message) -> Routed:
        """Process a message of a neighbour."""
        self.check_peer(peer)
        if isinstance(message, Notify):
            return self._route([message], peer)[0]
        handler = self._handlers.get(type(message))
        if handler is None:
            raise RoutingError(f"{type(self).__name__} does not understand {type(message).__name__}")
        return Routed(frozenset(), handler(Peer(peer), message))

    def types_changed(self) -> list[Send]:
        """An event type became known or changed: what covers what may have changed."""
        changes = self._tell(self.subscriptions.rebuild())
        self.interests.reset(self.subscriptions.pairs())
        typed = [i for i in self.subscriptions.poset if any(part.types for part in i.conjunctions)]
        return once(changes, self._tell(self.subscriptions.again(typed)))

    def interest(self, filter: Filter) -> bool:  # noqa: A002
        """Whether a subscription is known that overlaps."""
        return self.interests.overlap(filter)

    def state(self) -> Mapping[str, Any]:
        """The subscriptions with their subscribers and forwards."""
        return {"subscriptions": self.subscriptions.table(), "neighbors": tuple(self.peers)}


def once(*sends: list[Send]) -> list[Send]:
    """All sends, each once."""
    return list(dict.fromkeys(send for several in sends for send in several))


def not_on_any_spanning_tree(_: object, subscribers: frozenset[Interface]) -> Iterable[str]:
    """NST(f) in a tree: a neighbour is upstream of all subscribers if it is the only one."""
    if len(subscribers) != 1:
        return ()
    (only,) = subscribers
    return (only.name,) if isinstance(only, Peer) else ()
