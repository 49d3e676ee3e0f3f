"""Compound subscriptions on every router (SIENA 3.3, 5.3), and delegation with advertisements."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from tests.routing.network import ALL, Network, RefusedError, sequences

from angelia import Event, EventType, Filter
from angelia.errors import RoutingError
from angelia.messages import (
    Deliver,
    DeliverSequence,
    FromPeer,
    NotifySequence,
    Publish,
    SubscribePattern,
    UnsubscribePattern,
)
from angelia.pattern import Pattern, SequenceMatcher
from angelia.routing import Party, Peer

START = datetime(2001, 8, 1, tzinfo=UTC)
LINE = (("b2", "b1"), ("b3", "b2"), ("b4", "b3"))
every_router = pytest.mark.parametrize("routing", ALL)


@pytest.fixture
def line(network):
    def make(routing: str) -> Network:
        net = network(routing, *LINE)
        for name in net.nodes:
            net.advertise(name, f"pub {name}", "true")
        return net

    return make


def numbers(found) -> dict[str, list[list[int]]]:
    """The x of the events of each sequence."""
    return {party: [[event["x"] for event in match] for match in matches] for party, matches in found.items()}


# ---------------------------------------------------------------- on every router


@every_router
def test_a_sequence_is_delivered_when_its_last_event_comes(line, routing):
    net = line(routing)
    net.subscribe_pattern("b4", "ann", "x = 1 then x = 2 then x > 5")
    for at, x in (("b1", 2), ("b1", 1), ("b4", 7), ("b2", 2), ("b3", 2)):
        assert net.sequences(at, f"pub {at}", x=x) == {}
    assert numbers(net.sequences("b3", "pub b3", x=9)) == {"ann": [[1, 2, 9]]}
    assert net.sequences("b3", "pub b3", x=9) == {}


@every_router
def test_the_events_of_a_sequence_are_not_delivered_one_by_one(line, routing):
    net = line(routing)
    net.subscribe_pattern("b4", "ann", "x = 1 then x = 2")
    net.subscribe("b4", "ann", "x = 2")
    assert net.publish("b1", "pub b1", x=1) == []
    both = net.request("b1", Publish("pub b1", Event({"x": 2})))
    assert [type(effect) for effect in both] == [Deliver, DeliverSequence]


@every_router
def test_an_event_that_was_generated_before_does_not_follow_whenever_it_arrives(line, routing):
    net = line(routing)
    net.subscribe_pattern("b4", "ann", "x = 1 then x = 2")
    for x, second in ((1, 5), (2, 3)):
        event = Event({"x": x}, time=START + timedelta(seconds=second))
        assert net.request("b1", Publish("pub b1", event)) == []
    assert numbers(net.sequences("b1", "pub b1", x=2)) == {}, "our clock is far behind that publisher's"
    event = Event({"x": 2}, time=START + timedelta(seconds=7))
    assert numbers(sequences(net.request("b1", Publish("pub b1", event)))) == {"ann": [[1, 2]]}


@every_router
def test_a_sequence_comes_once_to_a_client_with_many_matching_patterns(line, routing):
    net = line(routing)
    for party in ("ann", "bob"):
        for text in ("x = 1 then x = 2", "x < 2 then x > 1", "exists x then x = 2"):
            net.request("b4", SubscribePattern(party, Pattern.parse(text)), client="office")
    net.publish("b1", "pub b1", x=1)
    (delivery,) = net.request("b1", Publish("pub b1", Event({"x": 2})))
    assert (delivery.client, delivery.identities) == ("office", {"ann", "bob"})


@every_router
def test_matching_begins_when_a_party_asks(line, routing):
    net = line(routing)
    net.subscribe_pattern("b4", "ann", "x = 1 then x = 2")
    net.publish("b1", "pub b1", x=1)
    net.subscribe_pattern("b4", "bob", "x = 1 then x = 2")
    assert numbers(net.sequences("b1", "pub b1", x=2)) == {"ann": [[1, 2]]}


@every_router
def test_to_ask_again_does_not_begin_anew(line, routing):
    net = line(routing)
    net.subscribe_pattern("b4", "ann", "x = 1 then x = 2")
    net.publish("b1", "pub b1", x=1)
    net.subscribe_pattern("b4", "ann", "x = 1 then x = 2")
    assert numbers(net.sequences("b1", "pub b1", x=2)) == {"ann": [[1, 2]]}


@every_router
def test_a_covered_pattern_is_kept_since_the_other_cannot_stand_for_it(line, routing):
    net = line(routing)
    net.subscribe_pattern("b4", "ann", "exists x then x = 9")
    net.subscribe_pattern("b4", "ann", "x = 1 then x = 9")
    net.publish("b1", "pub b1", x=0)
    net.publish("b1", "pub b1", x=1)
    assert numbers(net.sequences("b1", "pub b1", x=9)) == {"ann": [[0, 9], [1, 9]]}


@every_router
def test_a_pattern_of_one_filter_is_a_simple_subscription(line, routing):
    net = line(routing)
    net.subscribe_pattern("b4", "ann", "x = 1")
    assert net.publish("b1", "pub b1", x=1) == ["ann"]
    net.unsubscribe_pattern("b4", "ann", "x > 0")
    assert net.publish("b1", "pub b1", x=1) == []


@every_router
def test_a_simple_unsubscription_leaves_patterns_alone(line, routing):
    net = line(routing)
    net.subscribe_pattern("b4", "ann", "x = 1 then x = 2")
    net.unsubscribe("b4", "ann", "true")
    net.publish("b1", "pub b1", x=1)
    assert numbers(net.sequences("b1", "pub b1", x=2)) == {"ann": [[1, 2]]}


@every_router
def test_nothing_is_left_of_patterns_that_are_cancelled_or_whose_client_is_gone(line, routing):
    net = line(routing)
    net.subscribe_pattern("b4", "ann", "x = 1 then x = 2")
    net.subscribe_pattern("b1", "ann b1", "x = 1 then x = 2 then x = 3")
    net.unsubscribe_pattern("b4", "ann", "exists x then exists x")
    net.publish("b1", "pub b1", x=1)
    assert net.sequences("b1", "pub b1", x=2) == {}
    for name in net.nodes:
        for client in ("ann", "ann b1", f"pub {name}"):
            net.leave(name, client)
    net.check_empty()


@every_router
def test_supertypes_are_matched_in_patterns_by_types_known_later(line, routing):
    net = line(routing)
    net.subscribe_pattern("b4", "ann", "Top: x = 1 then Top: x = 2")
    net.define("b1", EventType("Top", attributes={"x": "integer"}))
    net.define("b2", EventType("Sub", parent="Top"))
    found = [sequences(net.request("b1", Publish("pub b1", Event({"x": x}, type="Sub")))) for x in (1, 2)]
    assert list(map(numbers, found)) == [{}, {"ann": [[1, 2]]}]


@every_router
@pytest.mark.parametrize("text", ["x = 1 then x > 5 and x < 3", "Top: x = 1 then Top: price = 2"])
def test_a_pattern_with_a_bad_filter_is_refused(line, routing, text):
    net = line(routing)
    net.define("b1", EventType("Top", attributes={"x": "integer"}))
    before = net.nodes["b4"].state()
    with pytest.raises(RefusedError):
        net.subscribe_pattern("b4", "ann", text)
    assert net.nodes["b4"].state() == before


@pytest.mark.parametrize("routing", [name for name in ALL if name != "advertisement"])
def test_a_delegated_pattern_is_refused_where_nobody_delegates(line, routing):
    net = line(routing)
    pattern = Pattern.parse("x = 1 then x = 2")
    for message in (SubscribePattern("b3", pattern), UnsubscribePattern("b3", pattern)):
        with pytest.raises(RoutingError, match="does not understand"):
            net.nodes["b2"].handle(FromPeer("b3", message), net.now)


# ---------------------------------------------------------------- delegation


def factors(net: Network, name: str) -> dict[str, list[tuple[str, str | None]]]:
    return {
        str(pattern): [(str(factor.pattern), factor.delegate) for factor in split]
        for pattern, (_, split) in net.nodes[name].state()["patterns"].items()
    }


def test_a_pattern_from_a_single_source_is_assembled_at_the_source(network):
    net = network("advertisement", *LINE)
    net.advertise("b4", "pub", "exists x")
    net.subscribe_pattern("b1", "ann", "x = 1 then x = 2")
    assert factors(net, "b1") == {"x = 1 then x = 2": [("x = 1 then x = 2", "b2")]}
    assert factors(net, "b4") == {"x = 1 then x = 2": [("x = 1", None), ("x = 2", None)]}
    net.publish("b4", "pub", x=1)
    net.sent.clear()
    assert numbers(net.sequences("b4", "pub", x=2)) == {"ann": [[1, 2]]}
    assert net.messages(NotifySequence) == [("b4", "b3"), ("b3", "b2"), ("b2", "b1")]
    assert len(net.sent) == 3, "no single event leaves the source"


def test_a_second_source_ends_the_delegation_and_its_loss_brings_it_back(network):
    net = network("advertisement", ("b1", "b2"), ("b1", "b3"))
    net.advertise("b2", "pub", "exists x")
    net.subscribe_pattern("b1", "ann", "x = 1 then x = 2")
    whole, split = [("x = 1 then x = 2", "b2")], [("x = 1", None), ("x = 2", None)]
    for come, go in (
        (lambda: net.advertise("b3", "other", "x = 2"), lambda: net.leave("b3", "other")),
        (lambda: net.advertise("b1", "local", "x = 1"), lambda: net.unadvertise("b1", "local", "x = 1")),
    ):
        assert list(factors(net, "b1").values()) == [whole]
        come()
        net.check()
        assert list(factors(net, "b1").values()) == [split]
        assert factors(net, "b2") == {}
        go()
        net.check()
    assert list(factors(net, "b1").values()) == [whole]


def test_only_the_beginning_of_a_pattern_is_delegated(network):
    net = network("advertisement", ("b1", "b2"), ("b1", "b3"))
    net.advertise("b2", "pub", "exists x")
    net.advertise("b3", "pub", "exists y")
    net.subscribe_pattern("b1", "ann", "y = 1 then x = 1 then x = 2")
    net.subscribe_pattern("b1", "ann", "x = 1 then x = 2 then y = 1 then x = 3")
    assert list(factors(net, "b1").values()) == [
        [("y = 1", None), ("x = 1", None), ("x = 2", None)],
        [("x = 1 then x = 2", "b2"), ("y = 1", None), ("x = 3", None)],
    ]


def test_a_later_part_recognised_elsewhere_would_lose_a_match():
    """Of g f g h one matcher finds f·g·h; one for g·h alone takes the g before the f, and is no use.

    A beginning recognised elsewhere loses nothing: (f·g)·h finds the match.
    """
    f, g, h = (Pattern.parse(f"x = {x}") for x in (1, 2, 3))
    fg, gh = Pattern([*f.filters, *g.filters]), Pattern([*g.filters, *h.filters])
    whole, near, far, first, last = map(SequenceMatcher, ((f, g, h), (f, gh), (g, h), (f, g), (fg, h)))
    found: dict[str, list[tuple[Event, ...]]] = {"one matcher": [], "g·h elsewhere": [], "f·g elsewhere": []}
    for second, x in enumerate((2, 1, 2, 3)):
        event = Event({"x": x}, id=str(second), time=START + timedelta(seconds=second))
        part, beginning = far.see(event), first.see(event)
        found["one matcher"].append(whole.see(event) or ())
        found["g·h elsewhere"].append(near.see(event) or (part and near.hear(gh, part)) or ())
        found["f·g elsewhere"].append((beginning and last.hear(fg, beginning)) or last.see(event) or ())
    ids = {how: [[event.id for event in match] for match in some if match] for how, some in found.items()}
    assert ids == {"one matcher": [["1", "2", "3"]], "g·h elsewhere": [], "f·g elsewhere": [["1", "2", "3"]]}


def test_two_patterns_share_a_delegated_part_until_both_are_gone(network):
    net = network("advertisement", ("b1", "b2"))
    net.advertise("b2", "pub", "exists x")
    net.advertise("b1", "pub", "exists y")
    net.subscribe_pattern("b1", "ann", "x = 1 then x = 2 then y = 1")
    net.sent.clear()
    net.subscribe_pattern("b1", "bob", "x = 1 then x = 2 then y = 2")
    net.leave("b1", "ann")
    assert net.messages(SubscribePattern) == net.messages(UnsubscribePattern) == []
    net.leave("b1", "bob")
    assert net.messages(UnsubscribePattern) == [("b1", "b2")]


def test_a_neighbor_drops_the_very_pattern_not_those_that_it_covers(network):
    net = network("advertisement", ("b1", "b2"))
    net.advertise("b2", "pub", "exists x")
    net.subscribe_pattern("b1", "ann", "x > 0 then x > 0")
    net.subscribe_pattern("b1", "bob", "x > 5 then x > 5")
    net.leave("b1", "ann")
    assert list(factors(net, "b2")) == ["x > 5 then x > 5"]


def test_a_neighbor_that_goes_takes_its_patterns_and_its_providing_with_it(network):
    net = network("advertisement", ("b1", "b2"), ("b2", "b3"))
    net.advertise("b3", "pub", "exists x")
    net.subscribe_pattern("b1", "ann", "x = 1 then x = 2")
    net.disconnect("b1", "b2")
    net.check()
    assert factors(net, "b2") == factors(net, "b3") == {}
    net.connect("b1", "b2")
    assert list(factors(net, "b3")) == ["x = 1 then x = 2"]


def test_a_sequence_for_a_cancelled_pattern_is_dropped(network):
    """3.8: clients must be resilient to such races, and so are servers."""
    net = network("advertisement", ("b1", "b2"))
    event = Event({"x": 1})
    late = NotifySequence(Pattern.parse("x = 1 then x = 2"), (event, event))
    assert net.nodes["b1"].handle(FromPeer("b2", late), net.now) == []
    with pytest.raises(RoutingError, match="not a peer"):
        net.nodes["b1"].handle(FromPeer("b9", late), net.now)


# ---------------------------------------------------------------- against the matcher


def random_pattern(rng: random.Random, sources: int) -> Pattern:
    texts = [f"s{rng.randrange(sources)} {rng.choice(['=', '<', '>='])} {rng.randrange(3)}" for _ in range(3)]
    return Pattern(map(Filter.parse, texts[: rng.choice([2, 3, 3])]))


class Twin:
    """What every monitor of a network should find: the matcher, run on what the monitor sees."""

    def __init__(self, net: Network) -> None:
        self.net = net
        self.matchers: dict = {}
        self.parts: dict = {}

    def follow(self) -> None:
        """Take over who monitors what; a monitor that is new, or split anew, begins."""
        parts = {
            (name, pattern, who): split
            for name, node in self.net.nodes.items()
            for pattern, (subscribers, split) in node.state()["patterns"].items()
            for who in subscribers
        }
        for key, split in parts.items():
            if self.parts.get(key) != split:
                self.matchers[key] = SequenceMatcher(factor.pattern for factor in split)
        self.parts = parts

    def publish(self, event: Event) -> dict:
        """What each monitor of a local party should find."""
        memo: dict = {}
        found = {key: self._find(key, event, memo) for key in self.parts if isinstance(key[2], Party)}
        return {key: match for key, match in found.items() if match}

    def _find(self, key, event: Event, memo: dict):
        if key not in memo:
            name = key[0]
            heard = [
                self.matchers[key].hear(f.pattern, occurrence)
                for f in self.parts[key]
                if f.delegate and (occurrence := self._find((f.delegate, f.pattern, Peer(name)), event, memo))
            ]
            seen = self.matchers[key].see(event)
            memo[key] = next((match for match in (*heard, seen) if match), None)
        return memo[key]


@every_router
@pytest.mark.parametrize("seed", range(6))
def test_sequences_are_those_of_the_matcher(routing, seed):
    """Each source has an attribute of its own, so that with advertisements much is delegated.

    Where nothing is delegated, parties get what one matcher at their access point finds; where something
    is, what the matchers on the way find, which is not less.
    """
    rng = random.Random(seed)
    names = [f"b{i}" for i in range(6)]
    net = Network(routing, *((names[i], rng.choice(names[:i])) for i in range(1, 6)))
    for i in range(3):
        net.advertise(names[2 * i], f"pub{i}", f"exists s{i}")
    twin, flat, counts, delegations = Twin(net), {}, Counter(), 0
    for step in range(200):
        name = rng.choice(names)
        party = f"{name} party {rng.randrange(3)}"
        if rng.random() < 0.1:
            pattern = random_pattern(rng, 3)
            net.request(name, SubscribePattern(party, pattern))
            flat.setdefault((name, pattern, Party(party)), SequenceMatcher.of(pattern))
        elif rng.random() < 0.03:
            net.leave(name, party)
            flat = {key: matcher for key, matcher in flat.items() if key[2] != Party(party)}
        else:
            source = rng.randrange(3)
            event = Event(
                {f"s{source}": rng.randrange(3)}, id=f"{step}", time=START + timedelta(seconds=step)
            )
            delivered = sequences(net.request(names[2 * source], Publish(f"pub{source}", event)))
            expected = twin.publish(event)
            alone = {key: match for key, m in flat.items() if (match := m.see(event))}
            counts.update(expected.keys())
            counts.subtract(alone.keys())
            assert {who: set(matches) for who, matches in delivered.items()} == by_party(expected)
            assert routing == "advertisement" or expected == alone
            assert all(counts[key] >= 0 for key in flat), "a match was lost by delegation"
        twin.follow()
        net.check()
        delegations += sum(len(node.router.monitors.delegated()) for node in net.nodes.values())
    assert (delegations > 0) == (routing == "advertisement")


def by_party(expected: dict) -> dict[str, set[tuple[Event, ...]]]:
    found: dict[str, set[tuple[Event, ...]]] = {}
    for (_, _, who), match in expected.items():
        found.setdefault(who.identity, set()).add(match)
    return found
