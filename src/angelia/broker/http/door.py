"""The door itself: what its routes share."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Sequence
from urllib.parse import quote

from starlette.requests import Request

from angelia.broker.http.mapping import structured
from angelia.broker.http.problem import Problem
from angelia.broker.http.service import Client, Service
from angelia.broker.http.settings import Outside, Settings
from angelia.broker.http.streams import Streams
from angelia.broker.http.webhooks import Webhooks
from angelia.broker.state import State
from angelia.event import Event
from angelia.filter import Advertisement

__all__ = ["Door"]


class Door:
    """A client of the service that speaks for all who come by HTTP. It is opened within an event loop."""

    def __init__(
        self, service: Service, settings: Settings, outside: Outside, state: State | None = None
    ) -> None:
        self.service = service
        self.settings = settings
        self.outside = outside
        self.origin = f"/{quote(service.name)}"
        self.closing = asyncio.Event()
        self.sockets = 0
        self.abort: Callable[[object], None] = lambda client: None  # cuts a connection; the server knows how
        self._is_advertised = False
        self._client: Client = service.client("http")
        self.streams = Streams(
            self._client, settings, service.metrics, lambda event: structured(event, self.origin)
        )
        self.webhooks = Webhooks(self._client, settings, service.metrics, self.origin, outside, state)
        self.webhooks.restore(service.registry)
        self._show()

    def _show(self) -> None:
        gauge = self.service.metrics.gauge
        gauge("angelia_http_streams", "Filters that are streamed", lambda: len(self.streams))
        gauge("angelia_http_readers", "Readers of streams", lambda: self.streams.readers)
        gauge("angelia_http_websockets", "Open WebSockets", lambda: self.sockets)
        gauge(
            "angelia_webhook_queue_events",
            "Events that wait for a sink",
            self.webhooks.queues,
            "subscription",
        )

    @property
    def client(self) -> Client:
        """The party that the door is at the broker."""
        return self._client

    def is_allowed(self, authorization: str | None) -> bool:
        """Whether an Authorization header has one of the tokens, if there are any."""
        if not self.settings.tokens:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        allowed = [hmac.compare_digest(given.strip().encode(), one.encode()) for one in self.settings.tokens]
        return scheme.lower() == "bearer" and any(allowed)

    async def publish(self, events: Sequence[Event]) -> None:
        """Publish events that were checked. Nobody waits for ever for a slow subscriber."""
        if not self._is_advertised:
            self._is_advertised = True
            await self._client.advertise(Advertisement(None))  # who comes by HTTP may publish anything
        try:
            async with asyncio.timeout(self.settings.publish_timeout):
                await self._client.publish_all(events)
        except TimeoutError:
            # Everybody else has the events; in the queue that was full they count as dropped.
            self.service.metrics.count_drop("blocked")

    async def read_body(self, request: Request) -> bytes:
        """The body of a request, if it is not too large nor too slow."""
        most = self.settings.max_body
        announced = request.headers.get("content-length", "0")
        if len(announced) > 15 or int(announced) > most:
            raise _too_large(most)
        body = bytearray()
        try:
            async with asyncio.timeout(self.settings.body_timeout):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > most:
                        raise _too_large(most)
        except TimeoutError:
            detail = f"the body was not here after {self.settings.body_timeout:g} s"
            raise Problem(408, "timeout", detail, headers={"Connection": "close"}) from None
        return bytes(body)

    async def close(self) -> None:
        """End streams, sockets and deliveries, and leave the broker."""
        if not self.closing.is_set():
            self.closing.set()
            await self.webhooks.close()
            await self.streams.close()
            await self._client.close()


def _too_large(most: int) -> Problem:
    return Problem(413, "body-too-large", f"the body has at most {most} bytes", limit=most)
