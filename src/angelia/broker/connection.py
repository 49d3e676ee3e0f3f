"""One connection: frames in, and a bounded way out.

What is ready is sent together, and nothing waits for more to become ready. What the other side does not
take yet waits in a queue that has a limit; what happens at the limit is the affair of its owner:
a client has a policy, and a link between brokers holds back those who publish.

All is sent in its order, with one exception: while the other side wants no events (`hold`), control frames
go ahead of them, so that an application that is behind with its events still gets the answers it waits for.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Collection
from math import inf
from typing import Any, TypeGuard, cast

from angelia.errors import WireError
from angelia.wire import Bye, Frames, Ping, encode

__all__ = ["Connection", "backoff"]

log = logging.getLogger("angelia.broker")

HIGH_WATER = 1 << 18  # bytes in the socket's own buffer above which it takes no more
_BATCH = 512  # items in a frame, at most
_BATCH_BYTES = 1 << 15  # so few that no event in it can be too large: they are decoded without a closer look
_AT_ONCE, _AT_ONCE_BYTES = 64, 1 << 16  # frames that are processed together: who waits for them waits for all
_SLICE = 0.005  # seconds after which others are due
_PRE_HELLO = 1 << 16  # bytes of a frame from somebody who has not introduced itself
LINGER = 1.0  # seconds that the other side has to read why a connection ends
_PING = encode(Ping())


class _Batch:
    """Items in the queue that go into one frame, and their bytes."""

    __slots__ = ("items", "size")

    def __init__(self) -> None:
        self.items: deque[bytes] = deque()
        self.size = 0


class _Single:
    """A frame in the queue; a control frame may not be dropped."""

    __slots__ = ("data", "is_control")

    def __init__(self, data: bytes, is_control: bool) -> None:
        self.data = data
        self.is_control = is_control


FIRST_DELAY, LONGEST_DELAY = 0.1, 10.0


def backoff(attempt: int) -> float:
    """Seconds before the next attempt: twice as long each time, with jitter so that nobody comes in step."""
    return min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(attempt, 16)) * random.uniform(0.5, 1.0)


class Connection(asyncio.Protocol):
    """A connection with a queue of what is to be sent. `received` is called with the bodies of frames.

    `lost` is called once, when the connection is gone, with why. `changed` is called when the
    queue has become shorter.
    """

    def __init__(
        self,
        received: Callable[[Connection, list[bytes]], None],
        lost: Callable[[Connection, str], None],
        made: Callable[[Connection], None] | None = None,
    ) -> None:
        self.received = received
        self.lost = lost
        self.changed: Callable[[], None] = _nothing
        self.batch: Callable[[Collection[bytes]], bytes] = b"".join
        self.last_received = 0.0
        self.last_sent = 0.0
        self.dropped = 0
        self.queued = 0  # items and frames that may be dropped
        self.queued_bytes = 0  # all
        self.control_bytes = 0  # of frames that may not be dropped
        self.peer_name = "?"
        self.is_reading = True
        self._made = made
        self._frames = Frames(_PRE_HELLO)
        self._queue: deque[_Batch | _Single] = deque()
        self._open: _Batch | None = None  # the last in the queue, if it takes more items
        self._ahead: deque[bytes] = deque()  # control frames, while items are held
        self._inbox: list[bytes] = []  # bodies of frames that are still to be processed
        self._is_working = False
        self._reads = True  # whether the transport does
        self._transport_is_gone = False
        self._is_held = False
        self._is_flushing = False
        self._is_paused = False
        self._is_closing = False
        self._reason = ""
        self._linger: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    # ------------------------------------------------ the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's protocol."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER)
        self.last_received = self.last_sent = self._loop.time()
        peer = transport.get_extra_info("peername")
        self.peer_name = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer or "?")
        if self._made is not None:
            self._made(self)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio's protocol."""
        self.last_received = now = self._loop.time()
        if self._is_closing:
            return
        try:
            self._inbox += self._frames.feed(data)
        except WireError as error:
            self.close(str(error))
        if not self._is_working:
            self._work(now + _SLICE)

    def _work(self, until: float) -> None:
        """Process what has come in; at most until a time, and then others are due."""
        self._is_working = False
        while self._inbox and not self._is_closing:
            try:
                self.received(self, self._next_bodies())
            except WireError as error:
                self.close(str(error))
            except Exception:  # a fault of ours: whoever it was does not take the others along
                log.exception("a frame from %s could not be processed", self.peer_name)
                self.close("an internal error")
            if self._inbox and self._loop.time() > until:
                self._is_working = True
                self._loop.call_soon(lambda: self._work(self._loop.time() + _SLICE))
                break
        self._read_on()

    def _next_bodies(self) -> list[bytes]:
        """Some of what has come in: many small frames, or a few large ones."""
        size = count = 0
        for body in self._inbox[:_AT_ONCE]:
            count += 1
            size += len(body)
            if size >= _AT_ONCE_BYTES:
                break
        bodies, self._inbox = self._inbox[:count], self._inbox[count:]
        return bodies

    def connection_lost(self, error: Exception | None) -> None:
        """Part of asyncio's protocol."""
        self._transport_is_gone = True
        self._work(inf)  # what has come in before
        self._is_closing = True
        self._forget_queue()
        if self._linger is not None:
            self._linger.cancel()
        lost, self.lost = self.lost, lambda *_: None
        lost(self, self._reason or (str(error) if error else "the other side closed the connection"))

    def pause_writing(self) -> None:
        """Part of asyncio's protocol: the socket takes no more."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Part of asyncio's protocol: the socket takes more."""
        self._is_paused = False
        self._flush()

    def info(self, name: str) -> Any:
        """What the transport tells of itself."""
        return self._transport.get_extra_info(name) if self._transport is not None else None

    # ------------------------------------------------ in

    def accept(self, max_frame: int) -> None:
        """The other side has introduced itself: its frames may be larger from now on."""
        self._frames.limit = max_frame

    def read(self, wanted: bool) -> None:
        """Go on reading, or hold back who sends."""
        if wanted != self.is_reading:
            self.is_reading = wanted
            self._read_on()

    @property
    def listens(self) -> bool:
        """Whether what the other side sends is heard just now."""
        return self._reads

    def _read_on(self) -> None:
        """Have the transport read, or not: not if it should not, nor while there is enough to do."""
        wanted = self.is_reading and not self._inbox
        if wanted == self._reads or self._transport is None or self._is_closing or self._transport_is_gone:
            return
        self._reads = wanted
        if wanted:
            self._transport.resume_reading()
            self.last_received = self._loop.time()  # what came meanwhile has not been seen
        else:
            self._transport.pause_reading()

    # ------------------------------------------------ out

    def send(self, frame: Any) -> None:
        """Send a frame, or a message, after all that is queued."""
        self._put(encode(frame), True)

    def send_bytes(self, frame: bytes) -> None:
        """Send an encoded frame."""
        self._put(frame, True)

    def ping(self) -> None:
        """Give a sign of life, unless something is about to be sent anyway."""
        if not self._has_something:
            self._put(_PING, True)

    def put(self, item: bytes) -> None:
        """Send an item of a batch (see `batch`), which may be dropped."""
        self.put_all([item], len(item))

    def put_all(self, items: list[bytes], size: int) -> None:
        """Send some items, of so many bytes together, each as `put` does."""
        if self._is_closing:
            return
        batch, count = self._batch_with_room(), len(items)
        if count == 1 or (batch.size + size <= _BATCH_BYTES and len(batch.items) + count <= _BATCH):
            batch.items.extend(items)
            batch.size += size
            self.queued += count
            self.queued_bytes += size
            if not self._is_flushing:
                self._flush_soon()
        else:
            for half in (items[: count // 2], items[count // 2 :]):
                self.put_all(half, sum(map(len, half)))

    def _batch_with_room(self) -> _Batch:
        """The last in the queue, or a new one."""
        batch = self._open
        if batch is None or batch.size >= _BATCH_BYTES or len(batch.items) >= _BATCH:
            batch = self._open = _Batch()
            self._queue.append(batch)
        return batch

    def put_frame(self, frame: bytes) -> None:
        """Send an encoded frame, which may be dropped."""
        self._put(frame, False)

    def hold(self, wanted: bool) -> None:
        """Keep back what may be dropped, and let all else go ahead of it; or go on in order."""
        if wanted and not self._is_held:
            self._ahead.extend(one.data for one in self._queue if _is_control(one))
            self._queue = deque(one for one in self._queue if not _is_control(one))
        self._is_held = wanted
        self._flush_soon()

    def drop_oldest(self) -> None:
        """Drop what is in the queue longest and may be dropped."""
        for place, one in enumerate(self._queue):
            if _is_control(one):
                continue
            if isinstance(one, _Batch):
                size = len(one.items.popleft())
                one.size -= size
            else:
                size = len(one.data)
            if not (isinstance(one, _Batch) and one.items):
                del self._queue[place]
                self._open = None if one is self._open else self._open
            self.queued -= 1
            self.queued_bytes -= size
            self.dropped += 1
            return

    def _put(self, data: bytes, is_control: bool) -> None:
        if self._is_closing:
            return
        self.queued_bytes += len(data)
        if is_control:
            self.control_bytes += len(data)
        else:
            self.queued += 1
        if is_control and self._is_held:
            self._ahead.append(data)
        else:
            self._queue.append(_Single(data, is_control))
            self._open = None  # what comes next comes after it
        if not self._is_flushing:
            self._flush_soon()

    @property
    def _has_something(self) -> bool:
        """Whether there is something that is to be sent now."""
        return bool(self._ahead or (self._queue and not self._is_held))

    def _flush_soon(self) -> None:
        if not self._is_flushing and not self._is_paused and not self._is_closing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send what the socket takes."""
        self._is_flushing = False
        if self._transport is None or not self._has_something:
            return
        while not self._is_paused and self._has_something:
            self._transport.write(self._next_chunk())
        self.last_sent = self._loop.time()
        self.changed()

    def _next_chunk(self) -> bytes:
        """Frames from the head of the queue, about as many bytes as the socket takes at once."""
        frame = self._next_frame()
        if not self._has_something:
            return frame
        frames, size = [frame], len(frame)
        while size < HIGH_WATER and self._has_something:
            frame = self._next_frame()
            size += len(frame)
            frames.append(frame)
        return b"".join(frames)

    def _next_frame(self) -> bytes:
        one = _Single(self._ahead.popleft(), True) if self._ahead else self._queue.popleft()
        if isinstance(one, _Batch):
            self._open = None if one is self._open else self._open
            self.queued -= len(one.items)
            self.queued_bytes -= one.size
            return self.batch(one.items)
        self.queued_bytes -= len(one.data)
        if one.is_control:
            self.control_bytes -= len(one.data)
        else:
            self.queued -= 1
        return one.data

    # ------------------------------------------------ the end

    @property
    def is_closing(self) -> bool:
        """Whether it is over."""
        return self._is_closing

    @property
    def is_drained(self) -> bool:
        """Whether all was handed to the operating system."""
        return self._is_closing or not (
            self._queue
            or self._ahead
            or (self._transport is not None and self._transport.get_write_buffer_size())
        )

    def close(self, reason: str, *, retry: bool = True) -> None:
        """Say why, and end the connection. What waits in the queue is not sent.

        The other side ends it when it has read why. Until then, what it sends is read and thrown away: to
        close with something unread would reset the connection, and take the reason with it.
        """
        if self._is_closing or self._transport is None:
            return
        self.read(True)
        self._is_closing = True
        self._reason = reason
        self._forget_queue()
        self._transport.write(encode(Bye(reason, retry)))
        self._linger = self._loop.call_later(LINGER, self._transport.abort)

    def _forget_queue(self) -> None:
        self._queue.clear()
        self._open = None
        self._ahead.clear()
        self.queued = self.queued_bytes = self.control_bytes = 0

    def abort(self, reason: str) -> None:
        """End the connection at once: the other side is gone."""
        if not self._is_closing and self._transport is not None:
            self._is_closing = True
            self._reason = reason
            self._transport.abort()


def _is_control(one: _Batch | _Single) -> TypeGuard[_Single]:
    return isinstance(one, _Single) and one.is_control


def _nothing() -> None:
    """Nobody waits for room."""
