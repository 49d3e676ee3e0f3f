"""A door of your own: HTTP in front of a bus within this process. Try it with the page docs/http.md.

python examples/http_door.py [port]
"""

import asyncio
import contextlib
import sys
from collections.abc import Mapping
from typing import Any

from angelia import Bus
from angelia.broker.http import Settings, create_app, serve
from angelia.broker.metrics import Metrics
from angelia.bus import Client


class BusService:
    """What the door needs of a service, from a bus with one broker."""

    def __init__(self, bus: Bus) -> None:
        self.name = "b1"
        self.metrics = Metrics()
        self.registry = bus.registry
        self._bus = bus

    def client(self, name: str, /) -> Client:
        """A new party."""
        return self._bus.client(name)

    def topology(self) -> Mapping[str, Any]:
        """There is one broker, and nothing else."""
        return {"broker": self.name, "peers": []}

    def is_healthy(self) -> bool:
        """Always."""
        return True


async def main(port: int) -> None:
    """Serve until interrupted."""
    # Sinks of webhooks may be on this machine, which they may not without being allowed to.
    settings = Settings(webhook_targets=("127.0.0.0/8",))
    async with Bus() as bus, await serve(create_app(BusService(bus), settings), port=port) as server:
        print(f"the door is open at {server.url}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8080))
