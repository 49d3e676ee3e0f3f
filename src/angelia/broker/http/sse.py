"""`GET /events`: events as server-sent events, one CloudEvent in JSON each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import get_args

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from angelia.broker.http.door import Door
from angelia.broker.http.problem import Problem
from angelia.broker.http.streams import Gap, Item, LagPolicy
from angelia.filter import Filter

__all__ = ["EventStream", "StreamRequest", "get_events"]

RETRY = 1_000  # milliseconds after which a reader comes back


class StreamRequest:
    """What a reader asks for: `?filter=…&size=…&policy=…`."""

    def __init__(self, query: QueryParams, max_size: int) -> None:
        unknown = set(query) - {"filter", "size", "policy"}
        if unknown:
            name = min(unknown)
            detail = f"there is no parameter {name[:64]!r}; there are filter, size and policy"
            raise Problem(400, "invalid-parameter", detail, attribute=name[:64])
        self.filter = Filter.parse(query.get("filter", "true"))
        self.size = _size(query.get("size"), max_size)
        self.policy = _policy(query.get("policy", "drop_oldest"))


def _size(text: str | None, most: int) -> int:
    if text is None:
        return most
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise Problem(400, "invalid-parameter", f"size is a number from 1 to {most}", attribute="size")
    return int(text)


def _policy(text: str) -> LagPolicy:
    for policy in get_args(LagPolicy):
        if text == policy:
            return policy  # type: ignore[no-any-return]
    raise Problem(400, "invalid-parameter", "policy is drop_oldest or disconnect", attribute="policy")


async def get_events(request: Request) -> EventStream:
    """Open a stream."""
    door: Door = request.app.state.door
    asked = StreamRequest(request.query_params, door.settings.replay_events)
    return EventStream(door, asked, request.headers.get("last-event-id"))


class EventStream:
    """A response that goes on until the reader leaves, falls silent, or the broker ends."""

    def __init__(self, door: Door, asked: StreamRequest, last_id: str | None) -> None:
        self._door = door
        self._filter = asked.filter
        self._stream, self._reader = door.streams.open(
            asked.filter, size=asked.size, policy=asked.policy, last_id=last_id, reason="sse"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer (ASGI)."""
        try:
            await either(_disconnected(receive), self._write(scope, send))
        finally:
            self._door.streams.leave(self._filter, self._stream)

    async def _write(self, scope: Scope, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            if scope["method"] != "HEAD":
                await self._write_events(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:  # nobody is there, and to say goodbye would take as long
            self._door.abort(scope["client"])
            await asyncio.sleep(0)  # for the connection to know that it is lost

    async def _write_events(self, send: Send) -> None:
        settings = self._door.settings
        chunk = f"retry: {RETRY}\n: events that match {one_line(str(self._filter))}\n\n".encode()
        try:
            while True:
                async with asyncio.timeout(settings.send_timeout):
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                items = await self._reader.read(settings.keep_alive)
                chunk = b"".join(map(encode, items)) or b": keep-alive\n\n"
        except EOFError as end:
            final = b"event: end\ndata: " + msgspec.json.encode({"reason": str(end)}) + b"\n\n"
            async with asyncio.timeout(settings.send_timeout):
                await send({"type": "http.response.body", "body": final, "more_body": True})


def encode(item: Item | Gap) -> bytes:
    """An event, or what was missed, as a server-sent event."""
    if isinstance(item, Gap):
        return b"event: gap\ndata: " + msgspec.json.encode(item._asdict()) + b"\n\n"
    return b"id: " + item.id.encode() + b"\ndata: " + item.text + b"\n\n"


def one_line(text: str) -> str:
    """A text for a comment."""
    return " ".join(text.split())[:200]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def either(*coroutines: Awaitable[None]) -> None:
    """Run all until one is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
