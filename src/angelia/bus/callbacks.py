"""Callbacks of the asynchronous shell that are due or running.

Plain functions are called by the loop itself, in the order in which events came: a task for each would cost
more than most of them do. After some milliseconds others are due. What has to be awaited gets a task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic
from typing import Protocol

from angelia.bus.session import Requests

__all__ = ["Callbacks", "Due"]


SLICE = 0.005  # seconds after which others are due


class Due(Protocol):
    """A subscription whose callback is to be called."""

    def call_next(self) -> None:
        """Call it with the next event, if there is one."""

    def is_of(self, session: Requests) -> bool:
        """Whether it is a subscription of this client."""


class Callbacks:
    """Those of a bus, or of a client elsewhere."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], Requests] = {}
        # A callback may be called at once if nothing is due before it, and the time is not over.
        self.due: deque[Due] = deque()
        self.until = 0.0
        self._is_scheduled = False

    def begin(self) -> None:
        """Events are about to be delivered, which need not wait for a turn of the loop."""
        self.until = monotonic() + SLICE

    def start(self, task: asyncio.Task[None], session: Requests) -> None:
        """A task calls back, or awaits what a callback returned."""
        self._tasks[task] = session
        task.add_done_callback(self._tasks.pop)

    def soon(self, due: Due) -> None:
        """Have a callback called with one more event, though not in the middle of a delivery."""
        self.due.append(due)
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        due, until = self.due, monotonic() + SLICE
        try:
            while due:
                due.popleft().call_next()
                if monotonic() > until:
                    break
        finally:
            self._is_scheduled = False
            if due:
                self._schedule()

    async def done(self, session: Requests | None = None) -> None:
        """Wait for all (of one client), unless it is a callback that asks."""
        while asyncio.current_task() not in self._tasks:
            running = [task for task, owner in self._tasks.items() if session in (None, owner)]
            if any(session is None or due.is_of(session) for due in self.due):
                await asyncio.sleep(0)
            elif any(not task.done() for task in running):
                await asyncio.wait(running)
            else:
                return
