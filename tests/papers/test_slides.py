"""The slides' exercise (Distributed event routing, 2009; "Exercise on Siena", the last slides).

The text has kept the rows 8-11, 8-12, 10-9, 11-13, 12-14 and 14-15 of the forwarding tables, and that
event x=16 notifies C, E and G. The pictures of the network and of who subscribed to what are lost: the
network of 15 brokers here, and who is A, …, G, are ours and fit those rows.
"""

from __future__ import annotations

import pytest
from tests.routing.network import Network

from angelia import Event, Filter
from angelia.messages import Notify
from angelia.routing import Peer

# Broker 1 is the publisher's: "every tree including all the brokers is ok".
TREE = [
    ("1", "2"), ("1", "3"), ("2", "4"), ("2", "5"), ("3", "6"), ("3", "7"), ("4", "8"), ("7", "10"),
    ("8", "11"), ("8", "12"), ("10", "9"), ("11", "13"), ("12", "14"), ("14", "15"),
]  # fmt: skip

SUBSCRIPTIONS = {
    "A": ("13", "x > 5 and x < 10"),
    "B": ("9", "x < 12"),
    "C": ("9", "x > 15 and x < 20"),
    "D": ("15", "x > 25 and x < 60"),
    "E": ("12", "x < 40"),
    "F": ("5", "x > 100"),
    "G": ("15", "x > 5 and x < 18"),
}

ROWS = {
    ("8", "11"): "x > 5 and x < 10",
    ("8", "12"): "x < 40 or (x > 5 and x < 18) or (x > 25 and x < 60)",
    ("10", "9"): "x < 12 or (x > 15 and x < 20)",
    ("11", "13"): "x > 5 and x < 10",
    ("12", "14"): "(x > 5 and x < 18) or (x > 25 and x < 60)",
    ("14", "15"): "(x > 5 and x < 18) or (x > 25 and x < 60)",
}


@pytest.fixture(scope="module")
def net():
    network = Network("peer", *TREE)
    for party, (broker, text) in SUBSCRIPTIONS.items():
        network.subscribe(broker, party, text)
    network.check()
    return network


def row(network: Network, broker: str, interface: str) -> Filter:
    """The content-based address of an interface: the disjunction of what came from there."""
    first, *others = network.nodes[broker].router.interests.of(Peer(interface))
    for other in others:
        first |= other
    return first


@pytest.mark.parametrize(("at", "text"), ROWS.items(), ids=["-".join(at) for at in ROWS])
def test_the_computed_table_has_the_row_of_the_slide(net, at, text):
    """Slide "The content of subscription tables is computed …": the predicate of each row."""
    computed, told = row(net, *at), Filter.parse(text)
    assert computed.covers(told)
    assert told.covers(computed)


def test_event_16_notifies_c_e_and_g_and_follows_exactly_the_rows_it_satisfies(net):
    """Slide "Routing event x=16. Notified subscribers: C, E, G"."""
    net.sent.clear()
    assert net.publish("1", "P", x=16) == ["C", "E", "G"]
    ways = net.messages(Notify)
    assert len(ways) == len(set(ways))
    satisfied = {at for at, text in ROWS.items() if Filter.parse(text).matches(Event({"x": 16}))}
    assert satisfied == {("8", "12"), ("10", "9"), ("12", "14"), ("14", "15")}
    assert set(ways) & set(ROWS) == satisfied
    to_the_subscribers = {("1", "2"), ("2", "4"), ("4", "8"), ("1", "3"), ("3", "7"), ("7", "10")}
    assert set(ways) == satisfied | to_the_subscribers


def test_the_tables_do_not_depend_on_the_order_of_subscriptions(net):
    """Slide "independently from the order used to issue subscriptions, the tables' content is perfect"."""
    other = Network("peer", *TREE)
    for party, (broker, text) in reversed(SUBSCRIPTIONS.items()):
        other.subscribe(broker, party, text)
    for broker in net.nodes:
        assert other.table(broker) == net.table(broker)
