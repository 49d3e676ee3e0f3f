"""Publishers and consumers with the Python client library of each system.

A consumer calls `told` with the time that an event was sent at: once for each of its subscriptions that
match, where the library says which (`once` is false). What is encoded and decoded is the same everywhere: a
dictionary, as MessagePack.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import aio_pika
import msgspec
import nats
import redis.asyncio

from angelia import Event, Filter, Matcher, connect
from raw import PATIENCE, is_warm, last_wish, settled, subject
from servers import Angelia, Nats, Rabbit, Redis
from traffic import Wish

Told = Callable[[float], None]
Publish = Callable[[Sequence[dict[str, Any]], float], Awaitable[None]]
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(dict[str, Any]).decode


class PythonClient(Protocol):
    """A system with its client library."""

    once: bool

    async def consume(self, number: int, wishes: Sequence[Wish], told: Told) -> object:
        """Connect and subscribe; what is returned is kept until the end."""

    def publisher(self) -> AbstractAsyncContextManager[Publish]:
        """Connect; gives a function that publishes events, all with one time, without confirmation."""

    async def settle(self) -> None:
        """Wait until the publisher's side knows of all subscriptions."""

    async def is_warm(self) -> bool:
        """Whether the servers have made themselves ready."""


class _AtOnce:
    """A server whose subscriptions stand when it has answered."""

    def __init__(self, server: Any) -> None:
        self.server = server

    async def settle(self) -> None:
        """Nothing to wait for."""

    async def is_warm(self) -> bool:
        """Nothing is made ready in the background."""
        return True


# ---------------------------------------------------------------- Angelia


class AngeliaClient:
    """`angelia.connect`, with a callback a subscription."""

    once = False

    def __init__(self, server: Angelia) -> None:
        self.server = server

    async def consume(self, number: int, wishes: Sequence[Wish], told: Told) -> object:
        """A subscription a wish, and one more that tells when all have come to the first broker."""
        client = await connect(self.server.exit, name=f"python-{number}", timeout=PATIENCE)

        def called(event: Event) -> None:
            told(event["sent"])

        texts = [*(wish.text for wish in wishes), last_wish("python", number)]
        subscriptions = [client.subscribe(text, called) for text in texts]
        for subscription in subscriptions:
            await subscription
        return client, subscriptions

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[Publish]:
        """Batches of what is given."""
        async with connect(self.server.entry) as client:

            async def publish(events: Sequence[dict[str, Any]], sent: float) -> None:
                made = [Event({**one, "sent": sent}, type="bench.Measured", source="bench") for one in events]
                await client.publish_all(made, confirm=False)

            yield publish

    async def settle(self) -> None:
        """Ask the first broker whether it knows of every consumer's last subscription."""
        await settled(self.server.entry, "python")

    async def is_warm(self) -> bool:
        """Whether no broker is still loading its compiled engine."""
        return await is_warm(self.server)


# ---------------------------------------------------------------- NATS


class NatsSubjects(_AtOnce):
    """Attributes coded into the subject; a subscription a wish."""

    once = False
    server: Nats

    async def consume(self, number: int, wishes: Sequence[Wish], told: Told) -> object:
        """A subscription with a callback a wish."""
        client = await self._client()

        async def called(message: Any) -> None:
            told(decode(message.data)["sent"])

        for wish in wishes:
            await self._subscribe(client, subject(wish.region, wish.kind), called)
        await client.flush(60)
        return client

    async def _client(self) -> Any:
        return await nats.connect(f"nats://127.0.0.1:{self.server.port}", ping_interval=600)

    async def _subscribe(self, client: Any, name: str, called: Callable[[Any], Awaitable[None]]) -> None:
        await client.subscribe(name, cb=called, pending_msgs_limit=0, pending_bytes_limit=0)

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[Publish]:
        """A message an event."""
        client = await self._client()

        async def publish(events: Sequence[dict[str, Any]], sent: float) -> None:
            for one in events:
                await client.publish(subject(one["region"], one["kind"]), encode({**one, "sent": sent}))

        yield publish
        await client.close()


class NatsBroadcast(NatsSubjects):
    """Every event to every consumer, which finds its subscriptions with an index."""

    async def consume(self, number: int, wishes: Sequence[Wish], told: Told) -> object:
        """One subscription to everything."""
        client, wanted = await self._client(), index(wishes)

        async def called(message: Any) -> None:
            event = decode(message.data)
            for _ in wanted(event):
                told(event["sent"])

        await self._subscribe(client, "bench.>", called)
        await client.flush(60)
        return client


def index(wishes: Sequence[Wish]) -> Callable[[dict[str, Any]], Sequence[object]]:
    """A function that finds the wishes that an event matches: by a dictionary where that will do."""
    if not wishes[0].region:
        matcher = Matcher()
        for number, wish in enumerate(wishes):
            matcher.add(number, Filter.parse(wish.text))
        return matcher.match
    table: dict[tuple[str, str], list[Wish]] = {}
    for wish in wishes:
        table.setdefault((wish.region, wish.kind), []).append(wish)
    return lambda event: table.get((event["region"], event["kind"]), ())


# ---------------------------------------------------------------- Redis


class RedisBroadcast(_AtOnce):
    """Every event to every consumer over one channel, and an index there."""

    once = False
    server: Redis

    async def consume(self, number: int, wishes: Sequence[Wish], told: Told) -> object:
        """One subscription to everything."""
        client, wanted = redis.asyncio.Redis(port=self.server.port), index(wishes)
        channel = client.pubsub(ignore_subscribe_messages=True)
        await channel.subscribe("bench")

        async def read() -> None:
            async for message in channel.listen():
                event = decode(message["data"])
                for _ in wanted(event):
                    told(event["sent"])

        return client, asyncio.create_task(read())

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[Publish]:
        """A pipeline of what is given."""
        async with redis.asyncio.Redis(port=self.server.port) as client:

            async def publish(events: Sequence[dict[str, Any]], sent: float) -> None:
                pipeline = client.pipeline(transaction=False)
                for one in events:
                    pipeline.publish("bench", encode({**one, "sent": sent}))
                await pipeline.execute()

            yield publish


# ---------------------------------------------------------------- RabbitMQ


class RabbitTopic(_AtOnce):
    """The topic exchange: attributes coded into the routing key; a queue a connection."""

    once = True
    kind = "topic"
    server: Rabbit

    async def consume(self, number: int, wishes: Sequence[Wish], told: Told) -> object:
        """A queue, bound once a wish."""
        connection, exchange = await self._exchange()

        async def called(message: Any) -> None:
            told(decode(message.body)["sent"])

        queue = await exchange.channel.declare_queue(exclusive=True, auto_delete=True)
        for wish in wishes:
            await self._bind(queue, exchange, wish)
        await queue.consume(called, no_ack=True)
        return connection, queue

    async def _exchange(self) -> tuple[Any, Any]:
        url = f"amqp://guest:guest@127.0.0.1:{self.server.port}/?heartbeat=600"
        connection = await aio_pika.connect(url)
        channel = await connection.channel(publisher_confirms=False)
        exchange: Any = await channel.declare_exchange(f"bench-{self.kind}", self.kind)
        return connection, exchange

    async def _bind(self, queue: Any, exchange: Any, wish: Wish) -> None:
        await queue.bind(exchange, subject(wish.region, wish.kind))

    def _message(self, event: dict[str, Any], body: bytes) -> tuple[aio_pika.Message, str]:
        return aio_pika.Message(body), subject(event["region"], event["kind"])

    @asynccontextmanager
    async def publisher(self) -> AsyncIterator[Publish]:
        """A message an event."""
        connection, exchange = await self._exchange()

        async def publish(events: Sequence[dict[str, Any]], sent: float) -> None:
            for one in events:
                message, key = self._message(one, encode({**one, "sent": sent}))
                await exchange.publish(message, key, mandatory=False)

        yield publish
        await connection.close()


class RabbitHeaders(RabbitTopic):
    """The headers exchange: attributes as headers, of which all that are bound must be equal."""

    kind = "headers"

    async def _bind(self, queue: Any, exchange: Any, wish: Wish) -> None:
        wanted = {"x-match": "all", "region": wish.region, "kind": wish.kind}
        await queue.bind(exchange, "", arguments=wanted)

    def _message(self, event: dict[str, Any], body: bytes) -> tuple[aio_pika.Message, str]:
        return aio_pika.Message(body, headers={"region": event["region"], "kind": event["kind"]}), ""


PYTHON: dict[str, Callable[[Any], PythonClient]] = {
    "angelia": AngeliaClient,
    "nats subjects": NatsSubjects,
    "nats broadcast": NatsBroadcast,
    "redis broadcast": RedisBroadcast,
    "rabbitmq headers": RabbitHeaders,
    "rabbitmq topic": RabbitTopic,
}
