"""Pan: the overlay of HERMES (4.4.1), which is Pastry (2.3.1) with requests that are answered.

A message is routed to the live node whose id is numerically nearest to a key; at every hop the layer
above may look at it, change where it goes next, or keep it (Table 4.8). A node joins through any other:
its `Join` is routed towards its own id and gathers contacts on the way; the last node sends them with
its leaf set. Nothing is taken for true that others say of third nodes: each is measured first, and
of several nodes for a place in the routing table the nearest is chosen, the next ones are backups.

Nodes beat to all that they know, and take for dead who has not been heard of for a while, or whom
they cannot be linked with. Who loses a member of its leaf set exchanges contacts with the others, as
leaf sets do at every beat, so that they are right again whatever happened at the same time. Of those who
were lost without a farewell some are remembered and sought, one a beat: when a network was parted and is
whole again, each joins the others' ring through the first that it finds. And who is linked with somebody
that it does not know joins through that one too, once: it may be of a ring that has grown by itself.

Effects go to an outbox that is shared with the router. Links are made when there is something to say.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from angelia.errors import RoutingError
from angelia.messages import (
    Connect,
    Contact,
    Contacts,
    Disconnect,
    Farewell,
    Heartbeat,
    Join,
    Measure,
    Message,
    Route,
    RouteReply,
    Send,
    SetTimer,
)
from angelia.overlay.ids import BITS, distance, number, shared
from angelia.overlay.tables import LeafSet, Neighbourhood, RoutingTable

__all__ = ["Application", "Pan", "PanSettings"]

MAX_CONTACTS = 4096  # in one message; they come from strangers
MAX_HOPS = 64
MAX_LOST = 32  # nodes that are sought

_BEAT = "heartbeat"
_REQUEST = "request "


@dataclass(frozen=True)
class PanSettings:
    """What an overlay is tuned by; all its nodes should have the same. Times are in seconds."""

    b: int = 4  # bits of a digit
    leaf_set: int = 8
    neighbourhood: int = 8
    backups: int = 2  # of each entry of the routing table
    heartbeat: float | None = 5.0  # None: nobody is ever taken for dead by its silence
    patience: int = 3  # beats without a sign of life
    timeout: float = 5.0  # of requests

    def __post_init__(self) -> None:
        if self.b not in (1, 2, 4, 8):
            raise RoutingError(f"the digits of ids have 1, 2, 4 or 8 bits, not {self.b}")
        if self.leaf_set < 2 or self.leaf_set % 2:
            raise RoutingError(f"a leaf set has an even number of nodes, 2 at least, not {self.leaf_set}")
        if (self.heartbeat is not None and self.heartbeat <= 0) or self.timeout <= 0 or self.patience < 1:
            raise RoutingError("the times of an overlay are above 0")


class Application(Protocol):
    """The layer above (Table 4.8)."""

    def deliver(self, message: Message, source: Contact, last: str, key: str) -> None:
        """A message has reached its destination, which is here."""

    def deliver_request(self, message: Message, source: Contact, number: int) -> Message | None:
        """A request has reached its destination: the answer, or None if it comes later, by `answer`."""

    def forward(
        self,
        message: Message,
        source: Contact,
        last: str,
        next: Contact,  # noqa: A002 - the thesis' word
        key: str,
    ) -> Contact | None:
        """A message is about to go to the next node: that one, another, or None to keep it here."""

    def leaf_set_changed(self, leaf_set: tuple[Contact, ...]) -> None:
        """The leaf set has other members than before."""

    def peer_failed(self, name: str) -> None:
        """A node is dead or gone."""


class Pan:
    """One node of the overlay."""

    def __init__(
        self,
        me: Contact,
        settings: PanSettings,
        application: Application,
        outbox: deque[Any],
        peers: Mapping[str, None],
        clock: Callable[[], float],
    ) -> None:
        self.me = me
        self.settings = settings
        self._number = number(me.id)
        self._app = application
        self._out = outbox
        self._peers = peers  # the links that are up; whose they are is the router's affair
        self._clock = clock
        self.leaf_set = LeafSet(self._number, settings.leaf_set)
        self.table = RoutingTable(self._number, settings.b, settings.backups)
        self.neighbourhood = Neighbourhood(settings.neighbourhood)
        self._known: dict[str, Contact] | None = None
        self.proximity: dict[str, float] = {}
        self.version = 0  # grows with each change of the tables
        self._measuring: dict[str, Contact] = {}
        self._failed: dict[str, float] = {}
        self._lost: dict[str, Contact] = {}  # who may be back some day; the next to be sought is first
        self._seeking: dict[str, Contact] = {}
        self._heard: dict[str, float] = {}
        self._waiting: dict[str, list[Message]] = {}  # for a link that was asked for
        self._met: set[str] = set()  # linked nodes that this one has joined through
        self._told: tuple[Contact, ...] = ()  # the leaf set, as others know it
        self._is_joining = False
        self._must_announce = False
        self._must_repair = False
        self._requests = 0
        self._pending: dict[int, Callable[[Message | None], None]] = {}
        self._beats = False
        self._next_beat = 0.0
        self._handlers: dict[type, Callable[[str, Any], None]] = {
            Join: self._on_join,
            Contacts: self._on_contacts,
            Heartbeat: self._on_heartbeat,
            Farewell: self._on_farewell,
            Route: lambda peer, routed: self._pass_on(routed, peer),
            RouteReply: lambda peer, answer: self._on_answer(answer),
        }

    @property
    def known(self) -> dict[str, Contact]:
        """All nodes that are in a table, by name."""
        if self._known is None:
            members = (*self.leaf_set.members, *self.table.members, *self.neighbourhood.members)
            self._known = {contact.name: contact for contact in members}
        return self._known

    # ------------------------------------------------ what the layer above asks for (Table 4.7)

    def join(self, bootstrap: str) -> None:
        """Become a node of the overlay that a peer belongs to."""
        self._is_joining = True
        self._met.add(bootstrap)
        self._transmit(bootstrap, Join(self.me))

    def leave(self) -> None:
        """Leave the overlay: all that are known are told."""
        for peer in self._peers:
            self._transmit(peer, Farewell())
        self._out.append(SetTimer(_BEAT, None))

    def route(self, message: Message, key: str) -> None:
        """Send a message to the node nearest to a key."""
        self._pass_on(Route(key, self.me, message), self.me.name)

    def request(self, message: Message, key: str, then: Callable[[Message | None], None]) -> None:
        """Send a request to the node nearest to a key; `then` is given the answer, or None if none comes."""
        self._requests += 1
        mine = self._requests
        self._pending[mine] = then
        self._out.append(SetTimer(f"{_REQUEST}{mine}", self.settings.timeout))
        self._pass_on(Route(key, self.me, message, mine), self.me.name)

    def answer(self, to: Contact, number: int, message: Message) -> None:
        """RouteReply a request."""
        if to.name == self.me.name:
            self._on_answer(RouteReply(number, message))
        else:
            self.send(to, RouteReply(number, message))

    def send(self, to: Contact, message: Message) -> None:
        """Send a message directly, over a new link if there is none."""
        if to.name in self._peers:
            self._transmit(to.name, message)
            return
        if to.name not in self._waiting:
            self._out.append(Connect(to.name, to.address))
        self._waiting.setdefault(to.name, []).append(message)

    def _transmit(self, peer: str, message: Message) -> None:
        self._out.append(Send(peer, message))

    # ------------------------------------------------ routing

    def next_hop(self, key: str, without: str | None = None) -> Contact | None:
        """Where a message for a key goes next (2.3.1); None if this node is the nearest."""
        value = number(key)
        if self.leaf_set.covers(value):
            return self.leaf_set.nearest(value, without)
        entry = self.table.entry(value)
        if entry is not None and entry.name != without:
            return entry
        return self._nearer(value, without)

    def _nearer(self, key: int, without: str | None) -> Contact | None:
        """Any node that shares as many digits at least, and is numerically nearer: the best of them."""
        b = self.settings.b
        least, best = shared(self._number, key, b), (distance(self._number, key), self._number)
        nearer = [
            (-shared(value, key, b), distance(value, key), value, contact)
            for contact in self.known.values()
            if contact.name != without
            for value in [number(contact.id)]
            if shared(value, key, b) >= least and (distance(value, key), value) < best
        ]
        return min(nearer)[3] if nearer else None

    def is_root(self, key: str) -> bool:
        """Whether this node is the one nearest to a key."""
        return self.next_hop(key) is None

    def _pass_on(self, routed: Route, last: str) -> None:
        if routed.hops > MAX_HOPS:
            return  # the tables are in disorder: it would go on for ever
        hop = self.next_hop(routed.key)
        if hop is None:
            self._deliver(routed, last)
            return
        chosen = self._app.forward(routed.message, routed.source, last, hop, routed.key)
        if chosen is not None:
            on = Route(routed.key, routed.source, routed.message, routed.number, routed.hops + 1)
            self.send(chosen, on)

    def _deliver(self, routed: Route, last: str) -> None:
        if not routed.number:
            self._app.deliver(routed.message, routed.source, last, routed.key)
            return
        answer = self._app.deliver_request(routed.message, routed.source, routed.number)
        if answer is not None:
            self.answer(routed.source, routed.number, answer)

    def _on_answer(self, answer: RouteReply) -> None:
        then = self._pending.pop(answer.number, None)
        if then is not None:
            self._out.append(SetTimer(f"{_REQUEST}{answer.number}", None))
            then(answer.message)

    # ------------------------------------------------ inputs

    def peer_up(self, peer: str) -> None:
        """A link is there: who knows nobody joins through it, or who had taken the peer for dead."""
        self._heard[peer] = self._clock()
        if not self._beats and self.settings.heartbeat is not None:
            self._beats = True
            self._next_beat = self._clock() + self.settings.heartbeat
            self._out.append(SetTimer(_BEAT, self.settings.heartbeat))
        returned = self._failed.pop(peer, None) is not None
        for message in self._waiting.pop(peer, ()):
            self._transmit(peer, message)
        if returned or not (self.known or self._is_joining or self._measuring):
            self.join(peer)

    def peer_down(self, peer: str) -> None:
        """A link is gone. Who is known is tried once more, then taken for dead."""
        self._met.discard(peer)
        if peer in self._waiting:
            self.fail(peer)
        elif peer in self.known:
            self._waiting[peer] = []
            self._out.append(Connect(peer, self.known[peer].address))
        else:
            self._heard.pop(peer, None)
            self._app.peer_failed(peer)

    def receive(self, peer: str, message: Message) -> bool:
        """A message; returns whether it was one of the overlay."""
        self._heard[peer] = self._clock()
        handler = self._handlers.get(type(message))
        if handler is not None:
            handler(peer, message)
        return handler is not None

    def measured(self, peer: str, proximity: float | None) -> None:
        """How near a node is."""
        sought = self._seeking.pop(peer, None)
        contact = self._measuring.pop(peer, None) or sought
        if contact is not None and proximity is not None:
            if peer in self._lost:
                self._find(contact)
            self._insert(contact, proximity)
        elif contact is not None:
            self._failed[peer] = self._clock()

    def timer(self, name: str) -> bool:
        """A timer has run out; returns whether it was one of the overlay."""
        if name == _BEAT:
            self._beat()
        elif name.startswith(_REQUEST):
            then = self._pending.pop(int(name.removeprefix(_REQUEST)), None)
            if then is not None:
                then(None)
        else:
            return False
        return True

    # ------------------------------------------------ who is there

    def _on_join(self, peer: str, message: Join) -> None:
        joiner = message.joiner
        _check(message.met)
        row = shared(self._number, number(joiner.id), self.settings.b)
        gathered = [*message.met, self.me, *self.table.row(row)]
        if not message.met:  # the first is near to the new one, most likely; so are its neighbours
            gathered += [*self.neighbourhood.members, *(c for r in range(row) for c in self.table.row(r))]
        hop = self.next_hop(joiner.id, without=joiner.name)
        if hop is None:
            gathered += self.leaf_set.members
        met = tuple(contact for contact in dict.fromkeys(gathered) if contact.name != joiner.name)
        if hop is None:
            self.send(joiner, Contacts(self.me, met))
        else:
            self.send(hop, Join(joiner, met))

    def _on_contacts(self, peer: str, message: Contacts) -> None:
        _check((message.sender, *message.contacts))
        if message.sender.name == peer:
            self._failed.pop(peer, None)
        self._consider((message.sender, *message.contacts))
        if self._is_joining:
            self._is_joining, self._must_announce = False, True
        if message.asks:
            self.send(message.sender, Contacts(self.me, self._share(message.sender)))

    def _share(self, other: Contact) -> tuple[Contact, ...]:
        """What another node may like to know: the leaf set, and the row that it could have as well."""
        row = self.table.row(shared(self._number, number(other.id), self.settings.b))
        found = dict.fromkeys((*self.leaf_set.members, *row))
        return tuple(contact for contact in found if contact.name != other.name)

    def _consider(self, contacts: Iterable[Contact]) -> None:
        """Measure those that are new, and are not known to be dead."""
        known = self.known
        for contact in contacts:
            name = contact.name
            if name == self.me.name or name in self._measuring or name in self._failed or name in known:
                continue
            if name in self.proximity:
                self._insert(contact, self.proximity[name])
            else:
                self._measuring[name] = contact
                self._out.append(Measure(name, contact.address))

    def _find(self, contact: Contact) -> None:
        """Who was lost is there, perhaps with others who have gone on without this node: join them."""
        del self._lost[contact.name]
        self._failed.pop(contact.name, None)
        self._is_joining = True
        self.send(contact, Join(self.me))

    def _insert(self, contact: Contact, proximity: float) -> None:
        self.proximity[contact.name] = proximity
        places = (
            self.leaf_set.add(contact),
            self.table.add(contact, proximity),
            self.neighbourhood.add(contact, proximity),
        )
        if any(places):
            self._heard.setdefault(contact.name, self._clock())
            self._tables_changed()

    def _tables_changed(self) -> None:
        self.version += 1
        self._known = None

    def fail(self, name: str) -> None:
        """A node is dead or gone: find others in its place, send what was meant for it elsewhere."""
        self._failed[name] = self._clock()
        self._heard.pop(name, None)
        self.proximity.pop(name, None)
        contact = self.known.get(name)
        if contact is not None:
            self._lost[name] = contact
            if len(self._lost) > MAX_LOST:
                del self._lost[next(iter(self._lost))]
            self._must_repair |= self.leaf_set.remove(name)
            row = self.table.remove(contact)
            self.neighbourhood.remove(name)
            for other in list(self.known.values()):  # those of one table may have a place in another now
                if other.name != name:
                    self._insert(other, self.proximity[other.name])
            self._tables_changed()
            if row is not None:
                self._fill(row)
        self._app.peer_failed(name)
        for message in self._waiting.pop(name, ()):
            if isinstance(message, Route):
                self._pass_on(message, self.me.name)
            elif isinstance(message, Join):
                self._on_join(self.me.name, message)

    def _fill(self, row: int) -> None:
        """Ask the others of a row, who may know a node for the place that is empty."""
        for contact in self.table.row(row)[:2]:
            self.send(contact, Contacts(self.me, (), asks=True))

    def settle(self) -> None:
        """At the end of an input: tell others what has changed, when all that is new has been measured."""
        members = self.leaf_set.members
        if members != self._told and not self._measuring:
            self._told = members
            self._app.leaf_set_changed(members)
            if not self._must_announce:
                for contact in members:
                    self.send(contact, Contacts(self.me, members, asks=self._must_repair))
            self._must_repair = False
        if self._must_announce and not self._measuring:
            self._must_announce = False
            for contact in list(self.known.values()):
                self.send(contact, Contacts(self.me, members, asks=True))

    # ------------------------------------------------ heartbeats

    def _on_farewell(self, peer: str, message: Farewell) -> None:
        self.fail(peer)
        self._lost.pop(peer, None)

    def _on_heartbeat(self, peer: str, message: Heartbeat) -> None:
        if message.asks:
            self._transmit(peer, Heartbeat())

    def _beat(self) -> None:
        beat = self.settings.heartbeat
        assert beat is not None
        now = self._clock()
        if now > self._next_beat + beat:  # this node was asleep, not the others
            self._heard = dict.fromkeys(self._heard, now)
        self._next_beat = now + beat
        silent = now - beat * self.settings.patience
        for name in [n for n, heard in self._heard.items() if heard < silent and n in self.known]:
            if name in self._peers:
                self._out.append(Disconnect(name))
            self.fail(name)
        for name, contact in list(self.known.items()):
            self._heard.setdefault(name, now)
            self.send(contact, Heartbeat(asks=True))
        for contact in dict.fromkeys((*self.leaf_set.larger[:1], *self.leaf_set.smaller[:1])):
            self.send(contact, Contacts(self.me, self.leaf_set.members, asks=True))
        strangers = [name for name in self._peers if name not in self.known]
        if strangers and not self.known:
            self.join(strangers[0])  # the first attempt was lost
        elif new := [name for name in strangers if name not in self._met]:
            self._met.add(new[0])
            self._transmit(new[0], Join(self.me))  # of most, nothing new will come
        self._seek()
        forgotten = now - 4 * beat * self.settings.patience
        self._failed = {name: when for name, when in self._failed.items() if when > forgotten}
        self._out.append(SetTimer(_BEAT, beat))

    def _seek(self) -> None:
        """Look whether one of the lost is there again; each in its turn."""
        name = next((name for name in self._lost if name not in self._seeking), None)
        if name is not None:
            contact = self._seeking[name] = self._lost.pop(name)
            self._lost[name] = contact
            self._out.append(Measure(name, contact.address))

    def is_idle(self, peer: str) -> bool:
        """Whether nobody seems to need a link: the peer is in no table, and has been silent for a while."""
        beat = self.settings.heartbeat
        if beat is None or peer in self.known or peer in self._waiting:
            return False
        return self._heard.get(peer, 0.0) < self._clock() - beat * self.settings.patience


def _check(contacts: tuple[Contact, ...]) -> None:
    """Raise a `RoutingError` if a stranger told of nodes that cannot be."""
    if len(contacts) > MAX_CONTACTS:
        raise RoutingError(f"{len(contacts)} contacts in one message; at most {MAX_CONTACTS} may be")
    for contact in contacts:
        if not 0 <= number(contact.id) < 1 << BITS:
            raise RoutingError(f"{contact.id} is no id")
