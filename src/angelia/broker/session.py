"""A client at the other end of a connection: its requests, its subscriptions, and its queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from angelia.broker.census import subscriptions
from angelia.broker.keeping import Past
from angelia.errors import AngeliaError, EventError, RequestError, WireError
from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.messages import (
    Advertise,
    FromClient,
    Publish,
    PublishAll,
    Reply,
    Request,
    Subscribe,
    SubscribePattern,
    Unadvertise,
    Unsubscribe,
    UnsubscribePattern,
)
from angelia.pattern import Pattern
from angelia.types import EventType
from angelia.wire import (
    Answer,
    Ask,
    Bye,
    Describe,
    Dropped,
    Flow,
    ListSubscriptions,
    Ping,
    Recall,
    Sequence_,
    TypeNews,
    Upload,
    decode,
    decode_events,
    decode_filter,
    decode_request,
    encode,
    encode_event,
    encode_number,
    encode_told,
    split_events,
    told,
    told_head,
)

if TYPE_CHECKING:
    from angelia.broker.broker import Broker
    from angelia.broker.connection import Connection

__all__ = ["ClientSession"]

log = logging.getLogger("angelia.broker")

_TYPES = 64  # in a frame
_MAX_DEFERRED = 64  # requests that wait for other brokers before no more are read
_MAX_HEADS, _MAX_KEPT = 4096, 32  # encoded groups of subscriptions that are kept, and subscriptions in one


Then = Callable[[Reply], None]


class ClientSession:
    """A client. It numbers its subscriptions; to the node they are parties `name#number`."""

    def __init__(
        self, broker: Broker, connection: Connection, name: str, incarnation: str, queue: int, policy: str
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.name = name
        self.incarnation = incarnation
        self.queue = queue
        self.policy = policy
        self._most_bytes = broker.settings.queue_bytes
        self.published = 0
        self.delivered = 0
        self.gathered: list[bytes] = []  # items of events that are about to go into the queue
        self.put = self.gathered.append
        self._told_of = 0  # drops
        self._wanted: dict[str, Filter | Pattern] = {}  # identity -> what the subscription is for
        self._numbers: dict[str, bytes] = {}  # identity -> number, encoded
        self._heads: dict[frozenset[str], bytes] = {}
        self._pasts: dict[str, Past] = {}  # identity -> what a subscription is still to be told
        self._advertised: set[Advertisement] = set()
        self._handlers: dict[type, Callable[[Any], None]] = {
            Ask: self._ask,
            Describe: lambda frame: self._send(Answer(frame.number, value=broker.describe())),
            ListSubscriptions: self._list_subscriptions,
            Recall: self._recall,
            Flow: lambda frame: connection.hold(not frame.wanted),
            Ping: lambda frame: None,
            Bye: lambda frame: connection.abort(f"the client left: {frame.reason}"),
        }
        self._asked = 0
        self._deferred: dict[int, Then] = {}  # what to do when a request that had to wait is answered
        self._requests: dict[type, Callable[[Any, Then], None]] = {
            Publish: self._refuse_publication,
            PublishAll: self._refuse_publication,
            Advertise: self._advertise,
            Unadvertise: self._unadvertise,
            Subscribe: self._subscribe,
            SubscribePattern: self._subscribe,
            Unsubscribe: self._unsubscribe,
            UnsubscribePattern: self._unsubscribe,
        }
        connection.batch = encode_told
        connection.changed = self._taken

    # ------------------------------------------------ from the client

    def received(self, connection: Connection, bodies: list[bytes]) -> None:
        """Process frames: publications that follow each other together, anything else one by one."""
        uploads: list[Upload] = []
        for body in bodies:
            frame = decode(body)
            if type(frame) is Upload:
                uploads.append(frame)
                continue
            if uploads:
                self._publish(uploads)
                uploads = []
            handler = self._handlers.get(type(frame))
            if handler is None:
                raise WireError(f"a client does not send {type(frame).__name__}")
            handler(frame)
        if uploads:
            self._publish(uploads)

    def _publish(self, uploads: list[Upload]) -> None:
        """Publish the events of several frames at once; if some are refused, frame by frame.

        Events that want no answer have nothing to do with each other but that they were sent together:
        if one is refused, the others are published all the same.
        """
        try:
            batches = [decode_events(upload.events) for upload in uploads]
        except (WireError, EventError) as error:
            self._publish_apart(uploads, str(error), type(error).__name__)
            return
        events = tuple(event for batch in batches for event in batch)

        def done(reply: Reply) -> None:
            if reply.error is not None:
                self._publish_apart(uploads, reply.error, reply.code)
                return
            self.published += len(events)
            for upload in uploads:
                if upload.number:
                    self._send(Answer(upload.number))

        self._do(PublishAll(self.name, events), done)

    def _publish_apart(self, uploads: list[Upload], error: str, code: str | None) -> None:
        """Publish what can be; `error` is what was wrong with some of it."""
        parts = uploads if len(uploads) > 1 else _single(uploads[0])
        if len(parts) > 1:
            for part in parts:
                self._publish([part])
        else:
            self._send(Answer(uploads[0].number, error, code))

    def _ask(self, frame: Ask) -> None:
        try:
            request = decode_request(frame.request)
            handle = self._requests.get(type(request), self._own)
            handle(request, lambda reply: self.reply(frame.number, reply))
        except AngeliaError as error:
            self._send(Answer(frame.number, str(error), type(error).__name__))

    def _do(self, request: Request, then: Then) -> None:
        """Have a request done, and go on with its reply, which may come later."""
        self._asked += 1
        reply = self.broker.request(FromClient(self.name, request, self._asked))
        if reply is None:
            self._deferred[self._asked] = then
            if len(self._deferred) == _MAX_DEFERRED:
                self.broker.heed(self.connection, False)
        else:
            then(reply)

    def answered(self, reply: Reply) -> None:
        """The reply to a request that had to wait has come."""
        then = self._deferred.pop(reply.number, None)
        if then is not None:
            if len(self._deferred) == _MAX_DEFERRED // 2:
                self.broker.heed(self.connection, True)
            then(reply)

    def _own(self, request: Request, then: Then) -> None:
        """Have a request of the client itself done."""
        self._do(msgspec.structs.replace(request, identity=self.name), then)

    def _refuse_publication(self, request: Publish | PublishAll, then: Then) -> None:
        raise RequestError("events are published with an upload")

    def _advertise(self, request: Advertise, then: Then) -> None:
        self._check_limit("advertisements", len(self._advertised | {request.advertisement}))

        def done(reply: Reply) -> None:
            if reply.error is None:
                self._advertised.add(request.advertisement)
            then(reply)

        self._own(request, done)

    def _unadvertise(self, request: Unadvertise, then: Then) -> None:
        covers, registry = request.advertisement.covers, self.broker.node.registry

        def done(reply: Reply) -> None:
            if reply.error is None:
                self._advertised = {one for one in self._advertised if not covers(one, registry)}
            then(reply)

        self._own(request, done)

    def _subscribe(self, request: Subscribe | SubscribePattern, then: Then) -> None:
        """Enter a subscription. A client that connects again may ask twice for the same."""
        number = request.identity
        if not (number.isascii() and number.isdecimal() and len(number) < 10):
            raise RequestError(f"the identity of a subscription is its number, not {number[:40]!r}")
        # The highest number is the limit: the node remembers every identity that it has seen.
        self._check_limit("subscriptions", int(number))
        identity = f"{self.name}#{int(number)}"
        wanted = request.filter if isinstance(request, Subscribe) else request.pattern
        if self._wanted.get(identity, wanted) != wanted:
            raise RequestError(f"subscription {number} is there already, for something else")
        self._numbers[identity] = encode_number(int(number))

        def done(reply: Reply) -> None:
            if reply.error is None:
                self._wanted[identity] = wanted
            then(reply)

        self._do(msgspec.structs.replace(request, identity=identity), done)

    def _recall(self, frame: Recall) -> None:
        """Enter a subscription that begins in the past."""
        try:
            wanted, broker = decode_filter(frame.filter), self.broker
            past = Past(broker.keeper, wanted, frame.since, alone=not broker.links)

            def done(reply: Reply) -> None:
                if reply.error is None:
                    self._remember(f"{self.name}#{int(frame.identity)}", past)
                self.reply(frame.number, reply)

            self._subscribe(Subscribe(frame.identity, wanted), done)
        except AngeliaError as error:
            self._send(Answer(frame.number, str(error), type(error).__name__))

    def _remember(self, identity: str, past: Past) -> None:
        """Tell the past, and hold back the present meanwhile."""
        number = self._numbers[identity]

        def put(event: Event) -> None:
            if identity in self._wanted:
                self.connection.put(told([number], encode_event(event)))

        async def tell() -> None:
            try:
                await past.tell(put, lambda: 2 * self.connection.queued <= self.queue or self.is_gone)
            except Exception as error:
                self.connection.close(f"the past could not be read: {error}", retry=False)
            finally:
                self._pasts.pop(identity, None)
                self.broker.dispatch.forget_plans()

        self._pasts[identity] = past
        self.broker.dispatch.forget_plans()
        self.broker.background(tell())

    @property
    def is_gone(self) -> bool:
        """Whether the client is."""
        return self.connection.is_closing

    def _list_subscriptions(self, frame: ListSubscriptions) -> None:
        """Tell who is subscribed to what. Where clients need tokens, who has no certificate sees its own."""
        sees_all = not self.broker.needs_token or bool(self.connection.info("peercert"))
        found = subscriptions(self.broker, frame.after, None if sees_all else self.name)
        self._send(Answer(frame.number, value=found))

    def _unsubscribe(self, request: Unsubscribe | UnsubscribePattern, then: Then) -> None:
        """Cancel the subscription of that number, if there is one: another broker may have had it."""
        identity = f"{self.name}#{request.identity}"
        wanted = self._wanted.pop(identity, None)
        if wanted is None:
            then(Reply(self.name, 0))
        elif isinstance(wanted, Pattern):
            self._do(UnsubscribePattern(identity, wanted), then)
        else:
            self._do(Unsubscribe(identity, wanted), then)

    def _check_limit(self, what: str, count: int) -> None:
        limit = self.broker.settings.max_subscriptions
        if count > limit:
            raise RequestError(f"a client has at most {limit} {what} here")

    # ------------------------------------------------ to the client

    def reply(self, number: int, reply: Reply) -> None:
        """Tell what became of a request. Who wants no answer hears of errors all the same."""
        if number or reply.error is not None:
            self._send(Answer(number, reply.error, reply.code, reply.value))

    def _send(self, frame: Any) -> None:
        """Send what may not be dropped. Who asks and asks, and takes no answers, is cut off."""
        self.connection.send(frame)
        if self.connection.control_bytes > self.broker.settings.queue_bytes:
            self.connection.close("it takes none of the answers it asks for", retry=False)

    @property
    def is_choosy(self) -> bool:
        """Whether it has to look at each event: some of its subscriptions are still told the past."""
        return bool(self._pasts)

    def offer(self, identities: frozenset[str], event: Event, encoded: bytes) -> None:
        """Take an event, once, for those of its subscriptions that do not take it from the past."""
        if self._pasts:
            identities = frozenset(
                [who for who in identities if who not in self._pasts or self._pasts[who].offer(event)]
            )
        if identities:
            self.put(self.head(identities) + encoded)

    def put_gathered(self) -> None:
        """Put the events that were gathered into the queue, all at once if there is room."""
        items, connection = self.gathered, self.connection
        count, size = len(items), sum(map(len, items))
        self.delivered += count
        if connection.queued + count <= self.queue and connection.queued_bytes + size <= self._most_bytes:
            connection.put_all(items, size)
        else:
            for item in items:
                if self._has_room():
                    connection.put(item)
        items.clear()

    def head(self, identities: frozenset[str]) -> bytes:
        """What stands before an event: an identity has the same number for ever, so some are kept."""
        head = self._heads.get(identities)
        if head is not None:
            return head
        head = told_head(sorted([self._numbers[who] for who in identities]))  # the oldest first
        if len(identities) <= _MAX_KEPT:
            if len(self._heads) >= _MAX_HEADS:
                self._heads.clear()
            self._heads[identities] = head
        return head

    def deliver_sequence(self, identities: Iterable[str], events: tuple[Event, ...]) -> None:
        """Send the events that match a pattern."""
        numbers = tuple(int(identity.rpartition("#")[2]) for identity in identities)
        self.delivered += 1
        if self._has_room():
            self.connection.put_frame(encode(Sequence_(numbers, events)))

    def tell_types(self, event_types: tuple[EventType, ...]) -> None:
        """Tell of event types, in frames of a moderate size."""
        for start in range(0, len(event_types), _TYPES):
            self._send(TypeNews(event_types[start : start + _TYPES]))

    def tell_removed(self, event_type: str) -> None:
        """Tell that an event type is gone."""
        self._send(TypeNews((), (event_type,)))

    # ------------------------------------------------ its queue

    @property
    def is_full(self) -> bool:
        """Whether its queue is."""
        return self.connection.queued >= self.queue or self.connection.queued_bytes >= self._most_bytes

    def _has_room(self) -> bool:
        """Whether to put one more into the queue; if it is full, what its policy says happens."""
        if not self.is_full:
            return True
        if self.policy == "drop_oldest":
            self.connection.drop_oldest()
            self.broker.metrics.count_drop("client")
            return True
        if self.policy == "drop_newest":
            self.connection.dropped += 1
            self.broker.metrics.count_drop("client")
            return False
        if self.policy == "block":
            self.broker.congested(self.connection)
            return True
        self.connection.close(
            f"the queue of {self.queue} events was full, and the policy is disconnect", retry=False
        )
        return False

    def _taken(self) -> None:
        """The queue has become shorter: tell of drops, and let publishers go on."""
        if self.connection.dropped > self._told_of:
            self._told_of = self.connection.dropped
            self._send(Dropped(self._told_of))
        if 2 * self.connection.queued <= self.queue and 2 * self.connection.queued_bytes <= self._most_bytes:
            self.broker.relieved(self.connection)

    @property
    def wanted(self) -> Mapping[str, Filter | Pattern]:
        """What the client is subscribed to, by identity."""
        return self._wanted

    def describe(self) -> dict[str, Any]:
        """The client as numbers."""
        return {
            "subscriptions": len(self._wanted),
            "published": self.published,
            "delivered": self.delivered,
            "queued": self.connection.queued,
            "dropped": self.connection.dropped,
            "policy": self.policy,
            "from": self.connection.peer_name,
        }


def _single(upload: Upload) -> list[Upload]:
    """The events of a frame that wants no answer, each in a frame of its own; or the frame."""
    if upload.number:
        return [upload]
    try:
        return [Upload(0, msgspec.Raw(b"\x91" + bytes(raw))) for raw in split_events(upload.events)]
    except WireError:
        return [upload]
