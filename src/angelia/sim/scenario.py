"""A scenario of any size: brokers on a physical network, parties, publishers, events, and faults.

Parties subscribe to a topic below a price, publishers publish on a few topics of their own; some
topics are much more popular than others. First the network comes up, then everybody subscribes,
then the events are published; each part is measured on its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from time import perf_counter, process_time

from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.messages import Advertise, Publish, Subscribe
from angelia.sim.conformance import APPLIES, TOPOLOGIES
from angelia.sim.engine import Delivery, Simulation
from angelia.sim.errors import SimulationError
from angelia.sim.faults import Fault
from angelia.sim.journal import Journal
from angelia.sim.topology import Physical, transit_stub

__all__ = ["Outcome", "Phase", "Scenario", "internet", "run"]

_PRICES = (25, 50, 75, 100)
_TOPICS_PER_PUBLISHER = 3


@dataclass(frozen=True)
class Scenario:
    """What is simulated."""

    routing: str = "peer"
    topology: str = "tree"
    brokers: int = 100
    parties: int = 1000
    publishers: int = 100
    events: int = 1000
    topics: int = 100
    rate: float = 100.0  # events a second of virtual time
    physical: int | None = None  # nodes of the physical network, about; None: ten a broker, 1000 at least
    bandwidth: float | None = None
    seed: int = 0
    faults: tuple[tuple[float, Fault], ...] = ()  # with the time after the first event could be published

    def __post_init__(self) -> None:
        if self.routing not in APPLIES:
            raise SimulationError(f"there is no routing {self.routing!r}; there are {', '.join(APPLIES)}")
        if self.topology not in APPLIES[self.routing]:
            known = ", ".join(APPLIES[self.routing])
            raise SimulationError(f"{self.routing} is for the topologies {known}, not for {self.topology!r}")
        for name in ("brokers", "publishers", "topics"):
            if getattr(self, name) < 1:
                raise SimulationError(f"a run needs at least one of {name}")
        for name in ("parties", "events"):
            if getattr(self, name) < 0:
                raise SimulationError(f"there cannot be {getattr(self, name)} {name}")
        for name, value in (("rate", self.rate), ("bandwidth", self.bandwidth), ("physical", self.physical)):
            if value is not None and not 0 < value < float("inf"):
                raise SimulationError(f"{name} must be a number above 0, not {value}")


@dataclass
class Phase:
    """A part of a run."""

    name: str
    messages: dict[str, int]
    virtual: float  # seconds
    wall: float
    cpu: float


@dataclass
class Outcome:
    """What came out of a run."""

    scenario: Scenario
    sim: Simulation
    phases: list[Phase] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    hops: list[int] = field(default_factory=list)
    parties: dict[str, int] = field(default_factory=dict)  # by broker


def internet(seed: int, nodes: int) -> Physical:
    """A transit-stub network with about so many nodes, a multiple of 25."""
    groups = max(1, round(nodes / 25))  # a transit node with three stubs of eight
    per_domain = max(size for size in range(1, 9) if groups % size == 0 or size == 1)
    domains = groups // per_domain
    return transit_stub(
        seed,
        transit_domains=domains,
        transit_nodes=per_domain,
        extra_transit_domain=min(0.5, 4 / domains),
    )


def run(
    scenario: Scenario, journal: Journal | None = None, tick: Callable[[int], None] | None = None
) -> Outcome:
    """Play a scenario; `tick` is told how many events have been published."""
    return _Run(scenario, journal, tick).play()


class _Run:
    def __init__(
        self, scenario: Scenario, journal: Journal | None, tick: Callable[[int], None] | None
    ) -> None:
        self.scenario = scenario
        self.rng = random.Random(f"scenario {scenario.seed}")
        self.tick = tick
        physical = internet(scenario.seed, scenario.physical or max(1000, 10 * scenario.brokers))
        self.sim = Simulation(
            scenario.routing,
            seed=scenario.seed,
            physical=physical,
            bandwidth=scenario.bandwidth,
            journal=journal,
            on_delivery=self._on_delivery,
        )
        self.outcome = Outcome(scenario, self.sim)
        self._place(physical)
        self._published: dict[str, float] = {}
        weights = accumulate(1 / (rank + 1) for rank in range(scenario.topics))
        self._popularity = list(weights)

    def _place(self, physical: Physical) -> None:
        """Brokers stand on stub nodes, no two on the same."""
        stubs = range(physical.transit, physical.n)
        if self.scenario.brokers > len(stubs):
            raise SimulationError(
                f"{self.scenario.brokers} brokers do not fit on the {len(stubs)} stub nodes of the physical "
                "network; make it larger"
            )
        for number, host in enumerate(self.rng.sample(stubs, self.scenario.brokers)):
            self.sim.add_broker(f"b{number}", host, is_gateway=10 * number <= self.scenario.brokers)

    def play(self) -> Outcome:
        """Network, subscriptions, events."""
        self._phase("network", self._connect)
        self._phase("subscriptions", self._subscribe)
        self._phase("events", self._begin_events)
        return self.outcome

    def _phase(self, name: str, begin: Callable[[], None]) -> None:
        before, start, wall, cpu = self._messages(), self.sim.now, perf_counter(), process_time()
        begin()
        self.sim.run()
        after = self._messages()
        sent = {kind: count - before.get(kind, 0) for kind, count in after.items()}
        sent = {kind: count for kind, count in sorted(sent.items()) if count}
        self.outcome.phases.append(
            Phase(name, sent, self.sim.now - start, perf_counter() - wall, process_time() - cpu)
        )

    def _messages(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for link in self.sim.links:
            for kind, count in link.sent().items():
                total[kind] = total.get(kind, 0) + count
        return total

    def _connect(self) -> None:
        edges = TOPOLOGIES[self.scenario.topology](self.scenario.brokers, self.scenario.seed)
        self.sim.connect_all((f"b{a}", f"b{b}") for a, b in edges)

    # ------------------------------------------------ clients

    def _topic(self) -> str:
        return f"t{self.rng.choices(range(self.scenario.topics), cum_weights=self._popularity)[0]}"

    def _subscribe(self) -> None:
        brokers = list(self.sim.brokers)
        self._topics: list[list[str]] = []
        for number in range(self.scenario.publishers):
            self.sim.attach(f"publisher{number}", self.rng.choice(brokers))
            self._topics.append(sorted({self._topic() for _ in range(_TOPICS_PER_PUBLISHER)}))
            if self.scenario.routing == "advertisement":
                self._soon(f"publisher{number}", Advertise(f"publisher{number}", self._offer(number)))
        for number in range(self.scenario.parties):
            broker = self.rng.choice(brokers)
            self.outcome.parties[broker] = self.outcome.parties.get(broker, 0) + 1
            self.sim.attach(f"party{number}", broker)
            wanted = Filter.parse(f'topic = "{self._topic()}" and price < {self.rng.choice(_PRICES)}')
            self._soon(f"party{number}", Subscribe(f"party{number}", wanted))

    def _offer(self, publisher: int) -> Advertisement:
        topics = ", ".join(f'"{topic}"' for topic in self._topics[publisher])
        return Advertisement.parse(f"topic in ({topics}) and exists price")

    def _soon(self, client: str, request: Subscribe | Advertise) -> None:
        self.sim.at(self.sim.now + self.rng.random(), lambda: self.sim.submit(client, request))

    # ------------------------------------------------ events

    def _begin_events(self) -> None:
        start = self.sim.now
        for time, fault in self.scenario.faults:
            self.sim.at(start + time, lambda fault=fault: fault.apply(self.sim))  # type: ignore[misc]
        self._later(0)

    def _later(self, number: int) -> None:
        if number < self.scenario.events:
            gap = self.rng.expovariate(self.scenario.rate)
            self.sim.at(self.sim.now + gap, lambda: self._publish(number))

    def _publish(self, number: int) -> None:
        publisher = self.rng.randrange(self.scenario.publishers)
        event = Event(
            {"topic": self.rng.choice(self._topics[publisher]), "price": self.rng.randrange(100)},
            id=f"e{number}",
        )
        self._published[f"e{number}"] = self.sim.now
        self.sim.submit(f"publisher{publisher}", Publish(f"publisher{publisher}", event))
        if self.tick is not None:
            self.tick(number + 1)
        self._later(number + 1)

    def _on_delivery(self, delivery: Delivery) -> None:
        assert delivery.event.id is not None
        self.outcome.latencies.append(delivery.time - self._published[delivery.event.id])
        self.outcome.hops.append(delivery.hops)
