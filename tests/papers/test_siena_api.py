"""SIENA (TOCS 2001), section 3 and 5.2.1: notifications, filters, advertisements, covering, the poset."""

import pytest

from angelia import Advertisement, Event, Filter
from angelia.event import parse_timestamp
from angelia.filter import Place, subscription_poset

DATE = parse_timestamp("2001-08-01T02:40:03Z")


def subscription(*constraints):
    return Filter.parse(" and ".join(constraints))


def test_figures_2_and_3_a_stock_quote_and_the_filter_for_price_increases():
    """3.1, 3.2: the filter matches price increases for stock DIS on exchange NYSE (values are ours)."""
    quote = Event({"class": "finance/exchanges/stock", "exchange": "NYSE", "symbol": "DIS", "change": 3.2})
    wanted = subscription(
        'class prefix "finance/exchanges/"', 'exchange = "NYSE"', 'symbol = "DIS"', "change > 0"
    )
    assert wanted.matches(quote)
    assert not wanted.matches(Event({**quote.attributes, "change": -3.2}))


@pytest.mark.parametrize(
    ("notification", "constraints", "matches"),
    [
        ({"what": "alarm", "date": DATE}, ['what = "alarm"'], True),
        ({"what": "alarm", "date": DATE}, ['what = "alarm"', "level > 3"], False),
        ({"what": "alarm", "level": 10}, ['what = "alarm"', "level > 3", "level < 7"], False),
        ({"what": "alarm", "level": 5}, ['what = "alarm"', "level > 3", "level < 7"], True),
    ],
)
def test_table_ii(notification, constraints, matches):
    """Table II: examples of n matching a subscription; constraints on one attribute are a conjunction."""
    assert subscription(*constraints).matches(Event(notification)) is matches


ADVERTISEMENT = Advertisement.parse('what = "alarm" and what = "login" and exists username')


@pytest.mark.parametrize(
    ("notification", "advertised"),
    [
        ({"what": "alarm"}, True),
        ({"what": "alarm", "date": DATE}, False),
        ({"what": "login", "username": "carzanig"}, True),
        ({"what": "logout", "username": "carzanig"}, False),
    ],
)
def test_table_iii(notification, advertised):
    """Table III: each attribute must be allowed; constraints on one attribute are a disjunction."""
    assert ADVERTISEMENT.advertises(Event(notification)) is advertised


def test_an_attribute_matches_a_constraint_of_its_own_type_only():
    """3.2: typeα = typeφ ∧ nameα = nameφ ∧ operatorφ(valueα, valueφ)."""
    assert subscription("level > 3").matches(Event({"level": 4}))
    assert not subscription("level > 3").matches(Event({"level": "4"}))
    assert not subscription("level > 3").matches(Event({"Level": 4}))


def test_covering_of_subscriptions_is_inclusion_of_what_they_match():
    """3.6: f2 ≺ f1 ⇔ all that matches f2 matches f1; 6.1: [x > k1] covers [x > k2] if k2 ≥ k1."""
    assert subscription("x > 1").covers(subscription("x > 2"))
    assert not subscription("x > 2").covers(subscription("x > 1"))
    assert subscription('airline = "UA"').covers(subscription('airline = "UA"', 'dest = "DEN"'))
    assert subscription("exists airline").covers(subscription('airline = "UA"'))


def test_covering_of_advertisements_is_inclusion_of_what_they_allow():
    """3.6: a2 ≺ a1."""
    wide, narrow = ADVERTISEMENT, Advertisement.parse('what = "alarm"')
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    assert not wide.covers(Advertisement.parse('what = "alarm" and exists date'))


def test_an_advertisement_is_relevant_to_a_subscription_if_the_two_meet():
    """3.4, 3.6: f ≺ a ⇔ some notification is allowed by a and matches f."""
    assert ADVERTISEMENT.overlaps(subscription('what = "login"', 'username prefix "car"'))
    assert not ADVERTISEMENT.overlaps(subscription('what = "logout"'))
    assert not ADVERTISEMENT.overlaps(subscription('what = "alarm"', "exists date"))


def test_filters_are_equal_if_each_covers_the_other():
    """3.6: f1 = f2 ⇔ f1 ≺ f2 ∧ f2 ≺ f1."""
    one, other = subscription("x > 3", "x < 7", "x < 9"), subscription("x < 7", "x > 3")
    assert one == other
    assert one.covers(other)
    assert other.covers(one)


def test_an_unsubscription_that_does_not_cover_has_no_effect():
    """3.7: unsubscribing [price > 200] does not reduce the subscription [price > 100]."""
    assert not subscription("price > 200").covers(subscription("price > 100"))


def test_an_unsubscription_cancels_all_that_it_covers():
    """3.7: [change > 0] cancels both [change > 0] and the earlier [change > 10]."""
    cancel = subscription("change > 0")
    assert cancel.covers(subscription("change > 0"))
    assert cancel.covers(subscription("change > 10"))


def test_a_new_filter_is_a_root_or_exists_or_has_successors():
    """5.2.1: the three cases of insertion."""
    poset = subscription_poset()
    assert poset.insert(subscription('airline = "UA"')).place is Place.ROOT
    assert poset.insert(subscription('airline = "UA"')).place is Place.EXISTING
    assert poset.insert(subscription('airline = "UA"', "price < 500")).place is Place.COVERED


def test_the_poset_stores_immediate_relations_only():
    """5.2.1, Figure 12 (its content is ours): f1 ≺ f2 ≺ f3 has no link from f1 to f3."""
    poset = subscription_poset()
    low = subscription('airline = "UA"', "price < 500", 'dest = "DEN"')
    middle, other = subscription('airline = "UA"', "price < 500"), subscription('dest = "DEN"')
    top = subscription("exists airline")
    for item in (low, top, other, middle):
        poset.insert(item)
    assert poset.successors(low) == {middle, other}
    assert poset.successors(middle) == {top}
    assert poset.predecessors(top) == {middle}
    assert set(poset.roots) == {top, other}
    assert poset.covering(low) == {middle, other, top}


def test_removing_a_root_uncovers_new_roots():
    """5.2.2.3: more specific subscriptions become new roots."""
    poset = subscription_poset()
    top, low = subscription("exists airline"), subscription('airline = "UA"', 'dest = "DEN"')
    poset.insert(top)
    poset.insert(low)
    assert poset.remove(top) == {low}
    assert poset.roots == (low,)
