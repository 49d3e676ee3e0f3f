"""Equation (1) of SIENA 5.2.3.3 against itself, written plainly: after every change, for every filter."""

import random

import pytest

from angelia import Filter
from angelia.filter import subscription_poset
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
        match rng.randrange(12):
            case 0:
                changes = forwarding.remove_all(who).changes
            case 1:
                changes = forwarding.replace(who, [some_filter(rng) for _ in range(4)]).changes
            case 2:
                changes = forwarding.rebuild()
            case 3 | 4 | 5:
                changes = forwarding.remove(who, some_filter(rng), [some_filter(rng)]).changes
            case _:
                changes = forwarding.add(who, some_filter(rng)).changes
        for change in changes:
            told[change.peer].hear(change)
        check(forwarding, told, neighbors)


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
