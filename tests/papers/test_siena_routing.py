"""SIENA (Carzaniga, Rosenblum, Wolf 2001): routing as the paper tells it, step by step.

The figures are lost from the text that we have; what they showed is taken from the prose. Where a state
is ours, the docstring says so.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.routing.network import Network

from angelia import Advertisement, Event, Filter
from angelia.messages import (
    Notify,
    NotifySequence,
    Subscribe,
    SubscribePattern,
    Unsubscribe,
    UnsubscribePattern,
)
from angelia.pattern import Pattern, SequenceMatcher

ANY = "exists airline"
UA = 'airline = "UA"'
AZ = 'airline = "AZ"'
UA_TO_DENVER = 'airline = "UA" and dest = "DEN"'
UA_FROM_DENVER = 'airline = "UA" and orig = "DEN"'


def figure_13a() -> Network:
    net = Network("hierarchical", ("1", "2"))
    net.subscribe("1", "a", UA)
    return net


def figure_13c() -> Network:
    net = figure_13a()
    net.subscribe("1", "b", UA_TO_DENVER)
    net.subscribe("1", "a", ANY)
    return net


def test_figure_13a_a_root_subscription_is_forwarded_to_the_master():
    """5.2.2.1, Figure 13(a): [airline=UA] from client a becomes a root, and goes to server 2."""
    net = figure_13a()
    assert net.table("1") == {UA: ({"a"}, {"2"})}
    assert net.told("1", "2") == [f"+ {UA}"]
    assert net.table("2") == {UA: ({"1"}, set())}
    net.check()


def test_figure_13b_a_covered_subscription_is_not_forwarded():
    """5.2.2.1, Figure 13(b): [airline=UA, dest=DEN] from client b is covered, and stays."""
    net = figure_13a()
    net.sent.clear()
    net.subscribe("1", "b", UA_TO_DENVER)
    assert net.table("1") == {UA: ({"a"}, {"2"}), UA_TO_DENVER: ({"b"}, set())}
    assert net.sent == []
    net.check()


def test_figure_13c_a_generic_subscription_replaces_what_it_covers():
    """5.2.2.1, Figure 13(c): [airline=any] from a goes to 2; a's [airline=UA] is removed, b's stays."""
    net = figure_13a()
    net.subscribe("1", "b", UA_TO_DENVER)
    net.sent.clear()
    net.subscribe("1", "a", ANY)
    assert net.table("1") == {ANY: ({"a"}, {"2"}), UA_TO_DENVER: ({"b"}, set())}
    assert net.told("1", "2") == [f"+ {ANY}"]
    assert net.table("2") == {ANY: ({"1"}, set())}
    net.check()


def test_figure_14_an_unsubscription_forwards_the_roots_that_it_uncovers():
    """5.2.2.3, Figure 14: a cancels [airline=any]; 2 is told that, and of the new root of b, at once."""
    net = figure_13c()
    net.sent.clear()
    net.unsubscribe("1", "a", ANY)
    assert net.table("1") == {UA_TO_DENVER: ({"b"}, {"2"})}
    assert net.told("1", "2") == [f"- {ANY} + {UA_TO_DENVER}"]
    assert net.table("2") == {UA_TO_DENVER: ({"1"}, set())}
    net.check()


def test_notifications_always_go_to_the_master():
    """5.2.2.2: whatever it is about, and whoever wants it, but not back to the master that sent it."""
    net = Network("hierarchical", ("1", "2"), ("3", "2"))
    assert net.publish("1", "p", airline="UA") == []
    assert net.messages(Notify) == [("1", "2")]
    net.sent.clear()
    net.subscribe("3", "c", UA)
    assert net.publish("1", "p", airline="UA") == ["c"]
    assert net.messages(Notify) == [("1", "2"), ("2", "3")]
    net.check()


def test_advertisements_are_silently_dropped_in_a_hierarchy():
    """5.2.2.4"""
    net = Network("hierarchical", ("1", "2"))
    net.sent.clear()
    net.advertise("1", "a", UA)
    assert net.sent == []


# ---------------------------------------------------------------- Figures 15 and 16


def figure_15(steps: int) -> Network:
    net = Network("peer", ("1", "2"), ("1", "3"), ("1", "4"))
    subscriptions = [("3", "c", ANY), ("2", "d", UA_FROM_DENVER), ("1", "a", ANY)]
    for subscription in subscriptions[:steps]:
        net.sent.clear()
        net.subscribe(*subscription)
    net.check()
    return net


def test_figure_15a_a_subscription_goes_to_all_neighbors_but_its_sender():
    """5.2.3.3, Figure 15(a): [airline=any] of server 3 is a root, forwarded to 2 and 4, not to 3."""
    net = figure_15(1)
    assert net.table("1") == {ANY: ({"3"}, {"2", "4"})}
    assert net.messages(Subscribe) == [("3", "1"), ("1", "2"), ("1", "4")]


def test_figure_15b_a_covered_subscription_goes_where_the_covering_one_did_not():
    """5.2.3.3, Figure 15(b): [airline=UA, orig=DEN] of server 2 is forwarded to 3 only."""
    net = figure_15(2)
    assert net.table("1") == {ANY: ({"3"}, {"2", "4"}), UA_FROM_DENVER: ({"2"}, {"3"})}
    assert net.messages(Subscribe) == [("2", "1"), ("1", "3")]


def test_figure_15c_a_second_subscriber_empties_nst():
    """5.2.3.3, Figure 15(c): a is added to [airline=any], which goes to 3, and stands there for 2's."""
    net = figure_15(3)
    assert net.table("1") == {ANY: ({"3", "a"}, {"2", "3", "4"}), UA_FROM_DENVER: ({"2"}, set())}
    assert net.told("1", "3") == [f"+ {ANY}"]
    assert net.messages(Subscribe) == [("1", "3")]


UA_CHEAP = 'airline = "UA" and price < 500'
AZ_CHEAP = 'airline = "AZ" and price < 800'
TO_DENVER = 'dest = "DEN"'


def figure_16() -> Network:
    """A state that fits what 5.2.3.4 says of server 1 before the unsubscription; it is ours.

    [airline=UA] has a and 3 as subscribers, so NST is empty; [airline=AZ] has a alone. Below [airline=UA]
    are [airline=UA, price<500] of 2, which has no other successor, and [airline=UA, dest=DEN] of a local
    client, whose other successor is [dest=DEN] of 2. [airline=AZ, price<800] is of 3.
    """
    net = Network("peer", ("1", "2"), ("1", "3"), ("1", "4"))
    net.subscribe("1", "a", UA)
    net.subscribe("1", "a", AZ)
    net.subscribe("3", "c", UA)
    net.subscribe("3", "c", AZ_CHEAP)
    net.subscribe("2", "d", UA_CHEAP)
    net.subscribe("2", "d", TO_DENVER)
    net.subscribe("1", "b", UA_TO_DENVER)
    net.check()
    net.sent.clear()
    return net


def test_figure_16a_the_state_before():
    """5.2.3.4, Figure 16(a): all that is below the two roots of a is blocked by them."""
    assert figure_16().table("1") == {
        UA: ({"a", "3"}, {"2", "3", "4"}),
        AZ: ({"a"}, {"2", "3", "4"}),
        UA_CHEAP: ({"2"}, set()),
        TO_DENVER: ({"2"}, {"3", "4"}),
        UA_TO_DENVER: ({"b"}, set()),
        AZ_CHEAP: ({"3"}, set()),
    }


def test_figure_16c_an_unsubscription_shrinks_forwards_and_forwards_what_it_uncovers():
    """5.2.3.4, Figure 16(b) and (c), as told: who is sent which unsubscription and subscription."""
    net = figure_16()
    net.unsubscribe("1", "a", ANY)
    assert net.table("1") == {
        UA: ({"3"}, {"2", "4"}),
        UA_CHEAP: ({"2"}, {"3"}),
        TO_DENVER: ({"2"}, {"3", "4"}),
        UA_TO_DENVER: ({"b"}, set()),
        AZ_CHEAP: ({"3"}, {"2", "4"}),
    }
    assert sorted(net.told("1", "3")) == [f"- {AZ}", f"- {UA} + {UA_CHEAP}"]
    assert net.told("1", "2") == net.told("1", "4") == [f"- {AZ} + {AZ_CHEAP}"]
    net.check()


# ---------------------------------------------------------------- 3.7 through a node

ROUTERS = ["flooding", "subscription_flooding", "hierarchical", "peer", "general"]


@pytest.mark.parametrize("routing", ROUTERS)
def test_an_unsubscription_does_not_narrow_a_subscription(routing):
    """3.7: [price>100], then unsubscribing [price>200], has no effect."""
    net = Network(routing, ("1", "2"))
    net.subscribe("1", "a", "price > 100")
    net.unsubscribe("1", "a", "price > 200")
    assert net.publish("2", "p", price=300) == ["a"]
    net.check()


@pytest.mark.parametrize("routing", ROUTERS)
def test_an_unsubscription_does_not_revert_to_a_more_specific_subscription(routing):
    """3.7: [change>10], [change>0], then unsubscribing [change>0], cancels both."""
    net = Network(routing, ("1", "2"))
    net.subscribe("1", "a", "change > 10")
    net.subscribe("1", "a", "change > 0")
    net.unsubscribe("1", "a", "change > 0")
    assert net.publish("2", "p", change=20) == []
    net.check()


# ---------------------------------------------------------------- the principles of 5.1


@pytest.mark.parametrize("routing", ["peer", "general", "advertisement"])
def test_downstream_replication(routing):
    """5.1, Figure 10: one copy as far as possible, replicated where the ways part. The network is ours."""
    net = Network(routing, ("1", "2"), ("2", "3"), ("3", "4"), ("3", "5"))
    net.advertise("1", "p", "true")
    for server, party in (("4", "a"), ("4", "b"), ("5", "c")):
        net.subscribe(server, party, UA)
    net.sent.clear()
    assert net.publish("1", "p", airline="UA") == ["a", "b", "c"]
    assert sorted(net.messages(Notify)) == [("1", "2"), ("2", "3"), ("3", "4"), ("3", "5")]
    net.check()


@pytest.mark.parametrize("routing", ["peer", "general", "advertisement"])
def test_upstream_evaluation(routing):
    """5.1, Figure 11: filters are applied at the source: what nobody wants goes nowhere."""
    net = Network(routing, ("1", "2"), ("2", "3"))
    net.advertise("1", "p", "true")
    net.subscribe("3", "a", UA)
    net.sent.clear()
    assert net.publish("1", "p", airline="AZ") == []
    assert net.messages(Notify) == []
    net.check()


def test_a_new_advertisement_is_like_a_new_neighbor_to_subscriptions():
    """5.2.4: subscriptions go to the sender of a relevant advertisement as soon as it arrives."""
    net = Network("advertisement", ("1", "2"), ("1", "3"))
    net.subscribe("1", "a", UA)
    assert net.table("1") == {UA: ({"a"}, set())}
    net.advertise("2", "p", ANY)
    assert net.table("1") == {UA: ({"a"}, {"2"})}
    assert net.table("2") == {UA: ({"1"}, set())}
    net.unadvertise("2", "p", ANY)
    assert net.table("1") == {UA: ({"a"}, set())}
    assert net.table("2") == {}
    net.check()


# ---------------------------------------------------------------- patterns (3.3, 5.3)


def test_the_a_b_example_of_sequence_matching():
    """3.3: of B4 A3 A1 B2 A5 B6 A7 B8 (numbered by generation, in match order), A3·B6 and A7·B8 match A·B."""
    matcher = SequenceMatcher.of(Pattern.parse('what = "A" then what = "B"'))
    found = []
    for name in ["B4", "A3", "A1", "B2", "A5", "B6", "A7", "B8"]:
        time = datetime(2001, 8, 1, second=int(name[1]), tzinfo=UTC)
        found.append(matcher.see(Event({"what": name[0]}, id=name, time=time)))
    assert [[event.id for event in match] for match in found if match] == [["A3", "B6"], ["A7", "B8"]]


@pytest.mark.parametrize("routing", ROUTERS)
def test_an_unsubscription_for_a_pattern_cancels_those_that_it_covers_filter_by_filter(routing):
    """3.7: P = f1·f2 cancels g1·g2 if f1 covers g1 and f2 covers g2; not others, and not simple ones."""
    net = Network(routing, ("1", "2"))
    net.subscribe_pattern("1", "a", "x > 10 then y > 10")
    net.subscribe_pattern("1", "a", "x > 10 then y > 0")
    net.subscribe_pattern("1", "a", "x > 10 then y > 10 then x > 10")
    net.subscribe("1", "a", "x > 10")
    net.unsubscribe_pattern("1", "a", "x > 5 then y > 5")
    left = ["x > 10 then y > 0", "x > 10 then y > 10 then x > 10"]
    assert [str(pattern) for pattern in net.nodes["1"].state()["patterns"]] == left
    assert net.publish("2", "p", x=11) == ["a"]
    net.check()


F = 'alarm = "failed-login" and attempts = 1'
G = 'alarm = "failed-login" and attempts = 2'
H = 'file = "/etc/passwd" and operation = "file-change"'
A1 = 'alarm = "failed-login" and attempts > 0'
A2 = 'exists file and operation = "file-change"'


def figure_17() -> Network:
    """Servers 1 to 5 with the advertisements of Table IV; who advertises what is ours.

    The paper contradicts itself on who provides a1: Table IV says server 3, the text of 5.3.1 says 2. Only
    server 2 fits the delegation told in 5.3.3, and so it is here. An object at server 2 advertises a1,
    which covers the more specific advertisements of 5 (f alone) and 4 (g alone) on the way to 1.
    """
    net = Network("advertisement", ("1", "2"), ("1", "3"), ("2", "4"), ("2", "5"))
    for server, party, text in (
        ("2", "logins", A1),
        ("5", "first", F),
        ("4", "second", G),
        ("4", "files", A2),
        ("3", "files", A2),
    ):
        net.advertise(server, party, text)
    net.sent.clear()
    return net


def told(net: Network, sender: str) -> dict[str, list[str]]:
    """What a server asked of each neighbour: filters and patterns."""
    asked: dict[str, list[str]] = {}
    for a, b, message in net.sent:
        if a == sender and isinstance(message, Subscribe | SubscribePattern):
            item = message.filter if isinstance(message, Subscribe) else message.pattern
            asked.setdefault(b, []).append(str(item))
    return {b: sorted(items) for b, items in asked.items()}


def pattern(*texts: str) -> Pattern:
    return Pattern(Filter.parse(text) for text in texts)


def test_table_iv_the_available_patterns_of_server_1():
    """5.3.1, Table IV: a1 is available from server 2 (as the text says), a2 from 2 and 3."""
    net = figure_17()
    assert net.nodes["1"].state()["available"] == {
        Advertisement.parse(A1): {"2"},
        Advertisement.parse(A2): {"2", "3"},
    }
    net.check()


def test_table_v_each_filter_of_the_subscription_is_matched_with_an_available_pattern():
    """5.3.2, Table V: f and g are factored with a1, h with a2."""
    net = figure_17()
    available = [a for a in net.nodes["1"].state()["available"] if isinstance(a, Advertisement)]
    factored = [[str(a) for a in available if a.overlaps(Filter.parse(text))] for text in (F, G, H)]
    assert factored == [[A1], [A1], [A2]]


def test_figure_17_server_1_delegates_f_g_and_monitors_f_g_then_h():
    """5.3.3, Figure 17: s1 = f·g goes to server 2, s2 = h to 2 and 3; 1 monitors (f·g)·h."""
    net = figure_17()
    net.subscribe_pattern("1", "x", f"{F} then {G} then {H}")
    assert told(net, "1") == {
        "2": sorted([str(pattern(F, G)), str(Filter.parse(H))]),
        "3": [str(Filter.parse(H))],
    }
    ((_, factors),) = net.nodes["1"].state()["patterns"].values()
    assert factors == ((pattern(F, G), "2"), (pattern(H), None))
    net.check()


def test_figure_17_server_2_subscribes_f_to_5_and_g_to_4_and_monitors_f_g():
    """5.3.3, Figure 17: how server 2 handles what it was delegated. (It passes h on to 4, its source.)"""
    net = figure_17()
    net.subscribe_pattern("1", "x", f"{F} then {G} then {H}")
    f, g, h = (str(Filter.parse(text)) for text in (F, G, H))
    assert told(net, "2") == {"5": [f], "4": sorted([g, h])}
    (monitored,) = net.nodes["2"].state()["patterns"].items()
    assert monitored[0] == pattern(F, G)
    assert [factor.delegate for factor in monitored[1][1]] == [None, None]
    assert net.nodes["1"].state()["available"][pattern(F, G)] == {"2"}
    net.check()


def test_figure_17_the_sequence_is_assembled_upstream_and_delivered():
    """5.1, Figure 11 and 5.3.3: server 2 sends one sequence f·g on; single f and g do not pass it."""
    net = figure_17()
    net.subscribe_pattern("1", "x", f"{F} then {G} then {H}")
    net.sent.clear()
    assert net.sequences("5", "first", alarm="failed-login", attempts=1) == {}
    assert net.sequences("4", "second", alarm="failed-login", attempts=2) == {}
    assert net.messages(Notify) == [("5", "2"), ("4", "2")]
    assert net.messages(NotifySequence) == [("2", "1")]
    (match,) = net.sequences("3", "files", file="/etc/passwd", operation="file-change")["x"]
    assert [event.get("attempts") for event in match] == [1, 2, None]
    net.check()


def test_figure_17_is_torn_down_when_the_party_unsubscribes():
    """3.7 and 5.3.3: the delegation, the monitors and their subscriptions go."""
    net = figure_17()
    before = {name: {**node.state(), "parties": None} for name, node in net.nodes.items()}
    net.subscribe_pattern("1", "x", f"{F} then {G} then {H}")
    net.sent.clear()
    net.unsubscribe_pattern("1", "x", f"{F} then {G} then {H}")
    assert net.messages(UnsubscribePattern) == [("1", "2")]
    assert set(net.messages(Unsubscribe)) == {("1", "2"), ("1", "3"), ("2", "4"), ("2", "5")}
    assert {name: {**node.state(), "parties": None} for name, node in net.nodes.items()} == before
    net.check()
