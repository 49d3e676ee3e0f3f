"""`angelia sim`: check routers over many seeds, and run scenarios."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from angelia.sim import journal as journals
from angelia.sim import scenario as scenarios
from angelia.sim.conformance import APPLIES, TOPOLOGIES, Case, Failure, cases, run_case
from angelia.sim.errors import SimulationError
from angelia.sim.faults import Fault, parse_fault
from angelia.sim.journal import Journal
from angelia.sim.picture import draw
from angelia.sim.scenario import Outcome, Scenario
from angelia.sim.summary import print_summary, summary

__all__ = ["app"]

app = typer.Typer(help="Simulate networks of brokers: check routers, run scenarios.", no_args_is_help=True)

_SHOWN = 5  # failures that are told in full
_BATCH = 25  # cases that a process is given at once

_ROUTERS = ", ".join(APPLIES)
_TOPOLOGIES = ", ".join(TOPOLOGIES)


# ---------------------------------------------------------------- check


@app.command("check")
def check(
    router: Annotated[str, typer.Option(help=f"The router: {_ROUTERS}.")],
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 200,
    first_seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    topology: Annotated[
        str | None, typer.Option(help=f"One of {_TOPOLOGIES}; else those of the router take turns.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0: one a processor.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write the journal of the first failing case to this file.")
    ] = None,
) -> None:
    """Run the conformance kit: every seed is a random network with random clients, changes and faults.

    Deliveries are compared with direct evaluation. Exit status 1 if a seed fails.
    """
    if out is not None:
        journals.check_path(out)
    start = perf_counter()
    todo = cases(router, topology, range(first_seed, first_seed + seeds))
    failures: list[Failure] = []
    with _progress(seeds, f"checking {router}") as advance:
        for done, failed in _run_all(todo, jobs or os.cpu_count() or 1, seeds):
            failures += failed
            advance(done)
    failures.sort(key=lambda failure: failure.case.seed)
    for failure in failures[:_SHOWN]:
        typer.echo(f"seed {failure.case.seed} ({failure.case.topology}): {failure}")
    if failures and out is not None:
        _write_failure(failures[0].case, out)
    which = f"{seeds} seeds from {first_seed}, {perf_counter() - start:.1f} s"
    if failures:
        typer.echo(f"FAILED: {router} failed {len(failures)} of {which}; replay: {failures[0].case.command}")
        raise typer.Exit(1)
    typer.echo(f"ok: {router} passed {which}")


def _run_all(todo: Iterator[Case], jobs: int, count: int) -> Iterator[tuple[int, list[Failure]]]:
    """Run cases, here or in processes; how many are done, and what failed of them."""
    batches = iter(lambda: list(islice(todo, _BATCH)), [])
    if jobs == 1 or count <= _BATCH:
        yield from map(_run_batch, batches)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_run_batch, batches)


def _run_batch(batch: list[Case]) -> tuple[int, list[Failure]]:
    return len(batch), list(_failures(batch))


def _failures(batch: Iterable[Case]) -> Iterator[Failure]:
    for case in batch:
        try:
            run_case(case)
        except Failure as failure:
            yield failure


def _write_failure(case: Case, out: Path) -> None:
    journal = Journal()
    try:
        run_case(case, journal)
    except Failure:
        journals.write(journal, out)


# ---------------------------------------------------------------- run


@app.command("run")
def run(
    routing: Annotated[str, typer.Option(help=f"One of {_ROUTERS}.")] = "peer",
    topology: Annotated[str, typer.Option(help=f"How brokers are linked: {_TOPOLOGIES}.")] = "tree",
    brokers: Annotated[int, typer.Option(help="How many brokers.")] = 100,
    parties: Annotated[int, typer.Option(help="How many interested parties, one subscription each.")] = 1000,
    publishers: Annotated[int, typer.Option(help="How many publishers.")] = 100,
    events: Annotated[int, typer.Option(help="How many events are published.")] = 1000,
    topics: Annotated[int, typer.Option(help="How many topics events are about.")] = 100,
    rate: Annotated[float, typer.Option(help="Events a second of virtual time.")] = 100.0,
    physical: Annotated[
        int | None, typer.Option(help="About how many physical nodes; else ten a broker, 1,000 at least.")
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help="Bytes a second that pass a link; unlimited, if not told.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The seed: the same seed, the same run.")] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            help="A fault and when, in seconds after everybody has subscribed, such as 'crash b3 at 2.5' "
            "or 'cut b1 b0 at 4'; may be repeated."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the journal goes: a file that ends in .jsonl or .parquet, or a directory for "
            "journal.parquet, summary.json and topology.png."
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="A picture of the traffic, to a file that ends in .png or .svg.")
    ] = None,
) -> None:
    """Run a scenario and print what it came to."""
    scenario = Scenario(
        routing=routing,
        topology=topology,
        brokers=brokers,
        parties=parties,
        publishers=publishers,
        events=events,
        topics=topics,
        rate=rate,
        physical=physical,
        bandwidth=bandwidth,
        seed=seed,
        faults=tuple(_parse_timed(text) for text in fault or ()),
    )
    files = _Files(out, picture)
    journal = Journal() if out is not None else None
    with _progress(events, "publishing") as advance:
        outcome = scenarios.run(scenario, journal, lambda _: advance(1))
    print_summary(outcome, Console())
    files.write(outcome, journal)


def _parse_timed(text: str) -> tuple[float, Fault]:
    what, separator, when = text.rpartition(" at ")
    try:
        time = float(when) if separator else -1.0
    except ValueError:
        time = -1.0
    if not 0 <= time < float("inf"):
        raise SimulationError(f"write a fault as 'crash b3 at 2.5', not {text!r}")
    return time, parse_fault(what)


class _Files:
    """What a run writes; what cannot be written is noticed before the run."""

    def __init__(self, out: Path | None, picture: Path | None) -> None:
        self.is_directory = out is not None and (out.is_dir() or not out.suffix)
        self.out = out
        self.pictures = [picture] if picture is not None else []
        if out is not None and self.is_directory:
            out.mkdir(parents=True, exist_ok=True)
            self.pictures.append(out / "topology.png")
        elif out is not None:
            journals.check_path(out)
        for path in self.pictures:
            if path.suffix not in (".png", ".svg"):
                raise SimulationError(f"a picture is a file that ends in .png or .svg, not {path.name!r}")
            journals.check_parent(path)

    def write(self, outcome: Outcome, journal: Journal | None) -> None:
        """Write the journal, the figures and the pictures, as asked."""
        if self.out is not None and journal is not None:
            journals.write(journal, self.out / "journal.parquet" if self.is_directory else self.out)
            if self.is_directory:
                text = json.dumps(summary(outcome), indent=2)
                (self.out / "summary.json").write_text(text + "\n", "utf-8")
            typer.echo(f"wrote {self.out} ({len(journal):,} records)")
        for path in self.pictures:
            draw(outcome, path)
            typer.echo(f"wrote {path}")


# ---------------------------------------------------------------- progress


@contextmanager
def _progress(total: int, label: str) -> Iterator[Callable[[int], None]]:
    """A progress bar, if standard error is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=total)
        yield lambda count: progress.advance(task, count)
