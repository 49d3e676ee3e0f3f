"""Events: immutable sets of typed attributes, with a context (SIENA 3.1).

An attribute is a string, an integer, a float, a boolean or a timestamp, or a list of these. Nested
mappings are flattened to dotted names on the way in, so that `{"order": {"total": 7}}` has one
attribute, `order.total`. The context (`type`, `source`, `subject`, `id`, `time`) is what CloudEvents
says of every event; filters see it as `@type`, `@source` and so on.

Nothing here reads a clock or makes an identity: who publishes an event stamps it.
"""

from __future__ import annotations

import numbers
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import force_setattr

from angelia.errors import EventError, EventLimitError

__all__ = [
    "CONTEXT",
    "ENVELOPE",
    "KINDS",
    "MAX_ATTRIBUTES",
    "MAX_DEPTH",
    "MAX_EVENT_BYTES",
    "MAX_NAME_LENGTH",
    "Datatype",
    "Event",
    "Kind",
    "Scalar",
    "Trusted",
    "Value",
    "format_timestamp",
    "kind_of",
    "parse_timestamp",
]

Scalar = str | int | float | bool | datetime
Value = Scalar | tuple[Scalar, ...]

MAX_ATTRIBUTES = 256
MAX_NAME_LENGTH = 255
MAX_DEPTH = 32
MAX_EVENT_BYTES = 64 * 1024

CONTEXT = ("type", "source", "subject", "id", "time")
ENVELOPE = "ce-"  # attributes that are not of the event's type: what else its CloudEvents envelope carries


class Datatype(StrEnum):
    """The datatype of an attribute, as event types declare it."""

    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"


class Kind(StrEnum):
    """What a value can be compared with: integers and floats are both numbers."""

    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIMESTAMP = "timestamp"


KINDS: dict[type, Kind] = {
    str: Kind.STRING,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    bool: Kind.BOOLEAN,
    datetime: Kind.TIMESTAMP,
}


def kind_of(value: Scalar) -> Kind:
    """The kind of a (plain) scalar."""
    return KINDS[type(value)]


# ---------------------------------------------------------------- values


def plain_scalar(value: object) -> Scalar:
    """`value` as a plain `str`, `int`, `float`, `bool` or UTC `datetime`, or an `EventError`."""
    cls = type(value)
    if cls is str:
        return _checked_string(value)  # type: ignore[arg-type]
    if cls is bool or cls is float:
        return value  # type: ignore[return-value]
    if isinstance(value, str):
        return _checked_string(str.__str__(value))
    if isinstance(value, datetime):
        return _utc(value)
    if isinstance(value, numbers.Integral):
        return _checked_integer(int(value))
    if isinstance(value, numbers.Real):
        return _checked_float(value)
    raise EventError(
        f"a value of type {cls.__name__} is not allowed: "
        "use a string, a number, a boolean or a datetime with a time zone"
    )


def _checked_string(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise EventError(
            f"a string with a lone surrogate at position {error.start} is not valid Unicode"
        ) from None
    return value


def _checked_integer(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise EventError(f"the integer {_short(value)} does not fit in 64 bits; use a float or a string")
    return value


def _checked_float(value: numbers.Real) -> float:
    try:
        return float(value)
    except OverflowError:
        raise EventError(f"a {type(value).__name__} too large for a float; use a string") from None


def _short(value: int) -> str:
    """An integer for a message: Python refuses to print very long ones."""
    return str(value) if value.bit_length() < 128 else f"of {value.bit_length()} bits"


def _utc(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise EventError(
            f"the timestamp {value.isoformat()} has no time zone; "
            "add one, for example with .replace(tzinfo=datetime.UTC)"
        )
    try:
        at = value.astimezone(UTC)
    except OverflowError:
        raise EventError(f"the timestamp {value.isoformat()} is outside the years 1 to 9999 in UTC") from None
    if type(at) is datetime:
        return at
    return datetime(
        at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, tzinfo=UTC, fold=at.fold
    )


_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,30}))?(?:([Zz])|([+-])(\d\d):(\d\d))",
    re.ASCII,
)


def parse_timestamp(text: str) -> datetime:
    """An RFC 3339 timestamp as a UTC datetime; digits beyond the microsecond are cut off."""
    parts = _TIMESTAMP.fullmatch(text)
    if parts is None:
        raise EventError(
            f"{text[:64]!r} is not a timestamp with a time zone; write it as 2026-01-01T00:00:00Z"
        )
    *date, fraction, _, sign, hours, minutes = parts.groups()
    try:
        local = datetime(*map(int, date), int((fraction or "").ljust(6, "0")[:6]), tzinfo=UTC)  # type: ignore[arg-type,misc]
        if sign is None:
            return local
        if int(hours) > 23 or int(minutes) > 59:
            raise ValueError("offset must be below 24 hours")
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        return local - offset if sign == "+" else local + offset
    except (ValueError, OverflowError) as error:
        raise EventError(f"{text!r} is not a valid timestamp: {error}") from None


def format_timestamp(at: datetime) -> str:
    """A UTC datetime as RFC 3339, with as many digits as it needs."""
    return at.replace(tzinfo=None).isoformat() + "Z"


# ---------------------------------------------------------------- names


@lru_cache(maxsize=8192)
def check_name(name: str) -> None:
    if not name:
        raise EventError("an attribute name is empty")
    if len(name) > MAX_NAME_LENGTH:
        raise EventLimitError(
            f"the attribute name {name[:32]!r}… has {len(name)} characters; "
            f"at most {MAX_NAME_LENGTH} are allowed"
        )
    if name[0] == "@":
        raise EventError(f"the attribute name {name!r} starts with '@', which is kept for the context")
    if not name.isprintable():
        raise EventError(f"the attribute name {name!r} has a character that cannot be printed")


def _flatten(data: Mapping[Any, Any]) -> dict[str, Value]:
    flat: dict[str, Value] = {}
    _flatten_into(flat, "", data, 1)
    return flat


def _flatten_into(flat: dict[str, Value], prefix: str, data: Mapping[Any, Any], depth: int) -> None:
    if depth > MAX_DEPTH:
        raise EventLimitError(f"attributes are nested deeper than {MAX_DEPTH} levels")
    for key, value in data.items():
        if not isinstance(key, str):
            raise EventError(f"an attribute name is a string, not {type(key).__name__}")
        name = prefix + key
        if not _is_plain(value):
            if value is None:
                continue
            if isinstance(value, Mapping):
                _flatten_into(flat, f"{name}.", value, depth + 1)
                continue
            value = _plain_value(name, value)
        check_name(name)
        if name in flat:
            raise EventError(f"the attribute {name!r} is given twice, once nested and once dotted")
        flat[name] = value
        if len(flat) > MAX_ATTRIBUTES:
            raise EventLimitError(f"an event has at most {MAX_ATTRIBUTES} attributes")


def _is_plain(value: object) -> bool:
    """Whether a value can be kept as it is: most can, and need no closer look."""
    cls = type(value)
    if cls is str:
        return value.isascii()  # type: ignore[attr-defined, no-any-return]
    if cls is int:
        return -(2**63) <= value < 2**63  # type: ignore[operator]
    return cls is float or cls is bool


def _plain_value(name: str, value: object) -> Value:
    try:
        if isinstance(value, list | tuple):
            if len(value) > MAX_EVENT_BYTES:
                raise EventLimitError(f"a list has at most {MAX_EVENT_BYTES} elements")
            return tuple([plain_scalar(element) for element in value])
        return plain_scalar(value)
    except EventError as error:
        raise type(error)(f"attribute {name!r}: {error}") from None


# ---------------------------------------------------------------- events


class Event(msgspec.Struct, frozen=True, array_like=True, eq=False, gc=False, forbid_unknown_fields=True):
    """An immutable event: `Event({"price": 420}, type="flights.Quote", source="feeds/united")`.

    `attributes` may nest and may hold lists of scalars; `None` means that the attribute is absent.
    """

    # A struct, so that codecs make and read it without help. Whoever makes one, a decoder included, goes
    # through `__post_init__`; the way around it is `Trusted`.
    _attributes: dict[str, Any] = {}
    type: str | None = None
    source: str | None = None
    subject: str | None = None
    id: str | None = None
    time: datetime | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            attributes: Mapping[str, Any] | None = None,
            /,
            *,
            type: str | None = None,  # noqa: A002 - the name CloudEvents gives it
            source: str | None = None,
            subject: str | None = None,
            id: str | None = None,  # noqa: A002 - the same
            time: datetime | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        given: object = self._attributes
        if given is not None and not isinstance(given, Mapping):
            raise EventError(f"attributes must be a mapping, not {given.__class__.__name__}")
        _set(self, "_attributes", _flatten(given or {}))
        for name in ("type", "source", "subject", "id"):
            text = getattr(self, name)
            if text is not None:
                _set(self, name, _context_string(name, text))
        if self.time is not None:
            _set(self, "time", _context_time(self.time))
        _check_size(self)

    @property
    def attributes(self) -> Mapping[str, Value]:
        """The flat attributes, read-only."""
        return MappingProxyType(self._attributes)

    def get(self, name: str, default: Value | None = None) -> Value | None:
        """The value of an attribute, or of the context as `@type`, `@source`, …; else `default`."""
        if name[:1] == "@":
            value = getattr(self, name[1:], None) if name[1:] in CONTEXT else None
            return default if value is None else value
        return self._attributes.get(name, default)

    def __getitem__(self, name: str) -> Value:
        value: Value | None = self._attributes.get(name)
        if value is None:
            value = self.get(name)  # of the context
            if value is None:
                raise KeyError(name)
        return value

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    def __bool__(self) -> bool:
        return True

    def replace(self, **context: Any) -> Event:
        """A copy with another `type`, `source`, `subject`, `id` or `time`."""
        unknown = context.keys() - set(CONTEXT)
        if unknown:
            raise EventError(
                f"{sorted(unknown)[0]!r} is not part of an event's context: {', '.join(CONTEXT)}"
            )
        return Event(self._attributes, **{name: context.get(name, getattr(self, name)) for name in CONTEXT})

    def stamped(self, id: str, time: datetime) -> Event:  # noqa: A002
        """The same event with an id and a (UTC) time, where it has none yet."""
        if self.id is not None and self.time is not None:
            return self
        return Trusted(
            self._attributes, self.type, self.source, self.subject, self.id or id, self.time or time
        )

    def encoded_size(self) -> int:
        """Bytes of this event in MessagePack, which `MAX_EVENT_BYTES` limits."""
        return len(msgspec.msgpack.encode(self))

    def _key(self) -> tuple[Any, ...]:
        # The types are part of the key: 1, 1.0 and true are equal in Python, but not as attributes.
        typed = frozenset((name, type(value), _typed(value)) for name, value in self._attributes.items())
        return typed, self.type, self.source, self.subject, self.id, self.time

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Event):
            return NotImplemented
        return self is other or self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> tuple[Any, ...]:
        return Trusted, (self._attributes, *(getattr(self, name) for name in CONTEXT))

    def __repr__(self) -> str:
        context = "".join(
            f", {name}={getattr(self, name)!r}" for name in CONTEXT if getattr(self, name) is not None
        )
        return f"Event({self._attributes!r}{context})"


class Trusted(Event, frozen=True, array_like=True, eq=False, gc=False, forbid_unknown_fields=True):
    """An event from parts that were validated before: `Trusted(attributes, type, …)`. Takes them over."""

    __post_init__ = object.__init__  # type: ignore[misc] # nothing to do, and this does it fastest

    if TYPE_CHECKING:

        def __init__(
            self,
            attributes: dict[str, Any],
            type: str | None = None,  # noqa: A002
            source: str | None = None,
            subject: str | None = None,
            id: str | None = None,  # noqa: A002
            time: datetime | None = None,
        ) -> None: ...


_set = force_setattr


def _typed(value: Value) -> Any:
    if isinstance(value, tuple):
        return tuple((type(element), element) for element in value)
    return value


def _context_string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise EventError(f"{name} must be a string, not {value.__class__.__name__}")
    if not value:
        raise EventError(f"{name} is empty; leave it out instead")
    try:
        return _checked_string(str.__str__(value))
    except EventError as error:
        raise EventError(f"{name}: {error}") from None


def _context_time(value: object) -> datetime:
    if not isinstance(value, datetime):
        raise EventError(f"time must be a datetime with a time zone, not {value.__class__.__name__}")
    try:
        return _utc(value)
    except EventError as error:
        raise EventError(f"time: {error}") from None


def _check_size(event: Event) -> None:
    # An upper bound first: most events are far below the limit, and encoding costs more than this.
    attributes = event._attributes
    bound = 128 + 16 * len(attributes) + 4 * sum(map(len, attributes))
    for value in attributes.values():
        bound += _size_bound(value)
    for name in ("type", "source", "subject", "id"):
        bound += 4 * len(getattr(event, name) or "")
    if bound > MAX_EVENT_BYTES:
        size = event.encoded_size()
        if size > MAX_EVENT_BYTES:
            raise EventLimitError(f"the event takes {size} bytes; at most {MAX_EVENT_BYTES} are allowed")


def _size_bound(value: Value) -> int:
    if isinstance(value, str):
        return 4 * len(value)
    if isinstance(value, tuple):
        return sum(16 + _size_bound(element) for element in value)
    return 0
