"""Hermes as its users meet it: on the bus, with options, with bad input; scenarios are in `tests/papers`."""

from __future__ import annotations

import msgspec
import pytest

from angelia import Event, EventType, SyncBus
from angelia.errors import AngeliaError, RoutingError
from angelia.filter import Advertisement, Filter
from angelia.messages import (
    Advertise,
    Contact,
    Contacts,
    Definitions,
    Deliver,
    FromClient,
    FromPeer,
    Heartbeat,
    Join,
    Lookup,
    Measured,
    PeerUp,
    PublishAll,
    Reach,
    Reply,
    Route,
    RouteReply,
    Send,
    Subscribe,
    Timer,
    Unsubscribe,
)
from angelia.node import Node
from angelia.overlay import key_of


def test_hermes_on_a_bus():
    with SyncBus(7, routing="hermes") as bus:
        shop, ann = bus.client("shop", broker="b3"), bus.client("ann", broker="b6")
        shop.define(EventType("Quote", {"price": "float"}))
        shop.define(EventType("Quote.Sale", {"percent": "integer?"}, parent="Quote"))
        cheap, all_of_them = ann.subscribe("Quote: price < 500"), ann.subscribe("exists price")
        for name in ("Quote", "Quote.Sale"):
            shop.advertise(f"{name}: true")
            shop.publish(Event({"price": 420.0}, type=name))
            shop.publish(Event({"price": 900.0}, type=name))
        assert [(e.type, e["price"]) for e in cheap.drain()] == [("Quote", 420.0), ("Quote.Sale", 420.0)]
        assert len(list(all_of_them.drain())) == 4


def test_who_has_not_advertised_a_type_is_told_so():
    with SyncBus(3, routing="hermes") as bus:
        bus.advertise("true")
        bus.publish(Event({"x": 1}))
        with pytest.raises(AngeliaError, match="advertise it first, as events of type Quote"):
            bus.publish(Event({"x": 1}, type="Quote"))


def test_a_type_with_a_parent_that_nobody_knows_is_refused():
    with SyncBus(3, routing="hermes") as bus, pytest.raises(AngeliaError, match="not registered"):
        bus.define(EventType("Orphan", parent="Nobody"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"inheritance": "both"},
        {"replicas": 0},
        {"replication": "none"},
        {"refresh": 10.0, "lease": 5.0},
        {"b": 5},
        {"node_id": "short"},
        {"colour": "red"},
    ],
)
def test_options_that_cannot_be_are_refused(wrong):
    with pytest.raises(RoutingError):
        Node("b1", "hermes", **wrong)


def test_other_routers_take_no_options():
    with pytest.raises(RoutingError, match="colour"):
        Node("b1", "peer", colour="red")


def test_messages_of_other_routers_strangers_and_timers_are_refused():
    node = Node("b1", "hermes")
    with pytest.raises(RoutingError, match="not a peer"):
        node.handle(FromPeer("b2", Heartbeat()), 1.0)
    node.handle(PeerUp("b2"), 1.0)
    with pytest.raises(RoutingError, match="does not understand Reach"):
        node.handle(FromPeer("b2", Reach(frozenset())), 1.0)
    with pytest.raises(RoutingError, match="no timer"):
        node.handle(Timer("tea"), 1.0)


def test_effects_are_the_same_in_every_run():
    def effects() -> list[bytes]:
        node = Node("b1", "hermes", address="here")
        made = [*node.handle(PeerUp("b2"), 1.0), *node.handle(Timer("heartbeat"), 9.0)]
        return [repr(effect).encode() for effect in made]

    assert effects() == effects()
    assert any(b"Join" in text for text in effects())
    assert msgspec.structs.asdict(Join(Node("b1", "hermes").router.pan.me))["met"] == ()


def test_nothing_comes_to_a_party_after_its_unsubscription_was_confirmed():
    """Requests of one client wait together for a type; what comes of one is done before the next."""
    node = Node("b1", "hermes", timeout=1.0)
    node.handle(PeerUp("b2"), 1.0)
    node.handle(FromPeer("b2", Contacts(Contact(key_of("Quote"), "b2"), ())), 1.0)
    node.handle(Measured("b2", 0.01), 1.0)
    requests = [
        Subscribe("ann", Filter.parse("true")),
        Advertise("ann", Advertisement.parse("Quote: true")),
        PublishAll("ann", (Event({"x": 1}, type="Quote"),)),
        Unsubscribe("ann", Filter.parse("true")),
    ]
    effects = [
        e for number, one in enumerate(requests) for e in node.handle(FromClient("c", one, number), 2.0)
    ]
    asked = [e.message for e in effects if isinstance(e, Send) and isinstance(e.message, Route)]
    assert [type(message.message) for message in asked] == [Lookup], "the type's rendezvous node is b2"
    answered = node.handle(FromPeer("b2", RouteReply(asked[0].number, Definitions(()))), 3.0)
    told = [e for e in answered if isinstance(e, Deliver | Reply)]
    assert isinstance(told[-1], Reply)
    assert told[-1].number == 3
    assert [type(e) for e in told].count(Deliver) == 1
