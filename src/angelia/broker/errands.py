"""What overlays want done beside sending: timers, links to brokers that nobody configured, measurements."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from angelia.broker.address import Address
from angelia.broker.links import Dialler
from angelia.errors import BrokerError
from angelia.messages import Connect, Disconnect, Measure, Measured, PeerDown, SetTimer, Timer

if TYPE_CHECKING:
    from angelia.broker.broker import Broker

__all__ = ["Errands"]

log = logging.getLogger("angelia.broker")

PATIENCE = 5.0  # seconds after which a broker counts as out of reach


class Errands:
    """Runs them, and gives the node what came of them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._kinds: dict[type, Callable[[Any], None]] = {
            SetTimer: self._set_timer,
            Connect: lambda errand: self.start(self._connect(errand)),
            Disconnect: self._disconnect,
            Measure: lambda errand: self.start(self._measure(errand)),
        }

    def run(self, errand: SetTimer | Connect | Disconnect | Measure) -> None:
        """Begin an errand."""
        self._kinds[type(errand)](errand)

    def stop(self) -> None:
        """End all of them."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()

    def start(self, errand: Coroutine[Any, Any, None]) -> None:
        """Run something in the background, until this is stopped."""
        task = self._broker.loop.create_task(errand)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _set_timer(self, wanted: SetTimer) -> None:
        old = self._timers.pop(wanted.name, None)
        if old is not None:
            old.cancel()
        if wanted.delay is not None:
            self._timers[wanted.name] = self._broker.loop.call_later(wanted.delay, self._ring, wanted.name)

    def _ring(self, name: str) -> None:
        del self._timers[name]
        self._broker.handle(Timer(name))

    async def _connect(self, wanted: Connect) -> None:
        if wanted.peer in self._broker.links:
            return
        try:
            dialler = Dialler(self._broker, Address.parse(wanted.address), False)
            reason = await dialler.once()
        except BrokerError as error:
            reason, dialler = str(error), None
        was_linked = dialler is not None and dialler.was_linked
        if not was_linked and wanted.peer not in self._broker.links:  # nor by a connection that it made
            log.debug("no link with %s at %s: %s", wanted.peer, wanted.address, reason)
            self._broker.handle(PeerDown(wanted.peer))

    def _disconnect(self, wanted: Disconnect) -> None:
        link = self._broker.links.get(wanted.peer)
        if link is not None:
            link.connection.close("the link is needed no longer")

    async def _measure(self, wanted: Measure) -> None:
        """The time that it takes to open a connection: one round trip."""
        loop = self._broker.loop
        started = loop.time()
        proximity = None
        try:
            address = Address.parse(wanted.address)
            async with asyncio.timeout(PATIENCE):
                transport, _ = await loop.create_connection(asyncio.Protocol, address.host, address.port)
            proximity = loop.time() - started
            transport.close()
        except (OSError, TimeoutError, BrokerError) as error:
            log.debug("cannot measure the way to %s: %s", wanted.peer, error)
        self._broker.handle(Measured(wanted.peer, proximity))
