"""What becomes of the effects of a node: events go to connections, and all else where it belongs.

Events for the same subscriptions come again and again. Where they go, and what stands before them there, is
worked out once: that is a plan. What the events of one input make for a client is gathered, and put into its
queue at once, before anything else is sent to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from angelia.event import Event
from angelia.messages import (
    Deliver,
    Effect,
    Forwarded,
    FromClient,
    Input,
    Notify,
    PublishAll,
    Recipients,
    Send,
)
from angelia.wire import encode_event

if TYPE_CHECKING:
    from angelia.broker.broker import Broker
    from angelia.broker.session import ClientSession

__all__ = ["Dispatch", "events_in"]

_TYPE = attrgetter("type")


class _Plan(NamedTuple):
    """Where events go that have the same recipients."""

    epoch: int
    puts: tuple[Callable[[bytes], None], ...]  # those who take an item …
    heads: tuple[bytes, ...]  # … and what stands before the event in it
    sessions: frozenset[ClientSession]  # theirs
    inside: tuple[tuple[str, frozenset[str]], ...]  # those within this process


_NO_PLAN = _Plan(-1, (), (), frozenset(), ())


class _Sent:
    """What went where in one turn."""

    def __init__(self) -> None:
        self.sessions: set[ClientSession] = set()
        self.wanted: dict[int, str | None] = {}  # the types of events that somebody wants
        self.out: Counter[str | None] = Counter()  # how often events of a type went out
        self._event: Event | None = None
        self._data = b""

    def encoded(self, event: Event) -> bytes:
        """An event that somebody wants, as bytes: the effects of one event follow each other."""
        if event is not self._event:
            self._event, self._data = event, encode_event(event)
            self.wanted[id(event)] = event.type
        return self._data


class Dispatch:
    """Does what the node of a broker wants done."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._epoch = 0  # plans of another one are no good

    def forget_plans(self) -> None:
        """A client came, or left, or will look at its events in another way."""
        self._epoch += 1

    def perform(self, effects: Iterable[Effect], given: Input) -> list[Effect]:
        """Do what the node wants; returns the effects for clients within this process."""
        inside: list[Effect] = []
        sent = _Sent()
        for effect in effects:
            if type(effect) is Deliver:
                self._deliver(effect, sent, inside)
            elif type(effect) is Send:
                self._send(effect, sent)
            else:
                _hand_over(sent)
                inside += self._broker.perform_rarer(effect)
        _hand_over(sent)
        self._count(events_in(given), sent, type(given) is FromClient)
        return inside

    def _deliver(self, effect: Deliver, sent: _Sent, inside: list[Effect]) -> None:
        event, to = effect.event, effect.to
        data = sent.encoded(event)
        sent.out[event.type] += len(to)
        plan = to.plan
        if plan is None or plan.epoch != self._epoch:
            to.plan = _NO_PLAN if plan is None else self._planned(to)  # it is worth it if they come again
            self._deliver_each(effect, data, sent, inside)
            return
        for put, head in zip(plan.puts, plan.heads):  # noqa: B905 - they are of one length, and it costs
            put(head + data)
        if len(sent.sessions) < len(self._broker.clients):
            sent.sessions |= plan.sessions
        if plan.inside:
            inside.append(Deliver(event, Recipients(plan.inside)))

    def _deliver_each(self, effect: Deliver, data: bytes, sent: _Sent, inside: list[Effect]) -> None:
        """Deliver without a plan."""
        clients, event = self._broker.clients, effect.event
        for pair in effect.to:
            session = clients.get(pair[0])
            if session is None:
                inside.append(Deliver(event, Recipients((pair,))))
            else:
                sent.sessions.add(session)
                session.offer(pair[1], event, data)

    def _planned(self, to: Recipients) -> _Plan:
        """A plan, unless a client has to look at the events."""
        clients = self._broker.clients
        known = [(clients[name], identities) for name, identities in to if name in clients]
        if any(session.is_choosy for session, _ in known):
            return _NO_PLAN
        return _Plan(
            self._epoch,
            tuple([session.put for session, _ in known]),
            tuple([session.head(identities) for session, identities in known]),
            frozenset([session for session, _ in known]),
            tuple([pair for pair in to if pair[0] not in clients]),
        )

    def _send(self, effect: Send, sent: _Sent) -> None:
        link, message = self._broker.links.get(effect.peer), effect.message
        if link is None:
            return
        link.send(message, sent.encoded)
        if type(message) is Notify:
            sent.out[message.event.type] += 1

    def _count(self, events: Sequence[Event], sent: _Sent, are_published: bool) -> None:
        """Count what came, went, and was filtered."""
        if not events:
            return
        broker, metrics = self._broker, self._broker.metrics
        if are_published:
            broker.published += len(events)
        came, wanted = Counter(map(_TYPE, events)), Counter(sent.wanted.values())
        for event_type, count in came.items():
            metrics.count_in(event_type, count)
            if count > wanted[event_type]:
                metrics.count_filtered(event_type, count - wanted[event_type])
        for event_type, count in sent.out.items():
            metrics.count_out(event_type, count)
            broker.delivered += count


def _hand_over(sent: _Sent) -> None:
    """Put what was gathered for clients into their queues."""
    for session in sent.sessions:
        if session.gathered:
            session.put_gathered()
    sent.sessions.clear()


def events_in(given: Input) -> Sequence[Event]:
    """The events that an input is about."""
    if type(given) is FromClient and type(given.request) is PublishAll:
        return given.request.events
    return [one.event for one in given.notifications] if type(given) is Forwarded else ()
