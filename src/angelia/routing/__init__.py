"""WHAT meets WHERE: one file an algorithm. `ROUTERS` has them by the names used everywhere."""

from angelia.routing.base import Party, Peer, Routed, Router
from angelia.routing.flooding import EventFlooding
from angelia.routing.general import GeneralPeer
from angelia.routing.hierarchical import Hierarchical
from angelia.routing.peer import AdvertisementForwarding, SubscriptionForwarding
from angelia.routing.subscription_flooding import SubscriptionFlooding

ROUTERS: dict[str, type[Router]] = {
    "flooding": EventFlooding,
    "subscription_flooding": SubscriptionFlooding,
    "hierarchical": Hierarchical,
    "peer": SubscriptionForwarding,
    "advertisement": AdvertisementForwarding,
    "general": GeneralPeer,
}

__all__ = [
    "ROUTERS",
    "AdvertisementForwarding",
    "EventFlooding",
    "GeneralPeer",
    "Hierarchical",
    "Party",
    "Peer",
    "Routed",
    "Router",
    "SubscriptionFlooding",
    "SubscriptionForwarding",
]
