"""Event types at their rendezvous nodes, and copies of them where clients are (HERMES 4.2.1, 4.4.2).

The broker nearest to the key of a type keeps its authoritative definition, with those of its ancestors; so do
the members of its leaf set, one of which takes its place if it fails. A broker that needs a type asks there,
and has the request of its client wait for the answer; who has asked is told of changes, for as long as it
renews its asking. That a type is not known is an answer, too. A type that was removed is remembered with the
version of its removal, so that no old copy brings it back.

Departure from the thesis: meta-events about changes go directly to the brokers that have a copy, not through
a tree of subscribers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from angelia.errors import AngeliaError, EventTypeError
from angelia.filter import Filter
from angelia.messages import (
    Advertise,
    Contact,
    DefineType,
    Definitions,
    FromClient,
    Interest,
    Lookup,
    Message,
    Publish,
    Refusal,
    RemoveType,
    Reply,
    Request,
    Subscribe,
    SubscribePattern,
    TypeMessage,
    TypeRemoval,
    TypeRemoved,
)
from angelia.overlay import Pan, key_of
from angelia.types import EventType, TypeRegistry

__all__ = ["Repository"]

_ATTEMPTS = 5  # of a request


class _Broker(Protocol):
    """What the repository needs of its router."""

    name: str
    now: float
    lease: float
    registry: TypeRegistry
    pan: Pan
    outbox: deque[Any]


class Repository:
    """The types of one broker: those that it keeps for others, and the copies for its clients."""

    def __init__(self, broker: _Broker, learned: Callable[[Iterable[str]], None]) -> None:
        self._broker = broker
        self._learned = learned  # is told which types are known now; none: that a name is no type
        self.kept: set[str] = set()  # types that this broker keeps for others
        self.unknown: dict[str, float] = {}  # names that are no types, and how long that is believed
        self._rooted: set[str] = set()  # kept types whose rendezvous node this broker is
        self._copies: set[str] = set()  # names that were asked for
        self._asking: set[str] = set()
        self._askers: dict[str, dict[str, tuple[Contact, float]]] = {}
        self._members: tuple[Contact, ...] = ()
        self._waiting: dict[str, deque[FromClient]] = {}  # by client
        self._defining: set[str] = set()  # clients that wait for the rendezvous node to accept a change
        self._ready: list[FromClient] = []

    # ------------------------------------------------ requests of clients

    def takes_over(self, given: FromClient) -> bool:
        """Whether a request waits for types; those of one client stay in their order."""
        client = given.client
        if any(ready is given for ready in self._ready):
            self._ready = [ready for ready in self._ready if ready is not given]
        elif client in self._defining or client in self._waiting:
            self._waiting.setdefault(client, deque()).append(given)
            return True
        missing = self._missing(given.request)
        if missing:
            self._waiting.setdefault(client, deque()).appendleft(given)
            for name in missing:
                self.look_up(name)
            return True
        match given.request:
            case DefineType(event_type=event_type):
                self._change(given, event_type.name, TypeMessage(event_type))
            case RemoveType(name=name, owner=owner):
                self._change(given, name, TypeRemoval(name, owner))
            case _:
                return False
        return True

    def client_gone(self, client: str) -> None:
        """A client is gone, with what it waited for."""
        self._waiting.pop(client, None)
        self._defining.discard(client)

    def _missing(self, request: Request) -> list[str]:
        return [name for name in sorted(_names(request)) if not self.is_settled(name)]

    def is_settled(self, name: str) -> bool:
        """Whether it is known what a type is, or that there is none of that name."""
        return name in self._broker.registry or name in self.unknown

    def _change(self, given: FromClient, name: str, message: TypeMessage | TypeRemoval) -> None:
        """Have a type added, changed or removed by its rendezvous node; the client waits for that."""
        self._defining.add(given.client)
        self._ask(name, message, partial(self._changed, given, name))

    def _ask(
        self, name: str, message: Message, then: Callable[[Message | None], None], attempts: int = _ATTEMPTS
    ) -> None:
        """Ask the rendezvous node of a type; if it fails before it answers, another takes its place."""

        def answered(answer: Message | None) -> None:
            if answer is None and attempts > 1:
                self._ask(name, message, then, attempts - 1)
            else:
                then(answer)

        self._broker.pan.request(message, key_of(name), answered)

    def _changed(self, given: FromClient, name: str, answer: Message | None) -> None:
        error: str | None = f"the rendezvous node of {name} did not answer; try again"
        if isinstance(answer, Definitions):
            error = self.adopt(answer)
        elif isinstance(answer, Refusal):
            error = answer.error
        if given.client in self._defining:
            self._defining.discard(given.client)
            self._broker.outbox.append(Reply(given.client, given.number, error))
        self._copies.add(name)
        self._go_on()

    def _go_on(self) -> None:
        """Types have become known: what waited for them goes on."""
        for client, queue in list(self._waiting.items()):
            while queue and client not in self._defining and not self._missing(queue[0].request):
                self._ready.append(queue.popleft())
                self._broker.outbox.append(self._ready[-1])
                if isinstance(self._ready[-1].request, DefineType | RemoveType):
                    break
            if not queue:
                self._waiting.pop(client, None)
            elif client not in self._defining:
                for name in self._missing(queue[0].request):
                    self.look_up(name)

    # ------------------------------------------------ copies

    def look_up(self, name: str) -> None:
        """Ask the rendezvous node of a type for it, unless that is under way."""
        if name not in self._asking:
            self._asking.add(name)
            self._copies.add(name)
            self._ask(name, Lookup(name), partial(self._found, name))

    def _found(self, name: str, answer: Message | None) -> None:
        self._asking.discard(name)
        told = answer.event_types if isinstance(answer, Definitions) else ()
        if name not in self._broker.registry and all(each.name != name for each in told):
            self.unknown[name] = self._broker.now + self._broker.lease
            self._learned(())
        self.adopt(answer if isinstance(answer, Definitions) else Definitions(()))

    def adopt(self, message: Definitions) -> str | None:
        """Learn definitions; returns what is wrong with them, if anything."""
        registry, news = self._broker.registry, []
        for event_type in message.event_types:
            try:
                if registry.adopt(event_type):
                    news.append(event_type.name)
            except EventTypeError as error:
                return str(error)
            self.unknown.pop(event_type.name, None)
            if message.replica:
                self.kept.add(event_type.name)
        if news:
            self._learned(news)
            for name in news:
                self._tell_askers(name)
        for gone in message.removed:
            self._adopt_removal(gone)
        self._go_on()
        return None

    def _adopt_removal(self, gone: EventType) -> None:
        name, registry = gone.name, self._broker.registry
        was_known = name in registry
        if not registry.adopt_removal(gone):
            return
        if name in registry:  # somebody has added a subtype meanwhile: the type stays
            self._broker.pan.route(Definitions(self._lineage(name), replica=True), key_of(name))
        elif was_known:
            self._forget(name)

    def _forget(self, name: str) -> None:
        """A type is gone: its askers and replicas are told, and what local parties had of it ends."""
        self.unknown[name] = self._broker.now + self._broker.lease
        is_mine = name in self._rooted
        self.kept.discard(name)
        self._rooted.discard(name)
        self._tell_askers(name)
        self._replicate(self._members if is_mine else (), [name])
        self._broker.outbox.append(TypeRemoved(name))
        self._learned((name,))

    # ------------------------------------------------ the rendezvous node

    def deliver_request(self, message: Message, source: Contact, number: int) -> Message | None:
        """A request for the rendezvous node of a type: the answer, or None if it comes later."""
        if isinstance(message, Lookup):
            until = self._broker.now + self._broker.lease
            self._askers.setdefault(message.name, {})[source.name] = (source, until)
            return self._told(message.name)
        if isinstance(message, TypeRemoval):
            return self._remove(message)
        assert isinstance(message, TypeMessage)
        parent = message.event_type.parent
        if parent is None or parent in self._broker.registry:
            return self._accept(message.event_type)
        then = partial(self._parent_found, message.event_type, source, number)
        self._ask(parent, Lookup(parent), then)
        return None

    def _parent_found(
        self, event_type: EventType, source: Contact, number: int, answer: Message | None
    ) -> None:
        if isinstance(answer, Definitions):
            self.adopt(answer)
        self._broker.pan.answer(source, number, self._accept(event_type))

    def _accept(self, event_type: EventType) -> Message:
        registry, name = self._broker.registry, event_type.name
        try:
            (registry.modify if name in registry else registry.add)(event_type, by=event_type.owner)
        except AngeliaError as error:
            return Refusal(str(error))
        self.unknown.pop(name, None)
        self.kept.add(name)
        self._rooted.add(name)
        self._learned((name,))
        self._tell_askers(name)
        self._replicate(self._members, [name])
        self._tell_parent(name)
        self._go_on()
        return self._told(name)

    def _remove(self, message: TypeRemoval) -> Message:
        try:
            self._broker.registry.remove(message.name, by=message.owner)
        except AngeliaError as error:
            return Refusal(str(error))
        self._forget(message.name)
        self._go_on()
        return self._told(message.name)

    def _tell_parent(self, name: str) -> None:
        """The rendezvous node of the parent is to know of subtypes: with some, a type is not removed."""
        parent = self._broker.registry.get(name).parent
        if parent is not None:
            self._broker.pan.route(Definitions(self._lineage(name)), key_of(parent))

    def _told(self, *names: str) -> Definitions:
        """What is known of types: their definitions with those of ancestors, or that they were removed."""
        registry = self._broker.registry
        types = dict.fromkeys(each for name in names for each in self._lineage(name))
        gone = (registry.removed[name] for name in names if name in registry.removed)
        return Definitions(tuple(types), removed=tuple(gone))

    def _lineage(self, name: str) -> tuple[EventType, ...]:
        registry = self._broker.registry
        if name not in registry:
            return ()
        return tuple(registry.get(each) for each in (*reversed(registry.ancestors(name)), name))

    def _tell_askers(self, name: str) -> None:
        """The meta-event of a change."""
        for contact, until in self._askers.get(name, {}).values():
            if until > self._broker.now and contact.name != self._broker.name:
                self._broker.pan.send(contact, self._told(name))

    def _replicate(self, to: Iterable[Contact], names: Iterable[str]) -> None:
        told = replace(self._told(*names), replica=True)
        for contact in to if told.event_types or told.removed else ():
            self._broker.pan.send(contact, told)

    def leaf_set_changed(self, members: tuple[Contact, ...]) -> None:
        """Members of the leaf set that are new get what this broker keeps."""
        new = [contact for contact in members if contact not in self._members]
        self._members = members
        self._replicate(new, [*self._broker.registry.removed, *sorted(self.kept)])

    def tables_changed(self) -> None:
        """Another broker may have become the rendezvous node of a type: it is sent what is kept here."""
        for name in sorted(self._rooted):
            if not self._broker.pan.is_root(key_of(name)):
                self._rooted.discard(name)
                self._broker.pan.route(Definitions(self._lineage(name), replica=True), key_of(name))
        self._rooted.update(name for name in self.kept if self._broker.pan.is_root(key_of(name)))

    def refresh(self) -> None:
        """Renew the interest in types, replicate what is kept, and forget who no longer asks."""
        now = self._broker.now
        self.unknown = {name: until for name, until in self.unknown.items() if until > now}
        for name, askers in list(self._askers.items()):
            left = {who: asker for who, asker in askers.items() if asker[1] > now}
            if left:
                self._askers[name] = left
            else:
                del self._askers[name]
        self._replicate(self._members, [*self._broker.registry.removed, *sorted(self._rooted)])
        for name in sorted(self._rooted):
            self._tell_parent(name)
        for name in sorted(self._copies):
            self.look_up(name)


def _names(request: Request) -> set[str]:
    """The types that a request is about."""
    match request:
        case Publish():
            return {request.event.type} if request.event.type is not None else set()
        case Advertise():
            return {request.advertisement.type} if request.advertisement.type is not None else set()
        case Subscribe() | Interest():
            return _of(request.filter)
        case SubscribePattern():
            return set().union(*map(_of, request.pattern.filters))
        case _:
            return set()


def _of(filter: Filter) -> set[str]:  # noqa: A002
    return {name for part in filter.conjunctions for name in part.types | part.not_types}
