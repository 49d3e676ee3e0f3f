"""The servers of the broker benchmark, each on loopback in a temporary directory, ended with its block.

Each has `port`, and `pids` whose memory is the server's. A server that is not on this machine raises a
`NotInstalledError`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from angelia.local.network import LocalNetwork, free_ports

START = 60.0  # seconds that a server has to answer


class NotInstalledError(Exception):
    """A server is not on this machine."""


class Server:
    """A server process and its helpers, in a directory of their own."""

    name = ""

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self._stack = ExitStack()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def pids(self) -> list[int]:
        """The processes whose memory counts."""
        return [self._processes[-1].pid]

    def memory_mb(self) -> float:
        """What it holds in memory now."""
        return sum(map(_resident, self.pids)) / 2**20

    def __enter__(self) -> Self:
        try:
            self.directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
            self.start()
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            _end(process)
        self._stack.close()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        raise NotImplementedError

    def run(self, *command: str, env: dict[str, str] | None = None) -> None:
        """Start a process that is ended with the server."""
        with (self.directory / f"{self.name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=self.directory,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that it ends with all that it has started
            )
        self._processes.append(process)

    def wait_for(self, is_ready: Callable[[], bool]) -> None:
        """Wait until it answers, or say what its log says."""
        deadline = time.monotonic() + START
        while not is_ready():
            if time.monotonic() > deadline or self._processes[-1].poll() is not None:
                log = (self.directory / f"{self.name}.log").read_text("utf-8", "replace")
                raise RuntimeError(f"{self.name} does not answer: {log[-500:]}")
            time.sleep(0.05)

    def answers(self, port: int, send: bytes = b"") -> bool:
        """Whether something says something at a port."""
        try:
            with socket.create_connection(("127.0.0.1", port), 1.0) as connection:
                connection.sendall(send)
                return bool(connection.recv(1))
        except OSError:
            return False


class Angelia(Server):
    """Brokers in a line: publishers connect to the first, consumers to the last."""

    name = "angelia"
    options = (
        "--queue=100000000",  # nothing is dropped: who publishes waits
        "--queue-bytes=268435456",
        "--policy=block",
        "--timeout=3600",  # raw clients give no signs of life
    )

    def __init__(self, brokers: int = 1) -> None:
        super().__init__()
        self.brokers = brokers

    def start(self) -> None:
        """Start the brokers and wait for their links."""
        self.network = LocalNetwork.plan(self.directory, self.brokers, "line", options=self.options)
        self._stack.enter_context(self.network)

    @property
    def pids(self) -> list[int]:
        """All brokers."""
        return [broker.pid for broker in self.network.brokers]

    @property
    def entry(self) -> str:
        """Where to publish."""
        return self.network.addresses[0]

    @property
    def exit(self) -> str:
        """Where to subscribe."""
        return self.network.addresses[-1]


class Nats(Server):
    """A NATS server that has room for what a slow consumer has not taken."""

    name = "nats-server"

    def start(self) -> None:
        """Start it and wait for its INFO."""
        program = _program("nats-server")
        settings = (
            f"listen: 127.0.0.1:{self.port}\nmax_pending: 1GB\nwrite_deadline: '60s'\nping_interval: '600s'\n"
        )
        (self.directory / "nats.conf").write_text(settings)
        self.run(program, "-c", "nats.conf")
        self.wait_for(lambda: self.answers(self.port))


class Redis(Server):
    """A Redis that keeps nothing on disk, and all that a slow consumer has not taken."""

    name = "redis-server"

    def start(self) -> None:
        """Start it and wait for its answer."""
        options = ["--save", "", "--appendonly", "no", "--client-output-buffer-limit", "pubsub 0 0 0"]
        self.run(_program("redis-server"), "--bind", "127.0.0.1", "--port", str(self.port), *options)
        self.wait_for(lambda: self.answers(self.port, b"PING\r\n"))


class Rabbit(Server):
    """A RabbitMQ without plug-ins, and its epmd."""

    name = "rabbitmq-server"
    _places = ("/usr/lib/rabbitmq/bin",)  # what is in /usr/sbin changes the user

    def start(self) -> None:
        """Start both and wait until AMQP is spoken."""
        program, epmd = _program("rabbitmq-server", self._places), _program("epmd")
        epmd_port, peer_port = free_ports(2)
        here = str(self.directory)
        env = {
            "HOME": here,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd_port),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(peer_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": here,
            "RABBITMQ_LOG_BASE": here,
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": f"{here}/none",
            "RABBITMQ_CONF_ENV_FILE": f"{here}/none",
            "RABBITMQ_PID_FILE": f"{here}/pid",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{here}/plugins",
            "RABBITMQ_GENERATED_CONFIG_DIR": here,
        }
        (self.directory / "plugins").write_text("[].\n")
        self.run(epmd, "-port", str(epmd_port), "-address", "127.0.0.1")
        self.run(program, env=env)
        self.wait_for(lambda: self.answers(self.port, b"AMQP\x00\x00\x09\x01"))

    @property
    def pids(self) -> list[int]:
        """Erlang's virtual machine, below the shell that started it."""
        group = os.getpgid(self._processes[-1].pid)
        return [pid for pid in _processes_of(group) if "beam" in _command(pid)]


def _program(name: str, places: Sequence[str] = ()) -> str:
    path = os.pathsep.join([*places, os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        raise NotInstalledError(name)
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process, and what is in its group: its own children, and nothing else."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)
            break
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _processes_of(group: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if os.getpgid(int(entry.name)) == group:
                found.append(int(entry.name))
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
