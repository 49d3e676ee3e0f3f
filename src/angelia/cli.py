"""The command line: wiring only."""

from __future__ import annotations

import json
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from angelia import Event, Filter, __version__, demo
from angelia.errors import AngeliaError, EventError

__all__ = ["main"]

app = typer.Typer(
    name="angelia",
    help="An event notification service: content-based publish/subscribe.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
filters = typer.Typer(help="Look at filters.", no_args_is_help=True)
app.add_typer(filters, name="filter")


def _add_simulator() -> None:
    """Add what needs the extra `sim`; without it, say so when it is asked for."""
    try:
        from angelia.sim.cli import app as simulator
        from angelia.sim.experiments.cli import app as experiments
    except ModuleNotFoundError as error:
        missing = error.name

        def refuse(context: typer.Context) -> None:
            """Needs the extra: pip install 'angelia[sim]'."""
            typer.echo(f"error: {missing} is not installed: pip install 'angelia[sim]'", err=True)
            raise typer.Exit(1)

        unknown = {"ignore_unknown_options": True, "allow_extra_args": True}
        for name in ("sim", "experiment"):
            app.command(name, context_settings=unknown)(refuse)
    else:
        app.add_typer(simulator, name="sim")
        app.add_typer(experiments, name="experiment")


_add_simulator()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"angelia {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Nothing to do before a command."""


@app.command("demo")
def _demo() -> None:
    """Show what there is: an event, filters, covering, a poset, event types."""
    if not demo.run():
        typer.echo("the demo did not come out as it should", err=True)
        raise typer.Exit(1)


@filters.command("check")
def _check(text: Annotated[str, typer.Argument(help="A filter, such as 'price < 500'.")]) -> None:
    """Print a filter in canonical form, or what is wrong with it."""
    parsed = Filter.parse(text)
    typer.echo(parsed)
    if not parsed.is_satisfiable:
        typer.echo("no event can match this filter", err=True)
        raise typer.Exit(1)


@app.command("explain")
def _explain(
    text: Annotated[str, typer.Argument(metavar="FILTER", help="A filter.")],
    event: Annotated[str, typer.Argument(metavar="EVENT", help="A file with a JSON object, or - for stdin.")],
    type_name: Annotated[str | None, typer.Option("--type", help="The event's type.")] = None,
    source: Annotated[str | None, typer.Option(help="The event's source.")] = None,
    subject: Annotated[str | None, typer.Option(help="The event's subject.")] = None,
) -> None:
    """Tell which constraints of a filter an event satisfies; exit status 1 if it does not match."""
    explanation = Filter.parse(text).explain(
        Event(_read_object(event), type=type_name, source=source, subject=subject)
    )
    typer.echo(explanation)
    if not explanation.matched:
        raise typer.Exit(1)


def _read_object(name: str) -> dict[str, Any]:
    try:
        data = json.loads(sys.stdin.read() if name == "-" else Path(name).read_text("utf-8"))
    except OSError as error:
        raise EventError(f"cannot read {name}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise EventError(f"{name} is not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise EventError(f"{name} must hold a JSON object with the event's attributes")
    return data


def main() -> None:
    """Run the command line; an error of ours is one clear message and exit status 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ✓ is no reason to fail
    try:
        app()
    except AngeliaError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
