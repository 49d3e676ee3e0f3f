"""The whole study of SIENA 6.2.2: which scenarios are run, and the tables that come of it.

| study     | varies                                                | for                      |
|-----------|-------------------------------------------------------|--------------------------|
| `sweep`   | objects, parties, architecture                        | Figures 19-22, 25        |
| `ignored` | parties, with one object that publishes very much     | Figure 23                |
| `lonely`  | publications, with no party and with one              | Figure 24                |
| `growth`  | sites, with one object and one party                  | O(N) against O(log N)    |
| `timing`  | times alone, everybody standing where they stand      | `aa`'s variance          |

What a run has come to is noted in a file as soon as it ends, so that a study that was interrupted, or is
to have more runs, goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from angelia.sim.experiments.notes import Notes
from angelia.sim.experiments.runners import Runner, local
from angelia.sim.experiments.siena import Outcome, Scenario, simulate
from angelia.sim.experiments.wide_area import Sites
from angelia.sim.topology import transit_stub

__all__ = ["FULL", "QUICK", "Plan", "Row", "Study", "Task", "run_study", "tasks"]

Row = dict[str, Any]

# What the kinds of messages are about.
PURPOSES = {
    "Subscribe": "subscription",
    "Unsubscribe": "subscription",
    "Publish": "notification",
    "Notify": "notification",
    "Advertise": "advertisement",
    "Unadvertise": "advertisement",
}


@dataclass(frozen=True)
class Plan:
    """How large the study is."""

    stub_nodes: int  # of a network of 4 · (1 + 3 · stub_nodes) sites
    runs: int
    objects: tuple[int, ...]
    parties: tuple[int, ...]
    central: tuple[int, ...]  # parties of the centralized architecture, whose cost is a straight line
    ignored: tuple[int, ...]  # parties beside one object that publishes `publications`
    publications: int
    lonely: tuple[int, ...]  # publications
    growth: tuple[int, ...]  # nodes of a stub
    timing: tuple[tuple[int, ...], tuple[int, ...]]  # objects and parties
    places: int  # how often everybody is placed anew, in the study of timing


FULL = Plan(
    stub_nodes=8,
    runs=10,
    objects=(1, 10, 100, 1000),
    parties=(1, 2, 5, 10, 20, 35, 50, 75, 100, 200, 500, 1000, 10_000),
    central=(1, 10, 100, 1000, 10_000),
    ignored=(1, 10, 100, 1000, 10_000),
    publications=100_000,
    lonely=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
    growth=(2, 4, 8, 16, 32),
    timing=((1, 3, 10, 100), (1, 2, 5, 10, 30, 100)),
    places=4,
)
QUICK = Plan(
    stub_nodes=3,
    runs=2,
    objects=(1, 10, 100),
    parties=(1, 2, 5, 10, 20, 40, 100, 300),
    central=(1, 10, 100, 300),
    ignored=(1, 10, 100),
    publications=1000,
    lonely=(1, 10, 100),
    growth=(1, 2, 4, 8),
    timing=((1, 3), (1, 5, 100)),
    places=4,
)


class Task(NamedTuple):
    """One run."""

    study: str
    architecture: str
    scenario: Scenario
    topology: int  # the seed of the network
    stub_nodes: int
    places: str
    times: str


class Study(NamedTuple):
    """The tables: what each run has cost, and what each site has borne on average over runs."""

    runs: list[Row]
    sites: list[Row]

    def save(self, directory: Path) -> None:
        """Write the tables as Parquet and CSV."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, rows in zip(self._fields, self, strict=True):
            table = pa.Table.from_pylist(rows)
            pyarrow.parquet.write_table(table, directory / f"{name}.parquet", compression="zstd")
            pyarrow.csv.write_csv(table, directory / f"{name}.csv")

    @classmethod
    def load(cls, directory: Path) -> Study:
        """Read the tables back."""
        return cls(*(pyarrow.parquet.read_table(directory / f"{n}.parquet").to_pylist() for n in cls._fields))


# ---------------------------------------------------------------- what is run


def tasks(plan: Plan, seed: int) -> Iterator[Task]:
    """All runs of a plan."""
    for run in range(plan.runs):
        for study, architecture, scenario, stub_nodes in _scenarios(plan):
            # The same for all architectures, which are so compared on the same occasions; and for
            # all points of Figures 23 and 24, which tell of one object, wherever it stands.
            points = "" if study in ("ignored", "lonely") else scenario
            places = f"{seed}/{study}/{points}/{run}"
            yield Task(study, architecture, scenario, seed, stub_nodes, places, places)
    yield from _timing(plan, seed)


def _scenarios(plan: Plan) -> Iterator[tuple[str, str, Scenario, int]]:
    here = plan.stub_nodes
    for objects in plan.objects:
        for architecture in ("ce", "hs", "as", "aa"):
            for parties in plan.central if architecture == "ce" else plan.parties:
                yield "sweep", architecture, Scenario(objects, parties), here
    for architecture in ("hs", "as"):
        for parties in plan.ignored:
            yield "ignored", architecture, Scenario(1, parties, m=10, n=plan.publications // 10), here
        for publications in plan.lonely:
            for parties in (0, 1):
                yield "lonely", architecture, Scenario(1, parties, m=1, n=publications, p=1, q=1), here
        for stub_nodes in plan.growth:
            yield "growth", architecture, Scenario(1, 1, m=1, p=1), stub_nodes


def _timing(plan: Plan, seed: int) -> Iterator[Task]:
    for objects in plan.timing[0]:
        for parties in plan.timing[1]:
            for place in range(plan.places):
                for run in range(plan.runs):
                    for architecture in ("as", "aa"):
                        places, times = f"{seed}/{objects}/{parties}/{place}", f"{seed}/{run}"
                        scenario = Scenario(objects, parties)
                        yield Task("timing", architecture, scenario, seed, plan.stub_nodes, places, times)


# ---------------------------------------------------------------- running it


class Result(NamedTuple):
    """What a run has come to."""

    task: Task
    row: Row
    sites: list[float]  # what each has borne


def run_study(
    plan: Plan,
    seed: int,
    jobs: int,
    done: Callable[[], None] = lambda: None,
    notes: Path | None = None,
    runner: Runner | None = None,
) -> Study:
    """Run a plan with some processes, or where the runner runs it; `done` is called after each run.

    With a file for `notes`, runs that are noted there are not repeated, and the others are added.
    """
    every, kept = list(tasks(plan, seed)), Notes(notes)
    noted = kept.read()
    found = [Result(task, *noted[repr(task)]) for task in every if repr(task) in noted]
    for _ in found:
        done()
    work = [task for task in every if repr(task) not in noted]
    work.sort(key=_effort, reverse=True)  # long ones first: all end together
    for result in (runner or local(jobs))(_run, work):
        found.append(result)
        kept.add(repr(result.task), result.row, result.sites)
        done()
    found.sort(key=lambda result: repr(result.task))
    return Study([result.row for result in found], _sites(found))


def _effort(task: Task) -> float:
    return task.scenario.objects * task.scenario.m * task.scenario.n + 30 * task.scenario.parties


@cache
def _network(topology: int, stub_nodes: int) -> Sites:
    return Sites.of(transit_stub(topology, stub_nodes=stub_nodes))


def _run(task: Task) -> Result:
    sites = _network(task.topology, task.stub_nodes)
    outcome = simulate(task.architecture, task.scenario, sites, task.places, task.times)
    return Result(task, _row(task, outcome, len(sites.distances.cost)), outcome.account.sites)


def _row(task: Task, outcome: Outcome, sites: int) -> Row:
    parameters = asdict(task.scenario)
    del parameters["t"]
    counts = {name: value for name, value in vars(outcome).items() if name != "account"}
    account = outcome.account
    row: Row = {"study": task.study, "architecture": task.architecture, "sites": sites, **parameters}
    row |= {"places": task.places, "times": task.times, **counts, "requests": outcome.requests}
    row |= {"cost": account.total, "messages": account.messages.total()}
    for purpose in dict.fromkeys(PURPOSES.values()):
        kinds = [kind for kind, its in PURPOSES.items() if its == purpose]
        row[f"{purpose}_cost"] = sum(account.cost[kind] for kind in kinds if kind in account.cost)
        row[f"{purpose}_messages"] = sum(account.messages[kind] for kind in kinds)
    return row


def _sites(found: list[Result]) -> list[Row]:
    """What each site bears in each scenario of the sweep, on average over the runs (6.2.2.4)."""
    groups: dict[tuple[str, int, int], list[list[float]]] = {}
    for task, _, costs in found:
        if task.study == "sweep":
            key = task.architecture, task.scenario.objects, task.scenario.parties
            groups.setdefault(key, []).append(costs)
    return [
        {"architecture": architecture, "objects": objects, "parties": parties, "site": site, "cost": cost}
        for (architecture, objects, parties), runs in sorted(groups.items())
        for site, cost in enumerate(sum(each) / len(runs) for each in zip(*runs, strict=True))
    ]
