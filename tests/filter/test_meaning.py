"""What the language means, rule by rule; any name and value can be written; explanations."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.filter.language import expressions

from angelia import Event, Filter, attr
from angelia.errors import FilterError, FilterSyntaxError
from angelia.filter.parser import print_literal


def parse(text):
    return Filter.parse(text)


def matches(text, attributes, **context):
    return parse(text).matches(Event(attributes, **context))


# ---------------------------------------------------------------- what it means


def test_and_binds_closer_than_or_and_not_closest():
    assert parse("x = 1 or y = 1 and z = 1") == parse("x = 1 or (y = 1 and z = 1)")
    assert parse("not x = 1 and y = 1") == parse("(not x = 1) and y = 1")
    assert parse("x between 1 and 2 and y = 1") == parse("(x between 1 and 2) and y = 1")


def test_a_type_is_about_all_that_follows_in_its_parentheses():
    assert parse("T: x = 1 or y = 1") == parse("(T: x = 1) or (T: y = 1)")
    assert parse("(T: x = 1) or y = 1") != parse("T: x = 1 or y = 1")
    assert parse("T:") == parse("T: true") == Filter.of_type("T")
    assert parse("(T:) and x = 1") == parse("T: x = 1")


def test_white_space_does_not_matter():
    assert parse("x=1and y<2") if False else parse("x = 1 and y < 2") == parse("\n x\t=1\r\n and y<2 ")


def test_words_may_be_of_any_script():
    assert matches('größe = 3 and 名前 = "x"', {"größe": 3, "名前": "x"})


def test_names_may_have_dots_and_dashes():
    assert matches("order.total-sum > 3", {"order": {"total-sum": 4}})


def test_any_other_name_is_written_in_backquotes():
    assert matches("`unit price` = 3 and `and` = 1 and `a``b` = 2", {"unit price": 3, "and": 1, "a`b": 2})
    assert str(parse("`and` = 1")) == "`and` = 1"
    assert str(parse("`x` = 1")) == "x = 1"


def test_strings_have_the_escapes_of_json():
    assert matches(r'x = "a\"b\\cé\n"', {"x": 'a"b\\cé\n'})
    assert matches('x = "a\nb"', {"x": "a\nb"})


@pytest.mark.parametrize(
    ("literal", "value"),
    [("-3", -3), ("+3", 3), ("3.", 3.0), (".5", 0.5), ("1e3", 1000), ("-1.5E-2", -0.015)],
)
def test_numbers_are_written_as_usual(literal, value):
    assert matches(f"x = {literal}", {"x": value})


def test_integers_and_floats_compare_as_numbers_and_exactly():
    assert matches("x = 1", {"x": 1.0})
    assert matches("x = 1.0", {"x": 1})
    assert matches("x > 9007199254740992", {"x": 9007199254740993})
    assert not matches("x > 9007199254740992.0", {"x": 9007199254740992})


def test_timestamps_compare_as_instants():
    noon = parse('x = t"2026-01-01T12:00:00Z"')
    assert noon == parse('x = t"2026-01-01T13:00:00+01:00"')
    assert noon == parse('x = t"2026-01-01 12:00:00.0000009z"')


@pytest.mark.parametrize(
    "text",
    ["x = 1", "x != 1", "x < 1", "x is number", 'x prefix ""', 'x matches ""', "x in (1, 2)", "exists x"],
)
def test_a_constraint_on_a_missing_attribute_does_not_hold(text):
    assert not matches(text, {})
    assert matches(f"not {text}", {})


@pytest.mark.parametrize("value", ["1", True, 2.5])
def test_a_constraint_on_a_value_of_another_kind_does_not_hold(value):
    assert not matches('x != t"2026-01-01T00:00:00Z"', {"x": value})
    assert matches('not x = t"2026-01-01T00:00:00Z"', {"x": value})


def test_booleans_are_not_numbers():
    assert not matches("x = 1", {"x": True})
    assert not matches("x = true", {"x": 1})


def test_nan_matches_nothing_but_exists():
    nan = {"x": math.nan}
    assert matches("exists x", nan)
    for text in ("x = 1", "x != 1", "x < 1", "x >= 1", "x is number", "x in (1, 2)"):
        assert not matches(text, nan), text
        assert matches(f"not {text}", nan), text


def test_the_context_is_seen_with_an_at_sign():
    context = {"type": "T", "source": "s/1", "subject": "a", "id": "7"}
    assert matches('@type = "T" and @source prefix "s/" and @subject = "a" and @id = "7"', {}, **context)
    assert not matches("exists @time", {}, **context)


def test_a_type_needs_a_name():
    with pytest.raises(FilterSyntaxError, match="cannot be a name"):
        Filter.of_type("")
    with pytest.raises(FilterSyntaxError, match="a name is a string, not NoneType"):
        Filter.of_type(None)


# ---------------------------------------------------------------- any name, any value

any_text = st.text(max_size=12)
scalars = st.one_of(
    any_text,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.datetimes(timezones=st.timezones()),
)


@settings(max_examples=400, deadline=None)
@given(st.text(min_size=1, max_size=12), scalars, st.sampled_from(["__eq__", "__ne__"]))
def test_any_name_and_value_can_be_written(name, value, operator):

    try:
        f = getattr(attr(name), operator)(value)
    except FilterError:
        return  # a name that cannot be printed, a lone surrogate, a time outside the calendar
    assert parse(str(f)) == f


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["prefix", "suffix", "contains", "<", ">=", "!="]), max_size=4), st.data())
def test_any_strings_can_be_asked_for(operators, data):

    texts = data.draw(st.lists(any_text, min_size=len(operators), max_size=len(operators)))
    asked = [f"x {op} {print_literal(text)}" for op, text in zip(operators, texts, strict=True)]
    f = parse(" and ".join(asked) or "true")
    assert parse(str(f)) == f
    assert parse(str(~f)) == ~f


# ---------------------------------------------------------------- explanations


def test_of_a_list_an_explanation_judges_the_constraints_on_one_element_together():
    found = parse("x > 1 and x < 3").explain(Event({"x": [0, 4]}))
    assert [(v.constraint, v.held) for v in found.alternatives[0]] == [("x > 1 and x < 3", False)]
    assert "[0, 4]" in str(found)


@settings(max_examples=200, deadline=None)
@given(expressions())
def test_a_filter_matches_if_all_verdicts_of_an_alternative_hold(expression):
    f = parse(expression.text())
    for event in (Event({"x": 1, "y": "a"}), Event({"x": [0, 2, "ab"]}), Event({"y": math.nan})):
        found = f.explain(event)
        assert found.matched == any(all(v.held for v in each) for each in found.alternatives)
