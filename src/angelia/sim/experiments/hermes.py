"""One network of the HERMES study with its clients: publishers and subscribers of event types (5.3).

Every publisher advertises and publishes some of the types, every subscriber subscribes to some, chosen at
random; clients stand at random brokers. Filtering is on types alone, as in the thesis. Hermes' subscriptions
and publications are type- and attribute-based. Clients are added to a running network, so that one network
gives all points of a curve; the same seed places them alike in every network.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.messages import (
    Advertise,
    AdvertisementMessage,
    By,
    Notify,
    PublicationMessage,
    Publish,
    Subscribe,
    SubscriptionMessage,
)
from angelia.overlay import key_of
from angelia.sim.engine import Delivery
from angelia.sim.experiments.overlays import entries, network, route

__all__ = ["PURPOSES", "Clients", "Load"]

# What the kinds of messages are about.
PURPOSES: Mapping[type, str] = {
    Advertise: "advertisement",
    AdvertisementMessage: "advertisement",
    Subscribe: "subscription",
    SubscriptionMessage: "subscription",
    Notify: "publication",
    PublicationMessage: "publication",
}


class Load(NamedTuple):
    """What some events have cost: messages, with all their latencies; and the deliveries, with all delays."""

    messages: int
    latency: float
    deliveries: int
    delay: float  # from publication to delivery


class Clients:
    """The clients of a network."""

    def __init__(self, name: str, brokers: int, types: int, per_client: int, seed: str) -> None:
        self._deliveries = 0
        self._delay = self._published = 0.0
        self.sim = network(name, brokers, seed, on_delivery=self._delivered)
        self._types, self._each = types, min(per_client, types)
        self._rng = {
            what: random.Random(f"{seed} {what}") for what in ("publishers", "subscribers", "events")
        }
        self._brokers = list(self.sim.brokers)
        self._offers: list[list[str]] = []  # the types of each publisher
        self.asked: dict[str, Counter[tuple[str, str]]] = {
            "advertisement": Counter(),
            "subscription": Counter(),
        }
        self.published: list[tuple[str, str]] = []  # the broker and the type of each event
        self._ways: dict[tuple[str, str], list[str]] = {}
        self.subscribers = 0
        self._events = 0
        # At most one subscriber a broker, as long as there are brokers without (5.4.1).
        self._free = self._rng["subscribers"].sample(self._brokers, brokers)

    def _delivered(self, delivery: Delivery) -> None:
        self._deliveries += len(delivery.identities)
        self._delay += (delivery.time - self._published) * len(delivery.identities)

    @property
    def publishers(self) -> int:
        """How many there are."""
        return len(self._offers)

    def _some_types(self, rng: random.Random) -> list[str]:
        return [f"T{number}" for number in rng.sample(range(self._types), self._each)]

    def publish_from(self, number: int) -> None:
        """Let there be so many publishers, which have advertised."""
        rng = self._rng["publishers"]
        for _ in range(self.publishers, number):
            name = f"p{self.publishers}"
            broker = rng.choice(self._brokers)
            self.sim.attach(name, broker)
            self._offers.append(self._some_types(rng))
            for event_type in self._offers[-1]:
                self.asked["advertisement"][broker, event_type] += 1
                self.sim.submit(name, Advertise(name, Advertisement(None, event_type)))
            self.sim.run()

    def subscribe_from(self, number: int, spread: bool = False) -> None:
        """Let there be so many subscribers; `spread`: at brokers that have none yet."""
        rng = self._rng["subscribers"]
        for _ in range(self.subscribers, number):
            name = f"s{self.subscribers}"
            broker = self._free.pop() if spread else rng.choice(self._brokers)
            self.sim.attach(name, broker)
            for event_type in self._some_types(rng):
                self.asked["subscription"][broker, event_type] += 1
                self.sim.submit(name, Subscribe(name, Filter.of_type(event_type), By.ATTRIBUTE))
            self.subscribers += 1
            self.sim.run()

    def publish(self, events: int) -> Load:
        """Let publishers publish events, in turns, of a type of theirs."""
        before = self._sent("publication")
        self._deliveries, self._delay = 0, 0.0
        rng = self._rng["events"]
        for _ in range(events):
            publisher = self._events % self.publishers
            event_type = rng.choice(self._offers[publisher])
            event = Event({"n": 1}, type=event_type, id=f"e{self._events}")
            self._events += 1
            self.published.append((self.sim.clients[f"p{publisher}"].broker, event_type))
            self._published = self.sim.now
            self.sim.submit(f"p{publisher}", Publish(f"p{publisher}", event, By.ATTRIBUTE))
            self.sim.run()
        after = self._sent("publication")
        if self.sim.refusals:
            raise RuntimeError(f"a request was refused: {self.sim.refusals[0]}")
        return Load(after[0] - before[0], after[1] - before[1], self._deliveries, self._delay)

    def messages(self) -> dict[str, int]:
        """How many messages there were of each purpose."""
        return {purpose: self._sent(purpose)[0] for purpose in dict.fromkeys(PURPOSES.values())}

    def uncovered(self) -> dict[str, tuple[int, int, int]]:
        """How many messages there are towards rendezvous nodes, by purpose; in Hermes only.

        As it is, with covering; if every broker sent what its clients want all the way, though brokers on the
        way have asked for the same; and if it did so for each client.
        """
        return {
            purpose: (
                len({(hop, place[1]) for place in asked for hop in self._way(place)[:-1]}),
                sum(len(self._way(place)) - 1 for place in asked),
                sum(number * (len(self._way(place)) - 1) for place, number in asked.items()),
            )
            for purpose, asked in self.asked.items()
            if self.sim.routing == "hermes"
        }

    def _way(self, place: tuple[str, str]) -> list[str]:
        """The way from a broker to the rendezvous node of a type; brokers neither come nor go here."""
        if place not in self._ways:
            self._ways[place] = route(self.sim, place[0], key_of(place[1]))
        return self._ways[place]

    def _sent(self, purpose: str) -> tuple[int, float]:
        """How many messages, and how long all of them took together."""
        count, latency = 0, 0.0
        for link in self.sim.links:
            for channel in link.channels:
                for kind, number in channel.sent.items():
                    if PURPOSES.get(kind) == purpose:
                        count += number
                        latency += number * channel.latency
        return count, latency

    def entries(self) -> list[tuple[int, int]]:
        """The entries of the advertisement and subscription routing tables, broker by broker."""
        return list(entries(self.sim).values())
