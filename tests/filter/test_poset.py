"""The filters poset (SIENA 5.2.1) against a twin that compares every pair."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.filter.language import ALL_TEXT, atoms, conjunctions, expressions

from angelia import Advertisement, EventType, Filter, TypeRegistry
from angelia.errors import FilterError
from angelia.filter import Place, advertisement_poset, subscription_poset


class PairwisePoset:
    """The same poset, deliberately dumb: nothing is stored but the items, and every pair is compared."""

    def __init__(self, registry=None):
        self.items = []
        self.registry = registry

    def covers(self, a, b):
        return a.covers(b, self.registry)

    def insert(self, item):
        for other in self.items:
            if self.covers(other, item) and self.covers(item, other):
                return other, Place.EXISTING
        self.items.append(item)
        return item, Place.COVERED if self.covering(item) else Place.ROOT

    def remove(self, item):
        before = self.roots()
        self.items.remove(item)
        return frozenset(self.roots() - before)

    def covering(self, item):
        return {other for other in self.items if other != item and self.covers(other, item)}

    def covered_by(self, item):
        return {other for other in self.items if other != item and self.covers(item, other)}

    def roots(self):
        return {item for item in self.items if not self.covering(item)}

    def successors(self, item):
        above = self.covering(item)
        return {f for f in above if not any(self.covers(f, g) for g in above if g != f)}

    def predecessors(self, item):
        below = self.covered_by(item)
        return {f for f in below if not any(self.covers(g, f) for g in below if g != f)}


def assert_same(poset, twin, outsiders=()):
    assert set(poset) == set(twin.items)
    assert set(poset.roots) == twin.roots()
    assert len(poset) == len(twin.items)
    for item in twin.items:
        assert poset.successors(item) == twin.successors(item), str(item)
        assert poset.predecessors(item) == twin.predecessors(item), str(item)
        assert poset.is_root(item) == (item in twin.roots())
    for item in (*twin.items, *outsiders):
        assert poset.covering(item) == twin.covering(item), str(item)
        assert poset.covered_by(item) == twin.covered_by(item), str(item)


def run(poset, twin, pool, steps):
    """Insert those of the pool that are not in, remove those that are, as `steps` point at them."""
    for step in steps:
        item = pool[step % len(pool)]
        if item in twin.items:
            assert poset.remove(item) == twin.remove(item)
        else:
            assert poset.insert(item) == twin.insert(item)
    assert_same(poset, twin, pool)


def filters_from(strategy):
    return strategy.map(lambda expression: Filter.parse(expression.text()))


steps = st.lists(st.integers(0, 99), max_size=30)
few = {"min_size": 1, "max_size": 10}


@settings(max_examples=250, deadline=None)
@given(st.lists(filters_from(conjunctions(text_ops=ALL_TEXT)), **few), steps)
def test_the_poset_of_filters_on_one_attribute_is_that_of_all_pairs(pool, steps):
    run(subscription_poset(), PairwisePoset(), pool, steps)


@settings(max_examples=250, deadline=None)
@given(st.lists(filters_from(expressions()), **few), steps)
def test_the_poset_of_any_filters_is_that_of_all_pairs(pool, steps):
    run(subscription_poset(), PairwisePoset(), pool, steps)


TEXTS = st.sampled_from(
    [
        "x = 1",
        "x > 0",
        "x > 1",
        "x in (1, 2)",
        "x in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)",
        "exists x",
        "y = 1",
        "x = 1 and y = 1",
        "x > 0 and y > 0",
        "x = 1 or y = 1",
        "x > 1 or y > 0",
        "true",
        "false",
        "not x = 1",
        'x prefix "a"',
        'x prefix "ab"',
        'x suffix "b"',
        'x contains "a"',
        'x = "ab"',
        'x matches "a"',
        "x = 1 and not y = 1",
        "not x > 0 and exists x",
        "z < 3 and x = 1",
        "x is number",
        "x != 1",
    ]
)


@settings(max_examples=250, deadline=None)
@given(st.lists(TEXTS.map(Filter.parse), min_size=1, max_size=25), steps)
def test_a_poset_with_many_relations_is_that_of_all_pairs(pool, steps):
    run(subscription_poset(), PairwisePoset(), pool, steps)


REGISTRY = TypeRegistry(
    [
        EventType("A"),
        EventType("B", parent="A"),
        EventType("C", parent="B"),
        EventType("D", parent="A"),
        EventType("E"),
    ]
)
TYPED = st.builds(
    lambda name, text: f"{name}: {text}",
    st.sampled_from("ABCDE"),
    st.sampled_from(["true", "x = 1", "x > 0"]),
) | st.sampled_from(["x = 1", "x > 0", "not (B:)", "(A: x = 1) or (E:)", "A: not (C:)", "Unknown:"])


@settings(max_examples=250, deadline=None)
@given(st.lists(TYPED.map(Filter.parse), min_size=1, max_size=16), steps)
def test_a_poset_of_typed_filters_follows_the_registry(pool, steps):
    run(subscription_poset(REGISTRY), PairwisePoset(REGISTRY), pool, steps)


ADVERTISEMENTS = st.builds(
    lambda head, parts: Advertisement.parse(head + (" and ".join(part.text() for part in parts) or "true")),
    st.sampled_from(["", "", "A: ", "B: "]),
    st.lists(atoms("x", ALL_TEXT) | atoms("y", ALL_TEXT), max_size=4),
)


@settings(max_examples=250, deadline=None)
@given(st.lists(ADVERTISEMENTS, **few), steps)
def test_the_poset_of_advertisements_is_that_of_all_pairs(pool, steps):
    run(advertisement_poset(REGISTRY), PairwisePoset(REGISTRY), pool, steps)


# ---------------------------------------------------------------- by example


def poset_of(*texts, registry=None):
    poset = subscription_poset(registry)
    for text in texts:
        poset.insert(Filter.parse(text))
    return poset


def texts(filters):
    return {str(each) for each in filters}


def test_a_filter_that_no_other_covers_becomes_a_root():
    poset = poset_of("x > 5")
    assert poset.insert(Filter.parse("y > 5")).place is Place.ROOT
    assert texts(poset.roots) == {"x > 5", "y > 5"}


def test_a_wider_filter_takes_the_place_of_the_roots_it_covers():
    poset = poset_of("x > 5", "x < 3", "y = 1")
    assert poset.insert(Filter.parse("exists x")).place is Place.ROOT
    assert texts(poset.roots) == {"exists x", "y = 1"}
    assert texts(poset.predecessors(Filter.parse("exists x"))) == {"x > 5", "x < 3"}


def test_a_filter_that_is_there_already_is_not_inserted_again():
    poset = poset_of("x > 5")
    assert poset.insert(Filter.parse("x > 5")) == (Filter.parse("x > 5"), Place.EXISTING)
    assert len(poset) == 1


def test_an_equivalent_filter_stands_for_the_new_one():
    registry = TypeRegistry([EventType("A")])
    poset = poset_of("A: x = 1", registry=registry)
    equivalent = Filter.parse("A: x = 1 and not (B:)")
    registry.add(EventType("B"))
    assert poset.insert(equivalent) == (Filter.parse("A: x = 1"), Place.EXISTING)
    assert equivalent not in poset


def test_a_filter_is_inserted_between_its_immediate_successors_and_predecessors():
    poset = poset_of("x > 1", "x > 9")
    assert texts(poset.successors(Filter.parse("x > 9"))) == {"x > 1"}
    middle = Filter.parse("x > 5")
    assert poset.insert(middle).place is Place.COVERED
    assert texts(poset.successors(middle)) == {"x > 1"}
    assert texts(poset.predecessors(middle)) == {"x > 9"}
    assert texts(poset.successors(Filter.parse("x > 9"))) == {"x > 5"}
    assert texts(poset.covering(Filter.parse("x > 9"))) == {"x > 1", "x > 5"}


def test_removal_returns_the_filters_that_became_roots():
    poset = poset_of("exists x", "x > 5", "x > 7", "x < 3")
    assert texts(poset.remove(Filter.parse("exists x"))) == {"x > 5", "x < 3"}
    assert texts(poset.remove(Filter.parse("x > 5"))) == {"x > 7"}
    assert poset.remove(Filter.parse("x < 3")) == frozenset()


def test_removal_joins_what_was_above_with_what_was_below():
    poset = poset_of("x > 1", "x > 5", "x > 9")
    assert poset.remove(Filter.parse("x > 5")) == frozenset()
    assert texts(poset.successors(Filter.parse("x > 9"))) == {"x > 1"}


@pytest.mark.parametrize("question", ["remove", "successors", "predecessors"])
def test_a_filter_that_is_not_in_the_poset_is_an_error(question):
    poset = poset_of("x > 1")
    with pytest.raises(FilterError, match="not in the poset: x > 2"):
        getattr(poset, question)(Filter.parse("x > 2"))


def test_what_covers_a_filter_from_outside_is_found():
    poset = poset_of("x > 1", "x > 5", "y = 1")
    assert texts(poset.covering(Filter.parse("x > 7"))) == {"x > 1", "x > 5"}
    assert texts(poset.covered_by(Filter.parse("x > 0"))) == {"x > 1", "x > 5"}
    assert Filter.parse("x > 7") not in poset


def test_roots_come_in_the_order_in_which_they_became_roots():
    poset = poset_of("b = 1", "a = 1", "c = 1")
    assert [str(root) for root in poset.roots] == ["b = 1", "a = 1", "c = 1"]
