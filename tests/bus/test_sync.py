"""The bus without asyncio: threads, scripts and notebooks."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import pytest
from tests.bus.helpers import Sale, prices, quote

from angelia.bus import BlockedError, ClosedError, DisconnectedError, SyncBus, sync
from angelia.errors import ConformanceError, RequestError

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def in_thread(function, *args):
    """Start a function in a thread; returns what waits for its result."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(function, *args)
    pool.shutdown(wait=False)
    return lambda: future.result(timeout=10)


def wait_until(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_script():
    with SyncBus() as bus, bus.subscribe('flights.Quote: airline = "UA"') as notifications:
        for price in (420, 430):
            bus.publish(quote(price))
        bus.publish(quote(400, airline="AA"))
        assert notifications.get()["price"] == 420
        assert prices(notifications.until_idle(timeout=0.01)) == [430]
        with pytest.raises(TimeoutError, match=r"no event within 0\.01 s"):
            notifications.get(timeout=0.01)


def test_iteration_ends_with_the_bus():
    with SyncBus() as bus:
        notifications = bus.subscribe("true")
        consumer = in_thread(lambda: prices(notifications))
        for price in range(5):
            bus.publish(quote(price))
    assert consumer() == [0, 1, 2, 3, 4]
    with pytest.raises(ClosedError, match="subscription is closed"):
        notifications.get()
    assert list(notifications.until_idle(timeout=1)) == []
    with pytest.raises(ClosedError, match="bus is closed"):
        bus.publish(quote(1))


def test_many_threads_publish_and_each_of_their_events_arrives_once_and_in_order():
    with SyncBus(4, topology="star") as bus:
        every = bus.client("every", broker="b4").subscribe("true", size=50)
        consumer = in_thread(lambda: [(event["airline"], event["price"]) for event in every])

        def publish(name, broker):
            with bus.client(name, broker=broker) as client:
                for price in range(200):
                    client.publish(quote(price, airline=name))

        publishers = [in_thread(publish, f"p{n}", bus.brokers[n % 4]) for n in range(8)]
        for publisher in publishers:
            publisher()
        bus.close()
        got = consumer()
        assert len(got) == 1600
        for n in range(8):
            assert [price for name, price in got if name == f"p{n}"] == list(range(200))


def test_threads_subscribe_and_unsubscribe_while_others_publish():
    stop = threading.Event()
    with SyncBus(3) as bus:
        constant = bus.subscribe("true", size=100_000)

        def publish():
            for price in range(500):
                bus.publish(quote(price))
            stop.set()

        def come_and_go(name):
            visits = 0
            with bus.client(name, broker="b3") as client:
                while not stop.is_set():
                    with client.subscribe("price >= 0") as notifications:
                        got = prices(notifications.until_idle(timeout=0.002))
                        assert got == list(range(got[0], got[0] + len(got))) if got else True
                    visits += 1
            return visits

        visitors = [in_thread(come_and_go, f"v{n}") for n in range(3)]
        publisher = in_thread(publish)
        publisher()
        assert all(visitor() for visitor in visitors)
        assert prices(constant.drain()) == list(range(500))


def test_several_threads_share_a_subscription():
    with SyncBus() as bus:
        notifications = bus.subscribe("true")
        workers = [in_thread(lambda: prices(notifications)) for _ in range(4)]
        for price in range(200):
            bus.publish(quote(price))
        bus.close()
        assert sorted(chain(*(worker() for worker in workers))) == list(range(200))


# ---------------------------------------------------------------- callbacks


def test_callbacks_run_in_their_own_threads_and_finish_before_the_bus_is_closed():
    got, threads = [], set()

    def note(event):
        threads.add(threading.current_thread().name)
        got.append(event["price"])

    with SyncBus() as bus:
        bus.subscribe("true", note)
        for price in range(100):
            bus.publish(quote(price))
    assert got == list(range(100))
    assert threads == {"bus#1"}


def test_a_callback_that_raises_is_logged_and_goes_on(caplog):
    got = []

    def fails(sale):
        got.append(sale)
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR, "angelia.bus"), SyncBus() as bus:
        subscription = bus.subscribe(Sale, fails)
        bus.publish(Sale(where="shop", price=1))
        bus.publish(Sale(where="shop", price=2))
    assert [sale.price for sale in got] == [1, 2]
    assert subscription.stats().failed == bus.stats().failed == 2
    assert "ZeroDivisionError" in caplog.text


def test_a_slow_callback_stalls_nobody_else():
    release, got = threading.Event(), []
    with SyncBus() as bus:
        bus.subscribe("true", lambda event: release.wait(10), size=1, policy="drop_newest")
        bus.subscribe("true", got.append)
        for price in range(10):
            bus.publish(quote(price))
        wait_until(lambda: len(got) == 10)
        release.set()


def test_a_callback_may_close_its_subscription_and_the_bus():
    got = []
    bus = SyncBus()

    def once(event):
        got.append("once")
        subscription.close()

    def last(event):
        got.append("last")
        bus.close()

    subscription = bus.subscribe("true", once)
    bus.publish(quote(1))
    wait_until(lambda: not bus.stats().subscriptions)
    bus.subscribe("true", last)
    bus.publish(quote(2))
    wait_until(lambda: not bus._shared.threads)
    assert got == ["once", "last"]
    with pytest.raises(ClosedError, match="bus is closed"):
        bus.publish(quote(3))
    subscription.close()


def test_closing_a_subscription_waits_for_its_callback():
    started, release, got = threading.Event(), threading.Event(), []

    def slow(event):
        started.set()
        release.wait(10)
        got.append(event["price"])

    with SyncBus() as bus:
        subscription = bus.subscribe("true", slow)
        bus.publish(quote(0))
        bus.publish(quote(1))
        assert started.wait(10)
        closing = in_thread(subscription.close)
        wait_until(lambda: not bus.stats().subscriptions)
        release.set()
        closing()
        assert got == [0]


def test_a_coroutine_is_no_callback_here():
    async def callback(event):
        """Never called."""

    with SyncBus() as bus, pytest.raises(RequestError, match="cannot await a callback; use Bus"):
        bus.subscribe("true", callback)


def test_events_of_a_callback_cannot_be_read_as_well():
    with SyncBus() as bus:
        subscription = bus.subscribe("true", lambda event: None)
        for read in (subscription.get, subscription.drain, lambda: next(subscription)):
            with pytest.raises(RequestError, match="go to its callback"):
                read()


# ---------------------------------------------------------------- full queues


def test_block_makes_the_publisher_wait():
    with SyncBus() as bus:
        slow, quick = bus.subscribe("true", size=2), bus.subscribe("true")
        publisher = in_thread(lambda: [bus.publish(quote(price)) for price in range(6)])
        wait_until(lambda: quick.stats().queued == 3)
        assert slow.stats().queued == 2
        assert prices(slow.get(timeout=10) for _ in range(6)) == list(range(6))
        publisher()
        assert prices(quick.drain()) == list(range(6))


def test_a_publisher_that_waits_too_long_is_told():
    with SyncBus() as bus:
        slow = bus.subscribe("true", size=1)
        bus.publish(quote(0))
        with pytest.raises(
            BlockedError, match=r"queue \(1 events\) is full.*nobody read it \(waited 0\.01 s\)"
        ) as caught:
            bus.publish(quote(1), timeout=0.01)
        assert isinstance(caught.value, TimeoutError)
        assert slow.dropped == bus.stats().dropped == 1
        assert prices(slow.drain()) == [0]
        bus.publish(quote(2))
        assert prices(slow.drain()) == [2]


def test_a_thread_that_would_wait_for_itself_is_told_soon(monkeypatch):
    monkeypatch.setattr(sync, "OWN_PATIENCE", 0.01)
    with SyncBus() as bus:
        notifications = bus.subscribe("true", size=1)
        bus.publish(quote(0))
        notifications.get()
        bus.publish(quote(1))
        with pytest.raises(BlockedError, match="would wait for itself"):
            bus.publish(quote(2), timeout=None)


def test_the_other_policies_are_the_same_as_with_asyncio(caplog):
    with SyncBus() as bus:
        oldest = bus.subscribe("true", size=2, policy="drop_oldest")
        newest = bus.subscribe("true", size=2, policy="drop_newest")
        broken = bus.subscribe("true", size=2, policy="disconnect")
        for price in range(4):
            bus.publish(quote(price))
        assert prices(oldest.drain()) == [2, 3]
        assert prices(newest.drain()) == [0, 1]
        assert (oldest.dropped, newest.dropped, broken.dropped) == (2, 2, 3)
        assert bus.stats().dropped == 7
        for _ in range(2):
            with pytest.raises(DisconnectedError, match="queue of 2 was full"):
                next(broken)


def test_a_disconnected_callback_is_told_in_the_log(caplog):
    release = threading.Event()
    with SyncBus() as bus:
        bus.subscribe("true", lambda event: release.wait(10), size=1, policy="disconnect")
        for price in range(5):
            bus.publish(quote(price))
        release.set()
    assert "bus#1 (true): the subscription was ended" in caplog.text


def test_closing_the_slow_subscription_frees_the_publisher():
    with SyncBus() as bus:
        slow, quick = bus.subscribe("true", size=1), bus.subscribe("true")
        publisher = in_thread(lambda: [bus.publish(quote(price)) for price in range(3)])
        wait_until(lambda: quick.stats().queued == 2)
        slow.close()
        publisher()
        assert prices(quick.drain()) == [0, 1, 2]


# ---------------------------------------------------------------- the rest


def test_types_advertisements_and_interest():
    with SyncBus(2, routing="advertisement", clock=lambda: 5.0) as bus:
        assert bus.brokers == ("b1", "b2")
        assert (bus.name, bus.broker) == ("bus", "b1")
        far = bus.client("far", broker="b2")
        bus.define(Sale)
        assert bus.interest(Sale)  # who has not advertised is not told
        bus.advertise(Sale)
        assert not bus.interest(Sale)
        sales = far.subscribe(Sale)
        assert bus.interest("test.Sale: price < 5")
        bus.publish(Sale(where="shop", price=1))
        assert sales.drain() == [Sale(where="shop", price=1)]
        bus.unadvertise(Sale)
        with pytest.raises(RequestError, match="has not advertised"):
            bus.publish(Sale(where="shop", price=1))
        with pytest.raises(ConformanceError, match="no attribute 'prize'"):
            far.subscribe(Sale, where="prize > 1")
