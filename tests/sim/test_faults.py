"""Each fault does what it says, and no more."""

from __future__ import annotations

import pytest

from angelia import Event, Filter
from angelia.messages import Publish, Subscribe
from angelia.sim.engine import Delivery, Simulation
from angelia.sim.errors import SimulationError
from angelia.sim.faults import (
    Crash,
    Cut,
    Delay,
    Duplicate,
    Heal,
    Partition,
    Reorder,
    Restart,
    Restore,
    Slow,
    parse_fault,
)
from angelia.sim.journal import Journal


class Line:
    """Three brokers in a line (or a ring), a subscriber at the last."""

    def __init__(self, routing: str, is_ring: bool = False) -> None:
        self.got: list[Delivery] = []
        self.journal = Journal()
        self.sim = Simulation(routing, journal=self.journal, on_delivery=self.got.append)
        for name in ("b0", "b1", "b2"):
            self.sim.add_broker(name)
        self.sim.connect_all([("b1", "b0"), ("b2", "b1")] + [("b0", "b2")] * is_ring)
        self.sim.attach("publisher", "b0")
        self.sim.attach("party", "b2")
        self.sim.run()
        self.sim.submit("party", Subscribe("party", Filter.parse("exists x")))
        self.sim.run()

    def publish(self, name: str = "e") -> None:
        self.sim.submit("publisher", Publish("publisher", Event({"x": 1}, id=name)))

    def delivered(self, name: str = "e") -> list[str | None]:
        """Publish, and what has come since."""
        self.got.clear()
        self.publish(name)
        self.sim.run()
        return [delivery.event.id for delivery in self.got]

    def dropped(self) -> int:
        return sum(row.record == "dropped" for row in self.journal)


def test_a_crash_loses_the_state_and_what_is_under_way() -> None:
    line = Line("peer")
    line.publish("lost")
    line.sim.run(until=line.sim.now + 0.015)  # between b1 and b2
    Crash("b2").apply(line.sim)
    line.sim.run()
    assert line.got == []
    assert line.dropped() == 1
    assert line.sim.brokers["b2"].node is None


def test_after_a_restart_clients_have_what_they_had() -> None:
    line = Line("peer")
    Crash("b2").apply(line.sim)
    Restart("b2").apply(line.sim)
    line.sim.run()
    assert line.delivered() == ["e"]


def test_clients_that_do_not_ask_again_have_nothing() -> None:
    line = Line("peer")
    Crash("b2").apply(line.sim)
    Restart("b2", resubscribe=False).apply(line.sim)
    line.sim.run()
    assert line.delivered() == []


def test_a_broker_that_is_down_refuses_requests() -> None:
    line = Line("peer")
    Crash("b0").apply(line.sim)
    assert line.delivered() == []
    assert line.sim.refusals[-1].error == "the broker is down"


@pytest.mark.parametrize("routing", ["peer", "flooding", "general"])
def test_a_cut_link_separates_and_its_return_connects(routing: str) -> None:
    line = Line(routing)
    Cut("b1", "b2").apply(line.sim)
    line.sim.run()
    assert line.delivered("apart") == []
    Restore("b1", "b2").apply(line.sim)
    line.sim.run()
    assert line.delivered("together") == ["together"]


@pytest.mark.parametrize("routing", ["flooding", "subscription_flooding", "general"])
def test_a_redundant_link_can_be_cut_and_return(routing: str) -> None:
    line = Line(routing, is_ring=True)
    for fault in (Cut("b0", "b2"), Restore("b0", "b2"), Cut("b0", "b1")):
        fault.apply(line.sim)
        line.sim.run()
        assert line.delivered(str(fault)) == [str(fault)]


def test_a_partition_cuts_all_links_between_and_healing_restores_them() -> None:
    line = Line("general", is_ring=True)
    Partition(("b2",)).apply(line.sim)
    line.sim.run()
    assert [link.is_up for link in line.sim.links] == [True, False, False]
    assert line.delivered("apart") == []
    Heal().apply(line.sim)
    line.sim.run()
    assert line.delivered("together") == ["together"]


def test_a_delay_makes_messages_late() -> None:
    line = Line("peer")
    Delay("b0", "b1", 2.0).apply(line.sim)
    start = line.sim.now
    line.delivered()
    assert line.got[0].time == pytest.approx(start + 2.02)


def test_a_slow_link_makes_messages_wait() -> None:
    line = Line("peer")
    Slow("b0", "b1", 100).apply(line.sim)
    line.got.clear()
    line.publish("first")
    line.publish("second")
    line.sim.run()
    first, second = (delivery.time for delivery in line.got)
    assert second - first > 0.5


@pytest.mark.parametrize("routing", ["flooding", "subscription_flooding", "general"])
def test_a_duplicated_notification_is_delivered_once(routing: str) -> None:
    line = Line(routing)
    Duplicate("b0", "b1", 1.0).apply(line.sim)
    assert line.delivered() == ["e"]
    arrived = [row for row in line.journal if (row.record, row.kind, row.at) == ("received", "Notify", "b1")]
    assert len(arrived) == 2


@pytest.mark.parametrize("routing", ["flooding", "subscription_flooding", "general"])
def test_reordered_notifications_all_arrive(routing: str) -> None:
    line = Line(routing)
    Reorder("b0", "b1", 1.0).apply(line.sim)
    line.got.clear()
    names = [f"e{number}" for number in range(20)]
    for name in names:
        line.publish(name)
    line.sim.run()
    came = [delivery.event.id for delivery in line.got]
    assert came != names
    assert sorted(map(str, came)) == sorted(names)


@pytest.mark.parametrize("routing", ["hierarchical", "peer", "advertisement", "hybrid"])
@pytest.mark.parametrize("fault", [Duplicate("b0", "b1", 0.5), Reorder("b0", "b1", 0.5)])
def test_routers_that_need_ordered_links_are_not_given_others(
    routing: str, fault: Duplicate | Reorder
) -> None:
    sim = Simulation(routing)
    sim.add_broker("b0", is_gateway=True)
    sim.add_broker("b1")
    sim.connect("b1", "b0")
    with pytest.raises(SimulationError, match="in order and once"):
        fault.apply(sim)


def test_a_broker_leaves_for_good() -> None:
    line = Line("peer")
    line.sim.detach("party")
    line.sim.remove_broker("b2")
    line.sim.run()
    assert sorted(line.sim.brokers) == ["b0", "b1"]
    assert line.delivered() == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("crash b1", Crash("b1")),
        ("restart b1", Restart("b1")),
        ("cut b1 b2", Cut("b1", "b2")),
        ("restore b1 b2", Restore("b1", "b2")),
        ("partition b1 b2", Partition(("b1", "b2"))),
        ("heal", Heal()),
        ("delay b1 b2 0.5", Delay("b1", "b2", 0.5)),
        ("slow b1 b2 1000", Slow("b1", "b2", 1000)),
        ("duplicate b1 b2 0.1", Duplicate("b1", "b2", 0.1)),
        ("reorder b1 b2 0.1", Reorder("b1", "b2", 0.1)),
    ],
)
def test_faults_are_written_as_the_table_says(text: str, fault: object) -> None:
    assert parse_fault(text) == fault


@pytest.mark.parametrize(
    "text",
    ["", "explode b1", "crash", "restart b1 b2", "cut b1", "heal b1", "delay b1 b2 x", "slow b1 b2 -1"],
)
def test_a_wrong_fault_is_one_clear_error(text: str) -> None:
    with pytest.raises(SimulationError) as error:
        parse_fault(text)
    assert "\n" not in str(error.value)
