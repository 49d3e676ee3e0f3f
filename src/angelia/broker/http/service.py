"""What the door needs of the service behind it. A broker has it; so does a bus, nearly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from angelia.broker.metrics import Metrics
from angelia.bus import Policy, SubscriptionStats
from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.types import EventType, TypeRegistry

__all__ = ["Client", "Service", "Subscription"]


class Subscription(Protocol):
    """What `subscribe` returns; `angelia.bus.Subscription` is one."""

    @property
    def dropped(self) -> int:
        """How many events the queue had no room for."""

    def limit_bytes(self, most: int) -> None:
        """Drop the oldest events in the queue also where all take more bytes than this."""

    def stats(self) -> SubscriptionStats:
        """The subscription as numbers."""

    async def get(self) -> Event:
        """The next event; a `ClosedError` after the end."""

    async def close(self) -> None:
        """Unsubscribe."""


class Client(Protocol):
    """A party at the broker; `angelia.bus.Client` is one."""

    async def publish_all(self, events: Sequence[Event], /) -> None:
        """Publish all, or none if one is refused; wait for room in queues with the policy `block`."""

    def subscribe(self, filter: Filter, /, *, size: int, policy: Policy) -> Subscription:  # noqa: A002
        """Subscribe, from now on."""

    async def advertise(self, advertisement: Advertisement, /) -> None:
        """Tell what is going to be published."""

    async def define(self, event_type: EventType, /) -> None:
        """Add an event type, or change it in a compatible way."""

    async def close(self) -> None:
        """End all subscriptions."""


class Service(Protocol):
    """A broker, as the door sees it."""

    @property
    def name(self) -> str:
        """The name of the broker."""

    @property
    def registry(self) -> TypeRegistry:
        """The event types that it knows."""

    @property
    def metrics(self) -> Metrics:
        """What it counts."""

    def client(self, name: str, /) -> Client:
        """A new party at this broker."""

    def topology(self) -> Mapping[str, Any]:
        """The broker, its peers, and what it knows of the network, as JSON."""

    def is_healthy(self) -> bool:
        """Whether it works."""
