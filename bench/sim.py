"""The simulator's speed, and how the cost of routing grows. Prints JSON; `--quick` for a small one.

`--write-docs` also writes the section of `docs/benchmarks.md` between its markers.

Each point is a run of its own in a process of its own, so that its memory is its own. Rates are of
processor time, which other work on the machine does not change; the ratios compare within this run:
filtering routers with event flooding, and the journal on with the journal off.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from time import process_time
from typing import Any

import report
from angelia.sim.journal import Journal
from angelia.sim.scenario import Scenario, run

BASE = Scenario(brokers=100, parties=1000, publishers=100, events=2000)


def measure(scenario: Scenario, with_journal: bool = False) -> dict[str, Any]:
    """One run: what it cost, in messages, seconds and megabytes."""
    start = process_time()
    journal = Journal() if with_journal else None
    outcome = run(scenario, journal)
    network, subscriptions, events = outcome.phases
    sent = {phase.name: sum(phase.messages.values()) for phase in outcome.phases}
    return {
        "routing": scenario.routing,
        "topology": scenario.topology,
        "brokers": scenario.brokers,
        "parties": scenario.parties,
        "events": scenario.events,
        "deliveries": len(outcome.latencies),
        "journal_records": len(journal) if journal is not None else 0,
        "messages": sent,
        "messages_per_event": sent["events"] / scenario.events,
        "subscription_messages_per_party": sent["subscriptions"] / max(scenario.parties, 1),
        "messages_per_second": sent["events"] / events.cpu,
        # With those between clients and their brokers: each event once in, each delivery once out.
        "all_messages_per_second": (sent["events"] + scenario.events + len(outcome.latencies)) / events.cpu,
        "subscription_messages_per_second": sent["subscriptions"] / max(subscriptions.cpu, 1e-9),
        "network_seconds": network.cpu,
        "seconds": process_time() - start,
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measured(scenarios: Iterable[tuple[Scenario, bool]]) -> list[dict[str, Any]]:
    """Each in a fresh process, one after the other."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        return [pool.submit(measure, *each).result() for each in scenarios]


def speed(base: Scenario) -> dict[str, Any]:
    """Messages a second by router, beside event flooding; and what the journal costs."""
    routers = [
        "flooding",
        "subscription_flooding",
        "hierarchical",
        "peer",
        "advertisement",
        "general",
        "hybrid",
    ]
    runs = measured((replace(base, routing=name), False) for name in routers)
    flooding = runs[0]
    (noted,) = measured([(replace(base, routing="peer"), True)])
    plain = runs[routers.index("peer")]
    return {
        "runs": runs,
        "messages_per_second": {each["routing"]: round(each["messages_per_second"]) for each in runs},
        "messages_per_event_to_flooding": {
            each["routing"]: round(each["messages_per_event"] / flooding["messages_per_event"], 3)
            for each in runs
        },
        "with_journal": noted,
        "speed_with_journal_to_without": round(
            noted["messages_per_second"] / plain["messages_per_second"], 3
        ),
    }


def growth(base: Scenario, brokers: Iterable[int], parties: Iterable[int]) -> dict[str, Any]:
    """How the cost grows with brokers and with parties."""
    return {
        "brokers": measured((replace(base, brokers=number), False) for number in brokers),
        "parties": measured((replace(base, parties=number), False) for number in parties),
    }


# ---------------------------------------------------------------- the page


INTRODUCTION = """## Simulator

Written by `python bench/sim.py --write-docs` on {today}, on {machine}.
Rates are of processor time, while events are published: messages between brokers a second (target: 50k with
filtering), and all messages, with those that clients publish and receive. The baseline is event flooding,
in the same run."""
JOURNAL = "With the journal on, `peer` runs at {ratio:.2f} of its speed."
SCALE = """{brokers:,} brokers on {physical:,} physical nodes, {parties:,} parties and {events:,} events, with
the generation of the network: {seconds:.0f} s of processor time, {peak_megabytes:,.0f} MB at most (limit:
4,096 MB)."""
COLUMNS = ["messages a second", "to flooding", "all messages a second", "messages an event"]


def section(result: dict[str, Any]) -> str:
    """The section of the page."""
    speed, growth_ = result["speed"], result["growth"]
    flooding = speed["runs"][0]["messages_per_second"]
    about = f"{BASE.brokers} brokers, {BASE.parties:,} parties"
    parts = [
        INTRODUCTION.format(today=report.today(), machine=result["machine"]),
        report.table([about, *COLUMNS], [[f"`{r['routing']}`", *_rates(r, flooding)] for r in speed["runs"]]),
        JOURNAL.format(ratio=speed["speed_with_journal_to_without"]),
    ]
    for name in ("brokers", "parties"):
        rows = [[f"{r[name]:,}", *_rates(r, flooding)] for r in growth_[name]]
        parts.append(report.table([f"`peer`, {name}", *COLUMNS], rows))
    return "\n\n".join([*parts, SCALE.format(**result["scale"])])


def _rates(run: dict[str, Any], flooding: float) -> list[str]:
    return [
        f"{run['messages_per_second'] / 1000:,.1f}k",
        f"{run['messages_per_second'] / flooding:.2f}",
        f"{run['all_messages_per_second'] / 1000:,.1f}k",
        f"{run['messages_per_event']:.1f}",
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look")
    parser.add_argument("--write-docs", action="store_true", help="write the section of docs/benchmarks.md")
    arguments = parser.parse_args()
    quick, machine = arguments.quick, report.machine()
    base = replace(BASE, brokers=20, parties=100, events=300) if quick else BASE
    sizes = ((10, 30), (1, 10, 100)) if quick else ((10, 100, 1000), (1, 10, 100, 1000, 10_000))
    large = (
        replace(base, brokers=50, physical=5000) if quick else replace(base, brokers=1000, physical=100_000)
    )
    result = {
        "benchmark": "sim",
        "quick": quick,
        "machine": machine,
        "speed": speed(base),
        "growth": growth(base, *sizes),
        "scale": measured([(large, False)])[0] | {"physical": large.physical},
    }
    print(json.dumps(result, indent=2))
    if arguments.write_docs:
        report.write_section("sim", section(result))


if __name__ == "__main__":
    main()
