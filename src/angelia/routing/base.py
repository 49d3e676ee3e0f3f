"""What every router is: a state machine that turns requests and messages into messages.

A router sees interfaces: the parties behind local clients, and the peers. It does not see clients,
replies, clocks or sockets; `angelia.node` and its drivers do. Each method returns what to send; a
notification also returns the parties it goes to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from angelia.errors import RoutingError
from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.matching import Matcher
from angelia.messages import By, Effect, FromClient, Message, Notify, NotifySequence, Send
from angelia.pattern import Pattern
from angelia.routing.interfaces import Interface, Local, Monitor, Party, Peer
from angelia.routing.monitors import Factor, Monitors, Occurrence
from angelia.types import TypeRegistry

__all__ = [
    "NOWHERE",
    "Audience",
    "Interests",
    "Interface",
    "Local",
    "Monitor",
    "Party",
    "Peer",
    "Routed",
    "Router",
    "Seen",
]


class Routed(NamedTuple):
    """Where a notification goes from here, and the sequences that it completes for local parties."""

    parties: frozenset[str]
    sends: list[Send]
    sequences: tuple[Occurrence, ...] = ()
    event: Event | None = None  # of the notification, where that is not the message in hand


NOWHERE = Routed(frozenset(), [])


class Router(ABC):
    """The routing of one broker."""

    floods_types = True  # whether brokers tell their peers of all event types

    def __init__(self, name: str, registry: TypeRegistry) -> None:
        self.name = name
        self.registry = registry
        self.peers: dict[str, None] = {}
        self.monitors = Monitors(registry)
        self.now = 0.0  # the time of the input in hand; the node sets it
        self.by = By.BOTH  # how the request in hand is to be routed; the node sets it, too
        # What is wanted besides what methods return: effects, notifications that waited for something,
        # and requests to be processed now. The node takes it after each input.
        self.outbox: deque[Effect | Routed | FromClient] = deque()

    def start(self, address: str) -> None:  # noqa: B027 - most need none
        """The broker can be reached by others at this address."""

    # ------------------------------------------------ requests of local parties

    def takes_over(self, given: FromClient) -> bool:
        """Whether a request has to wait for what others know; it is in the outbox later, or its reply is."""
        return False

    def client_gone(self, client: str) -> None:  # noqa: B027
        """A client is gone: none of its requests waits any longer."""

    @abstractmethod
    def subscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002 - what it is
        """A local party subscribes."""

    @abstractmethod
    def unsubscribe(self, party: Local, filter: Filter) -> list[Send]:  # noqa: A002
        """A local party cancels all its subscriptions that the filter covers."""

    def subscribe_pattern(self, who: Party | Peer, pattern: Pattern) -> list[Send]:
        """Somebody asks for a pattern, which is split and matched here, at the access point (SIENA 3.3)."""
        self.monitors.add(who, pattern)
        return self._watch(pattern)

    def unsubscribe_pattern(self, party: Party, pattern: Pattern) -> list[Send]:
        """A local party cancels all its patterns that this one covers, filter by filter (3.7)."""
        covered = [p for p in self.monitors.of(party) if pattern.covers(p, self.registry)]
        return self._forget_patterns(party, covered)

    def _watch(self, pattern: Pattern) -> list[Send]:
        """Subscribe to what a pattern is made of, if that is not so yet."""
        factors = self.factored(pattern)
        if factors == self.monitors.factors(pattern):
            return []
        self.monitors.split(pattern, factors)
        filters = [factor.pattern.filters[0] for factor in factors if factor.delegate is None]
        gone = self.drop(Monitor(pattern))
        return [*gone, *(send for item in filters for send in self.subscribe(Monitor(pattern), item))]

    def factored(self, pattern: Pattern) -> tuple[Factor, ...]:
        """The factors of a pattern (5.3.2): single filters, if nobody else recognises more of it."""
        return tuple(Factor(Pattern([item])) for item in pattern.filters)

    def _forget_patterns(self, who: Party | Peer, patterns: Iterable[Pattern]) -> list[Send]:
        unwanted = [pattern for pattern in patterns if self.monitors.remove(who, pattern)]
        return [send for pattern in unwanted for send in self.drop(Monitor(pattern))]

    def advertise(self, party: Party, advertisement: Advertisement) -> list[Send]:
        """A local party advertises. Routers that do not use advertisements drop them (SIENA 3.5)."""
        return []

    def unadvertise(self, party: Party, advertisement: Advertisement) -> list[Send]:
        """A local party cancels all its advertisements that this one covers."""
        return []

    def leave(self, party: Party) -> list[Send]:
        """A local party is gone, with all its patterns, subscriptions and advertisements."""
        return [*self._forget_patterns(party, self.monitors.of(party)), *self.drop(party)]

    @abstractmethod
    def drop(self, party: Local) -> list[Send]:
        """Cancel all subscriptions and advertisements of a local party."""

    def check_publications(self, party: Party, events: Sequence[Event]) -> None:  # noqa: B027 - all may
        """Raise a `RoutingError` if the party may not publish one of the events."""

    @abstractmethod
    def publish(self, notification: Notify) -> Routed:
        """A local party publishes."""

    def publish_all(self, notifications: list[Notify]) -> list[Routed]:
        """A local party publishes several; the answers in the same order."""
        return [self.publish(notification) for notification in notifications]

    def receive_all(self, peer: str, notifications: list[Notify]) -> list[Routed]:
        """Process several notifications of a peer; the answers in the same order."""
        return [self.receive(peer, notification) for notification in notifications]

    def interest(self, filter: Filter) -> bool:  # noqa: A002
        """Whether anybody may want some of this; True where a router cannot know."""
        return True

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

    def _routed(self, notification: Notify, interested: Iterable[Interface], hops: Collection[str]) -> Routed:
        """A notification goes to the parties among the interested, to monitors, and on to some peers."""
        return self._sent(notification, Audience.of(interested), hops)

    def _sent(self, notification: Notify, audience: Audience, hops: Collection[str]) -> Routed:
        """A notification goes to the parties and monitors of an audience, and on to some peers."""
        if not (hops or audience.patterns):
            return audience.here
        sends = [Send(hop, notification) for hop in hops]
        if not audience.patterns:
            return Routed(audience.parties, sends)
        found = self._occurred(self.monitors.see(sorted(audience.patterns, key=str), notification.event))
        return Routed(audience.parties, [*found.sends, *sends], found.sequences)

    def _occurred(self, found: list[Occurrence]) -> Routed:
        """Occurrences go to the local parties and the peers that asked for the pattern."""
        return Routed(
            frozenset(),
            [Send(o.subscriber.name, _sequence(o)) for o in found if isinstance(o.subscriber, Peer)],
            tuple(o for o in found if isinstance(o.subscriber, Party)),
        )

    def check_peer(self, peer: str) -> None:
        """Raise a `RoutingError` if there is no such peer."""
        if peer not in self.peers:
            raise RoutingError(f"{peer} is not a peer of {self.name}")

    def timer(self, name: str) -> list[Effect]:
        """A timer that the router has set has run out."""
        return []

    def measured(self, peer: str, proximity: float | None) -> list[Effect]:
        """How near a broker is that the router asked for; None: it cannot be reached."""
        return []

    def leave_network(self) -> list[Effect]:
        """The broker is about to leave for good: say farewell."""
        return []

    def types_changed(self) -> list[Send]:
        """An event type became known or changed."""
        return []

    @abstractmethod
    def state(self) -> Mapping[str, Any]:
        """The routing state, for people, tests and metrics; a copy."""


def _sequence(occurrence: Occurrence) -> NotifySequence:
    return NotifySequence(occurrence.pattern, occurrence.events)


class Audience(NamedTuple):
    """Who wants something: local parties, other brokers, and monitors by their patterns."""

    parties: frozenset[str]
    peers: frozenset[str]
    patterns: frozenset[Pattern]
    here: Routed  # where a notification goes that only local parties want

    @classmethod
    def of(cls, interfaces: Iterable[Interface]) -> Audience:
        """An audience of interfaces."""
        return _united([_Subscribers(interfaces)])


class _Subscribers:
    """The interfaces that subscribed to one filter, by what they are."""

    __slots__ = ("_audience", "are_parties", "parties", "patterns", "peers")

    def __init__(self, interfaces: Iterable[Interface] = ()) -> None:
        self._audience: Audience | None = None
        self.are_parties = True  # and nothing else
        self.parties: set[str] = set()
        self.peers: set[str] = set()
        self.patterns: set[Pattern] = set()
        for interface in interfaces:
            self.add(interface)

    def add(self, interface: Interface) -> None:
        """Note one more."""
        self._audience = None
        match interface:
            case Party():
                self.parties.add(interface.identity)
            case Peer():
                self.peers.add(interface.name)
            case Monitor():
                self.patterns.add(interface.pattern)
        self.are_parties = not (self.peers or self.patterns)

    def remove(self, interface: Interface) -> None:
        """Forget one that is there."""
        self._audience = None
        match interface:
            case Party():
                self.parties.remove(interface.identity)
            case Peer():
                self.peers.remove(interface.name)
            case Monitor():
                self.patterns.remove(interface.pattern)
        self.are_parties = not (self.peers or self.patterns)

    def __contains__(self, interface: Interface) -> bool:
        match interface:
            case Party():
                return interface.identity in self.parties
            case Peer():
                return interface.name in self.peers
            case Monitor():
                return interface.pattern in self.patterns

    def __bool__(self) -> bool:
        return bool(self.parties or self.peers or self.patterns)

    @property
    def audience(self) -> Audience:
        """All of them: the same object until one comes or goes, so that its hash is worked out once."""
        if self._audience is None:
            self._audience = _audience(
                frozenset(self.parties), frozenset(self.peers), frozenset(self.patterns)
            )
        return self._audience

    def interfaces(self) -> set[Interface]:
        """All of them."""
        return {*map(Party, self.parties), *map(Peer, self.peers), *map(Monitor, self.patterns)}


_NONE: frozenset[Any] = frozenset()
NOBODY = Audience(_NONE, _NONE, _NONE, NOWHERE)


def _audience(parties: frozenset[str], peers: frozenset[str], patterns: frozenset[Pattern]) -> Audience:
    return Audience(parties, peers, patterns, Routed(parties, []) if parties else NOWHERE)


def _united(found: list[_Subscribers]) -> Audience:
    if not found:
        return NOBODY
    if len(found) == 1:
        return found[0].audience
    parties = _NONE.union(*[each.parties for each in found])
    others = [each for each in found if not each.are_parties]
    if not others:
        return _audience(parties, _NONE, _NONE)
    peers = _NONE.union(*[each.peers for each in others])
    return _audience(parties, peers, _NONE.union(*[each.patterns for each in others]))


class Interests:
    """Who wants what: filters with the interfaces that subscribed to them.

    Each filter is matched once, however many subscribed to it.
    """

    def __init__(self, registry: TypeRegistry) -> None:
        self._registry = registry
        self._filters: dict[Filter, _Subscribers] = {}
        self._silent: dict[
            Filter, None
        ] = {}  # those that have lost all subscribers, and perhaps have new ones
        self._matcher = Matcher(registry)

    def add(self, interface: Interface, filter: Filter) -> None:  # noqa: A002
        """Note an interest; noting it again changes nothing."""
        subscribers = self._filters.get(filter)
        if subscribers is None:
            subscribers = self._filters[filter] = _Subscribers()
            self._matcher.add(subscribers, filter)
        subscribers.add(interface)

    def remove(self, interface: Interface, filter: Filter) -> None:  # noqa: A002
        """Forget an interest."""
        self.silence(interface, (filter,))
        self.tidy(1)

    def silence(self, interface: Interface, filters: Iterable[Filter]) -> None:
        """Forget interests, quickly: those that nobody has any more stay in the index until it is tidied."""
        for filter in filters:  # noqa: A001
            subscribers = self._filters[filter]
            subscribers.remove(interface)
            if not subscribers:
                self._silent[filter] = None

    def tidy(self, most: int) -> None:
        """Take what nobody wants any more out of the index, at most so many."""
        for _ in range(min(most, len(self._silent))):
            filter, _ = self._silent.popitem()  # noqa: A001
            subscribers = self._filters[filter]
            if not subscribers:
                del self._filters[filter]
                self._matcher.remove(subscribers)

    @property
    def is_untidy(self) -> bool:
        """Whether there is something to tidy."""
        return bool(self._silent)

    def reset(self, interests: Iterable[tuple[Interface, Filter]]) -> None:
        """Forget all and note these instead."""
        self._filters.clear()
        self._silent.clear()
        self._matcher = Matcher(self._registry)
        for interface, filter in interests:  # noqa: A001
            self.add(interface, filter)

    def of(self, interface: Interface) -> list[Filter]:
        """The filters of an interface."""
        return [item for item, subscribers in self._filters.items() if interface in subscribers]

    def table(self) -> dict[Filter, frozenset[Interface]]:
        """Each filter with its interfaces."""
        return {item: frozenset(who.interfaces()) for item, who in self._filters.items() if who}

    def overlap(self, filter: Filter) -> bool:  # noqa: A002
        """Whether some filter may match some of the same events."""
        return any(item.overlaps(filter, self._registry) for item, who in self._filters.items() if who)

    def interested(self, event: Event) -> set[Interface]:
        """The interfaces with some filter that matches."""
        found: list[_Subscribers] = self._matcher.match(event)
        return set[Interface]().union(*(each.interfaces() for each in found))

    def audiences(self, notifications: Sequence[Notify]) -> list[Audience]:
        """Who wants each of several notifications; not to be changed, nor kept."""
        if len(notifications) < 2:
            return [_united(self._matcher.match(notification.event)) for notification in notifications]
        offsets, found = self._matcher.match_events([notification.event for notification in notifications])
        subscribers = found.tolist() if hasattr(found, "tolist") else found
        bounds = offsets.tolist() if hasattr(offsets, "tolist") else offsets
        return [_united(subscribers[start:end]) if start < end else NOBODY for start, end in pairwise(bounds)]


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

    def forget(self, origin: str) -> None:
        """An origin is gone for good."""
        self._floors.pop(origin, None)
        self._numbers.pop(origin, None)
