"""What went wrong, as RFC 9457 tells it: `application/problem+json`, and the attribute at fault by name."""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from angelia.errors import (
    AngeliaError,
    ClosedError,
    ConformanceError,
    EventLimitError,
    EventTypeError,
    FilterError,
    FilterSyntaxError,
    UnknownTypeError,
)

__all__ = ["MEDIA_TYPE", "Problem", "from_error", "on_failure", "on_http_exception", "on_problem"]

log = logging.getLogger("angelia.http")

MEDIA_TYPE = "application/problem+json"

_ATTRIBUTE = re.compile(r"attribute '([^']*)'")


class Problem(Exception):  # noqa: N818 - RFC 9457 calls it so
    """An answer that is an error: `Problem(400, "invalid-event", "id is missing", attribute="id")`."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: dict[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = headers or {}
        self.members = {name: value for name, value in members.items() if value is not None}

    def document(self) -> dict[str, Any]:
        """The problem as a JSON object."""
        return {
            "type": f"urn:angelia:problem:{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **self.members,
        }

    def response(self) -> Response:
        """The problem as a response."""
        body = msgspec.json.encode(self.document())
        return Response(body, self.status, headers=self.headers, media_type=MEDIA_TYPE)

    def at(self, index: int) -> Problem:
        """The same, of one event of a batch."""
        detail = f"event {index} of the batch: {self.detail}"
        return Problem(self.status, self.kind, detail, headers=self.headers, **self.members, index=index)


def from_error(error: AngeliaError) -> Problem:
    """What an error of ours is to a client of the door."""
    detail = str(error)
    if isinstance(error, ConformanceError):
        found = _ATTRIBUTE.search(error.problems[0])
        attribute = found[1] if found else None
        return Problem(400, "nonconforming", detail, attribute=attribute, problems=error.problems)
    if isinstance(error, FilterSyntaxError):
        column = error.column if error.text else None
        return Problem(400, "invalid-filter", detail, attribute="filter", column=column)
    if isinstance(error, FilterError):
        return Problem(400, "invalid-filter", detail, attribute="filter")
    if isinstance(error, UnknownTypeError):
        return Problem(404, "unknown-type", detail)
    if isinstance(error, EventTypeError):
        return Problem(400, "invalid-type", detail)
    if isinstance(error, ClosedError):
        return Problem(
            503, "closing", "the broker is going down; try another one", headers={"Retry-After": "5"}
        )
    found = _ATTRIBUTE.search(detail)
    attribute = found[1] if found else None
    if isinstance(error, EventLimitError):
        return Problem(413, "event-too-large", detail, attribute=attribute)
    return Problem(400, "refused", detail, attribute=attribute)


# ------------------------------------------------ handlers of the application


async def on_problem(request: HTTPConnection, error: Exception) -> Response:
    """Answer with a problem that was raised, or with an error of ours."""
    assert isinstance(error, Problem | AngeliaError)
    problem = error if isinstance(error, Problem) else from_error(error)
    return problem.response()


async def on_http_exception(request: HTTPConnection, error: Exception) -> Response:
    """Answer what the router refused: an unknown path or method."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = headers.get("Allow", "")
        detail = f"{request.scope['method']} is not allowed here; allowed are {allowed}"
        return Problem(405, "method-not-allowed", detail, headers=headers).response()
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = f"there is no {request.url.path[:200]!r} here; see /openapi.json for what there is"
        return Problem(404, "not-found", detail).response()
    return Problem(error.status_code, "http", str(error.detail), headers=headers).response()


async def on_failure(request: Request, error: Exception) -> Response:
    """A mistake of ours: told to the log, not to the client."""
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return Problem(500, "internal", "the door failed; the broker's log tells why").response()
