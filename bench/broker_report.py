"""What the broker benchmark says of its rows: the targets, and a section of `docs/benchmarks.md`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from report import short, table, today

Rows = list[dict[str, Any]]
LARGE, MIDDLE = 10_000, 1_000


def find(
    rows: Rows, system: str, clients: str, key: str, count: int = LARGE, name: str = "equalities"
) -> Any:
    """A figure, or None if it was not measured."""
    wanted = {"system": system, "clients": clients, "subscriptions": count, "set": name}
    return next((row.get(key) for row in rows if wanted.items() <= row.items()), None)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _rates(rows: Rows, clients: str, peer: str) -> float | None:
    ours = find(rows, "Angelia", clients, "events_per_s")
    return _ratio(ours, find(rows, peer, clients, "events_per_s"))


def _latencies(rows: Rows, clients: str, peer: str) -> float | None:
    return _ratio(find(rows, "Angelia", clients, "p99_ms"), find(rows, peer, clients, "p99_ms"))


def _same_rate(rows: Rows) -> float | None:
    """The latencies at one rate: half of what NATS reached."""
    ours = find(rows, "Angelia", "Python", "at_peers_half_load")
    return _ratio(ours["p99_ms"] if ours else None, find(rows, "NATS broadcast", "Python", "p99_ms"))


def _kept(rows: Rows, clients: str) -> float | None:
    """What is left of the throughput with ten times the subscriptions."""
    few = find(rows, "Angelia", clients, "events_per_s", MIDDLE)
    return _ratio(find(rows, "Angelia", clients, "events_per_s"), few)


Measure = Callable[[Rows], float | None]
AT_LEAST, AT_MOST = "at least", "at most"
TARGETS: tuple[tuple[str, str, float, Measure], ...] = (
    (
        "raw, events/s: Angelia / RabbitMQ headers",
        AT_LEAST,
        400,
        lambda r: _rates(r, "raw", "RabbitMQ headers"),
    ),
    ("raw, events/s: Angelia / RabbitMQ topic", AT_LEAST, 4, lambda r: _rates(r, "raw", "RabbitMQ topic")),
    (
        "Python, events/s: Angelia / NATS broadcast",
        AT_LEAST,
        2,
        lambda r: _rates(r, "Python", "NATS broadcast"),
    ),
    (
        "raw, p99 at half load: Angelia / NATS subjects",
        AT_MOST,
        2,
        lambda r: _latencies(r, "raw", "NATS subjects"),
    ),
    (
        "Python, p99 at half load: Angelia / NATS broadcast",
        AT_MOST,
        2,
        lambda r: _latencies(r, "Python", "NATS broadcast"),
    ),
    ("Python, p99, both at half load of NATS: Angelia / NATS broadcast", AT_MOST, 2, _same_rate),
    ("raw, events/s: 10,000 / 1,000 subscriptions", AT_LEAST, 0.6, lambda r: _kept(r, "raw")),
    ("Python, events/s: 10,000 / 1,000 subscriptions", AT_LEAST, 0.6, lambda r: _kept(r, "Python")),
)
INGESTION = 200_000


def targets(rows: Rows, ingestion: dict[str, Any]) -> list[dict[str, Any]]:
    """Each target, what was measured, and whether it was reached."""
    found = [(what, sense, bound, measure(rows)) for what, sense, bound, measure in TARGETS]
    found.append(("ingestion, events/s", AT_LEAST, INGESTION, ingestion["events_per_s"]))
    return [
        {
            "target": what,
            "sense": sense,
            "bound": bound,
            "measured": None if value is None else round(value, 3),
            "reached": value is not None and (value >= bound if sense == AT_LEAST else value <= bound),
        }
        for what, sense, bound, value in found
    ]


# ---------------------------------------------------------------- the page


def section(result: dict[str, Any]) -> str:
    """The section of the page."""
    rows = result["results"]
    counts = sorted({row["subscriptions"] for row in rows if row["subscriptions"]})
    parts = [
        INTRODUCTION.format(date=today(), machine=result["machine"], bytes=result["event_bytes"]),
        _targets_table(result["targets"]),
        "### Events a second\n\n" + _figures(rows, counts, lambda row: short(row["events_per_s"])),
        LATENCY + _figures(rows, counts, lambda row: f"{row['p50_ms']:.3g} / {row['p99_ms']:.3g}"),
        SAME_RATE + _figures([r for r in rows if "at_peers_half_load" in r], counts, _at_peers_half_load),
        MEMORY + _figures(rows, counts, lambda row: f"{row['memory_mb']:.0f}"),
        CPU + _figures(rows, counts, _cpu),
        NOTES,
    ]
    return "\n\n".join(parts)


def _targets_table(found: list[dict[str, Any]]) -> str:
    rows = [
        [
            one["target"],
            f"{one['sense']} {one['bound']:,}",
            "not measured" if one["measured"] is None else short(one["measured"]),
            "yes" if one["reached"] else "no",
        ]
        for one in found
    ]
    return table(["with 10,000 subscriptions", "target", "measured", "reached"], rows)


def _figures(rows: Rows, counts: list[int], show: Callable[[dict[str, Any]], str]) -> str:
    """A line for each system, kind of client and set; a column for each number of subscriptions."""
    lines: dict[tuple[str, str, str], dict[int, str]] = {}
    for row in rows:
        line = lines.setdefault((row["system"], row["clients"], row["set"]), {})
        line[row["subscriptions"]] = row.get("problem") or show(row)
    head = ["", "clients", "subscriptions", *(f"{count:,}" for count in counts)]
    return table(
        head, ([*key, *(line.get(n, line.get(0, "")) for n in counts)] for key, line in lines.items())
    )


def _at_peers_half_load(row: dict[str, Any]) -> str:
    found = row["at_peers_half_load"]
    return f"{found['p50_ms']:.3g} / {found['p99_ms']:.3g} at {short(found['rate'])}"


def _cpu(row: dict[str, Any]) -> str:
    used = row["cpu_us_per_event"]
    return " + ".join(f"{used[who]:.3g}" for who in ("publisher", "server", "consumers"))


INTRODUCTION = """## Brokers

Written by `python bench/broker.py --write-docs` on {date}, on {machine}.

Events of {bytes} bytes in MessagePack go from one publisher to ten consumer connections, all on one
machine. With 10 subscriptions an event matches one; with 1,000 and 10,000 about ten, which are with six or
seven of the connections. *Raw* is bytes made ahead, in batches of 128, and sinks that count; *Python* is each
system's client library, with dictionaries at both ends and a callback a subscription; all ten consumer
connections are in one process, and the publisher is another. Subscriptions with *equalities* are conjunctions
of two; those with *ranges* have a range and a prefix, which peers cannot express: there every consumer is
sent everything, and filters with our `Matcher`. Consumers of all systems call `gc.freeze()` once they have
subscribed. All figures are of one run."""

LATENCY = """### Latency

Milliseconds, p50 / p99, at half of the throughput above, from just before an event is sent until it was read.

"""

SAME_RATE = """### Latency at NATS' half load

The same at half of the throughput of NATS broadcast, in events a second, where Angelia has less to do than at
half of its own.

"""

MEMORY = """### Memory

Megabytes of all servers together, after the measurement.

"""

CPU = """### Processor time

Microseconds an event: publisher + servers + consumers.

"""

NOTES = """The ten subscriptions with equalities that an event matches ask for the same two values; those with
ranges differ. RabbitMQ has a queue for each connection, bound once a subscription: like Angelia, it sends an
event to a connection once, but does not tell for which subscriptions. Consumers do not acknowledge, and
nothing is durable. Topics and subjects have the two attributes that subscriptions ask for coded into them,
and headers are these two, no more. NATS sends an event once a subscription. Broadcast is one channel, or all
subjects, for everybody; consumers find subscriptions with equalities in a dictionary. A measurement counts
if exactly the expected number of events arrived."""
