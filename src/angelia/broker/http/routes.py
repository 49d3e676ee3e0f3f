"""What the door answers: one function a method, but for streams (`sse.py`) and sockets (`websocket.py`)."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from angelia.broker.http import strict_json
from angelia.broker.http.codec import events_of_message
from angelia.broker.http.door import Door
from angelia.broker.http.openapi import document
from angelia.broker.http.problem import Problem
from angelia.broker.http.resource import Resource
from angelia.errors import RequestError
from angelia.types import from_json_schema, to_json_schema

__all__ = [
    "confirm_subscription",
    "create_subscription",
    "define_type",
    "delete_subscription",
    "get_health",
    "get_metrics",
    "get_openapi",
    "get_subscription",
    "get_topology",
    "get_type",
    "list_subscriptions",
    "list_types",
    "post_events",
    "put_subscription",
    "put_type",
    "upgrade_required",
]

SCHEMA = "application/schema+json"


def _door(request: Request) -> Door:
    door: Door = request.app.state.door
    return door


def _json(value: Any, status: int = 200, *, media_type: str = "application/json", **headers: str) -> Response:
    return Response(msgspec.json.encode(value), status, headers=headers, media_type=media_type)


async def _document(request: Request) -> Any:
    """The JSON body of a request that is not an event."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise Problem(415, "unsupported-media-type", "send application/json")
    try:
        return strict_json.loads(await _door(request).read_body(request))
    except strict_json.JsonError as error:
        raise Problem(400, "invalid-json", f"body: {error}", attribute="body") from None


# ------------------------------------------------ events


async def post_events(request: Request) -> Response:
    """Publish the events of a message: all, or none if one is not valid."""
    door = _door(request)
    body = await door.read_body(request)
    events = events_of_message(request.headers.raw, body, door.service.registry, door.settings.max_batch)
    await door.publish(events)
    return _json({"accepted": len(events)}, 202)


async def upgrade_required(request: Request) -> Response:
    """A plain GET of the WebSocket's address."""
    detail = "this is a WebSocket; connect with the sub-protocol cloudevents.json"
    raise Problem(426, "upgrade-required", detail, headers={"Upgrade": "websocket", "Connection": "Upgrade"})


# ------------------------------------------------ subscriptions


async def list_subscriptions(request: Request) -> Response:
    """All subscriptions."""
    return _json([webhook.document() for webhook in _door(request).webhooks])


async def create_subscription(request: Request) -> Response:
    """Subscribe a sink."""
    door = _door(request)
    resource = Resource(await _document(request), door.service.registry)
    webhook = await door.webhooks.create(resource)
    return _json(webhook.document(), 201, Location=f"/subscriptions/{webhook.name}")


async def get_subscription(request: Request) -> Response:
    """One subscription, with the state of its delivery."""
    return _json(_door(request).webhooks.get(request.path_params["id"]).document())


async def put_subscription(request: Request) -> Response:
    """Change a subscription."""
    door, name = _door(request), request.path_params["id"]
    door.webhooks.get(name)
    given = await _document(request)
    if isinstance(given, dict) and given.get("id", name) != name:
        raise Problem(400, "invalid-subscription", "id: is not that of the address", attribute="id")
    return _json((await door.webhooks.replace(name, Resource(given, door.service.registry))).document())


async def delete_subscription(request: Request) -> Response:
    """Unsubscribe; answers with the subscription as it was."""
    return _json((await _door(request).webhooks.remove(request.path_params["id"])).document())


async def confirm_subscription(request: Request) -> Response:
    """A sink grants permission by the callback that it was given."""
    rate = request.headers.get("webhook-allowed-rate")
    key = request.query_params.get("key", "")
    webhook = await _door(request).webhooks.confirm(request.path_params["id"], key, rate)
    return _json({"id": webhook.name, "status": webhook.delivery.status})


# ------------------------------------------------ types


async def list_types(request: Request) -> Response:
    """All event types, parents before children."""
    registry = _door(request).service.registry
    types = [registry.get(name) for name in registry]
    return _json(
        [
            {
                "name": one.name,
                "parent": one.parent,
                "version": one.version,
                "owner": one.owner,
                "doc": one.doc,
            }
            for one in types
        ]
    )


async def get_type(request: Request) -> Response:
    """An event type as JSON Schema; with `?inherited=true`, what it inherits is written out."""
    registry = _door(request).service.registry
    inherited = request.query_params.get("inherited", "false")
    if inherited not in ("true", "false"):
        raise Problem(400, "invalid-parameter", "inherited is true or false", attribute="inherited")
    event_type = registry.get(request.path_params["name"])
    schema = to_json_schema(event_type, registry if inherited == "true" else None)
    return _json(schema, media_type=SCHEMA)


async def define_type(request: Request) -> Response:
    """Define the type that a JSON Schema describes."""
    return await _define(request, None)


async def put_type(request: Request) -> Response:
    """Define, or change, the type of this name."""
    return await _define(request, request.path_params["name"])


async def _define(request: Request, name: str | None) -> Response:
    door = _door(request)
    schema = await _document(request)
    if name is not None and isinstance(schema, dict) and schema.get("$id", name) != name:
        raise Problem(400, "invalid-type", "$id: is not the name in the address", attribute="$id")
    event_type = from_json_schema(schema, name)
    is_known = event_type.name in door.service.registry
    try:
        await door.client.define(event_type)
    except RequestError as error:
        raise Problem(409 if is_known else 400, "invalid-type", str(error)) from None
    found = door.service.registry.get(event_type.name)
    location = f"/types/{found.name}"
    return _json(to_json_schema(found), 200 if is_known else 201, media_type=SCHEMA, Location=location)


# ------------------------------------------------ the broker


async def get_metrics(request: Request) -> Response:
    """The metrics, for Prometheus."""
    body, content_type = _door(request).service.metrics.exposition(request.headers.get("accept", ""))
    return Response(body, headers={"Content-Type": content_type})


async def get_health(request: Request) -> Response:
    """Whether the broker works."""
    door = _door(request)
    if door.closing.is_set() or not door.service.is_healthy():
        return _json({"status": "unhealthy", "broker": door.service.name}, 503)
    return _json({"status": "ok", "broker": door.service.name})


async def get_topology(request: Request) -> Response:
    """The broker, its peers, and what it knows of the network."""
    return _json(_door(request).service.topology())


async def get_openapi(request: Request) -> Response:
    """The interface, as OpenAPI 3.1."""
    return _json(document())
