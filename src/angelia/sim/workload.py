"""A random workload: changes and events, told to the checker as they are made.

Every change has a name, and the routers that it applies to. A step of the workload makes several
changes at random moments, while events are published; then the network comes to rest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial

from angelia.event import Event
from angelia.filter import Filter
from angelia.messages import (
    Advertise,
    DefineType,
    Publish,
    Request,
    Subscribe,
    SubscribePattern,
    Unadvertise,
    Unsubscribe,
)
from angelia.pattern import Pattern
from angelia.routing.general import MEMORY
from angelia.sim.checker import Checker
from angelia.sim.clients import Client
from angelia.sim.engine import Simulation
from angelia.sim.faults import (
    ADVERTISING,
    NUMBERED,
    OVERLAYS,
    Delay,
    Duplicate,
    Heal,
    Partition,
    Reorder,
    Slow,
)
from angelia.sim.links import Distance, Link
from angelia.sim.vocabulary import (
    TYPES,
    random_advertisement,
    random_event,
    random_filter,
    random_topic_event,
    random_topic_filter,
)
from angelia.types import TypeRegistry

__all__ = ["REPAIR", "Workload"]

REPAIR = 9.0  # seconds after which an overlay with the kit's settings is to be in order again

_WIDE = tuple(Filter.parse(text) for text in ("true", "exists x", "x >= 0", 's >= ""'))
_WINDOW = 0.4  # seconds in which the changes of a step are made; links take 1 to 50 ms


class Workload:
    """Random clients on a network, seeded."""

    def __init__(self, sim: Simulation, checker: Checker, rng: random.Random) -> None:
        self.sim = sim
        self.checker = checker
        self.rng = rng
        self._events = 0
        self._names = 0
        self._types = list(TYPES)
        self._crashed: list[str] = []
        self._whole_at = 0.0  # when the last partition of an overlay ends
        self.advertises = sim.routing in ADVERTISING
        self.is_cyclic = sim.routing in NUMBERED
        self.is_overlay = sim.routing in OVERLAYS
        topics = sim.routing == "scribe"
        self._random_filter = random_topic_filter if topics else random_filter
        self._random_event = random_topic_event if topics else random_event
        linked = not self.is_overlay  # links are there to be cut; an overlay makes others
        self.changes: dict[str, tuple[int, Callable[[], None]]] = {
            "subscribe": (8, self._subscribe),
            "unsubscribe": (6, self._unsubscribe),
            "wide": (4, self._subscribe_widely),
            "pattern": (2, self._subscribe_pattern),
            "advertise": (4 * self.advertises, self._advertise),
            "unadvertise": (2 * self.advertises, self._unadvertise),
            "client": (1, self._new_client),
            "client leaves": (1, self._client_leaves),
            "type": (3, self._define_type),
            "cut": (2 * linked, self._cut),
            "restore": (2 * linked, self._restore),
            "partition": (1, self._partition if linked else self._part),
            "heal": (linked, self._heal),
            "join": (1 + self.is_overlay, self._join),
            "leave": (1, self._leave),
            "crash": (1 + self.is_overlay, self._crash),
            "restart": (2, self._restart),
            "delay": (1, self._delay),
            "slow": (linked, self._slow),
            "all slow": (linked, self._all_slow),
            "duplicate": (self.is_cyclic, self._duplicate),
            "reorder": (self.is_cyclic, self._reorder),
        }

    # ------------------------------------------------ steps

    def start(self, brokers: int, edges: list[tuple[int, int]]) -> None:
        """Build the network with some clients, and let it come to rest."""
        for number in range(brokers):
            # Of a tree, the first brokers are connected with each other: they serve a hybrid as gateways.
            self.sim.add_broker(f"b{number}", is_gateway=3 * number <= brokers)
        for a, b in edges:
            self._connect(f"b{a}", f"b{b}")
        if self.rng.random() < 0.5:
            self._run(repair=True)
        for broker in list(self.sim.brokers):
            for _ in range(self.rng.choice((0, 1, 1, 2))):
                self._attach(broker)
        if not self.sim.clients:
            self._attach("b0")
        if self.rng.random() < 0.7:
            self._define_type()
        for _ in range(len(self.sim.clients) * 2):
            self._subscribe()
            if self.advertises:
                self._advertise()
        self._subscribe_pattern()
        self._run(repair=True)

    def step(self) -> None:
        """Some changes, with events meanwhile; then rest, and the verdict."""
        self.checker.begin()
        names, weights = zip(*((name, weight) for name, (weight, _) in self.changes.items()), strict=True)
        for name in self.rng.choices(names, weights, k=self.rng.choice((1, 2, 4, 8))):
            self._soon(self.changes[name][1])
        for _ in range(self.rng.choice((0, 2, 4, 12))):
            self._soon(self._publish, after=self.rng.choice((0.0, _WINDOW)))
        self._run(repair=True)
        self.checker.end_of_change()

    def rest(self, events: int) -> None:
        """Events, with nothing else going on; then the verdict."""
        self.checker.begin()
        for _ in range(events):
            self._soon(self._publish)
        self._run()
        self.checker.end_of_rest()

    def finish(self) -> None:
        """All that was cut or down is there again, and links are as they should be."""
        for broker in self._crashed:
            self.sim.restart(broker)
        for link in self.sim.links:
            self.sim.restore(link)
            for setting in ("delay", "duplicate", "reorder", "bandwidth"):
                self.sim.set_channels(link, setting, 0)
        self._crashed.clear()
        self._run(repair=True)

    def pause(self) -> None:
        """Perhaps much time passes, in which servers that are out of reach may be forgotten."""
        if self.is_cyclic:
            self.sim.run(self.sim.now + MEMORY * self.rng.choice((0.0, 0.0, 0.3, 0.6, 1.1)))

    def turn_over(self) -> None:
        """A broker comes and goes, and a long time after another comes: all others have noticed by then."""
        if not self.is_cyclic:
            return
        left = set(self.sim.brokers)
        while left:  # in each part of the network, if there are several
            there = min(left)
            left -= self.checker.near(there)
            self._come(f"{there} first", there)
            self.sim.remove_broker(f"{there} first")
            self.sim.run(self.sim.now + 2 * MEMORY)
            self._come(f"{there} second", there)

    def _come(self, name: str, there: str) -> None:
        self.sim.add_broker(name)
        self._connect(name, there)
        self._run()

    def leave_all(self) -> None:
        """Every client leaves; half of them cancel everything first."""
        for name, client in list(self.sim.clients.items()):
            for identity in list(client.subscriptions) if self.rng.random() < 0.5 else ():
                self._soon(partial(self._submit, client, Unsubscribe(identity, Filter())))
            self._soon(partial(self.sim.detach, name), after=_WINDOW)
        self._run(repair=True)

    def _run(self, repair: bool = False) -> None:
        """Until nothing is left to happen; in an overlay until all is repaired, or all events have come."""
        if self.is_overlay and repair:
            self.sim.run(self.sim.now + _WINDOW)
            self.sim.run(max(self.sim.now, self._whole_at) + REPAIR)
        elif self.is_overlay:
            self.sim.run(self.sim.now + 8 * _WINDOW)  # over slow links, with a type to be asked for
        else:
            self.sim.run()

    def _soon(self, do: Callable[[], None], after: float = 0.0) -> None:
        self.sim.at(self.sim.now + after + self.rng.random() * _WINDOW, do)

    # ------------------------------------------------ clients

    def _attach(self, broker: str) -> Client:
        self._names += 1
        return self.sim.attach(f"c{self._names}", broker)

    def _client(self) -> Client | None:
        """A client whose broker is there."""
        up = [c for c in self.sim.clients.values() if self.sim.brokers[c.broker].node is not None]
        return self.rng.choice(up) if up else None

    def _party(self, client: Client) -> str:
        """One of two parties that a client speaks for."""
        return f"{client.name}{self.rng.choice('pq')}"

    def _submit(self, client: Client, request: Request) -> None:
        """Make a request that must be granted, if the broker is up."""
        if self.sim.clients.get(client.name) is client:
            self.sim.submit(client.name, request)

    def _subscribe(self) -> None:
        if client := self._client():
            self._submit(client, Subscribe(self._party(client), self._random_filter(self.rng)))

    def _unsubscribe(self) -> None:
        if client := self._client():
            party = self._party(client)
            mine = client.subscriptions.get(party)
            cancel = (
                self.rng.choice(mine) if mine and self.rng.random() < 0.7 else self._random_filter(self.rng)
            )
            self._cancel(client, party, cancel)

    def _cancel(self, client: Client, party: str, cancel: Filter) -> None:
        broker = self.sim.brokers.get(client.broker)
        if broker is not None and broker.node is not None:
            self.checker.cancels(party, cancel, broker.node.registry)
            self._submit(client, Unsubscribe(party, cancel))

    def _subscribe_widely(self) -> None:
        """What covers much comes, and goes soon: others are covered for a while, and then uncovered."""
        if client := self._client():
            party, wide = f"{client.name}w", self.rng.choice(_WIDE)
            self._submit(client, Subscribe(party, wide))
            self._soon(partial(self._cancel, client, party, wide))

    def _subscribe_pattern(self) -> None:
        """A pattern, and its filters beside it, so that the checker knows what comes for it."""
        client = self._client()
        if client is None or f"{client.name}o" in client.subscriptions:
            return
        pattern = Pattern(random_filter(self.rng) for _ in range(self.rng.choice((2, 2, 3))))
        self.checker.sequences.watch(f"{client.name}m", f"{client.name}o", pattern)
        self._submit(client, SubscribePattern(f"{client.name}m", pattern))
        for item in pattern.filters:
            self._submit(client, Subscribe(f"{client.name}o", item))

    def _advertise(self) -> None:
        if client := self._client():
            self._submit(client, Advertise(self._party(client), random_advertisement(self.rng)))

    def _unadvertise(self) -> None:
        if client := self._client():
            party = self._party(client)
            mine = client.advertisements.get(party)
            cancel = self.rng.choice(mine) if mine else random_advertisement(self.rng)
            node = self.sim.brokers[client.broker].node
            assert node is not None
            self.checker.withdraws(party, cancel, node.registry)
            self._submit(client, Unadvertise(party, cancel))

    def _new_client(self) -> None:
        self._attach(self.rng.choice(list(self.sim.brokers)))

    def _client_leaves(self) -> None:
        if client := self._client():
            self.checker.concerns(client)
            self.sim.detach(client.name)

    def _publish(self) -> None:
        if client := self._client():
            self._events += 1
            party, event = self._party(client), self._random_event(self.rng, self._events)
            node = self.sim.brokers[client.broker].node
            assert node is not None
            if self.advertises and not self._may_publish(client, party, event, node.registry):
                return
            self.checker.publishes(client, party, event)
            self._submit(client, Publish(party, event))

    def _may_publish(self, client: Client, party: str, event: Event, registry: TypeRegistry) -> bool:
        if self.is_overlay:  # an advertisement is for one type
            return any(item.type == event.type for item in client.allowing(party, event))
        return client.may_publish(party, event, registry)

    def _define_type(self) -> None:
        """The next type, where its parent is known."""
        client = self._client()
        node = self.sim.brokers[client.broker].node if client else None
        if client is None or node is None or not self._types:
            return
        if self._types[0].parent is None or self._types[0].parent in node.registry:
            self._submit(client, DefineType(self._party(client), self._types.pop(0)))

    # ------------------------------------------------ the network

    def _connect(self, a: str, b: str) -> None:
        self.checker.link_changes((a, b))
        self.sim.connect(a, b, Distance(self.rng.uniform(0.001, 0.05)))

    def _link(self, is_cut: bool) -> Link | None:
        links = [link for link in self.sim.links if link.is_cut == is_cut]
        return self.rng.choice(links) if links else None

    def _cut(self) -> None:
        if link := self._link(is_cut=False):
            self._touch([link])
            self.sim.cut(link)

    def _restore(self) -> None:
        if link := self._link(is_cut=True):
            self._touch([link])
            self.sim.restore(link)

    def _partition(self) -> None:
        names = list(self.sim.brokers)
        group = tuple(self.rng.sample(names, self.rng.randrange(1, len(names)))) if len(names) > 1 else ()
        self._touch(link for link in self.sim.links if (link.a in group) != (link.b in group))
        Partition(group).apply(self.sim)

    def _part(self) -> None:
        """Of an overlay: for a moment, or until each part has taken the other for dead and goes on alone."""
        if self.sim.now < self._whole_at:
            return
        names = list(self.sim.brokers)
        self._touch(self.sim.links)
        self.checker.divides()
        Partition(tuple(self.rng.sample(names, self.rng.randrange(len(names))))).apply(self.sim)
        self._whole_at = self.sim.now + self.rng.choice((0.1, 2.0, 8.0))
        self.sim.at(self._whole_at, partial(Heal().apply, self.sim))

    def _heal(self) -> None:
        self._touch(link for link in self.sim.links if link.is_cut)
        Heal().apply(self.sim)

    def _join(self) -> None:
        """A new broker connects to one that is there, or to two if cycles are allowed."""
        self._names += 1
        name = f"b{self._names + 100}"
        there = self.rng.sample(list(self.sim.brokers), min(len(self.sim.brokers), 1 + self.is_cyclic))
        self.sim.add_broker(name)
        for broker in there:
            self._connect(name, broker)
        self._attach(name)

    def _leave(self) -> None:
        """A broker leaves, with its clients: one at the edge, where others depend on those between."""
        there = [n for n, b in self.sim.brokers.items() if self.is_cyclic or len(b.links) < 2]
        if len(self.sim.brokers) < 3 or not there:
            return
        name = self.rng.choice(there)
        for client in [client for client in self.sim.clients.values() if client.broker == name]:
            self.checker.concerns(client)
            self.sim.detach(client.name)
        self._touch(self.sim.brokers[name].links.values())
        self._crashed = [crashed for crashed in self._crashed if crashed != name]
        self.sim.farewell(name)
        if self.is_overlay:
            self.sim.at(self.sim.now + _WINDOW, lambda: self._gone(name))
        else:
            self.sim.remove_broker(name)

    def _gone(self, name: str) -> None:
        """Some time after its farewell, with whoever came to it meanwhile."""
        if name in self.sim.brokers:
            for client in [client for client in self.sim.clients.values() if client.broker == name]:
                self.checker.concerns(client)
                self.sim.detach(client.name)
            self._crashed = [crashed for crashed in self._crashed if crashed != name]
            self.sim.remove_broker(name)

    def _touch(self, links: Iterable[Link]) -> None:
        self.checker.link_changes(*((link.a, link.b) for link in links))

    def _crash(self) -> None:
        name = self.rng.choice(list(self.sim.brokers))
        if name in self._crashed:
            return
        self._touch(self.sim.brokers[name].links.values())
        for client in self.sim.clients.values():
            if client.broker == name:
                self.checker.concerns(client)
        self._crashed.append(name)
        self.sim.crash(name)
        if self.rng.random() < 0.6:
            self._soon(self._restart)

    def _restart(self) -> None:
        if self._crashed:
            name = self._crashed.pop(self.rng.randrange(len(self._crashed)))
            self._touch(self.sim.brokers[name].links.values())
            self.sim.restart(name, resubscribe=self.rng.random() < 0.7)

    # ------------------------------------------------ links

    def _delay(self) -> None:
        if link := self._link(is_cut=False):
            seconds = self.rng.choice((0.0, 0.1, 0.5))
            Delay(link.a, link.b, seconds).apply(self.sim)

    def _slow(self) -> None:
        if link := self._link(is_cut=False):
            Slow(link.a, link.b, self.rng.choice((0, 1000, 10_000))).apply(self.sim)

    def _all_slow(self) -> None:
        """No link passes more than a few messages a second, so that what happens at once arrives apart."""
        bandwidth = self.rng.choice((0, 500, 1000))
        for link in self.sim.links:
            Slow(link.a, link.b, bandwidth).apply(self.sim)

    def _duplicate(self) -> None:
        if link := self._link(is_cut=False):
            Duplicate(link.a, link.b, self.rng.choice((0.0, 0.3, 1.0))).apply(self.sim)

    def _reorder(self) -> None:
        if link := self._link(is_cut=False):
            Reorder(link.a, link.b, self.rng.choice((0.0, 0.02, 0.2))).apply(self.sim)
