"""Hybrid topologies (SIENA 4.4, Figure 8): a hierarchy inside each domain, peers between domains.

A server with a master is a server of a hierarchy. One without is the gateway of its domain: to those
below it the root of their hierarchy, to the gateways of other domains a peer with subscription
forwarding. What is inside a domain stays there: the servers below learn of no subscription from
outside, and only what some other domain wants leaves.

Who connects says whether the other is its master (`Reach.to_master`); a gateway forwards subscriptions to
a neighbour when that has introduced itself. The servers below may as well be plain `hierarchical` ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from angelia.errors import RoutingError
from angelia.filter import Filter
from angelia.messages import Reach, Send
from angelia.routing.base import Peer
from angelia.routing.hierarchical import Hierarchical
from angelia.types import TypeRegistry

__all__ = ["Hybrid"]


class Hybrid(Hierarchical):
    """A server below a master, or the gateway of a domain."""

    def __init__(self, name: str, registry: TypeRegistry) -> None:
        super().__init__(name, registry)
        self.gateways: dict[str, None] = {}

    def neighbors_of(self, filter: Filter) -> Iterable[str]:  # noqa: A002 - what it is
        """Subscriptions go to the master, or from a gateway to the other gateways."""
        return self.gateways if self.master is None else super().neighbors_of(filter)

    def peer_up(self, peer: str, master: bool) -> list[Send]:
        """Connect a server below, the master, or another gateway."""
        if master and self.gateways:
            raise RoutingError(f"{self.name} is a gateway, with {self._others()} as peers; it has no master")
        return super().peer_up(peer, master)

    def peer_down(self, peer: str) -> list[Send]:
        """Disconnect a server below, the master, or another gateway."""
        self.check_peer(peer)
        self.gateways.pop(peer, None)
        return super().peer_down(peer)

    def _on_reach(self, peer: Peer, message: Reach) -> list[Send]:
        is_gateway = not message.to_master and peer.name != self.master
        if is_gateway and self.master is not None:
            raise RoutingError(f"{self.name} is no gateway: its master is {self.master}, not {peer.name}")
        sends = super()._on_reach(peer, message)
        if not is_gateway or peer.name in self.gateways:
            return sends
        self.gateways[peer.name] = None
        return [*sends, *self._tell(self.subscriptions.refresh())]

    def _others(self) -> str:
        return ", ".join(self.gateways)

    def state(self) -> Mapping[str, Any]:
        """The subscriptions, the master and the other gateways."""
        return {**super().state(), "gateways": tuple(self.gateways)}
