"""`angelia lake`: look at the event lake, tidy it up, fill it, and replay it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from angelia.errors import LakeError
from angelia.event import CONTEXT, Event, format_timestamp
from angelia.filter import Filter
from angelia.store.columns import tagged
from angelia.store.compact import GRACE
from angelia.store.compact import compact as compact_lake
from angelia.store.importer import FORMATS, ImportReport, Naming, import_file
from angelia.store.lake import Lake
from angelia.store.seam import replay as replay_events
from angelia.store.verify import summary
from angelia.store.verify import verify as verify_lake

__all__ = ["app"]

app = typer.Typer(help="The event lake: everything that was published, as Parquet.", no_args_is_help=True)

Directory = Annotated[Path, typer.Option("--lake", help="The directory of the lake.")]


@app.command("ls")
def ls(
    lake: Directory,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one object a type.")] = False,
) -> None:
    """List the event types with their files, rows, bytes and days, and what is not rolled yet."""
    opened = _existing(lake)
    rows = summary(opened)
    if as_json:
        for row in rows:
            typer.echo(json.dumps(asdict(row)))
        return
    table = Table("type", "files", "rows", "bytes", "from", "to", "not rolled", box=None)
    table.columns[0].overflow = "fold"  # a name that is cut off is of no use
    for row in rows:
        counts = (f"{row.files:,}", f"{row.rows:,}", f"{row.bytes:,}")
        table.add_row(row.type, *counts, row.first, row.last, f"{row.unrolled:,}")
    Console().print(table)
    events = sum(row.rows + row.unrolled for row in rows)
    typer.echo(f"{len(rows)} types, {events:,} events, {sum(row.bytes for row in rows):,} bytes")
    _tell_problems(opened)


@app.command("verify")
def verify(lake: Directory) -> None:
    """Read everything, with checksums; exit status 1 if something is corrupted or half-written."""
    with _progress("verifying") as progress:
        found = verify_lake(lake, progress)
    for problem in found.problems:
        typer.echo(f"{problem.path}: {problem.reason}")
    what = f"{found.files:,} files, {found.segments:,} segments, {found.events:,} events"
    if found.problems:
        typer.echo(f"FAILED: {len(found.problems)} problems in {what}")
        raise typer.Exit(1)
    typer.echo(f"ok: {what}")


@app.command("compact")
def compact(
    lake: Directory,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds that replaced files are kept for those who read them.")
    ] = GRACE,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ATTRIBUTE", help="Have events with one value of it beside each other."),
    ] = None,
) -> None:
    """Merge small files, roll what brokers that died left, and tidy up. Safe while brokers write."""
    with _progress("compacting") as progress:
        done = compact_lake(lake, grace=grace, cluster=cluster, progress=progress)
    typer.echo(
        f"{done.merged:,} files became {done.made:,} ({done.rows:,} events); "
        f"{done.rolled:,} segments rolled, {done.removed:,} old files removed, "
        f"{done.skipped:,} files skipped as unreadable"
    )
    if done.skipped:
        typer.echo("some files cannot be read: see `angelia lake verify`", err=True)


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help=f"Files: {', '.join(FORMATS)}.")],
    lake: Directory,
    type_name: Annotated[
        str | None, typer.Option("--type", help="The type of events that name none.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="The source of events that name none.")] = None,
    time_column: Annotated[
        str | None, typer.Option(help="The column of the time; else @time or time.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="The column of the id; else @id or id, or made.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="csv, jsonl, parquet or cloudevents; else by the name.")
    ] = None,
    rejects: Annotated[
        Path | None, typer.Option(help="Where bad rows go; else FILE.rejects.jsonl beside each file.")
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Import a file that was imported before.")] = False,
) -> None:
    """Bring files into the lake. Bad rows go to a reject file with the reason; read = imported + rejected."""
    naming = Naming(time_column, id_column, type_name, source)
    reports: list[ImportReport] = []
    for path in files:
        with _progress(f"importing {path.name}") as progress:
            report = import_file(
                path, lake, naming=naming, rejects=rejects, form=form, again=again, progress=progress
            )
        reports.append(report)
        if report.known:
            typer.echo(f"{path}: is in the lake already; --again imports it once more")
        elif report.rejected:
            where = rejects or path.with_name(f"{path.name}.rejects.jsonl")
            typer.echo(f"{path}: {report.rejected:,} rows rejected; why is in {where}")
    read, imported, rejected = (
        sum(getattr(report, name) for report in reports) for name in ("read", "imported", "rejected")
    )
    typer.echo(f"read {read:,} = imported {imported:,} + rejected {rejected:,}")


@app.command("replay")
def replay(
    text: Annotated[str, typer.Argument(metavar="FILTER", help="A filter, such as 'price < 500'.")],
    lake: Directory,
    since: Annotated[str | None, typer.Option(help="From this time on, as 2026-01-01T00:00:00Z.")] = None,
    until: Annotated[str | None, typer.Option(help="Up to, but without, this time.")] = None,
    rate: Annotated[float | None, typer.Option(help="At most so many events a second.")] = None,
    out: Annotated[Path | None, typer.Option(help="A file; else they are printed.")] = None,
) -> None:
    """Print past events that a filter matches, in order of time, as JSON lines (which `import` reads)."""
    opened, wanted = _existing(lake), Filter.parse(text)
    count = 0
    with _output(out) as file:
        for event in replay_events(opened, wanted, since, until, rate=rate):
            file.write(json.dumps(_as_json(event), ensure_ascii=False) + "\n")
            count += 1
    typer.echo(f"{count:,} events", err=True)
    _tell_problems(opened)


# ---------------------------------------------------------------- parts


def _existing(path: Path) -> Lake:
    if not path.is_dir():
        raise LakeError(f"there is no lake in {path}")
    return Lake(path)


def _tell_problems(lake: Lake) -> None:
    """Exit status 1 if something was left out."""
    for problem in lake.problems:
        typer.echo(f"left out: {problem.path}: {problem.reason}", err=True)
    if lake.problems:
        raise typer.Exit(1)


@contextmanager
def _output(path: Path | None) -> Iterator[IO[str]]:
    if path is None:
        yield sys.stdout
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise LakeError(f"cannot write {path}: {error.strerror}") from None


def _as_json(event: Event) -> dict[str, Any]:
    context = {f"@{name}": _plain(value) for name in CONTEXT if (value := getattr(event, name)) is not None}
    return context | {name: _plain(value) for name, value in event.attributes.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(element) for element in value]
    return format_timestamp(value) if isinstance(value, datetime) else tagged(value)


@contextmanager
def _progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar, if standard error is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
