"""The networks of the HERMES study (thesis 5.2, 5.3): brokers on 1,000 physical nodes, in three ways.

| network          | routing         | brokers are linked                                               |
|------------------|-----------------|------------------------------------------------------------------|
| `hermes`         | `hermes`        | by Pan; each joins through the nearest that is there already     |
| `covadv-closest` | `advertisement` | each with the nearest that is there already                      |
| `covadv-mst`     | `advertisement` | by the minimum spanning tree, with respect to latency            |

`CovAdv` is what the thesis calls SIENA's routing with advertisements and covering, which we have.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from angelia.overlay import Pan
from angelia.routing.advertisement import AdvertisementForwarding
from angelia.routing.hermes import Hermes
from angelia.routing.overlay import OverlayRouter
from angelia.routing.scribe import Scribe
from angelia.sim.engine import Delivery, Simulation
from angelia.sim.links import Distance
from angelia.sim.topology import Distances, Links, spanning_tree, transit_stub

__all__ = ["NETWORKS", "PAN", "Entries", "entries", "hosts", "network", "pan_of", "physical", "route"]

PAN: Mapping[str, Any] = {"b": 4, "leaf_set": 4, "heartbeat": None, "refresh": None}  # Table 5.1; no failures
NETWORKS = ("hermes", "covadv-closest", "covadv-mst")

Entries = tuple[int, int]  # of the advertisement and of the subscription routing table


@cache
def physical(seed: int) -> Distances:
    """The distances of 1,000 nodes in 10 autonomous systems; links take 10 ms to 1 s (5.2.1)."""

    def links(fast: float, slow: float) -> Links:
        return Links((fast, slow), (1000 * fast, 1000 * slow))  # the cheapest way is the fastest

    nodes = transit_stub(
        seed,
        transit_domains=10,
        in_stub=links(0.010, 0.050),
        stub_to_transit=links(0.050, 0.150),
        in_transit=links(0.100, 0.300),
        between_transit=links(0.300, 1.000),
    )
    return nodes.distances(range(nodes.n))


def hosts(rng: random.Random, number: int, size: int) -> list[int]:
    """Where brokers stand: on nodes of their own, while there are enough."""
    found: list[int] = []
    while len(found) < number:
        found += rng.sample(range(size), min(size, number - len(found)))
    return found


def network(
    name: str,
    brokers: int,
    seed: str,
    on_delivery: Callable[[Delivery], None] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Simulation:
    """A network of brokers b0, b1, …, at rest."""
    rng = random.Random(seed)
    far = physical(rng.randrange(5))
    places = hosts(rng, brokers, len(far.latency))

    def distance(a: int, b: int) -> Distance:
        return Distance(max(float(far.latency[a, b]), 0.0005), float(far.cost[a, b]), int(far.hops[a, b]))

    routing = "advertisement" if name.startswith("covadv") else name
    chosen = dict(PAN if options is None else options) if routing != "advertisement" else {}
    if routing == "hermes":
        chosen.setdefault("inheritance", None)
    sim = Simulation(routing, on_delivery=on_delivery, distance=distance, options=chosen)
    tree = name == "covadv-mst"
    for number, place in enumerate(places):
        sim.add_broker(f"b{number}", place)
        if number and not tree:
            sim.connect(f"b{number}", f"b{int(np.argmin(far.latency[place, places[:number]]))}")
            sim.run()
    if tree:
        for a, b in spanning_tree(far.latency[np.ix_(places, places)], 0):
            sim.connect(f"b{a}", f"b{b}")
        sim.run()
    return sim


def entries(sim: Simulation) -> dict[str, Entries]:
    """How many entries the routing tables of each broker have."""
    found: dict[str, Entries] = {}
    for name, broker in sim.brokers.items():
        if broker.node is None:
            continue
        router = broker.node.router
        if isinstance(router, Hermes):
            counts = [
                (table.kind.value, len(table.entries.poset))
                for t in router.trees.values()
                for table in t.tables
            ]
            advertised = sum(count for kind, count in counts if kind == "advertisements")
            found[name] = advertised, sum(count for _, count in counts) - advertised
        elif isinstance(router, AdvertisementForwarding):
            found[name] = len(router.advertisements.poset), len(router.subscriptions.poset)
        elif isinstance(router, Scribe):
            found[name] = 0, len(router.groups)
    return found


def pan_of(sim: Simulation, broker: str) -> Pan:
    """A broker's node of the overlay."""
    node = sim.brokers[broker].node
    assert node is not None
    assert isinstance(node.router, OverlayRouter)
    return node.router.pan


def route(sim: Simulation, start: str, key: str) -> list[str]:
    """The brokers on the way of a message from one of them to the one nearest to a key, both included."""
    way = [start]
    while (hop := pan_of(sim, way[-1]).next_hop(key)) is not None:
        way.append(hop.name)
    return way
