"""Raw publishers and consumers: bytes made ahead, and sockets that somebody else counts at.

Each protocol connects a publisher, connects a consumer whose subscriptions stand when the call returns, makes
the message of an event, and packs messages for sending. `once`: an event comes to a connection once, however
many of its subscriptions match; else once for each of them.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol
from uuid import uuid4

import msgspec
import pamqp.frame
from pamqp import base, commands, header

from angelia import Filter, connect
from angelia.messages import Subscribe
from angelia.wire import (
    VERSION,
    Answer,
    Bye,
    Frames,
    Hello,
    Welcome,
    decode,
    encode,
    encode_request,
    encode_upload,
)
from servers import Angelia, Nats, Rabbit
from traffic import CONSUMERS, Wish

PATIENCE = 90.0  # seconds for all subscriptions of a run

encode_payload = msgspec.msgpack.Encoder().encode


class TooSlowError(Exception):
    """Something took longer than a benchmark has time for."""


class Raw(Protocol):
    """A system without a client library."""

    once: bool

    def publisher(self) -> socket.socket:
        """A connection to send packed messages on."""

    def consumer(self, number: int, wishes: Sequence[Wish]) -> socket.socket:
        """A connection with its subscriptions in place."""

    def message(self, event: dict[str, Any]) -> bytes:
        """An event, ready to be packed."""

    def pack(self, messages: Sequence[bytes]) -> bytes:
        """Messages as they are sent together."""

    def settle(self) -> None:
        """Wait until the publisher's side knows of all subscriptions."""

    def is_warm(self) -> bool:
        """Whether the servers have made themselves ready."""


def dial(port: int) -> socket.socket:
    """A connection without delay, whose calls end after a while."""
    connection = socket.create_connection(("127.0.0.1", port), 10.0)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(PATIENCE)
    return connection


def _received(connection: socket.socket) -> Iterator[bytes]:
    """What comes in, until the end of patience."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            data = connection.recv(1 << 18)
        except TimeoutError:
            break
        if not data:
            raise ConnectionError("the server has closed the connection")
        yield data
    raise TooSlowError(f"subscribing takes longer than {PATIENCE:g} s")


# ---------------------------------------------------------------- Angelia


class RawAngelia:
    """Uploads of encoded events."""

    once = True

    def __init__(self, server: Angelia) -> None:
        self.server = server

    def publisher(self) -> socket.socket:
        """A client that publishes."""
        return self._client(self.server.entry, "publisher")

    def consumer(self, number: int, wishes: Sequence[Wish]) -> socket.socket:
        """A client with its subscriptions, and one more that tells when all have come to the first broker."""
        connection = self._client(self.server.exit, f"consumer-{number}")
        texts = [*(wish.text for wish in wishes), last_wish("raw", number)]
        requests = [Subscribe(str(i), Filter.parse(text)) for i, text in enumerate(texts, 1)]
        connection.sendall(b"".join(encode_request(i, request) for i, request in enumerate(requests, 1)))
        _answered(connection, len(texts))
        return connection

    def _client(self, address: str, name: str) -> socket.socket:
        connection = dial(int(address.rpartition(":")[2]))
        connection.sendall(encode(Hello(VERSION, "client", name, name)))
        _answered(connection, 0)
        return connection

    def message(self, event: dict[str, Any]) -> bytes:
        """The event as it stands in a batch."""
        return encode_payload((event, "bench.Measured", "bench"))

    def pack(self, messages: Sequence[bytes]) -> bytes:
        """One upload."""
        return encode_upload(0, messages)

    def settle(self) -> None:
        """Ask the first broker whether it knows of every consumer's last subscription."""
        asyncio.run(settled(self.server.entry, "raw"))

    def is_warm(self) -> bool:
        """Whether no broker is still loading its compiled engine."""
        return asyncio.run(is_warm(self.server))

    def through(self, connection: socket.socket) -> None:
        """Wait until the broker is through with all that was published."""
        connection.sendall(encode_upload(1, []))
        _answered(connection, 1)


def last_wish(what: str, number: int) -> str:
    """A subscription that nothing matches, made after all others of a consumer."""
    return f'last = "{what}-{number}"'


async def settled(address: str, what: str) -> None:
    """Wait until a broker knows of the last subscription of every consumer."""
    deadline = time.monotonic() + PATIENCE
    async with connect(address) as client:
        for number in range(CONSUMERS):
            while not await client.interest(last_wish(what, number)):
                if time.monotonic() > deadline:
                    raise TooSlowError(f"subscriptions have not come to the first broker in {PATIENCE:g} s")
                await asyncio.sleep(0.02)


async def is_warm(server: Angelia) -> bool:
    """Whether no broker is still loading its compiled engine."""
    states = await server.network.status()
    return all(state is not None and state["matching"] != "compiling" for state in states)


def _answered(connection: socket.socket, count: int) -> None:
    """Wait for the welcome (0), or for that many answers."""
    frames, answers = Frames(1 << 26), 0
    for data in _received(connection):
        for frame in map(decode, frames.feed(data)):
            if isinstance(frame, Bye) or (isinstance(frame, Answer) and frame.error):
                raise ConnectionError(frame.reason if isinstance(frame, Bye) else frame.error)
            answers += isinstance(frame, Answer)
            if count == 0 and isinstance(frame, Welcome):
                return
        if count and answers >= count:
            return


# ---------------------------------------------------------------- NATS


class RawNats:
    """Attributes are coded into the subject, and a subscription is a subject."""

    once = False

    def __init__(self, server: Nats) -> None:
        self.server = server

    def publisher(self) -> socket.socket:
        """A connection that publishes."""
        connection = dial(self.server.port)
        connection.sendall(b'CONNECT {"verbose":false,"pedantic":false,"echo":false}\r\nPING\r\n')
        _until(connection, b"PONG\r\n")
        return connection

    def consumer(self, number: int, wishes: Sequence[Wish]) -> socket.socket:
        """A connection with a subscription a wish."""
        connection = self.publisher()
        lines = [f"SUB {subject(wish.region, wish.kind)} {i}\r\n" for i, wish in enumerate(wishes, 1)]
        connection.sendall(("".join(lines) + "PING\r\n").encode())
        _until(connection, b"PONG\r\n")
        return connection

    def message(self, event: dict[str, Any]) -> bytes:
        """A PUB."""
        payload = encode_payload(event)
        head = f"PUB {subject(event['region'], event['kind'])} {len(payload)}\r\n"
        return head.encode() + payload + b"\r\n"

    def pack(self, messages: Sequence[bytes]) -> bytes:
        """One after the other."""
        return b"".join(messages)

    def settle(self) -> None:
        """They stand when the server has answered."""

    def is_warm(self) -> bool:
        """Nothing is made ready in the background."""
        return True


def subject(region: str, kind: str) -> str:
    """Two attributes as a subject, or a routing key."""
    return f"bench.{region}.{kind}"


def _until(connection: socket.socket, wanted: bytes) -> None:
    seen = b""
    for data in _received(connection):
        seen = seen[-64:] + data
        if wanted in seen:
            return
        if b"-ERR" in seen:
            raise ConnectionError(seen.decode("utf-8", "replace"))


# ---------------------------------------------------------------- RabbitMQ


class RawRabbit:
    """A queue a connection, bound once a wish: an event comes once. Consumers need not acknowledge."""

    once = True
    exchange = ""

    def __init__(self, server: Rabbit) -> None:
        self.server = server

    def binding(self, queue: str, wish: Wish) -> commands.Queue.Bind:
        """What binds a queue for a wish."""
        raise NotImplementedError

    def key_and_headers(self, event: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """What a message is routed by."""
        raise NotImplementedError

    def publisher(self) -> socket.socket:
        """A connection with a channel, and the exchange."""
        connection = dial(self.server.port)
        connection.sendall(b"AMQP\x00\x00\x09\x01")
        talk = _Talk(connection)
        talk.wait(commands.Connection.Start)
        talk.say(0, commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
        tune = talk.wait(commands.Connection.Tune)
        talk.say(0, commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
        talk.say(0, commands.Connection.Open("/"))
        talk.wait(commands.Connection.OpenOk)
        talk.say(1, commands.Channel.Open())
        talk.wait(commands.Channel.OpenOk)
        talk.say(1, commands.Exchange.Declare(exchange=f"bench-{self.exchange}", exchange_type=self.exchange))
        talk.wait(commands.Exchange.DeclareOk)
        return connection

    def consumer(self, number: int, wishes: Sequence[Wish]) -> socket.socket:
        """A queue of its own, its bindings, and its deliveries."""
        connection = self.publisher()
        talk, queue = _Talk(connection), f"bench-{number}-{uuid4()}"
        talk.say(1, commands.Queue.Declare(queue=queue, exclusive=True, auto_delete=True))
        talk.wait(commands.Queue.DeclareOk)
        for wish in wishes:
            talk.say(1, self.binding(queue, wish))
        for _ in wishes:
            talk.wait(commands.Queue.BindOk)
        talk.say(1, commands.Basic.Consume(queue=queue, no_ack=True))
        talk.wait(commands.Basic.ConsumeOk)
        return connection

    def message(self, event: dict[str, Any]) -> bytes:
        """A Basic.Publish with its header and body."""
        payload = encode_payload(event)
        key, headers = self.key_and_headers(event)
        properties = commands.Basic.Properties(headers=headers, delivery_mode=1)
        return b"".join(
            (
                pamqp.frame.marshal(commands.Basic.Publish(0, f"bench-{self.exchange}", key), 1),
                pamqp.frame.marshal(header.ContentHeader(0, len(payload), properties), 1),
                b"\x03\x00\x01" + len(payload).to_bytes(4, "big") + payload + b"\xce",
            )
        )

    def pack(self, messages: Sequence[bytes]) -> bytes:
        """One after the other."""
        return b"".join(messages)

    def settle(self) -> None:
        """They stand when the server has answered."""

    def is_warm(self) -> bool:
        """Nothing is made ready in the background."""
        return True


class RawRabbitHeaders(RawRabbit):
    """The headers exchange: attributes as headers, of which all that are bound must be equal."""

    exchange = "headers"

    def binding(self, queue: str, wish: Wish) -> commands.Queue.Bind:
        """Both equalities."""
        wanted = {"x-match": "all", "region": wish.region, "kind": wish.kind}
        return commands.Queue.Bind(queue=queue, exchange="bench-headers", routing_key="", arguments=wanted)

    def key_and_headers(self, event: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """The two attributes that are asked for, and no others."""
        return "", {"region": event["region"], "kind": event["kind"]}


class RawRabbitTopic(RawRabbit):
    """The topic exchange: attributes coded into the routing key."""

    exchange = "topic"

    def binding(self, queue: str, wish: Wish) -> commands.Queue.Bind:
        """The key."""
        key = subject(wish.region, wish.kind)
        return commands.Queue.Bind(queue=queue, exchange="bench-topic", routing_key=key)

    def key_and_headers(self, event: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
        """The key."""
        return subject(event["region"], event["kind"]), None


class _Talk:
    """Requests and answers of AMQP."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._incoming = _received(connection)
        self._rest = b""

    def say(self, channel: int, method: base.Frame) -> None:
        """Send a method."""
        self._connection.sendall(pamqp.frame.marshal(method, channel))

    def wait(self, kind: type[Any]) -> Any:
        """The next method, which must be of this kind."""
        while True:
            frame = self._next()
            if isinstance(frame, kind):
                return frame
            if isinstance(frame, commands.Connection.Close | commands.Channel.Close):
                raise ConnectionError(frame.reply_text)

    def _next(self) -> Any:
        while True:
            used, _, frame = _unmarshal(self._rest)
            if used:
                self._rest = self._rest[used:]
                return frame
            self._rest += next(self._incoming)


def _unmarshal(data: bytes) -> tuple[int, int, Any]:
    """The first frame, if all of it is there."""
    if len(data) < 7 or len(data) < 8 + int.from_bytes(data[3:7], "big"):
        return 0, 0, None
    return pamqp.frame.unmarshal(data)


RAW: dict[str, Callable[[Any], Raw]] = {
    "angelia": RawAngelia,
    "nats subjects": RawNats,
    "rabbitmq headers": RawRabbitHeaders,
    "rabbitmq topic": RawRabbitTopic,
}
