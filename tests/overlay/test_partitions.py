"""An overlay that is parted goes on as two; when the parts can reach each other again, they become one."""

from __future__ import annotations

import random

import pytest
from tests.overlay.network import alive, check_leaf_sets, nearest, overlay, pan, path

from angelia.messages import Farewell, FromPeer, Measure, Timer
from angelia.overlay import key_of
from angelia.overlay.pan import MAX_LOST
from angelia.sim.conformance import Case, run_case
from angelia.sim.engine import Simulation
from angelia.sim.faults import Heal, Partition
from angelia.sim.workload import Workload


def parted(sim: Simulation, group: list[str], seconds: float) -> None:
    Partition(tuple(group)).apply(sim)
    sim.run(sim.now + seconds)


def of_part(sim: Simulation, group: set[str]) -> Simulation:
    """The network as somebody sees it who is in a part of it."""
    part = Simulation("hermes")
    part.brokers = {name: broker for name, broker in sim.brokers.items() if name in group}
    return part


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_two_rings_become_one_again(share):
    names = [f"b{number}" for number in range(40)]
    sim = overlay(names, settle=3.0, leaf_set=4)
    group = set(random.Random(1).sample(names, int(40 * share)))
    parted(sim, sorted(group), 20.0)
    for part in (group, set(names) - group):
        check_leaf_sets(of_part(sim, part))
    Heal().apply(sim)
    sim.run(sim.now + 12.0)
    check_leaf_sets(sim)
    for number in range(100):
        key = key_of(f"key {number}")
        assert path(sim, names[number % 40], key)[-1] == nearest(sim, key)


def test_one_that_was_cut_off_from_all_others_finds_them():
    sim = overlay(["a", "b", "c", "d"], settle=3.0)
    parted(sim, ["c"], 20.0)
    assert not pan(sim, "c").known
    Heal().apply(sim)
    sim.run(sim.now + 6.0)
    assert set(pan(sim, "c").known) == {"a", "b", "d"}
    check_leaf_sets(sim)


def sought(node, beats: int) -> list[str]:
    """Whom a node measures in so many beats, with nobody answering."""
    found = []
    for beat in range(beats):
        for effect in node.handle(Timer("heartbeat"), 1e9 + beat):
            found += [effect.peer] if isinstance(effect, Measure) else []
    return found


def test_who_said_farewell_is_not_sought_and_who_was_lost_is():
    sim = overlay(["a", "b", "c"], settle=3.0)
    node = sim.brokers["a"].node
    node.handle(FromPeer("b", Farewell()), 1e9)
    assert sought(node, 3) == []
    pan(sim, "a").fail("c")
    assert sought(node, 3) == ["c"], "once, until it is known what came of it"


def test_only_so_many_of_the_lost_are_remembered():
    sim = overlay([f"b{number}" for number in range(MAX_LOST + 20)], settle=2.0)
    node = pan(sim, "b0")
    for name in list(node.known):
        node.fail(name)
    assert len(sought(sim.brokers["b0"].node, 2 * MAX_LOST)) <= MAX_LOST
    assert len(alive(sim)) == MAX_LOST + 20


@pytest.mark.parametrize("router", ["hermes", "scribe"])
@pytest.mark.parametrize("seed", [1, 2, 20])
def test_the_kit_holds_while_partitions_come_and_go(router, seed, monkeypatch):
    """The kit, with many partitions; the checker wants all parts to be together after each."""
    made = []
    original = Workload.__init__

    def often(self, *args):
        original(self, *args)
        self.changes["partition"] = (15, lambda: (made.append(self.sim.now), self._part()))

    monkeypatch.setattr(Workload, "__init__", often)
    run_case(Case(router, "tree", seed))
    assert made


@pytest.mark.parametrize("size", [2, 12])
def test_rings_that_grew_apart_become_one_when_two_of_their_nodes_are_linked(size):
    """With leaf sets of 4, most nodes of one ring must hear of the other from their neighbours."""
    sim = overlay([f"a{number}" for number in range(size)], settle=2.0, leaf_set=4)
    for number in range(size):
        sim.add_broker(f"b{number}")
        if number:
            sim.connect(f"b{number}", f"b{number - 1}")
        sim.run()
    sim.connect("a0", "b0")
    sim.run(sim.now + 15.0)
    check_leaf_sets(sim)
