"""Broker processes against their peers, in one run: `python bench/broker.py`.

Prints JSON; some eight minutes, or two with `--quick`. `--write-docs` also writes its section of
`docs/benchmarks.md`. One broker and a line of three, 10 to 10,000 subscriptions on ten consumer connections,
raw and with the Python client, with filters that peers can express and with filters that they cannot;
RabbitMQ, NATS and Redis where they are installed. Servers are started on loopback, and ended. `traffic.py`
tells what is sent, and `rounds.py` how it is measured.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench")]  # it runs from a checkout, installed or not

# ruff: noqa: E402
from broker_report import find, section, targets
from clients import PYTHON
from raw import RAW, RawAngelia, TooSlowError
from report import machine, write_section
from rounds import BATCH, WARM, RawPublisher, run_python, run_raw
from servers import Angelia, Nats, NotInstalledError, Rabbit, Redis, Server
from traffic import Traffic, equalities, make_traffic, ranges

NATS = "NATS broadcast"  # measured first: others are also asked for their latency at half of its rate
SETS = {"equalities": equalities, "ranges": ranges}
COUNTS = (10, 1_000, 10_000)
INGESTED = 1_000  # subscriptions that match nothing
PROBLEMS = (TooSlowError, RuntimeError, OSError)


@dataclass(frozen=True)
class Case:
    """A system that is measured: how, and with which sets of subscriptions."""

    system: str
    serve: Callable[[], Server]
    protocol: str  # its name among the protocols and clients
    raw: tuple[str, ...] = ()
    python: tuple[str, ...] = ("equalities",)
    fresh: bool = False  # servers for each measurement


BOTH = ("equalities", "ranges")
CASES = (
    Case("Angelia", Angelia, "angelia", BOTH, BOTH, fresh=True),
    Case("Angelia, line of 3", lambda: Angelia(3), "angelia", BOTH, BOTH, fresh=True),
    Case("NATS subjects", Nats, "nats subjects", ("equalities",)),
    Case(NATS, Nats, "nats broadcast", python=BOTH),
    Case("Redis broadcast", Redis, "redis broadcast", python=BOTH),
    Case("RabbitMQ topic", Rabbit, "rabbitmq topic", ("equalities",)),
    Case("RabbitMQ headers", Rabbit, "rabbitmq headers", ("equalities",)),
)


class Bench:
    """All cases, one after the other."""

    def __init__(self, counts: tuple[int, ...], seconds: float) -> None:
        self.counts = counts
        self.seconds = seconds
        self.rows: list[dict[str, Any]] = []
        self._traffic: dict[tuple[str, int], Traffic] = {}

    def traffic(self, name: str, count: int) -> Traffic:
        """The same events and subscriptions for everybody."""
        if (name, count) not in self._traffic:
            self._traffic[name, count] = make_traffic(SETS[name](count))
        return self._traffic[name, count]

    def run(self, case: Case) -> None:
        """Measure a case, on one server or on several."""
        every = [
            (mode, name, count)
            for mode, names in (("raw", case.raw), ("Python", case.python))
            for name in names
            for count in self.counts
        ]
        for some in [[one] for one in every] if case.fresh else [every]:
            try:
                with case.serve() as server:
                    for one in some:
                        self._measure(case, server, *one)
            except NotInstalledError:
                self._add(case, "all", "", 0, {"problem": "not installed"})
            except PROBLEMS as error:
                self._add(case, "all", "", 0, {"problem": str(error)})

    def _measure(self, case: Case, server: Server, mode: str, name: str, count: int) -> None:
        rate = (
            find(self.rows, NATS, mode, "events_per_s", count, name) if case.protocol == "angelia" else None
        )
        also = None if rate is None else rate / 2
        try:
            found = _measured(mode, case, server, self.traffic(name, count), self.seconds, also)
        except PROBLEMS as error:
            found = {"problem": str(error)}
        self._add(case, mode, name, count, found)

    def _add(self, case: Case, mode: str, name: str, count: int, found: dict[str, Any]) -> None:
        row = {"system": case.system, "clients": mode, "set": name, "subscriptions": count, **found}
        note(" ".join(str(value) for value in row.values()))
        self.rows.append(row)


def _measured(
    mode: str, case: Case, server: Server, traffic: Traffic, seconds: float, also: float | None = None
) -> dict[str, Any]:
    if mode == "raw":
        found = run_raw(RAW[case.protocol](server), traffic, server.pids, seconds)
    else:
        found = run_python(PYTHON[case.protocol](server), traffic, server.pids, seconds, also)
    return {**found, "memory_mb": round(server.memory_mb(), 1)}


def ingestion(seconds: float) -> dict[str, Any]:
    """How many events a second one broker takes in batches, when no subscription matches any."""
    traffic = make_traffic(equalities(INGESTED, region="elsewhere"))
    with Angelia() as server:
        raw = RawAngelia(server)
        consumers = [raw.consumer(number, wishes) for number, wishes in enumerate(traffic.wishes)]
        with closing(RawPublisher(raw, traffic)) as publisher:
            rates = list(_ingested(raw, publisher, seconds))
        for one in consumers:
            one.close()
    rate = statistics.median(rates)
    return {"subscriptions": INGESTED, "batch": BATCH, "events_per_s": round(rate, 1), "rounds": len(rates)}


def _ingested(raw: RawAngelia, publisher: RawPublisher, seconds: float) -> Iterator[float]:
    latest, count = time.monotonic() + WARM, 64 * BATCH
    publisher.flood(count)
    raw.through(publisher.connection)
    while not raw.is_warm() and time.monotonic() < latest:
        time.sleep(0.2)
    deadline = time.monotonic() + 2 * seconds
    while time.monotonic() < deadline:
        began = publisher.flood(count)
        raw.through(publisher.connection)
        yield count / (time.perf_counter() - began)


def note(text: str) -> None:
    """Say on standard error what is going on."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to 1,000 subscriptions, and short rounds")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a measurement (default: 2)")
    parser.add_argument("--only", default="", help="systems whose name has this in it")
    parser.add_argument("--write-docs", action="store_true", help="write docs/benchmarks.md")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers are ended
    began, where = time.monotonic(), machine()
    note("compiling the matcher's kernels, if they are not in the cache")
    subprocess.run([sys.executable, "-c", "import angelia.matching.snapshot"], check=True, timeout=300)
    seconds = 0.5 if options.quick else options.seconds
    bench = Bench(COUNTS[:2] if options.quick else COUNTS, seconds)
    ingested = ingestion(seconds)
    note(f"ingestion {ingested}")
    for case in sorted(CASES, key=lambda case: case.system != NATS):
        if options.only.lower() in case.system.lower():
            bench.run(case)
    bench.rows.sort(key=lambda row: [case.system for case in CASES].index(row["system"]))
    result = {
        "machine": where,
        "seconds": round(time.monotonic() - began),
        "event_bytes": round(bench.traffic("equalities", 1_000).event_bytes),
        "ingestion": ingested,
        "results": bench.rows,
        "targets": targets(bench.rows, ingested),
    }
    print(json.dumps(result, indent=2))
    if options.write_docs:
        write_section("broker", section(result))


if __name__ == "__main__":
    main()
