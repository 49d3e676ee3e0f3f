"""A client's connection to a broker, and to the next one when it is lost.

Lives in one event loop and knows nothing of subscriptions: requests go out with a function that is
called with the answer, and what comes in goes to a `Listener`. Requests that may be made twice without
harm survive a loss: they are made again at the next broker. A publication under way may have been done
or not; its publisher is told so.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import angelia.errors as errors
from angelia.broker.address import Address
from angelia.broker.connection import Connection, backoff
from angelia.broker.tls import client_context, why_not
from angelia.errors import AngeliaError, BrokerError, ConnectionLostError, DisconnectedError, WireError
from angelia.event import Event
from angelia.messages import Request, Subscribe, Unsubscribe, UnsubscribePattern
from angelia.types import EventType
from angelia.wire import (
    MAX_FRAME,
    VERSION,
    Answer,
    Bye,
    Describe,
    Dropped,
    Flow,
    Hello,
    ListSubscriptions,
    Ping,
    Sequence_,
    Tell,
    Told,
    TypeNews,
    Welcome,
    decode,
    decode_told,
    encode,
    encode_event,
    encode_recall,
    encode_request,
    encode_upload,
)

__all__ = ["Listener", "Options", "Uplink", "log_refusal", "refusal"]

log = logging.getLogger("angelia.client")

_MAX_TOLD = 64 << 20  # bytes of a frame from a broker: all event types may be in it
SHORT = 5.0  # seconds that a connection lasts, at least, if all is well
FULL = 1 << 20  # bytes in the queue above which a publisher waits
Done = Callable[[Answer | AngeliaError], None]


@dataclass(frozen=True)
class Options:
    """How to connect."""

    addresses: tuple[Address, ...]
    name: str
    token: str | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    queue: int | None = None
    policy: str | None = None
    timeout: float = 30.0
    incarnation: str = field(default_factory=lambda: secrets.token_hex(8))


class Listener(Protocol):
    """Who is told what comes in."""

    def on_events(self, items: Sequence[Told[Event]]) -> None:
        """Events, with the numbers of subscriptions."""

    def on_sequence(self, numbers: tuple[int, ...], events: tuple[Event, ...]) -> None:
        """Events that match a pattern."""

    def on_type_removed(self, name: str) -> None:
        """An event type is gone."""

    def on_types(self, event_types: tuple[EventType, ...]) -> None:
        """Event types that are news."""

    def standing(self) -> Iterable[Request]:
        """All that a broker must be asked for when it is a new one."""

    def on_end(self, error: AngeliaError) -> None:
        """There will be no connection any more."""


class _Pending(NamedTuple):
    """A request under way: who is told of the answer, and what becomes of it if the connection is lost."""

    done: Done
    frame: bytes | None = None  # it is made again at the next broker
    if_lost: Answer | AngeliaError | None = None  # or this is the answer


_IN_DOUBT = ConnectionLostError("the connection was lost: the events may have been published, or not")


class Uplink:
    """Keeps a connection to one of several brokers."""

    def __init__(self, options: Options, listener: Listener) -> None:
        self.options = options
        self.listener = listener
        self.broker = ""
        self.reconnects = -1
        self.max_frame = MAX_FRAME  # of the broker
        self.dropped = 0  # at brokers, in all
        self._dropped_here = 0
        self._connection: Connection | None = None
        self._lost_now: asyncio.Future[str] | None = None  # done when that is gone
        self._pending: dict[int, _Pending] = {}
        self._unsent: list[tuple[int, bytes, Done]] = []  # publications while there is no connection
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self._heart: asyncio.Task[None] | None = None
        self._holds = 0
        self._room = asyncio.Event()
        self._end: AngeliaError | None = None
        self._loop = asyncio.get_running_loop()

    # ------------------------------------------------ start and stop

    async def open(self) -> None:
        """Connect to the first broker that answers; a `BrokerError` if none does."""
        problems = []
        for address in self.options.addresses:
            lost: asyncio.Future[str] = self._loop.create_future()
            try:
                await self._connect(address, lost)
            except BrokerError as error:
                problems.append(f"{address}: {error}")
            else:
                self._task = self._loop.create_task(self._keep(lost))
                return
        raise BrokerError("cannot connect to " + "; ".join(problems))

    async def close(self) -> None:
        """Send what is queued and leave. The broker has read it all when this returns, if it goes well."""
        connection, lost = self._connection, self._lost_now
        self._finish(errors.ClosedError("the client is closed"))
        if self._task is not None:
            self._task.cancel()
        if connection is None or lost is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self.options.timeout):
                while not connection.is_drained:
                    await asyncio.sleep(0.001)
        connection.close("closed")
        await asyncio.wait([lost])

    def _finish(self, error: AngeliaError) -> None:
        if self._end is not None:
            return
        self._end = error
        self._connection = None
        self._room.set()
        if self._heart is not None:
            self._heart.cancel()
        waiting = [
            *(pending.done for pending in self._pending.values()),
            *(done for *_, done in self._unsent),
        ]
        self._pending.clear()
        self._unsent.clear()
        for done in waiting:
            done(error)
        self.listener.on_end(error)

    async def _keep(self, lost: asyncio.Future[str]) -> None:
        """Connect again whenever the connection is lost."""
        short = 0  # connections in a row that did not last
        while self._end is None:
            started = self._loop.time()
            reason = await asyncio.shield(lost)
            log.warning("lost the connection to %s: %s", self.broker, reason)
            if self._loop.time() - started < SHORT:
                await asyncio.sleep(backoff(short))  # or a broker that cannot bear us is asked without end
            short = short + 1 if self._loop.time() - started < SHORT else 0
            lost = await self._again()

    async def _again(self) -> asyncio.Future[str]:
        attempt = 0
        while True:
            address = self.options.addresses[attempt % len(self.options.addresses)]
            lost: asyncio.Future[str] = self._loop.create_future()
            try:
                await self._connect(address, lost)
                return lost
            except BrokerError as error:
                log.debug("%s: %s", address, error)
            if self._end is not None:
                return lost
            attempt += 1
            rounds, rest = divmod(attempt, len(self.options.addresses))
            if rest == 0:
                await asyncio.sleep(backoff(rounds - 1))

    async def _connect(self, address: Address, lost: asyncio.Future[str]) -> None:
        """Connect and be welcomed, or a `BrokerError`. `lost` is done when the connection is gone."""
        options = self.options
        welcomed = asyncio.Event()

        def received(connection: Connection, bodies: list[bytes]) -> None:
            frame = decode(bodies[0])
            if isinstance(frame, Welcome) and self._end is None:
                self._lost_now = lost
                self._welcomed(connection, frame)
                welcomed.set()
                if len(bodies) > 1:
                    self._received(connection, bodies[1:])
            else:
                connection.abort(frame.reason if isinstance(frame, Bye) else "it is no broker of ours")

        def on_lost(connection: Connection, reason: str) -> None:
            self._lost(connection)
            lost.set_result(reason)
            welcomed.set()

        connection = None
        try:
            tls = client_context(options.ca, options.cert, options.key) if address.tls else None
            async with asyncio.timeout(min(10.0, options.timeout)):
                _, connection = await self._loop.create_connection(
                    lambda: Connection(received, on_lost), address.host, address.port, ssl=tls
                )
                connection.accept(_MAX_TOLD)  # what comes together with the welcome is large at times
                connection.send(
                    Hello(
                        VERSION,
                        "client",
                        options.name,
                        options.incarnation,
                        token=options.token,
                        queue=options.queue,
                        policy=options.policy,
                    )
                )
                await welcomed.wait()
        except TimeoutError:
            raise BrokerError("it does not answer") from None
        except OSError as error:
            raise BrokerError(why_not(error)) from None
        finally:
            if connection is not None and connection is not self._connection:
                connection.abort("it was not welcome")
        if connection is not self._connection:
            raise BrokerError(lost.result())

    def _welcomed(self, connection: Connection, welcome: Welcome) -> None:
        self.max_frame = welcome.max_frame
        connection.received = self._received
        connection.batch = lambda items: encode_upload(0, items)
        connection.changed = self._taken
        self.broker = welcome.name
        self.reconnects += 1
        self._dropped_here = 0
        self._connection = connection
        if self._heart is not None:
            self._heart.cancel()
        self._heart = self._loop.create_task(self._beat(connection, welcome.heartbeat))
        if self._holds:
            connection.send(Flow(False))
        for request in self.listener.standing():
            connection.send_bytes(encode_request(0, request))
        for pending in self._pending.values():
            if pending.frame is not None:
                connection.send_bytes(pending.frame)
        for number, frame, done in self._unsent:
            self._pending[number] = _Pending(done, if_lost=_IN_DOUBT)
            connection.send_bytes(frame)
        self._unsent.clear()
        self._room.set()

    def _lost(self, connection: Connection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        self._room.clear()
        gone = {number: one for number, one in self._pending.items() if one.if_lost is not None}
        for number, pending in gone.items():
            del self._pending[number]
            assert pending.if_lost is not None
            pending.done(pending.if_lost)

    async def _beat(self, connection: Connection, heartbeat: float) -> None:
        now = self._loop.time()
        while not connection.is_closing:
            before = now
            await asyncio.sleep(heartbeat)
            now = self._loop.time()
            was_absent = now - before > 2 * heartbeat  # and has not yet read what came meanwhile
            if now - connection.last_received > 3 * heartbeat and not was_absent:
                connection.abort(f"{self.broker} gave no sign of life for {3 * heartbeat:g} s")
            elif now - connection.last_sent > heartbeat / 2:
                connection.ping()

    # ------------------------------------------------ out

    def request(self, request: Request, done: Done) -> None:
        """Make a request, now or when there is a connection."""
        self._number += 1
        self._ask(self._number, encode_request(self._number, request), done)

    def unsubscribe(self, request: Unsubscribe | UnsubscribePattern, done: Done) -> None:
        """Cancel a subscription that no other broker will be asked for: if this one is gone, it is done."""
        self._number += 1
        if self._connection is None:
            done(Answer(self._number))
        else:
            self._pending[self._number] = _Pending(done, if_lost=Answer(self._number))
            self._connection.send_bytes(encode_request(self._number, request))

    def recall(self, request: Subscribe, since: datetime, done: Done) -> None:
        """Subscribe from a time in the past on."""
        self._number += 1
        self._ask(self._number, encode_recall(self._number, request, since), done)

    def describe(self, done: Done) -> None:
        """Ask the broker for its state."""
        self._number += 1
        self._ask(self._number, encode(Describe(self._number)), done)

    def subscriptions(self, after: str, done: Done) -> None:
        """Ask the broker for a page of what is subscribed to there."""
        self._number += 1
        self._ask(self._number, encode(ListSubscriptions(self._number, after)), done)

    def _ask(self, number: int, frame: bytes, done: Done) -> None:
        problem = self._end or self._too_large(frame)
        if problem is not None:
            done(problem)
            return
        self._pending[number] = _Pending(done, frame)
        if self._connection is not None:
            self._connection.send_bytes(frame)

    def _too_large(self, frame: bytes) -> AngeliaError | None:
        if len(frame) - 4 <= self.max_frame:
            return None
        return errors.RequestError(
            f"this takes {len(frame) - 4} bytes, and the broker takes at most {self.max_frame} at once"
        )

    def put(self, event: Event) -> None:
        """Publish an event; nobody is told what became of it. Who asks has waited for room."""
        if self._connection is not None:
            self._connection.put(encode_event(event))

    def upload(self, events: Sequence[Event], done: Done) -> None:
        """Publish events, all or none of them."""
        self._number += 1
        frame = encode_upload(self._number, [encode_event(event) for event in events])
        problem = self._end or self._too_large(frame)
        if problem is not None:
            done(problem)
        elif self._connection is None:
            self._unsent.append((self._number, frame, done))
        else:
            self._pending[self._number] = _Pending(done, if_lost=_IN_DOUBT)
            self._connection.send_bytes(frame)

    @property
    def has_room(self) -> bool:
        """Whether to go on publishing."""
        connection = self._connection
        return self._end is not None or (connection is not None and connection.queued_bytes < FULL)

    async def room(self) -> None:
        """Wait until there is a connection that takes more; a `BrokerError` if that takes too long."""
        if self.has_room:
            return
        try:
            async with asyncio.timeout(self.options.timeout):
                while not self.has_room:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise BrokerError(f"no broker has taken an event for {self.options.timeout:g} s") from None

    def _taken(self) -> None:
        if not self._room.is_set() and self.has_room:
            self._room.set()

    # ------------------------------------------------ in

    def hold(self) -> None:
        """A queue of the application is full: events are to wait at the broker until it is released."""
        self._holds += 1
        if self._holds == 1 and self._connection is not None:
            self._connection.send(Flow(False))

    def release(self) -> None:
        """Undo a `hold`."""
        self._holds -= 1
        if self._holds == 0 and self._connection is not None:
            self._connection.send(Flow(True))

    @property
    def is_held(self) -> bool:
        """Whether events wait at the broker, and answers come ahead of them."""
        return self._holds > 0

    def _received(self, connection: Connection, bodies: list[bytes]) -> None:
        for body in bodies:
            frame = decode(body)
            kind = type(frame)
            if kind is Tell:
                self.listener.on_events(decode_told(frame.events))
            elif kind is Answer:
                self._answered(frame)
            elif kind is Sequence_:
                self.listener.on_sequence(frame.numbers, frame.events)
            elif kind is TypeNews:
                self.listener.on_types(frame.event_types)
                for name in frame.removed:
                    self.listener.on_type_removed(name)
            elif kind is Dropped:
                self._dropped(frame.count)
            elif kind is Bye:
                self._bye(connection, frame)
                return
            elif kind is not Ping:
                raise WireError(f"a broker does not send {kind.__name__} to a client")

    def _answered(self, answer: Answer) -> None:
        pending = self._pending.pop(answer.number, None)
        if pending is not None:
            pending.done(answer)
        elif answer.error is not None:
            log.warning("%s refused what nobody waits for: %s", self.broker, answer.error)

    def _dropped(self, count: int) -> None:
        log.warning("%s had no room for %d events for this client", self.broker, count - self._dropped_here)
        self.dropped += count - self._dropped_here
        self._dropped_here = count

    def _bye(self, connection: Connection, bye: Bye) -> None:
        if not bye.retry:
            self._finish(DisconnectedError(f"{self.broker} has ended the connection: {bye.reason}"))
        connection.abort(bye.reason)


def log_refusal(answer: Answer | AngeliaError) -> None:
    """Tell in the log what became of a publication that nobody waits for."""
    if isinstance(answer, errors.ClosedError):  # who leaves does not wait for answers
        return
    problem = answer.error if isinstance(answer, Answer) else str(answer)
    if problem is not None:
        log.warning("a publication was refused: %s", problem)


def refusal(answer: Answer) -> AngeliaError:
    """The error that a broker answered with."""
    cls: Any = getattr(errors, answer.code or "", None)
    if not (isinstance(cls, type) and issubclass(cls, AngeliaError)):
        cls = errors.RequestError
    error: AngeliaError = cls.__new__(cls)  # not by its constructor: the text is told already
    error.args = (answer.error,)
    if isinstance(error, errors.ConformanceError):
        error.type_name, error.problems = "", [str(answer.error)]
    return error
