"""What every router is: a state machine that turns requests and messages into messages.

A router sees interfaces: the parties behind local clients, and the peers. It does not see clients,
replies, clocks or sockets; `angelia.node` and its drivers do. Each method returns what to send; a
notification also returns the parties it goes to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple

from angelia.errors import RoutingError
from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.messages import Message, Notify, Send
from angelia.types import TypeRegistry

__all__ = ["Interests", "Interface", "Party", "Peer", "Routed", "Router", "Seen"]


class Party(NamedTuple):
    """A local interested party or object of interest."""

    identity: str


class Peer(NamedTuple):
    """A connected broker."""

    name: str


Interface = Party | Peer


class Routed(NamedTuple):
    """Where a notification goes from here."""

    parties: frozenset[str]
    sends: list[Send]


class Router(ABC):
    """The routing of one broker."""

    def __init__(self, name: str, registry: TypeRegistry) -> None:
        self.name = name
        self.registry = registry
        self.peers: dict[str, None] = {}

    # ------------------------------------------------ requests of local parties

    @abstractmethod
    def subscribe(self, party: Party, filter: Filter) -> list[Send]:  # noqa: A002 - what it is
        """A local party subscribes."""

    @abstractmethod
    def unsubscribe(self, party: Party, filter: Filter) -> list[Send]:  # noqa: A002
        """A local party cancels all its subscriptions that the filter covers."""

    def advertise(self, party: Party, advertisement: Advertisement) -> list[Send]:
        """A local party advertises. Routers that do not use advertisements drop them (SIENA 3.5)."""
        return []

    def unadvertise(self, party: Party, advertisement: Advertisement) -> list[Send]:
        """A local party cancels all its advertisements that this one covers."""
        return []

    @abstractmethod
    def leave(self, party: Party) -> list[Send]:
        """A local party is gone, with all its subscriptions and advertisements."""

    def check_publication(self, party: Party, event: Event) -> None:  # noqa: B027 - all may, mostly
        """Raise a `RoutingError` if the party may not publish the event."""

    @abstractmethod
    def publish(self, notification: Notify) -> Routed:
        """A local party publishes."""

    # ------------------------------------------------ the network

    def peer_up(self, peer: str, master: bool) -> list[Send]:
        """Connect a peer."""
        if peer == self.name:
            raise RoutingError(f"{self.name} cannot be its own peer")
        if peer in self.peers:
            raise RoutingError(f"{peer} is connected to {self.name} already")
        self.peers[peer] = None
        return []

    def peer_down(self, peer: str) -> list[Send]:
        """Disconnect a peer, with all that came from it."""
        self.check_peer(peer)
        del self.peers[peer]
        return []

    @abstractmethod
    def receive(self, peer: str, message: Message) -> Routed:
        """Process a message of a peer."""

    def check_peer(self, peer: str) -> None:
        """Raise a `RoutingError` if there is no such peer."""
        if peer not in self.peers:
            raise RoutingError(f"{peer} is not a peer of {self.name}")

    def types_changed(self) -> list[Send]:
        """An event type became known or changed."""
        return []

    @abstractmethod
    def state(self) -> Mapping[str, Any]:
        """The routing state, for people, tests and metrics; a copy."""


class Interests:
    """Who wants what: filters with the interfaces that subscribed to them."""

    def __init__(self, registry: TypeRegistry) -> None:
        self._registry = registry
        self._filters: dict[Filter, set[Interface]] = {}

    def add(self, interface: Interface, filter: Filter) -> None:  # noqa: A002
        """Note an interest; noting it again changes nothing."""
        self._filters.setdefault(filter, set()).add(interface)

    def remove(self, interface: Interface, filter: Filter) -> None:  # noqa: A002
        """Forget an interest."""
        interfaces = self._filters[filter]
        interfaces.discard(interface)
        if not interfaces:
            del self._filters[filter]

    def of(self, interface: Interface) -> list[Filter]:
        """The filters of an interface."""
        return [item for item, interfaces in self._filters.items() if interface in interfaces]

    def table(self) -> dict[Filter, frozenset[Interface]]:
        """Each filter with its interfaces."""
        return {item: frozenset(interfaces) for item, interfaces in self._filters.items()}

    def interested(self, event: Event) -> set[Interface]:
        """The interfaces with some filter that matches."""
        found: set[Interface] = set()
        for filter, interfaces in self._filters.items():  # noqa: A001
            if not interfaces <= found and filter.matches(event, self._registry):
                found |= interfaces
        return found


class Seen:
    """Which notifications were here already: each goes through a node once, whatever the paths.

    Of each origin the numbers above a floor are kept; the floor rises as they become many, so that
    what arrives later than `window` newer ones is taken for seen.
    """

    def __init__(self, window: int = 4096) -> None:
        self._window = window
        self._floors: dict[str, int] = {}
        self._numbers: dict[str, set[int]] = {}

    def is_new(self, notification: Notify) -> bool:
        """Whether this is the first time; it is not, from now on."""
        origin, number = notification.origin, notification.sequence
        numbers = self._numbers.setdefault(origin, set())
        if number <= self._floors.get(origin, -1) or number in numbers:
            return False
        numbers.add(number)
        if len(numbers) > self._window:
            floor = sorted(numbers)[self._window // 2]
            self._floors[origin] = floor
            self._numbers[origin] = {n for n in numbers if n > floor}
        return True
