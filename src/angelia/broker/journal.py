"""The journal of a broker: what it was asked for, received, sent and delivered, one JSON object a line.

The fields are those of the simulator's journals (`angelia.sim.journal`), but brokers share no counter. An
event's number, which is the cause of all that it causes, is made of its source and id; that of a message,
of the event and the link; so the journals of a network fit together. A broker does not know how many links
an event has come: `hops` is null, and can be told from all journals. `time` is in seconds since 1970.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from angelia.errors import BrokerError
from angelia.event import Event
from angelia.messages import (
    Deliver,
    DeliverSequence,
    Effect,
    Forwarded,
    FromClient,
    FromPeer,
    Input,
    PublishAll,
    Published,
    Send,
)

__all__ = ["Journal", "Row"]

log = logging.getLogger("angelia.broker")

INTERVAL = 1.0  # seconds after which a row is in the file
_MOST = 1000  # rows that wait for it


class Row(msgspec.Struct):
    """One record."""

    time: float
    record: str
    at: str
    peer: str
    kind: str
    number: int
    cause: int
    hops: int | None
    detail: str


class Journal:
    """Notes what a broker does in `directory`, in a file of the broker's name."""

    def __init__(self, directory: Path, broker: str, clock: Callable[[], float]) -> None:
        self._broker = broker
        self._clock = clock
        self._rows: list[Row] = []
        self._timer: asyncio.TimerHandle | None = None
        self._encoder = msgspec.json.Encoder()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = (directory / f"{quote(broker, safe='')}.jsonl").open("ab")
        except OSError as error:
            raise BrokerError(f"cannot write a journal to {directory}: {error.strerror}") from None

    def note(self, given: Input, effects: Iterable[Effect], links: Container[str]) -> None:
        """Note an input and its effects. Before they are done: nobody may note what follows earlier."""
        now = self._clock()
        for record, peer, kind, number, cause, detail in self._happened(given, effects, links):
            self._rows.append(Row(now, record, self._broker, peer, kind, number, cause, None, detail))
        if len(self._rows) >= _MOST:
            self._write()
        elif self._rows and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._write)

    def _happened(
        self, given: Input, effects: Iterable[Effect], links: Container[str]
    ) -> Iterator[tuple[str, str, str, int, int, str]]:
        if isinstance(given, Forwarded):
            for one in given.notifications:
                yield ("received", given.peer, *_message(one, given.peer, self._broker))
        elif isinstance(given, FromPeer):
            yield ("received", given.peer, *_message(given.message, given.peer, self._broker))
        elif isinstance(given, FromClient) and not isinstance(given.request, PublishAll):
            yield "request", given.client, type(given.request).__name__, 0, 0, _detail(given.request)
        for effect in effects:
            if isinstance(effect, Send):
                record = "sent" if effect.peer in links else "dropped"
                yield (record, effect.peer, *_message(effect.message, self._broker, effect.peer))
            elif isinstance(effect, Published):
                for event in effect.events:
                    yield "request", effect.client, "Publish", _number(event), _number(event), event.id or ""
            elif isinstance(effect, Deliver):
                number, detail = _number(effect.event), effect.event.id or ""
                for party in sorted(frozenset().union(*[parties for _, parties in effect.to])):
                    yield "delivery", party, "Deliver", 0, number, detail
            elif isinstance(effect, DeliverSequence):
                number, detail = _number(effect.events[-1]), " ".join(one.id or "" for one in effect.events)
                for party in sorted(effect.identities):
                    yield "delivery", party, "DeliverSequence", 0, number, detail

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        rows, self._rows = self._rows, []
        try:
            self._file.write(self._encoder.encode_lines(rows))
            self._file.flush()
        except OSError as error:  # a broker goes on without its journal
            log.warning("%d records of the journal are lost: %s", len(rows), error.strerror)

    def close(self) -> None:
        """Write what there is."""
        self._write()
        self._file.close()


def _message(message: Any, source: str, target: str) -> tuple[str, int, int, str]:
    """The kind, number, cause and detail of a message."""
    event = _event_in(message)
    if event is None:
        return type(message).__name__, 0, 0, _detail(message)
    cause = _number(event)
    return type(message).__name__, _hash(f"{cause} {source}\0{target}"), cause, event.id or ""


def _event_in(message: Any) -> Event | None:
    """The event that a message carries, perhaps within another one."""
    for place in (message, getattr(message, "message", None)):
        event = getattr(place, "event", None) or (getattr(place, "events", None) or (None,))[-1]
        if isinstance(event, Event):
            return event
    return None


def _number(event: Event) -> int:
    return _hash(f"{event.source or ''}\0{event.id}")


def _hash(text: str) -> int:
    """63 bits, which Parquet and Spark have room for."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def _detail(what: Any) -> str:
    for name in ("filter", "pattern", "advertisement"):
        if (item := getattr(what, name, None)) is not None:
            return str(item)
    return ""
