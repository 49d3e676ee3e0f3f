"""What the routers on an overlay have in common: a node of Pan below them, links that come and go."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from angelia.errors import RoutingError
from angelia.messages import Contact, Disconnect, Effect, Message, Send, SetTimer
from angelia.overlay import Pan, PanSettings, key_of
from angelia.routing.base import Routed, Router
from angelia.types import TypeRegistry

__all__ = ["OverlayRouter"]

_REFRESH = "refresh"
_NOTHING = Routed(frozenset(), [])


class OverlayRouter(Router):
    """A broker of an overlay network, which finds its own neighbours; soft state is renewed and expires."""

    def __init__(
        self,
        name: str,
        registry: TypeRegistry,
        *,
        node_id: str | None = None,
        refresh: float | None = 30.0,
        lease: float | None = None,
        **pan: Any,
    ) -> None:
        super().__init__(name, registry)
        if refresh is not None and not 0 < refresh < (lease or 3 * refresh):
            raise RoutingError("soft state is renewed after some time, and expires after more than that")
        self.refresh_interval = refresh
        self.lease = lease or (3 * refresh if refresh else float("inf"))
        me = Contact(node_id or key_of(name), name)
        self.pan = Pan(me, PanSettings(**pan), self, self.outbox, self.peers, lambda: self.now)
        self._version = 0  # of Pan's tables, as this layer knows them
        self._lost: set[str] = set()  # peers whose link went down
        self._is_refreshing = False
        self._next_refresh = 0.0

    def start(self, address: str) -> None:
        """The broker can be reached by others at this address."""
        self.pan.me = Contact(self.pan.me.id, self.name, address)

    # ------------------------------------------------ inputs

    def peer_up(self, peer: str, master: bool) -> list[Send]:
        """Connect a peer."""
        super().peer_up(peer, master)
        if self.refresh_interval is not None and not self._is_refreshing:
            self._is_refreshing = True
            self._next_refresh = self.now + self.refresh_interval
            self.outbox.append(SetTimer(_REFRESH, self.refresh_interval))
        self.pan.peer_up(peer)
        if peer in self._lost:
            self._lost.discard(peer)
            self.returned(peer)
        return self._settled()

    def peer_down(self, peer: str) -> list[Send]:
        """Disconnect a peer, or learn that it cannot be connected."""
        self.peers.pop(peer, None)
        self._lost.add(peer)
        self.pan.peer_down(peer)
        return self._settled()

    def receive(self, peer: str, message: Message) -> Routed:
        """Process a message of a peer."""
        self.check_peer(peer)
        if not self.pan.receive(peer, message):
            self.received(peer, message)
        self._settled()
        return _NOTHING

    def measured(self, peer: str, proximity: float | None) -> list[Effect]:
        """How near a broker is."""
        self.pan.measured(peer, proximity)
        return [*self._settled()]

    def timer(self, name: str) -> list[Effect]:
        """A timer has run out."""
        if name == _REFRESH and self.refresh_interval is not None:
            # Who was asleep for long has not heard what the others have renewed meanwhile.
            self.refresh(expire=self.now <= self._next_refresh + self.refresh_interval)
            self._next_refresh = self.now + self.refresh_interval
            self.outbox.extend(Disconnect(peer) for peer in list(self.peers) if self._is_idle(peer))
            self.outbox.append(SetTimer(_REFRESH, self.refresh_interval))
        elif not self.pan.timer(name):
            raise RoutingError(f"{self.name} has set no timer {name!r}")
        return [*self._settled()]

    def leave_network(self) -> list[Effect]:
        """The broker is about to leave for good."""
        self.pan.leave()
        self.outbox.append(SetTimer(_REFRESH, None))
        return []

    def _settled(self) -> list[Send]:
        """After each input: let the trees follow the overlay, and the overlay tell others."""
        if self.pan.version != self._version:
            self._version = self.pan.version
            self.tables_changed()
        self.pan.settle()
        return []

    def _is_idle(self, peer: str) -> bool:
        return self.pan.is_idle(peer) and not self.needs(peer)

    # ------------------------------------------------ what the layers above do

    @abstractmethod
    def received(self, peer: str, message: Message) -> None:
        """A message that is not the overlay's."""

    @abstractmethod
    def tables_changed(self) -> None:
        """Messages may go other ways than before."""

    @abstractmethod
    def refresh(self, expire: bool) -> None:
        """Renew what others hold for this broker, and drop what was not renewed, if that is known."""

    @abstractmethod
    def returned(self, peer: str) -> None:
        """The link to a peer was lost and is back; what was under way is not."""

    @abstractmethod
    def needs(self, peer: str) -> bool:
        """Whether a link serves to route events."""

    # ------------------------------------------------ Pan's callbacks that not all need (Table 4.8)

    def deliver(self, message: Message, source: Contact, last: str, key: str) -> None:
        """A message has reached its destination."""
        raise RoutingError(f"{type(self).__name__} does not understand {type(message).__name__}")

    def deliver_request(self, message: Message, source: Contact, number: int) -> Message | None:
        """A request has reached its destination."""
        raise RoutingError(f"{type(self).__name__} does not answer {type(message).__name__}")

    def forward(
        self,
        message: Message,
        source: Contact,
        last: str,
        next: Contact,  # noqa: A002 - the thesis' word
        key: str,
    ) -> Contact | None:
        """A message goes on, unless the layer above has another wish."""
        return next

    def leaf_set_changed(self, leaf_set: tuple[Contact, ...]) -> None:
        """The leaf set has other members than before."""

    @abstractmethod
    def peer_failed(self, name: str) -> None:
        """A broker is dead or gone."""

    # ------------------------------------------------ sending

    def send(self, to: str, message: Message) -> None:
        """To a peer, or to a broker that Pan knows; what is for others is lost, and renewed in time."""
        if to in self.peers:
            self.outbox.append(Send(to, message))
        elif to in self.pan.known:
            self.pan.send(self.pan.known[to], message)
