"""What holds for every router."""

from __future__ import annotations

import pytest
from tests.routing.network import ALL, FORWARDING, Network, RefusedError

from angelia import Advertisement, Event, EventType, Filter
from angelia.errors import RoutingError
from angelia.messages import (
    Advertise,
    Deliver,
    FromPeer,
    LinkState,
    Notify,
    PeerDown,
    PeerUp,
    Publish,
    Reach,
    Subscribe,
    SubscriptionChange,
    TypeDefinition,
    Unsubscribe,
    Versions,
)

LINE = (("b2", "b1"), ("b3", "b2"), ("b4", "b3"))  # in a hierarchy, b1 is the root
every_router = pytest.mark.parametrize("routing", ALL)


@pytest.fixture
def line(network):
    def make(routing: str) -> Network:
        net = network(routing, *LINE)
        for name in net.nodes:
            net.advertise(name, f"pub {name}", "true")
        net.sent.clear()
        return net

    return make


# ---------------------------------------------------------------- deliveries


@every_router
@pytest.mark.parametrize(("at", "to"), [("b1", "b4"), ("b4", "b1"), ("b3", "b3"), ("b2", "b4")])
def test_an_event_reaches_who_wants_it_from_everywhere(line, routing, at, to):
    net = line(routing)
    net.subscribe(to, "ann", "x > 5")
    assert net.publish(at, f"pub {at}", x=6) == ["ann"]
    assert net.publish(at, f"pub {at}", x=5) == []


@every_router
def test_an_event_is_delivered_once_however_many_subscriptions_match(line, routing):
    net = line(routing)
    for text in ("x > 5", "x > 6 or y = 1", "y = 1", "exists x"):
        net.subscribe("b4", "ann", text)
        net.subscribe("b1", "bob", text)
    assert net.publish("b2", "pub b2", x=7, y=1) == ["ann", "bob"]


@every_router
def test_the_parties_of_one_client_share_one_delivery(line, routing):
    net = line(routing)
    for party in ("ann", "bob", "cid"):
        net.request("b4", Subscribe(party, Filter.parse("exists x")), client="office")
    (delivery,) = net.request("b1", Publish("pub b1", Event({"x": 1})))
    assert isinstance(delivery, Deliver)
    assert delivery.to == (("office", {"ann", "bob", "cid"}),)


@every_router
def test_a_party_may_be_called_like_a_broker(line, routing):
    net = line(routing)
    for party in ("b1", "b2", "b3", "b4"):
        net.subscribe("b3", party, "x = 1")
    net.subscribe("b4", "ann", "x = 1")
    for at in net.nodes:
        assert net.publish(at, f"pub {at}", x=1) == ["ann", "b1", "b2", "b3", "b4"]
    net.unsubscribe("b3", "b4", "x = 1")
    net.unsubscribe("b3", "b2", "x = 1")
    assert net.publish("b4", "pub b4", x=1) == ["ann", "b1", "b3"]


@every_router
def test_an_event_gets_an_id_and_a_time_and_keeps_those_that_it_has(line, routing):
    net = line(routing)
    net.subscribe("b4", "ann", "exists x")
    first, second = (net.request("b1", Publish("pub b1", Event({"x": 1})))[0].event for _ in "12")
    assert first.id != second.id
    assert first.time < second.time
    (again,) = net.request("b1", Publish("pub b1", Event({"x": 1}, id="mine", time=first.time)))
    assert (again.event.id, again.event.time) == ("mine", first.time)


# ---------------------------------------------------------------- unsubscription (3.7)


@every_router
def test_an_unsubscription_cancels_all_that_it_covers_and_nothing_else(line, routing):
    net = line(routing)
    for text in ("x > 10", "x = 7", "y = 1"):
        net.subscribe("b4", "ann", text)
    net.subscribe("b4", "bob", "x > 10")
    net.unsubscribe("b4", "ann", "x > 5")
    assert net.publish("b1", "pub b1", x=20) == ["bob"]
    assert net.publish("b1", "pub b1", x=7) == []
    assert net.publish("b1", "pub b1", y=1) == ["ann"]


@every_router
def test_an_unsubscription_that_covers_nothing_has_no_effect(line, routing):
    net = line(routing)
    net.subscribe("b4", "ann", "price > 100")
    before = [node.state() for node in net.nodes.values()]
    net.sent.clear()
    net.unsubscribe("b4", "ann", "price > 200")
    assert [node.state() for node in net.nodes.values()] == before
    assert net.sent == []


@every_router
def test_what_a_generic_subscription_covered_is_not_there_when_it_is_cancelled(line, routing):
    net = line(routing)
    net.subscribe("b4", "ann", "change > 0")
    net.subscribe("b4", "ann", "change > 10")
    net.unsubscribe("b4", "ann", "change > 0")
    assert net.publish("b1", "pub b1", change=20) == []


@every_router
def test_the_subscription_of_another_party_survives_a_covering_unsubscription(line, routing):
    net = line(routing)
    net.subscribe("b4", "ann", "x > 0")
    net.subscribe("b4", "bob", "x > 10")
    net.subscribe("b3", "cid", "x > 20")
    net.unsubscribe("b4", "ann", "exists x")
    assert net.publish("b1", "pub b1", x=25) == ["bob", "cid"]


# ---------------------------------------------------------------- clients and peers that come and go


@every_router
def test_nothing_is_left_of_clients_that_are_gone(line, routing):
    net = line(routing)
    net.subscribe("b4", "ann", "x > 0")
    net.subscribe("b1", "bob", "x > 10")
    net.advertise("b2", "cid", "x > 5")
    for name, client in [("b4", "ann"), ("b1", "bob"), ("b2", "cid")]:
        net.leave(name, client)
    for name in net.nodes:
        net.leave(name, f"pub {name}")
    net.check_empty()


@every_router
def test_a_client_that_is_gone_may_be_there_again_and_leaves_its_identities_to_others(line, routing):
    net = line(routing)
    net.subscribe("b4", "ann", "x = 1")
    net.leave("b4", "ann")
    net.request("b4", Subscribe("ann", Filter.parse("x = 2")), client="another")
    assert net.publish("b1", "pub b1", x=2) == ["ann"]
    assert net.publish("b1", "pub b1", x=1) == []
    net.leave("b4", "nobody")


@every_router
def test_subscriptions_reach_a_peer_that_connects_later(network, routing):
    net = network(routing, nodes=("b1", "b2", "b3"))
    net.advertise("b1", "pub", "true")
    net.subscribe("b3", "ann", "x > 5")
    assert net.publish("b1", "pub", x=6) == []
    net.connect("b3", "b2")
    net.connect("b2", "b1")
    assert net.publish("b1", "pub", x=6) == ["ann"]


@every_router
def test_a_peer_that_disconnects_gets_nothing_and_all_when_it_is_back(line, routing):
    net = line(routing)
    net.subscribe("b4", "ann", "x > 5")
    net.subscribe("b2", "bob", "x > 5")
    net.disconnect("b3", "b2")
    net.check()
    assert net.publish("b1", "pub b1", x=6) == ["bob"]
    assert net.publish("b4", "pub b4", x=6) == ["ann"]
    net.connect("b3", "b2")
    assert net.publish("b1", "pub b1", x=6) == ["ann", "bob"]


@every_router
def test_a_broker_that_is_restarted_empty_is_taken_as_it_is_now(line, routing):
    net = line(routing)
    net.subscribe("b4", "ann", "x = 1")
    net.subscribe("b1", "bob", "x = 2")
    neighbors = net.crash("b4")
    net.add("b4")
    net.connect("b4", *neighbors)
    net.advertise("b4", "pub b4", "true")
    assert net.publish("b1", "pub b1", x=1) == []
    assert net.publish("b4", "pub b4", x=2) == ["bob"]
    net.subscribe("b4", "ann", "x = 3")
    assert net.publish("b1", "pub b1", x=3) == ["ann"]


# ---------------------------------------------------------------- types


BASE = EventType("Base", attributes={"x": "integer"})
SUB = EventType("Sub", parent="Base", attributes={"y": "integer?"})


@every_router
def test_types_travel_to_every_broker_and_to_those_that_connect_later(line, routing):
    net = line(routing)
    net.define("b4", BASE)
    net.define("b1", SUB)
    net.add("b5")
    net.connect("b5", "b4")
    for node in net.nodes.values():
        assert [*node.registry] == ["Base", "Sub"]


@every_router
def test_a_new_version_of_a_type_wins_everywhere(line, routing):
    net = line(routing)
    net.define("b4", BASE)
    net.define("b1", EventType("Base", attributes={"x": "integer", "z": "string?"}))
    for node in net.nodes.values():
        assert node.registry.get("Base").version == 2
        assert "z" in node.registry.attributes("Base")


@every_router
def test_brokers_that_defined_a_type_differently_agree_when_they_meet(network, routing):
    net = network(routing, nodes=("b1", "b2", "b3"))
    net.connect("b3", "b2")
    net.define("b1", BASE)
    net.define("b3", EventType("Base", attributes={"x": "float"}))
    net.connect("b2", "b1")
    assert len({str(node.registry.attributes("Base")["x"]) for node in net.nodes.values()}) == 1


@every_router
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_supertype_subscription_matches_subtypes_known_before_or_after_it(line, routing, when):
    net = line(routing)
    if when == "before":
        net.define("b2", BASE)
        net.define("b2", SUB)
    for text in ("Base: true", "Sub: y = 1"):
        net.subscribe("b4", "ann", text)
        net.subscribe("b1", "bob", text)
    if when == "after":
        assert net.publish("b2", "pub b2", type="Sub", x=1, y=2) == []
        net.define("b2", BASE)
        net.define("b2", SUB)
    assert net.publish("b1", "pub b1", type="Sub", x=1, y=2) == ["ann", "bob"]
    assert net.publish("b4", "pub b4", type="Base", x=1) == ["ann", "bob"]
    assert net.publish("b4", "pub b4", type="Other", x=1) == []


@every_router
def test_filters_that_become_equivalent_by_a_type_are_cancelled_together(line, routing):
    net = line(routing)
    net.subscribe("b4", "ann", "(Base: true) or (Sub: true)")
    net.subscribe("b4", "ann", "Base: true")
    net.subscribe("b3", "bob", "Base: true")
    net.define("b1", BASE)
    net.define("b1", SUB)
    net.check()
    net.unsubscribe("b4", "ann", "Base: true")
    assert net.publish("b1", "pub b1", type="Sub", x=1) == ["bob"]


@every_router
def test_an_event_that_does_not_conform_to_its_type_is_refused(line, routing):
    net = line(routing)
    net.define("b1", BASE)
    with pytest.raises(RefusedError, match="not a valid Base"):
        net.publish("b4", "pub b4", type="Base", x="one")


@every_router
def test_a_filter_that_does_not_conform_to_its_type_is_refused(line, routing):
    net = line(routing)
    net.define("b1", BASE)
    with pytest.raises(RefusedError, match="no attribute 'price'"):
        net.subscribe("b4", "ann", "Base: price > 1")


# ---------------------------------------------------------------- bad input: an error, and nothing changes


def refused(node, given, match: str) -> None:
    before = node.state()
    with pytest.raises(RoutingError, match=match):
        node.handle(given, 5_000.0)
    assert node.state() == before


NOTIFICATION = Notify(Event({"x": 1}), "b9", 1)


@every_router
def test_a_message_of_an_unknown_peer_is_refused(line, routing):
    refused(line(routing).nodes["b2"], FromPeer("b9", NOTIFICATION), "b9 is not a peer of b2")


@every_router
def test_the_loss_of_an_unknown_peer_is_refused(line, routing):
    refused(line(routing).nodes["b2"], PeerDown("b9"), "b9 is not a peer of b2")


@every_router
def test_a_second_connection_with_a_peer_is_refused(line, routing):
    refused(line(routing).nodes["b2"], PeerUp("b3"), "b3 is connected to b2 already")


@every_router
def test_a_broker_is_not_its_own_peer(line, routing):
    refused(line(routing).nodes["b2"], PeerUp("b2"), "own peer")


FILTER = Filter.parse("x = 1")
FOREIGN = {
    "flooding": [Subscribe("b3", FILTER), LinkState("b3", 1, frozenset()), Reach(frozenset())],
    "general": [Subscribe("b3", FILTER), Unsubscribe("b3", FILTER), Reach(frozenset())],
    "subscription_flooding": [Subscribe("b3", FILTER), Reach(frozenset())],
} | {
    name: [
        Versions({}),
        LinkState("b3", 1, frozenset()),
        SubscriptionChange("b3", 1, frozenset(), frozenset()),
    ]
    for name in FORWARDING
}


@every_router
def test_a_message_of_another_protocol_is_refused(line, routing):
    node = line(routing).nodes["b2"]
    for message in FOREIGN[routing]:
        refused(node, FromPeer("b3", message), f"does not understand {type(message).__name__}")


@every_router
def test_a_type_below_an_unknown_one_is_refused(line, routing):
    refused(line(routing).nodes["b2"], FromPeer("b3", TypeDefinition(SUB)), "Sub")


@every_router
def test_an_identity_of_another_client_is_refused(line, routing):
    net = line(routing)
    net.subscribe("b2", "ann", "x = 1")
    before = net.nodes["b2"].state()
    for request in (Subscribe("ann", FILTER), Unsubscribe("ann", FILTER), Publish("ann", Event({"x": 1}))):
        with pytest.raises(RefusedError, match="belongs to another client"):
            net.request("b2", request, client="mallory")
    assert net.nodes["b2"].state() == before


@every_router
def test_a_filter_that_matches_nothing_is_refused(line, routing):
    net = line(routing)
    before = net.nodes["b2"].state()
    with pytest.raises(RefusedError, match="matches nothing"):
        net.subscribe("b2", "ann", "x > 5 and x < 3")
    assert net.nodes["b2"].state() == before


@pytest.mark.parametrize("routing", [name for name in ALL if name != "advertisement"])
def test_advertisements_change_nothing_where_they_are_not_used(line, routing):
    net = line(routing)
    before = {**net.nodes["b2"].state(), "parties": None}
    net.request("b2", Advertise("pub b2", Advertisement.parse("x > 5")))
    assert {**net.nodes["b2"].state(), "parties": None} == before
    assert net.sent == []
