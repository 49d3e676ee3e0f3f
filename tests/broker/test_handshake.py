"""Who is let in, who is not, and what somebody is told who is not."""

import asyncio
import os

import msgspec
import pytest
from tests.broker.helpers import FAST, Raw, address, asynchronous, broker, linked, quote, until

from angelia import EventType, wire
from angelia.client import connect
from angelia.errors import BrokerError, RequestError
from angelia.filter import Filter
from angelia.messages import Interest, Notify, Publish, Subscribe


def hello(version=wire.VERSION, role="client", name="me", incarnation="1", **rest):
    return wire.Hello(version, role, name, incarnation, **rest)


async def refused(it, *frames):
    raw = await Raw.at(it)
    raw.send(*frames)
    return await raw.bye()


async def lives(it):
    """The broker serves a client."""
    async with connect(address(it)) as bus:
        assert await bus.interest("true") in (True, False)


@asynchronous
async def test_another_version_is_refused_with_both_versions():
    async with broker(name="b1") as it:
        bye = await refused(it, hello(version=99))
        assert bye == wire.Bye("b1 speaks version 1 of the protocol, not 99", retry=False)
        await lives(it)


@asynchronous
async def test_who_does_not_begin_with_hello_is_refused():
    async with broker() as it:
        assert "begins with Hello, not Ping" in (await refused(it, wire.Ping())).reason


@asynchronous
async def test_who_says_nothing_is_cut_off(monkeypatch):
    monkeypatch.setattr("angelia.broker.broker.HELLO_PATIENCE", 0.05)
    async with broker() as it:
        assert "no Hello within 0.05 s" in (await refused(it)).reason
        await until(lambda: not it._connections)
        assert not it._strangers


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS where there is none
        bytes(64),
        b"\xff" * 4096,
        b"\x00\x00\x00\x03\xff\xff\xff",
        (1 << 20).to_bytes(4, "big"),  # allowed later, but not to a stranger
        os.urandom(100_000),
    ],
    ids=["http", "tls", "zeros", "ones", "no MessagePack", "large", "random"],
)
@asynchronous
async def test_garbage_is_answered_with_a_reason_and_the_broker_lives(garbage):
    async with broker() as it:
        raw = await Raw.at(it)
        raw.write(garbage)
        assert (await raw.bye()).reason
        await lives(it)
        await until(lambda: not it._connections)


@asynchronous
async def test_garbage_after_a_proper_beginning_ends_that_connection_alone():
    async with broker(max_frame=1 << 18) as it, connect(address(it)) as good, good.subscribe("true") as got:
        for bad in (
            b"\x00\x00\x00\x01\xc1",
            (1 << 19).to_bytes(4, "big"),
            wire.encode(wire.Welcome(1, "", "", 1, 1)),
        ):
            raw = await Raw.client(it)
            raw.write(bad)
            assert (await raw.bye()).reason
            await until(lambda: set(it.clients) == {good.name})
        await good.publish(quote(1))
        assert (await got.get())["price"] == 1


@asynchronous
async def test_a_peer_that_sends_garbage_is_cut_off_with_a_reason_and_the_broker_lives():
    async with broker() as it:
        for bad in (wire.Upload(1, msgspec.Raw(b"\x90")), wire.Ask(1, msgspec.Raw(b"\xc0"))):
            peer = await Raw.peer(it)
            peer.send(bad)
            assert "a peer does not send" in (await peer.bye()).reason
        peer = await Raw.peer(it)
        peer.write(wire.encode_forward([b"\x93\xa1x\x01\x91\x81\xa0\x01"]))  # an attribute without a name
        assert "not a valid notification" in (await peer.bye()).reason
        peer = await Raw.peer(it)
        peer.send(Subscribe("somebody else", Filter.parse("x = 1")), Notify(quote(1), "unknown", 1))
        await lives(it)
        peer.close()
        await until(lambda: not it.links)


@asynchronous
async def test_a_request_that_is_no_request_is_answered_and_the_connection_stays():
    async with broker() as it:
        raw = await Raw.client(it)
        for number, bad in enumerate((None, {"type": "Reboot"}, {"type": "Subscribe", "filter": "x = 1"}), 1):
            raw.send(wire.Ask(number, msgspec.Raw(msgspec.msgpack.encode(bad))))
            answer = await raw.read_a(wire.Answer)
            assert (answer.number, answer.code) == (number, "WireError")
        bad = msgspec.msgpack.encode({"type": "Subscribe", "identity": "1", "filter": "price <"})
        raw.send(wire.Ask(7, msgspec.Raw(bad)))
        answer = await raw.read_a(wire.Answer)
        assert answer.number == 7
        assert "column" in answer.error
        answer = await raw.ask(Publish("raw", quote(1)), 8)
        assert (answer.number, answer.code) == (8, "RequestError")
        assert "upload" in answer.error
        raw.close()


# ---------------------------------------------------------------- names and tokens


@asynchronous
async def test_a_name_that_is_taken_is_refused_and_the_same_client_comes_back():
    async with broker() as it:
        first = await Raw.client(it, "me")
        assert "there is a client 'me'" in (await refused(it, hello(incarnation="2"))).reason
        again = await Raw.client(it, "me")  # the same incarnation: it has lost its connection, we not yet
        assert "connected again" in (await first.bye()).reason
        assert (await again.ask(Interest("", Filter.parse("true")))).error is None
        assert set(it.clients) == {"me"}
        again.close()


@pytest.mark.parametrize("name", ["a#1", "x" * 256, "a\nb"])
@asynchronous
async def test_names_that_cannot_be_are_refused(name):
    async with broker() as it:
        for role in ("client", "peer"):
            assert "name" in (await refused(it, hello(name=name, role=role, routing="peer"))).reason


@asynchronous
async def test_a_client_without_a_name_is_given_one():
    async with broker() as it:
        raw = await Raw.at(it)
        raw.send(hello(name=""))
        welcome = await raw.read()
        assert welcome.client.startswith("client-")
        assert set(it.clients) == {welcome.client}
        raw.close()


@asynchronous
async def test_a_client_needs_one_of_the_tokens(tmp_path):
    (tmp_path / "tokens").write_text("# who may come\nfirst-secret\n\n  second-secret\n")
    async with broker(tokens=tmp_path / "tokens") as it:
        for token in (None, "", "first", "# who may come", "first-secret2"):
            bye = await refused(it, hello(token=token))
            assert bye == wire.Bye("the token is missing or wrong", retry=False)
        for token in ("first-secret", "second-secret"):
            async with connect(address(it), token=token) as bus:
                await bus.publish(quote(1))
        with pytest.raises(
            BrokerError, match=r"^cannot connect to tcp://127.*: the token is missing or wrong$"
        ):
            await connect(address(it), token="guess")


@asynchronous
async def test_where_clients_need_tokens_each_sees_its_own_subscriptions_alone(tmp_path):
    (tmp_path / "tokens").write_text("secret\n")
    for tokens, token, seen in ((tmp_path / "tokens", "secret", {"ann#1"}), (None, None, {"ann#1", "bob#1"})):
        async with (
            broker(tokens=tokens) as it,
            connect(address(it), name="ann", token=token) as ann,
            connect(address(it), name="bob", token=token) as bob,
        ):
            async with ann.subscribe("x = 1"), bob.subscribe("x = 2"):
                assert set(await ann.subscriptions()) == seen


@asynchronous
async def test_brokers_present_tokens_too(tmp_path):
    (tmp_path / "tokens").write_text("secret")
    async with broker(name="b1", tokens=tmp_path / "tokens", **FAST) as one:
        async with broker(name="b2", peers=[address(one)], token="secret", **FAST) as two:
            await linked(one, two)
        async with broker(name="b3", peers=[address(one)], **FAST) as three:
            await until(lambda: "token" in str(three.describe()["unconnected"]))
            assert not three.links


def test_tokens_that_cannot_be_read_are_told(tmp_path):
    with pytest.raises(BrokerError, match="cannot read the tokens"):
        broker(tokens=tmp_path / "nothing")
    (tmp_path / "empty").write_text("# none\n")
    with pytest.raises(BrokerError, match="no token in"):
        broker(tokens=tmp_path / "empty")


# ---------------------------------------------------------------- peers


@asynchronous
async def test_peers_of_another_routing_are_refused_with_both_names():
    async with broker(name="b1", routing="peer") as it:
        bye = await refused(it, hello(role="peer", name="b2", routing="general"))
        assert bye.reason == "the routing of b1 is peer, not general"
    async with broker(routing="hierarchical") as it:  # whose servers may be linked with those of hybrid
        raw = await Raw.at(it)
        raw.send(hello(role="peer", name="b2", routing="hybrid"))
        assert isinstance(await raw.read(), wire.Welcome)
        raw.close()


@asynchronous
async def test_brokers_that_name_each_other_have_one_link():
    async with broker(name="b1", **FAST) as one, broker(name="b2", peers=[address(one)], **FAST) as two:
        one._dial(two.address, False)
        await linked(one, two)
        await until(lambda: not one.describe()["unconnected"] and not two.describe()["unconnected"])
        link = two.links["b1"]
        await asyncio.sleep(0.3)
        assert two.links["b1"] is link  # it stays
        assert len(one._connections) == len(two._connections) == 1


@asynchronous
async def test_a_broker_is_not_its_own_peer():
    async with broker(name="b1") as it:
        it._dial(it.address, False)
        await until(lambda: "own peer" in str(it.describe()["unconnected"]))
        assert not it.links
        await lives(it)


@asynchronous
async def test_what_was_refused_leaves_nothing_behind():
    """Connections that this broker made, and that came to nothing, are forgotten."""
    async with (
        broker(name="b1", routing="peer") as one,
        broker(name="b2", routing="general", peers=[address(one)], **FAST) as two,
    ):
        await until(lambda: "routing" in str(two.describe()["unconnected"]))
        await until(lambda: not two._connections and not two._strangers)


@asynchronous
async def test_a_peer_that_was_started_again_takes_the_place_of_its_former_self():
    async with broker(name="b1") as it:
        first = await Raw.peer(it, "b2")
        second = await Raw.at(it)
        second.send(hello(role="peer", name="b2", incarnation="2", routing="peer"))
        assert "after a restart" in (await first.bye()).reason
        assert isinstance(await second.read(), wire.Welcome)
        assert it.links["b2"].incarnation == "2"
        second.close()


# ---------------------------------------------------------------- limits


@asynchronous
async def test_connections_beyond_the_limit_are_refused():
    async with broker(max_connections=2) as it:
        raws = [await Raw.client(it, f"c{number}") for number in range(2)]
        assert "takes no more" in (await refused(it)).reason
        raws.pop().close()
        await until(lambda: len(it._connections) == 1)
        raws.append(await Raw.client(it, "another"))
        for raw in raws:
            raw.close()


@asynchronous
async def test_subscriptions_and_advertisements_beyond_the_limit_are_refused():
    async with broker(max_subscriptions=2) as it, connect(address(it)) as bus:
        first, second = await bus.subscribe("x = 1"), await bus.subscribe("x = 2")
        with pytest.raises(RequestError, match="at most 2 subscriptions"):
            await bus.subscribe("x = 3")
        await first.close()
        third = await bus.subscribe("x = 3")
        await bus.advertise("x = 1")
        await bus.advertise("x = 1")
        await bus.advertise("x = 2")
        with pytest.raises(RequestError, match="at most 2 advertisements"):
            await bus.advertise("x = 3")
        await bus.unadvertise("exists x")
        await bus.advertise("x = 3")
        await second.close()
        await third.close()


@pytest.mark.parametrize("routing", ["peer", "hermes"])
@asynchronous
async def test_event_types_beyond_the_limit_are_refused_and_known_ones_may_change(routing):
    async with broker(max_types=2, routing=routing) as it, connect(address(it)) as bus:
        await bus.define(EventType("a.One"))
        await bus.define(EventType("a.Two", {"x": "integer"}))
        with pytest.raises(RequestError, match=r"knows 2 event types, and takes no more \(--max-types\)"):
            await bus.define(EventType("a.Three"))
        await bus.define(EventType("a.Two", {"x": "float"}))
        with pytest.raises(RequestError, match="bytes, more than 65536"):
            await bus.define(EventType("a.Two", {"x": "float"}, doc="x" * 70_000))
        assert list(it.registry) == ["a.One", "a.Two"]


@asynchronous
async def test_types_that_come_and_go_count_as_well_for_brokers_remember_them():
    async with broker(max_types=2) as it, connect(address(it)) as bus:
        for name in ("a.One", "a.Two", "a.Two"):
            await bus.define(EventType(name))
            await bus.remove_type(name)
        with pytest.raises(RequestError, match=r"knows 2 event types, and takes no more \(--max-types\)"):
            await bus.define(EventType("a.Three"))


@asynchronous
async def test_what_the_network_knows_is_known_everywhere_whatever_the_limit():
    async with broker() as it, connect(address(it)) as bus:
        await bus.define(EventType("a.One"))
        await bus.define(EventType("a.Two"))
        async with broker(peers=[address(it)], max_types=1) as other:
            await until(lambda: len(other.registry) == 2)


@asynchronous
async def test_who_comes_to_a_broker_with_much_to_tell_is_told_all_of_it():
    """More than a stranger may send in a frame, and right behind the welcome: to a client, and to a peer."""
    async with broker() as it:
        async with connect(address(it)) as bus:
            for number in range(199):
                await bus.define(EventType(f"a.Type{number}", {"x": "string"}, doc="much to tell" * 50))
            await bus.define(EventType("a.Long", doc="x" * 65_500))  # as long as may be
            async with broker(peers=[address(it)]) as other, connect(address(other)) as late:
                await until(lambda: len(late.registry) == 200)
        async with connect(address(it)) as again:
            await again.interest("true")  # types come before the answer
            assert len(again.registry) == 200


@pytest.mark.parametrize("number", ["", "x", "-1", "1.5", "²", "9" * 30, "raw#1"])
@asynchronous
async def test_the_identity_of_a_subscription_is_a_number(number):
    async with broker() as it:
        raw = await Raw.client(it)
        answer = await raw.ask(Subscribe(number, Filter.parse("x = 1")))
        assert answer.code == "RequestError"
        raw.close()


@asynchronous
async def test_a_number_that_is_in_use_for_something_else_is_refused():
    """Two filters under one number would pass the limit, and their events could not be told apart."""
    async with broker() as it:
        raw = await Raw.client(it)
        assert (await raw.ask(Subscribe("1", Filter.parse("x = 1")))).error is None
        assert (await raw.ask(Subscribe("1", Filter.parse("x = 1")))).error is None  # after a loss, say
        assert "for something else" in (await raw.ask(Subscribe("1", Filter.parse("x = 2")))).error
        assert it.clients["raw"].describe()["subscriptions"] == 1
        raw.close()


@asynchronous
async def test_a_queue_that_cannot_be_is_refused():
    async with broker(queue=100) as it:
        for wanted in ({"queue": 101}, {"queue": -1}, {"policy": "wait"}):
            assert "policies" in (await refused(it, hello(**wanted))).reason


@asynchronous
async def test_who_asks_and_asks_and_takes_no_answer_is_cut_off():
    async with broker(queue_bytes=1 << 14) as it:
        raw = await Raw.client(it)
        for _ in range(200):
            raw.write(b"".join(wire.encode(wire.Describe(number)) for number in range(1, 500)))
            await asyncio.sleep(0)
            if "raw" not in it.clients or it.clients["raw"].connection.is_closing:
                break
        await until(lambda: "raw" not in it.clients)
        await lives(it)
        raw.close()
