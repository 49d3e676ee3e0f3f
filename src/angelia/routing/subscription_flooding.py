"""Subscription flooding: every subscription goes everywhere, and events by shortest paths.

The other baseline: no covering, no spanning trees for subscriptions. Each server knows what the
clients of every other want, and sends an event only towards those.
"""

from __future__ import annotations

from angelia.filter import Filter
from angelia.routing.general import GeneralPeer

__all__ = ["SubscriptionFlooding"]


class SubscriptionFlooding(GeneralPeer):
    """A server that passes every subscription on to all its neighbours."""

    def exported(self) -> frozenset[Filter]:
        """Every subscription of a local party, covered or not."""
        return frozenset(self.local.poset)

    def next_hops(self, origin: str, sender: str | None) -> list[str]:
        """All neighbours but the sender."""
        return [peer for peer in self.peers if peer != sender]
