"""Errors say what was wrong, where, and what would be right; they survive pickling."""

import pickle
from fractions import Fraction

import pytest

from angelia import Event, Filter, errors
from angelia.errors import (
    AngeliaError,
    ConformanceError,
    FilterLimitError,
    FilterSyntaxError,
    UnknownTypeError,
)


def failure(text):
    with pytest.raises(FilterSyntaxError) as caught:
        Filter.parse(text)
    return caught.value


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_an_angelia_error(name):
    assert issubclass(getattr(errors, name), AngeliaError)
    assert getattr(errors, name).__doc__


def test_errors_about_a_value_are_value_errors_and_about_a_missing_thing_lookup_errors():
    assert issubclass(FilterSyntaxError, ValueError)
    assert issubclass(ConformanceError, ValueError)
    assert issubclass(UnknownTypeError, LookupError)
    assert issubclass(FilterLimitError, FilterSyntaxError)


def test_an_event_is_refused_with_an_error_of_ours_whatever_is_wrong():
    for data in ({10**5000: 1}, {"x": Fraction(10**400)}, {"x": 10**5000}, {"x": object()}, {"": 1}):
        with pytest.raises(errors.EventError):
            Event(data)


def test_the_message_shows_the_line_with_a_caret_below_the_column():
    assert str(failure("price < 500 and airline == 3")).splitlines()[1:] == [
        "  price < 500 and airline == 3",
        "                           ^",
    ]


def test_of_a_long_filter_a_part_is_shown():
    error = failure("x = 1 and " * 500 + "y ! 2" + " and z = 3" * 500)
    _, line, caret = str(error).splitlines()
    assert len(line) < 140
    assert line[caret.index("^")] == "!"


def test_of_a_filter_on_several_lines_the_line_is_shown():
    assert str(failure("x = 1\nand y ! 2\nand z = 3")).splitlines()[1] == "  and y ! 2"


def test_an_error_without_a_text_has_no_place():
    assert str(FilterSyntaxError("too much")) == "too much"


@pytest.mark.parametrize(
    "error",
    [failure("x = = 1"), failure("(" * 100 + "x = 1"), ConformanceError("T", ["a is missing", "b is new"])],
)
def test_errors_survive_pickling(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
