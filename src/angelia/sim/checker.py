"""The checker: compares what was delivered with what direct evaluation says.

- An event published while the routing is at rest goes to exactly the parties, in the same connected
  part of the network, that have a matching subscription: what event flooding with filtering at the
  edge would do. Brokers of an overlay that was parted and healed must have found each other by then.
- Always: nothing comes twice to a party, and nothing that does not match what the party has asked
  for at that moment.
- While the routing changes: no loss for the subscriptions that the change does not concern. Those are
  the ones that stood before the change and stand after it, for events whose way lies on links that were
  up all the time. Where there are several ways, event flooding uses them all, and the general routers
  the first of the shortest: a link that comes up concerns them if it makes another way that one. For an
  event with a type, the brokers on the way must have learned of no type meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.node import Node
from angelia.sim.clients import Client
from angelia.sim.engine import Delivery, SequenceDelivery, Simulation
from angelia.sim.errors import Violation
from angelia.sim.faults import ADVERTISING, OVERLAYS
from angelia.sim.sequences import EXACT, Sequences
from angelia.types import TypeRegistry

__all__ = ["Checker", "Violation"]

# The routers that send an event by the first of the shortest ways, and not by another.
_BY_SHORTEST_WAYS = frozenset({"general", "subscription_flooding"})


class Published(NamedTuple):
    """An event on its way."""

    event: Event
    client: Client
    was_advertised: bool


class Checker:
    """Watches a simulation; give its `on_delivery` to it."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self._published: dict[str, Published] = {}
        self._got: dict[str, set[str]] = {}
        self.sequences = Sequences(sim.routing in EXACT)
        self._together: list[dict[str, Node]] = []  # nodes of an overlay that must find each other again
        self.begin()

    # ------------------------------------------------ what happens

    def begin(self) -> None:
        """A time of changes begins, at rest."""
        self._stood = {
            who: list(filters)
            for client in self.sim.clients.values()
            for who, filters in client.subscriptions.items()
        }
        self._advertised = {
            who: list(items)
            for client in self.sim.clients.values()
            for who, items in client.advertisements.items()
        }
        self._up = {frozenset((link.a, link.b)) for link in self.sim.links if link.is_up}
        self._touched: set[frozenset[str]] = set()
        self._types = {name: self._types_of(name) for name in self.sim.brokers}

    def _types_of(self, broker: str) -> frozenset[tuple[str, int]]:
        """The event types that a broker knows, with their versions."""
        there = self.sim.brokers.get(broker)
        registry = there.node.registry if there is not None and there.node is not None else TypeRegistry()
        return frozenset((name, registry.get(name).version) for name in registry)

    def link_changes(self, *ends: tuple[str, str]) -> None:
        """Links go down, come up, or are new."""
        self._touched.update(frozenset(pair) for pair in ends)

    def divides(self) -> None:
        """An overlay is about to be parted; it is healed before the next verdict."""
        links = [frozenset((link.a, link.b)) for link in self.sim.links if link.is_up]
        parts = {frozenset(reachable(name, links)) for name in self.sim.brokers}
        self._together = [
            {name: node for name in part if (node := self.sim.brokers[name].node) is not None}
            for part in parts
        ]

    def concerns(self, client: Client) -> None:
        """What a client has asked for is lost, or asked for anew.

        If its broker was restarted, that does not know what it had delivered before, and an event that is
        on its way by a detour may come again.
        """
        for got in self._got.values():
            got.difference_update(client.subscriptions)
        for identity in client.subscriptions:
            self.sequences.forget(identity)
        for identity in (*client.subscriptions, *client.advertisements):
            self._stood.pop(identity, None)
            self._advertised.pop(identity, None)

    def cancels(self, identity: str, cancel: Filter, registry: TypeRegistry) -> None:
        """A party cancels its subscriptions that a filter covers."""
        left = [item for item in self._stood.get(identity, ()) if not cancel.covers(item, registry)]
        self._stood[identity] = left

    def withdraws(self, identity: str, cancel: Advertisement, registry: TypeRegistry) -> None:
        """A party cancels its advertisements that another covers."""
        left = [item for item in self._advertised.get(identity, ()) if not cancel.covers(item, registry)]
        self._advertised[identity] = left

    def publishes(self, client: Client, identity: str, event: Event) -> None:
        """A party is going to publish an event."""
        assert event.id is not None
        stood = self._advertised.get(identity, ())
        was_advertised = any(item in stood for item in client.allowing(identity, event))
        self._published[event.id] = Published(event, client, was_advertised)
        self._got[event.id] = set()

    def on_delivery(self, delivery: Delivery) -> None:
        """Nothing twice, and nothing that does not match."""
        event, client = delivery.event, delivery.client
        node = self.sim.brokers[client.broker].node
        assert event.id is not None
        assert node is not None
        for identity in sorted(delivery.identities):
            if identity in self._got[event.id]:
                raise Violation(f"{event.id} came to {identity} twice")
            if not client.wants(identity, event, node.registry):
                raise Violation(f"{event.id} came to {identity}, which has no matching subscription")
            self._got[event.id].add(identity)
            self.sequences.observed(identity, event, node.registry)

    def on_sequence(self, delivery: SequenceDelivery) -> None:
        """A sequence that a party is to have."""
        node = self.sim.brokers[delivery.client.broker].node
        assert node is not None
        for identity in sorted(delivery.identities):
            self.sequences.came(identity, delivery.events, node.registry)

    # ------------------------------------------------ verdicts

    def end_of_rest(self) -> None:
        """Every event published since the last verdict came to exactly those that want it."""
        for name, published in self._published.items():
            wanted = self._wanted_at_rest(published)
            if self._got[name] != wanted:
                raise Violation(_difference(published, wanted, self._got[name]))
        self._forget()

    def end_of_change(self) -> None:
        """Every event came at least to those that the changes did not concern."""
        for name, published in self._published.items():
            missing = {who for who in self._unconcerned(published) if who not in self._got[name]}
            if missing:
                raise Violation(
                    f"{_told(published)} did not come to {_names(missing)}, which no change concerned"
                )
        self._forget()

    def _forget(self) -> None:
        self.sequences.end()
        self._published.clear()
        self._got.clear()

    def _wanted_at_rest(self, published: Published) -> set[str]:
        sim, event = self.sim, published.event
        broker = sim.brokers[published.client.broker]
        if broker.node is None:
            return set()
        near = self.near(broker.name)
        return {
            identity
            for client in sim.clients.values()
            if client.broker in near
            for identity in client.subscriptions
            if client.wants(identity, event, broker.node.registry)
        }

    def near(self, broker: str) -> set[str]:
        """A broker, those that it is linked with, over others or not, and those that it should be."""
        brokers = self.sim.brokers
        linked = [frozenset((link.a, link.b)) for link in self.sim.links if link.is_up]
        should_be = [
            frozenset((broker, name))
            for nodes in self._together
            if broker in nodes and brokers[broker].node is nodes[broker]
            for name, node in nodes.items()
            if name in brokers and brokers[name].node is node  # not started anew since
        ]
        return reachable(broker, [*linked, *should_be])

    def _unconcerned(self, published: Published) -> Iterator[str]:
        sim, event = self.sim, published.event
        if sim.routing in ADVERTISING and not published.was_advertised:
            return
        if sim.routing in OVERLAYS and self._touched:
            return
        ways = self._ways(published.client.broker)
        learned = {name for name in ways if self._types.get(name) != self._types_of(name)}
        for client in sim.clients.values():
            node = sim.brokers[client.broker].node
            way = ways.get(client.broker)
            if node is None or way is None or (event.type is not None and learned.intersection(way)):
                continue
            for identity, filters in client.subscriptions.items():
                kept = [item for item in filters if item in self._stood.get(identity, ())]
                if any(item.matches(event, node.registry) for item in kept):
                    yield identity

    def _ways(self, start: str) -> dict[str, tuple[str, ...]]:
        """The brokers that events reach on links that were up all the time, and the brokers on the way."""
        steady = self._up - self._touched
        if self.sim.routing not in _BY_SHORTEST_WAYS:
            return shortest_ways(start, steady)
        every = shortest_ways(start, self._up | self._touched)
        return {
            name: way
            for name, way in every.items()
            if all(frozenset(link) in steady for link in pairwise(way))
        }


def shortest_ways(start: str, links: Iterable[frozenset[str]]) -> dict[str, tuple[str, ...]]:
    """The shortest ways to all brokers that links connect with one; of several, the first by their names."""
    neighbors = _neighbors(links)
    ways: dict[str, tuple[str, ...]] = {start: (start,)}
    queue = deque([start])
    while queue:
        at = queue.popleft()
        for name in sorted(neighbors.get(at, set()) - ways.keys()):
            ways[name] = (*ways[at], name)
            queue.append(name)
    return ways


def reachable(start: str, links: Iterable[frozenset[str]]) -> set[str]:
    """The brokers that links connect with one."""
    return set(shortest_ways(start, links))


def _neighbors(links: Iterable[frozenset[str]]) -> dict[str, set[str]]:
    neighbors: dict[str, set[str]] = {}
    for link in links:
        for end in link:
            neighbors.setdefault(end, set()).update(link - {end})
    return neighbors


def _difference(published: Published, wanted: set[str], got: set[str]) -> str:
    missing = f"did not come to {_names(wanted - got)}" if wanted - got else ""
    wrong = f"came to {_names(got - wanted)}, where it should not" if got - wanted else ""
    return f"{_told(published)} {' and '.join(filter(None, (missing, wrong)))}, with the routing at rest"


def _told(published: Published) -> str:
    return f"{published.event.id}, published at {published.client.broker},"


def _names(identities: set[str]) -> str:
    return ", ".join(sorted(identities))
