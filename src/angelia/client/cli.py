"""The commands of a client: publish, subscribe, types."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Semaphore, Thread
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from angelia.client.aio import RemoteClient, connect
from angelia.client.rows import Row, event_of, from_arguments, from_file
from angelia.errors import AngeliaError, RequestError
from angelia.event import Event, format_timestamp
from angelia.filter import Filter
from angelia.types import EventType
from angelia.types.schema import from_json_schema, to_json_schema

__all__ = ["Broker", "Ca", "Token", "as_json", "publish", "subscribe", "types"]

Broker = Annotated[
    list[str] | None,
    typer.Option("--broker", "-b", envvar="ANGELIA_BROKER", help="A broker; several are alternatives."),
]
Token = Annotated[str | None, typer.Option(envvar="ANGELIA_CLIENT_TOKEN", help="The token to present.")]
Ca = Annotated[
    Path | None, typer.Option(envvar="ANGELIA_CLIENT_CA", help="The authority of tls:// brokers (PEM).")
]

_CHUNK, _CHUNK_BYTES = 512, 200_000  # in a batch, at most

types = typer.Typer(help="Event types: list, show, define, remove.", no_args_is_help=True)


# ---------------------------------------------------------------- publish


def publish(
    attributes: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]…", help="One event: price=420 dest=DEN.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Events: JSON lines (- for stdin), .csv or .parquet."),
    ] = None,
    type_name: Annotated[str | None, typer.Option("--type", help="The type of the events.")] = None,
    source: Annotated[str | None, typer.Option(help="The source of the events.")] = None,
    subject: Annotated[str | None, typer.Option(help="The subject of the events.")] = None,
    advertisement: Annotated[
        str | None, typer.Option("--advertise", help="Advertise this first: 'flights.Quote: true'.")
    ] = None,
    broker: Broker = None,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Publish one event given as arguments, or the events of a file, or of stdin."""
    context: dict[str, Any] = {"type": type_name, "source": source, "subject": subject}
    if attributes and file is not None:
        raise RequestError("give either one event as arguments, or a file")
    if attributes:
        rows: Iterator[Row] = iter([from_arguments(attributes)])
        total: int | None = 1
    else:
        if file is None and sys.stdin.isatty():
            raise RequestError("give an event as arguments (price=420), or --file, or JSON lines on stdin")
        rows, total = from_file(file)
    Event({}, **context)  # which refuses what cannot be, before anybody is asked
    client = connect(*(broker or ()), token=token, ca=ca)
    count = asyncio.run(_publish_rows(client, rows, context, total, advertisement))
    if not attributes:
        typer.echo(f"{count} events published", err=True)


async def _publish_rows(
    client: RemoteClient,
    rows: Iterator[Row],
    context: dict[str, Any],
    total: int | None,
    advertisement: str | None,
) -> int:
    count = 0
    started = time.perf_counter()
    async with client as bus:
        await _learn_types(bus, context["type"])
        if advertisement is not None:
            await bus.advertise(advertisement)
        with _progress(total) as progress:
            task = progress.add_task("publishing", total=total, rate="")
            try:
                async for batch in _Feed(event_of(row, context, bus.registry) for row in rows):
                    await bus.publish_all(batch)
                    count += len(batch)
                    rate = count / (time.perf_counter() - started)
                    progress.update(task, completed=count, rate=f"{rate:,.0f} events/s")
            except AngeliaError as error:
                if total != 1:
                    error.args = (f"{error} ({count} events were published before)",)
                raise
    return count


async def _learn_types(bus: RemoteClient, name: str | None = None) -> None:
    """Have the broker tell the types that it knows, which come with or before its answer."""
    if name is not None:
        await bus.interest(Filter.of_type(name))  # a broker of Hermes asks for a type when it is named
    await bus.interest("true")


class _Feed:
    """Events that are read in a thread of their own, in batches of what is there, that fit into a frame.

    Who writes to our stdin may take its time: the connection lives on meanwhile, and an event does not wait
    for others to come after it.
    """

    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events
        self._ready: deque[Event] = deque()
        self._room = Semaphore(4 * _CHUNK)
        self._end: BaseException | None = None  # StopIteration, or what was wrong
        self._news = asyncio.Event()
        self._is_waiting = False
        self._loop = asyncio.get_running_loop()

    def _read(self) -> None:
        try:
            for event in self._events:
                self._room.acquire()
                self._ready.append(event)
                self._wake()
            self._end = StopIteration()
        except Exception as error:
            self._end = error
        self._wake()

    def _wake(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._news.set)

    async def __aiter__(self) -> AsyncIterator[list[Event]]:
        Thread(target=self._read, daemon=True).start()
        while True:
            self._news.clear()
            self._is_waiting = True
            if not self._ready and self._end is None:
                await self._news.wait()
            self._is_waiting = False
            if batch := self._batch():
                yield batch
            elif self._end is not None and not self._ready:
                if not isinstance(self._end, StopIteration):
                    raise self._end
                return

    def _batch(self) -> list[Event]:
        batch: list[Event] = []
        size = 0
        while self._ready and len(batch) < _CHUNK:
            size += self._ready[0].encoded_size()
            if batch and size > _CHUNK_BYTES:
                break
            batch.append(self._ready.popleft())
            self._room.release()
        return batch


def _progress(total: int | None) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=total == 1 or not console.is_terminal,
    )


# ---------------------------------------------------------------- subscribe


def subscribe(
    wanted: Annotated[str, typer.Argument(metavar="FILTER", help="A filter or pattern: 'price < 500'.")],
    count: Annotated[int | None, typer.Option(min=1, help="End after so many events.")] = None,
    seconds: Annotated[float | None, typer.Option("--for", help="End after so many seconds.")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="First what was published from this time on, as 2026-01-01T00:00:00Z."),
    ] = None,
    broker: Broker = None,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Print the events that match, a JSON object a line; of a pattern, an array of them."""
    if seconds is not None and seconds <= 0:
        raise RequestError("--for takes a number of seconds above 0")
    with suppress(KeyboardInterrupt):
        client = connect(*(broker or ()), token=token, ca=ca)
        asyncio.run(_print_events(client, wanted, count, seconds, since))


async def _print_events(
    client: RemoteClient, wanted: str, count: int | None, seconds: float | None, since: str | None
) -> None:
    async with client as bus, bus.subscribe(wanted, since=since) as events:
        left = count
        async for item in _for(events, seconds):
            found = [as_json(event) for event in item] if isinstance(item, tuple) else as_json(item)
            print(json.dumps(found, ensure_ascii=False), flush=True)
            if left is not None:
                left -= 1
                if left == 0:
                    return


async def _for(events: AsyncIterator[Any], seconds: float | None) -> AsyncIterator[Any]:
    """The events of so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            async for event in events:
                yield event
    except TimeoutError:
        return


def as_json(event: Event) -> dict[str, Any]:
    """An event as a JSON object: its attributes, and its context under `@id` and so on."""
    context = {f"@{name}": event.get(f"@{name}") for name in ("id", "type", "source", "subject", "time")}
    both = {**{name: value for name, value in context.items() if value is not None}, **event.attributes}
    return {name: _plain(value) for name, value in both.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_timestamp(value)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


# ---------------------------------------------------------------- types


@types.command("list")
def _list_types(broker: Broker = None, token: Token = None, ca: Ca = None) -> None:
    """List the event types that a broker knows."""

    async def run(bus: RemoteClient) -> None:
        registry = bus.registry
        table = Table("type", "parent", "version", "attributes", box=None)
        for column in table.columns:
            column.overflow = "fold"  # a name that is cut off is of no use
        for name in sorted(registry):
            known = registry.get(name)
            own = ", ".join(f"{key}: {attribute}" for key, attribute in known.attributes.items())
            table.add_row(name, known.parent or "", str(known.version), own)
        Console().print(table)

    asyncio.run(_with_bus(run, broker, token, ca))


@types.command("show")
def _show_type(
    name: Annotated[str, typer.Argument(help="The name of a type.")],
    broker: Broker = None,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Print an event type as JSON Schema."""

    async def run(bus: RemoteClient) -> None:
        await _learn_types(bus, name)
        typer.echo(json.dumps(to_json_schema(bus.registry.get(name), bus.registry), indent=2))

    asyncio.run(_with_bus(run, broker, token, ca))


@types.command("define")
def _define_type(
    file: Annotated[Path, typer.Argument(help="A JSON Schema of an event type.")],
    name: Annotated[str | None, typer.Option(help="The name of the type, if the schema has none.")] = None,
    broker: Broker = None,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Add an event type, or change it in a compatible way."""
    try:
        schema = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise RequestError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise RequestError(f"{file} is not valid JSON: {error}") from None
    new: EventType = from_json_schema(schema, name)

    async def run(bus: RemoteClient) -> None:
        await bus.define(new)

    asyncio.run(_with_bus(run, broker, token, ca))
    typer.echo(f"{new.name} is defined")


@types.command("remove")
def _remove_type(
    name: Annotated[str, typer.Argument(help="The name of a type.")],
    owner: Annotated[str | None, typer.Option(help="Who removes it, if the type has an owner.")] = None,
    broker: Broker = None,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Remove an event type; what anybody has subscribed to and advertised of it is over."""

    async def run(bus: RemoteClient) -> None:
        await bus.remove_type(name, owner)

    asyncio.run(_with_bus(run, broker, token, ca))
    typer.echo(f"{name} is removed")


async def _with_bus(run: Any, brokers: list[str] | None, token: str | None, ca: Path | None) -> None:
    async with connect(*(brokers or ()), token=token, ca=ca) as bus:
        await _learn_types(bus)
        await run(bus)
