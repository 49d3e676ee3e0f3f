"""`connect_sync`: the same without asyncio, from scripts and from threads."""

import asyncio
import threading
import time

import pytest
from tests.broker.helpers import address, broker, prices, quote

from angelia import Event, connect_sync, event_type
from angelia.errors import (
    BrokerError,
    ClosedError,
    ConformanceError,
    ConnectionLostError,
    FilterSyntaxError,
    RequestError,
)
from angelia.local.network import free_ports


@event_type("sync.Reading")
class Reading:
    degrees: float


class Hosted:
    """Brokers in a thread of their own, with an event loop."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.brokers = []

    def __call__(self, **options):
        async def start():
            it = broker(**options)
            await it.start()
            return it

        it = self.run(start())
        self.brokers.append(it)
        return it

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def stop(self, it):
        self.run(it.stop())
        self.brokers.remove(it)

    def close(self):
        for it in list(self.brokers):
            self.stop(it)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def host():
    hosted = Hosted()
    yield hosted
    hosted.close()
    names = [thread.name for thread in threading.enumerate()]
    assert not [name for name in names if name.startswith("angelia-client")]


@pytest.fixture
def at(host):
    return address(host(name="b1"))


def soon(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_publish_confirmed_unconfirmed_and_in_batches(at):
    with connect_sync(at) as bus, bus.subscribe("true") as got:
        bus.publish(quote(0))
        bus.publish(quote(1), confirm=False)
        bus.publish_all(map(quote, range(2, 50)))
        bus.publish_all(map(quote, range(50, 99)), confirm=False)
        bus.publish(quote(99))
        assert prices(got.get(timeout=5) for _ in range(100)) == list(range(100))
        assert bus.describe()["published"] == 100


def test_errors_are_what_they_are(at):
    with connect_sync(at) as bus:
        bus.define(Reading)
        with pytest.raises(ConformanceError, match="degrees"):
            bus.publish(Event({"degrees": "hot"}, type="sync.Reading"))
        with pytest.raises(FilterSyntaxError):
            bus.subscribe("degrees <")
        with pytest.raises(RequestError, match="matches nothing"):
            bus.subscribe("x = 1 and x = 2")
        with bus.subscribe("x = 1") as got:  # with the number of the refused one
            bus.publish(Event({"x": 1}))
            assert got.get(timeout=5)["x"] == 1


def test_classes_patterns_interest_and_advertisements(at):
    with connect_sync(at) as bus:
        assert bus.interest(Reading) is False
        with bus.subscribe(Reading, where="degrees > 30") as hot, bus.subscribe("x = 1 then x = 2") as pairs:
            assert bus.interest(Reading) is True
            bus.advertise(Reading)
            bus.publish_all([Reading(degrees=20.0), Reading(degrees=35.5)])
            bus.publish_all([Event({"x": 1}), Event({"x": 2})])
            assert hot.get(timeout=5) == Reading(degrees=35.5)
            assert [event["x"] for event in pairs.get(timeout=5)] == [1, 2]
            bus.unadvertise(Reading)
        assert bus.interest(Reading) is False


def test_many_threads_share_a_client(at):
    with connect_sync(at) as bus, bus.subscribe("true", size=10_000) as got:

        def work(number):
            for step in range(50):
                bus.publish(Event({"thread": number, "step": step}))
                with bus.subscribe(f"thread = {number}"):
                    assert bus.interest(f"thread = {number}")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        events = [got.get(timeout=20) for _ in range(400)]
        for thread in threads:
            thread.join()
        for number in range(8):
            steps = [event["step"] for event in events if event["thread"] == number]
            assert steps == list(range(50))


def test_callbacks_have_threads_of_their_own_and_may_publish(at):
    done = threading.Event()
    with connect_sync(at) as bus:

        def answer(event):
            bus.publish(Event({"answer": event["question"]}))

        def heard(event):
            if event["answer"] == 99:
                done.set()

        bus.subscribe("exists question", answer, size=2)
        bus.subscribe("exists answer", heard, size=2)
        bus.publish_all([Event({"question": number}) for number in range(100)])
        assert done.wait(10)


def test_get_has_a_timeout_and_iteration_ends_with_the_client(at):
    bus = connect_sync(at)
    got = bus.subscribe("true")
    with pytest.raises(TimeoutError):
        got.get(timeout=0.05)
    bus.publish_all(map(quote, range(5)))
    soon(lambda: got.stats().queued == 5)
    bus.close()
    bus.close()
    assert prices(got) == [0, 1, 2, 3, 4]
    with pytest.raises(ClosedError):
        bus.publish(quote(1))


def test_to_connect_to_nobody_is_one_clear_line():
    (port,) = free_ports(1)
    with pytest.raises(BrokerError, match=rf"^cannot connect to tcp://127\.0\.0\.1:{port}: [^\n]*$"):
        connect_sync(f"127.0.0.1:{port}")
    assert not [t for t in threading.enumerate() if t.name.startswith("angelia-client")]


def test_fail_over_with_subscriptions_and_types(host):
    one, two = host(name="b1"), host(name="b2")
    with connect_sync(address(one), address(two)) as bus, bus.subscribe(Reading) as got:
        assert bus.broker == "b1"
        host.stop(one)
        soon(lambda: bus.broker == "b2")
        bus.publish(Reading(degrees=1.5))
        assert got.get(timeout=5) == Reading(degrees=1.5)
        assert bus.reconnects == 1
        assert "sync.Reading" in two.node.registry


def test_a_publication_in_doubt_and_one_that_takes_too_long(host):
    one = host(name="b1")
    with connect_sync(address(one), timeout=0.3) as bus:
        connection = one.clients[bus.name].connection

        async def take(wanted):
            connection.read(wanted)

        host.run(take(False))
        with pytest.raises(BrokerError, match=r"within 0\.3 s"):
            bus.publish(quote(1))
        failures = []

        def publish():
            try:
                bus.publish(quote(2))
            except Exception as error:
                failures.append(error)

        thread = threading.Thread(target=publish)
        thread.start()
        time.sleep(0.05)

        async def cut():
            connection.abort("crash")

        host.run(cut())
        thread.join()
        assert [type(one) for one in failures] == [ConnectionLostError]


def test_a_consumer_that_is_behind_gets_answers(at):
    with connect_sync(at, timeout=5) as bus, bus.subscribe("exists raw", size=2) as jobs:
        bus.publish_all([Event({"raw": number}) for number in range(200)])
        with bus.subscribe("exists done", size=1000) as results:
            for _ in range(200):
                bus.publish(Event({"done": jobs.get(timeout=5)["raw"]}))
            assert [results.get(timeout=5)["done"] for _ in range(200)] == list(range(200))
