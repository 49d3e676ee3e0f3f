"""A subscription as the CloudEvents Subscriptions API describes it, checked."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from angelia.broker.http.dialects import Dialects, Selection
from angelia.broker.http.problem import Problem
from angelia.broker.http.targets import Target
from angelia.errors import EventError
from angelia.event import Event, parse_timestamp
from angelia.types import TypeRegistry

__all__ = ["Resource"]

_PROPERTIES = (
    "id", "source", "types", "filters", "config", "sink", "sinkcredential", "protocol", "protocolsettings"
)  # fmt: skip
_CREDENTIALS = {
    "PLAIN": {"identifier", "secret"},
    "ACCESSTOKEN": {"accesstoken", "accesstokenexpiresutc", "accesstokentype"},
}
_SECRETS = {"secret", "accesstoken"}
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,4096}")
_OURS = re.compile(
    r"ce-.*|webhook-.*|content-.*|host|connection|transfer-encoding|te|trailer|upgrade|keep-alive|expect|proxy-.*",
    re.IGNORECASE,
)
MAX_HEADERS = 32


class Resource:
    """What a client asked for: which events, where to, and how."""

    def __init__(self, document: Any, registry: TypeRegistry) -> None:
        if not isinstance(document, dict):
            raise Problem(400, "invalid-subscription", "a subscription is a JSON object", attribute="body")
        for name in document:
            if name not in _PROPERTIES:
                raise _bad(name[:64], f"is not a property of a subscription: {', '.join(_PROPERTIES)}")
        if document.get("protocol") != "HTTP":
            raise _bad("protocol", "must be 'HTTP'; there is no other here")
        if "sink" not in document:
            raise _bad("sink", "is missing: the URL to deliver to")
        self.given = document
        self.target = Target(document["sink"])
        self.selection: Selection = Dialects(registry).select(document)
        if document.get("config") not in (None, {}):
            raise _bad("config", "has nothing to configure here; leave it out")
        settings = _object(document, "protocolsettings", {"headers", "method", "contentmode"})
        self.method = _choice(settings, "method", ("POST", "PUT"))
        self.mode = _choice(settings, "contentmode", ("binary", "structured"))
        self.headers = _headers(settings.get("headers"))
        self.expires: float | None = None
        self._credential = document.get("sinkcredential")
        if self._credential is not None:
            self._authorize(_object(document, "sinkcredential", None))

    def _authorize(self, credential: Mapping[str, Any]) -> None:
        kind = credential.get("credentialtype")
        if kind not in _CREDENTIALS:
            raise _bad("sinkcredential.credentialtype", f"must be one of {', '.join(_CREDENTIALS)}")
        for name, value in credential.items():
            if name not in _CREDENTIALS[kind] | {"credentialtype"}:
                raise _bad(f"sinkcredential.{name[:64]}", f"does not belong to the type {kind}")
            if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value) or not value:
                raise _bad(f"sinkcredential.{name}", "is a string of printable ASCII")
        if kind == "PLAIN":
            pair = f"{_needed(credential, 'identifier')}:{_needed(credential, 'secret')}"
            self.headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"
            return
        if credential.get("accesstokentype", "bearer").lower() != "bearer":
            raise _bad("sinkcredential.accesstokentype", "must be 'bearer'")
        self.headers["Authorization"] = f"Bearer {_needed(credential, 'accesstoken')}"
        if (expires := credential.get("accesstokenexpiresutc")) is not None:
            try:
                self.expires = parse_timestamp(expires).timestamp()
            except EventError as error:
                raise _bad("sinkcredential.accesstokenexpiresutc", str(error)) from None

    def wants(self, event: Event) -> bool:
        """Whether an event that came by the selection's filter is wanted."""
        return self.selection.accepts(event)

    def document(self) -> dict[str, Any]:
        """The subscription as it is shown: with defaults, without secrets."""
        shown = {name: value for name, value in self.given.items() if name != "id"}
        shown["protocolsettings"] = {
            "method": self.method,
            "contentmode": self.mode,
            "headers": {name: value for name, value in self.headers.items() if name != "Authorization"},
        }
        if self._credential is not None:
            shown["sinkcredential"] = {
                name: value for name, value in self._credential.items() if name not in _SECRETS
            }
        return shown


def _bad(where: str, detail: str) -> Problem:
    return Problem(400, "invalid-subscription", f"{where}: {detail}", attribute=where)


def _object(document: Mapping[str, Any], name: str, allowed: set[str] | None) -> Mapping[str, Any]:
    value = document.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _bad(name, "is an object")
    for key in value:
        if allowed is not None and key not in allowed:
            raise _bad(f"{name}.{key[:64]}", f"is not a setting; there are {', '.join(sorted(allowed))}")
    return value


def _choice(settings: Mapping[str, Any], name: str, choices: tuple[str, ...]) -> str:
    value = settings.get(name, choices[0])
    if value not in choices:
        raise _bad(f"protocolsettings.{name}", f"must be one of {', '.join(choices)}")
    return str(value)


def _headers(given: Any) -> dict[str, str]:
    where = "protocolsettings.headers"
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > MAX_HEADERS:
        raise _bad(where, f"is an object of at most {MAX_HEADERS} header names and values")
    for name, value in given.items():
        if (
            not _HEADER_NAME.fullmatch(name)
            or not isinstance(value, str)
            or not _HEADER_VALUE.fullmatch(value)
        ):
            raise _bad(where, f"{name[:64]!r} and its value cannot be a header")
        if _OURS.fullmatch(name) or name.lower() == "authorization":
            raise _bad(where, f"{name[:64]!r} is set by the door; credentials go into sinkcredential")
    return dict(given)


def _needed(credential: Mapping[str, Any], name: str) -> str:
    if name not in credential:
        raise _bad(f"sinkcredential.{name}", "is missing")
    return str(credential[name])
