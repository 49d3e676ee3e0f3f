"""The interface of the door, as OpenAPI 3.1."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

__all__ = ["document"]

Json = dict[str, Any]


@cache
def document() -> Json:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Angelia",
            "version": version("angelia"),
            "summary": "The HTTP door of a broker",
            "description": "Publish and subscribe with CloudEvents 1.0. Errors are as RFC 9457 says.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"token": []}],
        "tags": [{"name": name} for name in ("events", "subscriptions", "types", "broker")],
        "paths": {**_EVENTS, **_SUBSCRIPTIONS, **_TYPES, **_BROKER},
        "components": {
            "schemas": _SCHEMAS,
            "responses": {"Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


# ------------------------------------------------ parts


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(name: str, tag: str, summary: str, responses: dict[str, Json], **more: Any) -> Json:
    problem = {"$ref": "#/components/responses/Problem"}
    return {
        "operationId": name,
        "tags": [tag],
        "summary": summary,
        **more,
        "responses": {**responses, "default": problem},
    }


def _answer(text: str, schema: Json, media_type: str = "application/json") -> Json:
    return {"description": text, "content": {media_type: {"schema": schema}}}


def _located(answer: Json) -> Json:
    return {**answer, "headers": {"Location": {"description": "its address", "schema": {"type": "string"}}}}


def _body(schema: Json, *media_types: str) -> Json:
    return {"required": True, "content": {media_type: {"schema": schema} for media_type in media_types}}


def _parameter(name: str, place: str, text: str, schema: Json | None = None) -> Json:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": text,
        "schema": schema or {"type": "string"},
    }


_PROBLEM = {
    "description": "What went wrong, and which attribute is at fault",
    "content": {"application/problem+json": {"schema": _ref("Problem")}},
}
_STREAM_PARAMETERS = [
    _parameter("filter", "query", "A text of the filter language, such as `price < 500`"),
    _parameter("size", "query", "How many events behind a reader may be", {"type": "integer", "minimum": 1}),
    _parameter(
        "policy",
        "query",
        "What happens to a reader that is further behind",
        {"type": "string", "enum": ["drop_oldest", "disconnect"], "default": "drop_oldest"},
    ),
]

# ------------------------------------------------ paths

_EVENTS: Json = {
    "/events": {
        "post": _operation(
            "publishEvents",
            "events",
            "Publish events: one, or a batch of which all or none are accepted",
            {
                "202": _answer(
                    "Accepted",
                    {
                        "type": "object",
                        "properties": {"accepted": {"type": "integer"}},
                        "required": ["accepted"],
                    },
                )
            },
            description="In binary mode, attributes are `ce-` headers, and the body is the data.",
            requestBody={
                "required": True,
                "content": {
                    "application/cloudevents+json": {"schema": _ref("CloudEvent")},
                    "application/cloudevents-batch+json": {
                        "schema": {"type": "array", "items": _ref("CloudEvent")}
                    },
                    "*/*": {"schema": {}},
                },
            },
            parameters=[
                _parameter(f"ce-{name}", "header", f"`{name}`, in binary mode")
                for name in ("specversion", "id", "source", "type", "subject", "time", "dataschema")
            ],
        ),
        "get": _operation(
            "streamEvents",
            "events",
            "Events that match a filter, as server-sent events",
            {
                "200": _answer(
                    "A stream. Messages are CloudEvents in JSON; `gap` tells of events that were missed, "
                    "`end` why the stream ends.",
                    {"type": "string"},
                    "text/event-stream",
                )
            },
            parameters=[
                *_STREAM_PARAMETERS,
                _parameter(
                    "Last-Event-ID", "header", "The id of the last message that was read, to go on after it"
                ),
            ],
        ),
    },
    "/ws": {
        "get": _operation(
            "openSocket",
            "events",
            "CloudEvents both ways, over a WebSocket with the sub-protocol `cloudevents.json`",
            {"101": {"description": "Switching protocols"}},
            description="What is sent is published; with `filter`, what matches is received.",
            parameters=[
                *_STREAM_PARAMETERS,
                _parameter("Sec-WebSocket-Protocol", "header", "Must offer `cloudevents.json`"),
            ],
        )
    },
}

_ID = [_parameter("id", "path", "The id of the subscription")]
_SUBSCRIPTIONS: Json = {
    "/subscriptions": {
        "get": _operation(
            "getSubscriptions",
            "subscriptions",
            "All subscriptions",
            {"200": _answer("The list", {"type": "array", "items": _ref("Subscription")})},
        ),
        "post": _operation(
            "createSubscription",
            "subscriptions",
            "Subscribe a sink; it is asked for permission first (OPTIONS, WebHook-Request-Origin)",
            {"201": _located(_answer("The subscription", _ref("Subscription")))},
            requestBody=_body(_ref("SubscriptionRequest"), "application/json"),
        ),
    },
    "/subscriptions/{id}": {
        "get": _operation(
            "getSubscription",
            "subscriptions",
            "A subscription, with the state of its delivery",
            {"200": _answer("The subscription", _ref("Subscription"))},
            parameters=_ID,
        ),
        "put": _operation(
            "updateSubscription",
            "subscriptions",
            "Change a subscription",
            {"200": _answer("The subscription", _ref("Subscription"))},
            parameters=_ID,
            requestBody=_body(_ref("SubscriptionRequest"), "application/json"),
        ),
        "delete": _operation(
            "deleteSubscription",
            "subscriptions",
            "Unsubscribe",
            {"200": _answer("The subscription, as it was", _ref("Subscription"))},
            parameters=_ID,
        ),
    },
    "/subscriptions/{id}/confirmation": {
        method: _operation(
            name,
            "subscriptions",
            "A sink grants permission later, at the address it got as WebHook-Request-Callback",
            {
                "200": _answer(
                    "Granted",
                    {
                        "type": "object",
                        "properties": {"id": {"type": "string"}, "status": {"type": "string"}},
                    },
                )
            },
            parameters=[
                *_ID,
                _parameter("key", "query", "The key of that address"),
                _parameter("WebHook-Allowed-Rate", "header", "Requests a minute, or `*`"),
            ],
            security=[{}],
        )
        for method, name in (("get", "confirmSubscription"), ("post", "confirmSubscriptionByPost"))
    },
}

_JSON_SCHEMA = {"type": "object", "description": "A JSON Schema, draft 2020-12"}
_TYPE_BODY = _body(_JSON_SCHEMA, "application/json", "application/schema+json")
_SCHEMA_TYPE = "application/schema+json"
_DEFINED = {
    "201": _located(_answer("Defined", _JSON_SCHEMA, _SCHEMA_TYPE)),
    "200": _located(_answer("It was known; changed, if the schema differs", _JSON_SCHEMA, _SCHEMA_TYPE)),
}
_NAME = _parameter("name", "path", "The name of the type")
_TYPES: Json = {
    "/types": {
        "get": _operation(
            "getTypes",
            "types",
            "All event types, parents before children",
            {"200": _answer("The list", {"type": "array", "items": _ref("TypeSummary")})},
        ),
        "post": _operation(
            "defineType",
            "types",
            "Define an event type by a JSON Schema, named by its $id or title",
            _DEFINED,
            requestBody=_TYPE_BODY,
        ),
    },
    "/types/{name}": {
        "get": _operation(
            "getType",
            "types",
            "An event type, as JSON Schema",
            {"200": _answer("The schema", _JSON_SCHEMA, _SCHEMA_TYPE)},
            parameters=[
                _NAME,
                _parameter("inherited", "query", "Write out what it inherits", {"type": "boolean"}),
            ],
        ),
        "put": _operation(
            "putType",
            "types",
            "Define an event type, or change it in a compatible way",
            _DEFINED,
            parameters=[_NAME],
            requestBody=_TYPE_BODY,
        ),
    },
}

_HEALTH = {
    "type": "object",
    "properties": {"status": {"enum": ["ok", "unhealthy"]}, "broker": {"type": "string"}},
    "required": ["status", "broker"],
}
_BROKER: Json = {
    "/metrics": {
        "get": _operation(
            "getMetrics",
            "broker",
            "Metrics, for Prometheus",
            {"200": _answer("The metrics", {"type": "string"}, "text/plain")},
        )
    },
    "/healthz": {
        "get": _operation(
            "getHealth",
            "broker",
            "Whether the broker works",
            {"200": _answer("It works", _HEALTH), "503": _answer("It does not", _HEALTH)},
            security=[{}],
        )
    },
    "/topology": {
        "get": _operation(
            "getTopology",
            "broker",
            "The broker, its peers, and what it knows of the network",
            {"200": _answer("What it knows", {"type": "object"})},
        )
    },
    "/openapi.json": {
        "get": _operation(
            "getOpenapi", "broker", "This document", {"200": _answer("OpenAPI 3.1", {"type": "object"})}
        )
    },
}

# ------------------------------------------------ schemas

_STRINGS = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string", "minLength": 1}}
_SETTINGS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "method": {"enum": ["POST", "PUT"], "default": "POST"},
        "contentmode": {"enum": ["binary", "structured"], "default": "binary"},
        "headers": {"type": "object", "maxProperties": 32, "additionalProperties": {"type": "string"}},
    },
}
_CREDENTIAL = {
    "type": "object",
    "description": "Secrets are not shown again",
    "properties": {
        "credentialtype": {"enum": ["PLAIN", "ACCESSTOKEN"]},
        "identifier": {"type": "string"},
        "secret": {"type": "string", "writeOnly": True},
        "accesstoken": {"type": "string", "writeOnly": True},
        "accesstokenexpiresutc": {"type": "string", "format": "date-time"},
        "accesstokentype": {"type": "string", "default": "bearer"},
    },
    "required": ["credentialtype"],
}
_REQUEST_PROPERTIES: Json = {
    "sink": {"type": "string", "format": "uri", "description": "Where events are delivered to"},
    "protocol": {"const": "HTTP"},
    "protocolsettings": _SETTINGS,
    "sinkcredential": _CREDENTIAL,
    "source": {"type": "string", "format": "uri-reference"},
    "types": {"type": "array", "items": {"type": "string", "minLength": 1}},
    "filters": {"type": "array", "items": _ref("Filter"), "description": "All of them must be true"},
    "config": {"type": "object", "maxProperties": 0},
}

_SCHEMAS: Json = {
    "CloudEvent": {
        "type": "object",
        "description": "A CloudEvent 1.0 in the JSON event format; further members are extensions",
        "properties": {
            "specversion": {"const": "1.0"},
            "id": {"type": "string", "minLength": 1},
            "source": {"type": "string", "minLength": 1, "format": "uri-reference"},
            "type": {"type": "string", "minLength": 1},
            "subject": {"type": ["string", "null"], "minLength": 1},
            "time": {"type": ["string", "null"], "format": "date-time"},
            "datacontenttype": {"type": ["string", "null"], "minLength": 1},
            "dataschema": {"type": ["string", "null"], "minLength": 1, "format": "uri"},
            "data": {
                "description": "If it is a JSON object, its members are the attributes that filters see"
            },
            "data_base64": {"type": ["string", "null"], "contentEncoding": "base64"},
        },
        "required": ["specversion", "id", "source", "type"],
        "additionalProperties": {"type": ["string", "integer", "boolean", "null"]},
    },
    "Filter": {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {
            **dict.fromkeys(("exact", "prefix", "suffix"), _STRINGS),
            **{
                dialect: {"type": "array", "minItems": 1, "items": _ref("Filter")}
                for dialect in ("all", "any")
            },
            "not": _ref("Filter"),
            "sql": {"type": "string", "description": "A CloudEvents SQL expression"},
            "angelia": {"type": "string", "description": "A text of the filter language"},
        },
    },
    "SubscriptionRequest": {
        "type": "object",
        "properties": {"id": {"type": "string"}, **_REQUEST_PROPERTIES},
        "required": ["sink", "protocol"],
        "additionalProperties": False,
    },
    "Subscription": {
        "type": "object",
        "properties": {"id": {"type": "string"}, **_REQUEST_PROPERTIES, "delivery": _ref("Delivery")},
        "required": ["id", "sink", "protocol", "delivery"],
    },
    "Delivery": {
        "type": "object",
        "description": "How deliveries go",
        "properties": {
            "status": {"enum": ["pending", "active", "ended"]},
            "reason": {"type": "string"},
            "rate": {"type": ["integer", "null"], "description": "Requests a minute; null: unlimited"},
            **{name: {"type": "integer"} for name in ("delivered", "retries", "failed", "queued", "dropped")},
            "last_status": {"type": ["integer", "null"]},
            "last_error": {"type": "string"},
            "last_delivery": {"type": ["string", "null"], "format": "date-time"},
            "next_attempt": {"type": ["string", "null"], "format": "date-time"},
        },
        "required": ["status", "delivered", "failed", "queued", "dropped"],
    },
    "TypeSummary": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "parent": {"type": ["string", "null"]},
            "version": {"type": "integer"},
            "owner": {"type": ["string", "null"]},
            "doc": {"type": "string"},
        },
        "required": ["name", "parent", "version"],
    },
    "Problem": {
        "type": "object",
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "attribute": {"type": "string", "description": "Which attribute is at fault"},
            "index": {"type": "integer", "description": "Which event of a batch is at fault, from 0"},
            "problems": {"type": "array", "items": {"type": "string"}},
            "column": {"type": "integer", "description": "Where in a filter the fault is, from 1"},
            "limit": {"type": "integer"},
        },
        "required": ["type", "title", "status", "detail"],
    },
}
