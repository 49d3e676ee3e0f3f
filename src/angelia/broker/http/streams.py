"""Streams: the events of one filter, for any number of readers.

A stream is one subscription at the broker and a ring of the events that came last, each encoded once.
A reader is a position in the ring. Who reads slowly falls behind, and is told how many events it missed
when the ring has left it; nobody else notices, and nothing piles up. A reader that comes back within a
while goes on where it was: the stream outlives its last reader for so long.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import Literal, NamedTuple

from angelia.broker.http.problem import Problem
from angelia.broker.http.service import Client, Subscription
from angelia.broker.http.settings import Settings
from angelia.broker.metrics import Metrics
from angelia.errors import ClosedError
from angelia.event import Event
from angelia.filter import Filter

__all__ = ["Gap", "Item", "LagPolicy", "Reader", "Stream", "Streams"]

log = logging.getLogger("angelia.http")

LagPolicy = Literal["drop_oldest", "disconnect"]


class Item(NamedTuple):
    """An event for a reader: its position, and its text."""

    id: str
    text: bytes


class Gap(NamedTuple):
    """Events that a reader has not got: how many, if that is known, and why."""

    missed: int | None
    reason: str


class Stream:
    """The events of a filter, and what came last."""

    def __init__(
        self,
        subscription: Subscription,
        settings: Settings,
        encode: Callable[[Event], bytes],
    ) -> None:
        self.epoch = secrets.token_hex(4)  # positions of another stream, or before a restart, are not ours
        self.head = 0  # the position of the newest entry
        self.readers = 0
        self.is_closed = False
        self._subscription = subscription
        self._settings = settings
        self._encode = encode
        self._ring: deque[bytes | Gap] = deque()
        self._bytes = 0
        self._dropped = 0
        self._news = asyncio.Event()
        self._pump = asyncio.create_task(self._run())

    @property
    def tail(self) -> int:
        """The position of the oldest entry that is still here."""
        return self.head - len(self._ring) + 1

    def entry(self, position: int) -> bytes | Gap:
        """The entry at a position from `tail` to `head`."""
        return self._ring[position - self.tail]

    async def _run(self) -> None:
        try:
            while True:
                event = await self._subscription.get()
                if self._subscription.dropped > self._dropped:
                    lost = self._subscription.dropped - self._dropped
                    self._dropped += lost
                    self._append(Gap(lost, "events came faster than the door could take them"))
                self._append(self._encode(event))
        except ClosedError:
            pass
        except Exception:
            log.exception("the stream of %s failed", self._subscription)
        finally:
            self.is_closed = True
            self._news.set()

    def _append(self, entry: bytes | Gap) -> None:
        self._ring.append(entry)
        self._bytes += _size(entry)
        self.head += 1
        limits = self._settings
        while len(self._ring) > limits.replay_events or self._bytes > limits.replay_bytes:
            self._bytes -= _size(self._ring.popleft())
        self._news.set()
        self._news = asyncio.Event()

    async def wait(self, timeout: float) -> bool:
        """Wait until something has changed; returns whether it has."""
        if self.is_closed:
            return True
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End the stream, for all its readers."""
        self._pump.cancel()
        await asyncio.wait([self._pump])
        await self._subscription.close()


def _size(entry: bytes | Gap) -> int:
    return len(entry) if isinstance(entry, bytes) else 64


class Reader:
    """Somebody who reads a stream, at most `size` entries behind."""

    def __init__(
        self,
        stream: Stream,
        size: int,
        policy: LagPolicy,
        last_id: str | None,
        dropped: Callable[[int], None],
    ) -> None:
        self._stream = stream
        self._size = size
        self._policy = policy
        self._dropped = dropped
        self._position, self._gap = _start(stream, last_id)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to read, ever."""
        return self._stream.is_closed and self._gap is None and self._position >= self._stream.head

    async def read(self, timeout: float) -> list[Item | Gap]:
        """What is new; nothing after `timeout` seconds. At the end, or for who is too slow: an `EOFError`."""
        if self._gap is None and self._position >= self._stream.head:
            await self._stream.wait(timeout)
        if self.is_over:
            raise EOFError("the broker ends the stream")
        found: list[Item | Gap] = [] if self._gap is None else [self._gap]
        self._gap = None
        stream = self._stream
        behind = stream.head - self._position - min(self._size, stream.head - stream.tail + 1)
        if behind > 0:
            self._dropped(behind)
            if self._policy == "disconnect":
                raise EOFError(f"the reader was too slow: {behind} events would have been dropped")
            found.append(Gap(behind, "the reader was too slow"))
            self._position += behind
        while self._position < stream.head and len(found) < 64:
            self._position += 1
            entry = stream.entry(self._position)
            found.append(entry if isinstance(entry, Gap) else Item(f"{stream.epoch}-{self._position}", entry))
        return found


def _start(stream: Stream, last_id: str | None) -> tuple[int, Gap | None]:
    """Where a reader begins: after the event that it saw last, if that is still known."""
    if last_id is None:
        return stream.head, None
    epoch, _, number = last_id.rpartition("-")
    if epoch != stream.epoch or not number.isascii() or not number.isdigit() or int(number) > stream.head:
        return stream.head, Gap(None, f"the event {last_id[:64]!r} is not known here; the stream starts now")
    missed = stream.tail - 1 - int(number)
    if missed > 0:
        return stream.tail - 1, Gap(missed, f"the event {last_id[:64]!r} is too old")
    return int(number), None


class Streams:
    """All streams of the door, by filter."""

    def __init__(
        self, client: Client, settings: Settings, metrics: Metrics, encode: Callable[[Event], bytes]
    ) -> None:
        self._client = client
        self._settings = settings
        self._metrics = metrics
        self._encode = encode
        self._streams: dict[Filter, Stream] = {}
        self._timers: dict[Filter, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def readers(self) -> int:
        """How many readers there are."""
        return sum(stream.readers for stream in self._streams.values())

    def __len__(self) -> int:
        return len(self._streams)

    def open(
        self, wanted: Filter, *, size: int, policy: LagPolicy, last_id: str | None, reason: str
    ) -> tuple[Stream, Reader]:
        """A new reader; give its stream back with `leave`."""
        stream = self._streams.get(wanted)
        if stream is None or stream.is_closed:
            self._make_room()
            subscription = self._client.subscribe(
                wanted, size=self._settings.replay_events, policy="drop_oldest"
            )
            stream = self._streams[wanted] = Stream(subscription, self._settings, self._encode)
        if timer := self._timers.pop(wanted, None):
            timer.cancel()
        reader = Reader(stream, size, policy, last_id, lambda n: self._metrics.count_drop(reason, n))
        stream.readers += 1
        return stream, reader

    def leave(self, wanted: Filter, stream: Stream) -> None:
        """A reader is gone; the stream waits a while for it to come back."""
        stream.readers -= 1
        if stream.readers == 0 and self._streams.get(wanted) is stream:
            self._timers[wanted] = asyncio.get_running_loop().call_later(
                self._settings.replay_seconds, self._forget, wanted
            )

    def _make_room(self) -> None:
        if len(self._streams) < self._settings.max_streams:
            return
        if not self._timers:
            detail = f"there are {len(self._streams)} streams already; use one of their filters, or come back"
            raise Problem(503, "too-many-streams", detail, headers={"Retry-After": "30"})
        oldest = next(iter(self._timers))
        self._timers[oldest].cancel()
        self._forget(oldest)

    def _forget(self, wanted: Filter) -> None:
        self._timers.pop(wanted, None)
        task = asyncio.create_task(self._streams.pop(wanted).close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """End all streams."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for wanted in list(self._streams):
            self._forget(wanted)
        if self._closing:
            await asyncio.wait(list(self._closing))
