"""The context attributes of a CloudEvent (CloudEvents 1.0, sections 2 and 3), strictly checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from angelia.broker.http.problem import Problem
from angelia.errors import EventError
from angelia.event import parse_timestamp

__all__ = [
    "OPTIONAL",
    "OWN",
    "REQUIRED",
    "ContextValue",
    "check_context",
    "is_carried",
    "is_extension_name",
    "is_json",
    "refusal",
]

ContextValue = str | int | bool
_Check = Callable[[str, Any], Any]

REQUIRED = ("specversion", "id", "source", "type")
OPTIONAL = ("subject", "time", "datacontenttype", "dataschema")
OWN = ("specversion", "id", "source", "type", "subject", "time")  # what every event of ours has a place for

_EXTENSION_NAME = re.compile(r"[a-z0-9]{1,128}")
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_URI_REFERENCE = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:.")
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_MEDIA_TYPE = re.compile(rf'{_TOKEN}/{_TOKEN}(?:\s*;\s*{_TOKEN}=(?:{_TOKEN}|"(?:[^"\\]|\\.)*"))*\s*;?')
_JSON = re.compile(r"[^/;]+/(?:[^;]+\+)?json\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)


def refusal(attribute: str, detail: str) -> Problem:
    """The answer to an event with a bad attribute."""
    return Problem(400, "invalid-event", f"{attribute}: {detail}", attribute=attribute)


def is_json(content_type: str | None) -> bool:
    """Whether a media type declares JSON; nothing declares it, too (JSON format, 3.1.1)."""
    return content_type is None or _JSON.fullmatch(content_type) is not None


def is_extension_name(name: str) -> bool:
    """Whether an attribute may have this name: lower-case letters and digits (CloudEvents, 2.1)."""
    return _EXTENSION_NAME.fullmatch(name) is not None and name != "data"


def is_carried(name: str, value: object) -> bool:
    """Whether the envelope of a CloudEvent can carry this, besides what our own context has."""
    try:
        return name not in OWN and bool(_checked(name, value) == value)
    except Problem:
        return False


def check_context(given: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that are there, with `time` as a datetime; else a `Problem` that names one."""
    for name in REQUIRED:
        if given.get(name) is None:
            raise refusal(name, "is missing; every CloudEvent has specversion, id, source and type")
    return {name: _checked(name, value) for name, value in given.items() if value is not None}


def _checked(name: str, value: Any) -> Any:
    check: _Check = _CHECKS.get(name, _extension)
    return check(name, value)


def _string(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise refusal(name, f"must be a string, not {_json_type(value)}")
    if not value:
        raise refusal(name, "is empty" if name in REQUIRED else "is empty; leave it out instead")
    return _characters(name, value)


def _characters(name: str, value: str) -> str:
    if bad := _FORBIDDEN.search(value):
        raise refusal(
            name, f"has the character U+{ord(bad[0]):04X} at position {bad.start()}, not allowed there"
        )
    return value


def _specversion(name: str, value: Any) -> str:
    if value != "1.0":
        raise refusal(name, f"must be '1.0', not {str(value)[:32]!r}")
    return "1.0"


def _uri_reference(name: str, value: Any) -> str:
    text = _string(name, value)
    if not _URI_REFERENCE.fullmatch(text):
        raise refusal(
            name, f"{text[:64]!r} is not a URI-reference; percent-encode what RFC 3986 does not allow"
        )
    return text


def _uri(name: str, value: Any) -> str:
    text = _uri_reference(name, value)
    if not _SCHEME.match(text):
        raise refusal(name, f"{text[:64]!r} is not an absolute URI, such as https://example.com/schema")
    return text


def _time(name: str, value: Any) -> datetime:
    try:
        return parse_timestamp(_string(name, value))
    except EventError as error:
        raise refusal(name, str(error)) from None


def _media_type(name: str, value: Any) -> str:
    text = _string(name, value)
    if len(text) > 1024 or not _MEDIA_TYPE.fullmatch(text):
        raise refusal(name, f"{text[:64]!r} is not a media type, such as application/json")
    return text


def _extension(name: str, value: Any) -> ContextValue:
    if not is_extension_name(name):
        raise refusal(name[:128], "is not an attribute name: use lower-case letters and digits only")
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise refusal(name, "an integer attribute has 32 bits; use a string")
        return value
    if isinstance(value, str):
        return _characters(name, value)
    raise refusal(name, f"an extension is a string, an integer or a boolean, not {_json_type(value)}")


_CHECKS: dict[str, _Check] = {
    "specversion": _specversion,
    "id": _string,
    "source": _uri_reference,
    "type": _string,
    "subject": _string,
    "time": _time,
    "datacontenttype": _media_type,
    "dataschema": _uri,
}

_JSON_TYPES = {bool: "a boolean", int: "a number", float: "a number", dict: "an object", list: "an array"}


def _json_type(value: Any) -> str:
    return _JSON_TYPES.get(type(value), "a string")
