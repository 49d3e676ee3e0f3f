"""The simulator's speed, and how the cost of routing grows. Prints JSON; `--quick` for a small one.

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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look")
    quick = parser.parse_args().quick
    base = replace(BASE, brokers=20, parties=100, events=300) if quick else BASE
    sizes = ((10, 30), (1, 10, 100)) if quick else ((10, 100, 1000), (1, 10, 100, 1000, 10_000))
    large = (
        replace(base, brokers=50, physical=5000) if quick else replace(base, brokers=1000, physical=100_000)
    )
    result = {
        "benchmark": "sim",
        "quick": quick,
        "speed": speed(base),
        "growth": growth(base, *sizes),
        "scale": measured([(large, False)])[0] | {"physical": large.physical},
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
