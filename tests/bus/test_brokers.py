"""Several brokers in one process deliver what one broker delivers."""

import random

import pytest
from tests.bus.helpers import Auction, Happening, Sale, asynchronous

from angelia import Event
from angelia.bus import Bus

pytestmark = pytest.mark.filterwarnings("error")

ACYCLIC = ["tree", "line", "star"]
WAYS = [
    *((topology, routing) for topology in ACYCLIC for routing in ("peer", "hierarchical")),
    *((topology, routing) for topology in [*ACYCLIC, "ring"] for routing in ("flooding", "general")),
    ("ring", "subscription_flooding"),
]


def random_filter(random):
    return random.choice(
        [
            lambda: f"x < {random.randrange(10)}",
            lambda: f"x between {random.randrange(5)} and {random.randrange(5, 10)}",
            lambda: f'name prefix "{random.choice("ab")}"',
            lambda: f'x = {random.randrange(10)} or name = "{random.choice(["a", "ab", "b"])}"',
            lambda: "test.Sale: price < 50",
            lambda: "test.Happening: true",
            lambda: "not exists x",
        ]
    )()


def random_event(random):
    return random.choice(
        [
            lambda: Event({"x": random.randrange(10), "name": random.choice(["a", "ab", "b", "c"])}),
            lambda: Happening(where="hall"),
            lambda: Sale(where="shop", price=random.randrange(100)),
            lambda: Auction(where="house", price=random.randrange(100), bidders=2),
        ]
    )()


async def deliveries(bus, seed):
    """What each of many subscriptions gets in a random scenario, the same whatever the bus."""
    chance = random.Random(seed)
    places = [chance.randrange(100) for _ in range(12)]
    clients = [
        bus.client(f"c{n}", broker=bus.brokers[place % len(bus.brokers)]) for n, place in enumerate(places)
    ]
    await clients[0].define(Auction)
    open_ones, log = [], []
    for step in range(150):
        action = chance.random()
        client = clients[chance.randrange(len(clients))]
        if action < 0.25:
            open_ones.append((step, client.subscribe(random_filter(chance))))
        elif action < 0.35 and open_ones:
            number, subscription = open_ones.pop(chance.randrange(len(open_ones)))
            log.append((number, [dict(event.attributes) for event in subscription.drain()]))
            await subscription.close()
        else:
            await client.publish(random_event(chance))
    return log + [(n, [dict(event.attributes) for event in one.drain()]) for n, one in open_ones]


@pytest.mark.parametrize(("topology", "routing"), WAYS)
@asynchronous
async def test_many_brokers_equal_one(topology, routing):
    for seed in range(4):
        async with Bus(routing="flooding") as one, Bus(6, topology=topology, routing=routing) as many:
            expected = await deliveries(one, seed)
            assert sum(len(got) for _, got in expected) > 100
            assert await deliveries(many, seed) == expected


@asynchronous
async def test_every_event_arrives_once_round_a_ring():
    async with Bus(5, topology="ring", routing="general") as bus:
        parties = [bus.client(f"at-{name}", broker=name) for name in bus.brokers]
        subscriptions = [party.subscribe("exists x") for party in parties]
        for n, party in enumerate(parties):
            await party.publish(Event({"x": n}))
        assert [[event["x"] for event in one.drain()] for one in subscriptions] == [[0, 1, 2, 3, 4]] * 5


@asynchronous
async def test_events_go_only_where_somebody_wants_them():
    async with Bus(8, topology="line") as bus:
        bus.client("near", broker="b2").subscribe("x > 5")
        before = bus.stats().messages
        await bus.publish(Event({"x": 1}))
        assert bus.stats().messages == before
        await bus.publish(Event({"x": 6}))
        assert bus.stats().messages == before + 1


@pytest.mark.parametrize("brokers", [1, 2, 3])
@pytest.mark.parametrize("topology", ["tree", "line", "star", "ring"])
def test_small_networks_are_networks_too(brokers, topology):
    assert Bus(brokers, topology=topology, routing="general").brokers == ("b1", "b2", "b3")[:brokers]
