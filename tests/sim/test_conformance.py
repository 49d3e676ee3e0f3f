"""Every router passes the kit; a router that is wrong does not, and the replay command is told."""

from __future__ import annotations

import shlex

import msgspec
import pytest
from typer.testing import CliRunner

from angelia.filter import Filter
from angelia.messages import Notify, Send
from angelia.routing import ROUTERS, Routed
from angelia.routing.base import Party, Peer
from angelia.routing.flooding import EventFlooding
from angelia.routing.forwarding import Change
from angelia.routing.monitors import Occurrence
from angelia.routing.peer import SubscriptionForwarding
from angelia.sim import checker, conformance
from angelia.sim.checker import reachable
from angelia.sim.cli import app
from angelia.sim.conformance import APPLIES, Case, Failure, cases, run_case
from angelia.sim.errors import SimulationError

SEEDS = 10
CASES = [
    Case(router, topology, seed)
    for router, topologies in APPLIES.items()
    for topology in topologies
    for seed in range(SEEDS)
]


def test_every_router_is_in_the_kit() -> None:
    assert set(APPLIES) == set(ROUTERS)


def test_the_suite_has_at_least_two_hundred_cases() -> None:
    assert len(CASES) >= 200


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_router_delivers_what_direct_evaluation_says(case: Case) -> None:
    run_case(case)


# ---------------------------------------------------------------- routers that are wrong


class Forgetful(SubscriptionForwarding):
    """Does not forward what an unsubscription uncovers."""

    def unsubscribe(self, party: Party, filter: Filter) -> list[Send]:
        sends = super().unsubscribe(party, filter)
        return [Send(s.peer, msgspec.structs.replace(s.message, uncovered=())) for s in sends]


class TwoSteps(SubscriptionForwarding):
    """Tells what an unsubscription uncovers after it, so that there is a moment between the two."""

    def _tell(self, changes: list[Change[Filter]]) -> list[Send]:
        apart = [change._replace(uncovered=()) for change in changes]
        later = [Change(c.peer, item, True) for c in changes for item in c.uncovered]
        return super()._tell([*apart, *later])


class Repeating(EventFlooding):
    """Does not notice that a notification was here already."""

    def _flood(self, notifications: list[Notify], sender: str | None) -> list[Routed]:
        routed = super()._flood(notifications, sender)
        interested = [self.interests.interested(one.event) for one in notifications]
        parties = [frozenset(who.identity for who in all_ if isinstance(who, Party)) for all_ in interested]
        return [each._replace(parties=who) for each, who in zip(routed, parties, strict=True)]


class Generous(EventFlooding):
    """Delivers everything to everybody."""

    def _flood(self, notifications: list[Notify], sender: str | None) -> list[Routed]:
        interested = {who for whos in self.interests.table().values() for who in whos}
        everybody = frozenset(who.identity for who in interested if isinstance(who, Party))
        return [routed._replace(parties=everybody) for routed in super()._flood(notifications, sender)]


class Clinging(SubscriptionForwarding):
    """Does not forget what a neighbour wanted that is gone."""

    def peer_down(self, peer: str) -> list[Send]:
        kept = [
            item for item in self.subscriptions.poset if Peer(peer) in self.subscriptions.subscribers(item)
        ]
        sends = super().peer_down(peer)
        for item in kept:
            self.subscriptions.add(Peer(peer), item)
        return sends


class Absent(SubscriptionForwarding):
    """Finds no sequences."""

    def _occurred(self, found: list[Occurrence]) -> Routed:
        return Routed(frozenset(), [])


class Raising(EventFlooding):
    """Fails altogether."""

    def publish_all(self, notifications: list[Notify]) -> list[Routed]:
        raise KeyError("oops")


WRONG = {
    Forgetful: "did not come to|disagree",
    TwoSteps: "which no change concerned",
    Repeating: "twice",
    Generous: "no matching subscription",
    Clinging: "disagree|still has|did not come",
    Absent: "the sequence .* did not come to",
    Raising: "KeyError: 'oops'",
}


@pytest.fixture(params=WRONG, ids=lambda router: router.__name__)
def wrong(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A wrong router, in the kit for the time of a test; what is told of it."""
    router = request.param
    monkeypatch.setitem(ROUTERS, "wrong", router)
    monkeypatch.setattr(checker, "EXACT", checker.EXACT | {"wrong"})
    topologies = ("ring", "random") if issubclass(router, EventFlooding) else ("line", "tree")
    monkeypatch.setitem(APPLIES, "wrong", topologies)
    return WRONG[router]


def first_failure() -> Failure:
    for case in cases("wrong", None, range(300)):
        try:
            run_case(case)
        except Failure as failure:
            return failure
    pytest.fail("the kit has not noticed")


def test_a_wrong_router_fails_and_the_same_seed_fails_again_in_the_same_way(wrong: str) -> None:
    failure = first_failure()
    with pytest.raises(Failure, match=wrong) as again:
        run_case(failure.case)
    assert str(again.value) == str(failure)
    assert failure.case.command in str(failure)


def test_the_replay_command_runs_the_failing_case_and_no_other(wrong: str) -> None:
    failure = first_failure()
    program, sim, *arguments = shlex.split(failure.case.command)
    assert (program, sim) == ("angelia", "sim")
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert failure.reason.splitlines()[0] in result.output
    assert result.output.splitlines()[-1].startswith("FAILED: wrong failed 1 of 1 seeds")


# ---------------------------------------------------------------- the kit itself


def test_topologies_of_a_router_take_turns() -> None:
    assert [case.topology for case in cases("peer", None, range(4))] == ["line", "star", "tree", "line"]
    assert [case.topology for case in cases("peer", "star", range(2))] == ["star", "star"]


@pytest.mark.parametrize(("router", "topology"), [("none", None), ("peer", "ring"), ("peer", "torus")])
def test_what_does_not_apply_is_one_clear_error(router: str, topology: str | None) -> None:
    with pytest.raises(SimulationError) as error:
        cases(router, topology, range(1))
    assert "\n" not in str(error.value)


def test_cases_deliver_events_and_use_every_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit would prove nothing if nothing happened in it."""
    delivered = 0
    on_delivery = conformance.Checker.on_delivery

    def count(self: conformance.Checker, delivery: object) -> None:
        nonlocal delivered
        delivered += 1
        on_delivery(self, delivery)  # type: ignore[arg-type]

    monkeypatch.setattr(conformance.Checker, "on_delivery", count)
    for case in cases("general", None, range(10)):
        run_case(case)
    assert delivered > 100


def test_reachable_follows_links_both_ways() -> None:
    links = [frozenset("ab"), frozenset("bc"), frozenset("de")]
    assert reachable("c", links) == {"a", "b", "c"}
    assert reachable("z", links) == {"z"}
