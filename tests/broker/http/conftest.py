"""A door for all tests of a file, in a thread of its own, with a plain client for it."""

import asyncio
import threading

import httpx
import pytest
from tests.broker.http.helpers import LOCAL, door


class Live:
    """A door that is open, seen from a thread that knows nothing of asyncio."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._context = door(webhook_targets=LOCAL, max_body=200_000, max_batch=50, keep_alive=0.2)
        self.opened = self.call(self._context.__aenter__())
        self.url = self.opened.url
        self.port = self.opened.port
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=10)

    def call(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)

    def subscribe(self, wanted="true"):
        async def subscribe():
            return self.opened.bus.subscribe(wanted)

        return self.call(subscribe())

    def received(self, subscription):
        async def drain():
            return subscription.drain()

        return self.call(drain())

    def close(self):
        self.http.close()
        self.call(self._context.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module")
def live():
    live = Live()
    yield live
    live.close()
