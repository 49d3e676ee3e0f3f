"""Where the runs of an experiment are done: in processes of this machine, or elsewhere.

A runner takes a function and what it is to be called with, and gives the results in any order.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

from angelia.sim.errors import SimulationError

__all__ = ["NAMES", "Runner", "local", "runner"]

Runner = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]

NAMES = ("local", "spark")


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
    """The runner that `--on` names. That of Spark is in a layer above this one: it is loaded when used."""
    if name not in NAMES:
        raise SimulationError(f"an experiment runs on {' or '.join(NAMES)}, not on {name!r}")
    if name == "local":
        return local(jobs)
    try:
        found: Runner = import_module("angelia.pipeline.sweeping").on_spark(master)
    except ModuleNotFoundError as error:
        raise SimulationError(f"{error.name} is not installed: pip install 'angelia[pipeline]'") from None
    return found
