"""The whole study of HERMES (thesis 5.4): which networks are run, and the tables that come of it.

| study            | varies                        | for                                                  |
|------------------|-------------------------------|------------------------------------------------------|
| `E1`             | subscribers, one type         | Figures 5.5, 5.6: latency and hops of a notification |
| `E2 subscribers` | subscribers, ten types        | Figure 5.7: entries of routing tables                |
| `E2 publishers`  | publishers                    | Figure 5.8                                           |
| `E2 brokers`     | brokers                       | Figure 5.9                                           |
| `E3`             | nothing                       | Figure 5.10: how entries are spread over brokers     |
| `E4 subscribers` | subscribers, a hundred types  | Figure 5.11: messages                                |
| `E4 publishers`  | publishers                    | Figure 5.12                                          |
| `pan`            | nodes                         | hop count and stretch of routes in the overlay       |
| `churn`          | seconds between failures      | our own: deliveries, delay and state under churn     |
"""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from angelia.overlay import key_of
from angelia.sim.engine import Simulation
from angelia.sim.experiments.churn import churn
from angelia.sim.experiments.hermes import Clients
from angelia.sim.experiments.notes import Notes
from angelia.sim.experiments.overlays import NETWORKS, network, pan_of, route
from angelia.sim.experiments.runners import local
from angelia.sim.experiments.study import Row

__all__ = ["FULL", "QUICK", "Plan", "Study", "Task", "run_study", "save", "tasks"]

TWO = ("hermes", "covadv-mst")


@dataclass(frozen=True)
class Plan:
    """How large the study is (Table 5.1)."""

    runs: int
    brokers: int
    few: tuple[int, ...]  # subscribers of E1
    many: tuple[int, ...]  # subscribers or publishers of E2 and E4
    sizes: tuple[int, ...]  # brokers of the last part of E2
    distribution: int  # subscribers of E3
    types: tuple[int, int]  # of E2 and E3, and of E4
    each: tuple[int, int]  # types that a client uses
    events: int  # of E4
    pan: tuple[int, ...]
    churn: tuple[float, ...]  # seconds between failures; inf: none
    churners: int  # brokers


FULL = Plan(
    runs=5,
    brokers=500,
    few=(10, 25, 50, 100, 150, 200, 300, 400, 500),
    many=(100, 250, 500, 750, 1000, 1250, 1500, 2000, 3000, 4000, 5000),
    sizes=(50, 100, 250, 500, 750, 1000),
    distribution=1000,
    types=(10, 100),
    each=(5, 10),
    events=100,
    pan=(50, 100, 250, 500, 1000),
    churn=(float("inf"), 20.0, 10.0, 5.0, 2.0),
    churners=100,
)
QUICK = Plan(
    runs=2,
    brokers=100,
    few=(5, 10, 25, 50, 100),
    many=(20, 50, 100, 200, 400),
    sizes=(25, 50, 100),
    distribution=200,
    types=(10, 20),
    each=(5, 5),
    events=20,
    pan=(50, 200),
    churn=(float("inf"), 5.0),
    churners=20,
)


class Task(NamedTuple):
    """One network, which gives one or several rows."""

    study: str
    network: str
    size: int
    run: int
    seed: str
    interval: float = 0.0


class Study(NamedTuple):
    """The tables: what each network had or cost, and how many brokers have how many entries."""

    runs: list[Row]
    spread: list[Row]

    def save(self, directory: Path) -> None:
        """Write the tables as Parquet and CSV."""
        for name, rows in zip(self._fields, self, strict=True):
            save(rows, directory, name)

    @classmethod
    def load(cls, directory: Path) -> Study:
        """Read the tables back."""
        return cls(*(pyarrow.parquet.read_table(directory / f"{n}.parquet").to_pylist() for n in cls._fields))


def save(rows: list[Row], directory: Path, name: str) -> None:
    """Write a table as Parquet and CSV; rows may lack columns that others have."""
    directory.mkdir(parents=True, exist_ok=True)
    columns = dict.fromkeys(column for row in rows for column in row)
    table = pa.table({column: [row.get(column) for row in rows] for column in columns})
    pyarrow.parquet.write_table(table, directory / f"{name}.parquet", compression="zstd")
    pyarrow.csv.write_csv(table, directory / f"{name}.csv")


# ---------------------------------------------------------------- what is run


def tasks(plan: Plan, seed: int) -> Iterator[Task]:
    """All networks of a plan, those of the thesis first."""
    for run in range(plan.runs):
        placed = f"{seed}/{run}"
        for name in TWO:
            for study in ("E4 subscribers", "E4 publishers", "E2 subscribers", "E2 publishers"):
                yield Task(study, name, plan.brokers, run, placed)
            for size in plan.sizes:
                yield Task("E2 brokers", name, size, run, placed)
        for name in NETWORKS:
            yield Task("E1", name, plan.brokers, run, placed)
    for run in range(plan.runs):
        placed = f"{seed}/{run}"
        for size in plan.pan:
            yield Task("pan", "hermes", size, run, placed)
        for interval in plan.churn:
            yield Task("churn", "hermes", plan.churners, run, placed, interval)


class Result(NamedTuple):
    """What a network has come to."""

    task: Task
    rows: list[Row]
    spread: list[Row]


def run_study(
    plan: Plan, seed: int, jobs: int, done: Callable[[], None] = lambda: None, path: Path | None = None
) -> Study:
    """Run a plan with some processes; `done` is called after each network.

    With a path of notes, networks that are noted there are not run again, and the others are added.
    """
    notes, every = Notes(path), list(tasks(plan, seed))
    noted = notes.read()
    found = [Result(task, *noted[_key(plan, task)]) for task in every if _key(plan, task) in noted]
    for _ in found:
        done()
    work = [(plan, task) for task in every if _key(plan, task) not in noted]
    for result in local(jobs)(_run, work):
        found.append(result)
        notes.add(_key(plan, result.task), result.rows, result.spread)
        done()
    found.sort(key=lambda result: result.task)
    return Study([r for result in found for r in result.rows], [r for result in found for r in result.spread])


def _key(plan: Plan, task: Task) -> str:
    """What tells the network of a task from others; how many runs there are does not matter to it."""
    return f"{task} of {replace(plan, runs=1)}"


def _run(given: tuple[Plan, Task]) -> Result:
    plan, task = given
    spread: list[Row] = []
    gc.collect()
    gc.disable()  # a network is kept to its end, and millions of messages need no collection
    found = [
        {"study": task.study, "network": task.network, "run": task.run, "brokers": task.size, **row}
        for row in _STUDIES[task.study](plan, task, spread)
    ]
    gc.enable()
    return Result(task, found, spread)


# ---------------------------------------------------------------- the studies


def _e1(plan: Plan, task: Task, spread: list[Row]) -> Iterator[Row]:
    clients = Clients(task.network, task.size, 1, 1, task.seed)
    clients.publish_from(10)
    for number in plan.few:
        clients.subscribe_from(number, spread=True)
        load = clients.publish(clients.publishers)
        yield {
            "subscribers": number,
            "latency": load.latency / load.deliveries,
            "hops": load.messages / load.deliveries,
            "delay": load.delay / load.deliveries,
        }


def _e2_subscribers(plan: Plan, task: Task, spread: list[Row]) -> Iterator[Row]:
    clients = _of_ten_types(plan, task)
    clients.publish_from(10)
    for number in sorted({*plan.many, plan.distribution}):
        clients.subscribe_from(number)
        yield {"publishers": 10, "subscribers": number, **_entries(clients)}
        if number == plan.distribution:
            counts = Counter(sum(each) for each in clients.entries())
            spread += [
                {"network": task.network, "run": task.run, "entries": entries, "brokers": brokers}
                for entries, brokers in sorted(counts.items())
            ]


def _e2_publishers(plan: Plan, task: Task, spread: list[Row]) -> Iterator[Row]:
    clients = _of_ten_types(plan, task)
    clients.subscribe_from(100)
    for number in plan.many:
        clients.publish_from(number)
        yield {"publishers": number, "subscribers": 100, **_entries(clients)}


def _e2_brokers(plan: Plan, task: Task, spread: list[Row]) -> Iterator[Row]:
    clients = _of_ten_types(plan, task)
    clients.publish_from(10)
    clients.subscribe_from(100)
    yield {"publishers": 10, "subscribers": 100, **_entries(clients)}


def _of_ten_types(plan: Plan, task: Task) -> Clients:
    return Clients(task.network, task.size, plan.types[0], plan.each[0], task.seed)


def _entries(clients: Clients) -> Row:
    advertised, subscribed = zip(*clients.entries(), strict=True)
    return {"advertisement_entries": sum(advertised), "subscription_entries": sum(subscribed)}


def _e4_subscribers(plan: Plan, task: Task, spread: list[Row]) -> Iterator[Row]:
    clients = Clients(task.network, task.size, plan.types[1], plan.each[1], task.seed)
    clients.publish_from(min(100, plan.brokers))
    for number in plan.many:
        clients.subscribe_from(number)
        yield {"publishers": clients.publishers, "subscribers": number, **_messages(plan, clients)}


def _e4_publishers(plan: Plan, task: Task, spread: list[Row]) -> Iterator[Row]:
    clients = Clients(task.network, task.size, plan.types[1], plan.each[1], task.seed)
    clients.subscribe_from(10)
    for number in plan.many:
        clients.publish_from(number)
        yield {"publishers": number, "subscribers": 10, **_messages(plan, clients)}


def _messages(plan: Plan, clients: Clients) -> Row:
    row: Row = {f"{purpose}_messages": number for purpose, number in clients.messages().items()}
    for purpose, ways in clients.uncovered().items():
        up, row[f"{purpose}_messages_per_broker"], row[f"{purpose}_messages_per_client"] = ways
        down = row[f"{purpose}_messages"] - up  # towards publishers, these are covered as before
        row[f"{purpose}_messages_per_broker"] += down
        row[f"{purpose}_messages_per_client"] += down
    return {**row, "publication_messages": clients.publish(plan.events).messages}


def _pan(plan: Plan, task: Task, spread: list[Row]) -> Iterator[Row]:
    sim = network("hermes", task.size, task.seed)
    rng = random.Random(f"keys {task.seed}")
    hops: list[int] = []
    stretches: list[float] = []
    for number in range(2000):
        way = route(sim, rng.choice(list(sim.brokers)), key_of(f"key {number}"))
        hops.append(len(way) - 1)
        direct = _latency(sim, way[0], way[-1])
        if len(way) > 1 and direct >= 0.01:  # not of brokers on one host
            stretches.append(sum(_latency(sim, a, b) for a, b in pairwise(way)) / direct)
    known = [len(pan_of(sim, name).known) for name in sim.brokers]
    yield {
        "hops": sum(hops) / len(hops),
        "expected_hops": log(task.size, 16),
        "stretch": sum(stretches) / len(stretches),
        "median_stretch": sorted(stretches)[len(stretches) // 2],
        "neighbours": sum(known) / len(known),
        "join_messages": sim.messages / task.size,
    }


def _latency(sim: Simulation, a: str, b: str) -> float:
    return sim.distance(a, b).latency


def _churn(plan: Plan, task: Task, spread: list[Row]) -> Iterator[Row]:
    yield {"interval": task.interval, **churn(task.size, task.interval, task.seed)}


_STUDIES: dict[str, Callable[[Plan, Task, list[Row]], Iterator[Row]]] = {
    "E1": _e1,
    "E2 subscribers": _e2_subscribers,
    "E2 publishers": _e2_publishers,
    "E2 brokers": _e2_brokers,
    "E4 subscribers": _e4_subscribers,
    "E4 publishers": _e4_publishers,
    "pan": _pan,
    "churn": _churn,
}
