"""A picture of a run: brokers and links, with the traffic on them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import networkx

from angelia.sim.links import Link
from angelia.sim.scenario import Outcome

__all__ = ["draw"]

Place = tuple[float, float]

_BROKER, _DOWN, _QUIET = "#1f4e79", "#c0392b", "#b8bec6"
_MANY = 300  # brokers, beyond which nicer layouts take too long


def draw(outcome: Outcome, path: Path) -> None:
    """Draw the topology: wider, darker links carry more notifications, larger brokers have more parties."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "angelia"  # the same picture, the same bytes
    figure = Figure(figsize=(11, 9), layout="constrained")
    axes = figure.add_subplot()
    axes.set_axis_off()
    axes.set_aspect("equal")
    places = _layout(outcome)
    traffic = {id(link): link.sent().get("Notify", 0) for link in outcome.sim.links}
    most = max(traffic.values(), default=0)
    for link in sorted(outcome.sim.links, key=lambda link: traffic[id(link)]):
        _draw_link(axes, link, places, traffic[id(link)], most)
    _draw_brokers(axes, outcome, places)
    _legend(axes, outcome, most)
    asked = outcome.scenario
    axes.set_title(
        f"{asked.routing} on {asked.brokers} brokers ({asked.topology}): {asked.events:,} events, "
        f"{len(outcome.latencies):,} deliveries, {sum(traffic.values()):,} notifications sent",
        fontsize=12,
    )
    metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
    figure.savefig(path, dpi=150, metadata=metadata)


def _draw_link(axes: Any, link: Link, places: dict[str, Place], count: int, most: int) -> None:
    import matplotlib as mpl

    (x1, y1), (x2, y2) = places[link.a], places[link.b]
    share = count / most if most else 0.0
    color: Any = mpl.colormaps["YlOrRd"](0.25 + 0.7 * share) if count else _QUIET
    style = "-" if link.is_up else (0, (2, 3))
    axes.plot([x1, x2], [y1, y2], linestyle=style, color=color, linewidth=_width(share), zorder=1 + share)


def _width(share: float) -> float:
    return 0.8 + 7 * math.sqrt(share)


def _draw_brokers(axes: Any, outcome: Outcome, places: dict[str, Place]) -> None:
    most = max(outcome.parties.values(), default=0)
    names = list(outcome.sim.brokers)
    axes.scatter(
        [places[name][0] for name in names],
        [places[name][1] for name in names],
        s=[_area(outcome.parties.get(name, 0), most) for name in names],
        c=[_BROKER if outcome.sim.brokers[name].node is not None else _DOWN for name in names],
        edgecolors="white",
        linewidths=0.8,
        zorder=3,
    )
    if len(names) <= 60:
        for name in names:
            axes.annotate(name, places[name], xytext=(6, 6), textcoords="offset points", fontsize=7, zorder=4)


def _area(parties: int, most: int) -> float:
    return 15 + 400 * (parties / most if most else 0.0)


def _legend(axes: Any, outcome: Outcome, most: int) -> None:
    import matplotlib as mpl
    from matplotlib.lines import Line2D

    shown = [
        Line2D([], [], color=mpl.colormaps["YlOrRd"](0.25 + 0.7 * share), linewidth=_width(share))
        for share in (0.1, 0.5, 1.0)
    ]
    labels = [f"{round(most * share):,} notifications" for share in (0.1, 0.5, 1.0)]
    parties = max(outcome.parties.values(), default=0)
    for count in dict.fromkeys((0, (parties + 1) // 2, parties)):
        size = math.sqrt(_area(count, parties))
        shown.append(Line2D([], [], linestyle="", marker="o", color=_BROKER, markersize=size))
        labels.append(f"broker with {count:,} {'party' if count == 1 else 'parties'}")
    if any(broker.node is None for broker in outcome.sim.brokers.values()):
        shown.append(Line2D([], [], linestyle="", marker="o", color=_DOWN, markersize=7))
        labels.append("broker that is down")
    if not all(link.is_up for link in outcome.sim.links):
        shown.append(Line2D([], [], color=_QUIET, linestyle=(0, (2, 3))))
        labels.append("link that is down")
    axes.figure.legend(shown, labels, loc="outside right center", frameon=False, labelspacing=1.2)


# ---------------------------------------------------------------- where brokers are drawn


def _layout(outcome: Outcome) -> dict[str, Place]:
    graph = networkx.Graph()
    graph.add_nodes_from(outcome.sim.brokers)
    graph.add_edges_from((link.a, link.b) for link in outcome.sim.links)
    if outcome.scenario.topology == "line":
        return _snake(list(graph))
    if outcome.scenario.topology == "ring":
        drawn = networkx.circular_layout(graph)
    elif len(graph) <= _MANY and outcome.scenario.topology != "star":
        start = _radial(graph) if networkx.is_tree(graph) else networkx.circular_layout(graph)
        drawn = networkx.kamada_kawai_layout(graph, pos=start)
    elif networkx.is_tree(graph):
        return _radial(graph)
    else:
        drawn = networkx.spring_layout(graph, seed=outcome.scenario.seed, iterations=60)
    return {name: (float(x), float(y)) for name, (x, y) in drawn.items()}


def _snake(names: list[str]) -> dict[str, Place]:
    """A line, folded into a square."""
    width = max(1, math.ceil(math.sqrt(len(names))))
    places: dict[str, Place] = {}
    for number, name in enumerate(names):
        row, column = divmod(number, width)
        places[name] = (float(column if row % 2 == 0 else width - 1 - column), float(-row))
    return places


def _radial(graph: Any) -> dict[str, Place]:
    """A tree around its middle: every broker has a sector as wide as it has leaves beyond."""
    root = networkx.center(graph)[0]
    tree = networkx.bfs_tree(graph, root)
    leaves: dict[str, int] = {}
    for name in reversed(list(tree)):
        leaves[name] = sum(leaves[child] for child in tree.successors(name)) or 1
    places: dict[str, Place] = {}
    work = [(root, 0.0, 2 * math.pi, 0)]
    while work:
        name, start, end, depth = work.pop()
        angle = (start + end) / 2
        places[name] = (depth * math.cos(angle), depth * math.sin(angle))
        for child in tree.successors(name):
            part = (end - start) * leaves[child] / leaves[name]
            work.append((child, start, start + part, depth + 1))
            start += part
    return places
