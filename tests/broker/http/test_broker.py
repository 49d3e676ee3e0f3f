"""What the door tells of the broker: types, metrics, health, topology, OpenAPI; and who may come in."""

import jsonschema
import pytest
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families
from tests.broker.http.helpers import asynchronous, cloudevent, door, post
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from angelia.broker.http.app import ROUTES

QUOTE = {
    "$id": "shop.Quote",
    "description": "A price",
    "type": "object",
    "properties": {"price": {"type": "number"}, "note": {"type": "string"}},
    "required": ["price"],
}
SALE = {
    "$id": "shop.Sale",
    "allOf": [{"$ref": "shop.Quote"}],
    "type": "object",
    "properties": {"percent": {"type": "integer"}},
}


# ------------------------------------------------ types


@asynchronous
async def test_types_are_defined_shown_and_changed():
    async with door() as opened:
        response = await opened.http.post("/types", json=QUOTE)
        assert (response.status_code, response.headers["location"]) == (201, "/types/shop.Quote")
        assert response.headers["content-type"] == "application/schema+json"
        assert (await opened.http.post("/types", json=QUOTE)).status_code == 200
        assert (await opened.http.put("/types/shop.Sale", json=SALE)).status_code == 201
        listed = (await opened.http.get("/types")).json()
        assert [(one["name"], one["parent"], one["version"]) for one in listed] == [
            ("shop.Quote", None, 1),
            ("shop.Sale", "shop.Quote", 1),
        ]
        own = (await opened.http.get("/types/shop.Sale")).json()
        assert list(own["properties"]) == ["percent"]
        whole = (await opened.http.get("/types/shop.Sale", params={"inherited": "true"})).json()
        assert list(whole["properties"]) == ["price", "note", "percent"]
        jsonschema.validate({"price": 1, "percent": 2}, whole)
        grown = QUOTE | {"properties": {**QUOTE["properties"], "colour": {"type": ["string", "null"]}}}
        assert (await opened.http.put("/types/shop.Quote", json=grown)).status_code == 200
        assert (await opened.http.get("/types")).json()[0]["version"] == 2


@asynchronous
async def test_a_type_that_cannot_be_is_refused_with_a_reason():
    async with door() as opened:
        await opened.http.post("/types", json=QUOTE)
        broken = QUOTE | {"required": ["price", "note"]}
        response = await opened.http.put("/types/shop.Quote", json=broken)
        assert (response.status_code, "note" in response.json()["detail"]) == (409, True)
        for bad, part in [
            (QUOTE | {"$id": "no name"}, "type name"),
            (QUOTE | {"pattern": "x"}, "keyword 'pattern'"),
            ([], "JSON object"),
            ({"type": "object"}, "no name"),
            (SALE | {"allOf": [{"$ref": "nobody"}]}, "nobody"),
        ]:
            response = await opened.http.post("/types", json=bad)
            assert response.status_code == 400
            assert part in response.json()["detail"]
        response = await opened.http.put("/types/other", json=QUOTE)
        assert (response.status_code, response.json()["attribute"]) == (400, "$id")
        response = await opened.http.get("/types/shop.Quot")
        assert (response.status_code, "did you mean" in response.json()["detail"]) == (404, True)
        assert (await opened.http.get("/types/shop.Quote?inherited=maybe")).status_code == 400


# ------------------------------------------------ health, topology, metrics


@asynchronous
async def test_health_is_told():
    async with door() as opened:
        assert (await opened.http.get("/healthz")).json() == {"status": "ok", "broker": "b1"}
        opened.service.healthy = False
        response = await opened.http.get("/healthz")
        assert (response.status_code, response.json()["status"]) == (503, "unhealthy")


@asynchronous
async def test_the_topology_is_told():
    async with door() as opened:
        assert (await opened.http.get("/topology")).json()["broker"] == "b1"


@asynchronous
async def test_metrics_are_what_prometheus_reads():
    async with door() as opened:
        opened.service.metrics.count_in("t", 3)
        opened.service.metrics.observe_match(3e-6, 2)
        await post(opened, cloudevent())
        await post(opened, b"{")
        await opened.http.get("/subscriptions/nobody")
        await opened.http.request("BREW", "/pot")
        response = await opened.http.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain; version=")
        families = {family.name: family for family in text_string_to_metric_families(response.text)}
        assert families["angelia_events_in"].samples[0].labels == {"type": "t"}
        assert families["angelia_match_seconds"].type == "histogram"
        requests = {
            tuple(one.labels.values()): one.value for one in families["angelia_http_requests"].samples
        }
        assert requests["POST", "/events", "202"] == 1
        assert requests["POST", "/events", "400"] == 1
        assert requests["GET", "/subscriptions/{id}", "404"] == 1
        assert requests["(other)", "(none)", "404"] == 1
        assert families["angelia_http_streams"].samples[0].value == 0
        accept = {"Accept": "application/openmetrics-text"}
        assert (await opened.http.get("/metrics", headers=accept)).text.endswith("# EOF\n")


# ------------------------------------------------ who may come in


@asynchronous
async def test_with_tokens_only_who_has_one_comes_in():
    async with door(tokens=("one", "two")) as opened:
        for header in (
            None,
            "Bearer",
            "Bearer three",
            "Basic one",
            "one",
            "Bearer öne".encode("latin-1"),
        ):
            headers = {} if header is None else {"Authorization": header}
            for path in ("/events", "/metrics", "/types", "/openapi.json", "/nowhere", "/subscriptions/x"):
                response = await opened.http.get(path, headers=headers)
                assert response.status_code == 401
                assert response.headers["www-authenticate"] == "Bearer"
                assert response.json()["status"] == 401
        assert (await post(opened, cloudevent())).status_code == 401
        assert (await post(opened, cloudevent(), Authorization="Bearer two")).status_code == 202
        assert (await post(opened, cloudevent(), Authorization="bearer one")).status_code == 202
        assert (await opened.http.get("/healthz")).status_code == 200
        url = opened.url.replace("http", "ws") + "/ws"
        with pytest.raises(InvalidStatus) as caught:
            await connect(url, subprotocols=["cloudevents.json"], proxy=None)
        assert caught.value.response.status_code == 401
        headers = {"Authorization": "Bearer one"}
        async with connect(url, subprotocols=["cloudevents.json"], additional_headers=headers, proxy=None):
            pass


@asynchronous
async def test_pages_of_other_sites_are_kept_out():
    async with door() as opened:
        assert (await post(opened, cloudevent(), Origin="https://evil.example")).status_code == 403
        assert (await post(opened, cloudevent(), Origin="null")).status_code == 403
        assert (await post(opened, cloudevent(), Origin=opened.url)).status_code == 202


@asynchronous
async def test_a_wrong_path_or_method_is_told_as_a_problem():
    async with door() as opened:
        for response, status in (
            (await opened.http.get("/nowhere"), 404),
            (await opened.http.delete("/events"), 405),
            (await opened.http.get("/ws"), 426),
        ):
            assert response.status_code == status
            assert response.headers["content-type"] == "application/problem+json"
        response = await opened.http.options("/subscriptions")
        assert (response.status_code, response.headers["allow"]) == (204, "GET, POST, OPTIONS")


# ------------------------------------------------ OpenAPI


@pytest.fixture(scope="module")
def api(live):
    return live.http.get("/openapi.json").json()


def test_every_route_is_in_the_document_and_the_other_way_round(api):
    described = {(path, method.upper()) for path, item in api["paths"].items() for method in item}
    assert described == {(path, method) for path, handlers in ROUTES.items() for method in handlers}


def operations(api):
    for path, item in api["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def test_the_document_keeps_the_rules_of_openapi(api):
    assert api["openapi"].startswith("3.1")
    assert {"title", "version"} <= api["info"].keys()
    names = [operation["operationId"] for _, _, operation in operations(api)]
    assert len(names) == len(set(names))
    tags = {tag["name"] for tag in api["tags"]}
    for path, _, operation in operations(api):
        assert set(operation["tags"]) <= tags
        assert operation["responses"].keys() - {"default"}
        in_path = {one["name"] for one in operation.get("parameters", []) if one["in"] == "path"}
        assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}
        for one in operation.get("parameters", []):
            assert one["in"] in ("path", "query", "header")
            assert one["required"] is (one["in"] == "path")
            assert one["schema"]
        for response in operation["responses"].values():
            assert "description" in response or "$ref" in response
        if "requestBody" in operation:
            assert operation["requestBody"]["content"]


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_reference_leads_somewhere_and_every_component_is_used(api):
    found = set(references(api))
    for reference in found:
        place = api
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]
    for name in api["components"]["schemas"]:
        assert f"#/components/schemas/{name}" in found


def schemas(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "schema":
                yield inner
            yield from schemas(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from schemas(inner)


def test_every_schema_is_one(api):
    for schema in [*api["components"]["schemas"].values(), *schemas(api["paths"])]:
        Draft202012Validator.check_schema(schema)


def validator(api, name):
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": api["components"]})


def test_what_the_door_answers_is_what_the_document_says(live, api):
    validator(api, "Problem").validate(live.http.post("/events", content=b"x").json())
    validator(api, "Problem").validate(live.http.get("/events?filter=x+y").json())
    live.http.post("/types", json=QUOTE)
    for one in live.http.get("/types").json():
        validator(api, "TypeSummary").validate(one)


@asynchronous
async def test_a_subscription_is_what_the_document_says():
    from tests.broker.http.helpers import LOCAL, Sink

    async with door(webhook_targets=LOCAL) as opened, Sink().open() as sink:
        given = {
            "sink": sink.url,
            "protocol": "HTTP",
            "filters": [{"any": [{"exact": {"type": "t"}}, {"not": {"angelia": "x > 1"}}]}],
            "sinkcredential": {"credentialtype": "PLAIN", "identifier": "a", "secret": "b"},
        }
        api = (await opened.http.get("/openapi.json")).json()
        validator(api, "SubscriptionRequest").validate(given)
        created = (await opened.http.post("/subscriptions", json=given)).json()
        validator(api, "Subscription").validate(created)


@pytest.mark.parametrize("bad", [{"id": None}, {"specversion": "0.3"}, {"myext": {}}, {"time": 1}])
def test_the_schema_of_events_refuses_what_the_door_refuses(live, api, bad):
    document = {name: value for name, value in (cloudevent() | bad).items() if value is not None}
    assert not validator(api, "CloudEvent").is_valid(document)
    headers = {"Content-Type": "application/cloudevents+json"}
    assert live.http.post("/events", json=document, headers=headers).status_code == 400
    validator(api, "CloudEvent").validate(cloudevent(subject="s", myext=3))
