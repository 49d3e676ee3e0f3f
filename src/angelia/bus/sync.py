"""The bus for threads, scripts and notebooks: a shell that waits, around `core.py`.

One lock guards the core. A callback has a thread of its own.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar, overload
from weakref import ref

from angelia.bus.core import Stats, core_of
from angelia.bus.history import LakeSync
from angelia.bus.mailbox import DEFAULT_SIZE, Policy, Ticket
from angelia.bus.network import Network
from angelia.bus.party import Handle, Item, Wanted, log
from angelia.bus.session import Requests
from angelia.errors import BlockedError, ClosedError, DisconnectedError, RequestError
from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.pattern import Pattern
from angelia.types import EventType

__all__ = ["SyncBus", "SyncClient", "SyncSubscription"]

T = TypeVar("T")

OWN_PATIENCE = 1.0  # seconds that a thread waits for a queue that it was the last to read itself


class Shared:
    """What the clients of a bus share: the lock, and the threads of callbacks."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.threads: dict[threading.Thread, Requests] = {}

    def join(self, session: Requests | None = None) -> None:
        """Wait for callbacks (of one client), unless it is a callback that asks."""
        with self.lock:
            running = [thread for thread, owner in self.threads.items() if session in (None, owner)]
            inside = threading.current_thread() in self.threads
        for thread in [] if inside else running:
            thread.join()


class SyncSubscription(Handle[T]):
    """What `subscribe` returns: an iterator over events, or the handle of a callback.

    `with` ends it at the end of the block.
    """

    def __init__(
        self,
        session: Requests,
        shared: Shared,
        what: Wanted[T],
        callback: Callable[[T], object] | None,
        where: str | Filter | None,
        size: int,
        policy: Policy,
        since: datetime | str | None = None,
    ) -> None:
        if inspect.iscoroutinefunction(callback):
            raise RequestError("a synchronous bus cannot await a callback; use Bus, or a plain function")
        self._shared = shared
        self._something = threading.Condition(shared.lock)
        self._thread: threading.Thread | None = None
        self._reading = threading.Lock()
        with shared.lock:
            arrived = self._something.notify_all
            super().__init__(session, what, where, size, policy, arrived, callback, since)
            if callback is not None:
                self._thread = threading.Thread(target=self._call_back, args=(callback,), name=self.name)
                self._thread.daemon = True  # a script may end without closing its bus
                shared.threads[self._thread] = session
                self._thread.start()

    # ------------------------------------------------ reading

    def get(self, timeout: float | None = None) -> T:
        """The next event; waits for it, at most `timeout` seconds, and then raises a `TimeoutError`."""
        self._check_readable()
        return self._party.decode(self._next(timeout))

    def _next(self, timeout: float | None) -> Item:
        while self._past is not None and not self._mailbox.is_readable:
            self._read_past()
        with self._shared.lock:
            self._mailbox.reader = ref(threading.current_thread())
            if not self._something.wait_for(lambda: self._mailbox.is_readable, timeout):
                raise TimeoutError(f"no event within {timeout} s")
            return self._mailbox.get()

    def _read_past(self) -> None:
        """Read on in the past; the others go on meanwhile."""
        with self._reading:
            past = self._past
            if past is not None and not self._mailbox.is_readable:
                events = past.read(self._past_chunk)
                with self._shared.lock:
                    self._take_past(events)

    def drain(self) -> list[T]:
        """All events that are in the queue now, without waiting."""
        self._check_readable()
        with self._shared.lock:
            return self._party.take_all()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        try:
            return self.get()
        except ClosedError:
            raise StopIteration from None

    def until_idle(self, timeout: float) -> Iterator[T]:
        """Iterate until nothing has come for `timeout` seconds, or the subscription ends."""
        while True:
            try:
                event = self.get(timeout)
            except (ClosedError, TimeoutError):
                return
            yield event

    # ------------------------------------------------ callbacks

    def _call_back(self, callback: Callable[[T], object]) -> None:
        """Give the callback one event after the other, in a thread of its own."""
        try:
            while True:
                self._call(callback, self._next(None))
        except ClosedError:
            pass
        except DisconnectedError as error:
            log.error("%s (%s): %s", self.name, self.filter, error)
        finally:
            with self._shared.lock:
                del self._shared.threads[threading.current_thread()]

    def _call(self, callback: Callable[[T], object], item: Item) -> None:
        try:
            callback(self._party.decode(item))
        except Exception:
            with self._shared.lock:
                self._party.count_failure()
            self._party.report_failure(item)

    # ------------------------------------------------ the end

    def close(self) -> None:
        """Unsubscribe. What is in the queue is forgotten; a callback that runs comes to its end."""
        with self._shared.lock:
            self._party.close()
            self._leave_past()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncClient:
    """A party at a broker: it publishes and subscribes. Make one with `bus.client(…)`."""

    def __init__(self, session: Requests, shared: Shared) -> None:
        self._session = session
        self._shared = shared

    @property
    def name(self) -> str:
        """The name of the client, which is its identity as a publisher."""
        return self._session.name

    @property
    def broker(self) -> str:
        """The name of its broker."""
        return self._session.broker

    def publish(self, event: object, *, timeout: float | None = 30.0) -> None:
        """Publish an event, or an instance of an event class.

        When this returns, the event is in the queue of everybody who wants it. If that takes longer
        than `timeout` seconds (None: for ever), a `BlockedError` tells.
        """
        self.publish_all((event,), timeout=timeout)

    def publish_all(self, events: Iterable[object], *, timeout: float | None = 30.0) -> None:
        """Publish several events or instances in their order: all of them, or none if one is refused."""
        with self._shared.lock:
            tickets = [ticket for ticket in self._session.publish_all(events) if not ticket.admitted]
            if tickets:
                _admission(tickets, threading.Condition(self._shared.lock), timeout)

    @overload
    def subscribe(
        self,
        filter: str | Filter,
        callback: Callable[[Event], object] | None = None,
        *,
        size: int = DEFAULT_SIZE,
        policy: Policy = "block",
        since: datetime | str | None = None,
    ) -> SyncSubscription[Event]: ...
    @overload
    def subscribe(
        self,
        filter: Pattern,
        callback: Callable[[tuple[Event, ...]], object] | None = None,
        *,
        size: int = DEFAULT_SIZE,
        policy: Policy = "block",
        since: datetime | str | None = None,
    ) -> SyncSubscription[tuple[Event, ...]]: ...
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
    ) -> SyncSubscription[T]: ...
    def subscribe(
        self,
        filter: Any,  # noqa: A002 - what it is
        callback: Callable[[Any], object] | None = None,
        *,
        where: str | Filter | None = None,
        size: int = DEFAULT_SIZE,
        policy: Policy = "block",
        since: datetime | str | None = None,
    ) -> SyncSubscription[Any]:
        """Subscribe with a filter or pattern, its text, or an event class (and `where`, to narrow it).

        For a pattern (`f1 then f2`), what comes is a tuple of events.
        A callback is called in a thread of its own, with one event after the other; without one,
        iterate over what is returned. `size` and `policy` are those of its queue.
        With `since`, a time, what comes first is the past from then on, from the lake of the bus.
        """
        return SyncSubscription(self._session, self._shared, filter, callback, where, size, policy, since)

    def advertise(self, advertisement: str | Advertisement | type[Any]) -> None:
        """Tell what this client is going to publish."""
        with self._shared.lock:
            self._session.advertise(advertisement)

    def unadvertise(self, advertisement: str | Advertisement | type[Any]) -> None:
        """Cancel all advertisements of this client that this one covers."""
        with self._shared.lock:
            self._session.unadvertise(advertisement)

    def define(self, event_type: EventType | type[Any]) -> None:
        """Add an event type (a class with its ancestors), or change it in a compatible way."""
        with self._shared.lock:
            self._session.define(event_type)

    def remove_type(self, name: str, owner: str | None = None) -> None:
        """Remove an event type, with all subscriptions and advertisements of it; its owner alone may."""
        with self._shared.lock:
            self._session.remove_type(name, owner)

    def interest(self, filter: str | Filter | type[Any]) -> bool:  # noqa: A002
        """Whether anybody has subscribed to something that this filter may match."""
        with self._shared.lock:
            return bool(self._session.interest(filter))

    def close(self) -> None:
        """End all subscriptions of this client; what is in their queues can still be read."""
        with self._shared.lock:
            self._session.close()
        self._shared.join(self._session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SyncBus(SyncClient):
    """`Bus` without asyncio, for scripts, notebooks and threads: the same, but nothing is awaited."""

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
        super().__init__(self._core.session("bus"), Shared())

    def client(self, name: str, *, broker: str | None = None) -> SyncClient:
        """Another party, with a name of its own; at the first broker, if none is named."""
        with self._shared.lock:
            return SyncClient(self._core.session(name, broker), self._shared)

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of the brokers."""
        return tuple(self._core.network.nodes)

    def stats(self) -> Stats:
        """What has been published, received and dropped so far, and the subscriptions that are open."""
        with self._shared.lock:
            return self._core.stats()

    def close(self) -> None:
        """End all clients. Iterations end with what is queued; callbacks come to their end first."""
        with self._shared.lock:
            self._core.close()
        self._shared.join()
        if self._core.lake is not None:
            self._core.lake.close()


def _admission(tickets: list[Ticket[Item]], admitted: threading.Condition, timeout: float | None) -> None:
    """Wait for room in queues: not for long, if it is this thread that reads one of them."""
    this = threading.current_thread()
    own = any(ticket.mailbox.reader is not None and ticket.mailbox.reader() is this for ticket in tickets)
    patience = OWN_PATIENCE if own and (timeout is None or timeout > OWN_PATIENCE) else timeout
    for ticket in tickets:
        ticket.wake = admitted.notify_all
    try:
        if not admitted.wait_for(lambda: all(ticket.admitted for ticket in tickets), patience):
            sizes = ", ".join(str(ticket.mailbox.size) for ticket in tickets if not ticket.admitted)
            why = (
                "its reader is the one that publishes: it would wait for itself" if own else "nobody read it"
            )
            raise BlockedError(
                f"a queue ({sizes} events) is full, its policy is block, and {why} (waited {patience} s); "
                "read it in another thread, or choose another policy"
            )
    finally:
        for ticket in tickets:
            ticket.withdraw()
