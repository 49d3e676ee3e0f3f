"""A broker with a lake: what its clients publish is kept, and subscriptions may begin in the past."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from angelia.errors import LakeError, RequestError
from angelia.event import Event
from angelia.filter import Filter
from angelia.node import Node

if TYPE_CHECKING:
    from angelia.store.seam import Seam
    from angelia.store.writer import Fsync, LakeWriter

__all__ = ["Keeper", "Past"]

log = logging.getLogger("angelia.broker")

CHUNK = 512  # events of the past that are read at once
LINGER = 10.0  # seconds after which what comes live cannot be from before
SETTLE = 1.0  # seconds that a subscription has to reach other brokers before their past is read


class Keeper:
    """Keeps what is published at a broker, in a lake that it may share with others."""

    def __init__(self, directory: Path, sync: Fsync, node: Node, clock: Callable[[], float]) -> None:
        try:
            from angelia.store.catalog import Catalog
            from angelia.store.writer import LakeWriter
        except ModuleNotFoundError as error:
            raise LakeError(f"a lake needs {error.name}: pip install 'angelia[match]'") from None
        known = Catalog(directory).registry()
        for name in known:
            node.registry.adopt(known.get(name))
        self.directory = directory
        self._node = node
        self._writer: LakeWriter = LakeWriter(directory, node.name, node.registry, fsync=sync, clock=clock)

    def append(self, events: tuple[Event, ...]) -> None:
        """Keep events; a `LakeError` if that cannot be."""
        self._writer.append(events)

    def history(self, wanted: Filter, since: datetime) -> Iterator[Event]:
        """What the lake has for a subscription from a time on, in order of time."""
        from angelia.store.lake import Lake

        return Lake(self.directory).events(filter=wanted, since=since)

    async def close(self) -> None:
        """Roll what there is."""
        await asyncio.to_thread(self._writer.close)


class _Chunks:
    """An iterator over what was read ahead; it can go on after it has ended."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        if not self.events:
            raise StopIteration
        return self.events.popleft()


class Past:
    """A subscription that begins in the past: what comes live for it waits until history has been told.

    The subscription stands before history is read, and history is read when it had time to reach other
    brokers. An event that is in both is told by its id, for a while after history has ended, too.
    """

    def __init__(self, keeper: Keeper | None, wanted: Filter, since: datetime, alone: bool) -> None:
        if keeper is None:
            raise RequestError("this broker keeps no past to subscribe to; start it with --lake DIRECTORY")
        if since.tzinfo is None:
            raise RequestError("since is a time with a time zone")
        from angelia.store.seam import Seam

        self._keeper = keeper
        self._wanted = wanted
        self._since = since
        self._settle = 0.0 if alone else SETTLE
        self._chunks = _Chunks()
        self._seam: Seam = Seam(iter(self._chunks))

    def offer(self, event: Event) -> bool:
        """An event has come live; whether to pass it on now."""
        return self._seam.offer(event)

    async def tell(self, put: Callable[[Event], None], room: Callable[[], bool]) -> None:
        """Give all of the past to `put`, as fast as there is `room`; returns when this may be forgotten."""
        await asyncio.sleep(self._settle)
        history = await asyncio.to_thread(self._keeper.history, self._wanted, self._since)
        while not self._seam.is_live:
            self._chunks.events.extend(await asyncio.to_thread(lambda: list(islice(history, CHUNK))))
            for event in self._seam.read(CHUNK):
                put(event)
            while not room():
                await asyncio.sleep(0.005)
        await asyncio.sleep(LINGER)
