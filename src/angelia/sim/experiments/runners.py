"""Where the runs of an experiment are done: in processes of this machine, or elsewhere.

A runner takes a function and what it is to be called with, and gives the results in any order.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from angelia.sim.errors import SimulationError

__all__ = ["RUNNERS", "Runner", "local", "runner"]

Runner = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]

# Makers of runners by the name that `--on` gives; they take the number of processes and the master.
RUNNERS: dict[str, Callable[[int, str | None], Runner]] = {"local": lambda jobs, _: local(jobs)}


def local(jobs: int) -> Runner:
    """Some processes of this machine; with one, it is this process."""

    def run(function: Callable[[Any], Any], work: Sequence[Any]) -> Iterable[Any]:
        if jobs == 1:
            yield from map(function, work)
            return
        with multiprocessing.get_context("spawn").Pool(jobs) as pool:
            yield from pool.imap_unordered(function, work)

    return run


def runner(name: str, jobs: int, master: str | None = None) -> Runner:
    """The runner of that name."""
    if name not in RUNNERS:
        raise SimulationError(f"an experiment runs on {' or '.join(RUNNERS)}, not on {name!r}")
    return RUNNERS[name](jobs, master)
