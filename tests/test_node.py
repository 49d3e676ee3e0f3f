"""The node: requests, replies, identities, time. What routers do is tested in `tests/routing`."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from angelia import Event, EventType, Filter
from angelia.errors import RoutingError
from angelia.messages import (
    ClientDown,
    DefineType,
    Deliver,
    DeliverSequence,
    FromClient,
    FromPeer,
    PeerUp,
    Publish,
    Reply,
    Send,
    Subscribe,
    SubscribePattern,
    TypeDefinition,
)
from angelia.node import Node
from angelia.pattern import Pattern

NOW = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def test_an_unknown_routing_is_an_error_that_names_those_that_there_are():
    with pytest.raises(RoutingError, match="no routing 'magic'; there are flooding, "):
        Node("b1", "magic")


def test_a_reply_carries_the_number_of_its_request():
    node = Node("b1", "peer")
    assert node.handle(FromClient("c", Subscribe("ann", Filter.parse("x = 1")), 7), NOW) == [Reply("c", 7)]
    (refused,) = node.handle(FromClient("d", Subscribe("ann", Filter.parse("x = 1")), 8), NOW)
    assert refused == Reply("d", 8, "the identity 'ann' belongs to another client", "RequestError")


def test_deliveries_come_before_the_reply_and_go_by_client():
    node = Node("b1", "peer")
    for client, party in (("c", "ann"), ("c", "bob"), ("d", "cid")):
        node.handle(FromClient(client, Subscribe(party, Filter.parse("exists x"))), NOW)
    delivery, reply = node.handle(FromClient("c", Publish("ann", Event({"x": 1}))), NOW)
    assert delivery.to == (("c", {"ann", "bob"}), ("d", {"cid"}))
    assert reply == Reply("c", 0)


def test_an_event_is_stamped_with_the_time_that_the_node_is_given():
    node = Node("b1", "peer")
    node.handle(FromClient("c", Subscribe("ann", Filter.parse("exists x"))), NOW)
    delivery, _ = node.handle(FromClient("c", Publish("ann", Event({"x": 1}))), NOW)
    assert delivery.event.time == datetime(2026, 1, 1, tzinfo=UTC)
    assert delivery.event.id.startswith("b1-")


def test_times_of_events_rise_though_the_clock_stands_so_that_sequences_can_be_told():
    node = Node("b1", "peer")
    node.handle(FromClient("c", SubscribePattern("ann", Pattern.parse("x = 1 then x = 2"))), NOW)
    effects = [
        effect
        for x in (1, 2)
        for effect in node.handle(FromClient("c", Publish("ann", Event({"x": x}))), NOW)
        if not isinstance(effect, Reply)
    ]
    (sequence,) = effects
    assert isinstance(sequence, DeliverSequence)
    assert [event["x"] for event in sequence.events] == [1, 2]
    assert sequence.events[0].time < sequence.events[1].time


def test_a_node_does_nothing_but_by_its_inputs():
    """Two nodes with the same inputs have the same effects and the same state."""
    inputs = [
        PeerUp("b2"),
        FromClient("c", DefineType("ann", EventType("Top", attributes={"x": "integer"}))),
        FromClient("c", Subscribe("ann", Filter.parse("Top: x > 1"))),
        FromClient("c", Publish("ann", Event({"x": 2}, type="Top"))),
        ClientDown("c"),
    ]
    one, other = Node("b1", "general"), Node("b1", "general")
    assert [one.handle(each, NOW) for each in inputs] == [other.handle(each, NOW) for each in inputs]
    assert one.state() == other.state()


def test_the_state_is_a_copy():
    node = Node("b1", "peer")
    node.handle(FromClient("c", Subscribe("ann", Filter.parse("x = 1"))), NOW)
    state = node.state()
    node.handle(ClientDown("c"), NOW)
    assert list(state["parties"]) == ["ann"]
    assert len(state["subscriptions"]) == 1
    assert node.state()["subscriptions"] == {}


def test_a_new_peer_is_told_the_types_before_anything_that_uses_them():
    node = Node("b1", "peer")
    for event_type in (EventType("Top"), EventType("Sub", parent="Top")):
        node.handle(FromClient("c", DefineType("ann", event_type)), NOW)
    node.handle(FromClient("c", Subscribe("ann", Filter.parse("Sub: true"))), NOW)
    sent = [effect.message for effect in node.handle(PeerUp("b2"), NOW) if isinstance(effect, Send)]
    assert [message.event_type.name for message in sent[:2]] == ["Top", "Sub"]
    assert isinstance(sent[-1], Subscribe)


def test_a_type_that_is_known_is_not_passed_on_again():
    node = Node("b1", "peer")
    for peer in ("b2", "b3"):
        node.handle(PeerUp(peer), NOW)
    news = TypeDefinition(EventType("Top"))
    assert node.handle(FromPeer("b2", news), NOW) == [Send("b3", news)]
    assert node.handle(FromPeer("b3", news), NOW) == []


def test_a_client_that_is_gone_gets_nothing_more():
    node = Node("b1", "peer")
    node.handle(FromClient("c", Subscribe("ann", Filter.parse("exists x"))), NOW)
    node.handle(ClientDown("c"), NOW)
    effects = node.handle(FromClient("d", Publish("bob", Event({"x": 1}))), NOW)
    assert not any(isinstance(effect, Deliver) for effect in effects)
    assert node.state()["parties"] == {"bob": "d"}
