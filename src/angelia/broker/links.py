"""Links between brokers: who is at the other end, and keeping those that were configured."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from angelia.broker.address import Address
from angelia.broker.connection import Connection, backoff
from angelia.broker.tls import client_context, why_not
from angelia.errors import BrokerError, RoutingError, WireError
from angelia.messages import Forwarded, FromPeer, Message, Notify
from angelia.wire import (
    VERSION,
    Bye,
    Forward,
    Hello,
    Ping,
    Welcome,
    decode,
    decode_notifications,
    encode_forward,
    notified,
)

if TYPE_CHECKING:
    from angelia.broker.broker import Broker

__all__ = ["MAX_LINK_FRAME", "Dialler", "Link"]

log = logging.getLogger("angelia.broker")

MAX_LINK_FRAME = 64 << 20  # bytes of a message between brokers: what all clients of one want may be in it


class Link:
    """A broker at the other end of a connection."""

    def __init__(
        self, broker: Broker, connection: Connection, name: str, incarnation: str, dialled_by: str
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.name = name
        self.incarnation = incarnation
        self.dialled_by = dialled_by
        self.sent = 0
        self.received_count = 0
        self.progress = broker.loop.time()  # when the other side last took something
        connection.batch = encode_forward
        connection.changed = self._taken

    def received(self, connection: Connection, bodies: list[bytes]) -> None:
        """Process frames: notifications in batches, messages one by one."""
        for body in bodies:
            frame = decode(body)
            kind = type(frame)
            if kind is Ping:
                continue
            if kind is Bye:
                connection.abort(f"{self.name} left: {frame.reason}")
                return
            try:
                if kind is Forward:
                    notifications = decode_notifications(frame.notifications)
                    self.received_count += len(notifications)
                    self.broker.handle(Forwarded(self.name, notifications))
                elif isinstance(frame, Message):
                    self.received_count += 1
                    self.broker.handle(FromPeer(self.name, frame))
                else:
                    raise WireError(f"a peer does not send {kind.__name__}")
            except RoutingError as error:
                connection.close(str(error))
                return

    def send(self, message: Any, encoded: Callable[[Any], bytes]) -> None:
        """Send a message; `encoded` gives the bytes of an event."""
        self.sent += 1
        if type(message) is Notify:
            self.connection.put(notified(message, encoded(message.event)))
        else:
            self.connection.send(message)
        if self.connection.queued_bytes > self.broker.settings.link_bytes:
            self.broker.congested(self.connection)

    def _taken(self) -> None:
        self.progress = self.broker.loop.time()
        if 2 * self.connection.queued_bytes <= self.broker.settings.link_bytes:
            self.broker.relieved(self.connection)

    def describe(self) -> dict[str, Any]:
        """The link as numbers."""
        return {
            "sent": self.sent,
            "received": self.received_count,
            "queued_bytes": self.connection.queued_bytes,
            "from": self.connection.peer_name,
        }


class Dialler:
    """Keeps a link with a configured broker, as long as this one runs."""

    def __init__(self, broker: Broker, address: Address, is_master: bool) -> None:
        self.broker = broker
        self.address = address
        self.is_master = is_master
        self.peer = ""  # its name, once that is known
        self.problem = "not connected yet"
        self.was_linked = False
        self._lost: asyncio.Future[str] | None = None

    async def run(self) -> None:
        """Connect, and again after each loss, until cancelled."""
        attempt = 0
        while True:
            if self.peer in self.broker.links:  # by a connection that the other side made
                self.problem = ""
                await asyncio.sleep(self.broker.settings.heartbeat)
                continue
            started = self.broker.loop.time()
            self.problem = await self.once()
            if self.broker.loop.time() - started > self.broker.settings.silence:
                attempt = 0
            delay = backoff(attempt)
            attempt += 1
            level = logging.WARNING if attempt in (1, 5) or attempt % 20 == 0 else logging.DEBUG
            log.log(level, "no link with %s: %s; next try in %.1f s", self.address, self.problem, delay)
            await asyncio.sleep(delay)

    async def once(self) -> str:
        """One connection, from its beginning to its end; returns why it ended."""
        self.was_linked = False
        self._lost = self.broker.loop.create_future()
        connection = None
        try:
            async with asyncio.timeout(self.broker.settings.silence):
                _, connection = await self.broker.loop.create_connection(
                    lambda: Connection(self._welcomed, self._on_lost, self._made),
                    self.address.host,
                    self.address.port,
                    ssl=self._tls(),
                )
            return await self._lost
        except TimeoutError:
            return "it does not answer"
        except OSError as error:
            return why_not(error)
        except BrokerError as error:
            return str(error)
        finally:
            if connection is not None:
                connection.close("shutting down")

    def _tls(self) -> ssl.SSLContext | None:
        settings = self.broker.settings
        if not self.address.tls:
            return None
        return client_context(settings.tls_ca, settings.tls_cert, settings.tls_key)

    def _made(self, connection: Connection) -> None:
        self.broker.expect_hello(connection)
        connection.accept(MAX_LINK_FRAME)  # what comes together with the welcome is large at times
        broker = self.broker
        connection.send(
            Hello(
                VERSION,
                "peer",
                broker.name,
                broker.incarnation,
                token=broker.settings.token,
                routing=broker.settings.routing,
                address=str(broker.address),
                to_master=self.is_master,
            )
        )

    def _welcomed(self, connection: Connection, bodies: list[bytes]) -> None:
        frame = decode(bodies[0])
        if isinstance(frame, Bye):
            connection.abort(frame.reason)
            return
        if not isinstance(frame, Welcome):
            raise WireError(f"a broker answers with Welcome, not {type(frame).__name__}")
        self.peer = frame.name
        if frame.is_linked:
            connection.abort(f"{frame.name} and {self.broker.name} are linked already")
            return
        self.was_linked = self.broker.link_up(
            connection, frame.name, frame.incarnation, self.broker.name, master=self.is_master
        )
        if self.was_linked:
            self.problem = ""
        if len(bodies) > 1 and not connection.is_closing:
            connection.received(connection, bodies[1:])

    def _on_lost(self, connection: Connection, reason: str) -> None:
        self.broker.forget(connection)
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(reason)
