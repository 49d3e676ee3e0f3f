"""Networks: the physical one that messages travel, and the logical ones that brokers form on it.

Physical networks are transit-stub graphs (Zegura et al. 1996), the model that the studies of SIENA
(6.2.1.1) and HERMES use through GT-ITM and BRITE: few transit domains in the middle, many stub
domains around them. Nodes are numbered: transit nodes first, then stub by stub.

Messages travel along the cheapest path; its latency and hops are those of that path. Distances are
computed from given sources only, so that networks of 100,000 nodes need neither a full matrix nor
its time.

Departures from GT-ITM: the numbers of nodes are exact, not averages; a domain is made connected by
a random tree to which links are added, not by drawing again until it happens to be connected; links
have latencies and costs drawn from a range for each kind of link, not lengths on a plane.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import networkx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra, minimum_spanning_tree

__all__ = [
    "Distances",
    "Links",
    "Physical",
    "center",
    "line",
    "random_graph",
    "ring",
    "spanning_tree",
    "star",
    "transit_stub",
    "tree",
    "uniform",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Edges = list[tuple[int, int]]


class Distances(NamedTuple):
    """From each source (rows) to each target (columns), along the cheapest path."""

    latency: Floats  # seconds
    cost: Floats
    hops: NDArray[np.int32]


class Links(NamedTuple):
    """A kind of link: the range of its latency (seconds) and of its cost. Dearer links are slower."""

    latency: tuple[float, float]
    cost: tuple[float, float]


class Physical:
    """An undirected physical network of nodes 0..n-1; its links are rows of `ends`."""

    def __init__(self, n: int, ends: Ints, latency: Floats, cost: Floats, transit: int = 0) -> None:
        if n < 1:
            raise ValueError(f"a network has at least one node, not {n}")
        if len(cost) and not (cost > 0).all():
            raise ValueError("every link must have a cost above 0")
        self.n = n
        self.transit = transit  # the nodes 0..transit-1 are transit nodes
        first = np.unique(ends.min(axis=1) * n + ends.max(axis=1), return_index=True)[1]
        self.ends, self.latency, self.cost = ends[first], latency[first], cost[first]
        both = np.concatenate([self.ends, self.ends[:, ::-1]])
        self._costs = csr_array((np.tile(self.cost, 2), (both[:, 0], both[:, 1])), shape=(n, n))
        order = np.argsort(both[:, 0] * n + both[:, 1])
        self._keys = (both[:, 0] * n + both[:, 1])[order]  # of directed links, sorted
        self._latencies = np.tile(self.latency, 2)[order]
        if connected_components(self._costs, directed=False)[0] != 1:
            raise ValueError("the network is not connected")

    def distances(self, sources: Sequence[int], targets: Sequence[int] | None = None) -> Distances:
        """The distances from the sources to the targets (to all nodes, if not told)."""
        columns = np.arange(self.n) if targets is None else np.asarray(targets, dtype=np.int64)
        shape = (len(sources), len(columns))
        found = Distances(np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.int32))
        for row, source in enumerate(sources):
            cost, before = dijkstra(self._costs, directed=True, indices=source, return_predecessors=True)
            latency, hops = self._along(np.asarray(before, dtype=np.int64), source)
            found.cost[row] = cost[columns]
            found.latency[row], found.hops[row] = latency[columns], hops[columns]
        return found

    def _along(self, before: Ints, source: int) -> tuple[Floats, NDArray[np.int32]]:
        """Latency and hops of the paths that predecessors tell, by doubling their steps."""
        before[source] = source
        nodes = np.arange(self.n)
        places = np.searchsorted(self._keys, before * self.n + nodes).clip(max=max(len(self._keys) - 1, 0))
        latency = self._latencies[places] if len(self._keys) else np.zeros(self.n)
        latency[source] = 0.0
        hops = np.ones(self.n, dtype=np.int32)
        hops[source] = 0
        while (before != source).any():
            latency = latency + latency[before]
            hops = hops + hops[before]
            before = before[before]
        return latency, hops


class _Uniform(Physical):
    """Every node is as far from every other."""

    def __init__(self, n: int, latency: float) -> None:
        super().__init__(1, np.empty((0, 2), dtype=np.int64), np.empty(0), np.empty(0))
        if n < 1:
            raise ValueError(f"a network has at least one node, not {n}")
        self.n = n
        self._every = latency

    def distances(self, sources: Sequence[int], targets: Sequence[int] | None = None) -> Distances:
        """One hop of cost 1 to every other node."""
        columns = np.arange(self.n) if targets is None else np.asarray(targets, dtype=np.int64)
        apart = np.asarray(sources, dtype=np.int64)[:, None] != columns[None, :]
        return Distances(apart * self._every, apart * 1.0, apart.astype(np.int32))


def uniform(n: int, latency: float = 0.01) -> Physical:
    """A network where every node is one hop, of that latency and of cost 1, from every other."""
    return _Uniform(n, latency)


# ---------------------------------------------------------------- transit-stub

IN_STUB = Links((0.001, 0.005), (1, 5))
STUB_TO_TRANSIT = Links((0.005, 0.015), (5, 15))
IN_TRANSIT = Links((0.010, 0.030), (10, 30))
BETWEEN_TRANSIT = Links((0.020, 0.060), (20, 60))


def transit_stub(
    seed: int,
    *,
    transit_domains: int = 1,
    transit_nodes: int = 4,
    stubs_per_transit_node: int = 3,
    stub_nodes: int = 8,
    extra_transit_domain: float = 0.5,
    extra_transit: float = 0.4,
    extra_stub: float = 0.2,
    extra_stub_transit: int = 0,
    extra_stub_stub: int = 0,
    in_stub: Links = IN_STUB,
    stub_to_transit: Links = STUB_TO_TRANSIT,
    in_transit: Links = IN_TRANSIT,
    between_transit: Links = BETWEEN_TRANSIT,
) -> Physical:
    """A transit-stub network. The default is GT-ITM's customary one of 100 nodes: 4 · (1 + 3 · 8).

    `transit_nodes` are those of one transit domain, `stub_nodes` those of one stub. The extra
    probabilities are those of a link between any two nodes of a domain (or two transit domains)
    beside the random tree that connects them; `extra_stub_transit` and `extra_stub_stub` are
    numbers of links that give stubs a second way out.
    """
    _check_counts(transit_domains, transit_nodes, stubs_per_transit_node, stub_nodes)
    rng = np.random.default_rng(seed)
    transit = transit_domains * transit_nodes
    stubs = transit * stubs_per_transit_node
    n = transit + stubs * stub_nodes

    domains = _connected(rng, 1, transit_domains, extra_transit_domain)
    backbone = domains * transit_nodes + rng.integers(transit_nodes, size=domains.shape)
    inside = _connected(rng, transit_domains, transit_nodes, extra_transit)
    local = transit + _connected(rng, stubs, stub_nodes, extra_stub)
    gateways = transit + np.arange(stubs) * stub_nodes + rng.integers(stub_nodes, size=stubs)
    out = [np.stack([gateways, np.arange(stubs) // max(stubs_per_transit_node, 1)], axis=1)]
    if stubs:
        ends = rng.integers(transit, n, size=extra_stub_transit)
        out.append(np.stack([ends, rng.integers(transit, size=extra_stub_transit)], axis=1))
        pairs = rng.integers(transit, n, size=(extra_stub_stub, 2))
        out.append(pairs[pairs[:, 0] != pairs[:, 1]])
    kinds = [
        (backbone, between_transit),
        (inside, in_transit),
        (local, in_stub),
        (np.concatenate(out), stub_to_transit),
    ]
    drawn = [_links(rng, len(ends), links) for ends, links in kinds]
    latency, cost = (np.concatenate(column) for column in zip(*drawn, strict=True))
    return Physical(n, np.concatenate([ends for ends, _ in kinds]), latency, cost, transit)


def _check_counts(domains: int, nodes: int, stubs: int, stub_nodes: int) -> None:
    if min(domains, nodes, stub_nodes) < 1 or stubs < 0:
        raise ValueError(
            f"there is no network of {domains} transit domains with {nodes} nodes each, and {stubs} stubs "
            f"of {stub_nodes} nodes at each of these"
        )


def _connected(rng: np.random.Generator, graphs: int, size: int, extra: float) -> Ints:
    """The links of many connected random graphs at once; graph g has the nodes g·size…g·size+size-1."""
    starts = np.arange(graphs)[:, None] * size
    child = np.arange(1, size)[None, :]
    parent = (rng.random((graphs, size - 1)) * child).astype(np.int64)
    trees = np.stack([(starts + child).ravel(), (starts + parent).ravel()], axis=1)
    number = rng.binomial(graphs * size * (size - 1) // 2, extra) if size > 1 else 0
    a, b = rng.integers(size, size=number), rng.integers(max(size - 1, 1), size=number)
    b = np.where(b >= a, b + 1, b)  # any node but a
    base = rng.integers(graphs, size=number) * size if graphs else np.empty(0, dtype=np.int64)
    return np.concatenate([trees, np.stack([base + a, base + b], axis=1)])


def _links(rng: np.random.Generator, number: int, links: Links) -> tuple[Floats, Floats]:
    where = rng.random(number)
    (fast, slow), (cheap, dear) = links
    return fast + where * (slow - fast), cheap + where * (dear - cheap)


# ---------------------------------------------------------------- logical topologies


def line(n: int) -> Edges:
    """0 - 1 - 2 - …"""
    return [(i, i - 1) for i in range(1, n)]


def star(n: int) -> Edges:
    """All around 0."""
    return [(i, 0) for i in range(1, n)]


def tree(n: int, seed: int) -> Edges:
    """A random tree: each node hangs below one that was there before."""
    rng = random.Random(seed)
    return [(i, rng.randrange(i)) for i in range(1, n)]


def ring(n: int) -> Edges:
    """A line whose ends are connected, if there are three nodes or more."""
    return line(n) + ([(0, n - 1)] if n > 2 else [])


def random_graph(n: int, seed: int, degree: int = 3) -> Edges:
    """A random tree with links added until the nodes have that many on average (or all others)."""
    rng = random.Random(seed)
    edges = dict.fromkeys(tree(n, seed))
    wanted = min(n * degree // 2, n * (n - 1) // 2)
    while len(edges) < wanted:
        a, b = sorted(rng.sample(range(n), 2))
        edges[b, a] = None
    return list(edges)


def center(cost: Floats) -> int:
    """The site that is nearest to all others on the whole, by a square matrix of distances."""
    return int(cost.sum(axis=0).argmin())


def spanning_tree(cost: Floats, root: int) -> Edges:
    """The cheapest tree over sites, by their matrix of distances: (child, parent), from the root down.

    It serves an acyclic peer-to-peer network as it is, and a hierarchy as it hangs from its root.
    """
    apart = cost + 1.0  # the same tree; to scipy, 0 is not a distance but no link
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(cost)))
    graph.add_edges_from(zip(*minimum_spanning_tree(apart).nonzero(), strict=True))
    return [(int(child), int(parent)) for parent, child in networkx.bfs_edges(graph, root)]
