"""Requests to a webhook: the validation handshake and deliveries (HTTP 1.1 Web Hooks for Event Delivery 1.0).

Redirects are not followed, proxies not used, answers not read beyond a limit, and the connection goes to an
address that was checked.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version

import httpx

from angelia.broker.http.settings import Outside, Settings
from angelia.broker.http.targets import ForbiddenTargetError, Target, Targets

__all__ = ["Answer", "Permission", "Sink"]

MAX_ANSWER = 64 * 1024  # bytes of an answer that are read
MAX_WAIT = 24 * 3600.0  # seconds that a sink can make us wait
ADDRESS_LIFETIME = 60.0  # seconds for which a checked address is used without asking again

_RETRIED = frozenset([408, 425, 429, 500, 502, 503, 504])


@dataclass(frozen=True)
class Answer:
    """What a sink said: a status, or why there is none; and when to come back, if it said so."""

    status: int | None
    error: str = ""
    retry_after: float | None = None
    headers: Mapping[str, str] | None = None

    @property
    def is_delivered(self) -> bool:
        """Whether the event was taken."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def may_be_retried(self) -> bool:
        """Whether it may go better another time."""
        return self.status is None or self.status in _RETRIED


@dataclass(frozen=True)
class Permission:
    """What a sink said to the validation request; `rate` is in requests a minute, None if unlimited."""

    is_granted: bool
    rate: int | None = None
    detail: str = ""


class Sink:
    """A webhook that events are delivered to, over one connection."""

    def __init__(
        self,
        target: Target,
        targets: Targets,
        settings: Settings,
        outside: Outside,
        tls: Callable[[], ssl.SSLContext],
    ) -> None:
        self.target = target
        self._targets = targets
        self._settings = settings
        self._outside = outside
        self._tls = tls
        self._http: httpx.AsyncClient | None = None
        self._address = ("", float("-inf"))

    async def ask(self, callback: str | None) -> Permission:
        """Ask for permission to deliver (section 4)."""
        headers = {
            "WebHook-Request-Origin": self._settings.webhook_origin,
            "WebHook-Request-Rate": str(self._settings.webhook_rate),
        }
        if callback is not None:
            headers["WebHook-Request-Callback"] = callback
        answer = await self.request("OPTIONS", headers, b"")
        if answer.headers is None:
            return Permission(False, detail=answer.error)
        origin = answer.headers.get("webhook-allowed-origin")
        if origin is None:
            detail = f"it answered OPTIONS with {answer.status} and no WebHook-Allowed-Origin"
            return Permission(False, detail=detail)
        if origin not in ("*", self._settings.webhook_origin):
            return Permission(False, detail=f"it allows the origin {origin[:64]!r} only")
        return permitted(answer.headers.get("webhook-allowed-rate"), self._settings.webhook_rate)

    async def request(self, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send a request, and never raise for what the other side does."""
        try:
            async with asyncio.timeout(self._settings.webhook_timeout):
                return await self._request(method, headers, body)
        except ForbiddenTargetError as error:
            return Answer(None, str(error))
        except TimeoutError:
            return Answer(None, f"no answer within {self._settings.webhook_timeout:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError) as error:
            return Answer(None, f"{type(error).__name__}: {error}"[:200])

    async def _request(self, method: str, headers: Mapping[str, str], body: bytes) -> Answer:
        address = await self._checked_address()
        if self._http is None:
            # One client a sink: a connection must not be used for another name at the same address.
            self._http = httpx.AsyncClient(
                verify=self._tls() if self.target.scheme == "https" else False,
                trust_env=False,
                follow_redirects=False,
                timeout=self._settings.webhook_timeout,
                limits=httpx.Limits(max_connections=1),
            )
        own = {"Host": self.target.netloc, "User-Agent": f"angelia/{version('angelia')}", "Accept": "*/*"}
        request = self._http.build_request(
            method,
            self.target.at(address),
            headers={**own, **headers},
            content=body,
            extensions={"sni_hostname": self.target.host},
        )
        response = await self._http.send(request, stream=True)
        try:
            size = 0
            async for chunk in response.aiter_raw():
                size += len(chunk)
                if size > MAX_ANSWER:
                    break
        finally:
            await response.aclose()
        wait = _retry_after(response.headers.get("retry-after"), self._outside.now())
        return Answer(response.status_code, f"it answered {response.status_code}", wait, response.headers)

    async def _checked_address(self) -> str:
        address, until = self._address
        if self._outside.now() < until:
            return address
        address = await self._targets.address(self.target)
        self._address = (address, self._outside.now() + ADDRESS_LIFETIME)
        return address

    async def close(self) -> None:
        """Close the connection."""
        if self._http is not None:
            await self._http.aclose()


def permitted(rate: str | None, asked: int) -> Permission:
    """The permission that a WebHook-Allowed-Rate gives; without one, what was asked for."""
    if rate is None:
        return Permission(True, asked)
    if rate.strip() == "*":
        return Permission(True, None)
    if rate.isascii() and rate.strip().isdigit() and len(rate) < 10 and int(rate) > 0:
        return Permission(True, int(rate))
    return Permission(False, detail=f"its WebHook-Allowed-Rate {rate[:32]!r} is neither * nor a number")


def _retry_after(text: str | None, now: float) -> float | None:
    """Seconds to wait, from a header that has seconds or a date."""
    if text is None:
        return None
    if text.isascii() and text.strip().isdigit():
        return min(float(text), MAX_WAIT)
    try:
        until: datetime = parsedate_to_datetime(text)
        return min(max(until.timestamp() - now, 0.0), MAX_WAIT)
    except (ValueError, TypeError, OverflowError):
        return None
