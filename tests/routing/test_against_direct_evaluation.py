"""Every router against direct evaluation: seeded random requests on random networks that change.

The oracle knows what each party asked for and who is connected with whom, and evaluates every filter
on every event. After each step the invariants of the network are checked.
"""

from __future__ import annotations

import random

import pytest
from tests.routing.network import ALL, CYCLIC, Network, RefusedError, received

from angelia import EventType, Filter, TypeRegistry
from angelia.event import Event
from angelia.filter import Advertisement
from angelia.messages import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe

TEMPLATES = [
    "x = {n}",
    "x < {n}",
    "x > {n}",
    "x >= {n} and y = 1",
    "exists x",
    "x != {n}",
    "x in ({n}, 1)",
    "x < {n} or y = 0",
    "Top: true",
    "Middle: x > {n}",
    "Bottom: true",
    "(Bottom: true) or (Middle: true)",
]
ADVERTISED = [
    "true",
    "exists x and exists y",
    "x > {n} and exists y",
    "Middle: true",
    "Bottom: true",
    "Top: true",
]
TYPES = [
    EventType("Top", attributes={"x": "integer", "y": "integer"}),
    EventType("Middle", parent="Top"),
    EventType("Bottom", parent="Middle"),
]


class Run:
    """A random network, and what should come out of it."""

    def __init__(self, routing: str, seed: int, size: int = 6) -> None:
        self.registry = TypeRegistry()
        self.rng = random.Random(f"{routing} {seed}")
        self.names = names = [f"b{i}" for i in range(size)]
        edges = [(names[i], self.rng.choice(names[:i])) for i in range(1, size)]
        self.net = Network(routing, *edges, gateways=("b0", "b1", "b2") if routing == "hybrid" else ())
        if routing in CYCLIC:
            for _ in range(3):
                self.toggle_link()
        self.untold = list(TYPES)
        self.wanted: dict[str, tuple[str, list[Filter]]] = {}  # party -> where, what
        self.down: list[tuple[str, str]] = []
        self.advertised: dict[str, list[Advertisement]] = {name: [] for name in names}
        if routing == "advertisement":
            for _ in range(8):
                self.advertise()

    def toggle_link(self) -> None:
        a, b = self.rng.sample(sorted(self.net.nodes), 2)
        if frozenset((a, b)) in self.net.links:
            self.net.disconnect(a, b)
        else:
            self.net.connect(a, b)

    def change_topology(self) -> None:
        """Lose a link, or bring back one that was lost; where cycles may be, any link."""
        if self.net.routing in CYCLIC:
            self.toggle_link()
        elif self.down:
            self.net.connect(*self.down.pop())
        else:
            link = self.rng.choice(sorted(map(sorted, self.net.links)))
            a, b = sorted(link, reverse=True)  # a node is below one with a smaller number
            self.net.disconnect(a, b)
            self.down.append((a, b))

    def heal(self) -> None:
        """Connect all."""
        while self.down:
            self.net.connect(*self.down.pop())
        for name in self.names:
            if name not in self.net.component("b0"):
                self.net.connect(name, "b0")

    def filter(self) -> Filter:
        return Filter.parse(self.rng.choice(TEMPLATES).format(n=self.rng.randrange(5)))

    def subscribe(self) -> None:
        party, name = self.party()
        new = self.filter()
        self.net.request(name, Subscribe(party, new))
        self.wanted.setdefault(party, (name, []))[1].append(new)

    def unsubscribe(self) -> None:
        party, name = self.party()
        what = self.filter()
        self.net.request(name, Unsubscribe(party, what))
        _, filters = self.wanted.setdefault(party, (name, []))
        filters[:] = [item for item in filters if not what.covers(item, self.registry)]

    def advertisement(self) -> tuple[str, Advertisement]:
        text = self.rng.choice(ADVERTISED).format(n=self.rng.randrange(5))
        return self.rng.choice(self.names), Advertisement.parse(text)

    def advertise(self) -> None:
        name, new = self.advertisement()
        self.net.request(name, Advertise(f"pub {name}", new))
        self.advertised[name].append(new)

    def unadvertise(self) -> None:
        name, what = self.advertisement()
        self.net.request(name, Unadvertise(f"pub {name}", what))
        standing = self.advertised[name]
        standing[:] = [item for item in standing if not what.covers(item, self.registry)]

    def party(self) -> tuple[str, str]:
        name = self.rng.choice(self.names)
        return f"{name} party {self.rng.randrange(3)}", name

    def leave(self) -> None:
        party, name = self.party()
        self.net.leave(name, party)
        self.wanted.pop(party, None)

    def learn_type(self) -> None:
        """A type becomes known while subscriptions to it stand."""
        if self.untold and not self.down and len(self.net.component("b0")) == len(self.names):
            new = self.untold.pop(0)
            self.net.define(self.rng.choice(self.names), new)
            self.registry.add(new)

    def publish(self) -> None:
        name = self.rng.choice(self.names)
        event = Event(
            {"x": self.rng.randrange(-1, 6), "y": self.rng.randrange(2)},
            type=self.rng.choice([None, "Top", "Middle", "Bottom"]),
        )
        try:
            got = received(self.net.request(name, Publish(f"pub {name}", event)))
        except RefusedError:
            assert self.net.routing == "advertisement"
            assert not any(item.advertises(event, self.registry) for item in self.advertised[name])
            return
        reached = self.net.component(name)
        assert got == sorted(
            party
            for party, (at, filters) in self.wanted.items()
            if at in reached and any(item.matches(event, self.registry) for item in filters)
        )

    def step(self) -> None:
        steps = [self.subscribe, self.unsubscribe, self.publish, self.change_topology, self.leave]
        steps += [self.learn_type, self.advertise, self.unadvertise]
        (do,) = self.rng.choices(steps, weights=[35, 15, 35, 6, 4, 5, 6, 3])
        do()
        self.net.check()


@pytest.mark.parametrize("routing", ALL)
@pytest.mark.parametrize("block", range(4))
def test_deliveries_are_what_direct_evaluation_says(routing, block):
    for seed in range(block * 8, block * 8 + 8):
        run = Run(routing, seed)
        for _ in range(60):
            run.step()
        run.heal()
        for name in run.names:
            for client in set(run.net.nodes[name].state()["parties"].values()):
                run.net.leave(name, client)
        run.net.check_empty()
