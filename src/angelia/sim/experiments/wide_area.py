"""The network configurations of SIENA 6.2.1.1: servers at the sites of a wide-area network.

There is one server at each site (or a single one in the centre), clients use the server of their
site, and a message costs what the cheapest physical path between its two sites costs. Within a site
communication is free. The simulator's engine does the rest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from angelia.messages import Reach, Request
from angelia.sim.engine import Delivery, Simulation
from angelia.sim.links import Distance
from angelia.sim.topology import Distances, Edges, Physical, center, spanning_tree

__all__ = ["ARCHITECTURES", "Account", "Architecture", "Sites", "WideArea"]


class Architecture(NamedTuple):
    """Which servers there are, and how they route."""

    title: str
    routing: str
    central: bool = False


ARCHITECTURES: Mapping[str, Architecture] = {
    # One server needs no forwarding; with the flooding router it filters for its clients, no more.
    "ce": Architecture("centralized", "flooding", central=True),
    "hs": Architecture("hierarchical, subscription forwarding", "hierarchical"),
    "as": Architecture("acyclic peer-to-peer, subscription forwarding", "peer"),
    "aa": Architecture("acyclic peer-to-peer, advertisement forwarding", "advertisement"),
}


class Sites(NamedTuple):
    """All nodes of a physical network as sites: how far they are, the central one, and a tree from it.

    The same tree serves the hierarchy and the peers, so that they differ by their algorithms alone.
    """

    distances: Distances
    root: int
    tree: Edges

    @classmethod
    def of(cls, physical: Physical) -> Sites:
        """The sites of a network, with the cheapest tree that spans them."""
        distances = physical.distances(range(physical.n))
        root = center(distances.cost)
        return cls(distances, root, spanning_tree(distances.cost, root))

    def between(self, one: int, other: int) -> Distance:
        """How far it is from one site to another."""
        latency, cost, hops = (matrix[one, other] for matrix in self.distances)
        return Distance(float(latency), float(cost), int(hops))


class Account:
    """What has been spent, and how many messages for that: by kind, and by site at both their ends."""

    def __init__(self, sites: int) -> None:
        self.cost: defaultdict[str, float] = defaultdict(float)
        self.messages: Counter[str] = Counter()
        self.sites = [0.0] * sites

    def add(self, kind: str, cost: float, one: int, other: int, number: int = 1) -> None:
        """Messages of a kind went from one site to another."""
        if one == other:
            return
        self.cost[kind] += cost * number
        self.messages[kind] += number
        self.sites[one] += cost * number
        self.sites[other] += cost * number

    @property
    def total(self) -> float:
        """The total cost."""
        return sum(self.cost.values())


class WideArea:
    """An architecture on sites. `received` is told the parties that an event has reached, and when."""

    def __init__(
        self, architecture: Architecture, sites: Sites, received: Callable[[list[str], float], None]
    ) -> None:
        self.number = len(sites.distances.cost)
        self._sites = sites
        self._received = received
        self._simulation = Simulation(architecture.routing, on_delivery=self._delivered)
        self._access = Account(self.number)  # between clients and a server at another site
        self.server_of = [sites.root] * self.number if architecture.central else list(range(self.number))
        self._way = [sites.between(site, server) for site, server in enumerate(self.server_of)]
        for site in sorted(set(self.server_of)):
            self._simulation.add_broker(_name(site))
        for child, parent in () if architecture.central else sites.tree:
            self._simulation.connect(_name(child), _name(parent), sites.between(child, parent))
        for site in range(self.number):
            self._simulation.attach(_name(site), _name(self.server_of[site]))
        self._simulation.run()

    @property
    def now(self) -> float:
        """The virtual time."""
        return self._simulation.now

    def at(self, time: float, action: Callable[[float], None]) -> None:
        """Call an action at a time."""
        self._simulation.at(time, lambda: action(time))

    def request(self, site: int, request: Request) -> None:
        """A client at a site makes a request of its server, now."""
        server, way = self.server_of[site], self._way[site]
        self._access.add(type(request).__name__, way.cost, site, server)
        self._simulation.at(self.now + way.latency, lambda: self._simulation.submit(_name(site), request))

    def run(self) -> Account:
        """Go on until nothing is left to happen; returns what has been spent."""
        self._simulation.run()
        if self._simulation.refusals:
            raise RuntimeError(f"a request was refused: {self._simulation.refusals[0]}")
        account = self._access
        for link in self._simulation.links:
            for channel in link.channels:
                ends = int(channel.source[1:]), int(channel.target[1:])
                for kind, number in channel.sent.items():
                    if kind is not Reach:  # how servers find each other is not part of the study
                        account.add(kind.__name__, channel.distance.cost, *ends, number)
        return account

    def _delivered(self, delivery: Delivery) -> None:
        """To each party by itself: with a server at another site, that is a message each."""
        site = int(delivery.client.name[1:])
        server, way = self.server_of[site], self._way[site]
        self._access.add("Notify", way.cost, server, site, len(delivery.identities))
        parties = sorted(delivery.identities)
        self.at(delivery.time + way.latency, lambda time: self._received(parties, time))


def _name(site: int) -> str:
    return f"s{site}"
