"""General peer-to-peer servers (SIENA 4.3, 5.2.3.1): any topology, by spanning trees of origins.

Servers flood their link states, so that each knows the whole topology and computes, for any server,
the tree of shortest paths rooted there. What the clients of a server want travels down the tree
rooted at that server: a neighbour that is not a child in it is in NST(f). A notification travels
down the tree rooted at the server where it was published, on the branches that lead to a server
with a matching filter. Every server is reached by one path, so nothing arrives twice.

Departure from the paper: a filter is not forwarded only if its *own* origin has forwarded one that
covers it. Equation (1) would also let a filter of another origin stand for it. In a tree that is
right; with one tree an origin it is not: what lies beyond a neighbour differs from tree to tree, so
the covering filter need not come to the servers that the covered one is for.

Changes of what an origin wants are numbered, and each names the one before. Who misses one (a link
was lost while it was under way) notices a gap, or is told by the versions that neighbours exchange
when the topology has changed, and is sent the whole. Numbers rise over restarts, too, since they start
from the clock; a server that meets a newer word of itself than its own, because its clock went back,
outbids it.

A server to which there has been no way for an hour is taken for gone, and its link state is let go. It may be
cut off and come back, and others, which lost it a little later, may have kept its link state and would not
pass the same one on. So who finds a way again to a server that it has missed for half that time tells all
its neighbours what it knows of it; and those that have come meanwhile in any case, since a newcomer
is not told of servers that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from angelia.errors import RoutingError
from angelia.filter import Filter, subscription_poset
from angelia.messages import LinkState, Message, Notify, Send, SubscriptionChange, Subscriptions, Versions
from angelia.routing.base import NOWHERE, Audience, Interests, Local, Peer, Routed, Router, Seen
from angelia.routing.forwarding import Forwarding, Outcome
from angelia.types import TypeRegistry

__all__ = ["GeneralPeer"]

MEMORY = 3600.0  # seconds for which a server is remembered to which there is no way
_NETWORK = "*"  # to the poset of local subscriptions, the rest of the network is one neighbour


class Wanted(NamedTuple):
    """What the clients of a server want, at a version."""

    version: int
    filters: AbstractSet[Filter]


_UNKNOWN = Wanted(0, frozenset())


class Branches(NamedTuple):
    """A tree of shortest paths as one server sees it: its children, in order, and whom each leads to."""

    children: tuple[str, ...]
    beyond: tuple[frozenset[str], ...]


_LEAF = Branches((), ())


class GeneralPeer(Router):
    """A server of a network with any topology."""

    def __init__(self, name: str, registry: TypeRegistry) -> None:
        super().__init__(name, registry)
        self.local: Forwarding[Filter] = Forwarding(
            lambda: subscription_poset(registry), lambda _: (_NETWORK,), lambda *_: ()
        )
        self.interests = Interests(registry)
        self.links: dict[str, LinkState] = {name: LinkState(name, 0, frozenset())}
        self.wanted: dict[str, Wanted] = {name: _UNKNOWN}
        self.seen = Seen()
        self._trees: dict[str, Branches] = {}
        self._graph: dict[str, list[str]] = {}  # the peers of each server that say the same of their link
        self._reachable: frozenset[str] = frozenset()  # the servers that there is a way to
        self._missing: dict[str, float] = {}  # servers without a way to them, and since when
        self._since: dict[str, float] = {}  # when each neighbour was connected
        self._told: dict[str, Versions] = {}  # the versions last sent to each neighbour
        self._handlers: dict[type, Callable[[str, Any], list[Send]]] = {
            LinkState: self._on_link_state,
            SubscriptionChange: self._on_change,
            Subscriptions: self._on_subscriptions,
            Versions: self._on_versions,
        }

    # ------------------------------------------------ subscriptions

    def subscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002 - what it is
        """A local party subscribes."""
        return self._changed(party, self.local.add(party, filter))

    def unsubscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002
        """A local party cancels all its subscriptions that the filter covers."""
        return self._changed(party, self.local.remove(party, filter))

    def drop(self, party: Local) -> list[Send]:
        """Cancel all subscriptions of a local party."""
        return self._changed(party, self.local.remove_all(party))

    def _changed(self, party: Local, outcome: Outcome[Filter]) -> list[Send]:
        for item in outcome.dropped:
            self.interests.remove(party, item)
        for item in outcome.added:
            self.interests.add(party, item)
        return self._export()

    def exported(self) -> frozenset[Filter]:
        """What the network must know that the clients of this server want: the roots."""
        return frozenset(self.local.poset.roots)

    def _export(self) -> list[Send]:
        version, before = self.wanted[self.name]
        now = self.exported()
        if now == before:
            return []
        new = self._after(version)
        self.wanted[self.name] = Wanted(new, now)
        change = SubscriptionChange(self.name, new, now - before, frozenset(before - now), since=version)
        return [Send(peer, change) for peer in self.next_hops(self.name, None)]

    def _after(self, version: int) -> int:
        return max(version + 1, round(self.now * 1e6))

    def next_hops(self, origin: str, sender: str | None) -> list[str]:
        """The neighbours that news of an origin is passed on to: all but NST and the sender."""
        return [peer for peer in self._tree(origin).children if peer != sender]

    def _on_change(self, peer: str, change: SubscriptionChange) -> list[Send]:
        known = self.wanted.get(change.origin, _UNKNOWN)
        if change.version <= known.version:
            return []
        if change.origin == self.name:
            return self._outbid(change.version)
        if change.since not in (0, known.version):
            return [Send(peer, self._versions())]
        if not self._is_reachable(change.origin):
            return self._not_now(peer)
        if not change.since:
            self._want(change.origin, _UNKNOWN)
        self._adjust(change)
        return [Send(hop, change) for hop in self.next_hops(change.origin, peer)]

    def _on_subscriptions(self, peer: str, whole: Subscriptions) -> list[Send]:
        if whole.version <= self.wanted.get(whole.origin, _UNKNOWN).version:
            return []
        if whole.origin == self.name:
            return self._outbid(whole.version)
        if not self._is_reachable(whole.origin):
            return self._not_now(peer)
        self._want(whole.origin, Wanted(whole.version, whole.filters))
        # Not along the tree: who missed this may be anywhere beyond.
        return [Send(other, whole) for other in self.peers if other != peer]

    def _not_now(self, peer: str) -> list[Send]:
        """News of a server without a way to it, which may be long gone: ask again when there is one."""
        self._told.pop(peer, None)
        return []

    def _outbid(self, version: int) -> list[Send]:
        """Word of this server from before it was restarted: say anew what it wants."""
        filters = self.exported()
        version = self._after(version)
        self.wanted[self.name] = Wanted(version, filters)
        return [Send(peer, Subscriptions(self.name, version, filters)) for peer in self.peers]

    def _adjust(self, change: SubscriptionChange) -> None:
        origin, filters = Peer(change.origin), self.wanted.get(change.origin, _UNKNOWN).filters
        # Changed in place, since a server may want very much and a change be small.
        now = filters if isinstance(filters, set) else set(filters)
        for item in change.removed:
            if item in now:
                now.remove(item)
                self.interests.remove(origin, item)
        for item in change.added:
            if item not in now and item not in change.removed:
                now.add(item)
                self.interests.add(origin, item)
        self.wanted[change.origin] = Wanted(change.version, now)

    def _want(self, origin: str, new: Wanted) -> None:
        old = self.wanted.get(origin, _UNKNOWN).filters
        for item in old - new.filters:
            self.interests.remove(Peer(origin), item)
        for item in new.filters - old:
            self.interests.add(Peer(origin), item)
        self.wanted[origin] = new

    # ------------------------------------------------ notifications

    def publish(self, notification: Notify) -> Routed:
        """Send a notification towards every server with a matching filter."""
        return self._route([notification])[0]

    def publish_all(self, notifications: list[Notify]) -> list[Routed]:
        """Send several notifications."""
        return self._route(notifications)

    def receive_all(self, peer: str, notifications: list[Notify]) -> list[Routed]:
        """Process several notifications of a neighbour."""
        self.check_peer(peer)
        back = [index for index, one in enumerate(notifications) if one.origin == self.name]
        if not back:
            return self._route(notifications)
        routed = self._route([one for one in notifications if one.origin != self.name])
        for index in back:
            routed.insert(index, NOWHERE)
        return routed

    def _route(self, notifications: list[Notify]) -> list[Routed]:
        audiences = self.interests.audiences(notifications)
        return [self._onward(*both) for both in zip(notifications, audiences, strict=True)]

    def _onward(self, notification: Notify, audience: Audience) -> Routed:
        if not self.seen.is_new(notification):
            return NOWHERE
        peers, (children, beyond) = audience.peers, self._tree(notification.origin)
        hops = [hop for hop, names in zip(children, beyond, strict=True) if not names.isdisjoint(peers)]
        return self._sent(notification, audience, hops)

    # ------------------------------------------------ topology

    def peer_up(self, peer: str, master: bool) -> list[Send]:
        """Connect a neighbour, and bring each other up to date."""
        super().peer_up(peer, master)
        self._since[peer] = self.now
        news = self._links_changed()
        self._note_missing()
        # Its own word from before it was restarted, too, which it may have to outbid.
        told = [name for name in self.links if name == peer or name not in self._missing]
        known = [Send(peer, self.links[name]) for name in told if name != self.name]
        self._told[peer] = versions = self._versions()
        return [*news, *known, Send(peer, versions)]

    def peer_down(self, peer: str) -> list[Send]:
        """Disconnect a neighbour: other ways may be left."""
        super().peer_down(peer)
        self._told.pop(peer, None)
        del self._since[peer]
        return [*self._links_changed(), *self._tell_versions()]

    def _links_changed(self) -> list[Send]:
        self._let_go()
        version = self._after(self.links[self.name].version)
        state = LinkState(self.name, version, frozenset(self.peers))
        found = self._adopt(state)
        return [*(Send(peer, state) for peer in self.peers), *found]

    def _on_link_state(self, peer: str, state: LinkState) -> list[Send]:
        self._let_go()
        known = self.links.get(state.origin)
        if known is not None and state.version <= known.version:
            return []
        if state.origin == self.name:
            # Word of this server from before it was restarted: outbid it.
            self.links[self.name] = LinkState(self.name, state.version, frozenset(self.peers))
            return self._links_changed()
        found = self._adopt(state)
        passed = [Send(other, state) for other in self.peers if other != peer]
        return [*passed, *found, *self._tell_versions()]

    def _adopt(self, state: LinkState) -> list[Send]:
        before = self.links.get(state.origin, state)
        self.links[state.origin] = state
        self._trees.clear()
        self._graph.clear()
        if not before.peers <= state.peers:
            self._forget_unreachable()
        return self._found_again(state.origin)

    def _forget_unreachable(self) -> None:
        """Servers may be gone for good. Of those that come back, the versions ask the neighbours again."""
        for origin in [name for name in self.wanted if not self._is_reachable(name)]:
            self._want(origin, _UNKNOWN)
            del self.wanted[origin]
        self._note_missing()

    def _note_missing(self) -> None:
        for server in self.links:
            if not self._is_reachable(server):
                self._missing.setdefault(server, self.now)

    def _found_again(self, passed: str) -> list[Send]:
        """Tell of servers that were missing those that may know nothing of them (of one, all are told)."""
        sends: list[Send] = []
        for server in [name for name in self._missing if self._is_reachable(name)]:
            since = self._missing.pop(server)
            long = self.now - since > MEMORY / 2
            told = [peer for peer in self.peers if long or self._since[peer] >= since]
            sends += [Send(peer, self.links[server]) for peer in told if server != passed]
        return sends

    def _let_go(self) -> None:
        """Forget the servers that have been missing for long."""
        for server in [name for name, since in self._missing.items() if self.now - since > MEMORY]:
            del self._missing[server], self.links[server]
            self.seen.forget(server)

    def _is_reachable(self, server: str) -> bool:
        if not self._graph:
            self._map()
        return server in self._reachable

    def _versions(self) -> Versions:
        return Versions({origin: wanted.version for origin, wanted in self.wanted.items() if wanted.version})

    def _tell_versions(self) -> list[Send]:
        """Tell the neighbours what is known here, if they have not been told; they send what is newer."""
        versions = self._versions()
        stale = [peer for peer in self.peers if self._told.get(peer) != versions]
        self._told.update(dict.fromkeys(stale, versions))
        return [Send(peer, versions) for peer in stale]

    def _on_versions(self, peer: str, versions: Versions) -> list[Send]:
        theirs = versions.subscriptions
        newer = [
            Send(peer, Subscriptions(origin, wanted.version, frozenset(wanted.filters)))
            for origin, wanted in self.wanted.items()
            if wanted.version > theirs.get(origin, 0)
        ]
        behind = any(
            version > self.wanted.get(origin, _UNKNOWN).version for origin, version in theirs.items()
        )
        return [*newer, Send(peer, self._versions())] if behind else newer

    def _tree(self, origin: str) -> Branches:
        found = self._trees.get(origin)
        if found is None:
            found = self._trees[origin] = self._branches(origin)
        return found

    def _branches(self, origin: str) -> Branches:
        """The tree of shortest paths rooted at `origin`, from here on."""
        if not self._is_reachable(origin):
            return _LEAF
        parents = self._parents(origin)
        children = [peer for peer in self._graph[self.name] if parents[peer] == self.name]
        if not children:
            return _LEAF
        beyond: dict[str, list[str]] = {child: [child] for child in children}
        branch = {child: beyond[child] for child in children}
        for server, parent in parents.items():  # by their distance: a parent comes before its children
            if parent in branch:
                branch[server] = branch[parent]
                branch[server].append(server)
        return Branches(tuple(children), tuple(frozenset(beyond[child]) for child in children))

    def _parents(self, origin: str) -> dict[str, str]:
        """Each server's parent in the tree of shortest paths from `origin`; the same at every server."""
        graph = self._graph
        parents: dict[str, str] = {origin: origin}
        queue = [origin]
        for server in queue:  # which grows meanwhile
            for peer in graph[server]:
                if peer not in parents:
                    parents[peer] = server
                    queue.append(peer)
        return parents

    def _map(self) -> None:
        """Draw the network from the link states."""
        links = self.links
        self._graph = {
            server: sorted(peer for peer in state.peers if peer in links and server in links[peer].peers)
            for server, state in links.items()
        }
        self._reachable = frozenset(self._parents(self.name))

    def receive(self, peer: str, message: Message) -> Routed:
        """Process a message of a neighbour."""
        self.check_peer(peer)
        if isinstance(message, Notify):
            if message.origin == self.name:  # it has gone round, perhaps over a restart
                return NOWHERE
            return self._onward(message, self.interests.audiences((message,))[0])
        handler = self._handlers.get(type(message))
        if handler is None:
            raise RoutingError(f"{type(self).__name__} does not understand {type(message).__name__}")
        return Routed(frozenset(), handler(peer, message))

    def types_changed(self) -> list[Send]:
        """An event type became known or changed: what covers what may have changed."""
        self.local.rebuild()
        far = ((Peer(o), item) for o, w in self.wanted.items() if o != self.name for item in w.filters)
        self.interests.reset([*self.local.pairs(), *far])
        return self._export()

    def interest(self, filter: Filter) -> bool:  # noqa: A002
        """Whether a subscription is known that overlaps."""
        return self.interests.overlap(filter)

    def state(self) -> Mapping[str, Any]:
        """The subscriptions of local parties, what each server wants, and the links."""
        return {
            "subscriptions": {item: self.local.subscribers(item) for item in self.local.poset},
            "wanted": {origin: frozenset(wanted.filters) for origin, wanted in self.wanted.items()},
            "links": {origin: state.peers for origin, state in self.links.items()},
            "neighbors": tuple(self.peers),
        }
