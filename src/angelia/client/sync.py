"""`connect_sync`: the same without asyncio. An event loop in a thread of its own keeps the connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from angelia.bus.mailbox import Policy
from angelia.bus.sync import Shared, SyncClient
from angelia.client.aio import options_of
from angelia.client.session import RemoteSession
from angelia.client.uplink import Done, Options, Uplink, log_refusal
from angelia.errors import AngeliaError, BrokerError
from angelia.types import TypeRegistry
from angelia.wire import Answer

__all__ = ["SyncRemoteClient", "connect_sync"]


def connect_sync(
    *brokers: str,
    name: str | None = None,
    token: str | None = None,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    queue: int | None = None,
    policy: Policy | None = None,
    timeout: float = 30.0,
) -> SyncRemoteClient:
    """Connect to a broker, for scripts, notebooks and threads; the options are those of `connect`."""
    return SyncRemoteClient(options_of(brokers, name, token, ca, cert, key, queue, policy, timeout))


class _Session(RemoteSession):
    """A remote session that waits for answers. Who waits lets go of the lock meanwhile."""

    def __init__(self, options: Options, lock: Any) -> None:
        super().__init__(options, lock)
        self.loop = asyncio.new_event_loop()
        self.changed = threading.Condition(lock)

    def submit(self, action: Callable[[Uplink, Done], None], timeout: float | None = None) -> Any:
        """Have it done, and wait for the answer, with the lock at hand."""
        self._check_open()
        uplink = self.uplink
        assert uplink is not None
        answers: list[Answer | AngeliaError] = []

        def done(answer: Answer | AngeliaError) -> None:
            with self.changed:
                answers.append(answer)
                self.changed.notify_all()

        self.loop.call_soon_threadsafe(action, uplink, done)
        patience = self.options.timeout if timeout is None else timeout
        if not self.changed.wait_for(lambda: answers, patience):
            raise BrokerError(f"no answer of a broker within {patience:g} s")
        return self.answered(answers[0])

    def soon(self, action: Callable[[], None]) -> None:
        """Call something in the loop's thread."""
        self.loop.call_soon_threadsafe(action)

    def publish_within(self, things: Iterable[object], timeout: float | None) -> None:
        """Publish, and wait for the answer."""
        with self._lock:
            events = self.events_of(things)
            self.submit(lambda uplink, done: uplink.upload(events, done), timeout)

    def publish_unconfirmed(self, things: Iterable[object], *, together: bool) -> None:
        """Publish without waiting for more than room."""
        with self._lock:
            ready = self.events_of(things)
        uplink = self.uplink
        assert uplink is not None

        async def send() -> None:
            await uplink.room()
            if together:
                uplink.upload(ready, log_refusal)
            else:
                uplink.put(ready[0])

        asyncio.run_coroutine_threadsafe(send(), self.loop).result()

    def interest(self, what: Any) -> bool:
        """Whether somebody has subscribed to some of this."""
        return bool(super().interest(what))

    def close(self) -> None:
        """Leave; see `SyncRemoteClient.close`."""


class SyncRemoteClient(SyncClient):
    """A client of a broker elsewhere (see `connect_sync`). It is connected once it is there."""

    _session: _Session

    def __init__(self, options: Options) -> None:
        shared = Shared()
        super().__init__(_Session(options, shared.lock), shared)
        loop = self._session.loop
        self._thread = threading.Thread(target=loop.run_forever, name="angelia-client", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(), loop).result()
        except BaseException:
            self._stop()
            raise

    async def _open(self) -> None:
        uplink = Uplink(self._session.options, self._session)
        await uplink.open()
        self._session.uplink = uplink

    def publish(self, event: object, *, timeout: float | None = None, confirm: bool = True) -> None:
        """Publish an event, or an instance of an event class.

        When this returns, the broker has accepted it; if that takes longer than `timeout` seconds (None:
        the client's), a `BrokerError` tells. Without `confirm` it is on its way, which is faster;
        what the broker refuses is then told in the log alone.
        """
        if confirm:
            self.publish_all((event,), timeout=timeout)
        else:
            self._session.publish_unconfirmed((event,), together=False)

    def publish_all(
        self, events: Iterable[object], *, timeout: float | None = None, confirm: bool = True
    ) -> None:
        """Publish several events or instances in their order: all of them, or none if one is refused."""
        if confirm:
            self._session.publish_within(events, timeout)
        else:
            self._session.publish_unconfirmed(events, together=True)

    def describe(self) -> dict[str, Any]:
        """The state of the broker, as numbers."""
        with self._shared.lock:
            state: dict[str, Any] = self._session.submit(lambda uplink, done: uplink.describe(done))
            return state

    def subscriptions(self) -> dict[str, str]:
        """The filters of all subscribers at the broker, by identity."""
        found: dict[str, str] = {}
        after = ""
        with self._shared.lock:
            while page := self._session.subscriptions_after(after):
                found.update(page)
                after = page[-1][0]
        return found

    @property
    def dropped(self) -> int:
        """How many events brokers had no room for in the queue of this client."""
        return self._session.uplink.dropped if self._session.uplink is not None else 0

    def close(self) -> None:
        """Send what is under way and leave; what is in queues can still be read."""
        uplink = self._session.uplink
        if uplink is not None and self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(uplink.close(), self._session.loop).result()
        self._stop()
        self._shared.join()

    @property
    def registry(self) -> TypeRegistry:
        """The event types, as the broker has told of them so far."""
        return self._session.registry

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and made again: events may have been missed each time."""
        return max(0, self._session.uplink.reconnects) if self._session.uplink is not None else 0

    def _stop(self) -> None:
        loop = self._session.loop
        if self._thread.is_alive():
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()
