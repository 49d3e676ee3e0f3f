"""Two brokers that dial each other at once keep one connection, the same one, and lose nothing by that."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import pytest
from tests.broker.helpers import FAST, asynchronous, broker, until

from angelia import Event
from angelia.broker.broker import Broker


def free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return int(it.getsockname()[1])


async def publish_all_the_time(at: Broker, rest: float) -> None:
    publisher, number = at.client("publisher"), 0
    await publisher.advertise("true")
    while True:
        await publisher.publish(Event({"n": number}))
        number += 1
        await asyncio.sleep(rest)


async def meet(routing: str, delay: float) -> tuple[list[int], list[int], set[str]]:
    """What comes from each to the other, and who dialled the connections that are kept."""
    ports = {name: free_port() for name in "ab"}
    brokers = [
        broker(
            name=name,
            listen=f"127.0.0.1:{ports[name]}",
            peers=[f"tcp://127.0.0.1:{ports[other]}"],
            routing=routing,
            **FAST,
        )
        for name, other in ("ab", "ba")
    ]

    async def start(one: Broker, after: float) -> None:
        await asyncio.sleep(after)
        await one.__aenter__()

    await asyncio.gather(start(brokers[0], max(0.0, delay)), start(brokers[1], max(0.0, -delay)))
    tasks = [asyncio.create_task(publish_all_the_time(one, 0.0005)) for one in brokers]
    try:
        queues = [one.client("subscriber").subscribe("true", size=100_000) for one in brokers]
        for queue in queues:
            await queue.__aenter__()
        await until(lambda: all(one.links for one in brokers))
        heard: list[list[int]] = []
        await asyncio.sleep(0.3)  # until whatever there was to decide between them is decided
        for task in tasks:
            task.cancel()  # or there would always be one more event to read
        for queue, other in zip(queues, (1, 0), strict=True):
            events = [event async for event in _read(queue)]
            heard.append([event["n"] for event in events if (event.id or "").startswith("ab"[other])])
        return heard[0], heard[1], {link.dialled_by for one in brokers for link in one.links.values()}
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in brokers:
            with suppress(Exception):
                await one.__aexit__(None, None, None)


async def _read(queue):
    while True:
        try:
            yield await asyncio.wait_for(anext(aiter(queue)), 0.01)
        except TimeoutError:
            return


@pytest.mark.parametrize("routing", ["flooding", "peer", "hermes"])
@asynchronous
async def test_events_have_no_gap_whoever_dials_first(routing):
    for delay in (0.0, 0.001, -0.001):
        *heard, dialled_by = await meet(routing, delay)
        assert len(dialled_by) == 1, "both keep the same connection"
        for numbers in heard:
            assert numbers, "events come"
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), (delay, numbers[0])
