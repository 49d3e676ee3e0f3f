"""Rounds of the broker benchmark: so many events are sent, and a consumer process tells when it has them all.

This process publishes; all ten consumer connections are in another one. What both have in memory before
they connect, above all the events and what matches them, is kept from the garbage collector, so that its
pauses are those of what is measured. Every wait has an end. A round in which not exactly the expected number
arrives within that time is an error, not a figure.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import re
import selectors
import signal
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import uvloop

from clients import PythonClient
from raw import PATIENCE, Raw, TooSlowError
from traffic import MARK, NOT_YET, Traffic

BATCH = 128  # events that are sent together, at most
ROUND = 45.0  # seconds that a round may take
WARM = 25.0  # seconds that a server has to come to its speed
TICK = 0.001  # seconds between sending, at a given rate
_STAMPS = re.compile(re.escape(MARK) + b"(.{8})", re.DOTALL)
_STAMPED = len(NOT_YET)

_context = multiprocessing.get_context("fork")


class Heard(NamedTuple):
    """When the last event of a round had come, and how long each was under way."""

    at: float
    delays: np.ndarray[Any, Any]


class Expect(NamedTuple):
    """How many events are to come, and whether their times are wanted."""

    count: int
    timed: bool


# ---------------------------------------------------------------- consumers


class Consumers:
    """A process with the consumer connections. It answers what it is sent, and ends with the pipe."""

    def __init__(self, run: Callable[[Pipe], None]) -> None:
        self._pipe, theirs = _context.Pipe()
        self._process = _context.Process(target=_child, args=(run, theirs, self._pipe), daemon=True)
        self._process.start()
        theirs.close()

    def wait(self, seconds: float) -> Any:
        """What it tells next; a `TooSlowError` if it tells nothing."""
        if not self._pipe.poll(seconds):
            raise TooSlowError(f"not done within {seconds:g} s")
        try:
            told = self._pipe.recv()
        except EOFError:
            raise RuntimeError("the consumers have come to an early end") from None
        if isinstance(told, Exception):
            raise told
        return told

    def expect(self, count: int, timed: bool) -> None:
        """Tell it what comes next."""
        self._pipe.send(Expect(count, timed))
        self.wait(10.0)

    def surplus(self) -> int:
        """How many events came that nobody expected."""
        self.expect(0, False)
        return int(self.wait(10.0))

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.terminate()
        self._process.join(5)
        self._process.kill()
        self._process.join()


def _child(run: Callable[[Pipe], None], pipe: Pipe, parents: Pipe) -> None:
    parents.close()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        run(pipe)
    except (EOFError, KeyboardInterrupt):
        pass  # nobody wants more
    except TimeoutError:
        pipe.send(TooSlowError(f"subscribing takes longer than {PATIENCE:g} s"))
    except Exception as error:
        pipe.send(
            error if isinstance(error, TooSlowError) else RuntimeError(f"{type(error).__name__}: {error}")
        )


def raw_consumers(raw: Raw, traffic: Traffic) -> Callable[[Pipe], None]:
    """Sockets whose bytes are looked through for marks, and nothing else."""

    def run(pipe: Pipe) -> None:
        deadline = time.monotonic() + PATIENCE
        sockets = []
        for number, wishes in enumerate(traffic.wishes):
            sockets.append(raw.consumer(number, wishes))
            if time.monotonic() > deadline:
                raise TimeoutError
        pipe.send("ready")
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            for one in sockets:
                selector.register(one, selectors.EVENT_READ, _Sink(one))
            while True:
                expect = pipe.recv()
                pipe.send("ok")
                pipe.send(_listen(selector, expect) if expect.count else _unexpected(selector))

    return run


class _Sink:
    """Finds the marks of events in what comes in at a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def take(self, timed: bool) -> tuple[int, bytes]:
        """How many events have come, and their times if they are wanted."""
        data = self._connection.recv(1 << 20)
        if not data:
            raise ConnectionError("the server has closed the connection of a consumer")
        data = self._rest + data
        self._rest = data[-_STAMPED + 1 :]  # here one may have begun
        if timed:
            stamps = _STAMPS.findall(data)
            return len(stamps), b"".join(stamps)
        return data.count(MARK, 0, len(data) - 8), b""


def _listen(selector: selectors.BaseSelector, expect: Expect) -> Heard:
    count, delays = 0, []
    while count < expect.count:
        for key, _ in selector.select():
            if key.data is None:
                raise EOFError  # from the pipe: nobody waits any more
            found, stamps = key.data.take(expect.timed)
            count += found
            if stamps:
                delays.append(time.perf_counter() - np.frombuffer(stamps, ">f8"))
    if count > expect.count:
        raise RuntimeError(f"{count} events have come, not {expect.count}")
    return Heard(time.perf_counter(), np.concatenate(delays) if delays else np.zeros(0))


def _unexpected(selector: selectors.BaseSelector) -> int:
    return sum(key.data.take(False)[0] for key, _ in selector.select(0.0) if key.data is not None)


def python_consumers(client: PythonClient, traffic: Traffic) -> Callable[[Pipe], None]:
    """Connections of a client library in one event loop."""
    return lambda pipe: uvloop.run(_consume(client, traffic, pipe))


async def _consume(client: PythonClient, traffic: Traffic, pipe: Pipe) -> None:
    tally, loop = _Tally(pipe), asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        ready = [client.consume(number, wishes, tally.told) for number, wishes in enumerate(traffic.wishes)]
        kept = await asyncio.gather(*ready)
    gc.collect()
    gc.freeze()  # as an application does that is set up, and minds pauses
    pipe.send("ready")
    loop.add_reader(pipe.fileno(), tally.asked)
    os.set_blocking(pipe.fileno(), True)  # uvloop has changed that, and answers may be long
    await tally.over.wait()
    del kept


class _Tally:
    """Counts what the application is told."""

    def __init__(self, pipe: Pipe) -> None:
        self.over = asyncio.Event()
        self._pipe = pipe
        self._expect = Expect(0, False)
        self._count = 0
        self._delays: list[float] = []

    def asked(self) -> None:
        """The other process tells what to expect, or is gone."""
        try:
            self._expect = self._pipe.recv()
            self._pipe.send("ok")
            if not self._expect.count:
                self._pipe.send(self._count)
        except (EOFError, OSError):
            self.over.set()

    def told(self, sent: float) -> None:
        """An event has come."""
        self._count += 1
        if self._expect.timed:
            self._delays.append(time.perf_counter() - sent)
        if self._count == self._expect.count:
            self._pipe.send(Heard(time.perf_counter(), np.array(self._delays)))
            self._count, self._delays = 0, []


# ---------------------------------------------------------------- publishers


class Publisher(Protocol):
    """Sends the first so many events, over and over if they are fewer."""

    def flood(self, count: int) -> float:
        """As fast as they are taken; returns when it began."""

    def pace(self, count: int, rate: float) -> None:
        """So many a second, each with the time it was sent at."""

    def close(self) -> None:
        """Leave."""


def _ticks(count: int, rate: float) -> Iterator[tuple[int, int]]:
    """The numbers of the events that are due, tick by tick."""
    began, done = time.perf_counter(), 0
    while done < count:
        due = min(count, int((time.perf_counter() - began) * rate) + 1, done + BATCH)
        yield done, due
        done = due


class RawPublisher:
    """Sends what was packed before; times are written into the bytes."""

    def __init__(self, raw: Raw, traffic: Traffic) -> None:
        self._raw = raw
        self._messages = [raw.message(event) for event in traffic.events]
        starts = range(0, len(self._messages), BATCH)
        self._packs = [raw.pack(self._messages[start : start + BATCH]) for start in starts]
        self.connection = raw.publisher()

    def flood(self, count: int) -> float:
        """As fast as they are taken; returns when it began."""
        whole, rest = divmod(count, BATCH)
        last = self._raw.pack(self._some(whole * BATCH, count))
        began = time.perf_counter()
        for number in range(whole):
            self.connection.sendall(self._packs[number % len(self._packs)])
        if rest:
            self.connection.sendall(last)
        return began

    def pace(self, count: int, rate: float) -> None:
        """So many a second, each with the time it was sent at."""
        for start, stop in _ticks(count, rate):
            if start < stop:
                pack = self._raw.pack(self._some(start, stop))
                stamp = np.array(time.perf_counter(), ">f8").tobytes()
                self.connection.sendall(pack.replace(NOT_YET, MARK + stamp))
            else:
                time.sleep(TICK)

    def _some(self, start: int, stop: int) -> list[bytes]:
        return [self._messages[number % len(self._messages)] for number in range(start, stop)]

    def close(self) -> None:
        """Leave."""
        self.connection.close()


class PythonPublisher:
    """Publishes dictionaries with a client library."""

    def __init__(self, client: PythonClient, traffic: Traffic) -> None:
        self._client = client
        self._events = traffic.events

    def flood(self, count: int) -> float:
        """As fast as they are taken; returns when it began."""
        return uvloop.run(self._flood(count))

    def pace(self, count: int, rate: float) -> None:
        """So many a second, each with the time it was sent at."""
        uvloop.run(self._pace(count, rate))

    async def _flood(self, count: int) -> float:
        async with self._client.publisher() as publish, asyncio.timeout(ROUND):
            began = time.perf_counter()
            for start in range(0, count, BATCH):
                await publish(self._some(start, min(count, start + BATCH)), 0.0)
                await asyncio.sleep(0)
        return began

    async def _pace(self, count: int, rate: float) -> None:
        async with self._client.publisher() as publish, asyncio.timeout(ROUND):
            for start, stop in _ticks(count, rate):
                if start < stop:
                    await publish(self._some(start, stop), time.perf_counter())
                await asyncio.sleep(TICK)

    def _some(self, start: int, stop: int) -> list[dict[str, Any]]:
        return [self._events[number % len(self._events)] for number in range(start, stop)]

    def close(self) -> None:
        """It has left after each round."""


# ---------------------------------------------------------------- measuring


class Rounds:
    """Consumers, a publisher, and how many deliveries each event makes."""

    def __init__(
        self, consumers: Consumers, publisher: Publisher, deliveries: list[int], servers: list[int]
    ) -> None:
        self._consumers = consumers
        self._publisher = publisher
        self._deliveries = deliveries
        self._processes = {"server": servers, "consumers": [consumers.pid], "publisher": [os.getpid()]}

    def flood(self, count: int) -> float:
        """Events a second, until the last one has come."""
        self._consumers.expect(self._expected(count), False)
        began = self._publisher.flood(count)
        heard: Heard = self._consumers.wait(ROUND)
        return count / (heard.at - began)

    def pace(self, count: int, rate: float) -> np.ndarray[Any, Any]:
        """How long events were under way, in seconds, at a rate."""
        self._consumers.expect(self._expected(count), True)
        self._publisher.pace(count, rate)
        heard: Heard = self._consumers.wait(ROUND)
        return heard.delays

    def _expected(self, count: int) -> int:
        cycles, rest = divmod(count, len(self._deliveries))
        return cycles * sum(self._deliveries) + sum(self._deliveries[:rest])

    def cpu(self) -> dict[str, float]:
        """Seconds of CPU time that were used so far, and by whom."""
        return {who: sum(map(_cpu_seconds, pids)) for who, pids in self._processes.items()}

    def finish(self) -> None:
        """Check that no more has come than was expected."""
        time.sleep(0.2)
        surplus = self._consumers.surplus()
        if surplus:
            raise RuntimeError(f"{surplus} events have come that were not expected")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    rounds: Rounds, is_warm: Callable[[], bool], seconds: float, also: float | None = None
) -> dict[str, Any]:
    """Throughput, the median of three rounds; who used the CPU; and latency at half of the throughput.

    `also` is another rate to tell the latency at: half of what a peer reached.
    """
    rate = _warm(rounds, is_warm, seconds)
    count, before = _some_events(rate * seconds / 3), rounds.cpu()
    rate = statistics.median(rounds.flood(count) for _ in range(3))
    used = {who: (now - before[who]) / (3 * count) for who, now in rounds.cpu().items()}
    half = _latency(rounds, rate / 2, seconds)
    other = {} if also is None else {"at_peers_half_load": _latency(rounds, also, seconds)}
    rounds.finish()
    return {
        "events_per_s": round(rate, 1),
        "p50_ms": half["p50_ms"],
        "p99_ms": half["p99_ms"],
        "cpu_us_per_event": {who: round(1e6 * each, 1) for who, each in used.items()},
        **other,
    }


def _latency(rounds: Rounds, rate: float, seconds: float) -> dict[str, float]:
    delays = 1000 * rounds.pace(_some_events(rate * seconds), rate)
    p50, p99 = np.percentile(delays, (50, 99))
    return {"rate": round(rate, 1), "p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3)}


def _warm(rounds: Rounds, is_warm: Callable[[], bool], seconds: float) -> float:
    """Send more and more until the server is ready and the rate does not change any more; returns it."""
    deadline, rate, count = time.monotonic() + WARM, 0.0, 16
    while True:
        before, rate = rate, rounds.flood(count)
        while not is_warm() and time.monotonic() < deadline:
            time.sleep(0.2)  # a broker that is left alone loads its engine sooner
        is_stable = count >= rate * seconds / 10 and abs(rate - before) < 0.15 * rate
        if is_stable or time.monotonic() > deadline:
            return rate
        count = _some_events(min(8 * count, rate * seconds / 6))


def _some_events(count: float) -> int:
    """A number of events: whole batches, if there are enough."""
    return max(16, int(count) if count < 8 * BATCH else int(count) // BATCH * BATCH)


def run_raw(raw: Raw, traffic: Traffic, servers: list[int], seconds: float) -> dict[str, Any]:
    """Measure with raw sockets."""
    return _run(
        raw_consumers(raw, traffic),
        raw.settle,
        raw.is_warm,
        lambda: RawPublisher(raw, traffic),
        traffic.connections if raw.once else traffic.subscriptions,
        servers,
        seconds,
    )


def run_python(
    client: PythonClient, traffic: Traffic, servers: list[int], seconds: float, also: float | None = None
) -> dict[str, Any]:
    """Measure with a client library; `also` at another rate."""
    return _run(
        python_consumers(client, traffic),
        lambda: uvloop.run(client.settle()),
        lambda: uvloop.run(client.is_warm()),
        lambda: PythonPublisher(client, traffic),
        traffic.connections if client.once else traffic.subscriptions,
        servers,
        seconds,
        also,
    )


def _run(
    consume: Callable[[Pipe], None],
    settle: Callable[[], None],
    is_warm: Callable[[], bool],
    publisher: Callable[[], Publisher],
    deliveries: list[int],
    servers: list[int],
    seconds: float,
    also: float | None = None,
) -> dict[str, Any]:
    gc.collect()
    gc.freeze()
    began = time.monotonic()
    with closing(Consumers(consume)) as consumers:
        consumers.wait(PATIENCE + 10)
        settle()
        subscribed = time.monotonic() - began
        with closing(publisher()) as sender:
            measured = measure(Rounds(consumers, sender, deliveries, servers), is_warm, seconds, also)
    return {"subscribe_s": round(subscribed, 2), **measured}
