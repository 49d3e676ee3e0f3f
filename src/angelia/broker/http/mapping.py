"""CloudEvents as events of ours, and back (docs/adr/0006).

| CloudEvent                          | event                                                        |
|-------------------------------------|--------------------------------------------------------------|
| id, source, type, subject, time     | the context                                                  |
| data, a JSON object                 | its members are the attributes; nested ones have dotted names |
| data, an object with parts that no attribute can hold | the same, and the document in `ce-data_json` |
| data, other JSON, or text           | `ce-data`, if an attribute can hold it, else `ce-data_json`  |
| data, binary                        | `ce-data_base64`                                             |
| datacontenttype, if not application/json; dataschema | `ce-datacontenttype`, `ce-dataschema`       |
| extension `traceparent`             | `ce-traceparent`                                             |

So every CloudEvent that is accepted can be given out again as it came, by whatever door.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from angelia.broker.http import strict_json
from angelia.broker.http.context import (
    OWN,
    ContextValue,
    is_carried,
    is_extension_name,
    is_json,
    refusal,
)
from angelia.broker.http.problem import Problem, from_error
from angelia.errors import AngeliaError, EventError
from angelia.event import ENVELOPE, Event, Value, check_name, format_timestamp, plain_scalar
from angelia.types import TypeRegistry

__all__ = [
    "DEFAULT_TYPE",
    "Binary",
    "Json",
    "Payload",
    "Text",
    "context_of",
    "event_of",
    "facts_of",
    "payload_of",
    "structured",
    "text_of",
]

DEFAULT_TYPE = "angelia.Event"  # the type of an event that was published without one

_DATA = f"{ENVELOPE}data"
_DATA_JSON = f"{ENVELOPE}data_json"
_DATA_BASE64 = f"{ENVELOPE}data_base64"
_CONTENT_TYPE = f"{ENVELOPE}datacontenttype"
_URI_CHARACTERS = "-._~:/?#[]@!$&'()*+,;=%"


class Json(NamedTuple):
    """Data that is a JSON value."""

    value: Any


class Text(NamedTuple):
    """Data that is a text, of a media type that is not JSON."""

    text: str


class Binary(NamedTuple):
    """Data that is bytes."""

    content: bytes


Payload = Json | Text | Binary | None


# ---------------------------------------------------------------- in


def event_of(context: Mapping[str, Any], payload: Payload, registry: TypeRegistry) -> Event:
    """The event of a CloudEvent with a checked context, checked against its type; else a `Problem`."""
    try:
        event = Event(
            {**_envelope(context, payload), **_attributes(payload, context["type"], registry)},
            type=context["type"],
            source=context["source"],
            subject=context.get("subject"),
            id=context["id"],
            time=context.get("time"),
        )
        if event.type in registry:
            registry.check(event)
        return event
    except AngeliaError as error:
        raise _about_data(from_error(error)) from None


def _about_data(problem: Problem) -> Problem:
    """A problem of an attribute of ours, named as the sender knows it."""
    name = problem.members.get("attribute")
    if name is not None and name.startswith(_DATA):
        name = "data"
    kind = "invalid-event" if problem.kind == "refused" else problem.kind
    members = problem.members | {"attribute": name or "data"}
    return Problem(problem.status, kind, problem.detail, **members)


def _envelope(context: Mapping[str, Any], payload: Payload) -> dict[str, Value]:
    found = {ENVELOPE + name: value for name, value in context.items() if name not in OWN}
    if isinstance(payload, Json) and found.get(_CONTENT_TYPE) == "application/json":
        del found[_CONTENT_TYPE]  # what JSON data has anyway
    return found


def _attributes(payload: Payload, type_name: str, registry: TypeRegistry) -> Mapping[str, Value]:
    if payload is None:
        return {}
    if isinstance(payload, Text):
        return {_DATA: payload.text}
    if isinstance(payload, Binary):
        return {_DATA_BASE64: base64.b64encode(payload.content).decode("ascii")}
    if isinstance(payload.value, dict):
        return _members(payload.value, type_name, registry)
    return {_DATA: payload.value} if _holds(payload.value) else _document(payload.value)


def _members(data: dict[str, Any], type_name: str, registry: TypeRegistry) -> Mapping[str, Value]:
    for name in data:
        if name.startswith(ENVELOPE):
            raise refusal("data", f"the member {name[:64]!r} starts with '{ENVELOPE}', kept for the envelope")
    if type_name in registry:
        return registry.from_json(data, type_name)
    flat: dict[str, Value] = {}
    is_exact = _flatten(data, "", flat)
    return flat if is_exact and flat else {**flat, **_document(data)}


def _document(value: Any) -> dict[str, Value]:
    return {_DATA_JSON: strict_json.dumps(value)}


def _flatten(data: dict[str, Any], prefix: str, flat: dict[str, Value]) -> bool:
    """Add to `flat` what attributes can hold; returns whether that is all."""
    is_exact = True
    for key, value in data.items():
        name = prefix + key
        if isinstance(value, dict):
            is_exact &= bool(value) and "." not in key and _flatten(value, f"{name}.", flat)
        elif "." in key or name in flat or not _holds(value, name):
            is_exact = False
        else:
            flat[name] = value
    return is_exact


def _holds(value: Any, name: str = "x") -> bool:
    """Whether an attribute of this name can hold a JSON value."""
    try:
        check_name(name)
        for element in value if isinstance(value, list) else [value]:
            plain_scalar(element)
    except EventError:
        return False
    return True


# ---------------------------------------------------------------- out


def context_of(event: Event, origin: str) -> dict[str, ContextValue]:
    """The context attributes of the CloudEvent that an event is; `origin` is its source if it has none."""
    facts = facts_of(event)
    source = quote(event.source, safe=_URI_CHARACTERS) if event.source else origin
    required = {"id": event.id or "none", "source": source, "type": event.type or DEFAULT_TYPE}
    others = {name: value for name, value in facts.items() if name in OWN or is_carried(name, value)}
    return {"specversion": "1.0", **others, **required}


def facts_of(event: Event) -> dict[str, ContextValue]:
    """The context attributes that an event has, by their CloudEvents names; nothing is made up."""
    facts: dict[str, ContextValue] = {"specversion": "1.0"}
    for name in ("id", "source", "type", "subject"):
        if (text := getattr(event, name)) is not None:
            facts[name] = text
    if event.time is not None:
        facts["time"] = format_timestamp(event.time)
    for name, value in event.attributes.items():
        if _is_extension(name) and isinstance(value, str | int):
            facts[name.removeprefix(ENVELOPE)] = value
    if "datacontenttype" not in facts and _has_json(event):
        facts["datacontenttype"] = "application/json"
    return facts


def _is_extension(name: str) -> bool:
    """Whether an attribute has the name of one of the envelope, but for what our own context has."""
    bare = name.removeprefix(ENVELOPE)
    return bare != name and bare not in OWN and is_extension_name(bare)


def _is_envelope(name: str, value: Value) -> bool:
    """Whether an attribute is one of the envelope, and fit for it; programs may publish anything."""
    return name.startswith(ENVELOPE) and is_carried(name.removeprefix(ENVELOPE), value)


def _has_json(event: Event) -> bool:
    attributes = event.attributes
    if _decoded(attributes.get(_DATA_BASE64)) is not None:
        return False
    return any(not _is_envelope(name, value) for name, value in attributes.items())


def payload_of(event: Event) -> Payload:
    """The data of the CloudEvent that an event is."""
    attributes = event.attributes
    if (content := _decoded(attributes.get(_DATA_BASE64))) is not None:
        return Binary(content)
    if (document := _parsed(attributes.get(_DATA_JSON))) is not None:
        return document
    content_type = attributes.get(_CONTENT_TYPE)
    if (data := attributes.get(_DATA)) is not None:
        if isinstance(data, str) and isinstance(content_type, str) and not is_json(content_type):
            return Text(data)
        return Json(data)
    members = {name: value for name, value in attributes.items() if not _is_envelope(name, value)}
    return Json(_nested(members)) if members else None


def _decoded(value: Value | None) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        return None


def _parsed(value: Value | None) -> Json | None:
    try:
        return Json(strict_json.loads(value)) if isinstance(value, str) else None
    except strict_json.JsonError:
        return None


def _nested(attributes: Mapping[str, Value]) -> dict[str, Any]:
    """Dotted names as nested objects; a name that would be an object and a value stays dotted."""
    tree: dict[str, Any] = {}
    for name, value in attributes.items():
        *objects, last = name.split(".")
        node: Any = tree
        for part in objects:
            node = node.setdefault(part, {}) if isinstance(node, dict) else None
        if isinstance(node, dict) and last not in node:
            node[last] = value
        else:
            tree[name] = value
    return tree


def structured(event: Event, origin: str) -> bytes:
    """The event in the JSON event format, on one line."""
    document: dict[str, Any] = dict(context_of(event, origin))
    match payload_of(event):
        case Json(value):
            document["data"] = value
        case Text(text):
            document["data"] = text
        case Binary(content):
            document["data_base64"] = base64.b64encode(content).decode("ascii")
    return msgspec.json.encode(document)


def text_of(value: ContextValue) -> str:
    """The canonical string of a context attribute (CloudEvents, type system)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
