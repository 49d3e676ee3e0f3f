"""CloudEvents in HTTP messages: binary, structured and batched (HTTP protocol binding 1.0, section 3)."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import msgspec

from angelia.broker.http import strict_json
from angelia.broker.http.context import check_context, is_json, refusal
from angelia.broker.http.mapping import (
    Binary,
    Json,
    Payload,
    Text,
    context_of,
    event_of,
    payload_of,
    structured,
    text_of,
)
from angelia.broker.http.problem import Problem
from angelia.event import Event
from angelia.types import TypeRegistry

__all__ = [
    "BATCH",
    "STRUCTURED",
    "binary_message",
    "events_of_message",
    "structured_event",
    "structured_message",
]

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"

Headers = Iterable[tuple[bytes, bytes]]

_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([^\s;\"]+)", re.IGNORECASE)
_TEXTUAL = re.compile(r"text/.*|[^;]*[/+]xml\s*(;.*)?", re.IGNORECASE | re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


# ---------------------------------------------------------------- in


def events_of_message(headers: Headers, body: bytes, registry: TypeRegistry, max_batch: int) -> list[Event]:
    """The events of an HTTP message; a `Problem` if one is not valid."""
    found = _grouped(headers)
    content_type = _content_type(found)
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type == STRUCTURED:
        _check_charset(content_type or "")
        return [structured_event(_json(body, "body"), registry)]
    if media_type == BATCH:
        _check_charset(content_type or "")
        return _batch(_json(body, "body"), registry, max_batch)
    if media_type.startswith("application/cloudevents"):
        raise _unsupported(f"there is no format {media_type!r} here")
    attributes = {name[3:]: values for name, values in found.items() if name.startswith("ce-")}
    if not attributes:
        raise _unsupported("this is not a CloudEvent")
    return [_binary(attributes, content_type, body, registry)]


def _unsupported(what: str) -> Problem:
    detail = f"{what}: send {STRUCTURED}, {BATCH}, or the attributes as ce- headers"
    return Problem(
        415, "unsupported-media-type", detail, headers={"Accept-Post": f"{STRUCTURED}, {BATCH}, */*"}
    )


def _grouped(headers: Headers) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for name, value in headers:
        found.setdefault(name.decode("latin-1").lower(), []).append(value)
    return found


def _content_type(headers: dict[str, list[bytes]]) -> str | None:
    values = headers.get("content-type", [])
    if len(values) > 1:
        raise refusal("datacontenttype", "the header Content-Type is there twice")
    return values[0].decode("latin-1").strip() if values else None


def _check_charset(content_type: str) -> None:
    charset = _CHARSET.search(content_type)
    if charset and charset[1].lower() not in ("utf-8", "us-ascii"):
        raise Problem(415, "unsupported-media-type", f"charset {charset[1][:32]!r}: the JSON format is UTF-8")


def _json(body: bytes, attribute: str) -> Any:
    try:
        return strict_json.loads(body)
    except strict_json.JsonError as error:
        raise Problem(400, "invalid-json", f"{attribute}: {error}", attribute=attribute) from None


def structured_event(document: Any, registry: TypeRegistry) -> Event:
    """The event of a document in the JSON event format."""
    if not isinstance(document, dict):
        hint = f"; for a batch, send {BATCH}" if isinstance(document, list) else ""
        raise Problem(400, "invalid-event", f"a CloudEvent is a JSON object{hint}", attribute="body")
    attributes = {name: value for name, value in document.items() if name not in ("data", "data_base64")}
    context = check_context(attributes)
    return event_of(context, _structured_payload(document, context.get("datacontenttype")), registry)


def _structured_payload(document: dict[str, Any], content_type: str | None) -> Payload:
    encoded = document.get("data_base64")
    if encoded is None:
        if "data" not in document:
            return None
        data = document["data"]
        if is_json(content_type):
            return Json(data)
        if data is not None and not isinstance(data, str):
            raise refusal("data", f"must be a string, since datacontenttype is {str(content_type)[:64]}")
        return None if data is None else Text(data)
    if "data" in document:
        raise refusal("data_base64", "is there beside data; an event has one of them")
    return _interpreted(_base64(encoded), content_type, "data_base64", declared=content_type is not None)


def _base64(encoded: Any) -> bytes:
    try:
        if isinstance(encoded, str):
            return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise refusal("data_base64", "is not Base64 (RFC 4648, with padding)")


def _interpreted(content: bytes, content_type: str | None, attribute: str, *, declared: bool) -> Payload:
    """Bytes as what their media type says: JSON becomes attributes, text can be filtered."""
    if is_json(content_type):
        return Json(_json(content, attribute)) if declared else Binary(content)
    if _TEXTUAL.fullmatch(content_type or ""):
        charset = _CHARSET.search(content_type or "")
        if charset is None or charset[1].lower() in ("utf-8", "us-ascii"):
            try:
                return Text(content.decode("utf-8"))
            except UnicodeDecodeError:
                pass
    return Binary(content)


def _batch(documents: Any, registry: TypeRegistry, max_batch: int) -> list[Event]:
    if not isinstance(documents, list):
        raise Problem(400, "invalid-event", "a batch is a JSON array of CloudEvents", attribute="body")
    if len(documents) > max_batch:
        detail = f"the batch has {len(documents)} events; at most {max_batch} are allowed"
        raise Problem(413, "batch-too-large", detail, limit=max_batch)
    events: list[Event] = []
    seen: set[tuple[str | None, str | None]] = set()
    for index, document in enumerate(documents):
        try:
            event = structured_event(document, registry)
            if (event.source, event.id) in seen:
                raise refusal("id", f"{str(event.id)[:64]!r} is there twice for this source")
        except Problem as problem:
            raise problem.at(index) from None
        seen.add((event.source, event.id))
        events.append(event)
    return events


def _binary(
    headers: dict[str, list[bytes]], content_type: str | None, body: bytes, registry: TypeRegistry
) -> Event:
    if "datacontenttype" in headers:
        raise refusal(
            "datacontenttype", "is the header Content-Type in this mode; leave ce-datacontenttype out"
        )
    attributes: dict[str, Any] = {name: _header_value(name, values) for name, values in headers.items()}
    if content_type is not None:
        attributes["datacontenttype"] = content_type
    context = check_context(attributes)
    payload = _interpreted(body, content_type, "data", declared=True) if body else None
    return event_of(context, payload, registry)


def _header_value(name: str, values: list[bytes]) -> str:
    """The attribute that a header has: unquoted, then percent-decoded (section 3.1.3.2)."""
    if len(values) > 1:
        raise refusal(name, f"the header ce-{name} is there twice")
    try:
        text = values[0].decode("ascii").strip()
    except UnicodeDecodeError:
        raise refusal(name, "has characters outside ASCII; percent-encode them as UTF-8") from None
    if text.startswith('"'):
        quoted = _QUOTED.fullmatch(text)
        if quoted is None:
            raise refusal(name, "has an opening double quote without an end")
        text = re.sub(r"\\(.)", r"\1", quoted[1])
    if bad := _BAD_PERCENT.search(text):
        raise refusal(name, f"bad percent-encoding {text[bad.start() : bad.start() + 3]!r}; write % as %25")
    try:
        return unquote_to_bytes(text).decode("utf-8")
    except UnicodeDecodeError:
        raise refusal(name, "bad percent-encoding: the bytes are not UTF-8") from None


# ---------------------------------------------------------------- out


def structured_message(event: Event, origin: str) -> tuple[dict[str, str], bytes]:
    """Headers and body of an event in structured mode."""
    return {"Content-Type": f"{STRUCTURED}; charset=utf-8"}, structured(event, origin)


def binary_message(event: Event, origin: str) -> tuple[dict[str, str], bytes]:
    """Headers and body of an event in binary mode."""
    context = context_of(event, origin)
    content_type = context.pop("datacontenttype", None)
    headers = {f"ce-{name}": quote(text_of(value), safe=_SAFE) for name, value in context.items()}
    if content_type is not None:
        headers["Content-Type"] = str(content_type)
    match payload_of(event):
        case Json(value):
            return headers, msgspec.json.encode(value)
        case Text(text):
            return headers, text.encode()
        case Binary(content):
            return headers, content
    return headers, b""
