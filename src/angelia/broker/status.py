"""What a broker tells of itself: as numbers for people, as a place in a network, and as gauges."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from angelia.matching.ready import readiness

if TYPE_CHECKING:
    from angelia.broker.broker import Broker
    from angelia.broker.links import Dialler

__all__ = ["add_gauges", "describe", "topology"]


def describe(broker: Broker, http: str | None, diallers: Iterable[Dialler]) -> dict[str, Any]:
    """The broker as numbers, for people; `http` is where its door is, if it has one."""
    return {
        "name": broker.name,
        "version": version("angelia"),
        "pid": os.getpid(),
        "address": str(broker.address),
        "routing": broker.settings.routing,
        "uptime": round(broker.clock() - broker.started, 3),
        "published": broker.published,
        "delivered": broker.delivered,
        "http": http,
        "links": {name: link.describe() for name, link in sorted(broker.links.items())},
        "unconnected": {str(d.address): d.problem for d in diallers if d.problem},
        "clients": {name: session.describe() for name, session in sorted(broker.clients.items())},
        "types": list(broker.node.registry),
        "matching": readiness.engine,
    }


def topology(broker: Broker) -> dict[str, Any]:
    """The broker, its peers, and what it knows of the network beyond them."""
    state = broker.node.state()
    known: dict[str, Any] = {}
    if "links" in state:  # who knows all
        known["brokers"] = {name: sorted(peers) for name, peers in sorted(state["links"].items())}
    if state.get("master") is not None:
        known["master"] = state["master"]
    return {
        "name": broker.name,
        "address": str(broker.address),
        "routing": broker.settings.routing,
        "peers": {name: link.describe() for name, link in sorted(broker.links.items())},
        **known,
    }


def add_gauges(broker: Broker) -> None:
    """Have the broker's metrics show who is connected, and what waits for them."""
    gauge = broker.metrics.gauge
    gauge("angelia_clients", "Clients connected", lambda: float(len(broker.clients)))
    gauge("angelia_links", "Links to other brokers", lambda: float(len(broker.links)))
    gauge(
        "angelia_link_queue_bytes",
        "Bytes that wait for a peer",
        lambda: {name: float(link.connection.queued_bytes) for name, link in broker.links.items()},
        "peer",
    )
    gauge(
        "angelia_client_queue_events",
        "Events that wait for clients",
        lambda: float(sum(session.connection.queued for session in broker.clients.values())),
    )
