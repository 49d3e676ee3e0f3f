"""`GET /ws`: CloudEvents both ways (WebSockets protocol binding 1.0), sub-protocol `cloudevents.json`.

What the client sends is published. With `?filter=…` it gets what matches; without one, nothing.
"""

from __future__ import annotations

import asyncio
from uuid import uuid4

import msgspec
from starlette.datastructures import QueryParams
from starlette.websockets import WebSocket, WebSocketDisconnect

from angelia.broker.http import strict_json
from angelia.broker.http.codec import structured_event
from angelia.broker.http.door import Door
from angelia.broker.http.problem import Problem, from_error
from angelia.broker.http.sse import StreamRequest, either
from angelia.broker.http.streams import Gap, Reader
from angelia.errors import AngeliaError, ClosedError

__all__ = ["GAP_TYPE", "SUBPROTOCOL", "websocket"]

SUBPROTOCOL = "cloudevents.json"
GAP_TYPE = "angelia.http.Gap"  # of the event that tells a client what it missed

# Close codes (RFC 6455, 7.4.1, and the registry)
GOING_AWAY, UNSUPPORTED, INVALID, TRY_AGAIN = 1001, 1003, 1007, 1013


class _Close(Exception):  # noqa: N818 - it is the way out, not an error
    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason.encode()[:120].decode(errors="ignore")  # a close frame has room for 123 bytes


async def websocket(socket: WebSocket) -> None:
    """Serve a WebSocket until one side ends it."""
    door: Door = socket.app.state.door
    try:
        asked = _accepted(socket.scope["subprotocols"], socket.query_params, door.settings.replay_events)
        opened = (
            door.streams.open(
                asked.filter, size=asked.size, policy=asked.policy, last_id=None, reason="websocket"
            )
            if asked
            else None
        )
    except (Problem, AngeliaError) as error:
        problem = error if isinstance(error, Problem) else from_error(error)
        await socket.send_denial_response(problem.response())
        return
    door.sockets += 1
    try:
        await socket.accept(SUBPROTOCOL)
        await _serve(socket, door, opened[1] if opened else None)
    except _Close as close:
        await socket.close(close.code, close.reason)
    except WebSocketDisconnect:
        pass
    finally:
        door.sockets -= 1
        if asked and opened:
            door.streams.leave(asked.filter, opened[0])


def _accepted(subprotocols: list[str], query: QueryParams, max_size: int) -> StreamRequest | None:
    if SUBPROTOCOL not in subprotocols:
        detail = f"offer the sub-protocol {SUBPROTOCOL} (Sec-WebSocket-Protocol)"
        raise Problem(400, "subprotocol", detail)
    asked = StreamRequest(query, max_size)
    return asked if "filter" in query else None


async def _serve(socket: WebSocket, door: Door, reader: Reader | None) -> None:
    loops = [_receive(socket, door), _closing(door)]
    if reader is not None:
        loops.append(_send(socket, door, reader))
    await either(*loops)


async def _closing(door: Door) -> None:
    await door.closing.wait()
    raise _Close(GOING_AWAY, "the broker is going down")


async def _receive(socket: WebSocket, door: Door) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        if message.get("text") is None:
            raise _Close(UNSUPPORTED, f"{SUBPROTOCOL} uses text frames")
        try:
            await door.publish([structured_event(strict_json.loads(message["text"]), door.service.registry)])
        except strict_json.JsonError as error:
            raise _Close(INVALID, str(error)) from None
        except Problem as problem:
            raise _Close(INVALID, problem.detail) from None
        except ClosedError:
            raise _Close(GOING_AWAY, "the broker is going down") from None
        except AngeliaError as error:
            raise _Close(INVALID, str(error)) from None


async def _send(socket: WebSocket, door: Door, reader: Reader) -> None:
    while True:
        try:
            items = await reader.read(door.settings.keep_alive)
        except EOFError as end:
            raise _Close(GOING_AWAY if reader.is_over else TRY_AGAIN, str(end)) from None
        for item in items:
            text = _gap_event(item, door) if isinstance(item, Gap) else item.text
            try:
                async with asyncio.timeout(door.settings.send_timeout):
                    await socket.send_text(text.decode())
            except TimeoutError:  # nobody is there, and to say goodbye would take as long
                door.abort(socket.scope["client"])
                return


def _gap_event(gap: Gap, door: Door) -> bytes:
    return msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": str(uuid4()),
            "source": door.origin,
            "type": GAP_TYPE,
            "datacontenttype": "application/json",
            "data": gap._asdict(),
        }
    )
