"""`removeEventType` (HERMES, Table 4.2), with every router: a type goes, and what was of it ends."""

from __future__ import annotations

import pytest

from angelia import Event, EventType, SyncBus
from angelia.errors import AngeliaError, EventTypeError
from angelia.filter import Filter
from angelia.messages import DefineType, RemoveType, Subscribe
from angelia.overlay import key_of
from angelia.routing import ROUTERS
from angelia.sim.engine import Simulation
from angelia.sim.faults import ADVERTISING

QUOTE = EventType("Quote", {"price": "float"}, owner="shop")
SALE = EventType("Sale", {"percent": "integer"}, parent="Quote", owner="shop")


@pytest.fixture(params=ROUTERS)
def bus(request):
    with SyncBus(5, routing=request.param) as bus:
        yield bus


def everything(bus: SyncBus) -> list[str]:
    """What the brokers have of subscriptions, advertisements and patterns, as text."""
    states = [node.state() for node in bus._core.network.nodes.values()]
    tables = ("subscriptions", "advertisements", "patterns", "wanted", "trees", "groups")
    return [str(state[table]) for state in states for table in tables if state.get(table)]


def test_what_was_subscribed_to_and_advertised_of_a_type_ends_with_it_and_nothing_else(bus):
    shop, ann = bus.client("shop", broker="b2"), bus.client("ann", broker="b5")
    shop.define(QUOTE)
    shop.define(SALE)
    quotes, sales = ann.subscribe("Quote: price < 500"), ann.subscribe("Sale: percent > 10")
    after = ann.subscribe("(Quote: true) then (Sale: true)")
    shop.advertise("Quote: true")
    shop.advertise("Sale: true")
    shop.publish(Event({"price": 400.0, "percent": 20}, type="Sale"))
    shop.remove_type("Sale", "shop")
    assert [event["percent"] for event in sales.drain()] == [20], "what had come can be read"
    for ended in (sales, after):
        with pytest.raises(EventTypeError, match="the event type Sale was removed"):
            ended.get(timeout=0)
    shop.publish(Event({"price": 300.0}, type="Quote"))
    assert [event["price"] for event in quotes.drain()] == [400.0, 300.0]
    assert not any("Sale" in text for text in everything(bus))
    assert not any("Sale" in node.registry for node in bus._core.network.nodes.values())


def test_a_type_with_subtypes_stays_until_they_are_removed(bus):
    shop = bus.client("shop", broker="b2")
    shop.define(QUOTE)
    shop.define(SALE)
    with pytest.raises(AngeliaError, match="Quote has subtypes: Sale; remove them first"):
        bus.client("other", broker="b4").remove_type("Quote", "shop")
    shop.remove_type("Sale", "shop")
    shop.remove_type("Quote", "shop")
    with pytest.raises(AngeliaError, match="unknown event type 'Quote'"):
        shop.remove_type("Quote", "shop")


@pytest.mark.parametrize("who", [None, "bob"])
def test_its_owner_alone_removes_a_type(bus, who):
    bus.define(QUOTE)
    with pytest.raises(AngeliaError, match="Quote belongs to 'shop': only its owner"):
        bus.client("bob", broker="b4").remove_type("Quote", who)
    bus.advertise("Quote: true")
    with pytest.raises(AngeliaError, match="price"):
        bus.publish(Event({"price": "much"}, type="Quote"))


def test_a_removed_type_can_be_defined_anew_and_otherwise(bus):
    bus.define(QUOTE)
    bus.remove_type("Quote", "shop")
    bus.client("ann", broker="b5").define(EventType("Quote", {"text": "string"}))
    texts = bus.client("eve", broker="b3").subscribe("Quote: exists text")
    bus.advertise("Quote: true")
    bus.publish(Event({"text": "carpe diem"}, type="Quote"))
    assert [event["text"] for event in texts.drain()] == ["carpe diem"]


@pytest.mark.parametrize("routing", sorted(ADVERTISING))
def test_after_a_removal_what_was_advertised_must_be_advertised_again(routing):
    with SyncBus(5, routing=routing) as bus:
        shop = bus.client("shop", broker="b2")
        shop.define(QUOTE)
        shop.advertise("Quote: true")
        shop.remove_type("Quote", "shop")
        with pytest.raises(AngeliaError, match="advertise it first"):
            shop.publish(Event({"price": 1.0}, type="Quote"))


# ---------------------------------------------------------------- while brokers fail


def network(routing: str, brokers: int) -> Simulation:
    options = {"heartbeat": 1.0, "refresh": 1.0, "timeout": 1.0} if routing == "hermes" else {}
    sim = Simulation(routing, options=options)
    for number in range(brokers):
        sim.add_broker(f"b{number}")
        if number:
            sim.connect(f"b{number}", f"b{number - 1}")
            sim.run()
    return sim


def test_a_broker_that_missed_a_removal_learns_of_it_when_it_is_back():
    sim = network("peer", 3)
    sim.attach("shop", "b0")
    sim.submit("shop", DefineType("shop", QUOTE))
    sim.run()
    away = sim.link("b1", "b2")
    sim.cut(away)
    sim.submit("shop", RemoveType("shop", "Quote", "shop"))
    sim.run()
    assert "Quote" in sim.brokers["b2"].node.registry
    sim.restore(away)
    sim.run()
    assert not any("Quote" in broker.node.registry for broker in sim.brokers.values())
    assert not sim.refusals


def test_the_successor_of_a_rendezvous_node_knows_that_a_type_was_removed():
    sim = network("hermes", 8)
    roots = [name for name, broker in sim.brokers.items() if broker.node.router.pan.is_root(key_of("Quote"))]
    assert len(roots) == 1
    others = [name for name in sim.brokers if name not in roots]
    sim.attach("shop", others[0])
    sim.attach("ann", others[1])
    sim.submit("shop", DefineType("shop", QUOTE))
    sim.submit("ann", Subscribe("ann", Filter.of_type("Quote")))
    sim.run(sim.now + 3)
    assert "Quote" in sim.brokers[others[1]].node.registry, "it was asked for there"
    sim.submit("shop", RemoveType("shop", "Quote", "shop"))
    sim.run(sim.now + 3)
    assert sim.clients["ann"].subscriptions["ann"] == []
    sim.crash(roots[0])
    sim.run(sim.now + 20)
    sim.attach("eve", others[2])
    sim.submit("eve", Subscribe("eve", Filter.of_type("Quote")))
    sim.run(sim.now + 3)
    assert not any("Quote" in broker.node.registry for broker in sim.brokers.values() if broker.node)
    assert not sim.refusals
