"""A node: routing and the rules of the service, as one pure state machine.

`handle(input, now)` returns the effects; nothing else happens. The same node is driven by the
broker, by the simulator and by the in-process bus. A request that is refused leaves the state as it
was and says why in its reply; a message that is refused raises a `RoutingError`, and what to do
about the peer is the driver's affair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.msgpack import encode

from angelia.errors import AngeliaError, EventTypeError, RequestError, RoutingError
from angelia.event import Event
from angelia.filter import Advertisement, Filter, check_filter
from angelia.messages import (
    Advertise,
    By,
    ClientDown,
    DefineType,
    Deliver,
    DeliverSequence,
    Effect,
    Forwarded,
    FromClient,
    FromPeer,
    Input,
    Interest,
    Leave,
    Measured,
    Notify,
    PeerDown,
    PeerUp,
    Publish,
    PublishAll,
    Published,
    Recipients,
    RemoveType,
    Reply,
    Send,
    Subscribe,
    SubscribePattern,
    Timer,
    TypeDefinition,
    TypeRemoved,
    Unadvertise,
    Unsubscribe,
    UnsubscribePattern,
)
from angelia.routing import ROUTERS, Party, Routed, Router
from angelia.routing.monitors import Occurrence
from angelia.types import EventType, TypeRegistry

__all__ = ["Node"]

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
MAX_TYPE_BYTES = 1 << 16  # of a definition, encoded
_MAX_GROUPS, _MAX_GROUP = 4096, 32  # of parties that are kept by client, and of parties in one


class Node:
    """One event server: `Node("b1", "peer")`. The routers are named in `angelia.routing.ROUTERS`.

    `address` is where other brokers can reach this one; `options` are those of the router. `records`:
    somebody keeps what is published here, so that `Published` is among the effects. `max_types`: how many
    event types clients may fill the registry with; what peers know is taken over all the same.
    """

    def __init__(
        self,
        name: str,
        routing: str,
        *,
        address: str = "",
        records: bool = False,
        max_types: int | None = None,
        **options: Any,
    ) -> None:
        if routing not in ROUTERS:
            raise RoutingError(f"there is no routing {routing!r}; there are {', '.join(ROUTERS)}")
        self.name = name
        self.registry = TypeRegistry()
        self.router: Router = _made(ROUTERS[routing], name, self.registry, options)
        self.router.start(address)
        self._clients: dict[str, str] = {}  # identity -> client
        self._groups: dict[frozenset[str], Recipients] = {}  # see `_by_client`
        self._sequence = 0
        self._records = records
        self._max_types = max_types
        self._inputs: dict[type, Callable[[Any, float], list[Effect]]] = {
            FromClient: self._from_client,
            FromPeer: self._from_peer,
            Forwarded: self._forwarded,
            PeerUp: self._peer_up,
            PeerDown: lambda gone, now: list(self.router.peer_down(gone.peer)),
            ClientDown: self._client_down,
            Timer: lambda timer, now: self.router.timer(timer.name),
            Measured: lambda found, now: self.router.measured(found.peer, found.proximity),
            Leave: lambda leave, now: self.router.leave_network(),
        }
        self._requests: dict[type, Callable[[Any, float], list[Effect]]] = {
            Publish: lambda r, now: self._publish_all(r.identity, (r.event,), now, r.by),
            PublishAll: lambda r, now: self._publish_all(r.identity, r.events, now),
            Subscribe: self._subscribe,
            Unsubscribe: self._unsubscribe,
            SubscribePattern: self._subscribe_pattern,
            UnsubscribePattern: self._unsubscribe_pattern,
            Advertise: lambda r, now: list(self.router.advertise(Party(r.identity), r.advertisement)),
            Unadvertise: self._unadvertise,
            DefineType: self._define_type,
            RemoveType: self._remove_type,
            Interest: lambda r, now: [],
        }

    def handle(self, input: Input, now: float) -> list[Effect]:  # noqa: A002 - what it is
        """Process an input at a time (seconds since 1970, UTC) and return what is to be done."""
        self.router.now = now
        effects = self._inputs[type(input)](input, now)
        if not self.router.outbox:
            return effects
        last = effects[-1:] if effects and isinstance(effects[-1], Reply) else []  # a reply comes last
        return [*effects[: len(effects) - len(last)], *self._outbox(), *last]

    def _outbox(self) -> list[Effect]:
        """What the router wants besides what it returned, in order; some of it may lead to more."""
        effects: list[Effect] = []
        while self.router.outbox:
            item = self.router.outbox.popleft()
            if isinstance(item, Routed):
                effects += self._routed(item, item.event)
            elif isinstance(item, FromClient):
                effects += self._in_turn(item)
            elif isinstance(item, TypeRemoved):
                effects += self._type_gone(item.name)
            else:
                effects.append(item)
        return effects

    def _in_turn(self, given: FromClient) -> list[Effect]:
        """A request that waited, with all that comes of it, before what waits behind it."""
        behind = list(self.router.outbox)
        self.router.outbox.clear()
        effects = [*self._from_client(given, self.router.now), *self._outbox()]
        self.router.outbox.extend(behind)
        return effects

    def state(self) -> Mapping[str, Any]:
        """The routing state, the patterns, parties and types; read-only, for people, tests and metrics."""
        return {
            **self.router.state(),
            "patterns": self.router.monitors.table(),
            "parties": dict(self._clients),
            "types": tuple(self.registry),
        }

    # ------------------------------------------------ clients

    def _from_client(self, given: FromClient, now: float) -> list[Effect]:
        request = given.request
        try:
            owner = self._clients.get(request.identity, given.client)
            if owner != given.client:
                raise RequestError(f"the identity {request.identity!r} belongs to another client")
            if type(request) is DefineType:
                self._check_room(request.event_type)
            if self.router.takes_over(given):
                self._clients[request.identity] = given.client
                return []
            effects = self._requests[type(request)](request, now)
        except AngeliaError as error:
            return [Reply(given.client, given.number, str(error), type(error).__name__)]
        self._clients[request.identity] = given.client
        value = self.router.interest(request.filter) if isinstance(request, Interest) else None
        return [*effects, Reply(given.client, given.number, value=value)]

    def _publish_all(
        self, identity: str, events: tuple[Event, ...], now: float, by: By = By.BOTH
    ) -> list[Effect]:
        known = {name for name in {event.type for event in events} if name in self.registry}
        if known:
            for event in events:
                if event.type in known:
                    self.registry.check(event)
        self.router.check_publications(Party(identity), events)
        notifications = self._stamped(events, now)
        self.router.by = by
        effects = self._all_routed(notifications, self.router.publish_all(notifications))
        if self._records:
            client = self._clients.get(identity, identity)
            return [Published(client, tuple(n.event for n in notifications)), *effects]
        return effects

    def _all_routed(self, notifications: list[Notify], all_routed: list[Routed]) -> list[Effect]:
        effects: list[Effect] = []
        for notification, routed in zip(notifications, all_routed, strict=True):
            if routed.sends or routed.sequences:
                effects += self._routed(routed, notification.event)
            elif routed.parties:
                effects.append(Deliver(notification.event, self._by_client(routed.parties)))
        return effects

    def _stamped(self, events: tuple[Event, ...], now: float) -> list[Notify]:
        """The events with an id and a time, where their publisher gave none (SIENA 3.8).

        The time is the number, in microseconds: of two events of one server, the later has the later time.
        Numbers rise over restarts, too: they start from the clock.
        """
        name = self.name
        first = max(self._sequence + 1, round(now * 1e6))
        self._sequence = first + len(events) - 1
        notifications, at = [], _EPOCH + timedelta(microseconds=first)
        for number, event in enumerate(events, first):
            if event.id is None or event.time is None:
                event = event.stamped(f"{name}-{number}", at)
            notifications.append(Notify(event, name, number))
            at += _MICROSECOND
        return notifications

    def _subscribe(self, request: Subscribe, now: float) -> list[Effect]:
        self._check_filter(request.filter)
        self.router.by = request.by
        return list(self.router.subscribe(Party(request.identity), request.filter))

    def _unsubscribe(self, request: Unsubscribe, now: float) -> list[Effect]:
        _check_nothing_uncovered(request)
        self.router.by = request.by
        return list(self.router.unsubscribe(Party(request.identity), request.filter))

    def _unadvertise(self, request: Unadvertise, now: float) -> list[Effect]:
        _check_nothing_uncovered(request)
        return list(self.router.unadvertise(Party(request.identity), request.advertisement))

    def _check_filter(self, filter: Filter) -> None:  # noqa: A002
        if not filter.is_satisfiable:
            raise RequestError("the filter matches nothing")
        if all(name in self.registry for part in filter.conjunctions for name in part.types):
            check_filter(filter, self.registry)

    def _subscribe_pattern(self, request: SubscribePattern, now: float) -> list[Effect]:
        pattern = request.pattern
        if pattern.is_simple:
            return self._subscribe(Subscribe(request.identity, pattern.filters[0]), now)
        for item in pattern.filters:
            self._check_filter(item)
        self.router.by = By.BOTH
        return list(self.router.subscribe_pattern(Party(request.identity), pattern))

    def _unsubscribe_pattern(self, request: UnsubscribePattern, now: float) -> list[Effect]:
        party, pattern = Party(request.identity), request.pattern
        if pattern.is_simple:
            return list(self.router.unsubscribe(party, pattern.filters[0]))
        return list(self.router.unsubscribe_pattern(party, pattern))

    def _routed(self, routed: Routed, event: Event | None) -> list[Effect]:
        effects: list[Effect] = []
        if event is not None and routed.parties:
            effects.append(Deliver(event, self._by_client(routed.parties)))
        if routed.sequences:
            effects += self._sequences(routed.sequences)
        return [*effects, *routed.sends] if routed.sends else effects

    def _sequences(self, occurrences: Iterable[Occurrence]) -> list[Effect]:
        sequences: dict[tuple[Event, ...], set[str]] = {}
        for occurrence in occurrences:
            assert isinstance(occurrence.subscriber, Party)
            sequences.setdefault(occurrence.events, set()).add(occurrence.subscriber.identity)
        return [
            DeliverSequence(*to, events)
            for events, parties in sequences.items()
            for to in self._by_client(frozenset(parties))
        ]

    def _by_client(self, parties: frozenset[str]) -> Recipients:
        """Parties by their clients. The same ones are asked for again and again, so some are kept."""
        found = self._groups.get(parties)
        if found is None:
            found = self._grouped(parties)
            if len(parties) <= _MAX_GROUP:
                if len(self._groups) >= _MAX_GROUPS:
                    self._groups.clear()
                self._groups[parties] = found
        return found

    def _grouped(self, parties: Iterable[str]) -> Recipients:
        by_client: dict[str, list[str]] = {}
        for identity in parties:
            by_client.setdefault(self._clients[identity], []).append(identity)
        return Recipients([(client, frozenset(by_client[client])) for client in sorted(by_client)])

    def _client_down(self, gone: ClientDown, now: float) -> list[Effect]:
        self.router.client_gone(gone.client)
        effects: list[Effect] = []
        for identity in [i for i, client in self._clients.items() if client == gone.client]:
            effects += self.router.leave(Party(identity))
            del self._clients[identity]
        self._groups.clear()
        return effects

    # ------------------------------------------------ peers

    def _peer_up(self, new: PeerUp, now: float) -> list[Effect]:
        sends = self.router.peer_up(new.peer, new.master)
        if not self.router.floods_types:
            return list(sends)
        gone = [Send(new.peer, TypeDefinition(each, True)) for each in self.registry.removed.values()]
        types = [Send(new.peer, TypeDefinition(self.registry.get(name))) for name in self.registry]
        return [*gone, *types, *sends]

    def _from_peer(self, given: FromPeer, now: float) -> list[Effect]:
        message = given.message
        if isinstance(message, TypeDefinition):
            self.router.check_peer(given.peer)
            learn = self._learn_removal if message.is_removed else self._learn_type
            return learn(message.event_type, given.peer)
        routed = self.router.receive(given.peer, message)
        return self._routed(routed, message.event if isinstance(message, Notify) else None)

    def _forwarded(self, given: Forwarded, now: float) -> list[Effect]:
        notifications = given.notifications
        return self._all_routed(notifications, self.router.receive_all(given.peer, notifications))

    # ------------------------------------------------ types

    def _define_type(self, request: DefineType, now: float) -> list[Effect]:
        new = request.event_type
        known = new.name in self.registry
        (self.registry.modify if known else self.registry.add)(new, by=new.owner)
        return self._types_known((self.registry.get(new.name),), None)

    def _check_room(self, new: EventType) -> None:
        """Types come from strangers, and stay for ever, at every broker."""
        if (size := len(encode(new))) > MAX_TYPE_BYTES:
            raise RequestError(f"the definition of {new.name} has {size} bytes, more than {MAX_TYPE_BYTES}")
        removed, most = self.registry.removed, self._max_types  # those that were removed are remembered
        known = len(self.registry) + len(removed)
        if most is not None and known >= most and new.name not in self.registry and new.name not in removed:
            raise RequestError(f"{self.name} knows {known} event types, and takes no more (--max-types)")

    def _learn_type(self, event_type: EventType, peer: str) -> list[Effect]:
        """Take over a newer definition and pass it on; the newest version wins everywhere."""
        try:
            news = self.registry.adopt(event_type)
        except EventTypeError as error:
            raise RoutingError(f"{peer} knows {event_type.name} otherwise: {error}") from None
        if not news:
            return []
        return self._types_known(news, peer if news == (event_type,) else None)

    def _types_known(self, event_types: Iterable[EventType], sender: str | None) -> list[Effect]:
        told = [
            Send(peer, TypeDefinition(each))
            for each in event_types
            for peer in self.router.peers
            if peer != sender
        ]
        return [*told, *self.router.types_changed()]

    def _remove_type(self, request: RemoveType, now: float) -> list[Effect]:
        return self._removal_known(self.registry.remove(request.name, by=request.owner), None)

    def _learn_removal(self, gone: EventType, peer: str) -> list[Effect]:
        """Take over that a type is gone, and pass it on; if it has subtypes here, pass on that it stays."""
        if not self.registry.adopt_removal(gone):
            return []
        if gone.name in self.registry:
            return self._types_known((self.registry.get(gone.name),), None)
        return self._removal_known(gone, peer)

    def _removal_known(self, gone: EventType, sender: str | None) -> list[Effect]:
        told = [Send(peer, TypeDefinition(gone, True)) for peer in self.router.peers if peer != sender]
        return [*self._type_gone(gone.name), *told, *self.router.types_changed()]

    def _type_gone(self, name: str) -> list[Effect]:
        """End what local parties want and offer of a type, and of nothing else."""
        wanted, offered = Filter.of_type(name), Advertisement(None, name)
        self.router.by = By.BOTH
        effects: list[Effect] = []
        for party in map(Party, self._clients):
            for pattern in self.router.monitors.of(party):
                if any(wanted.covers(item) for item in pattern.filters):
                    effects += self.router.unsubscribe_pattern(party, pattern)
            effects += self.router.unsubscribe(party, wanted)
            effects += self.router.unadvertise(party, offered)
        return [*effects, TypeRemoved(name)]


def _made(router: type[Router], name: str, registry: TypeRegistry, options: Mapping[str, Any]) -> Router:
    try:
        return router(name, registry, **options)
    except TypeError as error:
        if not options:
            raise
        raise RoutingError(f"{router.__name__} cannot be made with {', '.join(options)}: {error}") from None


def _check_nothing_uncovered(request: Unsubscribe | Unadvertise) -> None:
    if request.uncovered or request.more:
        raise RequestError("only a broker says what it uncovers; subscribe or advertise it instead")
