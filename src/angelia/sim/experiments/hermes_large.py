"""HERMES beyond the thesis: E1-E4 together, on one network of many more brokers than it had.

Hermes runs in the simulator. CovAdv does not: its servers tell each other whom they reach, which is the
square of their number. What it would have sent and kept follows from its tree, and is counted there:

- over a link from u to v goes one advertisement of a type, if somebody on the side of u has advertised it;
- and one subscription, if somebody on the side of u has subscribed, and somebody on the side of v advertised;
- an event goes over the links between its publisher and the brokers with subscribers.

At sizes that can be simulated, the counts are those of the simulation.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from angelia.sim.experiments.hermes import Clients
from angelia.sim.experiments.overlays import hosts, physical
from angelia.sim.experiments.study import Row
from angelia.sim.topology import spanning_tree

__all__ = ["POINTS", "CovAdv", "large"]

POINTS = (10, 100, 1000, 5000)  # subscribers
_TYPES, _EACH, _PUBLISHERS, _EVENTS = 100, 10, 100, 100

Places = Mapping[tuple[str, str], int]  # how many clients stand at a broker for a type


class CovAdv:
    """SIENA with advertisements and covering, on the minimum spanning tree of a network's brokers."""

    def __init__(self, brokers: int, seed: str) -> None:
        self._up = _tree(brokers, seed)
        self._order = _parents_first(self._up)

    def costs(self, advertised: Places, subscribed: Places) -> Row:
        """The messages and entries of advertisements and subscriptions."""
        types = sorted({event_type for _, event_type in (*advertised, *subscribed)})
        here = self._counts(subscribed, types)
        offers, wants = self._counts(advertised, types), here.copy()
        for places in (offers, wants):
            self._add_up(places)
        rest = np.array([node for node in self._order if self._up[node] >= 0])
        offers_below, offers_above = offers[rest] > 0, offers[0] - offers[rest] > 0
        wants_below, wants_above = wants[rest] > 0, wants[0] - wants[rest] > 0
        up, down = wants_below & offers_above, wants_above & offers_below
        has = here > 0
        has[rest] |= down
        np.logical_or.at(has, self._up[rest], up)
        return {
            "advertisement_messages": int(offers_below.sum() + offers_above.sum()),
            "subscription_messages": int(up.sum() + down.sum()),
            "advertisement_entries": int((offers[0] > 0).sum() * len(self._up)),
            "subscription_entries": int(has.sum()),
        }

    def publication_messages(self, events: list[tuple[str, str]], subscribed: Places) -> int:
        """The links that events pass."""
        total = 0
        for broker, event_type in events:
            wanted = {place: 1 for place in subscribed if place[1] == event_type}
            places = self._counts({**wanted, (broker, event_type): 1}, [event_type])
            self._add_up(places)
            total += int(((places[1:] > 0) & (places[1:] < places[0])).sum())
        return total

    def _counts(self, places: Places, types: list[str]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
        column = {event_type: number for number, event_type in enumerate(types)}
        counts = np.zeros((len(self._up), len(types)), np.int64)
        for (broker, event_type), number in places.items():
            counts[int(broker[1:]), column[event_type]] += number
        return counts

    def _add_up(self, counts: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> None:
        """To each broker those below it, in the tree with broker 0 as its root."""
        for node in reversed(self._order[1:]):
            counts[self._up[node]] += counts[node]


def _tree(brokers: int, seed: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The parent of each broker in the spanning tree, as `overlays.network` places brokers; -1 for the first.

    Brokers on one host are nearest to each other: all but the first of a host hang on that one.
    """
    rng = random.Random(seed)
    far = physical(rng.randrange(5))
    places = hosts(rng, brokers, len(far.latency))
    firsts: dict[int, int] = {}
    up = np.array([firsts.setdefault(place, broker) for broker, place in enumerate(places)], np.int64)
    first = list(firsts.values())
    for child, parent in spanning_tree(far.latency[np.ix_(list(firsts), list(firsts))], 0):
        up[first[child]] = first[parent]
    up[0] = -1
    return up


def _parents_first(up: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    children: dict[int, list[int]] = {}
    for child, parent in enumerate(up.tolist()):
        children.setdefault(parent, []).append(child)
    order = list(children[-1])
    for node in order:  # grows meanwhile
        order += children.get(node, ())
    return order


def large(brokers: int, seed: str, points: tuple[int, ...] = POINTS) -> Iterator[tuple[list[Row], list[Row]]]:
    """For numbers of subscribers: a row of each network, and how Hermes' entries are spread over brokers."""
    clients = Clients("hermes", brokers, _TYPES, _EACH, seed)
    covadv = CovAdv(brokers, seed)
    clients.publish_from(_PUBLISHERS)
    for number in points:
        clients.subscribe_from(number)
        told = {"brokers": brokers, "publishers": _PUBLISHERS, "subscribers": number}
        messages, entries = clients.messages(), clients.entries()
        before = len(clients.published)
        load = clients.publish(_EVENTS)
        advertised, subscribed = clients.asked["advertisement"], clients.asked["subscription"]
        ours: Row = {
            "network": "hermes",
            **told,
            "advertisement_messages": messages["advertisement"],
            "subscription_messages": messages["subscription"],
            "advertisement_entries": sum(each for each, _ in entries),
            "subscription_entries": sum(each for _, each in entries),
            "publication_messages": load.messages,
            "hops": load.messages / load.deliveries,
            "latency": load.latency / load.deliveries,
            "delay": load.delay / load.deliveries,
        }
        passed = covadv.publication_messages(clients.published[before:], subscribed)
        theirs: Row = {
            "network": "covadv-mst",
            **told,
            **covadv.costs(advertised, subscribed),
            "publication_messages": passed,
            "hops": passed / load.deliveries,
        }
        spread = [
            {**told, "entries": each, "with": count}
            for each, count in sorted(Counter(map(sum, entries)).items())
        ]
        yield [ours, theirs], spread
