"""The official `cloudevents` package as the oracle: what it sends we accept, what we send it reads."""

import json
from datetime import UTC, datetime

import pytest
from cloudevents.core.bindings import http as binding
from cloudevents.core.bindings.http import HTTPMessage
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from cloudevents.v1.conversion import to_binary as old_to_binary
from cloudevents.v1.conversion import to_structured as old_to_structured
from cloudevents.v1.http import CloudEvent as OldCloudEvent
from cloudevents.v1.http import from_http as old_from_http
from tests.broker.http.helpers import BATCH, LOCAL, Sink, asynchronous, door, eventually, sse

from angelia import TypeRegistry
from angelia.broker.http.codec import binary_message, events_of_message, structured_message

AT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)

CASES = {
    "an object": ({}, {"price": 420, "deep": {"er": [1, 2]}}),
    "an object with what no attribute can hold": ({}, {"a": None, "b": {}, "c": [{"d": 1}], "e.f": 2}),
    "an empty object": ({}, {}),
    "no data": ({}, None),
    "text": ({"datacontenttype": "text/plain"}, "grüße & more"),
    "XML": ({"datacontenttype": "application/xml"}, "<much wow='xml'/>"),
    "bytes": ({"datacontenttype": "application/octet-stream"}, b"\x00\x01\xfe\xff"),
    "another JSON type": ({"datacontenttype": "application/vnd.example+json"}, {"x": True}),
    "all attributes": (
        {
            "id": "é/1 %",
            "subject": 'sub "ject" 100% €',
            "dataschema": "https://example.com/schema?x=1",
            "datacontenttype": "application/json",
            "time": AT,
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "emoji": "😀",
        },
        {"x": 1},
    ),
}


def made(attributes, data, number=0):
    own = {"id": f"n{number}", "source": "https://example.com/s", "type": "com.example.made", "time": AT}
    return CloudEvent({**own, **attributes}, data)


def assert_same(read, sent):
    found, wanted = dict(read.get_attributes()), dict(sent.get_attributes())
    if sent.get_data() is not None and not isinstance(sent.get_data(), bytes):
        wanted.setdefault("datacontenttype", "application/json")
    assert found == wanted
    assert read.get_data() == sent.get_data()


def accepted(message, content=None):
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in message.headers.items()]
    return events_of_message(headers, message.body, TypeRegistry(), 100)


@pytest.mark.parametrize("out", [binary_message, structured_message])
@pytest.mark.parametrize("into", [binding.to_binary_event, binding.to_structured_event])
@pytest.mark.parametrize(("attributes", "data"), CASES.values(), ids=CASES)
def test_what_the_package_writes_comes_back_as_it_was(attributes, data, into, out):
    sent = made(attributes, data)
    (event,) = accepted(into(sent))
    headers, body = out(event, "/here")
    if out is binary_message:
        read = binding.from_binary_event(HTTPMessage(headers, body))
    else:
        read = binding.from_structured_event(HTTPMessage(headers, body))
    assert_same(read, sent)


@pytest.mark.parametrize("into", [old_to_binary, old_to_structured])
def test_what_the_package_wrote_in_its_first_version_is_read(into):
    sent = OldCloudEvent({"source": "/s", "type": "t", "subject": "a b", "myext": "e"}, {"x": [1, 2]})
    headers, body = into(sent)
    found = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    (event,) = events_of_message(found, body, TypeRegistry(), 1)
    read = old_from_http(*binary_message(event, "/here"))
    assert read.data == sent.data
    assert read["id"] == sent["id"]
    assert event.subject == "a b"
    assert event["ce-myext"] == "e"


@asynchronous
async def test_events_of_the_package_go_in_by_http_and_come_out_of_a_stream():
    async with door() as opened, sse(opened) as stream:
        for number, (attributes, data) in enumerate(CASES.values()):
            for make in (binding.to_binary_event, binding.to_structured_event):
                sent = made(attributes, data, number)
                message = make(sent)
                response = await opened.http.post("/events", content=message.body, headers=message.headers)
                assert response.status_code == 202, response.text
                assert_same(JSONFormat().read(CloudEvent, (await stream.next())["data"]), sent)


@asynchronous
async def test_a_batch_of_the_package_goes_in():
    sent = [made(attributes, data, number) for number, (attributes, data) in enumerate(CASES.values())]
    batch = [json.loads(JSONFormat().write(one)) for one in sent]
    async with door() as opened, sse(opened) as stream:
        assert (await opened.http.post("/events", json=batch, headers=BATCH)).status_code == 202
        for one in sent:
            assert_same(JSONFormat().read(CloudEvent, (await stream.next())["data"]), one)


@pytest.mark.parametrize("mode", ["binary", "structured"])
@asynchronous
async def test_the_package_reads_what_a_webhook_gets(mode):
    async with door(webhook_targets=LOCAL) as opened, Sink().open() as sink:
        subscription = {"sink": sink.url, "protocol": "HTTP", "protocolsettings": {"contentmode": mode}}
        assert (await opened.http.post("/subscriptions", json=subscription)).status_code == 201
        sent = [made(attributes, data, number) for number, (attributes, data) in enumerate(CASES.values())]
        for one in sent:
            message = binding.to_structured_event(one)
            await opened.http.post("/events", content=message.body, headers=message.headers)
        await eventually(lambda: len(sink.deliveries) == len(sent))
        for (_, _, headers, body), one in zip(sink.deliveries, sent, strict=True):
            own = {name: value for name, value in headers.items() if name[:3] in ("ce-", "con")}
            assert_same(binding.from_http_event(HTTPMessage(own, body)), one)
