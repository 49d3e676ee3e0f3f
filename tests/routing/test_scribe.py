"""Scribe: topics, subtrees of topics, and the trees of groups; the kit of `tests/sim` checks the rest."""

from __future__ import annotations

import pytest

from angelia import Event, Filter, SyncBus
from angelia.errors import FilterError
from angelia.filter.topics import MAX_LEVELS, groups_of, groups_wanted, topic_filter
from angelia.messages import LeaveGroup, Subscribe, Unsubscribe
from angelia.sim.engine import Simulation

TOPICS = ("news", "sports", "sports/football", "sports/football/uk", "sportswear")


# ---------------------------------------------------------------- topics


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        ("sports", ["sports"]),
        ("sports/#", ["sports", "sports/football", "sports/football/uk"]),
        ("sports/football/#", ["sports/football", "sports/football/uk"]),
        ("#", list(TOPICS)),
    ],
)
def test_a_subtree_has_its_top_and_all_below_it(wanted, got):
    matching = topic_filter(wanted)
    assert [topic for topic in TOPICS if matching.matches(Event({"topic": topic}))] == got


@pytest.mark.parametrize("text", ["", "a#", "a/#/b", "##"])
def test_what_is_no_topic_is_refused(text):
    with pytest.raises(FilterError):
        topic_filter(text)


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ('topic = "a/b"', {"a/b"}),
        ('topic in ("a", "b") and x > 5', {"a", "b"}),
        ('topic prefix "a/b/"', {"a/b/#"}),
        ('topic prefix "a/bc"', {"a/#"}),
        ('topic = "a/b" or topic prefix "a/b/"', {"a/b/#"}),
        ('topic prefix "a"', {"#"}),
        ("x > 5", {"#"}),
        ('topic = "a" or x > 5', {"#"}),
        ("topic = 7", {"#"}),
        ('not topic = "a"', {"#"}),
    ],
)
def test_groups_that_a_filter_needs(text, groups):
    assert groups_wanted(Filter.parse(text)) == groups


@pytest.mark.parametrize("topic", [*TOPICS, "/", "a//b", "#", "x/" * 40, ""])
@pytest.mark.parametrize("wanted", ["sports/#", "sports/football", "#", "a/#"])
def test_who_wants_an_event_is_in_one_of_its_groups(topic, wanted):
    event, matching = Event({"topic": topic}), topic_filter(wanted)
    if matching.matches(event):
        assert groups_wanted(matching) & set(groups_of(event))


def test_a_deep_topic_has_a_bounded_number_of_groups():
    assert len(groups_of(Event({"topic": "/".join("x" * 10_000)}))) <= MAX_LEVELS + 2


# ---------------------------------------------------------------- on the bus, and the trees


def test_topics_on_a_bus():
    with SyncBus(6, routing="scribe") as bus:
        ann = bus.client("ann", broker="b2").subscribe(topic_filter("sports/#"))
        bob = bus.client("bob", broker="b5").subscribe(topic_filter("sports/football"))
        for topic in TOPICS:
            bus.publish(Event({"topic": topic}))
        assert [e["topic"] for e in ann.drain()] == ["sports", "sports/football", "sports/football/uk"]
        assert [e["topic"] for e in bob.drain()] == ["sports/football"]


def test_the_last_member_takes_the_tree_down():
    sim = Simulation("scribe", options={"heartbeat": None, "refresh": None, "leaf_set": 2})
    for number in range(12):
        sim.add_broker(f"b{number}")
        if number:
            sim.connect(f"b{number}", "b0")
        sim.run()
    for number in (3, 7):
        sim.attach(f"s{number}", f"b{number}")
        sim.submit(f"s{number}", Subscribe(f"s{number}", topic_filter("news")))
    sim.run()
    assert any(broker.node.state()["groups"] for broker in sim.brokers.values())
    for number in (3, 7):
        sim.submit(f"s{number}", Unsubscribe(f"s{number}", Filter()))
    sim.run()
    assert not any(broker.node.state()["groups"] for broker in sim.brokers.values())
    assert any(LeaveGroup in c.sent for link in sim.links for c in link.channels)
