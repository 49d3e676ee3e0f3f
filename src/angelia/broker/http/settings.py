"""What can be set about the door, and what it needs of the world outside."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["Outside", "Settings"]

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True)
class Settings:
    """The limits and permissions of the door."""

    # Who may come in. Without tokens, everybody who reaches the port; browsers from our own pages only.
    tokens: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()

    # Requests
    max_body: int = 1 * MIB
    max_batch: int = 1_000
    max_connections: int = 1_000
    max_header_bytes: int = 32 * KIB
    header_timeout: float = 10.0  # seconds until the head of a request must be here
    body_timeout: float = 30.0  # and until its body must
    publish_timeout: float = 30.0  # that a publication waits for subscribers with the policy block

    # Streams: server-sent events and WebSockets
    max_streams: int = 256  # different filters at a time
    replay_events: int = 1_024  # that a stream remembers for its readers
    replay_bytes: int = 4 * MIB
    replay_seconds: float = 60.0  # that a stream goes on without a reader
    keep_alive: float = 15.0  # seconds between comments to a reader for whom there is nothing
    send_timeout: float = 30.0  # seconds after which a reader that takes nothing is gone

    # Webhooks
    max_subscriptions: int = 1_000
    webhook_queue: int = 1_024  # events that wait for a sink
    webhook_queue_bytes: int = 4 * MIB  # of these
    webhook_targets: tuple[str, ...] = ()  # host names and networks allowed although they are private
    webhook_origin: str = "angelia"  # how we call ourselves in the validation handshake
    webhook_rate: int = 6_000  # requests a minute that we ask a sink for
    webhook_timeout: float = 10.0
    webhook_attempts: int = 8  # deliveries of an event that are tried
    webhook_backoff: float = 0.5  # seconds before the second attempt; doubled before each further one
    webhook_max_backoff: float = 60.0
    public_url: str | None = None  # where sinks reach this door, to confirm a subscription later


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(frozen=True)
class Outside:
    """Time, chance and names: given to the door, so that tests can play them."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    resolve: Callable[[str, int], Awaitable[list[str]]] = resolve
