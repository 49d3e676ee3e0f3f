"""The demonstration, step by step. Each step is checked; the demo fails if one does not come out right."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from angelia.client import RemoteClient, connect
from angelia.demo.flights import TYPES, load
from angelia.errors import BrokerError
from angelia.event import Event
from angelia.local import LocalNetwork
from angelia.pattern import Pattern
from angelia.pattern.matcher import SequenceMatcher
from angelia.types import TypeRegistry

__all__ = ["run"]

BROKERS = 5
PUBLISHER = 3  # the index of its broker: a leaf of the tree
BATCH = 256
PATIENCE = 60.0  # seconds that notifications have to arrive


Expected = dict[str, list[tuple[str, ...]]]  # by subscriber: the ids of the events of each notification


@dataclass
class Subscriber:
    """Somebody who wants something, where, and what came."""

    name: str
    broker: int
    wanted: str
    ids: list[tuple[str, ...]] = field(default_factory=list)  # of the events of each notification

    @property
    def pattern(self) -> Pattern:
        """What it wants."""
        return Pattern.parse(self.wanted)


def _subscribers() -> list[Subscriber]:
    return [
        Subscriber("late at JFK", 1, 'flights.Departure: origin = "JFK" and delay > 60'),
        Subscriber("to Denver or San Francisco", 4, 'flights.Flight: dest in ("DEN", "SFO")'),
        Subscriber("cancelled, whatever else", 2, "flights.Cancellation: true"),
        Subscriber("United, far away", 0, 'carrier = "UA" and distance > 2000'),
        Subscriber("planes N1…", 1, 'plane prefix "N1" and not delay < 30'),
        Subscriber(
            "trouble spreads",
            2,
            'flights.Cancellation: origin = "EWR" then flights.Cancellation: origin = "LGA"',
        ),
    ]


def run(limit: int | None) -> bool:
    """Run it all with the first `limit` flights (None: all); whether everything came out as it should."""
    console = Console(highlight=False)
    started = time.perf_counter()
    with console.status("reading the flights of 2013"):
        events = load(limit)
    subscribers = _subscribers()
    with console.status("evaluating every filter on every flight, to compare with later"):
        expected = _expected(events, subscribers)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: whatever was started is stopped
    with tempfile.TemporaryDirectory(prefix="angelia-demo-", ignore_cleanup_errors=True) as folder:
        network = LocalNetwork.plan(Path(folder), BROKERS, "tree", "peer", lake=Path(folder) / "lake")
        with console.status(f"starting {BROKERS} brokers"):
            network.start()
        try:
            console.print(
                f"[bold]{BROKERS} brokers[/bold] in a tree, each a process: {', '.join(network.addresses)}"
            )
            traffic = asyncio.run(_publish(console, network, events, subscribers, expected))
        finally:
            is_over = network.stop_surely()
        if is_over:
            raise KeyboardInterrupt
        right = _compare(console, expected, subscribers)
        _tell_traffic(console, traffic, len(events), "all delivered" if right else "not all delivered")
        right = _pipeline(console, Path(folder), subscribers) and right
    console.print(
        f"\n{'[green]All as it should be' if right else '[red]Not as it should be'}[/] after "
        f"{time.perf_counter() - started:.0f} s."
    )
    command = "angelia" if shutil.which("angelia") else Path(sys.executable).with_name("angelia")
    console.print(
        f"Next: [bold]{command} up[/bold] keeps a network for playing; "
        "[bold]angelia subscribe 'price < 500'[/bold] and [bold]angelia publish price=420[/bold] use it; "
        "the guides are in docs/."
    )
    return right


# ---------------------------------------------------------------- live


async def _publish(
    console: Console,
    network: LocalNetwork,
    events: list[Event],
    subscribers: Sequence[Subscriber],
    expected: Expected,
) -> dict[str, float]:
    """Subscribe, publish everything, and wait for what must come; returns what went over the links."""
    clients = [await connect(broker.address, policy="block") for broker in network.brokers]
    publisher = await connect(network.brokers[PUBLISHER].address)
    for cls in TYPES:
        await publisher.define(cls)
    async with _patience():
        await _known(clients)
    subscriptions = [await clients[one.broker].subscribe(one.wanted, size=100_000) for one in subscribers]
    readers = [
        asyncio.create_task(_read(subscription, one))
        for subscription, one in zip(subscriptions, subscribers, strict=True)
    ]
    async with _patience():
        await _settled(network)
    before = await _sent(network)
    started = time.perf_counter()
    with _progress(console) as progress:
        task = progress.add_task("publishing flights", total=len(events), rate="")
        for start in range(0, len(events), BATCH):
            await publisher.publish_all(events[start : start + BATCH])
            done = min(start + BATCH, len(events))
            rate = done / (time.perf_counter() - started)
            progress.update(task, completed=done, rate=f"{rate:,.0f} events/s")
    wanted = sum(map(len, expected.values()))
    while sum(len(one.ids) for one in subscribers) < wanted and time.perf_counter() - started < PATIENCE:
        await asyncio.sleep(0.005)
    seconds = time.perf_counter() - started
    await asyncio.sleep(0.5)  # for what must not come
    traffic = {"sent": await _sent(network) - before, "seconds": seconds}
    for reader in readers:
        reader.cancel()
    for client in (*clients, publisher):
        await client.close()
    return traffic


async def _read(notifications: Any, subscriber: Subscriber) -> None:
    """Note what comes."""
    async for item in notifications:
        found = item if isinstance(item, tuple) else (item,)
        subscriber.ids.append(tuple(str(event.id) for event in found))


@asynccontextmanager
async def _patience() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except TimeoutError:
        raise BrokerError(f"the brokers were not ready after {PATIENCE:g} s") from None


async def _known(clients: Sequence[RemoteClient]) -> None:
    """Wait until every broker knows the event types."""
    for client in clients:
        while "flights.Cancellation" not in client.registry:
            await asyncio.sleep(0.01)


async def _settled(network: LocalNetwork) -> None:
    """Wait until the subscriptions are where they belong: nothing goes over the links any more."""
    before = -1
    while before != (before := await _sent(network)):
        await asyncio.sleep(0.3)


async def _sent(network: LocalNetwork) -> int:
    states = await network.status()
    return sum(link["sent"] for state in states if state for link in state["links"].values())


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        console=console,
    )


# ---------------------------------------------------------------- checked


def _expected(events: list[Event], subscribers: Sequence[Subscriber]) -> Expected:
    """What each must get: every event against every filter, one by one."""
    registry = TypeRegistry()
    for cls in TYPES:
        registry.add_class(cls)
    found: Expected = {}
    for subscriber in subscribers:
        pattern = subscriber.pattern
        if pattern.is_simple:
            (wanted,) = pattern.filters
            found[subscriber.name] = [(str(e.id),) for e in events if wanted.matches(e, registry)]
        else:
            monitor = SequenceMatcher.of(pattern)
            sequences = (monitor.see(event, registry) for event in events)
            found[subscriber.name] = [tuple(str(e.id) for e in one) for one in sequences if one is not None]
    return found


def _compare(console: Console, expected: Expected, subscribers: Sequence[Subscriber]) -> bool:
    table = Table("subscriber", "filter or pattern", "delivered", "expected", "")
    right = True
    for one in subscribers:
        same = sorted(one.ids) == sorted(expected[one.name])
        right = right and same
        mark = "[green]equal[/green]" if same else "[red]differs[/red]"
        table.add_row(one.name, one.wanted, f"{len(one.ids):,}", f"{len(expected[one.name]):,}", mark)
    console.print(table)
    return right


def _tell_traffic(console: Console, traffic: dict[str, float], published: int, how: str) -> None:
    flooding, sent = published * (BROKERS - 1), traffic["sent"]
    console.print(
        f"{published:,} events published, {published / traffic['seconds']:,.0f} a second, {how}. "
        f"{sent:,.0f} messages on links between brokers; flooding would have sent {flooding:,} "
        f"({flooding / max(1, sent):.1f} times as many)."
    )


def _pipeline(console: Console, folder: Path, subscribers: Sequence[Subscriber]) -> bool:
    """The same filters over what the brokers kept, on Spark, with the command that a user would give."""
    if find_spec("pyspark") is None:
        console.print("Spark is not installed: no look at the past (pip install 'angelia[pipeline]').")
        return True
    simple = [one for one in subscribers if one.pattern.is_simple]
    file, out = folder / "subscriptions.jsonl", folder / "pairs"
    file.write_text("".join(json.dumps({"id": one.name, "filter": one.wanted}) + "\n" for one in simple))
    command = ["pipeline", "match", "--lake", folder / "lake", "--subscriptions", file, "--out", out]
    with console.status("the pipeline on Spark matches what the brokers have kept"):
        done = subprocess.run(
            [sys.executable, "-m", "angelia", *map(str, command)], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        console.print(f"[red]the pipeline failed:[/red] {done.stderr.strip()[-2000:]}", markup=True)
        return False
    pairs = set(zip(*_columns(out, "event_id", "subscription_id"), strict=True))
    delivered = {(ids[0], one.name) for one in simple for ids in one.ids}
    same = pairs == delivered
    told = done.stdout.strip().splitlines()[-1].partition(";")[0]
    console.print(
        f"Spark over the lake: {len(pairs):,} matches, "
        + ("[green]equal[/green] to" if same else "[red]not equal[/red] to")
        + f" the {len(delivered):,} delivered notifications ({told})."
    )
    return same


def _columns(directory: Path, *names: str) -> list[list[str]]:
    from pyarrow.parquet import read_table

    table = read_table(directory)
    return [table.column(name).to_pylist() for name in names]
