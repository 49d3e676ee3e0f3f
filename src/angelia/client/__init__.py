"""What an application imports to talk to brokers: `connect` and `connect_sync`."""

from angelia.client.aio import RemoteClient, RemoteSubscription, connect
from angelia.client.sync import SyncRemoteClient, connect_sync

__all__ = ["RemoteClient", "RemoteSubscription", "SyncRemoteClient", "connect", "connect_sync"]
