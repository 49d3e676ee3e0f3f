"""Physical networks and logical topologies."""

from __future__ import annotations

import resource
import time

import networkx
import numpy as np
import pytest

from angelia.sim.topology import (
    Links,
    Physical,
    center,
    line,
    random_graph,
    ring,
    spanning_tree,
    star,
    transit_stub,
    tree,
    uniform,
)


def as_networkx(network: Physical) -> networkx.Graph:
    graph = networkx.Graph()
    graph.add_nodes_from(range(network.n))
    for (a, b), latency, cost in zip(network.ends.tolist(), network.latency, network.cost, strict=True):
        graph.add_edge(a, b, latency=float(latency), cost=float(cost))
    return graph


def small(seed: int) -> Physical:
    return transit_stub(seed, transit_domains=3, transit_nodes=3, stubs_per_transit_node=2, stub_nodes=4)


# ---------------------------------------------------------------- physical networks


def test_default_is_the_customary_network_of_100_nodes() -> None:
    network = transit_stub(1)
    assert (network.n, network.transit) == (100, 4)


@pytest.mark.parametrize("seed", range(20))
def test_transit_stub_networks_are_connected(seed: int) -> None:
    assert networkx.is_connected(as_networkx(small(seed)))


def test_same_seed_same_network_and_another_seed_another() -> None:
    one, same, other = small(1), small(1), small(2)
    assert np.array_equal(one.ends, same.ends)
    assert np.array_equal(one.cost, same.cost)
    assert np.array_equal(one.latency, same.latency)
    assert not np.array_equal(one.cost, other.cost)


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_those_of_networkx(seed: int) -> None:
    network = small(seed)
    graph = as_networkx(network)
    sources = [0, 5, network.n - 1]
    found = network.distances(sources)
    assert found.cost.shape == (3, network.n)
    for row, source in enumerate(sources):
        paths = networkx.single_source_dijkstra_path(graph, source, weight="cost")
        for target, path in paths.items():
            assert found.cost[row, target] == pytest.approx(networkx.path_weight(graph, path, "cost"))
            assert found.latency[row, target] == pytest.approx(networkx.path_weight(graph, path, "latency"))
            assert found.hops[row, target] == len(path) - 1


def test_distances_to_targets_are_columns_of_the_whole() -> None:
    network = small(3)
    whole, part = network.distances([2, 7]), network.distances([2, 7], [9, 2, 30])
    for all_columns, some in zip(whole, part, strict=True):
        assert np.array_equal(all_columns[:, [9, 2, 30]], some)


def test_links_have_the_latencies_and_costs_of_their_kind() -> None:
    network = transit_stub(
        4,
        transit_domains=2,
        transit_nodes=3,
        stubs_per_transit_node=2,
        stub_nodes=5,
        in_stub=Links((0.1, 0.2), (1, 2)),
        stub_to_transit=Links((0.3, 0.4), (3, 4)),
        in_transit=Links((0.5, 0.6), (5, 6)),
        between_transit=Links((0.7, 0.8), (7, 8)),
    )
    for (a, b), latency, cost in zip(network.ends.tolist(), network.latency, network.cost, strict=True):
        transits = sum(end < network.transit for end in (a, b))
        low = 1 if transits == 0 else 3 if transits == 1 else 5 if a // 3 == b // 3 else 7
        assert low <= cost <= low + 1
        assert low / 10 - 1e-9 <= latency <= (low + 1) / 10 + 1e-9


def test_without_extra_links_a_network_is_a_tree() -> None:
    network = transit_stub(1, transit_domains=3, extra_transit_domain=0, extra_transit=0, extra_stub=0)
    assert len(network.ends) == network.n - 1


def test_extra_probability_1_gives_more_links_than_less() -> None:
    counts = [len(transit_stub(1, extra_stub=extra).ends) for extra in (0.0, 0.3, 1.0)]
    assert counts == sorted(set(counts))


def test_extra_links_give_stubs_a_second_way_out() -> None:
    def ways_out(network: Physical) -> int:
        stub = np.where(network.ends < network.transit, -1, (network.ends - network.transit) // 8)
        return int((stub[:, 0] != stub[:, 1]).sum())

    assert ways_out(transit_stub(1, extra_stub_transit=10, extra_stub_stub=10)) > ways_out(transit_stub(1))


def test_transit_network_without_stubs() -> None:
    network = transit_stub(1, transit_domains=4, stubs_per_transit_node=0, extra_stub_transit=3)
    assert network.n == network.transit == 16
    assert networkx.is_connected(as_networkx(network))


def test_uniform_network_is_one_hop_everywhere() -> None:
    found = uniform(4, latency=0.02).distances([1, 3], [0, 1])
    assert found.latency.tolist() == [[0.02, 0.0], [0.02, 0.02]]
    assert found.hops.tolist() == [[1, 0], [1, 1]]
    assert found.cost.tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_impossible_networks_are_refused() -> None:
    with pytest.raises(ValueError, match="transit domains"):
        transit_stub(1, stub_nodes=0)
    with pytest.raises(ValueError, match="at least one node"):
        uniform(0)
    nowhere = np.empty((0, 2), dtype=np.int64)
    with pytest.raises(ValueError, match="not connected"):
        Physical(2, nowhere, np.empty(0), np.empty(0))
    with pytest.raises(ValueError, match="cost above 0"):
        Physical(2, np.array([[0, 1]]), np.array([0.1]), np.array([0.0]))


def test_100_000_nodes_are_made_and_searched_within_time_and_memory() -> None:
    start = time.process_time()
    network = transit_stub(
        1, transit_domains=10, transit_nodes=10, stubs_per_transit_node=10, stub_nodes=100, extra_stub=0.02
    )
    found = network.distances(range(0, network.n, network.n // 20), range(1000))
    assert network.n == 100_100
    assert np.isfinite(found.cost).all()
    assert time.process_time() - start < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2_000_000  # KB


# ---------------------------------------------------------------- logical topologies


@pytest.mark.parametrize("n", [1, 2, 3, 10, 50])
def test_trees_have_every_node_once_as_a_child_below_an_earlier_parent(n: int) -> None:
    for edges in (line(n), star(n), tree(n, seed=1)):
        assert [child for child, _ in edges] == list(range(1, n))
        assert all(parent < child for child, parent in edges)


def test_ring_closes_a_line() -> None:
    assert ring(2) == [(1, 0)]
    assert ring(3) == [(1, 0), (2, 1), (0, 2)]


@pytest.mark.parametrize("n", [1, 2, 3, 10, 50])
def test_random_graph_is_simple_connected_and_has_its_degree(n: int) -> None:
    edges = random_graph(n, seed=7, degree=4)
    assert edges == random_graph(n, seed=7, degree=4)
    graph = networkx.Graph(edges)
    graph.add_nodes_from(range(n))
    assert networkx.is_connected(graph)
    assert graph.number_of_edges() == len(edges) == min(max(2 * n, n - 1), n * (n - 1) // 2)


def test_spanning_tree_is_the_cheapest_and_hangs_from_its_root() -> None:
    network = small(5)
    cost = network.distances(range(network.n)).cost
    root = center(cost)
    edges = spanning_tree(cost, root)
    cheapest = networkx.minimum_spanning_tree(as_networkx(network), weight="cost")
    assert sum(cost[edge] for edge in edges) == pytest.approx(cheapest.size(weight="cost"))
    seen = {root}
    for child, parent in edges:
        assert parent in seen
        seen.add(child)
    assert seen == set(range(network.n))


def test_spanning_tree_connects_sites_at_the_same_place() -> None:
    assert len(spanning_tree(np.zeros((3, 3)), 0)) == 2


def test_center_is_nearest_to_all() -> None:
    network = small(6)
    cost = network.distances(range(network.n)).cost
    assert cost[center(cost)].sum() == min(row.sum() for row in cost)
