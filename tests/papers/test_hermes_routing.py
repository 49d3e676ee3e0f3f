"""The routing of Hermes (P. Pietzuch's thesis, 2004): sections 2.3 and 4.3, scenario by scenario.

The pictures are lost; what they showed is taken from the prose. Where the prose tells a path, the ids and
distances of brokers are chosen so that the overlay's routes are those paths.
"""

from __future__ import annotations

from os.path import commonprefix

import pytest

from angelia import Advertisement, Event, EventType, Filter
from angelia.messages import Advertise, By, DefineType, Publish, Subscribe
from angelia.overlay import key_of
from angelia.overlay.ids import BITS, as_id, number
from angelia.routing import Party, Peer
from angelia.sim.engine import Simulation
from angelia.sim.journal import Journal
from angelia.sim.links import Distance

STATIC = {"heartbeat": None, "refresh": None, "b": 4}
TYPE = "Quote"
KEY = number(key_of(TYPE))
RING = 1 << BITS


class Scenario:
    """Brokers with ids relative to the rendezvous node of a type, and distances between them."""

    def __init__(self, near=(), journal=None, **options) -> None:
        self.journal = Journal()
        self.got: list[tuple[str, str]] = []
        self._near = {frozenset(pair) for pair in near}
        self.names: list[str] = []
        self.sim = Simulation(
            "hermes",
            options={**STATIC, **options},
            journal=self.journal,
            distance=self._distance,
            on_delivery=lambda d: self.got.extend((d.event.id, who) for who in sorted(d.identities)),
        )

    def _distance(self, a: int, b: int) -> Distance:
        return Distance(0.01 if frozenset((self.names[a], self.names[b])) in self._near else 0.05)

    def add(self, name: str, id: int, through: str | None = None) -> None:
        self.names.append(name)
        self.sim.add_broker(name, len(self.names) - 1, node_id=as_id(id % RING))
        if through is not None:
            self.sim.connect(name, through)
            self.settle()

    def settle(self, seconds: float | None = None) -> None:
        if seconds is None:
            self.sim.run()
        else:
            self.sim.run(self.sim.now + seconds)

    def request(self, broker: str, request) -> None:
        if request.identity not in self.sim.clients:
            self.sim.attach(request.identity, broker)
        self.sim.submit(request.identity, request)
        self.settle()
        assert not self.sim.refusals

    def define(self, broker: str, event_type: EventType) -> None:
        self.request(broker, DefineType("owner", event_type))

    def advertise(self, broker: str, who: str, text: str) -> None:
        self.request(broker, Advertise(who, Advertisement.parse(text)))

    def subscribe(self, broker: str, who: str, text: str, by: By = By.BOTH) -> None:
        self.request(broker, Subscribe(who, Filter.parse(text), by))

    def publish(self, who: str, id: str, by: By = By.BOTH, type: str = TYPE, **attributes) -> list[str]:
        self.got.clear()
        self.request(self.sim.clients[who].broker, Publish(who, Event(attributes, type=type, id=id), by))
        return [party for event, party in self.got if event == id]

    def tables(self, broker: str, tree: str = TYPE) -> dict[str, dict[str, tuple[set, set]]]:
        """The routing tables of a broker by the text of entries: from whom, and to whom."""
        tables = self.sim.brokers[broker].node.state()["trees"].get(tree, {})
        return {
            kind: {str(item): ({_name(w) for w in sources}, set(to)) for item, (sources, to) in table.items()}
            for kind, table in tables.items()
            if table
        }

    def sent(self, kind: str) -> list[tuple[str, str]]:
        """From whom to whom messages of a kind went."""
        return [(row.at, row.peer) for row in self.journal if row.record == "sent" and row.kind == kind]


def _name(who) -> str:
    return who.name if isinstance(who, Peer) else who.identity if isinstance(who, Party) else "?"


def figure_4_3() -> Scenario:
    """Brokers B1-B5 and R: B2 and B3 reach R over B1, and B5 directly; B4 is not on any way."""
    net = Scenario(near=[("B2", "B1"), ("B3", "B1"), ("B5", "R")], leaf_set=2, inheritance=None)
    step = 1 << (BITS - 4)  # another first digit
    net.add("R", KEY)
    net.add("B1", KEY ^ (1 << (BITS - 5)), "R")  # it shares the first digit with the type
    for place, name in enumerate(("B2", "B3", "B5", "B4"), 3):
        net.add(name, KEY + place * step, "R")
    for start, way in (("B2", ["B1", "R"]), ("B3", ["B1", "R"]), ("B5", ["R"]), ("B1", ["R"])):
        assert path(net.sim, start, TYPE) == way, start
    return net


def path(sim: Simulation, start: str, type: str) -> list[str]:
    found = []
    at = start
    while (hop := sim.brokers[at].node.router.pan.next_hop(key_of(type))) is not None:
        at = hop.name
        found.append(at)
    return found


# ---------------------------------------------------------------- 2.3.1 Pastry


def test_figure_2_9_each_hop_shares_a_longer_prefix_with_the_key():
    """b = 2: a message for 333 at node 123 goes to 311 first, and "each hop moves … closer"."""

    def id_of(digits: str) -> int:
        return int(digits, 4) << (BITS - 6)

    sim = Simulation("hermes", options={**STATIC, "b": 2, "leaf_set": 2})
    names = ["123", "311", "331", "332", "333", "012", "032", "131", "211", "233"]
    for name in names:
        sim.add_broker(name, node_id=as_id(id_of(name)))
        if name != "123":
            sim.connect(name, "123")
        sim.run()
    key, at, way = as_id(id_of("333")), "123", []
    while (hop := sim.brokers[at].node.router.pan.next_hop(key)) is not None:
        at = hop.name
        way.append(at)
    shared = [len(commonprefix([name, "333"])) for name in way]
    assert way[-1] == "333"
    assert way[0][0] == "3", "the first hop is from the routing table of 123, as 311 is"
    assert shared == sorted(shared)
    table = sim.brokers["123"].node.state()["routing_table"]
    assert "311" in {c.name for c in table[0][3]}, "311 is in 123's row 0, for the digit 3"


# ---------------------------------------------------------------- 4.3.3 type-based routing


@pytest.fixture
def type_based() -> Scenario:
    net = figure_4_3()
    net.define("B2", EventType(TYPE, {"x": "integer"}))
    net.advertise("B1", "P1", f"{TYPE}: true")
    net.advertise("B2", "P2", f"{TYPE}: exists x")
    net.subscribe("B3", "S1", f"{TYPE}: true", By.TYPE)
    net.subscribe("B5", "S2", f"{TYPE}: true", By.TYPE)
    return net


def test_figure_4_3_the_type_is_kept_at_the_rendezvous_node(type_based):
    assert TYPE in type_based.sim.brokers["R"].node.state()["kept"]


def test_table_4_5_routing_tables_of_b1(type_based):
    """a1 goes to R, a2 comes from B2 and is discarded, since a1 covers it; s1 comes from B3 and goes to R."""
    assert type_based.tables("B1") == {
        "advertisements": {"true": ({"P1"}, {"R"}), "exists x": ({"B2"}, set())},
        "by type": {"true": ({"B3"}, {"R"})},
    }


def test_figure_4_3_no_state_is_needed_where_no_tree_is(type_based):
    assert type_based.tables("B4") == {}
    assert set(type_based.tables("B2")) == {"advertisements"}
    for broker in ("B3", "B5"):
        assert set(type_based.tables(broker)) == {"by type"}


def test_figure_4_3_the_way_of_p1(type_based):
    """p1 of B1 goes to R, by the advertisement, and to B3, by s1; R sends it to B5."""
    assert sorted(type_based.publish("P1", "p1", By.TYPE, x=1)) == ["S1", "S2"]
    assert sorted(type_based.sent("PublicationMessage")) == [("B1", "B3"), ("B1", "R"), ("R", "B5")]


# ---------------------------------------------------------------- 4.3.5 type- and attribute-based routing


@pytest.fixture
def by_attribute() -> Scenario:
    net = figure_4_3()
    net.advertise("B1", "P1", f"{TYPE}: true")
    net.advertise("B2", "P2", f"{TYPE}: exists x")
    net.subscribe("B3", "S1", f"{TYPE}: true", By.ATTRIBUTE)
    net.subscribe("B5", "S2", f"{TYPE}: x > 5", By.ATTRIBUTE)
    return net


def test_table_4_6_routing_tables_of_b1(by_attribute):
    """s1 goes to R and, by a2, to B2; s2 comes from R and is discarded, since s1 covers it."""
    assert by_attribute.tables("B1") == {
        "advertisements": {"true": ({"P1"}, {"R"}), "exists x": ({"B2"}, set())},
        "by attribute": {"true": ({"B3"}, {"R", "B2"}), "x > 5": ({"R"}, set())},
    }


def test_figure_4_5_the_way_of_p1(by_attribute):
    """p1 goes by the reverse path of s2 over B1, R and B5, and of s1 to B3."""
    assert sorted(by_attribute.publish("P2", "p1", By.ATTRIBUTE, x=6)) == ["S1", "S2"]
    assert sorted(by_attribute.sent("PublicationMessage")) == [
        ("B1", "B3"),
        ("B1", "R"),
        ("B2", "B1"),
        ("R", "B5"),
    ]


def test_publications_are_filtered_near_their_source_and_need_not_reach_the_rendezvous_node(by_attribute):
    """4.3.5: "event publications do not have to reach the rendezvous node any more"."""
    assert by_attribute.publish("P2", "p2", By.ATTRIBUTE, x=1) == ["S1"]
    assert sorted(by_attribute.sent("PublicationMessage")) == [("B1", "B3"), ("B2", "B1")]


# ---------------------------------------------------------------- 4.3.6 combined routing


def test_kinds_of_publications_meet_kinds_of_subscriptions():
    """4.2.2: publishType is for type-based subscriptions, publishTypeAttr for others, publish for both."""
    net = figure_4_3()
    net.advertise("B2", "P", f"{TYPE}: true")
    net.subscribe("B3", "T", f"{TYPE}: true", By.TYPE)
    net.subscribe("B5", "A", f"{TYPE}: x > 5", By.ATTRIBUTE)
    net.subscribe("B4", "E", f"{TYPE}: x > 5")
    assert sorted(net.publish("P", "p1", By.TYPE, x=6)) == ["E", "T"]
    assert sorted(net.publish("P", "p2", By.ATTRIBUTE, x=6)) == ["A", "E"]
    assert sorted(net.publish("P", "p3", By.BOTH, x=6)) == ["A", "E", "T"]
    assert sorted(net.publish("P", "p4", By.BOTH, x=1)) == ["T"]


def test_one_publication_for_both_is_cheaper_than_two():
    """4.2.2: publish "is more efficient than merely calling publishType and publishTypeAttr in sequence"."""
    counts = {}
    for kinds in ((By.BOTH,), (By.TYPE, By.ATTRIBUTE)):
        net = figure_4_3()
        net.advertise("B2", "P", f"{TYPE}: true")
        net.subscribe("B3", "T", f"{TYPE}: true", By.TYPE)
        net.subscribe("B5", "A", f"{TYPE}: x > 5", By.ATTRIBUTE)
        for number_, by in enumerate(kinds):
            net.publish("P", f"p{number_}", by, x=6)
        counts[kinds] = len(net.sent("PublicationMessage"))
    assert counts[By.BOTH,] < counts[By.TYPE, By.ATTRIBUTE]


# ---------------------------------------------------------------- 4.3.4 inheritance

CHAIN = (EventType("t1", {"x": "integer?"}), EventType("t2", parent="t1"), EventType("t3", parent="t2"))


@pytest.mark.parametrize("inheritance", ["subscriptions", "advertisements"])
@pytest.mark.parametrize("by", By)
def test_figure_4_4_a_supertype_subscription_gets_events_of_descendants(inheritance, by):
    """s1 : t1 has state at the rendezvous nodes of t2 and t3, or advertisements of t3 at the others."""
    net = Scenario(inheritance=inheritance, leaf_set=4)
    net.add("R1", number(key_of("t1")))
    for name in ("t2", "t3"):
        net.add(f"R{name[1]}", number(key_of(name)), "R1")
    for name in ("B1", "B2", "B3", "B4"):
        net.add(name, number(key_of(name)), "R1")
    for event_type in CHAIN:
        net.define("B2", event_type)
    net.advertise("B3", "P", "t3: true")
    net.subscribe("B1", "S", "t1: x > 5", by)
    net.subscribe("B4", "other", "t2: x > 90", by)
    assert net.publish("P", "p1", by, "t3", x=6) == ["S"]
    assert net.publish("P", "p2", by, "t3", x=5) == []
    kind = "by type" if by is By.TYPE else "by attribute"
    if inheritance == "subscriptions":
        assert kind in net.tables("R2", "t2")
        assert kind in net.tables("R3", "t3")
        assert "advertisements" not in net.tables("R1", "t1")
    else:
        assert "advertisements" in net.tables("R2", "t2")
        assert "advertisements" in net.tables("R1", "t1")


# ---------------------------------------------------------------- 4.3.7 fault tolerance


def test_figure_4_7_another_way_when_a_broker_fails():
    """B1 notices that B2 failed and sends a1 again, which now goes over B4."""
    soft = {"heartbeat": 1.0, "refresh": 1.0, "lease": 3.0, "timeout": 1.0}
    net = Scenario(near=[("B1", "B2"), ("B5", "B2")], leaf_set=2, **soft)
    step = 1 << (BITS - 4)
    net.add("R", KEY)
    net.add("B2", KEY ^ (1 << (BITS - 5)), "R")
    net.add("B4", KEY ^ (1 << (BITS - 6)), "R")
    for place, name in enumerate(("B1", "B5", "X", "Y"), 4):
        net.add(name, KEY + place * step, "R")
    net.settle(3)
    assert path(net.sim, "B1", TYPE)[0] == path(net.sim, "B5", TYPE)[0] == "B2"
    net.advertise("B1", "P1", f"{TYPE}: true")
    net.subscribe("B5", "S1", f"{TYPE}: true", By.ATTRIBUTE)
    assert net.tables("B2")
    net.sim.crash("B2")
    net.settle(10)
    way = path(net.sim, "B1", TYPE)
    assert way[0] != "B2"
    assert all("advertisements" in net.tables(broker) for broker in ("B1", *way))
    net.got.clear()
    net.sim.submit("P1", Publish("P1", Event({"x": 1}, type=TYPE, id="p1"), By.ATTRIBUTE))
    net.settle(2)
    assert net.got == [("p1", "S1")]


def test_entries_that_are_not_renewed_expire():
    """4.3.7: an entry "will automatically be removed … unless its lease is renewed periodically"."""
    soft = {"heartbeat": None, "refresh": 1.0, "lease": 3.0}
    net = Scenario(leaf_set=2, **soft)
    net.add("R", KEY)
    net.add("B1", KEY + 5, "R")
    net.settle(1)
    net.subscribe("B1", "S", f"{TYPE}: true")
    net.settle(5)
    assert net.tables("R"), "renewed, it stays"
    net.sim.hang("B1")
    net.settle(5)
    assert net.tables("R") == {}


@pytest.mark.parametrize("by", [By.TYPE, By.ATTRIBUTE, By.BOTH])
@pytest.mark.parametrize(
    "scheme",
    [
        "rendezvous advertisements",
        "rendezvous subscriptions",
        "client advertisements",
        "client subscriptions",
    ],
)
def test_figure_4_8_replicas_form_one_dissemination_tree(scheme, by):
    """Publishers and subscribers turn to different replicas R1-R3, and find each other; none hears twice."""
    net = Scenario(replicas=3, replication=scheme, leaf_set=4)
    for place, tree in enumerate((TYPE, f"{TYPE}#1", f"{TYPE}#2"), 1):
        net.add(f"R{place}", number(key_of(tree)), "R1" if place > 1 else None)
    homes = {}
    for letter in "ABCDEFGHIJ":
        net.add(letter, number(key_of(letter)), "R1")
        homes.setdefault(number(key_of(letter)) % 3, letter)
    assert set(homes) == {0, 1, 2}
    net.advertise(homes[0], "P", f"{TYPE}: true")
    for home, broker in homes.items():
        net.subscribe(broker, f"S{home}", f"{TYPE}: x > 5", by)
    assert sorted(net.publish("P", "p1", by, x=6)) == ["S0", "S1", "S2"]
    assert sorted(net.publish("P", "p2", by, x=1)) == []
    if scheme == "rendezvous advertisements":
        for replica in (1, 2):
            assert "advertisements, bridged" in net.tables(f"R{replica + 1}", f"{TYPE}#{replica}")


def test_rendezvous_nodes_are_replicated_over_the_leaf_set():
    """4.3.7: a type is kept by the leaf set, and the next node takes the place of one that fails."""
    soft = {"heartbeat": 1.0, "refresh": 1.0, "lease": 3.0, "timeout": 1.0}
    net = Scenario(leaf_set=4, **soft)
    net.add("R", KEY)
    for place in range(1, 6):
        net.add(f"B{place}", KEY + place * (1 << (BITS - 4)), "R")
    net.settle(2)
    net.define("B3", EventType(TYPE, {"x": "integer"}))
    net.settle(2)
    keepers = [name for name, broker in net.sim.brokers.items() if TYPE in broker.node.state()["kept"]]
    assert len(keepers) == 5  # the rendezvous node and its leaf set
    net.sim.crash("R")
    net.settle(8)
    net.sim.attach("late", "B2")
    net.sim.submit("late", Subscribe("late", Filter.parse(f"{TYPE}: nonsense = 1")))
    net.settle(3)
    assert "nonsense" in net.sim.refusals[0].error, (
        "the type was looked up, and the filter checked against it"
    )


# ---------------------------------------------------------------- 4.2.1 types


def test_the_rendezvous_node_refuses_what_is_there_already():
    """4.2.1: "the rendezvous node can reject the type message and notify the client of the name conflict"."""
    net = figure_4_3()
    net.define("B2", EventType(TYPE, {"x": "integer"}))
    net.sim.attach("other", "B5")
    net.sim.submit("other", DefineType("other", EventType(TYPE, {"y": "string"})))
    net.settle()
    assert len(net.sim.refusals) == 1


def test_copies_are_told_of_changes_by_meta_events():
    """4.4.2: the cache "is kept up-to-date using meta-events published by the rendezvous node"."""
    net = figure_4_3()
    net.define("B2", EventType(TYPE, {"x": "integer"}))
    net.subscribe("B5", "S", f"{TYPE}: x > 1")
    assert net.sim.brokers["B5"].node.registry.get(TYPE).version == 1
    assert TYPE not in net.sim.brokers["B3"].node.registry, "who does not need it does not have it"
    net.define("B2", EventType(TYPE, {"x": "integer", "y": "string?"}))
    assert net.sim.brokers["B5"].node.registry.get(TYPE).version == 2


def test_publications_are_checked_at_the_client_s_broker():
    net = figure_4_3()
    net.define("B2", EventType(TYPE, {"x": "integer"}))
    net.advertise("B5", "P", f"{TYPE}: true")
    net.sim.submit("P", Publish("P", Event({"x": "no number"}, type=TYPE, id="p1")))
    net.settle()
    assert "x" in net.sim.refusals[0].error


# ---------------------------------------------------------------- 2.3.2 Scribe


def test_figure_2_10_a_subscriber_joins_the_tree_and_an_event_goes_through_the_rendezvous_point():
    """N8 becomes a child on the way to R; N1 publishes by sending to R, which passes it down the tree."""
    got = []
    journal = Journal()
    sim = Simulation(
        "scribe",
        options={**STATIC, "leaf_set": 2},
        journal=journal,
        on_delivery=lambda d: got.append(sorted(d.identities)),
    )
    topic = "sports/football"
    key = number(key_of(topic))
    sim.add_broker("R", node_id=as_id(key))
    for place in range(1, 9):
        sim.add_broker(f"N{place}", node_id=as_id((key + place * (RING // 9)) % RING))
        sim.connect(f"N{place}", "R")
        sim.run()
    for name in ("N3", "N8"):
        sim.attach(f"s{name}", name)
        sim.submit(f"s{name}", Subscribe(f"s{name}", Filter.parse(f'topic = "{topic}"')))
        sim.run()
    for name in ("N3", "N8"):  # children tables lead from the rendezvous point to every subscriber
        at = name
        while (parent := sim.brokers[at].node.state()["groups"][topic][0]) is not None:
            assert at in sim.brokers[parent].node.state()["groups"][topic][1]
            at = parent
        assert at == "R"
    sim.attach("p", "N1")
    sim.submit("p", Publish("p", Event({"topic": topic}, id="e1")))
    sim.run()
    assert sorted(got) == [["sN3"], ["sN8"]]
    down = [(row.at, row.peer) for row in journal if row.record == "sent" and row.kind == "Multicast"]
    assert down[0][0] == "R", "the rendezvous point passes it on"
    assert topic in sim.brokers["R"].node.state()["created"]
