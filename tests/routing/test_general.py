"""General peer-to-peer servers: cycles, redundant links, versions."""

from __future__ import annotations

import pytest
from tests.routing.network import Network

from angelia import Filter
from angelia.messages import (
    FromClient,
    FromPeer,
    LinkState,
    Notify,
    Subscribe,
    SubscriptionChange,
    Subscriptions,
)
from angelia.routing.general import MEMORY

cyclic = pytest.mark.parametrize("routing", ["general", "subscription_flooding"])
RING = (("b1", "b2"), ("b2", "b3"), ("b3", "b4"), ("b4", "b1"))


@cyclic
def test_in_a_ring_everybody_gets_everything_once_by_shortest_paths(network, routing):
    net = network(routing, *RING)
    for name in net.nodes:
        net.subscribe(name, f"party {name}", "exists x")
    for name in net.nodes:
        net.sent.clear()
        assert len(net.publish(name, "pub" + name, x=1)) == 4
        assert len(net.messages(Notify)) == 3


@cyclic
def test_the_loss_and_return_of_a_redundant_link_changes_no_delivery(network, routing):
    net = network(routing, *RING)
    net.subscribe("b3", "ann", "x = 1")
    for edge in RING:
        net.disconnect(*edge)
        net.check()
        assert all(net.publish(name, "pub" + name, x=1) == ["ann"] for name in net.nodes)
        net.connect(*edge)
        net.check()
        assert all(net.publish(name, "pub" + name, x=1) == ["ann"] for name in net.nodes)


def test_subscriptions_travel_down_the_tree_of_their_origin(network):
    net = network("general", *RING)
    net.sent.clear()
    net.subscribe("b1", "ann", "x = 1")
    assert sorted(net.messages(SubscriptionChange)) == [("b1", "b2"), ("b1", "b4"), ("b2", "b3")]


def test_subscription_flooding_uses_every_link(network):
    net = network("subscription_flooding", *RING)
    net.sent.clear()
    net.subscribe("b1", "ann", "x = 1")
    assert {frozenset(way) for way in net.messages(SubscriptionChange)} == net.links


def test_only_roots_leave_a_server_and_flooding_sends_all(network):
    for routing, sent in (("general", 3), ("subscription_flooding", 10)):
        net = network(routing, *RING)
        net.subscribe("b1", "ann", "x > 0")
        net.sent.clear()
        net.subscribe("b1", "bob", "x > 5")
        net.unsubscribe("b1", "ann", "x > 0")
        assert len(net.messages(SubscriptionChange)) == sent


# ---------------------------------------------------------------- what was missed


@cyclic
def test_a_lost_change_is_noticed_by_the_next_one(network, routing):
    net = network(routing, *RING)
    net.subscribe("b1", "ann", "x = 1")
    net.lose("b1", Subscribe("ann", Filter.parse("x = 2")))
    net.subscribe("b1", "ann", "x = 3")
    for name in net.nodes:
        assert net.publish(name, "pub" + name, x=2) == ["ann"]


@cyclic
def test_a_lost_change_is_noticed_when_the_topology_changes(network, routing):
    net = network(routing, *RING)
    net.lose("b1", Subscribe("ann", Filter.parse("x = 2")))
    net.disconnect("b3", "b4")
    for name in net.nodes:
        assert net.publish(name, "pub" + name, x=2) == ["ann"]


@cyclic
def test_partitions_that_heal_exchange_what_they_missed(network, routing):
    net = network(routing, *RING)
    net.subscribe("b1", "ann", "x = 1")
    net.disconnect("b1", "b2")
    net.disconnect("b3", "b4")
    net.unsubscribe("b1", "ann", "x = 1")
    net.subscribe("b1", "ann", "x = 2")
    net.subscribe("b3", "bob", "x = 2")
    assert net.publish("b2", "pub", x=2) == ["bob"]
    net.connect("b3", "b4")
    assert net.publish("b2", "pub", x=2) == ["ann", "bob"]
    assert net.publish("b2", "pub", x=1) == []


# ---------------------------------------------------------------- restarts


def restarted(net: Network, now: float | None) -> None:
    """b4 crashes and is back, empty, with its clock as it was or set back."""
    neighbors = net.crash("b4")
    net.add("b4")
    if now is not None:
        net.now = now
    for neighbor in neighbors:
        net.connect("b4", neighbor)


@cyclic
@pytest.mark.parametrize("clock", [None, 1.0], ids=["clock goes on", "clock went back"])
def test_a_restarted_server_that_wants_nothing_is_sent_nothing(network, routing, clock):
    net = network(routing, *RING)
    net.subscribe("b4", "ann", "x = 1")
    restarted(net, clock)
    net.check()
    for name in net.nodes:
        net.sent.clear()
        assert net.publish(name, "pub" + name, x=1) == []
        assert net.messages(Notify) == []


@cyclic
@pytest.mark.parametrize("clock", [None, 1.0], ids=["clock goes on", "clock went back"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_restarted_server_gets_what_it_wants_now(network, routing, clock, when):
    """It may have as many changes behind it as before it was restarted, or fewer."""
    net = network(routing, *RING)
    net.subscribe("b4", "ann", "x = 1")
    net.subscribe("b4", "ann", "x = 2")
    neighbors = net.crash("b4")
    net.add("b4")
    net.now = clock or net.now
    if when == "before":
        net.subscribe("b4", "ann", "x = 3")
    for neighbor in neighbors:
        net.connect("b4", neighbor)
    if when == "after":
        net.subscribe("b4", "ann", "x = 3")
    net.check()
    for name in net.nodes:
        assert net.publish(name, "pub" + name, x=3) == ["ann"]
        assert net.publish(name, "pub" + name, x=1) == []


def test_a_restarted_server_with_other_links_is_found_by_them(network):
    net = network("general", ("b1", "b2"), ("b2", "b3"), ("b4", "b3"))
    net.crash("b4")
    net.add("b4")
    net.connect("b4", "b1")
    net.subscribe("b4", "ann", "x = 1")
    assert net.publish("b3", "pub", x=1) == ["ann"]
    assert net.nodes["b3"].state()["links"]["b4"] == {"b1"}


@cyclic
def test_old_news_is_dropped(network, routing):
    net = network(routing, *RING)
    net.subscribe("b1", "ann", "x = 1")
    node = net.nodes["b2"]
    before = node.state()
    for message in (
        LinkState("b1", 1, frozenset()),
        Subscriptions("b1", 1, frozenset()),
        SubscriptionChange("b1", 1, frozenset(), frozenset({Filter.parse("x = 1")})),
    ):
        assert node.handle(FromPeer("b1", message), net.now) == []
    assert node.state() == before


# ---------------------------------------------------------------- servers that are gone


def links_known(net: Network) -> dict[str, set[str]]:
    return {name: set(node.state()["links"]) for name, node in net.nodes.items()}


@cyclic
def test_a_server_that_left_for_good_is_let_go_after_a_while(network, routing):
    net = network(routing, *RING)
    net.publish("b4", "pub", x=1)
    net.crash("b4")
    assert links_known(net)["b1"] == {"b1", "b2", "b3", "b4"}, "it may come back"
    net.now += 1.1 * MEMORY
    net.add("b5")
    net.connect("b5", "b3")
    assert all(known == {"b1", "b2", "b3", "b5"} for known in links_known(net).values())
    net.check()


@cyclic
def test_who_comes_is_not_told_of_those_that_are_gone(network, routing):
    """Else the word of a gone server would live on from newcomer to newcomer."""
    net = network(routing, ("b1", "b2"), ("b2", "b3"))
    net.crash("b3")
    net.add("b4")
    net.connect("b4", "b2")
    assert links_known(net)["b4"] == {"b1", "b2", "b4"}
    net.check()


@cyclic
@pytest.mark.parametrize("away", [0.1, 0.7, 3.0])
def test_those_that_were_cut_off_are_known_again_however_long_it_was(network, routing, away):
    net = network(routing, ("b1", "b2"), ("b2", "b3"), ("b3", "b4"), ("b4", "b5"))
    net.subscribe("b5", "ann", "x = 1")
    net.disconnect("b3", "b4")
    net.now += away * MEMORY
    net.connect("b3", "b4")
    net.check()
    assert all(net.publish(name, "pub" + name, x=1) == ["ann"] for name in net.nodes)


@cyclic
def test_who_has_forgotten_a_server_is_told_of_it_by_those_that_have_not(network, routing):
    """b1 has missed b4 for too long, and b2 has not; b3 has nothing new to say of b4."""
    net = network(routing, ("b1", "b2"), ("b2", "b3"), ("b3", "b4"))
    net.subscribe("b4", "ann", "x = 1")
    net.disconnect("b1", "b2")
    net.now += 0.6 * MEMORY
    net.disconnect("b2", "b3")
    net.now += 0.6 * MEMORY
    net.connect("b1", "b2")
    assert links_known(net)["b1"] == {"b1", "b2"}
    net.connect("b2", "b3")
    net.check()
    assert net.publish("b1", "pub", x=1) == ["ann"]


@cyclic
def test_who_forgot_a_server_too_early_by_its_clock_is_told_of_it(network, routing):
    net = network(routing, ("b1", "b2"), ("b2", "b3"), ("b3", "b4"))
    net.subscribe("b4", "ann", "x = 1")
    net.disconnect("b2", "b3")
    old = LinkState("b2", 1, frozenset())
    net.nodes["b1"].handle(FromPeer("b2", old), net.now + 1.1 * MEMORY)
    assert links_known(net)["b1"] == {"b1", "b2"}
    net.now += 0.6 * MEMORY
    net.connect("b2", "b3")
    net.check()
    assert net.publish("b1", "pub", x=1) == ["ann"]


@cyclic
def test_a_server_with_its_clock_set_back_is_heard_after_it_was_forgotten(network, routing):
    net = network(routing, *RING)
    net.subscribe("b4", "ann", "x = 1")
    neighbors = net.crash("b4")
    net.now += 1.1 * MEMORY
    net.add("b4")
    net.nodes["b4"].handle(FromClient("ann", Subscribe("ann", Filter.parse("x = 2"))), 1.0)
    for neighbor in neighbors:
        net.connect("b4", neighbor)
    net.check()
    assert net.publish("b2", "pub", x=2) == ["ann"]
