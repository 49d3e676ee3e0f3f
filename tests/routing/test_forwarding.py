"""Equation (1) of SIENA 5.2.3.3 against itself, written plainly: after every change, for every filter."""

import random

import pytest

from angelia import Event, Filter
from angelia.filter import subscription_poset
from angelia.messages import (
    ClientDown,
    Deliver,
    FromClient,
    PeerUp,
    Publish,
    Send,
    SetTimer,
    Subscribe,
    Timer,
    Unsubscribe,
)
from angelia.node import Node
from angelia.routing.forwarding import Forwarding
from angelia.routing.interfaces import Party, Peer
from angelia.routing.peer import not_on_any_spanning_tree

PEERS = ["p", "q", "r"]
INTERFACES = [Party("a"), Party("b"), *map(Peer, PEERS)]


def some_filter(rng):
    low, high = sorted(rng.sample(range(9), 2))
    return Filter.parse(
        rng.choice(
            [
                f"x between {low} and {high}",
                f"x > {low}",
                f"x > {low} and y > {high}",
                f"x = {low}",
                f"x = {low} or y = {high}",
                f"y != {low}",
                "exists x",
            ]
        )
    )


class Neighbour:
    """What a neighbour knows, by what it is told: the rules of 5.2.3.3 and 5.2.3.4."""

    def __init__(self):
        self.known = set()

    def hear(self, change):
        self.known = {f for f in self.known if not change.filter.covers(f)}
        self.known.update([change.filter] if change.added else change.uncovered)


def plain_equation(table, peers, neighbors):
    """`forwards` of each filter, from the widest to the narrowest."""
    forwards = {}
    for item in sorted(table, key=lambda f: sum(g.covers(f) for g in table)):
        above = [forwards[other] for other in forwards if other.covers(item)]
        nst = set(not_on_any_spanning_tree(item, table[item]))
        forwards[item] = set(peers) & set(neighbors(item)) - nst - set().union(*above)
    return forwards


def check(forwarding, told, neighbors):
    table = {item: who for item, (who, _) in forwarding.table().items()}
    expected = plain_equation(table, told, neighbors)
    assert {item: set(forwarding.forwards(item)) for item in table} == expected
    for peer, neighbour in told.items():
        assert neighbour.known == {item for item, peers in expected.items() if peer in peers}


def shy(filter):
    """Neighbours that depend on the filter, as they do on advertisements (5.2.4)."""
    return [peer for peer in PEERS if (len(str(filter)) + ord(peer)) % 3]


@pytest.mark.parametrize("neighbors", [lambda _: PEERS, shy], ids=["all", "some"])
@pytest.mark.parametrize("seed", range(6))
def test_forwards_are_those_of_the_equation_and_neighbours_know_them_after_every_change(seed, neighbors):
    rng = random.Random(seed)
    forwarding = Forwarding(subscription_poset, neighbors, not_on_any_spanning_tree)
    told = {peer: Neighbour() for peer in PEERS}
    for _ in range(120):
        who = rng.choice(INTERFACES)
        match rng.randrange(14):
            case 0:
                changes = forwarding.remove_all(who).changes
            case 1:
                changes = forwarding.replace(who, [some_filter(rng) for _ in range(4)]).changes
            case 2:
                changes = forwarding.rebuild()
            case 12:
                forwarding.leave(who, forwarding.of(who))
                changes = []
            case 13:
                changes = forwarding.drop_some(2)
            case 3 | 4 | 5:
                changes = forwarding.remove(who, some_filter(rng), [some_filter(rng)]).changes
            case _:
                changes = forwarding.add(who, some_filter(rng)).changes
        for change in changes:
            told[change.peer].hear(change)
        check(forwarding, told, neighbors)
    while forwarding.is_leaving:
        for change in forwarding.drop_some(1):
            told[change.peer].hear(change)
        check(forwarding, told, neighbors)
    for who in INTERFACES:
        asked = {item for item, (interfaces, _) in forwarding.table().items() if who in interfaces}
        assert asked == set(forwarding.of(who))


def test_a_neighbour_that_goes_and_comes_again_is_told_what_it_must_know():
    rng = random.Random(1)
    peers = list(PEERS)
    forwarding = Forwarding(subscription_poset, lambda _: peers, not_on_any_spanning_tree)
    told = {peer: Neighbour() for peer in PEERS}
    for step in range(60):
        changes = [
            c for _ in range(3) for c in forwarding.add(rng.choice(INTERFACES), some_filter(rng)).changes
        ]
        peer = PEERS[step % 3]
        if peer in peers:
            peers.remove(peer)
            forwarding.forget(peer)
            changes += forwarding.remove_all(Peer(peer)).changes
            del told[peer]
        else:
            peers.append(peer)
            told[peer] = Neighbour()
            changes += forwarding.refresh()
        for change in changes:
            if change.peer in told:
                told[change.peer].hear(change)
        check(forwarding, told, lambda _: peers)


# ---------------------------------------------------------------- many at once

MANY = 1000


def node_with_many(routing):
    node = Node("b", routing)
    node.handle(PeerUp("q", master=True), 0.0)
    for i in range(MANY):
        subscribe(node, "c", f"x > {i} and x < {MANY + i}")
    return node


def subscribe(node, client, text):
    return node.handle(FromClient(client, Subscribe("me", Filter.parse(text)), 1), 1.0)


def publish(node, **attributes):
    effects = node.handle(FromClient("other", Publish("you", Event(attributes)), 1), 1.0)
    return [client for effect in effects if isinstance(effect, Deliver) for client, _ in effect.to]


def go_on(node, effects):
    """The effects of one more step, or None if there is none."""
    timers = [effect for effect in effects if isinstance(effect, SetTimer)]
    return node.handle(Timer(timers[0].name), 1.0) if timers else None


@pytest.mark.parametrize("routing", ["peer", "hierarchical"])
def test_a_client_with_many_subscriptions_goes_in_steps_and_gets_nothing_from_the_first_on(routing):
    node = node_with_many(routing)
    assert publish(node, x=MANY) == ["c"]
    effects = node.handle(ClientDown("c"), 1.0)
    steps, told = 0, []
    while effects is not None:
        sends = [effect.message for effect in effects if isinstance(effect, Send)]
        assert len(sends) <= 256
        told += [message.filter for message in sends if isinstance(message, Unsubscribe)]
        assert publish(node, x=MANY) == []
        effects = go_on(node, effects)
        steps += 1
    assert MANY // 256 < steps < 10
    assert len(told) == len(set(told)) == MANY
    assert not node.state()["subscriptions"]


def test_what_a_client_asks_for_again_while_the_rest_goes_stays_and_nothing_else_comes():
    node = node_with_many("peer")
    effects = node.handle(ClientDown("c"), 1.0)
    effects = go_on(node, effects)
    again = [f"x > {i} and x < {MANY + i}" for i in (0, MANY // 2, MANY - 1)]
    forwarded = [subscribe(node, "new", text) for text in again]
    assert publish(node, x=1) == ["new"]
    assert publish(node, x=MANY // 4 + MANY) == ["new"]  # by the second
    while effects is not None:
        effects = go_on(node, effects)
    table = node.state()["subscriptions"]
    assert {str(item) for item in table} == {str(Filter.parse(text)) for text in again}
    assert all(to == {"q"} for _, to in table.values())
    assert publish(node, x=1) == ["new"]
    assert publish(node, x=2 * MANY) == []
    assert any(isinstance(effect, Send) for effects in forwarded for effect in effects)
    assert node.handle(ClientDown("new"), 1.0)
    assert not node.state()["subscriptions"]


def test_many_subscriptions_are_cancelled_by_one_filter_in_steps():
    node = node_with_many("peer")
    effects = node.handle(FromClient("c", Unsubscribe("me", Filter.parse("exists x")), 2), 1.0)
    assert publish(node, x=MANY) == []
    while effects is not None:
        effects = go_on(node, effects)
    assert not node.state()["subscriptions"]
