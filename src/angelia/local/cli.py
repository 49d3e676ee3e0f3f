"""The commands of a local network: `up`, `status`, `down`."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from angelia.broker.address import DEFAULT_PORT
from angelia.errors import BrokerError
from angelia.local.network import LocalNetwork, default_directory, load_network

__all__ = ["down", "status", "up"]

Directory = Annotated[
    Path | None,
    typer.Option("--dir", help="Where logs and the list of brokers are.", show_default=False),
]


_COLUMNS = ("broker", "address", "links", "clients", "published", "delivered", "forwarded", "dropped")


def up(
    brokers: Annotated[int, typer.Option(min=1, max=64, help="How many brokers.")] = 5,
    topology: Annotated[str, typer.Option(help="How they are linked: tree, line, star, ring.")] = "tree",
    routing: Annotated[str, typer.Option(help="The routing algorithm; see angelia broker --help.")] = "peer",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The first port; 0: any free.")] = DEFAULT_PORT,
    http_port: Annotated[
        int | None,
        typer.Option("--http", min=0, max=65535, help="The first port of the HTTP doors; 0: any free."),
    ] = None,
    lake: Annotated[Path | None, typer.Option(help="A directory to keep all that is published.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Leave them running; see angelia down.")] = False,
    directory: Directory = None,
) -> None:
    """Start a network of brokers on this machine, show how it is, and stop it on Ctrl-C."""
    place = directory or default_directory()
    if (place / "network.json").exists() and any(asyncio.run(load_network(place).status())):
        raise BrokerError("a network is up already; stop it with: angelia down")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: whatever was started is stopped
    network = LocalNetwork.plan(place, brokers, topology, routing, port=port, http_port=http_port, lake=lake)
    try:
        with Console(stderr=True).status(f"starting {brokers} brokers"):
            network.start()
        door = f", with HTTP on {network.brokers[0].http}" if network.brokers[0].http else ""
        typer.echo(f"{brokers} brokers are up, the first on {network.addresses[0]}{door}; logs in {place}")
        if detach:
            return
        with suppress(KeyboardInterrupt):
            _watch(network)
    except BaseException:
        network.stop_surely()
        raise
    network.stop_surely()
    typer.echo("all brokers have stopped")


def _watch(network: LocalNetwork) -> None:
    """Show a table that is up to date until Ctrl-C or SIGTERM."""
    console = Console()
    try:
        with Live(_table(network), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(1.0)
                live.update(_table(network), refresh=True)
    finally:
        if not console.is_terminal:
            console.print()  # rich ends the last line on terminals only


def status(directory: Directory = None) -> None:
    """Show the network that is up; exit status 1 if a broker does not answer."""
    network = load_network(directory or default_directory())
    states = asyncio.run(network.status())
    Console().print(_table(network, states))
    if None in states:
        raise typer.Exit(1)


def down(directory: Directory = None) -> None:
    """Stop the network that is up."""
    network = load_network(directory or default_directory())
    network.stop()
    typer.echo(f"{len(network.brokers)} brokers have stopped")


def _table(network: LocalNetwork, states: list[dict[str, Any] | None] | None = None) -> Table:
    table = Table(*_COLUMNS, box=None, pad_edge=False, padding=(0, 1, 0, 0))  # for 80 characters a line
    for column in table.columns:
        column.no_wrap = column.header != "links"
        column.min_width = len(str(column.header))
    for broker, state in zip(network.brokers, states or asyncio.run(network.status()), strict=True):
        shown = broker.address.removeprefix("tcp://")
        if state is None:
            table.add_row(broker.name, shown, "[red]does not answer[/red]")
            continue
        links, clients = state["links"], state["clients"]
        missing = [name for name in broker.links if name not in links]
        table.add_row(
            broker.name,
            shown,
            ", ".join(links) + (f" [red](not {', '.join(missing)})[/red]" if missing else ""),
            str(len(clients) - 1),  # without the one that asks
            f"{state['published']:,}",
            f"{state['delivered']:,}",
            f"{sum(link['sent'] for link in links.values()):,}",
            f"{sum(client['dropped'] for client in clients.values()):,}",
        )
    return table
