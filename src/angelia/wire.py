"""Bytes and frames: what goes over a connection, between brokers and between a client and its broker.

A frame is its length (four bytes, the highest first) and a MessagePack map that names its kind under
`type`. Filters, patterns and advertisements travel as their text, events as arrays. What comes in is
from strangers: it is decoded into exactly these structs, or refused with a `WireError`.

Events come in batches. A batch is decoded at once, and an event whose attributes are flat and plain, as
most are, is checked by the decoder alone (`_Plain`); any other is made anew, which
flattens it or tells what is wrong with it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

from angelia.errors import AngeliaError, EventError, WireError
from angelia.event import MAX_ATTRIBUTES, MAX_EVENT_BYTES, Event, Trusted
from angelia.filter import Advertisement, Filter
from angelia.messages import Message, Notify, Request, Subscribe
from angelia.pattern import Pattern
from angelia.types import EventType

__all__ = [
    "MAX_FRAME",
    "VERSION",
    "Answer",
    "Ask",
    "Bye",
    "Describe",
    "Dropped",
    "Flow",
    "Forward",
    "Frame",
    "Frames",
    "Hello",
    "ListSubscriptions",
    "Ping",
    "Recall",
    "Sequence_",
    "Tell",
    "Told",
    "TypeNews",
    "Upload",
    "Welcome",
    "decode",
    "decode_events",
    "decode_filter",
    "decode_notifications",
    "decode_request",
    "decode_told",
    "encode",
    "encode_event",
    "encode_forward",
    "encode_number",
    "encode_recall",
    "encode_request",
    "encode_told",
    "encode_upload",
    "notified",
    "split_events",
    "told",
    "told_head",
]

VERSION = 1
MAX_FRAME = 1 << 20
_LENGTH = struct.Struct(">I")


class _Frame(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What all of these are."""


# ---------------------------------------------------------------- frames


class Hello(_Frame, frozen=True):
    """The first frame of who connects. `incarnation` tells this run of a program from its next one."""

    version: int
    role: Literal["client", "peer"]
    name: str
    incarnation: str
    token: str | None = None
    # Of a client: the queue that the broker keeps for it.
    queue: int | None = None
    policy: str | None = None
    # Of a broker: its routing, its address, and whether the receiver is its master.
    routing: str | None = None
    address: str | None = None
    to_master: bool = False


class Welcome(_Frame, frozen=True):
    """The answer to `Hello`: who is here, how often it gives a sign of life, and how large a frame may be."""

    version: int
    name: str
    incarnation: str
    heartbeat: float
    max_frame: int
    client: str = ""  # the name that a client has here
    address: str | None = None
    is_linked: bool = False  # to a broker: there is another connection with it already, and this one ends


class Bye(_Frame, frozen=True):
    """The last frame: why the connection ends. `retry`: it may be tried again."""

    reason: str
    retry: bool = True


class Ping(_Frame, frozen=True):
    """A sign of life, if there is nothing else to send."""


class Ask(_Frame, frozen=True):
    """A request of a client; the answer carries its number. Number 0 wants none."""

    number: int
    request: msgspec.Raw


class Upload(_Frame, frozen=True):
    """Events that a client publishes, all or none of them. Number 0 wants no answer: each for itself."""

    number: int
    events: msgspec.Raw


class Recall(_Frame, frozen=True):
    """Subscribe, and be told first what has been published since a time."""

    number: int
    identity: str
    filter: msgspec.Raw
    since: datetime


class Answer(_Frame, frozen=True):
    """What became of a request: done, or why not, with the name of the error; and what was asked for."""

    number: int
    error: str | None = None
    code: str | None = None
    value: Any = None


class Tell(_Frame, frozen=True):
    """Events for a client, each once, with the numbers of its subscriptions that want it."""

    events: msgspec.Raw


class Sequence_(_Frame, frozen=True, tag="Sequence"):  # noqa: N801 - Sequence is Python's
    """Events that match a pattern, with the numbers of the subscriptions that want them."""

    numbers: tuple[int, ...]
    events: tuple[Event, ...]


class Dropped(_Frame, frozen=True):
    """So many events had no room in the queue that the broker keeps for the client."""

    count: int


class Flow(_Frame, frozen=True):
    """A client wants its events to come, or to wait in its queue at the broker. Answers come all the same."""

    wanted: bool


class TypeNews(_Frame, frozen=True):
    """Event types that a client did not know, or not as they are now; and the names of those gone."""

    event_types: tuple[EventType, ...]
    removed: tuple[str, ...] = ()


class Forward(_Frame, frozen=True):
    """Notifications from broker to broker."""

    notifications: msgspec.Raw


class Describe(_Frame, frozen=True):
    """A client asks for the broker's state: the value of the answer."""

    number: int


class ListSubscriptions(_Frame, frozen=True):
    """A client asks who is subscribed here: identities after one, with their filters, as many as fit."""

    number: int
    after: str


Frame = (
    Hello
    | Welcome
    | Bye
    | Ping
    | Ask
    | Upload
    | Recall
    | Answer
    | Tell
    | Sequence_
    | Dropped
    | Flow
    | TypeNews
    | Forward
    | Describe
    | ListSubscriptions
    | Message
)


# ---------------------------------------------------------------- bytes


def _too_large(size: int, limit: int) -> str:
    if size.to_bytes(4, "big") in (b"HTTP", b"GET ", b"POST"):
        return "this is HTTP; brokers have another port for that"
    return f"a frame of {size} bytes; at most {limit} are allowed"


class Frames:
    """Cuts a stream of bytes into the bodies of frames."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self.limit = limit
        self._rest: list[bytes] = []  # pieces of a frame that is not complete
        self._missing = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete now; a `WireError` for one that is too large."""
        if self._rest:
            self._rest.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return []
            data = b"".join(self._rest)
            self._rest.clear()
        bodies: list[bytes] = []
        start, end = 0, len(data)
        while end - start >= 4:
            (size,) = _LENGTH.unpack_from(data, start)
            if size > self.limit:
                raise WireError(_too_large(size, self.limit))
            self._missing = size - (end - start - 4)
            if self._missing > 0:
                break
            bodies.append(data[start + 4 : start + 4 + size])
            start += 4 + size
        if start < end:
            self._rest.append(data[start:])
            if end - start < 4:
                self._missing = 4 - (end - start)
        return bodies


def _framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def _encode_hook(value: Any) -> Any:
    match value:
        case Filter() | Pattern():
            return str(value)
        case Advertisement():
            return [str(value), value.allowed == {}]
    raise TypeError(f"{type(value).__name__} has no place on the wire")


def _decode_hook(cls: type, value: Any) -> Any:
    if cls is Advertisement:
        text, is_empty = value
        parsed = Advertisement.parse(text)
        return Advertisement([], parsed.type) if is_empty else parsed
    return cls.parse(value)  # type: ignore[attr-defined]


_encoder = msgspec.msgpack.Encoder(enc_hook=_encode_hook)
_frames = msgspec.msgpack.Decoder(Frame, dec_hook=_decode_hook)
_filters = msgspec.msgpack.Decoder(Filter, dec_hook=_decode_hook)
_requests = msgspec.msgpack.Decoder(Request, dec_hook=_decode_hook)

T = TypeVar("T")


def _decoded(decoder: msgspec.msgpack.Decoder[T], data: bytes | msgspec.Raw, what: str) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, AngeliaError, RecursionError, ValueError, TypeError) as error:
        raise WireError(f"not a valid {what}: {str(error)[:500] or type(error).__name__}") from None


def encode(frame: _Frame | Any) -> bytes:
    """A frame, or a message between brokers, as bytes."""
    return _framed(_encoder.encode(frame))


def decode(body: bytes) -> Any:
    """The frame of a body, or a `WireError`."""
    return _decoded(_frames, body, "frame")


def encode_request(number: int, request: Request) -> bytes:
    """A client's request as a frame."""
    return encode(Ask(number, msgspec.Raw(_encoder.encode(request))))


def encode_recall(number: int, request: Subscribe, since: datetime) -> bytes:
    """A subscription that begins in the past as a frame."""
    wanted = msgspec.Raw(_encoder.encode(request.filter))
    return encode(Recall(number, request.identity, wanted, since))


def decode_filter(raw: msgspec.Raw) -> Filter:
    """The filter in a `Recall`, or a `WireError`."""
    return _decoded(_filters, raw, "filter")


def decode_request(raw: msgspec.Raw) -> Any:
    """The request in an `Ask`, or a `WireError`."""
    return _decoded(_requests, raw, "request")


# ---------------------------------------------------------------- events


_Text = Annotated[str, msgspec.Meta(min_length=1)]
_Integer = Annotated[int, msgspec.Meta(le=2**63 - 1)]  # MessagePack has larger ones


class _Plain(Trusted, frozen=True, array_like=True, eq=False, gc=False, forbid_unknown_fields=True):
    """An event as it travels, if its attributes are scalars but for timestamps: as most are."""

    _attributes: Annotated[dict[str, str | bool | float | _Integer], msgspec.Meta(max_length=MAX_ATTRIBUTES)]
    type: _Text | None = None
    source: _Text | None = None
    subject: _Text | None = None
    id: _Text | None = None


E = TypeVar("E", _Plain, Event)


class Told(msgspec.Struct, Generic[E], array_like=True, gc=False):
    """An item of a `Tell`: an event, and the numbers of the subscriptions that want it."""

    numbers: tuple[int, ...]
    event: E


class _Notified(msgspec.Struct, Generic[E], array_like=True, gc=False):
    """An item of a `Forward`."""

    origin: str
    sequence: int
    event: E


class _Batches(Generic[T]):
    """Decodes batches whose items have events: as plain ones if it can be; else each is looked at closely."""

    def __init__(self, what: str, plain: Any, any_: Any, events: Callable[[list[T]], list[Event]]) -> None:
        self._what = what
        self._plain: msgspec.msgpack.Decoder[list[T]] = msgspec.msgpack.Decoder(list[plain])
        self._any: msgspec.msgpack.Decoder[list[T]] = msgspec.msgpack.Decoder(list[any_])
        self._events = events

    def decode(self, raw: msgspec.Raw) -> list[T]:
        """The items, or a `WireError`."""
        if len(bytes(raw)) <= MAX_EVENT_BYTES:  # so that none is too large
            try:
                items = self._plain.decode(raw)
            except (msgspec.MsgspecError, ValueError):
                pass
            else:
                if _are_plain(self._events(items)):
                    return items
        items = _decoded(self._any, raw, self._what)
        for event in self._events(items):
            if len(_names) >= _MAX_NAMES:
                break
            _names.update(event)
        return items


_names: set[str] = set()  # names of attributes that were checked; bounded
_MAX_NAMES = 8192
_IN_UTC = frozenset((UTC,))


def _are_plain(events: list[Event]) -> bool:
    """Whether the names of all attributes are known, and all times are in UTC."""
    if not _names.issuperset(set[str]().union(*[event._attributes for event in events])):
        return False
    return {time.tzinfo for event in events if (time := event.time) is not None} <= _IN_UTC


_event = msgspec.msgpack.Decoder(Event)
_events: _Batches[Event] = _Batches("batch of events", _Plain, Event, lambda items: items)
_told: _Batches[Told[Any]] = _Batches(
    "batch of events", Told[_Plain], Told[Event], lambda items: [item.event for item in items]
)
_notified: _Batches[_Notified[Any]] = _Batches(
    "notification", _Notified[_Plain], _Notified[Event], lambda items: [item.event for item in items]
)

_raws = msgspec.msgpack.Decoder(list[msgspec.Raw])


def encode_event(event: Event) -> bytes:
    """An event as it stands in a batch."""
    return _encoder.encode(event)


def decode_events(raw: msgspec.Raw) -> list[Event]:
    """The events of an `Upload`; an `EventError` tells which one is not valid."""
    try:
        return _events.decode(raw)
    except WireError:
        _blame(split_events(raw))
        raise


def _blame(raws: list[msgspec.Raw]) -> None:
    """Raise what is wrong with the first event that has wrong attributes, or a wrong context."""
    for place, raw in enumerate(raws, 1):
        try:
            _event.decode(raw)
        except (msgspec.MsgspecError, ValueError) as error:
            wrong = error.__cause__
            if isinstance(wrong, EventError):
                where = f"event {place} of {len(raws)}: " if len(raws) > 1 else ""
                raise type(wrong)(f"{where}{wrong}") from None


def split_events(raw: msgspec.Raw) -> list[msgspec.Raw]:
    """The events of an `Upload`, not looked at."""
    return _decoded(_raws, raw, "batch of events")


def decode_told(raw: msgspec.Raw) -> list[Told[Any]]:
    """The items of a `Tell`."""
    return _told.decode(raw)


def decode_notifications(raw: msgspec.Raw) -> list[Notify]:
    """The notifications of a `Forward`."""
    return [Notify(item.event, item.origin, item.sequence) for item in _notified.decode(raw)]


def _array(count: int) -> bytes:
    return bytes((0x90 | count,)) if count < 16 else b"\xdd" + _LENGTH.pack(count)


def _start(frame: type[Any], *before: Any) -> bytes:
    """A frame up to its last field, a batch: what stands before is the same for all."""
    return _encoder.encode(frame(*before, msgspec.Raw(b"\xc0")))[:-1]


_TELL, _FORWARD, _UPLOAD = _start(Tell), _start(Forward), _start(Upload, 0)


def _batched(start: bytes, items: Collection[bytes]) -> bytes:
    """A frame whose last field is a batch: its bytes are put together once."""
    count = _array(len(items))
    size = len(start) + len(count) + sum(map(len, items))
    return b"".join((_LENGTH.pack(size), start, count, *items))


def told(numbers: Sequence[bytes], event: bytes) -> bytes:
    """An item of a `Tell`: encoded numbers of subscriptions, and an encoded event."""
    return told_head(numbers) + event


def told_head(numbers: Sequence[bytes]) -> bytes:
    """What stands before the event in an item of a `Tell`."""
    return b"".join((b"\x92", _array(len(numbers)), *numbers))


def encode_number(number: int) -> bytes:
    """The number of a subscription, for `told`."""
    return _encoder.encode(number)


def notified(notification: Notify, event: bytes) -> bytes:
    """An item of a `Forward`."""
    head = _encoder.encode((notification.origin, notification.sequence))
    return b"\x93" + head[1:] + event


def encode_told(items: Collection[bytes]) -> bytes:
    """Items (see `told`) as a frame for a client."""
    return _batched(_TELL, items)


def encode_forward(items: Collection[bytes]) -> bytes:
    """Items (see `notified`) as a frame for a broker."""
    return _batched(_FORWARD, items)


def encode_upload(number: int, events: Collection[bytes]) -> bytes:
    """Encoded events as a frame of a publisher."""
    return _batched(_start(Upload, number) if number else _UPLOAD, events)
