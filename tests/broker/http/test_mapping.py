"""A CloudEvent that goes in comes out the same, and filters see what is in it."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.http.helpers import cloudevent

from angelia import Event, Filter, TypeRegistry
from angelia.broker.http import strict_json
from angelia.broker.http.codec import binary_message, events_of_message, structured_event, structured_message
from angelia.broker.http.mapping import context_of, facts_of, payload_of, structured, text_of

NOTHING = TypeRegistry()

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
NAMES = st.sampled_from(["a", "b", "a.b", "", "@x", "Ünï", "x y", "\n", "c-e", "deep"]) | TEXT
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
VALUES = (
    st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=12)
    | st.integers(-(2**31), 2**31 - 1)
    | st.booleans()
)
EXTENSIONS = st.dictionaries(
    st.from_regex(r"[a-z0-9]{1,20}", fullmatch=True).filter(
        lambda name: (
            name not in ("data", "id", "type", "source", "time", "subject", "specversion")
            and not name.startswith("data")
        )
    ),
    VALUES,
    max_size=3,
)


def read(document):
    return structured_event(strict_json.loads(json.dumps(document)), NOTHING)


@given(JSON, EXTENSIONS)
@settings(max_examples=200, deadline=None)
def test_any_json_data_and_extensions_come_back_as_they_were(data, extensions):
    document = cloudevent(subject="s", datacontenttype="application/json") | extensions | {"data": data}
    if isinstance(data, dict) and any(name.startswith("ce-") for name in data):
        return
    event = read(document)
    assert json.loads(structured(event, "/here")) == document
    headers, body = binary_message(event, "/here")
    pairs = [(name.lower().encode(), value.encode("ascii")) for name, value in headers.items()]
    (again,) = events_of_message(pairs, body, NOTHING, 1)
    assert payload_of(again) == payload_of(event)
    found = facts_of(again)
    assert {name: found[name] for name in extensions} == {
        name: text_of(value)
        for name, value in extensions.items()  # headers are strings
    }


@given(
    st.binary(max_size=64),
    st.sampled_from(["image/png", "text/plain", "text/plain; charset=latin-1", "a/xml"]),
)
@settings(max_examples=150, deadline=None)
def test_any_bytes_come_back_as_they_were(content, content_type):
    pairs = [
        (b"ce-specversion", b"1.0"), (b"ce-id", b"1"), (b"ce-source", b"/s"), (b"ce-type", b"t"),
        (b"content-type", content_type.encode()),
    ]  # fmt: skip
    (event,) = events_of_message(pairs, content, NOTHING, 1)
    headers, body = binary_message(event, "/here")
    assert body == content
    assert headers["Content-Type"] == content_type
    document = json.loads(structured_message(event, "/here")[1])
    inside = document.get("data_base64")
    if content:
        found = document["data"].encode() if inside is None else base64.b64decode(inside)
        assert found == content


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        (cloudevent(data={"order": {"total": 7}}), "order.total > 5"),
        (cloudevent(data={"a": 1, "b": [{"c": 2}]}), "a = 1"),
        (cloudevent(data="hello"), 'ce-data prefix "hel"'),
        (cloudevent(data=42), "ce-data > 41"),
        (cloudevent(data=[1, 2]), "ce-data = 2"),
        (cloudevent(data="hello", datacontenttype="text/plain"), 'ce-data contains "ell"'),
        (cloudevent(sequence=5), "ce-sequence < 6"),
        (cloudevent(region="eu-1"), 'ce-region prefix "eu-"'),
        (cloudevent(datacontenttype="application/vnd.x+json"), 'ce-datacontenttype suffix "+json"'),
        (cloudevent(subject="s"), 'test.Event: @subject = "s" and @source = "/tests"'),
    ],
)
def test_filters_see_data_and_extensions(document, wanted):
    assert Filter.parse(wanted).matches(read(document))


def test_an_event_of_a_program_is_a_cloudevent_too():
    event = Event({"price": 1, "a": 1, "a.b": 2, "ce-Bad": 3, "ce-time": "x", "ce-data_base64": "!"})
    document = json.loads(structured(event, "/b1"))
    assert document == {
        "specversion": "1.0",
        "id": "none",
        "source": "/b1",
        "type": "angelia.Event",
        "datacontenttype": "application/json",
        "data": {"price": 1, "a": 1, "a.b": 2, "ce-Bad": 3, "ce-time": "x", "ce-data_base64": "!"},
    }


def test_a_source_that_is_no_uri_is_escaped_on_the_way_out():
    assert context_of(Event({}, source="my feed/ü"), "/b1")["source"] == "my%20feed/%C3%BC"


def test_what_a_program_publishes_cannot_break_the_frames_of_a_stream():
    event = Event({"ce-data_json": '{"a":\n1}', "ce-x": "a\nb", "ce-datacontenttype": "text/plain\r\nX: y"})
    assert b"\n" not in structured(event, "/b1")
    headers, _ = binary_message(event, "/b1")
    assert not any("\n" in value or "\r" in value for value in headers.values())
