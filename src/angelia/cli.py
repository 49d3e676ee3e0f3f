"""The command line: wiring only."""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from angelia import Filter, TypeRegistry, __version__
from angelia.client.rows import Row, event_of
from angelia.errors import AngeliaError, EventError

__all__ = ["main"]

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer has no name for it

# Commands that are there once they are asked for: what they import takes a while. Of each: what it does,
# the extra it needs, and where it is.
_LATER: dict[str, tuple[str, str, str]] = {
    "broker": ("Run a broker until it is told to stop.", "broker", "angelia.broker.cli:broker"),
    "certs": ("Make certificates for development.", "broker", "angelia.broker.cli:certs"),
    "up": ("Start a network of brokers on this machine.", "broker", "angelia.local.cli:up"),
    "status": ("Show the network that is up.", "broker", "angelia.local.cli:status"),
    "down": ("Stop the network that is up.", "broker", "angelia.local.cli:down"),
    "publish": ("Publish an event, or those of a file or of stdin.", "", "angelia.client.cli:publish"),
    "subscribe": ("Print the events that match a filter.", "", "angelia.client.cli:subscribe"),
    "types": ("Event types: list, show, define, remove.", "", "angelia.client.cli:types"),
    "lake": ("The event lake: look at it, tidy it up, fill it, replay it.", "match", "angelia.store.cli:app"),
    "pipeline": (
        "Match, replay and understand what was published, on Spark.",
        "pipeline",
        "angelia.pipeline.cli:app",
    ),
    "sim": ("Simulate networks of brokers: check routers, run scenarios.", "sim", "angelia.sim.cli:app"),
    "experiment": ("Repeat the studies of the papers.", "sim", "angelia.sim.experiments.cli:app"),
}


class _Commands(TyperGroup):
    """Loads the commands of `_LATER` when they are called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name."""
        if args and args[0] in _LATER:
            self.commands[args[0]] = _load(args[0])
        return super().resolve_command(ctx, args)


def _load(name: str) -> Any:
    module, _, attribute = _LATER[name][2].partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_group(found)
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name)(found)
    return typer.main.get_command(single)


app = typer.Typer(
    name="angelia",
    cls=_Commands,
    help="An event notification service: content-based publish/subscribe.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
filters = typer.Typer(help="Look at filters.", no_args_is_help=True)


def _stub() -> None:
    """Stands for a command that is not loaded yet."""


for _name, (_help, _, _) in _LATER.items():
    app.command(_name, help=_help)(_stub)
app.add_typer(filters, name="filter")


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
def _demo(
    flights: Annotated[int, typer.Option(min=1, help="How many flights to publish.")] = 50_000,
    full: Annotated[bool, typer.Option("--full", help="All 336,776 flights of 2013.")] = False,
) -> None:
    """Start five brokers, publish real flights, and check that all subscribers got what they asked for."""
    from angelia import demo

    if not demo.run(None if full else flights):
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
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT", help="A file with a JSON object, as subscribe prints it, or - for stdin."
        ),
    ],
    type_name: Annotated[str | None, typer.Option("--type", help="The event's type.")] = None,
    source: Annotated[str | None, typer.Option(help="The event's source.")] = None,
    subject: Annotated[str | None, typer.Option(help="The event's subject.")] = None,
) -> None:
    """Tell which constraints of a filter an event satisfies; exit status 1 if it does not match."""
    row = Row(event, _read_object(event))
    context = {"type": type_name, "source": source, "subject": subject}
    explanation = Filter.parse(text).explain(event_of(row, context, TypeRegistry()))
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
        sys.exit(app(standalone_mode=False))
    except AngeliaError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except _UsageError as error:
        _tell(error)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "angelia":
            raise
        command = next((word for word in sys.argv[1:] if word in _LATER), "broker")
        extra = _LATER[command][1] or "broker"
        typer.echo(f"error: {error.name} is not installed: pip install 'angelia[{extra}]'", err=True)
        sys.exit(1)
    except BrokenPipeError:  # who read what we print has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python tries to print it at exit
        sys.exit(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        typer.echo(f"error: {where}{error.strerror or error}", err=True)
        sys.exit(1)


def _tell(error: Any) -> None:
    """Say what was wrong with the arguments, in one line; who gave none gets help."""
    if "NoArgsIsHelp" in type(error).__name__:
        error.show()
        return
    said = str(error.format_message()).rstrip(".")
    where = f"; see {error.ctx.command_path} --help" if error.ctx is not None else ""
    typer.echo(f"error: {said[:1].lower()}{said[1:]}{where}", err=True)
