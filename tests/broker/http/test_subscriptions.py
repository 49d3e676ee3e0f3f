"""The Subscriptions API, and deliveries to webhooks that are little servers of their own."""

import asyncio
import json
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from tests.broker.http.helpers import (
    LOCAL,
    Played,
    Sink,
    asynchronous,
    certificate,
    cloudevent,
    door,
    eventually,
    post,
)

from angelia import Event


def subscription(sink, **more):
    return {"sink": sink.url, "protocol": "HTTP", **more}


async def subscribed(opened, sink, **more):
    response = await opened.http.post("/subscriptions", json=subscription(sink, **more))
    assert response.status_code == 201, response.text
    return response.json()["id"]


async def shown(opened, name):
    return (await opened.http.get(f"/subscriptions/{name}")).json()


async def delivery(opened, name):
    return (await shown(opened, name))["delivery"]


def played(**settings):
    """A door whose time outside is played, with local sinks allowed."""
    world = Played()
    return world, door(world.outside(), webhook_targets=LOCAL, **settings)


async def publish(opened, *numbers):
    for number in numbers:
        await opened.bus.publish(Event({"n": number}, type="t", source="/s", id=str(number)))


# ------------------------------------------------ the resource


@asynchronous
async def test_a_subscription_is_created_shown_changed_and_deleted():
    async with door(webhook_targets=LOCAL) as opened, Sink().open() as sink:
        response = await opened.http.post(
            "/subscriptions", json=subscription(sink, types=["t"]) | {"id": "mine"}
        )
        assert response.status_code == 201
        created = response.json()
        assert created["id"] != "mine"
        assert response.headers["location"] == f"/subscriptions/{created['id']}"
        assert created["protocolsettings"] == {"method": "POST", "contentmode": "binary", "headers": {}}
        assert created["delivery"]["status"] == "active"
        assert (await opened.http.get("/subscriptions")).json() == [await shown(opened, created["id"])]

        await publish(opened, 1)
        await eventually(lambda: len(sink.deliveries) == 1)
        changed = subscription(sink, filters=[{"angelia": "n > 5"}], protocolsettings={"method": "PUT"})
        response = await opened.http.put(f"/subscriptions/{created['id']}", json=changed)
        assert (response.status_code, response.json()["id"]) == (200, created["id"])
        assert "types" not in response.json()
        await publish(opened, 2, 6)
        await eventually(lambda: len(sink.deliveries) == 2)
        assert sink.deliveries[1][0] == "PUT"
        assert sink.deliveries[1][2]["ce-id"] == "6"

        response = await opened.http.delete(f"/subscriptions/{created['id']}")
        assert (response.status_code, response.json()["id"]) == (200, created["id"])
        assert (await opened.http.get("/subscriptions")).json() == []
        assert not opened.bus.stats().subscriptions
        for ask in (opened.http.get, opened.http.delete):
            assert (await ask(f"/subscriptions/{created['id']}")).status_code == 404
        assert (await opened.http.put("/subscriptions/x", json=changed)).status_code == 404


@asynchronous
async def test_a_change_that_is_refused_leaves_the_subscription_as_it_was():
    async with door(webhook_targets=LOCAL) as opened, Sink().open() as sink:
        name = await subscribed(opened, sink)
        bad = subscription(sink, filters=[{"angelia": "n >"}])
        assert (await opened.http.put(f"/subscriptions/{name}", json=bad)).status_code == 400
        other = await opened.http.put(f"/subscriptions/{name}", json=subscription(sink) | {"id": "other"})
        assert (other.status_code, other.json()["attribute"]) == (400, "id")
        await publish(opened, 1)
        await eventually(lambda: len(sink.deliveries) == 1)
        assert len(opened.bus.stats().subscriptions) == 1


BAD = {
    "not an object": ([], "body"),
    "no sink": ({"protocol": "HTTP"}, "sink"),
    "no protocol": ({"sink": "https://example.com"}, "protocol"),
    "another protocol": ({"sink": "mqtt://example.com", "protocol": "MQTT5"}, "protocol"),
    "unknown property": ({"sink": "https://e.com", "protocol": "HTTP", "filter": []}, "filter"),
    "a sink that is no URL": ({"sink": "example.com", "protocol": "HTTP"}, "sink"),
    "another scheme": ({"sink": "file:///etc/passwd", "protocol": "HTTP"}, "sink"),
    "no host": ({"sink": "http://", "protocol": "HTTP"}, "sink"),
    "a bad port": ({"sink": "http://h:99999/", "protocol": "HTTP"}, "sink"),
    "credentials in the URL": ({"sink": "https://u:p@e.com/", "protocol": "HTTP"}, "sink"),
    "a fragment": ({"sink": "https://e.com/#x", "protocol": "HTTP"}, "sink"),
    "a line break": ({"sink": "https://e.com/\r\nX: y", "protocol": "HTTP"}, "sink"),
    "config": ({"sink": "https://e.com", "protocol": "HTTP", "config": {"interval": 5}}, "config"),
    "method": (
        {"sink": "https://e.com", "protocol": "HTTP", "protocolsettings": {"method": "GET"}},
        "protocolsettings.method",
    ),
    "content mode": (
        {"sink": "https://e.com", "protocol": "HTTP", "protocolsettings": {"contentmode": "avro"}},
        "protocolsettings.contentmode",
    ),
    "unknown setting": (
        {"sink": "https://e.com", "protocol": "HTTP", "protocolsettings": {"qos": 1}},
        "protocolsettings.qos",
    ),
    "a header of ours": (
        {"sink": "https://e.com", "protocol": "HTTP", "protocolsettings": {"headers": {"Host": "x"}}},
        "protocolsettings.headers",
    ),
    "a header with a line break": (
        {"sink": "https://e.com", "protocol": "HTTP", "protocolsettings": {"headers": {"X": "a\r\nY: b"}}},
        "protocolsettings.headers",
    ),
    "refresh tokens": (
        {"sink": "https://e.com", "protocol": "HTTP", "sinkcredential": {"credentialtype": "REFRESHTOKEN"}},
        "sinkcredential.credentialtype",
    ),
    "a credential without its secret": (
        {
            "sink": "https://e.com",
            "protocol": "HTTP",
            "sinkcredential": {"credentialtype": "PLAIN", "identifier": "i"},
        },
        "sinkcredential.secret",
    ),
    "types": ({"sink": "https://e.com", "protocol": "HTTP", "types": "t"}, "types"),
    "an empty type": ({"sink": "https://e.com", "protocol": "HTTP", "types": [""]}, "types"),
    "source": ({"sink": "https://e.com", "protocol": "HTTP", "source": ""}, "source"),
    "filters": ({"sink": "https://e.com", "protocol": "HTTP", "filters": {}}, "filters"),
}


@pytest.mark.parametrize(("document", "attribute"), BAD.values(), ids=BAD)
def test_a_bad_subscription_is_refused_by_property(live, document, attribute):
    response = live.http.post("/subscriptions", json=document)
    assert response.status_code == 400, response.text
    assert response.json()["attribute"] == attribute
    assert response.json()["detail"]


def test_a_subscription_is_json(live):
    response = live.http.post("/subscriptions", content=b"{}", headers={"Content-Type": "text/plain"})
    assert response.status_code == 415
    response = live.http.post("/subscriptions", content=b"{", headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()["attribute"]) == (400, "body")


@asynchronous
async def test_there_are_not_more_subscriptions_than_allowed():
    async with door(webhook_targets=LOCAL, max_subscriptions=1) as opened, Sink().open() as sink:
        await subscribed(opened, sink)
        assert (await opened.http.post("/subscriptions", json=subscription(sink))).status_code == 503


@asynchronous
async def test_a_filter_that_does_not_conform_to_its_type_is_refused():
    async with door(webhook_targets=LOCAL) as opened, Sink().open() as sink:
        schema = {"$id": "shop.Quote", "type": "object", "properties": {"price": {"type": "number"}}}
        assert (await opened.http.post("/types", json=schema)).status_code == 201
        bad = subscription(sink, filters=[{"angelia": "shop.Quote: prize < 1"}])
        response = await opened.http.post("/subscriptions", json=bad)
        assert response.status_code == 400
        assert "did you mean 'price'" in response.json()["detail"]
        assert (await opened.http.get("/subscriptions")).json() == []


# ------------------------------------------------ the handshake


@asynchronous
async def test_a_sink_is_asked_for_permission():
    opening = door(webhook_targets=LOCAL, webhook_origin="events.example", webhook_rate=120)
    async with opening as opened, Sink().open() as sink:
        sink.permission = {"WebHook-Allowed-Origin": "events.example", "WebHook-Allowed-Rate": "30"}
        name = await subscribed(opened, sink)
        method, path, headers, _ = sink.requests[0]
        assert (method, path) == ("OPTIONS", "/hook")
        assert headers["webhook-request-origin"] == "events.example"
        assert headers["webhook-request-rate"] == "120"
        assert "webhook-request-callback" not in headers
        assert (await delivery(opened, name))["rate"] == 30
        await publish(opened, 1)
        await eventually(lambda: sink.deliveries)
        assert sink.deliveries[0][2]["webhook-request-origin"] == "events.example"


@pytest.mark.parametrize(
    ("permission", "part"),
    [
        ({}, "no WebHook-Allowed-Origin"),
        ({"WebHook-Allowed-Origin": "other.example"}, "other.example"),
        ({"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "0"}, "WebHook-Allowed-Rate"),
        ({"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "many"}, "WebHook-Allowed-Rate"),
    ],
)
@asynchronous
async def test_without_permission_there_is_no_subscription(permission, part):
    async with door(webhook_targets=LOCAL) as opened, Sink().open() as sink:
        sink.permission = permission
        response = await opened.http.post("/subscriptions", json=subscription(sink))
        assert (response.status_code, response.json()["attribute"]) == (400, "sink")
        assert part in response.json()["detail"]
        assert (await opened.http.get("/subscriptions")).json() == []
        assert sink.deliveries == []


@asynchronous
async def test_a_sink_that_is_not_there_is_refused():
    async with door(webhook_targets=LOCAL) as opened, Sink().open() as sink:
        url = sink.url
    async with door(webhook_targets=LOCAL) as opened:
        response = await opened.http.post("/subscriptions", json={"sink": url, "protocol": "HTTP"})
        assert (response.status_code, response.json()["attribute"]) == (400, "sink")
        assert "ConnectError" in response.json()["detail"]


@asynchronous
async def test_a_sink_can_confirm_later():
    async with door(webhook_targets=LOCAL, public_url="https://broker.example/", tokens=("s3",)) as opened:
        opened.http.headers["Authorization"] = "Bearer s3"
        async with Sink().open() as sink:
            sink.permission = {}
            name = await subscribed(opened, sink)
            assert (await delivery(opened, name))["status"] == "pending"
            callback = sink.requests[0][2]["webhook-request-callback"]
            assert callback.startswith(f"https://broker.example/subscriptions/{name}/confirmation?key=")
            await publish(opened, 1)
            path = callback.removeprefix("https://broker.example")
            del opened.http.headers["Authorization"]
            assert (await opened.http.get(path[:-1])).status_code == 404
            assert (await opened.http.get(path, headers={"WebHook-Allowed-Rate": "x"})).status_code == 400
            response = await opened.http.post(path, headers={"WebHook-Allowed-Rate": "60"})
            assert response.json() == {"id": name, "status": "active"}
            await publish(opened, 2)
            await eventually(lambda: sink.deliveries)
            assert [request[2]["ce-id"] for request in sink.deliveries] == ["2"]


# ------------------------------------------------ deliveries


@asynchronous
async def test_events_are_delivered_in_order_with_the_headers_asked_for():
    async with door(webhook_targets=LOCAL) as opened, Sink().open() as sink:
        await subscribed(
            opened,
            sink,
            protocolsettings={"headers": {"X-Mine": "yes"}, "contentmode": "structured"},
            sinkcredential={"credentialtype": "PLAIN", "identifier": "user", "secret": "pass"},
        )
        await publish(opened, *range(20))
        await eventually(lambda: len(sink.deliveries) == 20)
        assert [json.loads(body)["data"]["n"] for *_, body in sink.deliveries] == list(range(20))
        headers = sink.deliveries[0][2]
        assert headers["x-mine"] == "yes"
        assert headers["authorization"] == "Basic dXNlcjpwYXNz"
        assert headers["content-type"].startswith("application/cloudevents+json")


@asynchronous
async def test_secrets_are_not_shown():
    async with door(webhook_targets=LOCAL) as opened, Sink().open() as sink:
        credential = {"credentialtype": "ACCESSTOKEN", "accesstoken": "hush", "accesstokentype": "bearer"}
        name = await subscribed(opened, sink, sinkcredential=credential)
        text = (await opened.http.get(f"/subscriptions/{name}")).text
        assert "hush" not in text
        assert json.loads(text)["sinkcredential"] == {
            "credentialtype": "ACCESSTOKEN",
            "accesstokentype": "bearer",
        }
        await publish(opened, 1)
        await eventually(lambda: sink.deliveries)
        assert sink.deliveries[0][2]["authorization"] == "Bearer hush"


@asynchronous
async def test_with_an_expired_token_nothing_is_sent():
    world, opening = played()
    async with opening as opened, Sink().open() as sink:
        expires = datetime.fromtimestamp(world.clock.now + 100, UTC).isoformat()
        credential = {"credentialtype": "ACCESSTOKEN", "accesstoken": "t", "accesstokenexpiresutc": expires}
        name = await subscribed(opened, sink, sinkcredential=credential)
        await publish(opened, 1)
        await eventually(lambda: len(sink.deliveries) == 1)
        world.clock.advance(100)
        await publish(opened, 2)
        await eventually(lambda: not opened.bus.stats().subscriptions)
        assert "expired" in (await delivery(opened, name))["reason"]
        assert len(sink.deliveries) == 1


@asynchronous
async def test_what_fails_is_tried_again_after_longer_and_longer():
    world, opening = played(webhook_backoff=1.0, webhook_max_backoff=5.0)
    async with opening as opened, Sink().open() as sink:
        name = await subscribed(opened, sink)
        sink.answers = [(500, {}), (503, {}), (502, {}), (504, {}), (408, {})]
        await publish(opened, 1)
        await eventually(lambda: len(sink.deliveries) == 6)
        assert world.sleeps == [1, 2, 4, 5, 5]
        assert len({body for *_, body in sink.deliveries}) == 1
        state = await delivery(opened, name)
        assert (state["delivered"], state["retries"], state["failed"]) == (1, 5, 0)


@asynchronous
async def test_chance_shortens_a_wait_by_up_to_a_half():
    world, opening = played(webhook_backoff=1.0)
    world.jitter = 0.0
    async with opening as opened, Sink().open() as sink:
        await subscribed(opened, sink)
        sink.answers = [(500, {}), (500, {})]
        await publish(opened, 1)
        await eventually(lambda: len(sink.deliveries) == 3)
        assert world.sleeps == [0.5, 1.0]


@asynchronous
async def test_after_so_many_attempts_an_event_is_given_up_and_the_next_one_comes():
    _, opening = played(webhook_attempts=3)
    async with opening as opened, Sink().open() as sink:
        name = await subscribed(opened, sink)
        sink.answers = [(500, {})] * 3
        await publish(opened, 1, 2)
        await eventually(lambda: len(sink.deliveries) == 4)
        assert [request[2]["ce-id"] for request in sink.deliveries] == ["1", "1", "1", "2"]
        state = await delivery(opened, name)
        assert (state["failed"], state["delivered"], state["last_status"]) == (1, 1, 204)
        assert opened.service.metrics._drops["webhook"] == 1


@pytest.mark.parametrize("status", [400, 403, 404, 415, 301, 307])
@asynchronous
async def test_what_will_not_go_better_is_not_tried_again_nor_redirected(status):
    world, opening = played()
    async with opening as opened, Sink().open() as sink, Sink().open() as other:
        name = await subscribed(opened, sink)
        sink.answers = [(status, {"Location": other.url})]
        await publish(opened, 1, 2)
        await eventually(lambda: len(sink.deliveries) == 2)
        assert world.sleeps == []
        assert other.requests == []
        assert (await delivery(opened, name))["failed"] == 1


@asynchronous
async def test_gone_ends_the_subscription():
    async with door(webhook_targets=LOCAL) as opened, Sink().open() as sink:
        name = await subscribed(opened, sink)
        sink.answers = [(410, {})]
        await publish(opened, 1, 2, 3)
        await eventually(lambda: not opened.bus.stats().subscriptions)
        state = await delivery(opened, name)
        assert state["status"] == "ended"
        assert "410" in state["reason"]
        assert len(sink.deliveries) == 1
        await opened.http.put(f"/subscriptions/{name}", json=subscription(sink))
        await publish(opened, 4)
        await eventually(lambda: len(sink.deliveries) == 2)


@asynchronous
async def test_who_has_too_many_requests_is_left_alone_as_long_as_it_says():
    world, opening = played(webhook_backoff=1.0)
    async with opening as opened, Sink().open() as sink:
        await subscribed(opened, sink)
        at = format_datetime(datetime.fromtimestamp(world.clock.now + 337, UTC), usegmt=True)
        sink.answers = [
            (429, {"Retry-After": "120"}),
            (429, {"Retry-After": at}),
            (429, {"Retry-After": "soon"}),
        ]
        await publish(opened, 1)
        await eventually(lambda: len(sink.deliveries) == 4)
        assert world.sleeps[0] == 120
        assert world.sleeps[1] == pytest.approx(337 - 120, abs=1)
        assert world.sleeps[2] == 4  # not understood: as long as after any failure


@asynchronous
async def test_a_sink_is_not_sent_more_than_the_rate_it_allowed():
    world, opening = played()
    async with opening as opened, Sink().open() as sink:
        sink.permission = {"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "30"}
        await subscribed(opened, sink)
        await publish(opened, 1, 2, 3)
        await eventually(lambda: len(sink.deliveries) == 3)
        assert world.sleeps == [pytest.approx(2), pytest.approx(2)]


@asynchronous
async def test_a_sink_whose_name_is_not_found_for_a_while_gets_its_events_later():
    async with Sink().open() as sink:
        world, here = Played(), ["127.0.0.1"]
        world.names = {"sink.example": [here, here, [], [], here]}
        async with door(world.outside(), webhook_targets=LOCAL) as opened:
            url = sink.url.replace("127.0.0.1", "sink.example")
            assert (
                await opened.http.post("/subscriptions", json={"sink": url, "protocol": "HTTP"})
            ).is_success
            world.clock.advance(3600)  # the address that was checked is to be asked for again
            await publish(opened, 1)
            await eventually(lambda: len(sink.deliveries) == 1)
            assert len(world.sleeps) == 2


@asynchronous
async def test_a_sink_that_does_not_answer_is_tried_again():
    _, opening = played(webhook_timeout=0.5, webhook_attempts=2)
    async with opening as opened, Sink().open() as sink:
        name = await subscribed(opened, sink)
        sink.hold = asyncio.Event()
        await publish(opened, 1)
        await eventually(lambda: len(sink.deliveries) == 2)
        await eventually(lambda: opened.service.metrics._drops)
        assert "no answer" in (await delivery(opened, name))["last_error"]


@asynchronous
async def test_a_slow_sink_has_a_queue_of_so_many_bytes():
    opening = door(webhook_targets=LOCAL, webhook_queue_bytes=45_000)
    async with opening as opened, Sink().open() as slow:
        name = await subscribed(opened, slow)
        slow.hold = asyncio.Event()
        for number in range(10):
            event = cloudevent(id=str(number), data={"text": 10_000 * "x"})
            assert (await post(opened, event)).status_code == 202
            await asyncio.sleep(0)
        state = await delivery(opened, name)
        assert (state["queued"], state["dropped"]) == (4, 5), "one is under way"
        slow.hold.set()
        await eventually(lambda: len(slow.deliveries) == 5)
        assert [request[2]["ce-id"] for request in slow.deliveries] == ["0", "6", "7", "8", "9"]


@asynchronous
async def test_a_slow_sink_loses_its_own_oldest_events_and_holds_up_nobody():
    opening = door(webhook_targets=LOCAL, webhook_queue=5)
    async with opening as opened, Sink().open() as slow, Sink().open() as quick:
        name = await subscribed(opened, slow)
        await subscribed(opened, quick)
        slow.hold = asyncio.Event()
        for number in range(30):
            assert (await post(opened, cloudevent(id=str(number)))).status_code == 202
            await eventually(lambda: len(quick.deliveries) == number + 1)  # noqa: B023
        state = await delivery(opened, name)
        assert (state["queued"], state["dropped"]) == (5, 24)
        metrics = (await opened.http.get("/metrics")).text
        assert f'angelia_webhook_queue_events{{subscription="{name}"}} 5.0' in metrics
        slow.hold.set()
        await eventually(lambda: len(slow.deliveries) == 6)
        assert [request[2]["ce-id"] for request in slow.deliveries] == ["0", "25", "26", "27", "28", "29"]


# ------------------------------------------------ where deliveries may not go


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "localhost", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
        "0.0.0.0", "224.0.0.1", "255.255.255.255", "[::1]", "[::]", "[fe80::1]", "[fc00::1]", "[ff02::1]",
        "[::ffff:127.0.0.1]", "[::ffff:10.0.0.1]", "[2002:7f00:1::]", "[64:ff9b::7f00:1]",
        "2130706433", "127.1",
    ],
)  # fmt: skip
@asynchronous
async def test_private_addresses_are_refused(host):
    async with door() as opened:
        for scheme in ("http", "https"):
            given = {"sink": f"{scheme}://{host}/hook", "protocol": "HTTP"}
            response = await opened.http.post("/subscriptions", json=given)
            assert (response.status_code, response.json()["attribute"]) == (400, "sink"), response.text
            assert response.json()["type"].endswith("forbidden-sink")


def refusing(names, **settings):
    world = Played()
    world.names = names
    return door(world.outside(), **settings)


@pytest.mark.parametrize(
    ("addresses", "part"),
    [
        (["10.0.0.1"], "private"),
        (["93.184.215.14", "127.0.0.1"], "private"),
        (["93.184.215.14", "::1"], "private"),
        ([], "no address"),
    ],
)
@asynchronous
async def test_every_address_of_a_name_is_checked(addresses, part):
    async with refusing({"sink.example": addresses}) as opened:
        given = {"sink": "https://sink.example/hook", "protocol": "HTTP"}
        response = await opened.http.post("/subscriptions", json=given)
        assert (response.status_code, response.json()["attribute"]) == (400, "sink")
        assert part in response.json()["detail"]


@asynchronous
async def test_to_a_public_address_events_go_over_https_only():
    async with refusing({"sink.example": ["93.184.215.14"]}) as opened:
        given = {"sink": "http://sink.example/hook", "protocol": "HTTP"}
        response = await opened.http.post("/subscriptions", json=given)
        assert "https" in response.json()["detail"]


@asynchronous
async def test_a_name_that_means_something_else_later_is_refused_then():
    async with Sink().open() as sink:
        port = sink.url.split(":")[2].split("/")[0]
        world = Played()
        world.names = {"sink.example": [["127.0.0.2"], ["127.0.0.2"], ["10.0.0.1"], ["10.0.0.1"]]}
        settings = {"webhook_targets": ("127.0.0.2/32",), "webhook_attempts": 2}
        server = await asyncio.start_server(sink._serve, "127.0.0.2", int(port))
        async with server, door(world.outside(), **settings) as opened:
            given = {"sink": f"http://sink.example:{port}/hook", "protocol": "HTTP"}
            response = await opened.http.post("/subscriptions", json=given)
            assert response.status_code == 201, response.text
            assert sink.requests[0][2]["host"] == f"sink.example:{port}"
            await publish(opened, 1)  # within the lifetime of the address that was checked
            await eventually(lambda: len(sink.deliveries) == 1)
            world.clock.advance(3600)
            await publish(opened, 2)
            await eventually(lambda: opened.service.metrics._drops)
            state = await delivery(opened, response.json()["id"])
            assert "private" in state["last_error"]
            assert len(sink.deliveries) == 1


@asynchronous
async def test_the_certificate_of_a_sink_is_that_of_its_name_though_the_connection_goes_to_its_address(
    tmp_path, monkeypatch
):
    for certified, status in (("sink.example", 201), ("other.example", 400)):
        context, authority = certificate(tmp_path, certified)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        sink = Sink()
        server = await asyncio.start_server(sink._serve, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        names = {"sink.example": ["127.0.0.1"]}
        async with server, refusing(names, webhook_targets=LOCAL) as opened:
            given = {"sink": f"https://sink.example:{port}/hook", "protocol": "HTTP"}
            response = await opened.http.post("/subscriptions", json=given)
            assert response.status_code == status, response.text
            if status == 400:
                assert "certificate" in response.json()["detail"]


@asynchronous
async def test_a_host_can_be_allowed_by_name():
    async with Sink().open() as sink:
        port = sink.url.split(":")[2].split("/")[0]
        async with refusing({"sink.example": ["127.0.0.1"]}, webhook_targets=("sink.example",)) as opened:
            given = {"sink": f"http://sink.example:{port}/hook", "protocol": "HTTP"}
            assert (await opened.http.post("/subscriptions", json=given)).status_code == 201
