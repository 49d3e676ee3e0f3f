"""Filters against event types (thesis, Definition 3.3)."""

import pytest

from angelia import EventType, Filter, TypeRegistry
from angelia.errors import ConformanceError, UnknownTypeError
from angelia.filter import check_filter


@pytest.fixture
def registry():
    return TypeRegistry(
        [
            EventType("Fare", {"price": "float", "at": "timestamp?", "tags": "string[]?"}),
            EventType("Sale", {"percent": "integer"}, parent="Fare"),
        ]
    )


@pytest.mark.parametrize(
    "text",
    ["Fare: price < 5", "Sale: price < 5.5 and percent = 3", 'Fare: tags = "a"', "Fare: exists at",
     "anything = 1",
     'Fare: at > t"2026-01-01T00:00:00Z"', '@time > t"2026-01-01T00:00:00Z" and @source = "s"', "Fare: true",
     "not (Sale: percent = 1)"],
)  # fmt: skip
def test_a_filter_that_conforms_is_accepted(registry, text):
    check_filter(Filter.parse(text), registry)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Fare: percent = 3", "Fare has no attribute 'percent'"),
        ("Sale: prise < 3", "did you mean 'price'"),
        ('Fare: price = "5"', "expected a number"),
        ("Fare: at > 5", "expected a timestamp"),
        ('Fare: not price prefix "x"', "expected a number"),
        ("@time > 5", "expected a timestamp"),
        ("@source > 5", "expected a string"),
    ],
)
def test_a_constraint_that_does_not_conform_is_reported(registry, text, problem):
    with pytest.raises(ConformanceError, match=problem):
        check_filter(Filter.parse(text), registry)


def test_all_problems_are_reported_at_once(registry):
    with pytest.raises(ConformanceError) as caught:
        check_filter(Filter.parse('Sale: price = "a" and percent = true and x = 1'), registry)
    assert len(caught.value.problems) == 3


def test_an_unknown_type_is_reported(registry):
    with pytest.raises(UnknownTypeError, match="Sael"):
        check_filter(Filter.parse("Sael: price < 5"), registry)


def test_types_take_part_in_covering(registry):
    fare, sale = Filter.parse("Fare: price < 5"), Filter.parse("Sale: price < 5")
    assert fare.covers(sale, registry)
    assert not sale.covers(fare, registry)
    assert not fare.covers(sale)
    assert fare.overlaps(sale, registry)
    assert not Filter.parse("Sale: true").overlaps(Filter.parse("Other: true"), registry)
    assert Filter.parse("not (Fare: true)").covers(Filter.parse("not (Fare: true) and x = 1"), registry)
    assert Filter.parse("not (Sale: true)").covers(Filter.parse("not (Fare: true)"), registry)
