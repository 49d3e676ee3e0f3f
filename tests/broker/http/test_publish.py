"""POST /events: what is accepted, what is refused, and how the refusal reads."""

import base64
import json

import pytest
from tests.broker.http.helpers import BATCH, STRUCTURED, cloudevent

from angelia import EventType

HEADERS = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/tests", "ce-type": "test.Event"}


def structured(live, document):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return live.http.post("/events", content=body, headers=STRUCTURED)


def binary(live, body=b"", **headers):
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return live.http.post("/events", content=body, headers={**HEADERS, **given})


def assert_problem(response, status, attribute=None, part=""):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert problem["type"].startswith("urn:angelia:problem:")
    assert problem["title"]
    assert part in problem["detail"]
    if attribute is not None:
        assert problem["attribute"] == attribute
        assert attribute in problem["detail"] or attribute == "body"
    return problem


# ------------------------------------------------ accepted


def test_an_event_in_structured_mode_is_published(live):
    subscription = live.subscribe('@type = "test.Structured"')
    document = cloudevent(
        type="test.Structured",
        subject="s",
        time="2026-01-01T01:00:00+01:00",
        traceparent="00-ab",
        sequence=5,
        urgent=True,
        data={"price": 420, "order": {"total": 7.5, "lines": ["a", "b"]}},
    )
    response = structured(live, document)
    assert (response.status_code, response.json()) == (202, {"accepted": 1})
    (event,) = live.received(subscription)
    assert dict(event.attributes) == {
        "price": 420,
        "order.total": 7.5,
        "order.lines": ("a", "b"),
        "ce-traceparent": "00-ab",
        "ce-sequence": 5,
        "ce-urgent": True,
    }
    assert (event.id, event.source, event.subject) == ("1", "/tests", "s")
    assert event.time.isoformat() == "2026-01-01T00:00:00+00:00"


def test_an_event_in_binary_mode_is_published(live):
    subscription = live.subscribe('@type = "test.Binary"')
    response = binary(
        live,
        b'{"x": {"y": 1}}',
        content_type="application/json",
        ce_type="test.Binary",
        ce_subject="Euro%20%E2%82%AC%20%f0%9f%98%80",
        ce_quoted='"a \\"b\\" c"',
    )
    assert response.status_code == 202
    (event,) = live.received(subscription)
    assert dict(event.attributes) == {"x.y": 1, "ce-quoted": 'a "b" c'}
    assert event.subject == "Euro € 😀"


def test_a_batch_is_published_in_order(live):
    subscription = live.subscribe('@type = "test.Batch"')
    batch = [cloudevent(id=str(number), type="test.Batch", data={"n": number}) for number in range(5)]
    response = live.http.post("/events", json=batch, headers=BATCH)
    assert (response.status_code, response.json()) == (202, {"accepted": 5})
    assert [event["n"] for event in live.received(subscription)] == [0, 1, 2, 3, 4]


def test_an_empty_batch_is_valid(live):
    assert live.http.post("/events", json=[], headers=BATCH).json() == {"accepted": 0}


def test_of_a_batch_with_one_bad_event_nothing_is_published(live):
    subscription = live.subscribe('@type = "test.AllOrNothing"')
    batch = [cloudevent(id=str(number), type="test.AllOrNothing") for number in range(3)]
    batch[2] = cloudevent(type="test.AllOrNothing", source=None)
    problem = assert_problem(live.http.post("/events", json=batch, headers=BATCH), 400, "source")
    assert problem["index"] == 2
    assert live.received(subscription) == []


def test_json_without_a_content_type_is_taken_for_json(live):
    subscription = live.subscribe('@type = "test.Bare"')
    assert binary(live, b'{"x": 3}', ce_type="test.Bare").status_code == 202
    assert live.received(subscription)[0]["x"] == 3


def test_attributes_that_are_null_are_absent(live):
    assert structured(live, cloudevent() | {"subject": None, "time": None, "myext": None}).status_code == 202
    assert_problem(structured(live, cloudevent() | {"id": None}), 400, "id", "missing")


# ------------------------------------------------ refused, in structured mode

BAD_ATTRIBUTES = {
    "id missing": ({"id": None}, "id", "missing"),
    "source missing": ({"source": None}, "source", "missing"),
    "type missing": ({"type": None}, "type", "missing"),
    "specversion missing": ({"specversion": None}, "specversion", "missing"),
    "specversion of the past": ({"specversion": "0.3"}, "specversion", "1.0"),
    "specversion a number": ({"specversion": 1.0}, "specversion", "1.0"),
    "id empty": ({"id": ""}, "id", "empty"),
    "source empty": ({"source": ""}, "source", "empty"),
    "type empty": ({"type": ""}, "type", "empty"),
    "subject empty": ({"subject": ""}, "subject", "empty"),
    "id a number": ({"id": 7}, "id", "string"),
    "type an object": ({"type": {}}, "type", "object"),
    "source with a space": ({"source": "/a b"}, "source", "URI-reference"),
    "source with half an escape": ({"source": "/a%2"}, "source", "URI-reference"),
    "dataschema relative": ({"dataschema": "/schema"}, "dataschema", "absolute"),
    "dataschema empty": ({"dataschema": ""}, "dataschema", "empty"),
    "time not a time": ({"time": "yesterday"}, "time", "timestamp"),
    "time without a zone": ({"time": "2026-01-01T00:00:00"}, "time", "time zone"),
    "time on February 30": ({"time": "2026-02-30T00:00:00Z"}, "time", "valid"),
    "time a number": ({"time": 1}, "time", "string"),
    "datacontenttype not a media type": ({"datacontenttype": "json"}, "datacontenttype", "media type"),
    "datacontenttype empty": ({"datacontenttype": ""}, "datacontenttype", "empty"),
    "extension in upper case": ({"myExt": "x"}, "myExt", "lower-case"),
    "extension with a hyphen": ({"my-ext": "x"}, "my-ext", "lower-case"),
    "extension with an underscore": ({"my_ext": "x"}, "my_ext", "lower-case"),
    "extension a float": ({"myext": 1.5}, "myext", "string, an integer"),
    "extension an object": ({"myext": {}}, "myext", "object"),
    "extension an array": ({"myext": []}, "myext", "array"),
    "extension beyond 32 bits": ({"myext": 2**31}, "myext", "32 bits"),
    "extension with a control character": ({"myext": "a\u0007"}, "myext", "U+0007"),
    "subject with a newline": ({"subject": "a\nb"}, "subject", "U+000A"),
    "data and data_base64": ({"data_base64": "aGk="}, "data_base64", "one of them"),
    "data_base64 not Base64": ({"data": None, "data_base64": "!!"}, "data_base64", "Base64"),
    "data_base64 a number": ({"data": None, "data_base64": 3}, "data_base64", "Base64"),
    "data_base64 not the JSON it says": (
        {"data": None, "data_base64": "aGk=", "datacontenttype": "application/json"},
        "data_base64",
        "JSON",
    ),
    "text that is no string": ({"datacontenttype": "text/plain", "data": {"a": 1}}, "data", "string"),
    "a name that is ours": ({"data": {"ce-id": 1}}, "data", "kept for the envelope"),
}


@pytest.mark.parametrize(("changes", "attribute", "part"), BAD_ATTRIBUTES.values(), ids=BAD_ATTRIBUTES)
def test_a_bad_attribute_is_named(live, changes, attribute, part):
    document = {name: value for name, value in (cloudevent() | changes).items() if value is not None}
    assert_problem(structured(live, document), 400, attribute, part)


BAD_BODIES = {
    "not JSON": (b"{", "not valid JSON"),
    "nothing": (b"", "not valid JSON"),
    "NaN": (b'{"specversion": NaN}', "NaN"),
    "an infinite number": (json.dumps(cloudevent()).replace("1}", "1e999}").encode(), "too large"),
    "a member twice": (b'{"id": "1", "id": "2"}', "'id' twice"),
    "a member of the data twice": (b'{"data": {"a": 1, "a": 2}}', "'a' twice"),
    "bad UTF-8": (b'{"id": "\xff"}', "UTF-8 at byte 8"),
    "UTF-16": (json.dumps(cloudevent()).encode("utf-16"), "UTF-8"),
    "a string": (b'"x"', "JSON object"),
    "a list": (b"[]", "batch"),
    "a deep list": (b"[" * 100_000, "deeper"),
    "a deep object": (b'{"a":' * 500 + b"1" + b"}" * 500, "deeper"),
    "a number of many digits": (b'{"x": ' + b"9" * 5000 + b"}", "digits"),
}


@pytest.mark.parametrize(("body", "part"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_bad_body_is_refused(live, body, part):
    assert_problem(structured(live, body), 400, "body", part)


def test_a_lone_surrogate_in_data_is_refused(live):
    body = json.dumps(cloudevent()).replace('{"x": 1}', '{"x": "\\ud800"}').encode()
    assert_problem(structured(live, body), 400, "data", "Unicode")


def test_an_event_that_is_too_large_is_told_the_limit(live):
    assert_problem(structured(live, cloudevent(data={"x": "y" * 70_000})), 413, None, "65536")
    many = {f"a{number}": number for number in range(300)}
    assert_problem(structured(live, cloudevent(data=many)), 413, None, "256 attributes")


# ------------------------------------------------ refused, in binary mode

BAD_HEADERS = {
    "half an escape": ({"ce-subject": "100%"}, "subject", "percent-encoding"),
    "not an escape": ({"ce-subject": "a%zzb"}, "subject", "percent-encoding '%zz'"),
    "overlong UTF-8": ({"ce-subject": "%C0%A0"}, "subject", "UTF-8"),
    "bytes that are not ASCII": ({"ce-subject": "é".encode()}, "subject", "ASCII"),
    "a quote without an end": ({"ce-subject": '"abc'}, "subject", "double quote"),
    "an encoded control character": ({"ce-subject": "a%00b"}, "subject", "U+0000"),
    "an empty value": ({"ce-id": ""}, "id", "empty"),
    "datacontenttype as a header": ({"ce-datacontenttype": "text/plain"}, "datacontenttype", "Content-Type"),
    "a name with a hyphen": ({"ce-my-ext": "x"}, "my-ext", "lower-case"),
    "the name data": ({"ce-data": "x"}, "data", "lower-case"),
    "a content type that is none": ({"Content-Type": "json"}, "datacontenttype", "media type"),
}


@pytest.mark.parametrize(("headers", "attribute", "part"), BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_bad_header_names_its_attribute(live, headers, attribute, part):
    given = {**HEADERS, **headers}
    response = live.http.post("/events", headers=given)
    assert_problem(response, 400, attribute, part)


@pytest.mark.parametrize("name", ["id", "source", "type", "specversion"])
def test_a_missing_header_is_named(live, name):
    headers = {key: value for key, value in HEADERS.items() if key != f"ce-{name}"}
    assert_problem(live.http.post("/events", headers=headers), 400, name, "missing")


def test_a_header_twice_is_refused(live):
    headers = [*HEADERS.items(), ("ce-id", "2")]
    assert_problem(live.http.post("/events", headers=headers), 400, "id", "twice")


def test_json_that_is_none_is_refused_in_binary_mode(live):
    assert_problem(binary(live, b"{", content_type="application/json"), 400, "data", "not valid JSON")
    assert_problem(binary(live, b"hello"), 400, "data", "not valid JSON")


# ------------------------------------------------ other refusals


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/cloudevents+xml",
        "application/cloudevents",
        "application/cloudevents-batch+avro",
        "application/cloudevents+json; charset=iso-8859-1",
    ],
)
def test_what_is_not_a_cloudevent_is_an_unsupported_media_type(live, content_type):
    body = json.dumps(cloudevent()).encode()
    response = live.http.post("/events", content=body, headers={"Content-Type": content_type})
    assert_problem(response, 415)


def test_a_charset_that_is_utf8_is_fine(live):
    headers = {"Content-Type": "Application/CloudEvents+JSON; charset=UTF-8"}
    assert live.http.post("/events", json=cloudevent(), headers=headers).status_code == 202


def test_a_batch_is_a_list_of_not_too_many_events_with_ids_of_their_own(live):
    assert_problem(live.http.post("/events", json={}, headers=BATCH), 400, "body", "array")
    many = [cloudevent(id=str(number)) for number in range(51)]
    assert assert_problem(live.http.post("/events", json=many, headers=BATCH), 413)["limit"] == 50
    problem = assert_problem(
        live.http.post("/events", json=[cloudevent(), cloudevent()], headers=BATCH), 400, "id", "twice"
    )
    assert problem["index"] == 1
    assert_problem(live.http.post("/events", json=[[]], headers=BATCH), 400, "body", "event 0 of the batch")


def test_a_body_that_is_too_large_is_refused_announced_or_not(live):
    assert_problem(structured(live, b" " * 200_001), 413, None, "200000")

    def chunks():
        for _ in range(300):
            yield b" " * 1000

    response = live.http.post("/events", content=chunks(), headers=STRUCTURED)
    assert_problem(response, 413, None, "200000")


# ------------------------------------------------ typed events


@pytest.fixture(scope="module")
def quote(live):
    quote = EventType(
        "shop.Quote", {"price": "float", "at": "timestamp", "note": "string?", "tags": "string[]?"}
    )
    live.call(live.opened.bus.define(quote))


def quoted(**changes):
    data = {"price": 1, "at": "2026-01-01T00:00:00Z"} | changes
    return cloudevent(type="shop.Quote", data={name: value for name, value in data.items() if value != "-"})


def test_an_event_of_a_registered_type_is_checked_and_its_timestamps_are_read(live, quote):
    subscription = live.subscribe('shop.Quote: at < t"2026-01-02T00:00:00Z"')
    given = quoted(note=None) | {"traceparent": "00-ab", "dataschema": "https://example.com/s"}
    assert structured(live, given).status_code == 202
    (event,) = live.received(subscription)
    assert event["at"].year == 2026
    assert "note" not in event
    assert event["ce-traceparent"] == "00-ab"


@pytest.mark.parametrize(
    ("changes", "attribute", "part"),
    [
        ({"price": "-"}, "price", "missing"),
        ({"price": "1"}, "price", "expected float, got string"),
        ({"at": "noon"}, "at", "not a timestamp"),
        ({"colour": "red"}, "colour", "unknown"),
        ({"note": {"a": 1}}, "note.a", "unknown"),
        ({"tags": [1]}, "tags", "list of string"),
        ({"tags": [{}]}, "tags", "dict"),
    ],
)
def test_an_event_that_does_not_conform_is_refused_by_attribute(live, quote, changes, attribute, part):
    problem = assert_problem(structured(live, quoted(**changes)), 400, attribute, part)
    assert problem["type"] in ("urn:angelia:problem:nonconforming", "urn:angelia:problem:invalid-event")


def test_all_that_does_not_conform_is_told(live, quote):
    problem = assert_problem(structured(live, quoted(price="-", colour="red")), 400)
    assert len(problem["problems"]) == 2


def test_data_that_is_no_object_cannot_be_of_a_type_with_attributes(live, quote):
    text = cloudevent(type="shop.Quote", datacontenttype="text/plain", data="hi")
    assert_problem(structured(live, text), 400, "price", "missing")


def test_binary_data_is_kept(live):
    subscription = live.subscribe('@type = "test.Bytes"')
    assert binary(live, b"\x00\xff", content_type="image/png", ce_type="test.Bytes").status_code == 202
    (event,) = live.received(subscription)
    assert base64.b64decode(event["ce-data_base64"]) == b"\x00\xff"
    assert event["ce-datacontenttype"] == "image/png"
