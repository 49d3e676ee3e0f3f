"""A client at the other end of a connection: its requests, its subscriptions, and its queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from angelia.errors import AngeliaError, EventError, RequestError, WireError
from angelia.event import Event
from angelia.messages import (
    FromClient,
    PublishAll,
    Reply,
    Request,
    Subscribe,
    SubscribePattern,
    Unsubscribe,
    UnsubscribePattern,
)
from angelia.types import EventType
from angelia.wire import (
    Answer,
    Ask,
    Bye,
    Describe,
    Dropped,
    Ping,
    Sequence_,
    TypeNews,
    Upload,
    decode,
    decode_events,
    decode_request,
    encode,
    encode_number,
    encode_told,
    told,
)

if TYPE_CHECKING:
    from angelia.broker.broker import Broker
    from angelia.broker.connection import Connection

__all__ = ["ClientSession"]

log = logging.getLogger("angelia.broker")

_MAX_NUMBER = 2**31


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
        self._queue_bytes = broker.settings.queue_bytes
        self.published = 0
        self.delivered = 0
        self._told_of = 0  # drops
        self._numbers: dict[str, bytes] = {}  # identity -> number, encoded
        self._handlers: dict[type, Callable[[Any], None]] = {
            Ask: self._ask,
            Describe: lambda frame: connection.send(Answer(frame.number, value=broker.describe())),
            Ping: lambda frame: None,
            Bye: lambda frame: connection.abort(f"the client left: {frame.reason}"),
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
        """Publish the events of several frames at once; if some are refused, frame by frame."""
        try:
            batches = [decode_events(upload.events) for upload in uploads]
        except (WireError, EventError) as error:
            if len(uploads) > 1:
                for upload in uploads:
                    self._publish([upload])
            else:
                self._answer(uploads[0].number, error)
            return
        events = tuple(event for batch in batches for event in batch)
        reply = self.broker.publish(self.name, events)
        if reply.error is not None and len(uploads) > 1:
            for upload in uploads:
                self._publish([upload])
            return
        if reply.error is None:
            self.published += len(events)
        for upload in uploads:
            self.reply(msgspec.structs.replace(reply, number=upload.number))

    def _ask(self, frame: Ask) -> None:
        try:
            request = self._own(decode_request(frame.request))
        except AngeliaError as error:
            self._answer(frame.number, error)
            return
        reply = self.broker.request(FromClient(self.name, request, frame.number))
        is_new = isinstance(request, Subscribe | SubscribePattern) and reply.error is not None
        if is_new or isinstance(request, Unsubscribe | UnsubscribePattern):
            self._numbers.pop(request.identity, None)
        self.reply(reply)

    def _own(self, request: Request) -> Request:
        """The request with an identity that is this client's."""
        if isinstance(request, Subscribe | SubscribePattern | Unsubscribe | UnsubscribePattern):
            identity = f"{self.name}#{request.identity}"
            if isinstance(request, Subscribe | SubscribePattern):
                self._enter(identity, request.identity)
            return msgspec.structs.replace(request, identity=identity)
        if isinstance(request, PublishAll):
            raise RequestError("events are published with an upload")
        return msgspec.structs.replace(request, identity=self.name)

    def _enter(self, identity: str, number: str) -> None:
        if identity in self._numbers:
            return
        if not number.isdecimal() or int(number) >= _MAX_NUMBER:
            raise RequestError(f"the identity of a subscription is a number below 2^31, not {number[:40]!r}")
        if len(self._numbers) >= self.broker.settings.max_subscriptions:
            raise RequestError(
                f"a client has at most {self.broker.settings.max_subscriptions} subscriptions here"
            )
        self._numbers[identity] = encode_number(int(number))

    # ------------------------------------------------ to the client

    def reply(self, reply: Reply) -> None:
        """Tell what became of a request. Who wants no answer hears of errors all the same."""
        if reply.number or reply.error is not None:
            self.connection.send(Answer(reply.number, reply.error, reply.code, reply.value))

    def _answer(self, number: int, error: AngeliaError) -> None:
        self.reply(Reply(self.name, number, str(error), type(error).__name__))

    def deliver(self, identities: Iterable[str], event: bytes) -> None:
        """Send an (encoded) event, once, for some of the subscriptions."""
        known = self._numbers
        numbers = [known[identity] for identity in identities]
        self.delivered += 1
        if self._has_room():
            self.connection.put(told(numbers, event))

    def deliver_sequence(self, identities: Iterable[str], events: tuple[Event, ...]) -> None:
        """Send the events that match a pattern."""
        numbers = tuple(int(identity.rpartition("#")[2]) for identity in identities)
        self.delivered += 1
        if self._has_room():
            self.connection.put_frame(encode(Sequence_(numbers, events)))

    def tell_types(self, event_types: tuple[EventType, ...]) -> None:
        """Tell of event types."""
        if event_types:
            self.connection.send(TypeNews(event_types))

    # ------------------------------------------------ its queue

    def _has_room(self) -> bool:
        """Whether to put one more into the queue; if it is full, what its policy says happens."""
        connection = self.connection
        if connection.queued < self.queue and connection.queued_bytes < self._queue_bytes:
            return True
        if self.policy == "drop_oldest":
            self.connection.drop_oldest()
            self.broker.metrics_drop("client")
            return True
        if self.policy == "drop_newest":
            self.connection.dropped += 1
            self.broker.metrics_drop("client")
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
            self.connection.send(Dropped(self._told_of))
        if 2 * self.connection.queued <= self.queue:
            self.broker.relieved(self.connection)

    def describe(self) -> dict[str, Any]:
        """The client as numbers."""
        return {
            "subscriptions": len(self._numbers),
            "published": self.published,
            "delivered": self.delivered,
            "queued": self.connection.queued,
            "dropped": self.connection.dropped,
            "policy": self.policy,
            "from": self.connection.peer_name,
        }
