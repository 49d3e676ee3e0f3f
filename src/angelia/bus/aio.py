"""The bus for asyncio: a shell that waits, around `core.py`. It belongs to one event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from datetime import datetime
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Any, Self, TypeVar, overload
from weakref import ref

from angelia.bus.callbacks import Callbacks
from angelia.bus.core import Stats, core_of
from angelia.bus.history import LakeSync
from angelia.bus.mailbox import DEFAULT_SIZE, Policy, Ticket
from angelia.bus.network import Network
from angelia.bus.party import Handle, Item, Wanted, log
from angelia.bus.session import Requests
from angelia.errors import BlockedError, ClosedError, DisconnectedError
from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.pattern import Pattern
from angelia.types import EventType, TypeRegistry

__all__ = ["Bus", "Client", "Subscription"]

T = TypeVar("T")

PATIENCE = 5.0  # seconds that a publisher waits before the log tells
_WAITING = "a publisher has waited %s s for room in a queue of %s events with the policy block; who reads it?"


class Subscription(Handle[T]):
    """What `subscribe` returns: an asynchronous iterator over events, or the handle of a callback.

    It stands from the call on. `async with` ends it at the end of the block; `await` returns it.
    """

    # There may be very many: an application with a thousand callbacks calls each where it lies in memory.
    __slots__ = ("_callbacks", "_decodes", "_has_ended", "_is_plain", "_lock", "_news", "_task")

    def __init__(
        self,
        session: Requests,
        callbacks: Callbacks,
        what: Wanted[T],
        callback: Callable[[T], object] | None,
        where: str | Filter | None,
        size: int,
        policy: Policy,
        since: datetime | str | None = None,
    ) -> None:
        self._callbacks = callbacks
        self._task: asyncio.Task[None] | None = None  # that calls back what has to be awaited
        self._has_ended = False
        self._decodes = isinstance(what, type)
        self._news: asyncio.Event | None = None
        self._lock: asyncio.Lock | None = None
        self._is_plain = callback is not None and since is None and not inspect.iscoroutinefunction(callback)
        arrived = partial(callbacks.soon, self) if self._is_plain else self._arrived
        super().__init__(session, what, where, size, policy, arrived, callback, since)
        if since is not None and callback is not None:
            self._arrived()

    # ------------------------------------------------ reading

    @property
    def _something(self) -> asyncio.Event:
        """Is set when there is something to read; a subscription with a callback needs none."""
        if self._news is None:
            self._news = asyncio.Event()
        return self._news

    @property
    def _reading(self) -> asyncio.Lock:
        """Who reads in the past has this; most do not."""
        if self._lock is None:
            self._lock = asyncio.Lock()
        return self._lock

    async def get(self) -> T:
        """The next event; waits for it."""
        self._check_readable()
        while not self._mailbox.is_readable:
            if self._past is not None:
                await self._read_past()
                continue
            self._something.clear()
            await self._something.wait()
        self._mailbox.reader = ref(_this_task())
        return self._party.decode(self._mailbox.get())

    async def _read_past(self) -> None:
        """Read on in the past, in a thread: the disk may be slow."""
        async with self._reading:
            past = self._past
            if past is not None and not self._mailbox.is_readable:
                self._take_past(await asyncio.to_thread(past.read, self._past_chunk))

    def drain(self) -> list[T]:
        """All events that are in the queue now, without waiting."""
        self._check_readable()
        return self._party.take_all()

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.get()
        except ClosedError:
            raise StopAsyncIteration from None

    # ------------------------------------------------ callbacks

    def _arrived(self) -> None:
        if self._callback is None:
            self._something.set()
        elif self._task is None or self._task.done():  # else it goes on with what arrives
            self._start(self._call_back())

    def call_next(self) -> None:
        """Part of `Due`: call a plain function with one event. If it returns an awaitable, a task goes on."""
        if self._task is not None and not self._task.done():
            return
        item = self._mailbox.take()
        if item is not None:
            awaitable = self._called(item)
            if awaitable is not None:
                self._start(self._call_back(awaitable, item))
        elif not (self._mailbox.is_open or self._has_ended):
            self._has_ended = True
            self._taken()  # which tells why

    def call_now(self, event: Event) -> bool:
        """Call a plain function at once, past the queue, unless something is due before."""
        callbacks, mailbox = self._callbacks, self._mailbox
        if self._task is not None or callbacks.due or not mailbox.is_idle or monotonic() > callbacks.until:
            return False
        mailbox.received += 1
        awaitable = self._called(event)
        if awaitable is not None:
            self._start(self._call_back(awaitable, event))
        return True

    def is_of(self, session: Requests) -> bool:
        """Part of `Due`."""
        return self._party.session is session

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        # Not by the loop's factory: an eager one would call back in the middle of a delivery.
        self._task = asyncio.Task(work, loop=asyncio.get_running_loop())
        self._callbacks.start(self._task, self._party.session)

    async def _call_back(self, awaitable: Awaitable[Any] | None = None, item: Item | None = None) -> None:
        """Give the callback one event after the other, until none is left; the first may be under way."""
        self._mailbox.reader = ref(_this_task())
        try:
            while True:
                if awaitable is not None:
                    await self._awaited(awaitable, item)
                await asyncio.sleep(0)  # others are due
                while not self._mailbox.is_readable and self._past is not None:
                    await self._read_past()
                item = self._taken() if self._mailbox.is_readable else None
                if item is None:
                    break
                awaitable = self._called(item)
        finally:
            self._task = None  # what arrives from now on needs another task

    def _taken(self) -> Item | None:
        """The next from the queue; None after its end."""
        try:
            return self._mailbox.get()
        except ClosedError:
            return None
        except DisconnectedError as error:
            log.error("%s (%s): %s", self.name, self.filter, error)
            return None

    def _called(self, item: Item) -> Awaitable[Any] | None:
        """Call the callback; returns what is to be awaited."""
        assert self._callback is not None
        try:
            result = self._callback(self._party.decode(item) if self._decodes else item)  # type: ignore[arg-type]
        except Exception:
            self._failed(item)
            return None
        return result if result is not None and inspect.isawaitable(result) else None

    async def _awaited(self, awaitable: Awaitable[Any], item: Item | None) -> None:
        try:
            await awaitable
        except Exception:
            assert item is not None
            self._failed(item)

    def _failed(self, item: Item) -> None:
        self._party.count_failure()
        self._party.report_failure(item)

    # ------------------------------------------------ the end

    async def close(self) -> None:
        """Unsubscribe. What is in the queue is forgotten; a callback that runs comes to its end."""
        self._party.close()
        self._leave_past()
        if self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait([self._task])

    async def _itself(self) -> Self:
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self._itself().__await__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Client:
    """A party at a broker: it publishes and subscribes. Make one with `bus.client(…)`."""

    _subscription: type[Subscription[Any]] = Subscription

    def __init__(self, session: Requests, callbacks: Callbacks | None = None) -> None:
        self._session: Requests = session
        self._callbacks = callbacks or Callbacks()

    @property
    def name(self) -> str:
        """The name of the client, which is its identity as a publisher."""
        return self._session.name

    @property
    def broker(self) -> str:
        """The name of its broker."""
        return self._session.broker

    @property
    def registry(self) -> TypeRegistry:
        """The event types that its broker knows."""
        return self._session.registry

    async def publish(self, event: object) -> None:
        """Publish an event, or an instance of an event class.

        When this returns, the event is in the queue of everybody who wants it.
        """
        await self.publish_all((event,))

    async def publish_all(self, events: Iterable[object]) -> None:
        """Publish several events or instances in their order: all of them, or none if one is refused."""
        tickets = self._session.publish_all(events)
        if tickets:
            await _admission(tickets)

    @overload
    def subscribe(
        self,
        filter: str | Filter,
        callback: Callable[[Event], object] | None = None,
        *,
        size: int = DEFAULT_SIZE,
        policy: Policy = "block",
        since: datetime | str | None = None,
    ) -> Subscription[Event]: ...
    @overload
    def subscribe(
        self,
        filter: Pattern,
        callback: Callable[[tuple[Event, ...]], object] | None = None,
        *,
        size: int = DEFAULT_SIZE,
        policy: Policy = "block",
        since: datetime | str | None = None,
    ) -> Subscription[tuple[Event, ...]]: ...
    @overload
    def subscribe(
        self,
        filter: type[T],
        callback: Callable[[T], object] | None = None,
        *,
        where: str | Filter | None = None,
        size: int = DEFAULT_SIZE,
        policy: Policy = "block",
        since: datetime | str | None = None,
    ) -> Subscription[T]: ...
    def subscribe(
        self,
        filter: Any,  # noqa: A002 - what it is
        callback: Callable[[Any], object] | None = None,
        *,
        where: str | Filter | None = None,
        size: int = DEFAULT_SIZE,
        policy: Policy = "block",
        since: datetime | str | None = None,
    ) -> Subscription[Any]:
        """Subscribe with a filter or pattern, its text, or an event class (and `where`, to narrow it).

        For a pattern (`f1 then f2`), what comes is a tuple of events.
        A callback, plain or asynchronous, is called with one event after the other; without one,
        iterate over what is returned. `size` and `policy` are those of its queue.
        With `since`, a time, what comes first is the past from then on, from the lake of the bus.
        """
        return self._subscription(
            self._session, self._callbacks, filter, callback, where, size, policy, since
        )

    async def advertise(self, advertisement: str | Advertisement | type[Any]) -> None:
        """Tell what this client is going to publish."""
        self._session.advertise(advertisement)

    async def unadvertise(self, advertisement: str | Advertisement | type[Any]) -> None:
        """Cancel all advertisements of this client that this one covers."""
        self._session.unadvertise(advertisement)

    async def define(self, event_type: EventType | type[Any]) -> None:
        """Add an event type (a class with its ancestors), or change it in a compatible way."""
        self._session.define(event_type)

    async def remove_type(self, name: str, owner: str | None = None) -> None:
        """Remove an event type, with all subscriptions and advertisements of it; its owner alone may."""
        self._session.remove_type(name, owner)

    async def interest(self, filter: str | Filter | type[Any]) -> bool:  # noqa: A002
        """Whether anybody has subscribed to something that this filter may match."""
        return bool(self._session.interest(filter))

    async def close(self) -> None:
        """End all subscriptions of this client; what is in their queues can still be read."""
        self._session.close()
        await self._callbacks.done(self._session)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Bus(Client):
    """Publish and subscribe within this process: `Bus()`, or several brokers `Bus(5, topology="line")`.

    The bus is itself a client, at the first broker; `client` makes more. `clock` gives the time that
    events are stamped with, in seconds since 1970. With `lake`, a directory, what is published is kept in
    it: on the disk with each publication (`lake_sync="batch"`), every second ("interval"), or at leisure
    ("none").
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        topology: str = "tree",
        routing: str = "peer",
        clock: Callable[[], float] = time.time,
        lake: str | os.PathLike[str] | None = None,
        lake_sync: LakeSync = "interval",
    ) -> None:
        self._core = core_of(
            Network(brokers, topology, routing, clock(), lake is not None), clock, lake, lake_sync
        )
        super().__init__(self._core.session("bus"))

    def client(self, name: str, *, broker: str | None = None) -> Client:
        """Another party, with a name of its own; at the first broker, if none is named."""
        return Client(self._core.session(name, broker), self._callbacks)

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of the brokers."""
        return tuple(self._core.network.nodes)

    def stats(self) -> Stats:
        """What has been published, received and dropped so far, and the subscriptions that are open."""
        return self._core.stats()

    async def close(self) -> None:
        """End all clients. Iterations end with what is queued; callbacks come to their end first."""
        self._core.close()
        await self._callbacks.done()
        if self._core.lake is not None:
            await asyncio.to_thread(self._core.lake.close)


def _this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # a coroutine asks
    return task


async def _admission(tickets: list[Ticket[Item]]) -> None:
    """Wait for room. Queues that are merely full get a chance: their consumers may be due."""
    try:
        await asyncio.sleep(0)
        for ticket in tickets:
            if not ticket.admitted:
                await _room(ticket)
    finally:
        for ticket in tickets:
            ticket.withdraw()


async def _room(ticket: Ticket[Item]) -> None:
    reader = ticket.mailbox.reader
    if reader is not None and reader() is asyncio.current_task():
        raise BlockedError(
            f"the queue ({ticket.mailbox.size} events) is full, and the task that reads it is the one that "
            "publishes: it would wait for itself; publish from another task, or choose another policy"
        )
    loop = asyncio.get_running_loop()
    admitted = loop.create_future()
    ticket.wake = lambda: None if admitted.done() else admitted.set_result(None)
    warning = loop.call_later(PATIENCE, log.warning, _WAITING, PATIENCE, ticket.mailbox.size)
    try:
        await admitted
    finally:
        warning.cancel()
