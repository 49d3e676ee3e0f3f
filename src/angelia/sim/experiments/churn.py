"""HERMES under churn: brokers fail and others join while events are published. Not in the thesis.

A broker in so many seconds crashes, and a new one joins through a random broker; publishers and
subscribers stand at brokers that stay. What is measured: how many of the deliveries that were due came, how
long they took, and how many entries the routing tables have.
"""

from __future__ import annotations

import random
from math import inf, isinf
from typing import Any

from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.messages import Advertise, By, Publish, Subscribe
from angelia.sim.engine import Delivery
from angelia.sim.experiments.overlays import entries, network

__all__ = ["churn"]

# Ways in the network of the study take up to several seconds.
_SETTINGS = {
    "b": 4,
    "leaf_set": 8,
    "heartbeat": 5.0,
    "patience": 4,
    "refresh": 15.0,
    "timeout": 20.0,
    "inheritance": None,
}
_TYPES, _PUBLISHERS, _SUBSCRIBERS = 10, 10, 40
_WARM_UP, _SECONDS, _RATE = 60.0, 300.0, 2.0  # events a second


class _Watch:
    """When each event was published, and what has come of it."""

    def __init__(self) -> None:
        self.published: dict[str, float] = {}
        self.delays: list[float] = []

    def delivered(self, delivery: Delivery) -> None:
        self.delays.append(delivery.time - self.published[delivery.event.id or ""])


def churn(brokers: int, interval: float, seed: str) -> dict[str, Any]:
    """Run a network in which a broker fails, and another joins, every `interval` seconds."""
    watch, rng = _Watch(), random.Random(f"churn {seed}")
    sim = network("hermes", brokers, seed, watch.delivered, _SETTINGS)
    stable = rng.sample(list(sim.brokers), brokers // 2)
    wanted: dict[str, list[str]] = {}
    for number in range(_PUBLISHERS):
        sim.attach(f"p{number}", rng.choice(stable))
        sim.submit(f"p{number}", Advertise(f"p{number}", Advertisement(None, f"T{number % _TYPES}")))
    for number in range(_SUBSCRIBERS):
        sim.attach(f"s{number}", rng.choice(stable))
        event_type = f"T{rng.randrange(_TYPES)}"
        wanted.setdefault(event_type, []).append(f"s{number}")
        sim.submit(f"s{number}", Subscribe(f"s{number}", Filter.of_type(event_type), By.ATTRIBUTE))
    sim.run(sim.now + _WARM_UP)
    start, due = sim.now, 0

    def publish(number: int) -> None:
        nonlocal due
        publisher = number % _PUBLISHERS
        event = Event({"n": number}, type=f"T{publisher % _TYPES}", id=f"e{number}")
        watch.published[f"e{number}"] = sim.now
        due += len(wanted.get(event.type or "", ()))
        sim.submit(f"p{publisher}", Publish(f"p{publisher}", event, By.ATTRIBUTE))

    def replace(number: int) -> None:
        there = [
            name for name, broker in sim.brokers.items() if name not in stable and broker.node is not None
        ]
        if there:
            sim.crash(rng.choice(there))
        sim.add_broker(f"n{number}", rng.randrange(1000))
        sim.connect(f"n{number}", rng.choice(stable))

    for number in range(int(_SECONDS * _RATE)):
        sim.at(start + number / _RATE, lambda number=number: publish(number))  # type: ignore[misc]
    for number in range(0 if isinf(interval) else int(_SECONDS / interval)):
        sim.at(start + number * interval, lambda number=number: replace(number))  # type: ignore[misc]
    sim.run(start + _SECONDS + _WARM_UP)
    state = entries(sim)
    return {
        "failures_per_minute": 0.0 if interval == inf else 60 / interval,
        "delivered": len(watch.delays) / max(due, 1),
        "delay": sum(watch.delays) / max(len(watch.delays), 1),
        "entries_per_broker": sum(sum(each) for each in state.values()) / len(state),
    }
