"""What must be true of the routing state of a network at rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from angelia.node import Node
from angelia.routing import Peer
from angelia.sim.checker import Violation, reachable
from angelia.sim.engine import Simulation

__all__ = ["check_agreement", "check_empty", "check_no_strangers"]


def check_agreement(sim: Simulation) -> None:
    """Neighbours agree: what one has forwarded to the other, the other has from it."""
    nodes = {name: broker.node for name, broker in sim.brokers.items() if broker.node is not None}
    for name, node in nodes.items():
        state = node.state()
        linked = {peer for peer, link in sim.brokers[name].links.items() if link.is_up}
        if set(state["neighbors"]) != linked:
            raise Violation(f"{name} has the neighbours {set(state['neighbors'])}, but links to {linked}")
    if any("groups" in node.state() for node in nodes.values()):
        _check_groups(nodes)
        return
    if any("trees" in node.state() for node in nodes.values()):
        _check_trees(nodes)
        return
    for link in sim.links:
        if link.is_up:
            _check_forwards(nodes[link.a], nodes[link.b])
            _check_forwards(nodes[link.b], nodes[link.a])
    if any("wanted" in node.state() for node in nodes.values()):
        _check_wanted(sim, nodes)


def _check_forwards(a: Node, b: Node) -> None:
    for table in ("subscriptions", "advertisements"):
        theirs = b.state().get(table, {})
        told = [item for item, row in a.state().get(table, {}).items() if _is_row(row) and b.name in row[1]]
        heard = [item for item, row in theirs.items() if _is_row(row) and Peer(a.name) in row[0]]
        # A filter may stand there as an equivalent one, which came first.
        same = _same(b)
        wrong = _without(told, heard, same) + _without(heard, told, same)
        if wrong:
            raise Violation(
                f"{a.name} and {b.name} disagree on the {table} that {a.name} forwarded: {wrong[0]}"
            )


def _check_trees(nodes: Mapping[str, Node]) -> None:
    """Of overlays: what a server has from another, the other has forwarded to it, in the same tree."""
    states = {name: node.state()["trees"] for name, node in nodes.items()}
    for name, trees in states.items():
        for tree, tables in trees.items():
            for kind, table in tables.items():
                for item, (sources, forwards) in table.items():
                    for who in sources:
                        if isinstance(who, Peer) and not who.name.startswith("\0"):
                            theirs = states.get(who.name, {}).get(tree, {}).get(kind, {})
                            told = [other for other, row in theirs.items() if name in row[1]]
                            if _without([item], told, _same(nodes[name])):
                                raise Violation(
                                    f"{name} has {item} ({kind} in the tree {tree}) from {who.name}, "
                                    "which has not forwarded it"
                                )
                    for peer in forwards:
                        if not peer.startswith("\0") and peer not in states:
                            raise Violation(f"{name} has forwarded {item} to {peer}, which is gone")


def _check_groups(nodes: Mapping[str, Node]) -> None:
    """Of Scribe: parents and children know each other."""
    groups = {name: node.state()["groups"] for name, node in nodes.items()}
    for name, mine in groups.items():
        for group, (parent, children) in mine.items():
            for child in children:
                if groups.get(child, {}).get(group, (None, ()))[0] != name:
                    raise Violation(f"{name} has {child} for a child in the group {group}, which it is not")
            if parent is not None and name not in groups.get(parent, {}).get(group, (None, ()))[1]:
                raise Violation(f"{name} has the parent {parent} in the group {group}, which does not know")


def _is_row(row: object) -> bool:
    """Whether a table tells to whom a filter was forwarded; some routers do not need to."""
    return isinstance(row, tuple)


def _same(node: Node) -> Callable[[Any, Any], bool]:
    registry = node.registry
    return lambda f, g: f == g or (f.covers(g, registry) and g.covers(f, registry))


def _without(items: Iterable[Any], others: list[Any], same: Callable[[Any, Any], bool]) -> list[Any]:
    return [item for item in items if not any(same(item, other) for other in others)]


def _check_wanted(sim: Simulation, nodes: Mapping[str, Node]) -> None:
    """Where all know what all want: every server in reach knows it as the origin does."""
    up = [frozenset((link.a, link.b)) for link in sim.links if link.is_up]
    for name, node in nodes.items():
        state = node.state()
        for origin in sorted(reachable(name, up)):
            theirs = nodes[origin].state()
            for table in ("wanted", "links"):
                if state[table].get(origin, frozenset()) != theirs[table][origin]:
                    raise Violation(f"{name} does not know the {table} of {origin} as they are")


def check_empty(sim: Simulation) -> None:
    """Nobody wants anything any more, and no server remembers that somebody did."""
    for name, broker in sim.brokers.items():
        if broker.node is None:
            continue
        state = broker.node.state()
        for table in ("subscriptions", "advertisements", "groups", "patterns", "parties"):
            if state.get(table):
                raise Violation(f"{name} still has {table}: {_first(state[table])}")
        for origin, filters in state.get("wanted", {}).items():
            if filters:
                raise Violation(f"{name} still believes that {origin} wants {_first(filters)}")


def check_no_strangers(sim: Simulation) -> None:
    """Where servers know the links of others: no server remembers one that is long gone."""
    up = [frozenset((link.a, link.b)) for link in sim.links if link.is_up]
    for name, broker in sim.brokers.items():
        known = broker.node.state().get("links", {}) if broker.node is not None else {}
        strangers = known.keys() - reachable(name, up)
        if strangers:
            raise Violation(f"{name} still remembers {', '.join(sorted(strangers))}, long gone")


def _first(table: Iterable[Any]) -> str:
    return str(next(iter(table)))
