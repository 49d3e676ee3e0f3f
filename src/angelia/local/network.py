"""Broker processes on loopback: start them, see that they are linked, find them again, stop them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from angelia.bus.network import TOPOLOGIES
from angelia.client import connect
from angelia.errors import AngeliaError, BrokerError, RequestError
from angelia.routing import ROUTERS

__all__ = ["LocalBroker", "LocalNetwork", "default_directory", "load_network"]

START = 30.0  # seconds that brokers have to be ready and linked
STOP = 10.0  # seconds that they have to end
_ACYCLIC = ("peer", "advertisement", "hierarchical", "hybrid")


def default_directory() -> Path:
    """Where the network that is up is noted."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "angelia"


@dataclass
class LocalBroker:
    """A broker process: its name, addresses, and the brokers that it connects to."""

    name: str
    address: str
    links: list[str]  # all, by name
    pid: int = 0
    http: str | None = None
    arguments: list[str] = field(default_factory=list)


class LocalNetwork:
    """Brokers `b1` … `bn` with a topology and a routing; logs and `network.json` are in a directory."""

    def __init__(self, directory: Path, brokers: list[LocalBroker]) -> None:
        self.directory = directory
        self.brokers = brokers
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    # ------------------------------------------------ making one

    @classmethod
    def plan(
        cls,
        directory: Path,
        count: int,
        topology: str = "tree",
        routing: str = "peer",
        *,
        port: int = 0,
        http_port: int | None = None,
        lake: Path | None = None,
        options: Sequence[str] = (),
    ) -> LocalNetwork:
        """A network that is not started yet. Port 0: any that are free."""
        _check(count, topology, routing)
        for first in (port, http_port or 0):
            if first + count - 1 > 65535:
                raise RequestError(f"{count} ports from {first} on: the last port is 65535")
        ports = list(range(port, port + count)) if port else free_ports(count)
        names = [f"b{number}" for number in range(1, count + 1)]
        brokers = [
            LocalBroker(name, f"tcp://127.0.0.1:{p}", []) for name, p in zip(names, ports, strict=True)
        ]
        for number, broker in enumerate(brokers):
            broker.arguments = [f"--name={broker.name}", f"--listen={broker.address}", f"--routing={routing}"]
            if http_port is not None:
                chosen = http_port + number if http_port else free_ports(1)[0]
                broker.http = f"http://127.0.0.1:{chosen}"
                broker.arguments.append(f"--http=127.0.0.1:{chosen}")
            if lake is not None:
                broker.arguments.append(f"--lake={lake}")
            broker.arguments += options
        for upper, lower in TOPOLOGIES[topology](count):
            above, below = brokers[upper - 1], brokers[lower - 1]
            flag = "--master" if routing in ("hierarchical", "hybrid") else "--peer"
            below.arguments.append(f"{flag}={above.address}")
            above.links.append(below.name)
            below.links.append(above.name)
        return cls(directory, brokers)

    def start(self) -> None:
        """Start all processes and wait until every link is there; or stop them, and say what was wrong."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BrokerError(f"cannot write to {self.directory}: {error.strerror}") from None
        try:
            for broker in self.brokers:
                self.start_one(broker.name)
            self.save()
            asyncio.run(self._linked(time.monotonic() + START))
        except BaseException:
            self.stop()
            raise

    def start_one(self, name: str) -> None:
        """Start, or start again, one broker, without waiting for its links."""
        broker = self[name]
        command = [sys.executable, "-m", "angelia", "broker", *broker.arguments]
        with self.log(name).open("ab") as log:
            # A session of its own: Ctrl-C is for who started it, who then stops it in an orderly way.
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._processes[name] = process
        broker.pid = process.pid

    async def _linked(self, deadline: float) -> None:
        for broker in self.brokers:
            while not await self._is_linked(broker):
                for one in self.brokers:  # a link is missing, too, if it is the other one that has ended
                    self._check_alive(one.name)
                if time.monotonic() > deadline:
                    raise BrokerError(
                        f"{broker.name} is not linked after {START:g} s; see {self.log(broker.name)}"
                    )
                await asyncio.sleep(0.05)

    async def _is_linked(self, broker: LocalBroker) -> bool:
        state = await describe(broker)
        return state is not None and set(state["links"]) >= set(broker.links)

    def _check_alive(self, name: str) -> None:
        process = self._processes.get(name)
        if process is not None and process.poll() is not None:
            lines = self.log(name).read_text("utf-8", "replace").strip().splitlines()
            said = lines[-1].removeprefix("error: ") if lines else "it said nothing"
            raise BrokerError(f"{name} did not start: {said}")

    def wait_linked(self) -> None:
        """Wait until every link is there."""
        asyncio.run(self._linked(time.monotonic() + START))

    # ------------------------------------------------ looking at it

    def __getitem__(self, name: str) -> LocalBroker:
        for broker in self.brokers:
            if broker.name == name:
                return broker
        raise RequestError(
            f"there is no broker {name!r}; there are {', '.join(b.name for b in self.brokers)}"
        )

    def log(self, name: str) -> Path:
        """The log of a broker."""
        return self.directory / f"{name}.log"

    @property
    def addresses(self) -> list[str]:
        """Where clients connect."""
        return [broker.address for broker in self.brokers]

    async def status(self) -> list[dict[str, Any] | None]:
        """The state of each broker; None of one that does not answer."""
        return await asyncio.gather(*map(describe, self.brokers))

    def save(self) -> None:
        """Note the network, so that another process finds it."""
        text = json.dumps([asdict(broker) for broker in self.brokers], indent=2)
        part = self.directory / "network.json.part"
        part.write_text(text)
        part.replace(self.directory / "network.json")

    # ------------------------------------------------ ending it

    def kill(self, name: str) -> None:
        """End a broker without warning (SIGKILL)."""
        process = self._processes[name]
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Stop all brokers in an orderly way; those that do not end are killed."""
        gone = [broker for broker in self.brokers if broker.pid and self._signal(broker, signal.SIGTERM)]
        deadline = time.monotonic() + STOP
        while gone and time.monotonic() < deadline:
            gone = [broker for broker in gone if self._is_alive(broker)]
            time.sleep(0.02)
        for broker in gone:
            self._signal(broker, signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        with suppress(FileNotFoundError, NotADirectoryError):
            (self.directory / "network.json").unlink()

    def stop_surely(self) -> bool:
        """Stop all brokers, however often somebody presses Ctrl-C meanwhile; whether somebody did."""
        numbers = signal.SIGINT, signal.SIGTERM
        asked: list[int] = []
        before = [signal.signal(number, lambda got, _: asked.append(got)) for number in numbers]
        try:
            self.stop()
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
        return bool(asked)

    def _signal(self, broker: LocalBroker, number: signal.Signals) -> bool:
        if not self._is_alive(broker):
            return False
        with suppress(ProcessLookupError):
            os.kill(broker.pid, number)
        return True

    def _is_alive(self, broker: LocalBroker) -> bool:
        """Whether the process is there, and is the broker: a number may have gone to another process."""
        process = self._processes.get(broker.name)
        if process is not None:
            return process.poll() is None
        shown = subprocess.run(
            ["ps", "-o", "args=", "-p", str(broker.pid)], capture_output=True, text=True, check=False
        )
        return f"--name={broker.name}" in shown.stdout and broker.address in shown.stdout

    def __enter__(self) -> LocalNetwork:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


async def describe(broker: LocalBroker) -> dict[str, Any] | None:
    """The state of a broker; None if it does not answer."""
    try:
        async with connect(broker.address, timeout=2.0) as client:
            return await client.describe()
    except AngeliaError:
        return None


def load_network(directory: Path) -> LocalNetwork:
    """The network that is noted in a directory."""
    try:
        rows = json.loads((directory / "network.json").read_text("utf-8"))
        return LocalNetwork(directory, [LocalBroker(**row) for row in rows])
    except FileNotFoundError:
        raise BrokerError("no network is up; start one with: angelia up") from None
    except (ValueError, TypeError) as error:
        raise BrokerError(f"{directory / 'network.json'} is damaged ({error}); remove it") from None


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _check(count: int, topology: str, routing: str) -> None:
    def known(what: str, name: str, names: Iterable[str]) -> None:
        if name not in names:
            raise RequestError(f"there is no {what} {name!r}; there are {', '.join(names)}")

    known("topology", topology, TOPOLOGIES)
    known("routing", routing, ROUTERS)
    if not 1 <= count <= 64:
        raise RequestError(f"a local network has 1 to 64 brokers, not {count}")
    if topology == "ring" and count > 2 and routing in _ACYCLIC:
        raise RequestError(
            f"routing {routing} needs a network without cycles; a ring goes with general or flooding"
        )
