"""Faults: what can go wrong in a simulated network, as values that are done to a simulation.

| fault                            | written                  | what happens                              |
|----------------------------------|--------------------------|-------------------------------------------|
| `Crash("b1")`                    | `crash b1`               | the broker dies, its state is lost        |
| `Restart("b1")`                  | `restart b1`             | it is back, empty; clients ask again      |
| `Hang("b1")`                     | `hang b1`                | it is silent, though its links stay up    |
| `Cut("b1", "b2")`                | `cut b1 b2`              | the link goes down                        |
| `Restore("b1", "b2")`            | `restore b1 b2`          | and comes up again                        |
| `Partition(("b1", "b2"))`        | `partition b1 b2`        | all links to the other brokers are cut*   |
| `Heal()`                         | `heal`                   | all links that were cut come up again     |
| `Delay("b1", "b2", 0.5)`         | `delay b1 b2 0.5`        | messages take so many seconds longer      |
| `Slow("b1", "b2", 10000)`        | `slow b1 b2 10000`       | bytes a second that pass; others wait     |
| `Duplicate("b1", "b2", 0.1)`     | `duplicate b1 b2 0.1`    | with that probability, a message is twice |
| `Reorder("b1", "b2", 0.5)`       | `reorder b1 b2 0.5`      | messages come up to so much out of turn   |

*In an overlay, these links are gone, and no others can be made until the network is healed; then it is for
the overlay to find together again.

All but the last two apply to every router. The last two do not: the acyclic routers (`hierarchical`, `peer`,
`advertisement`, `hybrid`) stand on links that are first in, first out and exactly once, as SIENA says
of its servers' connections and as TCP gives; an unsubscription that overtakes a subscription would
be another history. Flooding and the general routers number their notifications, link states and
subscriptions and claim to survive both; it is these messages (`links.UNORDERED`) that are hit.
Definitions of event types stay in order: a type must be known before those derived from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from angelia.sim.engine import Simulation
from angelia.sim.errors import SimulationError
from angelia.sim.links import Link

__all__ = [
    "ADVERTISING",
    "FAULTS",
    "NUMBERED",
    "OVERLAYS",
    "Crash",
    "Cut",
    "Delay",
    "Duplicate",
    "Fault",
    "Hang",
    "Heal",
    "Partition",
    "Reorder",
    "Restart",
    "Restore",
    "Slow",
    "parse_fault",
]

# The routers that link brokers themselves, and repair what fails after a while.
OVERLAYS = frozenset({"hermes", "scribe"})

# The routers whose parties may publish only what they have advertised.
ADVERTISING = frozenset({"advertisement", "hermes"})

# The routers that survive duplicates and disorder.
NUMBERED = frozenset({"flooding", "subscription_flooding", "general"})


class Fault:
    """Something done to a simulation, now."""

    def apply(self, sim: Simulation) -> None:
        """Do it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Crash(Fault):
    """A broker dies, with all its state."""

    broker: str

    def apply(self, sim: Simulation) -> None:
        """Do it."""
        sim.crash(self.broker)


@dataclass(frozen=True)
class Hang(Fault):
    """A broker neither hears nor says anything more, but its links are up; only heartbeats tell."""

    broker: str

    def apply(self, sim: Simulation) -> None:
        """Do it."""
        sim.hang(self.broker)


@dataclass(frozen=True)
class Restart(Fault):
    """A broker is back, empty; its clients ask again for what they had, unless told not to."""

    broker: str
    resubscribe: bool = True

    def apply(self, sim: Simulation) -> None:
        """Do it."""
        sim.restart(self.broker, self.resubscribe)


@dataclass(frozen=True)
class Cut(Fault):
    """A link goes down; what is under way is lost."""

    a: str
    b: str

    def apply(self, sim: Simulation) -> None:
        """Do it."""
        sim.cut(sim.link(self.a, self.b))


@dataclass(frozen=True)
class Restore(Fault):
    """A link that was cut, or refused, comes up."""

    a: str
    b: str

    def apply(self, sim: Simulation) -> None:
        """Do it."""
        sim.restore(sim.link(self.a, self.b))


@dataclass(frozen=True)
class Partition(Fault):
    """All links between some brokers and the others are cut."""

    group: tuple[str, ...]

    def apply(self, sim: Simulation) -> None:
        """Do it."""
        inside = {sim.broker(name).name for name in self.group}
        between = [link for link in sim.links if (link.a in inside) != (link.b in inside)]
        if sim.routing in OVERLAYS:  # which would go round what is cut, by other links
            sim.islands.append(frozenset(inside))
        for link in between:
            # An overlay's links are gone. But who has one only is about to join by it, and dials again.
            has_others = all(len(sim.brokers[end].links) > 1 for end in (link.a, link.b))
            (sim.drop if sim.routing in OVERLAYS and has_others else sim.cut)(link)


@dataclass(frozen=True)
class Heal(Fault):
    """All links that were cut come up."""

    def apply(self, sim: Simulation) -> None:
        """Do it."""
        sim.islands.clear()
        for link in list(sim.links):
            sim.restore(link)


@dataclass(frozen=True)
class _Setting(Fault):
    """A property of both channels of a link; 0 is as it should be."""

    a: str
    b: str
    value: float
    name: ClassVar[str]

    def __post_init__(self) -> None:
        if not 0 <= self.value < float("inf"):
            raise SimulationError(f"{self.name} takes a number from 0 on, not {self.value}")

    def apply(self, sim: Simulation) -> None:
        """Do it."""
        link: Link = sim.link(self.a, self.b)
        sim.set_channels(link, self.name, self.value)


class Delay(_Setting):
    """Messages take so many seconds longer."""

    name = "delay"


class Slow(_Setting):
    """So many bytes a second pass; what is more waits."""

    name = "bandwidth"


class _Disorder(_Setting):
    """What only routers survive that number what they send."""

    def apply(self, sim: Simulation) -> None:
        """Do it, if the router claims to survive it."""
        if sim.routing not in NUMBERED:
            raise SimulationError(
                f"the routing {sim.routing} needs links that deliver in order and once: no {self.name} here"
            )
        super().apply(sim)


class Duplicate(_Disorder):
    """With this probability, a message comes twice."""

    name = "duplicate"


class Reorder(_Disorder):
    """Messages come up to so many seconds after their turn."""

    name = "reorder"


FAULTS: dict[str, type[Fault]] = {
    "crash": Crash,
    "hang": Hang,
    "restart": Restart,
    "cut": Cut,
    "restore": Restore,
    "partition": Partition,
    "heal": Heal,
    "delay": Delay,
    "slow": Slow,
    "duplicate": Duplicate,
    "reorder": Reorder,
}


def parse_fault(text: str) -> Fault:
    """A fault from its written form: `crash b1`, `delay b1 b2 0.5`."""
    name, *words = text.split() or [""]
    if name not in FAULTS:
        raise SimulationError(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")
    try:
        return _made(FAULTS[name], words)
    except (TypeError, ValueError) as error:
        if isinstance(error, SimulationError):
            raise
        raise SimulationError(f"{text!r} is not a fault: see the table in docs/simulator.md") from None


def _made(fault: type[Fault], words: Sequence[str]) -> Fault:
    if fault is Partition:
        return Partition(tuple(words))
    if issubclass(fault, _Setting):
        a, b, value = words
        return fault(a, b, float(value))
    if fault is Restart and len(words) != 1:
        raise ValueError(words)
    return fault(*words)
