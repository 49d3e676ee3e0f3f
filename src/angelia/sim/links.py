"""Links between brokers: how far, how fast, and what happens to messages on them.

A link has two channels, one a direction. A channel is first in, first out and loses nothing, as TCP
does, until its link goes down: what is under way then is lost. Its latency is that of the shortest
path between the two hosts in the physical network. With a bandwidth, messages wait in a queue until
those before them are on the wire.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from angelia.messages import (
    LinkState,
    Message,
    Notify,
    SubscriptionChange,
    Subscriptions,
    TypeDefinition,
    Versions,
)
from angelia.sim.topology import Physical

__all__ = ["UNORDERED", "Channel", "Distance", "Link", "distances", "message_size"]

# What carries a number or a version, so that its receiver notices what is old or came before.
UNORDERED = frozenset({Notify, LinkState, Subscriptions, SubscriptionChange, Versions})

_HEADER = 48  # bytes of a frame around what is in it


class Distance(NamedTuple):
    """How far two hosts are from each other."""

    latency: float
    cost: float = 1.0
    hops: int = 1


class Channel:
    """One direction of a link."""

    __slots__ = (
        "bandwidth",
        "delay",
        "distance",
        "duplicate",
        "free_at",
        "generation",
        "is_plain",
        "last",
        "latency",
        "reorder",
        "sent",
        "source",
        "target",
    )

    def __init__(self, source: str, target: str, distance: Distance, bandwidth: float | None) -> None:
        self.source = source
        self.target = target
        self.distance = distance
        self.latency = distance.latency
        self.generation = 0  # how often the link was up: a message of another generation is lost
        self.bandwidth = bandwidth  # bytes a second
        self.delay = 0.0  # seconds in addition
        self.duplicate = 0.0  # how probable it is that a message comes twice
        self.reorder = 0.0  # up to how many seconds later than its turn a message may come
        self.free_at = 0.0  # when the queue is empty
        self.last = 0.0  # when the last message arrives
        self.sent: dict[type, int] = {}
        self.settle()

    def settle(self) -> None:
        """After a change of the settings: note whether messages just arrive after the latency."""
        self.is_plain = not (self.bandwidth or self.delay or self.duplicate or self.reorder)

    def restart(self, now: float) -> None:
        """The link is up anew: nothing is under way."""
        self.generation += 1
        self.free_at = self.last = now

    def arrivals(self, message: Message, now: float, rng: random.Random) -> list[float]:
        """When a message that is sent now arrives; more than once, if it is duplicated."""
        if self.bandwidth:
            self.free_at = now = max(now, self.free_at) + message_size(message) / self.bandwidth
        arrival = now + self.latency + self.delay
        free = type(message) in UNORDERED
        if free and self.reorder:
            times = [arrival + rng.random() * self.reorder]
        else:
            self.last = max(self.last, arrival)
            times = [self.last]
        if free and self.duplicate and rng.random() < self.duplicate:
            times.append(times[0] + rng.random() * max(self.reorder, self.latency))
        return times


class Link:
    """A link between two brokers; `a` is the one below, where there is a hierarchy."""

    __slots__ = ("a", "b", "channels", "is_cut", "is_up")

    def __init__(self, a: str, b: str, distance: Distance, bandwidth: float | None) -> None:
        self.a = a
        self.b = b
        self.channels = (Channel(a, b, distance, bandwidth), Channel(b, a, distance, bandwidth))
        self.is_cut = False
        self.is_up = False

    def sent(self) -> dict[str, int]:
        """How many messages of each kind were sent, in both directions."""
        total: dict[str, int] = {}
        for channel in self.channels:
            for kind, count in channel.sent.items():
                total[kind.__name__] = total.get(kind.__name__, 0) + count
        return total


def message_size(message: Message) -> int:
    """About how many bytes a message takes on the wire."""
    match message:
        case Notify():
            return _HEADER + message.event.encoded_size()
        case TypeDefinition():
            return _HEADER + 32 * len(message.event_type.attributes)
        case Subscriptions():
            return _HEADER + sum(len(str(item)) for item in message.filters)
        case SubscriptionChange():
            return _HEADER + sum(len(str(item)) for item in (*message.added, *message.removed))
        case Versions():
            return _HEADER + 16 * len(message.subscriptions)
        case _:
            return _HEADER + sum(_size(getattr(message, name)) for name in message.__struct_fields__)


def _size(value: object) -> int:
    if isinstance(value, Enum):
        return 0  # mostly the default, which is not written
    if isinstance(value, frozenset):  # of names
        return 16 * len(value)
    return sum(map(_size, value)) if isinstance(value, tuple) else len(str(value))


def distances(physical: Physical, pairs: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Distance]:
    """The distances of pairs of hosts.

    Shortest paths are searched from one host a pair, those first that many pairs have in common.
    """
    ends: dict[int, list[tuple[int, int]]] = {}
    for pair in dict.fromkeys(pairs):
        for end in dict.fromkeys(pair):
            ends.setdefault(end, []).append(pair)
    found: dict[tuple[int, int], Distance] = {}
    for source in sorted(ends, key=lambda end: -len(ends[end])):
        mine = {pair: pair[1 - pair.index(source)] for pair in ends[source] if pair not in found}
        if mine:
            latency, cost, hops = (row[0].tolist() for row in physical.distances([source], [*mine.values()]))
            found.update(zip(mine, map(Distance, latency, cost, hops), strict=True))
    return found
