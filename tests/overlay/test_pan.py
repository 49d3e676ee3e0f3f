"""Pan: ids, tables, joining, leaving, failing; a key always finds the numerically nearest live node."""

from __future__ import annotations

import random

import pytest
from tests.overlay.network import alive, check_leaf_sets, nearest, overlay, pan, path

from angelia.errors import RoutingError
from angelia.messages import Contact, Contacts, FromPeer
from angelia.overlay import PanSettings, key_of
from angelia.overlay.ids import as_id, clockwise, digit, distance, number, shared
from angelia.overlay.tables import LeafSet, Neighbourhood, RoutingTable


def contact(value: int) -> Contact:
    return Contact(as_id(value), f"n{value:x}")


# ---------------------------------------------------------------- ids


def test_ids_are_128_bits_of_sha_1():
    assert key_of("abc") == "a9993e364706816aba3e25717850c26c"  # FIPS 180, the first 32 digits
    assert number(key_of("abc")) < 1 << 128


def test_digits_and_shared_digits_by_base():
    one, other = number("ab" + "0" * 30), number("ac" + "0" * 30)
    assert [digit(one, row, 4) for row in range(3)] == [0xA, 0xB, 0]
    assert [shared(one, other, b) for b in (1, 2, 4, 8)] == [5, 2, 1, 0]
    assert shared(one, one, 4) == 32


def test_distance_goes_round_the_ring():
    top = (1 << 128) - 1
    assert distance(top, 0) == distance(0, top) == 1
    assert clockwise(top, 2) == 3


@pytest.mark.parametrize("text", ["", "abc", "g" * 32, "-" + "1" * 31, "0" * 33])
def test_what_is_no_id_is_refused(text):
    sim = overlay(["a", "b"])
    with pytest.raises(RoutingError):
        sim.brokers["a"].node.handle(FromPeer("b", Contacts(Contact(text, "x"), ())), 0.0)


# ---------------------------------------------------------------- tables


def test_leaf_set_keeps_the_nearest_on_both_sides():
    leaves = LeafSet(100, 4)
    for value in (10, 90, 95, 105, 120, 300):
        leaves.add(contact(value))
    assert [number(c.id) for c in leaves.larger] == [105, 120]
    assert [number(c.id) for c in leaves.smaller] == [95, 90]
    assert leaves.covers(110)
    assert not leaves.covers(5000)
    assert leaves.nearest(119) == contact(120)
    assert leaves.nearest(101) is None
    assert leaves.remove("n5f") is True
    assert number(leaves.smaller[0].id) == 90


def test_routing_table_prefers_the_nearest_and_keeps_backups():
    table = RoutingTable(0, 4, backups=1)
    far, near, middle = (contact((1 << 124) + n) for n in (1, 2, 3))
    assert table.add(far, 0.3)
    assert table.add(near, 0.1)
    assert table.add(middle, 0.2)
    assert table.rows() == {0: {1: (near, middle)}}
    assert not table.add(far, 0.3)
    assert table.remove(near) is None
    assert table.entry(number(far.id)) == middle
    assert table.remove(middle) == 0


def test_neighbourhood_is_by_proximity_alone():
    around = Neighbourhood(2)
    for value, proximity in ((1, 0.5), (2, 0.1), (3, 0.3)):
        around.add(contact(value), proximity)
    assert around.members == [contact(2), contact(3)]


@pytest.mark.parametrize(
    "wrong", [{"b": 3}, {"leaf_set": 3}, {"leaf_set": 0}, {"heartbeat": 0}, {"patience": 0}]
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(RoutingError):
        PanSettings(**wrong)


# ---------------------------------------------------------------- joining, leaving, failing


@pytest.mark.parametrize("b", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [2, 5, 40])
def test_every_key_finds_the_nearest_node_from_everywhere(b, size):
    sim = overlay([f"b{i}" for i in range(size)], b=b, leaf_set=4, heartbeat=None, refresh=None, lease=9.0)
    check_leaf_sets(sim)
    for number_ in range(40):
        key = key_of(f"key {number_}")
        assert {path(sim, start, key)[-1] for start in sim.brokers} == {nearest(sim, key)}


def test_all_may_join_at_once():
    sim = overlay(["b0"])
    rng = random.Random(1)
    for i in range(1, 30):
        sim.add_broker(f"b{i}")
        sim.connect(f"b{i}", f"b{rng.randrange(i)}")
    sim.run(sim.now + 8)
    check_leaf_sets(sim)


@pytest.mark.parametrize("seed", range(6))
def test_churn_leaves_the_leaf_sets_right_and_every_key_at_the_nearest_live_node(seed):
    rng = random.Random(seed)
    sim = overlay([f"b{i}" for i in range(16)], leaf_set=8, b=rng.choice((1, 2, 4)))
    for round_ in range(4):
        for _ in range(rng.randrange(1, 4)):
            there = sorted(alive(sim))
            what = rng.choice(("crash", "farewell", "join", "restart"))
            if what == "crash":
                sim.crash(rng.choice(there))
            elif what == "farewell":
                name = rng.choice(there)
                sim.farewell(name)
                sim.at(sim.now + 0.5, lambda name=name: sim.remove_broker(name))
            elif what == "join":
                name = f"new{round_}{rng.random()}"
                sim.add_broker(name)
                sim.connect(name, rng.choice(there))
            else:
                for name in [n for n, b in sim.brokers.items() if b.node is None][:1]:
                    sim.restart(name)
            sim.run(sim.now + rng.random())
        sim.run(sim.now + 12)
        check_leaf_sets(sim)
        for number_ in range(20):
            key = key_of(f"{round_} {number_}")
            assert {path(sim, start, key)[-1] for start in alive(sim)} == {nearest(sim, key)}


def test_who_is_silent_is_taken_for_dead_though_its_links_are_up():
    sim = overlay([f"b{i}" for i in range(6)], settle=2)
    sim.hang("b3")
    sim.run(sim.now + 10)
    assert all("b3" not in node.known for name, node in alive(sim).items() if name != "b3")


def test_a_node_that_returns_after_a_partition_is_found_again():
    sim = overlay([f"b{i}" for i in range(8)], settle=2)
    for link in sim.links:
        if (link.a in ("b0", "b1", "b2")) != (link.b in ("b0", "b1", "b2")):
            sim.cut(link)
    sim.run(sim.now + 12)
    assert set(pan(sim, "b0").known) == {"b1", "b2"}
    for link in sim.links:
        sim.restore(link)
    sim.run(sim.now + 12)
    check_leaf_sets(sim)


def test_links_that_nobody_needs_are_ended():
    sim = overlay([f"b{i:02}" for i in range(40)], settle=20, leaf_set=4, neighbourhood=2, backups=0)
    for name, node in alive(sim).items():
        for peer in sim.brokers[name].channels:
            assert peer in node.known or name in pan(sim, peer).known
