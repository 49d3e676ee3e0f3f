"""A network of real broker processes on this machine: for playing, for demonstrations, and for tests."""

from angelia.local.network import LocalBroker, LocalNetwork, load_network

__all__ = ["LocalBroker", "LocalNetwork", "load_network"]
