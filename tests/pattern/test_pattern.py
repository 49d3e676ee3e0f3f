"""Patterns: the language, covering, limits."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia import EventType, Filter, TypeRegistry
from angelia.errors import FilterError, FilterLimitError, FilterSyntaxError
from angelia.pattern import MAX_FILTERS, Pattern

FILTERS = [
    "x = 1",
    'name = " then "',
    "`a then b` > 3",
    "then = 5",
    "exists then",
    "x is string",
    "a = 1 or b = 2",
    "Quote: true",
    "flights.Quote: price < 5 or price > 7",
    "not then > 5",
    "then between 1 and 2",
    '(Quote: true) or then prefix "then"',
]


@given(st.lists(st.sampled_from(FILTERS), min_size=1, max_size=5))
def test_text_and_back(texts):
    pattern = Pattern.parse(" then ".join(texts))
    assert pattern.filters == tuple(map(Filter.parse, texts))
    assert Pattern.parse(str(pattern)) == pattern
    assert hash(Pattern.parse(str(pattern))) == hash(pattern)


def test_a_type_alone_may_be_followed_by_then():
    assert Pattern.parse("Quote: then Cancel:") == Pattern.parse("Quote: true then Cancel: true")
    assert len(Pattern.parse("Quote: then > 5")) == 1


def test_then_may_stand_in_strings_and_backquotes_and_be_a_name():
    assert len(Pattern.parse('x = "a then b" then `then` = 1')) == 2
    assert len(Pattern.parse("then = 1 then then = 2")) == 2


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected a filter"),
        ("x = 1 then", 11, "expected a filter"),
        ("x = 1 then then", 16, "expected an operator"),
        ("then x = 1", 6, "expected an operator"),
        ("x = 1 then y", 13, "expected an operator"),
        ("x = 1 then y = 2 z", 18, "expected and, or, then, or the end of the pattern"),
        ("x = 1 then y = 'a'", 16, "double quotes"),
        ("x = 1 then (y = 2 then z = 3)", 19, r"expected '\)'"),
        ("x = 1, y = 2", 6, "expected and, or, then"),
    ],
)
def test_an_error_points_at_the_column(text, column, message):
    with pytest.raises(FilterSyntaxError, match=message) as caught:
        Pattern.parse(text)
    assert caught.value.column == column


def test_a_filter_is_not_a_pattern():
    with pytest.raises(FilterSyntaxError, match="expected and, or, or the end of the filter, found 'then'"):
        Filter.parse("x = 1 then y = 2")


def test_limits():
    long = " then ".join(["x = 1"] * (MAX_FILTERS + 1))
    with pytest.raises(FilterLimitError, match=f"at most {MAX_FILTERS} filters") as caught:
        Pattern.parse(long)
    assert long[caught.value.column - 1 :] == "x = 1"
    with pytest.raises(FilterError, match="1 to"):
        Pattern([])
    with pytest.raises(FilterError, match="text"):
        Pattern.parse(None)


def test_a_filter_that_expands_too_far_is_an_error_at_its_place():
    wide = " and ".join(f"(a{i} = 1 or b{i} = 1)" for i in range(20))
    with pytest.raises(FilterLimitError) as caught:
        Pattern.parse(f"x = 1 then {wide}")
    assert caught.value.column == len("x = 1 then ") + 1


def test_covering_is_filter_by_filter():
    wide, narrow = Pattern.parse("x > 0 then y > 0"), Pattern.parse("x > 5 then y > 5")
    assert wide.covers(narrow)
    assert not narrow.covers(wide)
    assert not wide.covers(Pattern.parse("x > 5 then y < 5"))
    assert not wide.covers(Pattern.parse("y > 5 then x > 5"))
    assert not wide.covers(Pattern.parse("x > 5"))
    assert not wide.covers(Pattern.parse("x > 5 then y > 5 then z > 5"))


def test_covering_asks_the_registry_about_types():
    registry = TypeRegistry([EventType("Top"), EventType("Sub", parent="Top")])
    top, sub = Pattern.parse("Top: then Top:"), Pattern.parse("Sub: then Top:")
    assert top.covers(sub, registry)
    assert not top.covers(sub)


def test_a_pattern_is_a_value():
    pattern = Pattern.parse("x = 1 then y = 2")
    assert pickle.loads(pickle.dumps(pattern)) == pattern
    assert pattern != Pattern.parse("y = 2 then x = 1")
    assert pattern != "x = 1 then y = 2"
    assert repr(pattern) == "Pattern('x = 1 then y = 2')"
    assert not pattern.is_simple
    with pytest.raises(AttributeError):
        pattern.filters = ()
