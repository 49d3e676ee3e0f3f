"""For tests of your own publishers and subscribers: no server, no sleeping, the same result every time."""

from __future__ import annotations

import sys
from typing import Any, Generic, TypeVar, overload

from angelia.bus import Bus, Client, Subscription, SyncClient, SyncSubscription
from angelia.event import Event, Value
from angelia.filter import Filter
from angelia.pattern import Pattern

__all__ = ["Collected", "MemoryBus", "VirtualClock", "collect"]

T = TypeVar("T")


class VirtualClock:
    """A clock that stands still until it is told to advance: `Bus(clock=VirtualClock())`."""

    def __init__(self, start: float = 1_767_225_600.0) -> None:  # 2026-01-01T00:00:00Z
        self.now = start

    def __call__(self) -> float:
        """The time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError(f"time does not go back (by {-seconds} s)")
        self.now += seconds


class MemoryBus(Bus):
    """A bus on a virtual clock, which is its attribute `clock`."""

    def __init__(self, brokers: int = 1, *, topology: str = "tree", routing: str = "peer") -> None:
        self.clock = VirtualClock()
        super().__init__(brokers, topology=topology, routing=routing, clock=self.clock)

    async def settle(self) -> None:
        """Wait until the callbacks are done with all that was published."""
        await self._callbacks.done()


class Collected(Generic[T]):
    """What was delivered to a subscription since `collect` was called."""

    def __init__(self, subscription: Subscription[T] | SyncSubscription[T]) -> None:
        self._subscription = subscription
        self._events: list[T] = []

    @property
    def events(self) -> list[T]:
        """The events, or instances, in the order of delivery."""
        self._events += self._subscription.drain()
        return self._events

    @property
    def attributes(self: Collected[Event]) -> list[dict[str, Value]]:
        """Of each event the attributes alone, without id and time."""
        return [dict(event.attributes) for event in self.events]

    def clear(self) -> None:
        """Forget what has come so far."""
        self.events.clear()


@overload
def collect(client: Client | SyncClient, filter: str | Filter) -> Collected[Event]: ...
@overload
def collect(client: Client | SyncClient, filter: Pattern) -> Collected[tuple[Event, ...]]: ...
@overload
def collect(client: Client | SyncClient, filter: type[T]) -> Collected[T]: ...
def collect(client: Client | SyncClient, filter: Any) -> Collected[Any]:  # noqa: A002 - what it is
    """Subscribe for a test, and keep what comes: `assert collected.events == […]`."""
    return Collected(client.subscribe(filter, size=sys.maxsize))
