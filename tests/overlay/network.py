"""Nodes of Pan on the simulator's engine, without brokers above: a layer that notes what it is told."""

from __future__ import annotations

from angelia.overlay.ids import distance, number
from angelia.overlay.pan import Pan
from angelia.sim.engine import Simulation

QUICK = {"heartbeat": 1.0, "refresh": 1.0, "lease": 3.0, "timeout": 1.0}


def overlay(names: list[str], *, settle: float = 0.0, **options) -> Simulation:
    """Brokers that join one after the other, each through the one before."""
    sim = Simulation("hermes", options={**QUICK, **options})
    for before, name in zip([None, *names], names, strict=False):
        sim.add_broker(name)
        if before is not None:
            sim.connect(name, before)
        sim.run()
    if settle:
        sim.run(sim.now + settle)
    return sim


def pan(sim: Simulation, name: str) -> Pan:
    return sim.brokers[name].node.router.pan


def alive(sim: Simulation) -> dict[str, Pan]:
    return {name: pan(sim, name) for name, broker in sim.brokers.items() if broker.node is not None}


def nearest(sim: Simulation, key: str) -> str:
    """The live node whose id is numerically nearest to a key, by looking at all of them."""
    value = number(key)
    nodes = alive(sim)
    return min(nodes, key=lambda n: (distance(number(nodes[n].me.id), value), number(nodes[n].me.id)))


def path(sim: Simulation, start: str, key: str) -> list[str]:
    """The brokers that a message for a key passes, by the tables as they are."""
    found = [start]
    while (hop := pan(sim, found[-1]).next_hop(key)) is not None:
        assert hop.name not in found, f"{key} goes round in circles: {found}"
        found.append(hop.name)
    return found


def check_leaf_sets(sim: Simulation) -> None:
    """Every leaf set has the l/2 nodes with the next larger, and with the next smaller ids."""
    nodes = alive(sim)
    ids = sorted((number(node.me.id), name) for name, node in nodes.items())
    for place, (_, name) in enumerate(ids):
        half = min(nodes[name].settings.leaf_set // 2, len(ids) - 1)
        larger = [ids[(place + i + 1) % len(ids)][1] for i in range(half)]
        smaller = [ids[(place - i - 1) % len(ids)][1] for i in range(half)]
        assert [c.name for c in nodes[name].leaf_set.larger] == larger, name
        assert [c.name for c in nodes[name].leaf_set.smaller] == smaller, name
