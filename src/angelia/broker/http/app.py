"""The door as an ASGI application: its routes, who may come in, and what is counted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from angelia.broker.http import routes
from angelia.broker.http.door import Door
from angelia.broker.http.problem import Problem, on_failure, on_http_exception, on_problem
from angelia.broker.http.service import Service
from angelia.broker.http.settings import Outside, Settings
from angelia.broker.http.sse import get_events
from angelia.broker.http.websocket import websocket
from angelia.broker.state import State
from angelia.errors import AngeliaError

__all__ = ["ROUTES", "create_app"]

Handler = Callable[[Request], Awaitable[Any]]

ROUTES: dict[str, dict[str, Handler]] = {
    "/events": {"GET": get_events, "POST": routes.post_events},
    "/ws": {"GET": routes.upgrade_required},
    "/subscriptions": {"GET": routes.list_subscriptions, "POST": routes.create_subscription},
    "/subscriptions/{id}": {
        "GET": routes.get_subscription,
        "PUT": routes.put_subscription,
        "DELETE": routes.delete_subscription,
    },
    "/subscriptions/{id}/confirmation": {
        "GET": routes.confirm_subscription,
        "POST": routes.confirm_subscription,
    },
    "/types": {"GET": routes.list_types, "POST": routes.define_type},
    "/types/{name}": {"GET": routes.get_type, "PUT": routes.put_type},
    "/metrics": {"GET": routes.get_metrics},
    "/healthz": {"GET": routes.get_health},
    "/topology": {"GET": routes.get_topology},
    "/openapi.json": {"GET": routes.get_openapi},
}

# Who asks for these cannot have a token: a load balancer, and a sink that confirms (it has a key).
_OPEN = ("/healthz", "/subscriptions/{id}/confirmation")
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")


def create_app(
    service: Service,
    settings: Settings | None = None,
    outside: Outside | None = None,
    state: State | None = None,
) -> Starlette:
    """The door of a service. `serve` runs it; `app.state.door.close()` ends its streams and deliveries.

    With a `state`, webhooks are kept there, and those that were go on.
    """
    door = Door(service, settings or Settings(), outside or Outside(), state)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await door.close()

    app = Starlette(
        routes=[
            *(_route(path, handlers) for path, handlers in ROUTES.items()),
            WebSocketRoute("/ws", websocket),
        ],
        middleware=[Middleware(_Guard, door=door)],
        exception_handlers={
            Problem: on_problem,
            AngeliaError: on_problem,
            HTTPException: on_http_exception,
            ClientDisconnect: _on_disconnect,
            Exception: on_failure,
        },
        lifespan=lifespan,
    )
    app.state.door = door
    return app


def _route(path: str, handlers: dict[str, Handler]) -> BaseRoute:
    allowed = ", ".join([*handlers, "OPTIONS"])

    async def endpoint(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": allowed})
        answer: Response = await handlers["GET" if request.method == "HEAD" else request.method](request)
        return answer

    endpoint.__name__ = path  # by which requests are counted
    return Route(path, endpoint, methods=[*handlers, "OPTIONS"])


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=400)  # nobody reads it


class _Guard:
    """Lets in who has a token, if tokens are asked for, and keeps out pages of other sites."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        problem = self._origin_problem(headers, scope) or self._token_problem(headers, scope["path"])
        counted = self._counted(scope, send)
        await (self._app if problem is None else problem.response())(scope, receive, counted)

    def _token_problem(self, headers: Headers, path: str) -> Problem | None:
        is_open = path == _OPEN[0] or (path.startswith("/subscriptions/") and path.endswith("/confirmation"))
        if is_open or self._door.is_allowed(headers.get("authorization")):
            return None
        detail = "send one of the broker's tokens as Authorization: Bearer …"
        return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})

    def _origin_problem(self, headers: Headers, scope: Scope) -> Problem | None:
        """A browser says which page asks. Pages of other sites may not, but those that are allowed."""
        origin = headers.get("origin")
        if origin is None or origin in self._door.settings.allowed_origins:
            return None
        if urlsplit(origin).netloc == headers.get("host"):
            return None
        return Problem(403, "forbidden-origin", f"pages of {origin[:128]!r} may not use this door")

    def _counted(self, scope: Scope, send: Send) -> Send:
        count = self._door.service.metrics.count_request

        async def counting(message: Message) -> None:
            if message["type"] in (
                "http.response.start",
                "websocket.http.response.start",
                "websocket.accept",
            ):
                method = scope.get("method", "GET")
                route = getattr(scope.get("endpoint"), "__name__", "(none)")
                count(method if method in _METHODS else "(other)", route, message.get("status", 101))
            await send(message)

        return counting
