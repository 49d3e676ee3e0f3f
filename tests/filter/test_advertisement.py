"""Advertisements (SIENA 3.4 to 3.6) by example and against brute force."""

import itertools
import operator
import pickle
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.filter.language import (
    ALL_TEXT,
    X_EVENTS,
    XY_EVENTS,
    Oracle,
    atoms,
    bits,
    conjunctions,
    expressions,
)

from angelia import Advertisement, Event, EventType, Filter, TypeRegistry
from angelia.errors import FilterError, FilterSyntaxError

EVENTS = [Event(each) for each in XY_EVENTS]
LISTS = [Event({"x": x}) for n in range(3) for x in itertools.product((-1, 0, 0.5, 2, "a", "ab"), repeat=n)]
on_xy, on_x = Oracle(XY_EVENTS), Oracle(X_EVENTS)


def text_of(parts):
    return " and ".join(part.text() for part in parts) or "true"


def dumb_advertises(parts, event):
    """Every attribute of the event satisfies a constraint on it; no constraints at all allow all."""
    return not parts or all(
        value is None or any(part.holds({name: value}) for part in parts if part.name == name)
        for name, value in event.items()
    )


def parts_of(*text_ops):
    return st.lists(atoms("x", text_ops) | atoms("y", text_ops), max_size=4)


@settings(max_examples=200, deadline=None)
@given(parts_of(*ALL_TEXT))
def test_an_advertisement_allows_what_brute_force_allows(parts):
    a = Advertisement.parse(text_of(parts))
    assert bits(a.advertises, EVENTS) == bits(lambda event: dumb_advertises(parts, event), XY_EVENTS)


@settings(max_examples=100, deadline=None)
@given(st.lists(parts_of(*ALL_TEXT), min_size=5, max_size=5))
def test_covering_of_advertisements_is_sound(found):
    known = [(a, bits(a.advertises, EVENTS + LISTS)) for a in map(Advertisement.parse, map(text_of, found))]
    for (a1, events1), (a2, events2) in itertools.product(known, repeat=2):
        assert not a1.covers(a2) or events2 & ~events1 == 0, (str(a1), str(a2))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(atoms("x", ("prefix",)), min_size=1, max_size=3), min_size=2, max_size=6))
def test_covering_of_advertisements_is_exact_where_no_text_is_read(found):
    # Nor with `exists`, which is the union of all kinds but for NaN.
    plain = [[part for part in parts if part.op != "exists"] for parts in found]
    known = [(Advertisement.parse(text_of(parts)), allowed_on_x(parts)) for parts in plain if parts]
    for (a1, events1), (a2, events2) in itertools.product(known, repeat=2):
        assert a1.covers(a2) == (events2 & ~events1 == 0), (str(a1), str(a2))


def allowed_on_x(parts):
    missing = bits(lambda event: event["x"] is None, X_EVENTS)
    return reduce(operator.or_, map(on_x, parts), missing)


@settings(max_examples=200, deadline=None)
@given(parts_of(*ALL_TEXT), expressions())
def test_an_advertisement_overlaps_every_filter_that_matches_an_allowed_event(parts, expression):
    a, f = Advertisement.parse(text_of(parts)), Filter.parse(expression.text())
    allowed = bits(lambda event: dumb_advertises(parts, event), XY_EVENTS)
    assert a.overlaps(f) or allowed & on_xy(expression) == 0, (str(a), str(f))
    assert a.overlaps(f) or not any(a.advertises(event) and f.matches(event) for event in LISTS)


@settings(max_examples=200, deadline=None)
@given(st.lists(atoms("x"), min_size=1, max_size=4), conjunctions())
def test_overlap_of_an_advertisement_with_a_conjunction_is_exact(parts, wanted):
    a, f = Advertisement.parse(text_of(parts)), Filter.parse(wanted.text())
    assert a.overlaps(f) == (allowed_on_x(parts) & on_x(wanted) != 0), (str(a), str(f))


@settings(max_examples=300, deadline=None)
@given(parts_of(*ALL_TEXT), st.sampled_from(["", "T: ", "`a b`: "]))
def test_text_of_an_advertisement_parses_back_to_it(parts, type_name):
    a = Advertisement.parse(type_name + text_of(parts))
    assert Advertisement.parse(str(a)) == a
    assert hash(Advertisement.parse(str(a))) == hash(a)
    assert pickle.loads(pickle.dumps(a)) == a


# ---------------------------------------------------------------- by example


def advertises(text, attributes, registry=None, **context):
    return Advertisement.parse(text).advertises(Event(attributes, **context), registry)


def test_every_attribute_must_be_allowed():
    assert advertises("x = 1 and exists y", {"x": 1, "y": "a"})
    assert not advertises("x = 1 and exists y", {"x": 1, "z": "a"})
    assert advertises("x = 1 and exists y", {"y": "a"})
    assert advertises("x = 1 and exists y", {})


def test_several_constraints_on_an_attribute_are_alternatives():
    assert advertises("x < 3 and x > 5", {"x": 7})
    assert not advertises("x < 3 and x > 5", {"x": 4})


def test_every_element_of_a_list_must_be_allowed():
    assert advertises("x < 3 and x > 5", {"x": [1, 7]})
    assert not advertises("x < 3 and x > 5", {"x": [1, 4]})


def test_true_advertises_everything_of_its_type():
    registry = TypeRegistry([EventType("A"), EventType("B", parent="A")])
    assert advertises("true", {"z": 1})
    assert advertises("A:", {"z": 1}, registry, type="B")
    assert not advertises("A:", {"z": 1}, registry, type="C")
    assert not advertises("A:", {"z": 1}, registry)


def test_context_that_is_not_mentioned_is_free():
    assert advertises("x = 1", {"x": 1}, source="anywhere")
    assert advertises('x = 1 and @source prefix "feeds/"', {"x": 1}, source="feeds/united")
    assert not advertises('x = 1 and @source prefix "feeds/"', {"x": 1}, source="elsewhere")


@pytest.mark.parametrize(
    ("wider", "narrower"),
    [
        ("x < 9", "x < 5"),
        ("x < 5 and x >= 5", "x != 7"),
        ("x < 5 and y = 1", "x < 5"),
        ("true", "x = 1"),
        ("x = 1", 'x = 1 and @source = "a"'),
        ("A:", "A: x = 1"),
        ("x in (1, 2) and x in (3, 4)", "x in (2, 3)"),
    ],
)
def test_an_advertisement_covers_one_that_allows_less(wider, narrower):
    a1, a2 = Advertisement.parse(wider), Advertisement.parse(narrower)
    assert a1.covers(a2)
    assert not a2.covers(a1)


def test_an_advertisement_of_a_supertype_covers_that_of_a_subtype():
    registry = TypeRegistry([EventType("A"), EventType("B", parent="A")])
    a, b = Advertisement.parse("A: x = 1"), Advertisement.parse("B: x = 1")
    assert a.covers(b, registry)
    assert not b.covers(a, registry)
    assert not a.covers(b)


@pytest.mark.parametrize(
    ("advertisement", "subscription", "expected"),
    [
        ("x < 5", "x > 3", True),
        ("x < 5", "x > 7", False),
        ("x < 5 and x > 7", "x > 8", True),
        ("x < 5", "y = 1", False),
        ("x < 5", "not y = 1", True),
        ("x < 5", "x > 7 or x = 1", True),
        ("x < 5", 'x < 3 and @source = "a"', True),
        ('x < 5 and @source = "b"', 'x < 3 and @source = "a"', False),
        ("x < 5", "false", False),
        ("x < 5", "T: x < 3", True),
        ("U: x < 5", "T: x < 3", False),
        ("true", "x = 1 and y = 2", True),
    ],
)
def test_an_advertisement_overlaps_a_filter_if_an_allowed_event_matches(
    advertisement, subscription, expected
):
    assert Advertisement.parse(advertisement).overlaps(Filter.parse(subscription)) is expected


def test_overlap_respects_the_hierarchy():
    registry = TypeRegistry([EventType("A"), EventType("B", parent="A"), EventType("C", parent="A")])
    a = Advertisement.parse("B: exists x")
    assert a.overlaps(Filter.parse("A: x = 1"), registry)
    assert a.overlaps(Filter.parse("B: x = 1"), registry)
    assert not a.overlaps(Filter.parse("C: x = 1"), registry)
    assert not a.overlaps(Filter.parse("not (A:)"), registry)


@pytest.mark.parametrize("text", ["x = 1 or y = 2", "not x = 1", "x = 1 and (y = 1 or y = 2)", "false"])
def test_an_advertisement_has_no_or_and_no_not(text):
    with pytest.raises(FilterSyntaxError, match="an advertisement is a list of constraints joined by and"):
        Advertisement.parse(text)


def test_an_advertisement_that_does_not_parse_points_at_the_column():
    with pytest.raises(FilterSyntaxError) as caught:
        Advertisement.parse("x = 1 and y")
    assert caught.value.column == 12


def test_an_advertisement_is_immutable():
    a = Advertisement.parse("x = 1")
    with pytest.raises(AttributeError, match="immutable"):
        a.type = "B"


def test_order_does_not_matter_to_equality():
    one, other = Advertisement.parse("x = 1 and y = 2"), Advertisement.parse("y = 2 and x = 1")
    assert one == other
    assert len({one, other}) == 1
    assert Advertisement.parse("x < 5 and x >= 5") == Advertisement.parse("x is number")


def test_an_impossible_constraint_allows_no_value():
    nothing = Advertisement.parse("x between 5 and 3")
    assert not nothing.advertises(Event({"x": 4}))
    assert nothing.advertises(Event({}))
    assert Advertisement.parse(str(nothing)) == nothing


def test_what_is_no_text_is_refused():
    with pytest.raises(FilterError, match="a filter is a text, not int"):
        Advertisement.parse(5)
