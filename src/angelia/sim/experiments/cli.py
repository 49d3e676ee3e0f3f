"""`angelia experiment …`: the papers' studies from the command line."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from angelia.sim.experiments import hermes_figures, hermes_large, hermes_study
from angelia.sim.experiments.figures import draw
from angelia.sim.experiments.runners import runner
from angelia.sim.experiments.study import FULL, QUICK, Row, run_study, tasks

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Repeat the studies of the papers.")


@app.callback()
def experiments() -> None:
    """Repeat the studies of the papers."""


@app.command()
def siena(
    quick: Annotated[bool, typer.Option("--quick", help="A small network and few runs: seconds.")] = False,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of each scenario; 10 in the paper.")] = None,
    out: Annotated[Path, typer.Option(help="Where figures and data go.")] = Path("siena"),
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = os.cpu_count() or 1,
    seed: Annotated[int, typer.Option(help="Of the network, of all places and times.")] = 1,
    on: Annotated[str, typer.Option(help="Where: local (processes), or spark.")] = "local",
    master: Annotated[str | None, typer.Option(help="With --on spark: where Spark runs.")] = None,
) -> None:
    """The simulation study of SIENA 6.2: Figures 19-25 as SVG and PNG, the data as Parquet and CSV.

    More than an hour of processor time. What was interrupted goes on where it was when the command is given
    again, and so does a study that is to have more runs: what is noted in `runs.jsonl` is not repeated.
    """
    out.mkdir(parents=True, exist_ok=True)
    plan = QUICK if quick else FULL
    plan = plan if runs is None else replace(plan, runs=runs)
    console = Console()
    columns = ("runs", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("runs", total=sum(1 for _ in tasks(plan, seed)))
        notes, where = out / "runs.jsonl", runner(on, jobs, master)
        study = run_study(plan, seed, jobs, lambda: progress.advance(bar), notes, where)
    study.save(out / "data")
    figures = draw(study, out / "figures")
    typer.echo(
        f"{len(study.runs):,} runs; {len(figures)} figures in {out / 'figures'}, data in {out / 'data'}"
    )


@app.command()
def hermes(
    quick: Annotated[bool, typer.Option("--quick", help="Small networks and few runs: a minute.")] = False,
    runs: Annotated[int | None, typer.Option(min=1, help="Runs of each network; 5 in the thesis.")] = None,
    out: Annotated[Path, typer.Option(help="Where figures and data go.")] = Path("hermes"),
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = os.cpu_count() or 1,
    seed: Annotated[int, typer.Option(help="Of the networks and of all places.")] = 1,
    large: Annotated[int | None, typer.Option(min=2, help="Instead: one network of so many brokers.")] = None,
) -> None:
    """The evaluation of HERMES (chapter 5): Figures 5.5-5.12 as SVG and PNG, the data as Parquet and CSV.

    What was interrupted goes on where it was when the command is given again: networks that are noted in
    `runs.jsonl` are not run again. Beyond the thesis, `--large 10000` has E1-E4 on one network of that size.
    """
    if large is not None:
        _large(large, f"{seed}/0", out / "data")
        return
    out.mkdir(parents=True, exist_ok=True)
    plan = hermes_study.QUICK if quick else hermes_study.FULL
    plan = plan if runs is None else replace(plan, runs=runs)
    with _bar(sum(1 for _ in hermes_study.tasks(plan, seed))) as done:
        study = hermes_study.run_study(plan, seed, jobs, done, out / "runs.jsonl")
    study.save(out / "data")
    figures = hermes_figures.draw(study, out / "figures")
    typer.echo(
        f"{len(study.runs):,} rows; {len(figures)} figures in {out / 'figures'}, data in {out / 'data'}"
    )


def _large(brokers: int, seed: str, directory: Path) -> None:
    rows: list[Row] = []
    spread: list[Row] = []
    gc.disable()  # the network is kept to the end, and to go through it again and again takes long
    for some, told in hermes_large.large(brokers, seed):
        rows += some
        spread += told
        typer.echo(f"{rows[-1]['subscribers']:,} subscribers are done")
        hermes_study.save(rows, directory, "large")
        hermes_study.save(spread, directory, "large_spread")


@contextmanager
def _bar(total: int) -> Iterator[Callable[[], None]]:
    """A progress bar of runs."""
    columns = ("runs", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console()) as progress:
        bar = progress.add_task("runs", total=total)
        yield lambda: progress.advance(bar)
