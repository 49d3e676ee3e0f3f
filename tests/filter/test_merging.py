"""Merging never loses an event; a perfect merge gains none."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.filter.language import ALL_TEXT, X_EVENTS, XY_EVENTS, Oracle, bits, conjunctions, expressions

from angelia import Event, EventType, Filter, TypeRegistry
from angelia.filter import merge

ALL_X = [Event(each) for each in X_EVENTS]
X = ALL_X[::3]
XY = [Event(each) for each in XY_EVENTS]
LISTS = [
    Event({"x": x, "y": 1}) for n in range(3) for x in itertools.product((-1, 0, 0.5, 2, "a", "ab"), repeat=n)
]
on_x = Oracle(X_EVENTS)


def merged(one, other, registry=None):
    found = merge(Filter.parse(one), Filter.parse(other), registry)
    return str(found.filter), found.perfect


def check(f, g, events):
    found = merge(f, g)
    assert found.filter.covers(f)
    assert found.filter.covers(g)
    either = bits(f.matches, events) | bits(g.matches, events)
    together = bits(found.filter.matches, events)
    assert either & ~together == 0, (str(f), str(g), str(found.filter))
    assert not found.perfect or together == either, (str(f), str(g), str(found.filter))


@settings(max_examples=100, deadline=None)
@given(st.lists(conjunctions(), min_size=2, max_size=5))
def test_merging_conjunctions_against_brute_force(found):
    known = [(Filter.parse(each.text()), on_x(each)) for each in found]
    for (f, f_events), (g, g_events) in itertools.combinations(known, 2):
        result = merge(f, g)
        assert result.filter.covers(f)
        assert result.filter.covers(g)
        together = bits(result.filter.matches, ALL_X) if result.perfect else None
        assert together in (None, f_events | g_events), (str(f), str(g), str(result.filter))


@settings(max_examples=200, deadline=None)
@given(conjunctions(text_ops=ALL_TEXT), conjunctions(text_ops=ALL_TEXT))
def test_merging_loses_no_event_with_contains_and_matches(a, b):
    check(Filter.parse(a.text()), Filter.parse(b.text()), X)


@settings(max_examples=300, deadline=None)
@given(expressions(), expressions())
def test_merging_any_filters_loses_no_event(a, b):
    check(Filter.parse(a.text()), Filter.parse(b.text()), XY + LISTS)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("x > 5", "x > 3", "x > 3"),
        ("x < 5", "x between 3 and 9", "x <= 9"),
        ("x = 1", "x = 2", "x in (1, 2)"),
        ("x < 5", "x > 5", "x != 5"),
        ("x < 5", "x = 5", "x <= 5"),
        ("x = 1 and y = 2", "x = 3 and y = 2", "x in (1, 3) and y = 2"),
        ("x != 5", "x = 5", "x is number"),
        ("x = 1", "false", "x = 1"),
        ('x prefix "ab"', 'x prefix "ac"', 'x >= "ab" and x < "ad"'),
        ("T: x = 1", "T: x = 2", "T: x in (1, 2)"),
    ],
)
def test_a_merge_is_perfect_if_the_union_is_a_filter(one, other, expected):
    assert merged(one, other) == (expected, True)
    assert merged(other, one) == (expected, True)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("x <= 3", "x >= 5", "x is number"),
        ("x = 1 and y = 2", "x = 2 and y = 3", "x in (1, 2) and y in (2, 3)"),
        ("x = 1 and y = 2", "x = 1 and z = 2", "x = 1"),
        ("x = 1", "y = 1", "true"),
        ("x = 1", 'x = "a"', "exists x"),
        ("x between 1 and 2", "x between 5 and 6", "x between 1 and 6"),
        ("T: x = 1", "U: x = 1", "x = 1"),
    ],
)
def test_an_imperfect_merge_is_the_smallest_filter_of_one_alternative_around_both(one, other, expected):
    assert merged(one, other) == (expected, False)
    assert merged(other, one) == (expected, False)


def test_types_merge_to_their_nearest_common_ancestor():
    registry = TypeRegistry(
        [EventType("A"), EventType("B", parent="A"), EventType("C", parent="A"), EventType("D", parent="B")]
    )
    assert merged("D: x = 1", "C: x = 1", registry) == ("A: x = 1", False)
    assert merged("D: x = 1", "B: x = 1", registry) == ("B: x = 1", True)


def test_a_merge_has_one_alternative():
    result = merge(Filter.parse("x = 1 or x = 5"), Filter.parse("x = 3"))
    assert str(result.filter) == "x in (1, 3, 5)"
    assert result.perfect
