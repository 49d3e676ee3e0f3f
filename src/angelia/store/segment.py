"""Write-ahead segments: events as they were appended, in records that tell when they are damaged.

A record is a sign, the length and the CRC-32 of what follows (little endian, four bytes each), and a
MessagePack array of events, each as it travels: `[attributes, type, source, subject, id, time]`. A record
that was cut short, at the end, is a *torn tail*: the append did not return. A damaged record in the middle
is skipped, and the next one is found by its sign.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from angelia.errors import LakeError
from angelia.event import Event, Trusted

__all__ = ["HEAD", "Damage", "Parts", "encode_event", "event_of", "read_segment", "record"]

_SIGN = b"\xa7WAL"
_HEAD = struct.Struct("<4sII")
HEAD = _HEAD.size
_MAX_RECORD = 1 << 30


class Parts(msgspec.Struct, array_like=True, gc=False):
    """An event as it stands in a record."""

    attributes: dict[str, Any]
    type: str | None = None
    source: str | None = None
    subject: str | None = None
    id: str | None = None
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that are no record. `is_tail`: nothing comes after them."""

    offset: int
    length: int
    reason: str
    is_tail: bool


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Parts])


def encode_event(event: Event) -> bytes:
    """An event as it stands in a record, and on the wire."""
    return _encoder.encode(event)


def event_of(parts: Parts) -> Event:
    """An event from its parts, which were an event's before."""
    attributes = parts.attributes
    for name, value in attributes.items():
        if type(value) is list:
            attributes[name] = tuple(value)
    return Trusted(attributes, parts.type, parts.source, parts.subject, parts.id, parts.time)


def record(encoded: Sequence[bytes]) -> bytes:
    """A record of encoded events."""
    body = b"".join((b"\xdd", struct.pack(">I", len(encoded)), *encoded))
    if len(body) > _MAX_RECORD:
        raise LakeError(
            f"a batch of {len(body):,} bytes is too large for the lake; append fewer events at once"
        )
    return _HEAD.pack(_SIGN, len(body), crc32(body)) + body


def read_segment(
    path: Path | str, start: int = 0, end: int | None = None, damage: list[Damage] | None = None
) -> Iterator[tuple[int, list[Parts]]]:
    """The records of a segment from `start` to `end`: where each ends, and its events.

    What is not a record is skipped and told in `damage`.
    """
    with open(path, "rb") as file:
        file.seek(start)
        data = file.read() if end is None else file.read(max(0, end - start))
    position = 0
    while position < len(data):
        events = _record_at(data, position)
        if isinstance(events, str):
            found = _next_record(data, position + 1)
            if damage is not None:
                length = (found if found >= 0 else len(data)) - position
                damage.append(Damage(start + position, length, events, is_tail=found < 0))
            if found < 0:
                return
            position = found
            continue
        position += HEAD + _length_at(data, position)
        yield start + position, events


def _length_at(data: bytes, position: int) -> int:
    return int(_HEAD.unpack_from(data, position)[1])


def _record_at(data: bytes, position: int) -> list[Parts] | str:
    """The events of a record, or what is wrong with it."""
    if len(data) - position < HEAD:
        return "cut short in the head of a record"
    sign, length, checksum = _HEAD.unpack_from(data, position)
    if sign != _SIGN:
        return "no record where one should begin"
    body = memoryview(data)[position + HEAD : position + HEAD + length]
    if len(body) < length:
        return "a record that was cut short"
    if crc32(body) != checksum:
        return "a record whose checksum is wrong"
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        return f"a record that holds no events: {error}"


def _next_record(data: bytes, position: int) -> int:
    """Where the next whole record begins, or -1."""
    while (position := data.find(_SIGN, position)) >= 0:
        if not isinstance(_record_at(data, position), str):
            return position
        position += 1
    return -1
