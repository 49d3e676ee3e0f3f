"""The checker: compares what was delivered with what direct evaluation says.

- An event published while the routing is at rest goes to exactly the parties, in the same connected
  part of the network, that have a matching subscription: what event flooding with filtering at the
  edge would do.
- Always: nothing comes twice to a party, and nothing that does not match what the party has asked
  for at that moment.
- While the routing changes: no loss for the subscriptions that the change does not concern. Those are
  the ones that stood before the change and stand after it, for events that can travel on links that
  were up all the time. The general routers compute their trees anew with every change of a link: to
  them, such a change concerns everybody. A change of a link or of the types concerns all typed events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.sim.clients import Client
from angelia.sim.engine import Delivery, Simulation
from angelia.types import TypeRegistry

__all__ = ["Checker", "Violation"]

# The routers for which a change of any link concerns everybody.
_GLOBAL = frozenset({"general", "subscription_flooding"})


class Violation(Exception):  # noqa: N818 - of what was promised, not an error of the caller
    """A router has not done what it promises."""


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
        self._touched: set[frozenset[str]] = {
            frozenset((link.a, link.b)) for link in self.sim.links if not link.is_up
        }
        self._links_changed = False
        self._types_changed = False

    def link_changes(self, *ends: tuple[str, str]) -> None:
        """Links go down, come up, or are new."""
        self._links_changed = True
        self._touched.update(frozenset(pair) for pair in ends)

    def types_change(self) -> None:
        """An event type is defined."""
        self._types_changed = True

    def concerns(self, client: Client) -> None:
        """What a client has asked for is lost, or asked for anew."""
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
        self._published.clear()
        self._got.clear()

    def _wanted_at_rest(self, published: Published) -> set[str]:
        sim, event = self.sim, published.event
        broker = sim.brokers[published.client.broker]
        if broker.node is None:
            return set()
        links = (frozenset((link.a, link.b)) for link in sim.links if link.is_up)
        near = reachable(broker.name, links)
        return {
            identity
            for client in sim.clients.values()
            if client.broker in near
            for identity in client.subscriptions
            if client.wants(identity, event, broker.node.registry)
        }

    def _unconcerned(self, published: Published) -> Iterator[str]:
        sim, event = self.sim, published.event
        if self._links_changed and (event.type is not None or sim.routing in _GLOBAL):
            return
        if self._types_changed and event.type is not None:
            return
        if sim.routing == "advertisement" and not published.was_advertised:
            return
        links = (frozenset((link.a, link.b)) for link in sim.links)
        near = reachable(published.client.broker, (link for link in links if link not in self._touched))
        for client in sim.clients.values():
            node = sim.brokers[client.broker].node if client.broker in near else None
            for identity in client.subscriptions if node is not None else ():
                assert node is not None
                before = self._stood.get(identity, ())
                kept = [item for item in client.subscriptions[identity] if item in before]
                if any(item.matches(event, node.registry) for item in kept):
                    yield identity


def reachable(start: str, links: Iterable[frozenset[str]]) -> set[str]:
    """The brokers that links connect with one."""
    neighbors: dict[str, set[str]] = {}
    for link in links:
        for end in link:
            neighbors.setdefault(end, set()).update(link)
    found, work = {start}, [start]
    while work:
        new = neighbors.get(work.pop(), set()) - found
        found |= new
        work += sorted(new)
    return found


def _difference(published: Published, wanted: set[str], got: set[str]) -> str:
    missing = f"did not come to {_names(wanted - got)}" if wanted - got else ""
    wrong = f"came to {_names(got - wanted)}, where it should not" if got - wanted else ""
    return f"{_told(published)} {' and '.join(filter(None, (missing, wrong)))}, with the routing at rest"


def _told(published: Published) -> str:
    return f"{published.event.id}, published at {published.client.broker},"


def _names(identities: set[str]) -> str:
    return ", ".join(sorted(identities))
