"""The service within one process: `Bus` for asyncio, `SyncBus` for threads, over one core."""

from angelia.bus.aio import Bus, Client, Subscription
from angelia.bus.core import Stats
from angelia.bus.mailbox import Policy
from angelia.bus.party import SubscriptionStats
from angelia.bus.sync import SyncBus, SyncClient, SyncSubscription
from angelia.errors import BlockedError, ClosedError, DisconnectedError

__all__ = [
    "BlockedError",
    "Bus",
    "Client",
    "ClosedError",
    "DisconnectedError",
    "Policy",
    "Stats",
    "Subscription",
    "SubscriptionStats",
    "SyncBus",
    "SyncClient",
    "SyncSubscription",
]
