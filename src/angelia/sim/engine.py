"""The simulator's engine: real nodes in virtual time, over modelled links, repeatable from a seed.

What is to happen is in a heap, by time and then by number. An input is given to a node, its effects
become messages under way, deliveries and replies. Nothing takes time but the links. The same seed
and the same calls give the same run, and the same journal, byte for byte.

Timers of nodes fire in `run(until)` alone: without a time they would go on for ever, so `run()` leaves
them standing, and ends when nothing else is left to happen. In an overlay, brokers link themselves:
a link that a node asks for is up after the way there, or the node is told by then that it cannot be.

Both ends of a link learn at the same instant that it is up or down. What is under way on a link that
goes down is lost. Where a node refuses a message or a peer, the link is cut, and the journal says so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

from angelia.errors import AngeliaError
from angelia.event import Event
from angelia.messages import (
    ClientDown,
    Connect,
    Deliver,
    DeliverSequence,
    Disconnect,
    Effect,
    FromClient,
    FromPeer,
    Input,
    Leave,
    Measure,
    Measured,
    Message,
    Notify,
    PeerDown,
    PeerUp,
    Reply,
    Request,
    Send,
    SetTimer,
    Timer,
    TypeRemoved,
)
from angelia.node import Node
from angelia.sim.clients import Client
from angelia.sim.errors import SimulationError
from angelia.sim.journal import Journal, detail_of
from angelia.sim.links import Channel, Distance, Link, distances
from angelia.sim.topology import Physical

__all__ = ["EPOCH", "Broker", "Delivery", "Refusal", "SequenceDelivery", "Simulation"]

EPOCH = 1_767_225_600.0  # what nodes take for the time at virtual time 0: 2026-01-01T00:00:00Z
_NEAR = Distance(0.01)  # between brokers, where there is no physical network


class Delivery(NamedTuple):
    """An event that came to a client, for some of its parties."""

    time: float
    client: Client
    identities: frozenset[str]
    event: Event
    cause: int
    hops: int


class SequenceDelivery(NamedTuple):
    """The events of a pattern that came to a client, for some of its parties."""

    time: float
    client: Client
    identities: frozenset[str]
    events: tuple[Event, ...]


class Refusal(NamedTuple):
    """A request that was not granted, and why."""

    time: float
    client: str
    request: Request
    error: str


class Broker:
    """A broker: its node (None while it is down), where it stands, and its links by peer."""

    __slots__ = ("channels", "host", "is_gateway", "is_hung", "links", "name", "node", "options", "timers")

    def __init__(self, name: str, host: int, is_gateway: bool, node: Node) -> None:
        self.name = name
        self.host = host
        self.is_gateway = is_gateway
        self.node: Node | None = node
        self.is_hung = False
        self.options: Mapping[str, Any] = {}  # of its router, besides those of all
        self.links: dict[str, Link] = {}
        self.channels: dict[str, Channel] = {}  # those that are up
        self.timers: dict[str, int] = {}  # those that are set, with their numbers


# time, number, then for a message: its channel, itself, the channel's generation, cause and hops;
# for anything else: None and what to do.
_Entry = tuple[float, int, Channel | None, Any, int, int, int]


class Simulation:
    """A network of brokers with one routing: `Simulation("peer", seed=1)`.

    `physical` is the network that the brokers' hosts are nodes of; without one, all links have a
    latency of 10 ms. `bandwidth` is that of a link, in bytes a second. `options` are those of the
    router; `distance` tells how far two hosts are, where an overlay asks for many.
    """

    def __init__(
        self,
        routing: str,
        *,
        seed: int = 0,
        physical: Physical | None = None,
        bandwidth: float | None = None,
        journal: Journal | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
        on_sequence: Callable[[SequenceDelivery], None] | None = None,
        options: Mapping[str, Any] | None = None,
        distance: Callable[[int, int], Distance] | None = None,
    ) -> None:
        self.routing = routing
        self.options = options or {}
        self._distance = distance
        self.now = 0.0
        self.rng = random.Random(f"faults {seed}")
        self.brokers: dict[str, Broker] = {}
        self.clients: dict[str, Client] = {}
        self.links: list[Link] = []
        self.messages = 0  # how many have arrived
        self.refusals: list[Refusal] = []
        self.islands: list[frozenset[str]] = []  # brokers that cannot be linked with the others
        self._physical = physical
        self._bandwidth = bandwidth
        self._journal = journal
        self._on_delivery = on_delivery
        self._on_sequence = on_sequence
        self._heap: list[_Entry] = []
        self._timers: list[tuple[float, int, str, str]] = []  # time, number, broker, name
        self._waiting: dict[int, tuple[Client, Request]] = {}  # requests that have no reply yet
        self._number = 0

    # ------------------------------------------------ building

    def add_broker(self, name: str, host: int = 0, is_gateway: bool = False, **options: Any) -> Broker:
        """A new broker on a host; with `hybrid` routing, perhaps the gateway of a domain.

        `options` are those of its router, besides those of all brokers.
        """
        if name in self.brokers:
            raise SimulationError(f"there is a broker {name} already")
        broker = self.brokers[name] = Broker(name, host, is_gateway, self._node(name, options))
        broker.options = options
        self._note("fault", name, "", "join", self._next(), "")
        return broker

    def _node(self, name: str, options: Mapping[str, Any]) -> Node:
        return Node(name, self.routing, address=name, **{**self.options, **options})

    def farewell(self, name: str) -> None:
        """A broker is told that it is going to leave, so that it can tell others (see `remove_broker`)."""
        number = self._next()
        self._note("fault", name, "", "farewell", number, "")
        self._give(self.broker(name), Leave(), number)

    def remove_broker(self, name: str) -> None:
        """A broker leaves for good: its links go down and are gone."""
        broker = self.broker(name)
        for link in list(broker.links.values()):
            self.drop(link)
        del self.brokers[name]
        broker.node = None
        self._note("fault", name, "", "leave", self._next(), "")

    def connect(self, a: str, b: str, distance: Distance | None = None) -> Link:
        """Link two brokers; in a hierarchy, `b` becomes the master of `a` (but not between gateways)."""
        return self._link(a, b, distance or self._between(self.broker(a), self.broker(b)))

    def distance(self, a: str, b: str) -> Distance:
        """How far two brokers are from each other, linked or not."""
        return self._between(self.broker(a), self.broker(b))

    def _between(self, a: Broker, b: Broker) -> Distance:
        if self._distance is not None:
            return self._distance(a.host, b.host)
        hosts = a.host, b.host
        return _NEAR if self._physical is None else distances(self._physical, [hosts])[hosts]

    def connect_all(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Link many pairs of brokers, which searches the physical network fewer times."""
        pairs = list(pairs)
        hosts = [(self.broker(a).host, self.broker(b).host) for a, b in pairs]
        far = {} if self._physical is None else distances(self._physical, hosts)
        for (a, b), ends in zip(pairs, hosts, strict=True):
            self._link(a, b, far.get(ends, _NEAR))

    def _link(self, a: str, b: str, distance: Distance) -> Link:
        if a == b or b in self.broker(a).links:
            raise SimulationError(f"{a} and {b} cannot be linked: they are the same, or are linked already")
        link = self._new_link(a, b, distance)
        self.settle(link)
        return link

    def _new_link(self, a: str, b: str, distance: Distance) -> Link:
        link = Link(a, b, distance, self._bandwidth)
        self.links.append(link)
        self.broker(a).links[b] = self.broker(b).links[a] = link
        return link

    def attach(self, client: str, broker: str) -> Client:
        """A new client at a broker, on the same host."""
        if client in self.clients:
            raise SimulationError(f"there is a client {client} already")
        self.clients[client] = Client(client, self.broker(broker).name)
        return self.clients[client]

    def broker(self, name: str) -> Broker:
        """The broker of that name."""
        if name not in self.brokers:
            raise SimulationError(f"there is no broker {name!r}")
        return self.brokers[name]

    def link(self, a: str, b: str) -> Link:
        """The link between two brokers."""
        if b not in self.broker(a).links:
            raise SimulationError(f"there is no link between {a} and {b}")
        return self.brokers[a].links[b]

    # ------------------------------------------------ running

    def at(self, time: float, do: Callable[[], None]) -> None:
        """Do something at a time."""
        if time < self.now:
            raise SimulationError(f"the time {time} is past: it is {self.now}")
        heappush(self._heap, (time, self._next(), None, do, 0, 0, 0))

    def run(self, until: float = inf) -> None:
        """Go on until nothing but timers is left to happen, or, timers included, until a time."""
        heap, brokers = self._heap, self.brokers
        timers = self._timers if until < inf else []
        while True:
            if timers and timers[0][0] <= (min(heap[0][0], until) if heap else until):
                self._fire()
                continue
            if not heap or heap[0][0] > until:
                break
            self.now, number, channel, what, generation, cause, hops = heappop(heap)
            if channel is None:
                what()
                continue
            if generation != channel.generation:
                self._record("dropped", channel, what, number, cause, hops)
                continue
            self.messages += 1
            if self._journal is not None:
                self._record("received", channel, what, number, cause, hops)
            broker = brokers[channel.target]
            given = FromPeer(channel.source, what)
            try:
                effects = broker.node.handle(given, EPOCH + self.now)  # type: ignore[union-attr]
            except AngeliaError as error:
                self._refuse(broker, channel.source, str(error))
                continue
            if effects:
                self._carry_out(broker, effects, cause, hops)
        if until < inf:
            self.now = max(self.now, until)

    def submit(self, client: str, request: Request) -> None:
        """A client makes a request, now. It is lost if the broker is down."""
        if client not in self.clients:
            raise SimulationError(f"there is no client {client!r}")
        who = self.clients[client]
        number = self._next()
        if self._journal is not None:
            kind, detail = type(request).__name__, detail_of(request)
            self._note("request", who.broker, request.identity, kind, number, detail)
        self._request(who, request, number)

    def _request(self, client: Client, request: Request, number: int) -> None:
        broker = self.brokers.get(client.broker)
        if broker is None or broker.node is None:
            self._refused(client, request, "the broker is down", number)
            return
        effects = broker.node.handle(FromClient(client.name, request, number), EPOCH + self.now)
        self._waiting[number] = client, request
        self._carry_out(broker, effects, number, 0)

    def _replied(self, broker: Broker, reply: Reply) -> None:
        """A request was granted or refused, at once or after a while."""
        client, request = self._waiting.pop(reply.number)
        if reply.error is not None:
            self._refused(client, request, reply.error, reply.number)
        elif broker.node is not None:
            client.note(request, broker.node.registry)

    def _refused(self, client: Client, request: Request, error: str, number: int) -> None:
        self.refusals.append(Refusal(self.now, client.name, request, error))
        self._note("reply", client.broker, request.identity, type(request).__name__, number, error)

    def detach(self, client: str) -> None:
        """A client leaves, with all its parties."""
        gone = self.clients.pop(client)
        number = self._next()
        self._note("request", gone.broker, client, "ClientDown", number, "")
        if gone.broker in self.brokers:
            self._give(self.brokers[gone.broker], ClientDown(client), number)

    # ------------------------------------------------ faults of brokers and links (see `faults`)

    def crash(self, name: str) -> None:
        """A broker dies, with all its state; its links go down."""
        broker = self.broker(name)
        broker.node, broker.is_hung = None, False
        broker.timers.clear()
        self._note("fault", name, "", "crash", self._next(), "")
        for link in broker.links.values():
            self.settle(link)
        lost = [(number, *waiting) for number, waiting in self._waiting.items() if waiting[0].broker == name]
        for number, client, request in lost:
            del self._waiting[number]
            self._refused(client, request, "the broker is down", number)

    def hang(self, name: str) -> None:
        """A broker stops, though its links are up: what comes to it is lost, and it says nothing more."""
        broker = self.broker(name)
        self._note("fault", name, "", "hang", self._next(), "")
        if broker.node is not None:
            broker.is_hung = True
            broker.node.handle = lambda given, now: []  # type: ignore[method-assign, assignment]

    def restart(self, name: str, resubscribe: bool = True) -> None:
        """A broker is back, empty. Its clients ask again for what they had, or have lost it."""
        broker = self.broker(name)
        if broker.node is not None:
            raise SimulationError(f"{name} is not down")
        broker.node = self._node(name, broker.options)
        self._note("fault", name, "", "restart", self._next(), "")
        for link in broker.links.values():
            self.settle(link)
        for client in [client for client in self.clients.values() if client.broker == name]:
            standing = list(client.standing())
            client.forget()
            for request in standing if resubscribe else ():
                self.submit(client.name, request)

    def cut(self, link: Link) -> None:
        """Cut a link."""
        link.is_cut = True
        self.settle(link)

    def drop(self, link: Link) -> None:
        """Take a link away, for good."""
        self.cut(link)
        self.links.remove(link)
        del self.brokers[link.a].links[link.b], self.brokers[link.b].links[link.a]

    def restore(self, link: Link) -> None:
        """Restore a link that was cut."""
        link.is_cut = False
        self.settle(link)

    def _is_parted(self, a: str, b: str) -> bool:
        return any((a in island) != (b in island) for island in self.islands)

    def set_channels(self, link: Link, name: str, value: float) -> None:
        """Set a property of both channels of a link: delay, bandwidth, duplicate or reorder."""
        self._note("fault", link.a, link.b, name, self._next(), str(value))
        for channel in link.channels:
            setattr(channel, name, value)
            channel.settle()

    def settle(self, link: Link) -> None:
        """Bring a link up, or down, as its ends are and as it is cut or not."""
        ends = self.brokers[link.a], self.brokers[link.b]
        parted = link.is_cut or self._is_parted(link.a, link.b)
        up = not parted and all(end.node is not None for end in ends)
        if up == link.is_up:
            return
        link.is_up = up
        number = self._next()
        self._note("link", link.a, link.b, "up" if up else "down", number, "")
        for channel in link.channels:
            channel.restart(self.now)
            if up:
                self.brokers[channel.source].channels[channel.target] = channel
            else:
                del self.brokers[channel.source].channels[channel.target]
        if not up:
            for channel in link.channels:
                self._give(self.brokers[channel.source], PeerDown(channel.target), number)
        else:
            self._bring_up(link, number)

    def _bring_up(self, link: Link, number: int) -> None:
        """Tell both ends; if one refuses, the link is cut, and the other is told that."""
        between_gateways = self.brokers[link.a].is_gateway and self.brokers[link.b].is_gateway
        has_master = self.routing == "hierarchical" or (self.routing == "hybrid" and not between_gateways)
        told: list[tuple[str, str]] = []
        for name, peer, master in ((link.a, link.b, has_master), (link.b, link.a, False)):
            try:
                self._give(self.brokers[name], PeerUp(peer, master), number)
                told.append((name, peer))
            except AngeliaError as error:
                link.is_cut, link.is_up = True, False
                self._note("link", name, peer, "refused", number, str(error))
                for channel in link.channels:
                    channel.restart(self.now)
                    del self.brokers[channel.source].channels[channel.target]
                for end, other in told:
                    self._give(self.brokers[end], PeerDown(other), number)
                return

    def _refuse(self, broker: Broker, peer: str, error: str) -> None:
        """A node does not accept what a peer sent: the link is cut."""
        self._note("link", broker.name, peer, "refused", self._number, error)
        self.cut(broker.links[peer])

    # ------------------------------------------------ inside

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _give(self, broker: Broker, given: Input, number: int) -> None:
        if broker.node is not None:
            self._carry_out(broker, broker.node.handle(given, EPOCH + self.now), number, 0)

    def _carry_out(self, broker: Broker, effects: list[Effect], cause: int, hops: int) -> None:
        for effect in effects:
            if type(effect) is Send:
                self._send(broker, effect, cause, hops + 1)
            elif type(effect) is Deliver:
                for name, parties in effect.to:
                    self._note_delivery(broker, "Deliver", parties, (effect.event,), cause, hops)
                    client = self.clients.get(name)
                    if self._on_delivery is not None and client is not None:
                        self._on_delivery(Delivery(self.now, client, parties, effect.event, cause, hops))
            elif type(effect) is DeliverSequence:
                parties, events = effect.identities, effect.events
                self._note_delivery(broker, "DeliverSequence", parties, events, cause, hops)
                who = self.clients.get(effect.client)
                if self._on_sequence is not None and who is not None:
                    self._on_sequence(SequenceDelivery(self.now, who, parties, events))
            elif type(effect) is Reply:
                self._replied(broker, effect)
            elif type(effect) is TypeRemoved:
                self._type_removed(broker, effect.name)
            elif type(effect) is SetTimer:
                self._set_timer(broker, effect)
            elif type(effect) is Measure:
                self._measure(broker, effect.peer)
            elif type(effect) is Connect:
                self._connect(broker, effect.peer)
            elif type(effect) is Disconnect:
                self._disconnect(broker, effect.peer)

    def _type_removed(self, broker: Broker, name: str) -> None:
        """What the clients of a broker had of a type is over."""
        assert broker.node is not None
        for client in self.clients.values():
            if client.broker == broker.name:
                client.lose(name, broker.node.registry)

    # ------------------------------------------------ what overlays ask for

    def _set_timer(self, broker: Broker, effect: SetTimer) -> None:
        broker.timers.pop(effect.name, None)
        if effect.delay is not None:
            number = broker.timers[effect.name] = self._next()
            heappush(self._timers, (self.now + effect.delay, number, broker.name, effect.name))

    def _fire(self) -> None:
        time, number, name, timer = heappop(self._timers)
        self.now = max(self.now, time)  # it may have stood while others went on
        broker = self.brokers.get(name)
        if broker is not None and broker.timers.get(timer) == number:
            del broker.timers[timer]
            self._give(broker, Timer(timer), number)

    def _later(self, broker: Broker, delay: float, given: Input) -> None:
        """Give an input after a while, if the broker has not been started anew by then."""
        node = broker.node

        def give() -> None:
            if broker.node is node:
                self._give(broker, given, self._next())

        self.at(self.now + delay, give)

    def _measure(self, broker: Broker, peer: str) -> None:
        """A round trip, if there is a way."""
        other, link = self.brokers.get(peer), broker.links.get(peer)
        if other is None:
            self._later(broker, _NEAR.latency, Measured(peer, None))
            return
        latency = self._between(broker, other).latency if link is None else link.channels[0].latency
        parted = self._is_parted(broker.name, peer) or (link is not None and link.is_cut)
        there = other.node is not None and not other.is_hung and not parted
        self._later(broker, 2 * latency, Measured(peer, 2 * latency if there else None))

    def _connect(self, broker: Broker, peer: str) -> None:
        other, link = self.brokers.get(peer), broker.links.get(peer)
        if link is not None and link.is_up:
            return
        if link is None and other is not None and other is not broker:
            link = self._new_link(broker.name, peer, self._between(broker, other))
        if link is None:
            self._later(broker, _NEAR.latency, PeerDown(peer))
            return
        self.at(self.now + link.channels[0].latency, lambda: self._try(broker, link))

    def _try(self, broker: Broker, link: Link) -> None:
        """Bring a link up that a broker asked for, if it is not up, or tell that it cannot be."""
        peer = link.b if link.a == broker.name else link.a
        if link.is_up or broker.links.get(peer) is not link:
            return
        self.settle(link)
        if not link.is_up:
            self._give(broker, PeerDown(peer), self._next())

    def _disconnect(self, broker: Broker, peer: str) -> None:
        """Take a link away that a broker no longer needs."""
        link = broker.links.get(peer)
        if link is not None:
            self.drop(link)

    def _send(self, broker: Broker, effect: Send, cause: int, hops: int) -> None:
        """Put a message on its way; in two copies, if the channel does so."""
        channel, message = broker.channels.get(effect.peer), effect.message
        if channel is None:  # refused in the same instant
            return
        arrivals: Iterable[float]
        if channel.is_plain:
            arrival = self.now + channel.latency
            if arrival < channel.last:
                arrival = channel.last
            channel.last = arrival
            arrivals = (arrival,)
        else:
            arrivals = channel.arrivals(message, self.now, self.rng)
        kind = type(message)
        for arrival in arrivals:
            channel.sent[kind] = channel.sent.get(kind, 0) + 1
            self._number = number = self._number + 1
            heappush(self._heap, (arrival, number, channel, message, channel.generation, cause, hops))
            if self._journal is not None:
                self._record("sent", channel, message, number, cause, hops)

    # ------------------------------------------------ the journal

    def _record(
        self, record: str, channel: Channel, message: Message, number: int, cause: int, hops: int
    ) -> None:
        journal = self._journal
        if journal is None:
            return
        at, peer = channel.source, channel.target
        if record == "received":
            at, peer = peer, at
        detail = message.event.id or "" if type(message) is Notify else detail_of(message)
        journal.add(self.now, record, at, peer, type(message).__name__, number, cause, hops, detail)

    def _note_delivery(
        self,
        broker: Broker,
        kind: str,
        parties: frozenset[str],
        events: tuple[Event, ...],
        cause: int,
        hops: int,
    ) -> None:
        if self._journal is None:
            return
        detail = " ".join(event.id or "" for event in events)
        for party in sorted(parties):
            self._journal.add(
                self.now, "delivery", broker.name, party, kind, self._next(), cause, hops, detail
            )

    def _note(self, record: str, at: str, peer: str, kind: str, number: int, detail: str) -> None:
        """Record what is not a message, and is its own cause."""
        if self._journal is not None:
            self._journal.add(self.now, record, at, peer, kind, number, number, 0, detail)
