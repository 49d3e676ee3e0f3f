"""WHAT meets WHERE: one file an algorithm. `ROUTERS` has them by the names used everywhere."""

from angelia.routing.advertisement import AdvertisementForwarding
from angelia.routing.base import NOWHERE, Monitor, Party, Peer, Routed, Router
from angelia.routing.flooding import EventFlooding
from angelia.routing.general import GeneralPeer
from angelia.routing.hermes import Hermes
from angelia.routing.hierarchical import Hierarchical
from angelia.routing.hybrid import Hybrid
from angelia.routing.peer import SubscriptionForwarding
from angelia.routing.scribe import Scribe
from angelia.routing.subscription_flooding import SubscriptionFlooding

ROUTERS: dict[str, type[Router]] = {
    "flooding": EventFlooding,
    "subscription_flooding": SubscriptionFlooding,
    "hierarchical": Hierarchical,
    "peer": SubscriptionForwarding,
    "advertisement": AdvertisementForwarding,
    "general": GeneralPeer,
    "hybrid": Hybrid,
    "hermes": Hermes,
    "scribe": Scribe,
}

__all__ = [
    "NOWHERE",
    "ROUTERS",
    "AdvertisementForwarding",
    "EventFlooding",
    "GeneralPeer",
    "Hermes",
    "Hierarchical",
    "Hybrid",
    "Monitor",
    "Party",
    "Peer",
    "Routed",
    "Router",
    "Scribe",
    "SubscriptionFlooding",
    "SubscriptionForwarding",
]
