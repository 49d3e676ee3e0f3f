"""The engine: virtual time, links, clients, and what nodes refuse."""

from __future__ import annotations

import pytest

from angelia import Event, Filter
from angelia.messages import Publish, Subscribe, Unsubscribe
from angelia.sim.engine import Delivery, Simulation
from angelia.sim.errors import SimulationError
from angelia.sim.journal import Journal, Row
from angelia.sim.links import Distance, distances, message_size
from angelia.sim.topology import transit_stub, uniform


def network(
    routing: str, *edges: tuple[str, str], **options: object
) -> tuple[Simulation, list[Delivery], Journal]:
    """Brokers linked as told, with a client `c-…` at each, and what is delivered."""
    got: list[Delivery] = []
    journal = Journal()
    sim = Simulation(routing, journal=journal, on_delivery=got.append, **options)  # type: ignore[arg-type]
    for name in sorted({end for edge in edges for end in edge}):
        sim.add_broker(name)
        sim.attach(f"c-{name}", name)
    sim.connect_all(edges)
    sim.run()
    return sim, got, journal


def subscribe(sim: Simulation, broker: str, text: str) -> None:
    sim.submit(f"c-{broker}", Subscribe(f"c-{broker}", Filter.parse(text)))
    sim.run()


def publish(sim: Simulation, broker: str, name: str = "e", **attributes: object) -> None:
    sim.submit(f"c-{broker}", Publish(f"c-{broker}", Event(attributes, id=name)))


def rows(journal: Journal, record: str, kind: str) -> list[Row]:
    return [row for row in journal if row.record == record and row.kind == kind]


def test_an_event_takes_the_latency_of_each_link() -> None:
    sim, got, _ = network("peer", ("a", "b"), ("b", "c"))
    subscribe(sim, "c", "x = 1")
    start = sim.now
    publish(sim, "a", x=1)
    sim.run()
    assert [d.time for d in got] == pytest.approx([start + 0.02])
    assert got[0].hops == 2


def test_latency_is_that_of_the_shortest_physical_path() -> None:
    physical = transit_stub(3)
    far = physical.distances([10], [77])
    sim = Simulation("peer", physical=physical)
    sim.add_broker("a", 10)
    sim.add_broker("b", 77)
    link = sim.connect("a", "b")
    assert link.channels[0].distance == Distance(far.latency[0, 0], far.cost[0, 0], int(far.hops[0, 0]))


def test_distances_of_pairs_are_those_of_the_network_whatever_end_is_searched_from() -> None:
    physical = transit_stub(5)
    pairs = [(1, 9), (9, 1), (9, 30), (9, 64), (12, 12)]
    found = distances(physical, pairs)
    for a, b in pairs:
        assert found[a, b].latency == pytest.approx(physical.distances([a], [b]).latency[0, 0])


def test_links_are_first_in_first_out_even_when_a_delay_ends() -> None:
    sim, got, _ = network("peer", ("a", "b"))
    subscribe(sim, "b", "exists x")
    sim.set_channels(sim.link("a", "b"), "delay", 1.0)
    publish(sim, "a", "first", x=1)
    sim.set_channels(sim.link("a", "b"), "delay", 0.0)
    publish(sim, "a", "second", x=2)
    sim.run()
    assert [d.event.id for d in got] == ["first", "second"]
    assert got[0].time == got[1].time


def test_with_a_bandwidth_messages_wait_for_those_before_them() -> None:
    sim, got, _ = network("peer", ("a", "b"))
    subscribe(sim, "b", "exists x")
    sim.set_channels(sim.link("a", "b"), "bandwidth", 1000)
    start = sim.now
    for number in range(3):
        publish(sim, "a", f"e{number}", x=1)
    sim.run()
    event = got[0].event
    seconds = (48 + event.encoded_size()) / 1000
    assert [d.time for d in got] == pytest.approx([start + 0.01 + seconds * n for n in (1, 2, 3)])


def test_every_message_has_a_size() -> None:
    sim, _, _ = network("general", ("a", "b"), ("b", "c"), ("c", "a"), bandwidth=1e6)
    subscribe(sim, "a", "x = 1")
    publish(sim, "b", x=1)
    sim.run()
    assert message_size(Subscribe("a", Filter.parse("x = 1"))) == 48 + len("a") + len("x = 1")


def test_the_journal_pairs_what_is_sent_with_what_is_received_and_tells_the_cause() -> None:
    sim, _, journal = network("peer", ("a", "b"))
    subscribe(sim, "b", "x = 1")
    publish(sim, "a", "e7", x=1)
    sim.run()
    (request,) = rows(journal, "request", "Publish")
    (sent,) = rows(journal, "sent", "Notify")
    (received,) = rows(journal, "received", "Notify")
    (delivery,) = rows(journal, "delivery", "Deliver")
    assert sent.number == received.number
    assert {sent.cause, received.cause, delivery.cause} == {request.number}
    assert {row.detail for row in (request, sent, received, delivery)} == {"e7"}
    assert (sent.at, sent.peer, received.at, received.peer) == ("a", "b", "b", "a")


def test_a_refused_request_is_noted_with_its_reason() -> None:
    sim, _, journal = network("peer", ("a", "b"))
    subscribe(sim, "a", "false")
    assert "matches nothing" in sim.refusals[0].error
    assert rows(journal, "reply", "Subscribe")[0].detail == sim.refusals[0].error


def test_a_link_that_closes_a_cycle_is_cut_and_the_journal_says_why() -> None:
    sim, _, journal = network("peer", ("a", "b"), ("b", "c"))
    link = sim.connect("c", "a")
    sim.run()
    assert link.is_cut
    assert not link.is_up
    assert "cycle" in rows(journal, "link", "refused")[0].detail
    for broker in sim.brokers.values():
        assert broker.node is not None
        assert set(broker.node.state()["neighbors"]) == set(broker.channels)


def test_a_second_master_is_refused_and_the_other_end_hears_of_it() -> None:
    sim, _, journal = network("hierarchical", ("a", "b"))
    sim.add_broker("c")
    assert sim.connect("a", "c").is_cut
    assert "master already" in rows(journal, "link", "refused")[0].detail
    node = sim.brokers["c"].node
    assert node is not None
    assert node.state()["neighbors"] == ()


def test_gateways_of_a_hybrid_are_peers_and_others_have_masters() -> None:
    sim = Simulation("hybrid")
    for name, is_gateway in (("g1", True), ("g2", True), ("a", False)):
        sim.add_broker(name, is_gateway=is_gateway)
    sim.connect_all([("g2", "g1"), ("a", "g2")])
    sim.run()
    masters = {name: broker.node.state()["master"] for name, broker in sim.brokers.items() if broker.node}
    assert masters == {"g1": None, "g2": None, "a": "g2"}


def test_what_is_done_at_the_same_time_is_done_in_the_order_it_was_asked_for() -> None:
    sim = Simulation("peer")
    done: list[int] = []
    for number in range(5):
        sim.at(1.0, lambda number=number: done.append(number))  # type: ignore[misc]
    sim.run()
    assert done == [0, 1, 2, 3, 4]
    assert sim.now == 1.0


def test_a_run_until_a_time_stops_there() -> None:
    sim, got, _ = network("peer", ("a", "b"))
    subscribe(sim, "b", "x = 1")
    publish(sim, "a", x=1)
    sim.run(until=sim.now + 0.005)
    assert got == []
    sim.run()
    assert len(got) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda sim: sim.add_broker("a"), "there is a broker a already"),
        (lambda sim: sim.connect("a", "b"), "cannot be linked"),
        (lambda sim: sim.connect("a", "z"), "there is no broker 'z'"),
        (lambda sim: sim.link("a", "a"), "there is no link between a and a"),
        (lambda sim: sim.attach("c-a", "a"), "there is a client c-a already"),
        (lambda sim: sim.submit("z", None), "there is no client 'z'"),
        (lambda sim: sim.restart("a"), "a is not down"),
        (lambda sim: sim.at(-1.0, lambda: None), "is past"),
    ],
)
def test_what_cannot_be_is_one_clear_error(wrong: object, message: str) -> None:
    sim, _, _ = network("peer", ("a", "b"))
    with pytest.raises(SimulationError, match=message):
        wrong(sim)  # type: ignore[operator]


def test_uniform_networks_have_one_latency() -> None:
    sim = Simulation("flooding", physical=uniform(3, 0.25))
    for number in range(3):
        sim.add_broker(f"b{number}", number)
    sim.connect_all([("b1", "b0"), ("b2", "b0")])
    assert {channel.latency for link in sim.links for channel in link.channels} == {0.25}


def test_on_a_slow_link_nothing_is_lost_when_a_covering_subscription_goes() -> None:
    sim, got, _ = network("peer", ("a", "b"))
    subscribe(sim, "b", "x = 1")
    sim.attach("wide", "b")
    sim.submit("wide", Subscribe("wide", Filter.parse("exists x")))
    sim.run()
    sim.set_channels(sim.link("a", "b"), "bandwidth", 100)
    sim.submit("wide", Unsubscribe("wide", Filter.parse("exists x")))
    sim.at(sim.now + 0.7, lambda: publish(sim, "a", x=1))  # between the two messages
    sim.run()
    assert [d.client.name for d in got] == ["c-b"]
