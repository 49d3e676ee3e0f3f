"""Hierarchical client/server (SIENA 5.2.2): a server treats those below it as clients.

A server forwards the roots of its subscriptions to its master, and every notification too. The
master answers with notifications only: it does not know that its client is a server.
Advertisements do not apply here and are dropped (5.2.2.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from angelia.errors import RoutingError
from angelia.filter import Filter
from angelia.messages import Reach, Send
from angelia.routing.base import Audience
from angelia.routing.peer import SubscriptionForwarding
from angelia.types import TypeRegistry

__all__ = ["Hierarchical"]


class Hierarchical(SubscriptionForwarding):
    """A server below a master, or the root of the hierarchy if it has none.

    Equation (1) with the master as the only neighbour is the algorithm of 5.2.2: only roots are
    forwarded, and an unsubscription forwards the roots that it uncovers.
    """

    def __init__(self, name: str, registry: TypeRegistry) -> None:
        super().__init__(name, registry)
        self.master: str | None = None

    def neighbors_of(self, filter: Filter) -> Iterable[str]:  # noqa: A002 - what it is
        """Subscriptions go to the master alone."""
        return () if self.master is None else (self.master,)

    def peer_up(self, peer: str, master: bool) -> list[Send]:
        """Connect a server below, or the master."""
        if master and self.master is not None:
            raise RoutingError(f"{self.name} has a master already: {self.master}")
        if master:
            self.master = peer
        try:
            return super().peer_up(peer, master)
        except RoutingError:
            self.master = None if master else self.master
            raise

    def peer_down(self, peer: str) -> list[Send]:
        """Disconnect a server below, or the master."""
        self.check_peer(peer)
        if peer == self.master:
            self.master = None
        return super().peer_down(peer)

    def _tell_reach(
        self, peer: str, servers: frozenset[str] = frozenset(), gone: frozenset[str] = frozenset()
    ) -> Send:
        return Send(peer, Reach(servers, gone, to_master=peer == self.master))

    def _hops(self, audience: Audience, sender: str | None) -> list[str]:
        """The subscribers, and the master whatever it is about (5.2.2.2)."""
        if self.master is None or sender == self.master:
            return super()._hops(audience, sender)
        return sorted((audience.peers | {self.master}) - {sender})

    def interest(self, filter: Filter) -> bool:  # noqa: A002
        """Whether a subscription is known that overlaps; what is wanted above is not known here."""
        return self.master is not None or super().interest(filter)

    def state(self) -> Mapping[str, Any]:
        """The subscriptions and the master."""
        return {**super().state(), "master": self.master}
