"""What both shells of the bus share: clients and their subscriptions, on a network in this process.

Nothing waits in here, and calls must not overlap (see `mailbox.py`). A subscription is a party of its
own: each has an event at most once, whatever the paths, and two subscriptions of one client that match
both have it. Requests take effect in the order in which they are made.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from angelia.bus.history import LakeSync, open_lake
from angelia.bus.mailbox import Ticket
from angelia.bus.party import Item, Party, SubscriptionStats, removed_type
from angelia.bus.session import Session
from angelia.errors import ClosedError, RequestError
from angelia.messages import (
    Deliver,
    DeliverSequence,
    Effect,
    FromClient,
    Input,
    Published,
    Reply,
    Request,
    TypeRemoved,
)
from angelia.node import Node

if TYPE_CHECKING:
    from angelia.store import LakeWriter

__all__ = ["Brokers", "Core", "Stats", "core_of"]


@dataclass(frozen=True)
class Stats:
    """What a bus has done, closed subscriptions included; and the subscriptions that are open.

    `received` is what went towards queues, `dropped` is part of it; `failed` callbacks raised an
    exception; `messages` went between brokers.
    """

    published: int
    received: int
    dropped: int
    failed: int
    messages: int
    subscriptions: tuple[SubscriptionStats, ...]


class _Counts(NamedTuple):
    received: int = 0
    dropped: int = 0

    def plus(self, party: Party[Any]) -> _Counts:
        return _Counts(self.received + party.mailbox.received, self.dropped + party.mailbox.dropped)


class Brokers(Protocol):
    """What clients within a process need of brokers: all of a bus, or the one of a broker process."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name, the first one first."""

    @property
    def messages(self) -> int:
        """How many went from broker to broker."""

    def node(self, broker: str) -> Node:
        """The broker of that name, or a `RequestError`."""

    def run(self, inputs: list[tuple[str, Input]], now: float) -> list[Effect]:
        """Give inputs to brokers and pass on all that they send; returns the effects for clients."""


def core_of(
    network: Brokers, clock: Callable[[], float], lake: str | os.PathLike[str] | None, sync: LakeSync
) -> Core:
    """The core of a bus, with a lake if it has one."""
    nodes = list(network.nodes.values())
    return Core(network, clock, None if lake is None else open_lake(lake, sync, nodes, clock))


class Core:
    """The clients of a bus and its network."""

    def __init__(self, network: Brokers, clock: Callable[[], float], lake: LakeWriter | None = None) -> None:
        self.clock = clock
        self.lake = lake
        self.network = network
        self.sessions: dict[str, Session] = {}
        self.parties: dict[str, Party[Any]] = {}
        self.published = 0
        self.failed = 0
        self._is_closed = False
        self._entered = 0
        self._gone = _Counts()  # of subscriptions that are closed

    def check_open(self) -> None:
        """Raise a `ClosedError` if the bus was closed."""
        if self._is_closed:
            raise ClosedError("the bus is closed")

    def session(self, name: str, broker: str | None = None) -> Session:
        """A new client, at the first broker if none is named."""
        self.check_open()
        if name in self.sessions:
            raise RequestError(f"there is a client {name!r} already; give each its own name")
        if not name or "#" in name:
            raise RequestError(f"a client needs a name, without '#'; {name!r} is none")
        self.sessions[name] = session = Session(self, name, broker or next(iter(self.network.nodes)))
        return session

    # ------------------------------------------------ requests

    def request(self, session: Session, request: Request) -> tuple[Reply, list[Ticket[Item]]]:
        """Have a request done. Returns what became of it, and who is to be waited for."""
        given = FromClient(session.name, request)
        effects = self.network.run([(session.broker, given)], self.clock())
        self._keep(effects)
        # In an overlay of processes, the reply may be still to come: then it is taken for granted.
        granted = Reply(session.name, 0)
        reply = next((effect for effect in effects if isinstance(effect, Reply)), granted)
        return reply, self.deliver(effects)

    def _keep(self, effects: Iterable[Effect]) -> None:
        """Have what was published in the lake before anybody has it."""
        if self.lake is not None:
            for effect in effects:
                if isinstance(effect, Published):
                    self.lake.append(effect.events)

    def deliver(self, effects: Iterable[Effect]) -> list[Ticket[Item]]:
        """Put what was delivered into the queues. Returns who is to be waited for."""
        wanted: list[tuple[tuple[int, int], Party[Any], Item]] = []
        places: dict[int, int] = {}
        for effect in effects:
            if isinstance(effect, Deliver | DeliverSequence):
                item, identities = _delivered(effect)
                place = places.setdefault(id(item), len(places))
                parties = map(self.parties.__getitem__, identities)
                wanted += [((place, party.age), party, item) for party in parties]
        wanted.sort(key=itemgetter(0))  # event by event, and the oldest subscription first
        tickets = []
        for name in [effect.name for effect in effects if isinstance(effect, TypeRemoved)]:
            self._end_parties(name)
        for _, party, item in wanted:
            ticket = party.mailbox.put(item)
            if ticket is not None:
                tickets.append(ticket)
            if not party.mailbox.is_open:  # by its policy, just now
                party.session.unsubscribe(party)
        return tickets

    def _end_parties(self, event_type: str) -> None:
        """An event type is gone: its brokers have ended what was subscribed to of it."""
        for party in [party for party in self.parties.values() if party.is_of(event_type)]:
            self.forget(party)
            party.mailbox.fail(removed_type(event_type))

    # ------------------------------------------------ subscriptions

    def enter(self, name: str, party: Party[Any]) -> int:
        """Note a subscription; returns its number."""
        self.parties[name] = party
        self._entered += 1
        return self._entered

    def forget(self, party: Party[Any]) -> None:
        """Drop a subscription, but not what it counted."""
        del self.parties[party.name]
        self._gone = self._gone.plus(party)

    def close(self) -> None:
        """End all clients; what is in queues can still be read."""
        self._is_closed = True
        for party in list(self.parties.values()):
            self.forget(party)
            party.mailbox.finish()

    def stats(self) -> Stats:
        """Counts, and the open subscriptions in the order in which they were made."""
        parties = sorted(self.parties.values(), key=lambda party: party.age)
        total = self._gone
        for party in parties:
            total = total.plus(party)
        rows = tuple(party.stats() for party in parties)
        return Stats(self.published, *total, self.failed, self.network.messages, rows)


def _delivered(effect: Deliver | DeliverSequence) -> tuple[Item, Iterable[str]]:
    """What is delivered, and to which parties."""
    if isinstance(effect, Deliver):
        return effect.event, (identity for _, identities in effect.to for identity in identities)
    return effect.events, effect.identities
