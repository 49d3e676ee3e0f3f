"""Hierarchical and acyclic peer-to-peer servers: trees, masters, forwards, advertisements."""

from __future__ import annotations

import pytest
from tests.routing.network import FORWARDING, RefusedError

from angelia import Advertisement, Filter
from angelia.errors import RoutingError
from angelia.messages import Advertise, FromPeer, PeerDown, PeerUp, Reach, Subscribe, Unadvertise, Unsubscribe
from angelia.node import Node
from angelia.routing import Peer, SubscriptionForwarding, forwarding

acyclic = pytest.mark.parametrize("routing", ["hierarchical", "peer", "advertisement"])


# ---------------------------------------------------------------- trees


@acyclic
def test_a_connection_that_closes_a_cycle_is_refused_and_the_tree_stays(network, routing):
    net = network(routing, ("b2", "b1"), ("b3", "b2"))
    net.subscribe("b3", "ann", "x = 1")
    before = [node.state() for node in net.nodes.values()]
    net.connect("b1", "b3")
    assert any("closes a cycle" in refusal for refusal in net.refusals)
    assert [node.state() for node in net.nodes.values()] == before
    assert net.links == {frozenset(("b1", "b2")), frozenset(("b2", "b3"))}


@acyclic
def test_the_refusal_of_a_cycle_leaves_the_node_as_it_was(routing):
    node = Node("b1", routing)
    for peer in ("b2", "b3"):
        node.handle(PeerUp(peer), 1.0)
    node.handle(FromPeer("b2", Reach(frozenset({"b2", "b4"}))), 1.0)
    before = node.state()
    with pytest.raises(RoutingError, match="closes a cycle: both reach b4"):
        node.handle(FromPeer("b3", Reach(frozenset({"b3", "b4"}))), 1.0)
    assert node.state() == before


@acyclic
def test_servers_that_were_cut_off_may_connect_elsewhere(network, routing):
    net = network(routing, ("b2", "b1"), ("b3", "b2"), ("b4", "b3"))
    net.disconnect("b3", "b2")
    net.connect("b3", "b1")
    assert net.refusals == []
    assert net.component("b4") == {"b1", "b2", "b3", "b4"}


# ---------------------------------------------------------------- hierarchies


def test_a_second_master_is_refused(network):
    net = network("hierarchical", ("b2", "b1"))
    before = net.nodes["b2"].state()
    with pytest.raises(RoutingError, match="b2 has a master already: b1"):
        net.nodes["b2"].handle(PeerUp("b3", master=True), 1.0)
    assert net.nodes["b2"].state() == before


def test_a_refused_connection_does_not_make_a_master(network):
    net = network("hierarchical", ("b2", "b1"))
    with pytest.raises(RoutingError, match="already"):
        net.nodes["b1"].handle(PeerUp("b2", master=True), 1.0)
    assert net.nodes["b1"].state()["master"] is None


def test_subscriptions_go_up_only(network):
    net = network("hierarchical", ("b2", "b1"), ("b3", "b1"))
    net.subscribe("b2", "ann", "x = 1")
    net.subscribe("b1", "bob", "x = 2")
    assert net.messages(Subscribe) == [("b2", "b1")]


def test_a_server_whose_master_is_gone_is_a_root_and_may_have_another(network):
    net = network("hierarchical", ("b2", "b1"), nodes=("b3",))
    net.subscribe("b2", "ann", "x = 1")
    net.disconnect("b2", "b1")
    assert net.nodes["b2"].state()["master"] is None
    assert net.publish("b2", "pub", x=1) == ["ann"]
    net.connect("b2", "b3")
    assert net.publish("b3", "pub", x=1) == ["ann"]


def test_two_servers_that_take_each_other_for_their_master_deliver_once(network):
    net = network("hierarchical", nodes=("b1", "b2"))
    net.links.add(frozenset(("b1", "b2")))
    for name, other in (("b1", "b2"), ("b2", "b1")):
        net._carry_out(name, net._handle(name, PeerUp(other, master=True)))
    net._run()
    net.subscribe("b1", "ann", "exists x")
    net.subscribe("b2", "bob", "exists x")
    assert net.publish("b1", "pub", x=1) == ["ann", "bob"]


# ---------------------------------------------------------------- covering on the way


def test_many_specific_subscriptions_below_a_generic_one_cost_no_messages(network):
    net = network("peer", ("b1", "b2"), ("b2", "b3"))
    net.subscribe("b1", "ann", "x >= 0")
    net.sent.clear()
    for n in range(20):
        net.subscribe("b1", f"party {n}", f"x = {n}")
    assert net.sent == []
    net.unsubscribe("b1", "ann", "x >= 0")
    (told,), (passed_on,) = net.told("b1", "b2"), net.told("b2", "b3")
    assert told == passed_on
    assert told.count("+") == 20


def test_what_two_cancelled_subscriptions_covered_comes_with_the_second(network):
    """The first does not bring it, for the second, which covers it still, would take it away."""
    net = network("peer", ("b1", "b2"), ("b2", "b3"))
    for party, text in (("ann", "x > 5"), ("ann", "y > 5"), ("bob", "x > 7 and y > 7")):
        net.subscribe("b1", party, text)
    net.sent.clear()
    net.leave("b1", "ann")
    assert net.told("b1", "b2") == net.told("b2", "b3") == ["- x > 5", "- y > 5 + x > 7 and y > 7"]
    assert net.publish("b3", "pub", x=8, y=8) == ["bob"]


@pytest.mark.parametrize("routing", FORWARDING)
@pytest.mark.parametrize(
    "uncovered",
    [("x = 1",), ("x > 0", "x = 1"), ("x = 1", "x > 0"), ("x > 0",), ("y = 1",), ("x >= 0",), ()],
    ids=str,
)
def test_whatever_a_neighbor_says_is_uncovered_its_subscriptions_are_those_that_it_named(
    routing: str, uncovered: tuple[str, ...]
):
    """A sender of ours names none that covers another; a neighbour may be of another kind."""
    node = Node("b1", routing)
    filters = tuple(Filter.parse(text) for text in uncovered)
    inputs = [Subscribe("b2", Filter.parse("x >= 0")), Unsubscribe("b2", Filter.parse("x >= 0"), filters)]
    node.handle(PeerUp("b2"), 0.0)
    for message in inputs:
        node.handle(FromPeer("b2", message), 0.0)
    state = node.state()["subscriptions"]
    roots = {f for f in filters if not any(o != f and o.covers(f) for o in filters)}
    assert {item: subscribers for item, (subscribers, _) in state.items()} == {
        item: {Peer("b2")} for item in roots
    }
    assert isinstance(node.router, SubscriptionForwarding)
    assert set(node.router.interests.table()) == roots


def test_an_unadvertisement_brings_the_advertisements_that_it_uncovers(network):
    net = network("advertisement", ("b1", "b2"), ("b2", "b3"))
    net.advertise("b1", "wide", "exists x")
    net.advertise("b1", "narrow", "x > 5")
    net.subscribe("b3", "ann", "x > 7")
    net.sent.clear()
    net.unadvertise("b1", "wide", "exists x")
    told = [message for _, _, message in net.sent]
    assert [message.uncovered for message in told] == [(Advertisement.parse("x > 5"),)] * 2
    assert net.publish("b1", "narrow", x=8) == ["ann"]


def test_what_is_uncovered_comes_in_pieces_where_it_is_too_much_for_a_message(network, monkeypatch):
    monkeypatch.setattr(forwarding, "_PIECE", 20)
    net = network("advertisement", ("b1", "b2"), ("b2", "b3"))
    net.advertise("b1", "wide", "exists x")
    net.subscribe("b3", "wide", "x >= 0")
    for n in range(10):
        net.advertise("b1", f"pub {n}", f"x = {n}")
        net.subscribe("b3", f"party {n}", f"x = {n}")
    net.sent.clear()
    net.unsubscribe("b3", "wide", "x >= 0")
    assert len(net.told("b3", "b2")) == len(net.told("b2", "b1")) == 3
    net.unadvertise("b1", "wide", "exists x")
    assert net.messages(Unadvertise) == [("b1", "b2")] * 3 + [("b2", "b3")] * 3
    assert net.publish("b1", "pub 7", x=7) == ["party 7"]


def test_pieces_of_a_neighbor_that_is_gone_are_forgotten(network):
    node = Node("b1", "peer")
    wide, narrow = Filter.parse("x >= 0"), Filter.parse("x = 1")
    for given in (
        PeerUp("b2"),
        FromPeer("b2", Unsubscribe("b2", wide, (narrow,), more=True)),
        PeerDown("b2"),
        PeerUp("b2"),
        FromPeer("b2", Unsubscribe("b2", wide)),
    ):
        node.handle(given, 0.0)
    assert node.state()["subscriptions"] == {}


def test_clients_cannot_say_what_their_cancellations_uncover(network):
    net = network("advertisement", ("b1", "b2"))
    for request in (
        Unsubscribe("ann", Filter.parse("exists x"), (Filter.parse("x = 1"),)),
        Unadvertise("ann", Advertisement.parse("exists x"), (Advertisement.parse("x = 1"),)),
    ):
        with pytest.raises(RefusedError, match="only a broker says what it uncovers"):
            net.request("b1", request)


def test_forwards_shrink_when_only_one_neighbor_is_left_as_subscriber(network):
    net = network("peer", ("b1", "b2"), ("b1", "b3"))
    net.subscribe("b2", "ann", "x = 1")
    net.subscribe("b1", "bob", "x = 1")
    assert net.table("b1") == {"x = 1": ({"b2", "bob"}, {"b2", "b3"})}
    net.sent.clear()
    net.leave("b1", "bob")
    assert net.table("b1") == {"x = 1": ({"b2"}, {"b3"})}
    assert net.told("b1", "b2") == ["- x = 1"]
    assert net.messages(Unsubscribe) == [("b1", "b2")]


# ---------------------------------------------------------------- advertisements (3.5, 5.2.4)


def test_an_event_that_was_not_advertised_is_refused(network):
    net = network("advertisement", ("b1", "b2"))
    net.subscribe("b2", "ann", "exists x")
    before = net.nodes["b1"].state()
    with pytest.raises(RefusedError, match="pub has not advertised this event"):
        net.publish("b1", "pub", x=1)
    assert net.nodes["b1"].state() == before
    net.advertise("b1", "pub", "x < 5")
    assert net.publish("b1", "pub", x=1) == ["ann"]
    with pytest.raises(RefusedError):
        net.publish("b1", "pub", x=5)
    with pytest.raises(RefusedError):
        net.publish("b1", "other", x=1)


def test_an_unadvertisement_cancels_all_advertisements_that_it_covers(network):
    net = network("advertisement", ("b1", "b2"))
    for text in ("x = 1", "x > 5", "y = 1"):
        net.advertise("b1", "pub", text)
    net.unadvertise("b1", "pub", "exists x")
    with pytest.raises(RefusedError):
        net.publish("b1", "pub", x=6)
    assert net.publish("b1", "pub", y=1) == []
    net.unadvertise("b1", "pub", "y > 5")  # does not cover it: no effect
    assert net.publish("b1", "pub", y=1) == []


def test_subscriptions_go_only_where_something_relevant_is_advertised(network):
    net = network("advertisement", ("b1", "b2"), ("b1", "b3"), ("b3", "b4"))
    net.advertise("b2", "p", "x < 5")
    net.advertise("b4", "q", "x > 5")
    net.sent.clear()
    net.subscribe("b1", "ann", "x = 7")
    net.subscribe("b1", "bob", "y = 7")
    assert net.messages(Subscribe) == [("b1", "b3"), ("b3", "b4")]


def test_a_covered_advertisement_is_not_forwarded_but_takes_over_when_uncovered(network):
    net = network("advertisement", ("b1", "b2"), ("b2", "b3"))
    net.subscribe("b3", "ann", "x = 7")
    net.advertise("b1", "p", "exists x")
    net.sent.clear()
    net.advertise("b1", "q", "x > 5")
    assert net.messages(Advertise) == []
    net.unadvertise("b1", "p", "exists x")
    assert net.messages(Unadvertise) == [("b1", "b2"), ("b2", "b3")]
    assert net.publish("b1", "q", x=7) == ["ann"]


def test_a_publisher_that_leaves_takes_the_paths_of_subscriptions_with_it(network):
    net = network("advertisement", ("b1", "b2"))
    net.advertise("b1", "p", "exists x")
    net.subscribe("b2", "ann", "x = 7")
    net.leave("b1", "p")
    net.leave("b2", "ann")
    net.check_empty()
