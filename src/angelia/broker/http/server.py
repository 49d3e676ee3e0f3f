"""The door on a port: uvicorn within the broker's event loop. Signals are the broker's affair."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Self

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from angelia.broker.http.door import Door
from angelia.broker.http.settings import Settings

__all__ = ["Server", "serve"]

PATIENCE = 5  # seconds that requests have to come to their end


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopping = asyncio.Event()

    async def main_loop(self) -> None:
        """Tick once a second, for the date of answers, until `stopping` is set."""
        while not self.stopping.is_set():
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self.stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


class _Protocol(H11Protocol):
    """HTTP/1.1 for which the head of a request must be here within a time (uvicorn has no such limit)."""

    header_timeout = 10.0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._cancel()
        elif self._deadline is None:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._deadline = self.loop.call_later(self.header_timeout, self.transport.close)

    def _cancel(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Server:
    """A door that is open: `stop` closes it, and so does the end of `async with`."""

    def __init__(self, app: Starlette, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        self._door: Door = app.state.door
        self._uvicorn = _Uvicorn(_config(app, self._door.settings, tls))
        self._task = asyncio.create_task(self._uvicorn.serve(sockets))
        self.host, self.port = sockets[0].getsockname()[:2]
        self.url = f"{'https' if tls else 'http'}://{_bracketed(self.host)}:{self.port}"

        self._door.abort = self._abort

    def _abort(self, client: object) -> None:
        for connection in list(self._uvicorn.server_state.connections):
            if getattr(connection, "client", None) == client:
                connection.transport.abort()

    async def started(self) -> None:
        """Wait until requests are answered."""
        while not self._uvicorn.started and not self._task.done():
            await asyncio.sleep(0.005)
        if self._task.done():
            self._task.result()

    async def stop(self) -> None:
        """End streams, let requests come to their end, and close the port."""
        self._uvicorn.stopping.set()
        await self._door.close()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


async def serve(
    app: Starlette, host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None
) -> Server:
    """Open the door on a port (0: any that is free); an `OSError` if it cannot be had."""
    server = Server(app, [_listen(host, port)], tls)
    await server.started()
    return server


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off; without, each answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _is_news(record: logging.LogRecord) -> bool:
    """Not what uvicorn says of each handshake that was refused with a proper answer."""
    return "returned without completing handshake" not in record.getMessage()


def _config(app: Starlette, settings: Settings, tls: ssl.SSLContext | None) -> uvicorn.Config:
    protocol = type("Protocol", (_Protocol,), {"header_timeout": settings.header_timeout})
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    options: dict[str, Any] = {"ssl_context_factory": lambda config, default: tls} if tls else {}
    return uvicorn.Config(
        app,
        http=protocol,
        ws="websockets-sansio",
        ws_max_size=settings.max_body,
        ws_per_message_deflate=False,  # a small frame could become a large message
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=max(1, round(settings.header_timeout)),
        timeout_graceful_shutdown=PATIENCE,
        h11_max_incomplete_event_size=settings.max_header_bytes,
        **options,
    )
