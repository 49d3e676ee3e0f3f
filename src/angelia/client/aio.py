"""`connect`: the interface of `Bus`, with the broker elsewhere. It belongs to one event loop."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from angelia.broker.address import DEFAULT_PORT, Address
from angelia.bus.aio import Client, Subscription
from angelia.bus.callbacks import Callbacks
from angelia.bus.mailbox import Policy
from angelia.bus.party import Party
from angelia.client.session import RemoteSession, number_of
from angelia.client.uplink import Done, Options, Uplink, log_refusal
from angelia.errors import AngeliaError, BrokerError, ClosedError, RequestError
from angelia.event import Event
from angelia.filter import Advertisement, Filter
from angelia.messages import PublishAll, Request, Subscribe, SubscribePattern
from angelia.types import EventType, TypeRegistry
from angelia.wire import Answer, Told

__all__ = ["RemoteClient", "RemoteSubscription", "connect", "options_of"]

T = TypeVar("T")


def connect(
    *brokers: str,
    name: str | None = None,
    token: str | None = None,
    ca: str | Path | None = None,
    cert: str | Path | None = None,
    key: str | Path | None = None,
    queue: int | None = None,
    policy: Policy | None = None,
    timeout: float = 30.0,
) -> RemoteClient:
    """A client of a broker, to be entered: `async with` this.

    Like `Bus`, but the broker is elsewhere, at an address such as `tcp://127.0.0.1:7400`.

    Several brokers are alternatives: when the connection is lost, the client goes on with the first that
    answers, and subscribes there again. `queue` and `policy` are those of the queue that the broker keeps
    for this client; each subscription has a queue of its own here. `timeout` is how long a request may
    take, in seconds, an absence of all brokers included.
    """
    return RemoteClient(options_of(brokers, name, token, ca, cert, key, queue, policy, timeout))


def options_of(
    brokers: Iterable[str],
    name: str | None,
    token: str | None,
    ca: str | Path | None,
    cert: str | Path | None,
    key: str | Path | None,
    queue: int | None,
    policy: Policy | None,
    timeout: float,
) -> Options:
    """Checked options."""
    addresses = tuple(map(Address.parse, brokers)) or (Address("127.0.0.1", DEFAULT_PORT),)
    if timeout <= 0:
        raise RequestError(f"a timeout is a number of seconds above 0, not {timeout!r}")
    return Options(
        addresses,
        name or f"client-{secrets.token_hex(4)}",
        token,
        ca=_path(ca),
        cert=_path(cert),
        key=_path(key),
        queue=queue,
        policy=policy,
        timeout=timeout,
    )


def _path(file: str | Path | None) -> Path | None:
    return None if file is None else Path(file)


class _Session(RemoteSession):
    """A remote session whose answers are futures."""

    def __init__(self, options: Options, callbacks: Callbacks) -> None:
        super().__init__(options, nullcontext())
        self._callbacks = callbacks
        self._called: list[
            Subscription[Any] | None
        ] = []  # by number, those whose callbacks are plain functions
        self.unconfirmed: dict[str, asyncio.Future[Any]] = {}  # subscriptions

    def submit(self, action: Callable[[Uplink, Done], None]) -> asyncio.Future[Any]:
        """Have it done; the future is the answer."""
        self._check_open()
        assert self.uplink is not None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(given: Answer | Exception) -> None:
            if answer.done():
                return
            try:
                answer.set_result(self.answered(given))  # type: ignore[arg-type]
            except Exception as error:
                answer.set_exception(error)
                answer.exception()  # who does not await it is not warned by asyncio

        action(self.uplink, done)
        return answer

    def call(self, party: Party[Any], handle: Subscription[Any]) -> None:
        """Give the events of a subscription to its callback, past the queue where that can be."""
        number = number_of(party.name)
        self._called += [None] * (number + 1 - len(self._called))
        self._called[number] = handle

    def forget(self, party: Party[Any]) -> bool:
        """Drop a subscription; whether it was there."""
        was_there, number = super().forget(party), number_of(party.name)
        if was_there and number < len(self._called):
            self._called[number] = None
        return was_there

    def on_events(self, items: Sequence[Told[Event]]) -> None:
        """Call back, or put events into queues."""
        self._callbacks.begin()
        called, most = self._called, len(self._called)
        for item in items:
            event = item.event
            for number in item.numbers:
                handle = called[number] if 0 <= number < most else None
                if handle is None or not handle.call_now(event):
                    self._put(number, event)

    async def room(self) -> Uplink:
        """The uplink, when it takes events."""
        assert self.uplink is not None
        if not self.uplink.has_room:
            await self.uplink.room()
        return self.uplink

    def soon(self, action: Callable[[], None]) -> None:
        """Call something, though not within a delivery."""
        asyncio.get_running_loop().call_soon(action)

    def _request(self, request: Request) -> asyncio.Future[Any]:
        if isinstance(request, PublishAll):
            return self.submit(lambda uplink, done: uplink.upload(request.events, done))
        answer: asyncio.Future[Any] = super()._request(request)
        if isinstance(request, Subscribe | SubscribePattern):
            self.unconfirmed[request.identity] = answer
            answer.add_done_callback(lambda done: self._subscribed(request.identity, done))
        return answer

    def _subscribed(self, name: str, done: asyncio.Future[Any]) -> None:
        """The broker has answered; if it refused a subscription, tell who reads it."""
        if done.cancelled() or done.exception() is None:
            self.unconfirmed.pop(name, None)
            return
        party, error = self.party(name), done.exception()
        if party is not None and isinstance(error, AngeliaError):
            self.unsubscribe_quietly(party)
            party.mailbox.fail(error)

    def close(self) -> None:
        """Leave; see `RemoteClient.close`."""

    def confirmed(self, name: str) -> asyncio.Future[Any] | None:
        """The answer to the request for a subscription, once."""
        return self.unconfirmed.pop(name, None)


class RemoteSubscription(Subscription[T]):
    """A subscription at a broker elsewhere.

    It is asked for at once. `async with` and `await` wait until the broker knows of it, or raise why not;
    who does neither is told by `get`.
    """

    __slots__ = ()

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        if self._is_plain:
            session = self._party.session
            assert isinstance(session, _Session)
            session.call(self._party, self)

    async def _itself(self) -> Self:
        session = self._party.session
        assert isinstance(session, _Session)
        answer = session.confirmed(self._party.name)
        if answer is not None:
            try:
                await _within(session, answer)
            except AngeliaError:
                session.unsubscribe_quietly(self._party)
                raise
        return self

    async def __aenter__(self) -> Self:
        return await self._itself()

    async def close(self) -> None:
        """Unsubscribe. What is in the queue is forgotten; a callback that runs comes to its end."""
        session = self._party.session
        assert isinstance(session, _Session)
        done = session.unsubscribe(self._party)
        self._mailbox.discard()
        if done is not None:
            with suppress(ClosedError):
                await _within(session, done)
        await super().close()


class RemoteClient(Client):
    """A client of a broker elsewhere (see `connect`)."""

    _subscription = RemoteSubscription
    _session: _Session

    def __init__(self, options: Options) -> None:
        callbacks = Callbacks()
        super().__init__(_Session(options, callbacks), callbacks)

    async def open(self) -> Self:
        """Connect; a `BrokerError` if no broker answers."""
        uplink = Uplink(self._session.options, self._session)
        await uplink.open()
        self._session.uplink = uplink
        return self

    async def publish(self, event: object, *, confirm: bool = True) -> None:
        """Publish an event, or an instance of an event class.

        When this returns, the broker has accepted it. Without `confirm` it is on its way, which is faster;
        what the broker refuses is then told in the log alone.
        """
        if confirm:
            await _within(self._session, self._session.publish_all((event,)))
        else:
            (ready,) = self._session.events_of((event,))
            (await self._session.room()).put(ready)

    async def publish_all(self, events: Iterable[object], *, confirm: bool = True) -> None:
        """Publish several events or instances in their order: all of them, or none if one is refused."""
        session = self._session
        if confirm:
            await _within(session, session.publish_all(events))
        else:
            ready = session.events_of(events)
            (await session.room()).upload(ready, log_refusal)

    async def advertise(self, advertisement: str | Advertisement | type[Any]) -> None:
        """Tell what this client is going to publish."""
        await _within(self._session, self._session.advertise(advertisement))

    async def unadvertise(self, advertisement: str | Advertisement | type[Any]) -> None:
        """Cancel all advertisements of this client that this one covers."""
        await _within(self._session, self._session.unadvertise(advertisement))

    async def define(self, event_type: EventType | type[Any]) -> None:
        """Add an event type (a class with its ancestors), or change it in a compatible way."""
        for answer in self._session.define(event_type):
            await _within(self._session, answer)

    async def remove_type(self, name: str, owner: str | None = None) -> None:
        """Remove an event type, with all subscriptions and advertisements of it; its owner alone may."""
        await _within(self._session, self._session.remove_type(name, owner))

    async def interest(self, filter: str | Filter | type[Any]) -> bool:  # noqa: A002
        """Whether anybody may want something that this filter matches, as far as the broker knows."""
        return bool(await _within(self._session, self._session.interest(filter)))

    async def describe(self) -> dict[str, Any]:
        """The state of the broker, as numbers."""
        state: dict[str, Any] = await _within(
            self._session, self._session.submit(lambda uplink, done: uplink.describe(done))
        )
        return state

    async def subscriptions(self) -> dict[str, str]:
        """The filters of all subscribers at the broker, by identity."""
        found: dict[str, str] = {}
        after = ""
        while page := await _within(self._session, self._session.subscriptions_after(after)):
            found.update(page)
            after = page[-1][0]
        return found

    @property
    def registry(self) -> TypeRegistry:
        """The event types, as the broker has told of them so far."""
        return self._session.registry

    @property
    def dropped(self) -> int:
        """How many events brokers had no room for in the queue of this client."""
        return self._session.uplink.dropped if self._session.uplink is not None else 0

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and made again: events may have been missed each time."""
        return max(0, self._session.uplink.reconnects) if self._session.uplink is not None else 0

    async def close(self) -> None:
        """Send what is under way and leave; what is in queues can still be read."""
        if self._session.uplink is not None:
            await self._session.uplink.close()
        await self._callbacks.done()

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()


async def _within(session: _Session, answer: asyncio.Future[Any]) -> Any:
    """The answer, or an error if it takes too long."""
    try:
        async with asyncio.timeout(session.options.timeout):
            return await answer
    except TimeoutError:
        raise BrokerError(f"no answer of a broker within {session.options.timeout:g} s") from None
