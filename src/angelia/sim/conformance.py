"""The conformance kit: every router, on every topology that it is for, under the same workloads.

A case is a router, a topology and a seed; the same case always gives the same run. It fails with a
`Failure` that tells what went wrong and the command that runs it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from angelia.routing.hermes import REPLICATION
from angelia.sim import topology
from angelia.sim.checker import Checker, Violation
from angelia.sim.engine import Simulation
from angelia.sim.errors import SimulationError
from angelia.sim.invariants import check_agreement, check_empty, check_no_strangers
from angelia.sim.journal import Journal
from angelia.sim.workload import Workload

__all__ = ["APPLIES", "TOPOLOGIES", "Case", "Failure", "cases", "run_case"]

TOPOLOGIES: dict[str, Callable[[int, int], list[tuple[int, int]]]] = {
    "line": lambda n, seed: topology.line(n),
    "star": lambda n, seed: topology.star(n),
    "tree": topology.tree,
    "ring": lambda n, seed: topology.ring(n),
    "random": topology.random_graph,
}

_ACYCLIC = ("line", "star", "tree")
_ANY = ("line", "star", "tree", "ring", "random")

# On which topologies a router is to work. A router that is not here is not checked: add it.
APPLIES: dict[str, tuple[str, ...]] = {
    "flooding": _ANY,
    "subscription_flooding": _ANY,
    "hierarchical": _ACYCLIC,
    "peer": _ACYCLIC,
    "advertisement": _ACYCLIC,
    "general": _ANY,
    "hybrid": _ACYCLIC,
    # Of an overlay the links are those through which brokers join it.
    "hermes": _ACYCLIC,
    "scribe": _ACYCLIC,
}

# How the routers are set up: overlays so that they repair themselves in a few seconds (`workload.REPAIR`).
# A request takes more than a second over a link that is slow by half a second, as some are.
_QUICK: dict[str, Any] = {"heartbeat": 1.0, "refresh": 1.0, "lease": 3.0, "timeout": 1.5}
OPTIONS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "scribe": lambda rng: {**_QUICK, "b": rng.choice((1, 2, 4)), "leaf_set": rng.choice((4, 8))},
    "hermes": lambda rng: {
        **_QUICK,
        "b": rng.choice((1, 2, 4)),
        "leaf_set": rng.choice((4, 8)),
        "inheritance": rng.choice(("advertisements", "subscriptions")),
        "replicas": rng.choice((1, 1, 2, 3)),
        "replication": rng.choice(REPLICATION),
    },
}


class Case(NamedTuple):
    """What is run."""

    router: str
    topology: str
    seed: int

    @property
    def command(self) -> str:
        """The command that runs this case, and no other."""
        return (
            f"angelia sim check --router {self.router} --topology {self.topology} "
            f"--first-seed {self.seed} --seeds 1"
        )


class Failure(Exception):  # noqa: N818 - of a case
    """A case failed; the text has the command that runs it again."""

    def __init__(self, case: Case, time: float, reason: str) -> None:
        self.case, self.time, self.reason = case, time, reason
        super().__init__(f"at {time:.6f} s: {reason}\n  replay: {case.command}")

    def __reduce__(self) -> tuple[type[Failure], tuple[Case, float, str]]:
        return type(self), (self.case, self.time, self.reason)


def cases(router: str, topology_name: str | None, seeds: range) -> Iterator[Case]:
    """The cases of seeds; the topologies of the router take turns, unless one is told."""
    if router not in APPLIES:
        raise SimulationError(f"there is no router {router!r}; there are {', '.join(APPLIES)}")
    names = APPLIES[router] if topology_name is None else (topology_name,)
    if not set(names) <= set(APPLIES[router]):
        raise SimulationError(f"{router} is for {', '.join(APPLIES[router])}, not for {topology_name!r}")
    return (Case(router, names[seed % len(names)], seed) for seed in seeds)


def run_case(case: Case, journal: Journal | None = None) -> Simulation:
    """Run a case; raises a `Failure`, or returns the simulation as it is in the end."""
    rng = random.Random(f"{case.topology} {case.seed}")
    watched: list[Checker] = []
    sim = Simulation(
        case.router,
        seed=case.seed,
        options=OPTIONS[case.router](rng) if case.router in OPTIONS else None,
        journal=journal,
        on_delivery=lambda delivery: watched[0].on_delivery(delivery),
        on_sequence=lambda delivery: watched[0].on_sequence(delivery),
    )
    watched.append(Checker(sim))
    try:
        _play(Workload(sim, watched[0], rng), case, rng)
    except Exception as error:  # whatever it is, the case failed, and how to repeat it must be told
        reason = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
        raise Failure(case, sim.now, reason) from error
    return sim


def _play(workload: Workload, case: Case, rng: random.Random) -> None:
    sim, brokers = workload.sim, rng.choice((2, 3, 4, 5, 6, 8))
    workload.start(brokers, TOPOLOGIES[case.topology](brokers, case.seed))
    workload.rest(3)
    for _ in range(rng.choice((2, 4, 6))):
        workload.step()
        workload.rest(3)
        check_agreement(sim)
        workload.pause()
    workload.finish()
    workload.rest(4)
    check_agreement(sim)
    workload.leave_all()
    check_empty(sim)
    workload.turn_over()
    check_agreement(sim)
    check_no_strangers(sim)
    refused = [refusal for refusal in sim.refusals if refusal.error != "the broker is down"]
    if refused:
        raise Violation(f"a request was refused: {refused[0].error}")
