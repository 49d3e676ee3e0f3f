"""Whatever comes to POST /events: an answer that says what was wrong, never a failure of ours."""

import json
import socket

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.http.helpers import cloudevent

FUZZ = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

TYPES = st.sampled_from(
    [
        "application/cloudevents+json",
        "application/cloudevents-batch+json",
        "application/json",
        "text/plain; charset=utf-16",
        "application/cloudevents+json; charset=x",
        "",
        "a/b; c",
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)
MEMBERS = st.sampled_from(
    [
        "specversion",
        "id",
        "source",
        "type",
        "subject",
        "time",
        "datacontenttype",
        "dataschema",
        "data",
        "data_base64",
        "x",
        "X",
    ]
)
ALMOST = st.dictionaries(MEMBERS, DOCUMENTS, max_size=4).map(lambda changes: cloudevent() | changes)
BODIES = (
    st.binary(max_size=200)
    | (DOCUMENTS | ALMOST | st.lists(ALMOST, max_size=3)).map(lambda value: json.dumps(value).encode())
    | ALMOST.flatmap(
        lambda value: st.integers(0, 80).map(
            lambda cut: json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")[cut:]
        )
    )
)
HEADER_NAMES = st.sampled_from(
    ["ce-id", "ce-source", "ce-type", "ce-specversion", "ce-time", "ce-x", "ce-", "ce-data", "ce-X-Y"]
)
HEADER_VALUES = st.binary(max_size=20).map(lambda raw: bytes(b for b in raw if b >= 32 and b != 127).strip())


def answered(response):
    assert response.status_code in (202, 400, 413, 415), response.text
    if response.status_code != 202:
        problem = response.json()
        assert problem["status"] == response.status_code
        assert problem["detail"]


@FUZZ
@given(content_type=TYPES, body=BODIES)
def test_any_body(live, content_type, body):
    answered(live.http.post("/events", content=body, headers={"Content-Type": content_type}))


@FUZZ
@given(
    headers=st.lists(st.tuples(HEADER_NAMES, HEADER_VALUES), max_size=8),
    body=st.binary(max_size=50),
    content_type=TYPES,
)
def test_any_headers(live, headers, body, content_type):
    base = [("ce-specversion", b"1.0"), ("ce-id", b"1"), ("ce-source", b"/"), ("ce-type", b"t")]
    answered(
        live.http.post(
            "/events", content=body, headers=[*base, ("Content-Type", content_type.encode()), *headers]
        )
    )


@FUZZ
@given(raw=st.binary(min_size=1, max_size=300))
def test_any_bytes_on_the_port(live, raw):
    with socket.create_connection(("127.0.0.1", live.port), timeout=5) as connection:
        connection.sendall(raw + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(4096)
    assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 2"))
    assert live.http.get("/healthz").status_code == 200


@FUZZ
@given(text=st.text(max_size=60), size=st.text(max_size=5))
def test_any_query_of_a_stream(live, text, size):
    params = {"filter": text, "size": size}
    with live.http.stream("GET", "/events", params=params) as response:
        assert response.status_code in (200, 400)


@FUZZ
@given(
    document=DOCUMENTS
    | st.dictionaries(st.sampled_from(["sink", "protocol", "filters", "types", "config"]), DOCUMENTS)
)
def test_any_subscription(live, document):
    response = live.http.post(
        "/subscriptions", content=json.dumps(document), headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 400, response.text


@FUZZ
@given(
    document=DOCUMENTS
    | st.dictionaries(st.sampled_from(["$id", "type", "properties", "required", "allOf"]), DOCUMENTS)
)
def test_any_type(live, document):
    text = json.dumps(document).replace("NaN", "0").replace("Infinity", "1")
    response = live.http.post("/types", content=text, headers={"Content-Type": "application/json"})
    assert response.status_code in (400, 201, 200), response.text
