"""What the broker benchmark sends and asks for: events of about 170 bytes, and two sets of subscriptions.

Every subscription of the first set is a conjunction of two equalities, so that peers can express it too.
Those of the second set have a range and a prefix, which they cannot. An event matches one subscription of
10, and about ten of 1,000 and of 10,000. Subscriptions are dealt to ten consumers; those that an event
matches are with six or seven of them.

The last attribute of an event, `sent`, is the time it was sent at. `MARK` is how it begins in MessagePack:
raw sinks of all systems count events, and find their times, by it.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import msgspec

CONSUMERS = 10
REGIONS = 10
MARK = b"\xa4sent\xcb"
NOT_YET = MARK + bytes(8)  # a time that is written in later


@dataclass(frozen=True)
class Wish:
    """One subscription: values to equal, or a range and a prefix."""

    text: str
    region: str = ""
    kind: str = ""
    low: int = 0
    high: int = 0
    prefix: str = ""

    def matches(self, event: dict[str, Any]) -> bool:
        """Whether it wants an event."""
        if self.region:
            return bool(event["region"] == self.region and event["kind"] == self.kind)
        return bool(self.low <= event["price"] < self.high and event["host"].startswith(self.prefix))


@dataclass(frozen=True)
class Traffic:
    """Events that are sent again and again, the wishes of each consumer, and how often each event matches."""

    events: list[dict[str, Any]]
    wishes: list[list[Wish]]
    connections: list[int]  # consumers that want the first, second, … event
    subscriptions: list[int]  # subscriptions that match it

    @property
    def count(self) -> int:
        """How many subscriptions there are."""
        return sum(map(len, self.wishes))

    @property
    def event_bytes(self) -> float:
        """The size of an event, in the mean."""
        return sum(len(msgspec.msgpack.encode(event)) for event in self.events) / len(self.events)


def kinds(count: int) -> int:
    """How many kinds there are, so that about ten of `count` subscriptions match an event."""
    return max(1, count // 100)


def make_events(count: int, size: int) -> list[dict[str, Any]]:
    """`size` events for `count` subscriptions."""
    draw = random.Random(1)
    return [
        {
            "region": f"region-{draw.randrange(REGIONS)}",
            "kind": f"kind-{draw.randrange(kinds(count))}",
            "host": f"{draw.randrange(10)}.rack-{draw.randrange(1000):03}",
            "price": draw.randrange(1000),
            "level": draw.random(),
            "note": "".join(draw.choices("abcdefghijklmnopqrstuvwxyz ", k=76)),
            "ok": draw.random() < 0.5,
            "sent": 0.0,
        }
        for _ in range(size)
    ]


def equalities(count: int, region: str = "region") -> list[Wish]:
    """Conjunctions of two equalities; a region of another name makes them match nothing."""
    every = [(f"{region}-{r}", f"kind-{k}") for r in range(REGIONS) for k in range(kinds(count))]
    return [
        Wish(f'region = "{r}" and kind = "{k}"', region=r, kind=k)
        for r, k in (every[i % len(every)] for i in range(count))
    ]


def ranges(count: int) -> list[Wish]:
    """A range of prices and a prefix of hosts."""
    draw, width = random.Random(2), max(1, 100_000 // count)
    wishes = []
    for _ in range(count):
        low = draw.randrange(max(1, 1000 - width + 1))
        high, prefix = low + width, f"{draw.randrange(10)}.rack"
        text = f'price >= {low} and price < {high} and host prefix "{prefix}"'
        wishes.append(Wish(text, low=low, high=high, prefix=prefix))
    return wishes


def make_traffic(wishes: list[Wish], size: int = 8192) -> Traffic:
    """Events for these wishes, which are dealt to consumers."""
    events = make_events(len(wishes), size)
    dealt = random.Random(3).sample(wishes, len(wishes))
    hands = [dealt[consumer::CONSUMERS] for consumer in range(CONSUMERS)]
    counts = _counted_equalities(hands, events) if wishes[0].region else _counted_ranges(hands, events)
    return Traffic(events, hands, *counts)


def _counted_equalities(hands: list[list[Wish]], events: list[dict[str, Any]]) -> tuple[list[int], list[int]]:
    wanted: dict[tuple[str, str], list[int]] = {}
    for consumer, hand in enumerate(hands):
        for wish in hand:
            wanted.setdefault((wish.region, wish.kind), []).append(consumer)
    found = [wanted.get((event["region"], event["kind"]), []) for event in events]
    return [len(set(consumers)) for consumers in found], [len(consumers) for consumers in found]


def _counted_ranges(hands: list[list[Wish]], events: list[dict[str, Any]]) -> tuple[list[int], list[int]]:
    """By their prefix and their low end: of those, the ones whose high end is above the price match."""
    by_prefix: dict[str, list[tuple[int, int, int]]] = {}
    for consumer, hand in enumerate(hands):
        for wish in hand:
            by_prefix.setdefault(wish.prefix[0], []).append((wish.low, wish.high, consumer))
    for group in by_prefix.values():
        group.sort()
    connections, subscriptions = [], []
    for event in events:
        group, price = by_prefix.get(event["host"][0], []), event["price"]
        upto = bisect_right(group, (price, 1 << 30, 0))
        first = bisect_right(group, (price - (group[0][1] - group[0][0]), 1 << 30, 0)) if group else 0
        consumers = [consumer for _, high, consumer in group[first:upto] if high > price]
        connections.append(len(set(consumers)))
        subscriptions.append(len(consumers))
    return connections, subscriptions
