"""What a run came to, in numbers and as tables."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from angelia.sim.scenario import Outcome, Phase

__all__ = ["print_summary", "summary"]

_PERCENTILES = (50, 90, 99, 100)


def summary(outcome: Outcome) -> dict[str, Any]:
    """The figures of a run, for JSON."""
    scenario = {name: value for name, value in asdict(outcome.scenario).items() if name != "faults"}
    scenario["faults"] = [f"{fault} at {time}" for time, fault in outcome.scenario.faults]
    return {
        "scenario": scenario,
        "phases": [asdict(phase) for phase in outcome.phases],
        "deliveries": len(outcome.latencies),
        "refused": len(outcome.sim.refusals),
        "latency_ms": {f"p{p}": value * 1000 for p, value in _percentiles(outcome.latencies).items()},
        "hops": {f"p{p}": value for p, value in _percentiles(outcome.hops).items()},
        "cost": sum(
            sum(channel.sent.values()) * channel.distance.cost
            for link in outcome.sim.links
            for channel in link.channels
        ),
    }


def _percentiles(values: list[float] | list[int]) -> dict[int, float]:
    if not values:
        return {}
    return dict(zip(_PERCENTILES, np.percentile(values, _PERCENTILES).tolist(), strict=True))


def print_summary(outcome: Outcome, console: Console) -> None:
    """Print the figures of a run as tables."""
    asked, (*_, events) = outcome.scenario, outcome.phases
    console.print(
        f"[bold]{asked.routing}[/] on {asked.brokers} brokers ({asked.topology}), "
        f"{asked.parties} parties, {asked.publishers} publishers, {asked.events} events, seed {asked.seed}"
    )
    console.print(_messages(outcome.phases, asked.events))
    console.print(_deliveries(outcome))
    sent = sum(events.messages.values())
    console.print(
        f"{asked.events / max(events.wall, 1e-9):,.0f} events and {sent / max(events.wall, 1e-9):,.0f} "
        f"messages a second of wall time, {sent / max(events.cpu, 1e-9):,.0f} of processor time"
    )


def _messages(phases: list[Phase], events: int) -> Table:
    table = Table("message", *(phase.name for phase in phases), "per event", title="messages")
    for column in table.columns[1:]:
        column.justify = "right"
    kinds = sorted({kind for phase in phases for kind in phase.messages})
    for kind in kinds:
        counts = [phase.messages.get(kind, 0) for phase in phases]
        table.add_row(kind, *(f"{count:,}" for count in counts), f"{counts[-1] / max(events, 1):.2f}")
    totals = [sum(phase.messages.values()) for phase in phases]
    table.add_section()
    table.add_row("all", *(f"{total:,}" for total in totals), f"{totals[-1] / max(events, 1):.2f}")
    return table


def _deliveries(outcome: Outcome) -> Table:
    table = Table("count", "per event", title="deliveries")
    count, events = len(outcome.latencies), max(outcome.scenario.events, 1)
    cells = [f"{count:,}", f"{count / events:.2f}"]
    for p, seconds in _percentiles(outcome.latencies).items():
        table.add_column("max ms" if p == 100 else f"p{p} ms")
        cells.append(f"{seconds * 1000:,.1f}")
    if outcome.hops:
        table.add_column("mean hops")
        table.add_column("max hops")
        cells += [f"{np.mean(outcome.hops):.1f}", f"{max(outcome.hops)}"]
    if outcome.sim.refusals:
        table.add_column("refused")
        cells.append(f"{len(outcome.sim.refusals):,}")
    for column in table.columns:
        column.justify = "right"
    table.add_row(*cells)
    return table
