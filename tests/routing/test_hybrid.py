"""Hybrid topologies (SIENA 4.4): hierarchies inside domains, peers between their gateways."""

from __future__ import annotations

import pytest
from tests.routing.network import Network

from angelia.errors import RoutingError
from angelia.messages import Notify, PeerUp, Subscribe
from angelia.node import Node

GATEWAYS = ("a", "b", "c")
TWO_DOMAINS = (("a1", "a"), ("a2", "a1"), ("b1", "b"), ("b2", "b"), ("a", "b"), ("b", "c"))


@pytest.fixture
def net(network) -> Network:
    made = network("hybrid", *TWO_DOMAINS, gateways=GATEWAYS)
    made.sent.clear()
    return made


def test_events_cross_domains(net):
    net.subscribe("a2", "ann", "x = 1")
    net.subscribe("b1", "bob", "x = 1")
    net.subscribe("c", "cid", "x = 1")
    for name in net.nodes:
        assert net.publish(name, "pub" + name, x=1) == ["ann", "bob", "cid"]


def test_subscriptions_go_up_to_the_gateway_and_on_to_the_other_gateways_only(net):
    net.subscribe("a2", "ann", "x = 1")
    assert net.messages(Subscribe) == [("a2", "a1"), ("a1", "a"), ("a", "b"), ("b", "c")]


def test_what_no_other_domain_wants_stays_in_its_domain(net):
    net.subscribe("a", "ann", "x = 1")
    net.sent.clear()
    assert net.publish("a2", "pub", x=2) == []
    assert net.messages(Notify) == [("a2", "a1"), ("a1", "a")]
    net.sent.clear()
    assert net.publish("b1", "pub", x=2) == []
    assert net.messages(Notify) == [("b1", "b")]


def test_gateways_forward_by_equation_1(net):
    net.subscribe("c", "cid", "exists x")
    net.sent.clear()
    net.subscribe("a1", "ann", "x = 1")
    net.subscribe("c", "dan", "x = 2")
    assert net.messages(Subscribe) == [("a1", "a"), ("a", "b"), ("b", "c")]


def test_servers_below_may_be_plain_hierarchical_ones(network):
    net = network("hybrid", nodes=("a", "b"), gateways=("a", "b"))
    net.nodes["a1"] = Node("a1", "hierarchical")
    net.connect("a1", "a", master=True)
    net.connect("a", "b")
    net.subscribe("a1", "ann", "x = 1")
    net.subscribe("b", "bob", "x = 1")
    assert net.publish("b", "pub b", x=1) == net.publish("a1", "pub a1", x=1) == ["ann", "bob"]
    assert ("a", "a1") not in net.messages(Subscribe)


def test_domains_that_part_and_meet_again(net):
    net.subscribe("a2", "ann", "x = 1")
    net.disconnect("a", "b")
    net.check()
    assert net.nodes["a"].state()["gateways"] == ()
    assert net.publish("b1", "pub", x=1) == []
    net.connect("a", "b")
    assert net.publish("b1", "pub", x=1) == ["ann"]


def test_a_gateway_has_no_master(net):
    before = net.nodes["a"].state()
    with pytest.raises(RoutingError, match="a is a gateway, with b as peers"):
        net.nodes["a"].handle(PeerUp("z", master=True), net.now)
    assert net.nodes["a"].state() == before


def test_a_server_below_a_master_is_no_peer_of_others(net):
    net.add("z")
    net.connect("z", "a2", master=False)
    assert any("a2 is no gateway: its master is a1, not z" in refusal for refusal in net.refusals)
    assert "z" not in net.nodes["a2"].state()["neighbors"]


def test_a_cycle_between_domains_is_refused(net):
    net.connect("a", "c")
    assert any("closes a cycle" in refusal for refusal in net.refusals)
    assert net.publish("a", "pub", x=1) == []
