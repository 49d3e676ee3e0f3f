"""SIENA, section 6.2: what the simulation study claims, at the size of `angelia experiment siena --quick`.

40 sites instead of 100: where the text says 100 parties (as many as sites), 40 stand here. The claims
at full size, beside the paper's words, are in `docs/experiments/siena.md`.
"""

from __future__ import annotations

from itertools import pairwise
from math import log2

import pytest

from angelia.sim.experiments.figures import Curve, curve, select, spread, worst_sites
from angelia.sim.experiments.study import QUICK, Study, run_study

SITES = 4 * (1 + 3 * QUICK.stub_nodes)
MOST = max(QUICK.parties)
DISTRIBUTED = ("hs", "as", "aa")


@pytest.fixture(scope="module")
def study() -> Study:
    return run_study(QUICK, seed=1, jobs=2)


def sweep(
    study: Study, architecture: str, objects: int, column: str = "cost", per: str | None = None
) -> Curve:
    rows = select(study.runs, study="sweep", architecture=architecture, objects=objects)
    return curve(rows, "parties", column, per)


def at(points: Curve, x: int) -> float:
    return points.mean[points.x.index(x)]


# ---------------------------------------------------------------- 6.2.2.1 Total cost


@pytest.mark.parametrize("objects", QUICK.objects)
@pytest.mark.parametrize("architecture", DISTRIBUTED)
def test_total_cost_is_constant_beyond_saturation(study: Study, architecture: str, objects: int) -> None:
    """Figure 19: "when there are more than 100 … parties, the total cost is essentially constant"."""
    cost = sweep(study, architecture, objects)
    assert at(cost, MOST) == pytest.approx(at(cost, 100), rel=0.15)


@pytest.mark.parametrize("objects", QUICK.objects)
@pytest.mark.parametrize("architecture", DISTRIBUTED)
def test_total_cost_grows_less_than_linearly_below_saturation(
    study: Study, architecture: str, objects: int
) -> None:
    """Figure 20: "all the architectures scale sublinearly" below the saturation point."""
    cost = sweep(study, architecture, objects)
    for fewer in (1, 2, 5, 10, 20):
        assert at(cost, SITES) / at(cost, fewer) < 0.8 * SITES / fewer


def test_hierarchy_is_worse_by_a_factor_that_grows_with_objects(study: Study) -> None:
    """Figure 19: "hs performs worse by an increasingly large constant factor as compared to as"."""
    factors = [at(sweep(study, "hs", o), SITES) / at(sweep(study, "as", o), SITES) for o in QUICK.objects]
    assert factors[0] == pytest.approx(1, rel=0.1)
    assert all(more > 1.5 * fewer for fewer, more in pairwise(factors))


@pytest.mark.parametrize("objects", [10, 100])
def test_advertisement_forwarding_follows_subscription_forwarding_past_saturation(
    study: Study, objects: int
) -> None:
    """Figure 19: aa's "costs essentially follow those of as once the saturation point is passed"."""
    for parties in (100, MOST):
        ratio = at(sweep(study, "aa", objects), parties) / at(sweep(study, "as", objects), parties)
        assert 1 <= ratio < 1.15


def test_frequent_readvertising_is_what_advertisement_forwarding_pays_for(study: Study) -> None:
    """6.2.2.1: "an object of interest unadvertises and readvertises quite frequently".

    A single object floods the network each time; with many, others advertise the same meanwhile,
    and covering hides it.
    """
    one, many = sweep(study, "aa", 1, "advertisement_cost"), sweep(study, "aa", 100, "advertisement_cost")
    assert at(many, SITES) < at(one, SITES) / 2
    assert at(sweep(study, "aa", 1), SITES) > 1.2 * at(sweep(study, "as", 1), SITES)


def test_advertisement_forwarding_varies_more_with_timing_at_low_densities(study: Study) -> None:
    """6.2.2: the variance within runs "was negligible" except for aa, "unstable … for low densities"."""
    subscriptions, advertisements = spread(study, "as", 3), spread(study, "aa", 3)
    assert at(subscriptions, 1) < 0.01
    assert at(advertisements, 1) > 2 * at(subscriptions, 1)
    assert at(advertisements, 1) > at(advertisements, 100)


def test_centralized_cost_outweighs_all_others_and_is_linear_in_parties(study: Study) -> None:
    """6.2.2.1: "its total cost far outweighs that of the distributed architectures"."""
    for objects in QUICK.objects:
        others = max(at(sweep(study, name, objects), MOST) for name in DISTRIBUTED)
        assert at(sweep(study, "ce", objects), MOST) > 4 * others
    cost = sweep(study, "ce", 1)
    assert at(cost, MOST) / at(cost, 100) == pytest.approx(MOST / 100, rel=0.1)


# ---------------------------------------------------------------- 6.2.2.2 Cost per service request


@pytest.mark.parametrize("objects", QUICK.objects)
def test_centralized_is_unreasonable_per_service(study: Study, objects: int) -> None:
    """Figure 21: ce "is unreasonable in essentially all scenarios as compared to the other architectures"."""
    for parties in (10, 100, MOST):
        services = {
            n: at(sweep(study, n, objects, "cost", "requests"), parties) for n in ("ce", *DISTRIBUTED)
        }
        assert services["ce"] == max(services.values())


def test_hierarchy_does_well_for_few_objects_and_few_parties(study: Study) -> None:
    """Figure 21: hs "does well in this situation", having "lower setup costs"; the advantage disappears."""
    for parties in (1, 2):
        assert at(sweep(study, "hs", 1), parties) < at(sweep(study, "as", 1), parties)
    for objects in (10, 100):
        assert at(sweep(study, "hs", objects), 10) > at(sweep(study, "as", objects), 10)


def test_peers_do_extremely_well_with_many_objects_whatever_the_parties(study: Study) -> None:
    """Figure 21: as "does extremely well when there is a high number of objects of interest"."""
    peers = sweep(study, "as", 100, "cost", "requests")
    hierarchy = sweep(study, "hs", 100, "cost", "requests")
    assert max(peers.mean) < min(hierarchy.mean) / 4


# ---------------------------------------------------------------- 6.2.2.3 Per subscription and notification


def test_peers_pay_more_per_subscription_at_low_densities_and_both_amortize_it(study: Study) -> None:
    """Figure 22: "evidently higher" for as at low densities, "both architectures benefit" from high ones."""
    hs, peers = (sweep(study, name, 1, "subscription_cost", "subscribed") for name in ("hs", "as"))
    assert at(peers, 1) > 5 * at(hs, 1)
    for points in (hs, peers):
        assert at(points, 1) > at(points, 10) > at(points, 100) > at(points, MOST)
    assert at(peers, MOST) - at(hs, MOST) < (at(peers, 1) - at(hs, 1)) / 100


def test_subscription_takes_n_hops_among_peers_and_log_n_in_a_hierarchy(study: Study) -> None:
    """6.2.2.3: "the number of hops and hence the cost are both" O(N) for as, and O(log N) for hs."""
    hops = {
        name: curve(select(study.runs, study="growth", architecture=name), "sites", "subscription_messages")
        for name in ("hs", "as")
    }
    for sites, peers, hierarchy in zip(hops["as"].x, hops["as"].mean, hops["hs"].mean, strict=True):
        assert peers == 2 * (sites - 1)  # the subscription and its cancellation
        assert hierarchy <= 2 * log2(sites)


@pytest.mark.parametrize("parties", [1, 10, 100])
def test_delivering_costs_the_same_but_for_what_is_ignored(study: Study, parties: int) -> None:
    """Figure 23: the difference per notification "is constant", and "depends on … ignored notifications".

    Where all is consumed, there is hardly a difference; where an object publishes far more than
    parties consume, the hierarchy pays the way to the root for each.
    """
    consumed = [at(sweep(study, n, 1, "notification_cost", "published"), parties) for n in ("hs", "as")]
    assert consumed[1] <= consumed[0]  # a lone party may stand beside the object, and the root far away
    if parties > 1:
        assert consumed[0] == pytest.approx(consumed[1], rel=0.02)
    ignored = {
        name: curve(
            select(study.runs, study="ignored", architecture=name),
            "parties",
            "notification_cost",
            "published",
        )
        for name in ("hs", "as")
    }
    assert at(ignored["hs"], parties) > at(ignored["as"], parties) + 5


def test_notifications_that_nobody_wants_cost_peers_nothing(study: Study) -> None:
    """Figure 24, without parties: hs "incurs a constant cost", as "incurs no cost at all"."""
    for row in select(study.runs, study="lonely", architecture="as", parties=0):
        assert row["cost"] == 0
    hierarchy = select(study.runs, study="lonely", architecture="hs", parties=0)
    assert any(row["cost"] > 0 for row in hierarchy)
    for row in hierarchy:  # each the same way, to the root
        assert row["notification_messages"] % row["published"] == 0


def test_ignored_notifications_amortize_the_first_among_peers_only(study: Study) -> None:
    """Figure 24, one party that takes one notification: as' "initial cost … is subsequently amortized"."""
    cost = {
        name: curve(
            select(study.runs, study="lonely", architecture=name, parties=1),
            "published",
            "notification_cost",
            "published",
        )
        for name in ("hs", "as")
    }
    assert 0 < cost["as"].mean[0] <= cost["hs"].mean[0]
    assert cost["as"].mean[-1] < cost["as"].mean[0] / 20
    assert cost["hs"].mean[-1] > cost["hs"].mean[0] / 3


# ---------------------------------------------------------------- 6.2.2.4 Worst-case per-site cost


def test_worst_site_of_the_hierarchy_is_slightly_better_off_with_few_objects(study: Study) -> None:
    """Figure 25: hs "exhibits slightly lower worst-case per-site cost under low densities of objects"."""
    hs, peers = worst_sites(study, "hs", 1), worst_sites(study, "as", 1)
    for ours, theirs in zip(hs.mean, peers.mean, strict=True):
        assert 0.5 * theirs < ours <= theirs


def test_worst_site_of_the_hierarchy_bears_much_more_with_many_objects(study: Study) -> None:
    """Figure 25: for high densities of objects hs "incurs a much greater maximum per-site cost"."""
    hs, peers = worst_sites(study, "hs", 100), worst_sites(study, "as", 100)
    for ours, theirs in zip(hs.mean, peers.mean, strict=True):
        assert ours > 10 * theirs
