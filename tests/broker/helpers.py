"""What tests of brokers and clients share: brokers in this process, and somebody who speaks raw frames."""

from __future__ import annotations

import asyncio
import functools
import gc
import time
from typing import Any

from angelia import Event, wire
from angelia.broker.broker import Broker
from angelia.broker.settings import load
from angelia.messages import Request

FAST = {"heartbeat": 0.05}  # signs of life, so that tests need not wait for silence


def asynchronous(test):
    """Run an asynchronous test on a loop of its own. It leaves no task, and no error that nobody sees."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        problems: list[Any] = []

        async def main():
            asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
            async with asyncio.timeout(60):
                await test(*args, **kwargs)
            gc.collect()  # exceptions that were never retrieved
            await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, 1.0)

        asyncio.run(main())
        assert not problems, problems

    return run


def broker(**options: Any) -> Broker:
    """A broker on a free port of loopback, to be entered."""
    return Broker(load(**{"listen": "127.0.0.1:0", **options}))


def address(it: Broker) -> str:
    return str(it.address)


async def until(condition, seconds: float = 10.0) -> None:
    """Wait for something that is about to be."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        await asyncio.sleep(0.002)


async def linked(*brokers: Broker) -> None:
    """Wait until each of the brokers has a link."""
    await until(lambda: all(one.links for one in brokers))


def quote(price: int, **context: Any) -> Event:
    return Event({"airline": "UA", "price": price}, type="flights.Quote", **context)


def prices(events) -> list[Any]:
    return [event["price"] for event in events]


class Raw:
    """Somebody at a port who sends and reads frames, or anything else, and does nothing by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = wire.Frames(64 << 20)
        self._bodies: list[bytes] = []

    @classmethod
    async def at(cls, it: Broker, **options: Any) -> Raw:
        return cls(*await asyncio.open_connection("127.0.0.1", it.address.port, **options))

    @classmethod
    async def client(cls, it: Broker, name: str = "raw", **hello: Any) -> Raw:
        """A client that was welcomed."""
        raw = await cls.at(it)
        raw.send(wire.Hello(wire.VERSION, "client", name, "1", **hello))
        assert isinstance(await raw.read(), wire.Welcome)
        return raw

    @classmethod
    async def peer(cls, it: Broker, name: str = "other", **hello: Any) -> Raw:
        """A broker that was welcomed."""
        raw = await cls.at(it)
        raw.send(wire.Hello(wire.VERSION, "peer", name, "1", routing=it.settings.routing, **hello))
        assert isinstance(await raw.read(), wire.Welcome)
        return raw

    def send(self, *frames: Any) -> None:
        self._writer.write(b"".join(map(wire.encode, frames)))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def read(self) -> Any:
        """The next frame; None at the end."""
        while not self._bodies:
            data = await self._reader.read(1 << 16)
            if not data:
                return None
            self._bodies += self._frames.feed(data)
        return wire.decode(self._bodies.pop(0))

    async def read_a(self, kind: type) -> Any:
        """The next frame of a kind; the others are passed over."""
        while True:
            frame = await self.read()
            assert frame is not None, f"the end came before {kind.__name__}"
            if isinstance(frame, kind):
                return frame

    async def bye(self) -> wire.Bye:
        """Why the connection ends; what comes before is passed over."""
        bye = await self.read_a(wire.Bye)
        self.close()
        return bye

    async def ask(self, request: Request, number: int = 1) -> wire.Answer:
        """A request, and its answer."""
        self.write(wire.encode_request(number, request))
        return await self.read_a(wire.Answer)

    def upload(self, number: int, *events: Event) -> None:
        self.write(wire.encode_upload(number, [wire.encode_event(event) for event in events]))

    async def told(self) -> list[tuple[tuple[int, ...], Event]]:
        """The events of the next batch."""
        told = wire.decode_told((await self.read_a(wire.Tell)).events)
        return [(item.numbers, item.event) for item in told]

    def close(self) -> None:
        self._writer.close()
