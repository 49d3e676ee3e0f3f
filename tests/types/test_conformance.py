"""Which events conform to their type, and how those that do not are told."""

import math
import pickle
import time
from datetime import UTC, datetime

import pytest

from angelia.errors import ConformanceError, EventError, UnknownTypeError
from angelia.event import Event
from angelia.types import EventType, TypeRegistry

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def registry():
    event = EventType("Event", {"at": "timestamp?"})
    quote = EventType(
        "Quote",
        {"airline": "string", "price": "float", "seats": "integer?", "open": "boolean?", "tags": "string[]?"},
        parent="Event",
    )
    return TypeRegistry([event, quote])


def problems(registry, attributes, type_name="Quote"):
    with pytest.raises(ConformanceError) as caught:
        registry.check(Event(attributes, type=type_name))
    assert caught.value.type_name == type_name
    return caught.value.problems


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"at": NOW},
        {"price": 420},
        {"price": math.nan},
        {"price": -math.inf},
        {"seats": 3, "open": True},
        {"tags": []},
        {"tags": ["a", "b"]},
        {"seats": None},
    ],
)
def test_events_of_the_declared_datatypes_conform(registry, extra):
    registry.check(Event({"airline": "UA", "price": 420.5} | extra, type="Quote"))


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ({"price": "420"}, "attribute 'price': expected float, got string"),
        ({"price": True}, "attribute 'price': expected float, got boolean"),
        ({"seats": False}, "attribute 'seats': expected integer, got boolean"),
        ({"seats": 1.0}, "attribute 'seats': expected integer, got float"),
        ({"open": 1}, "attribute 'open': expected boolean, got integer"),
        ({"at": "2026-01-01T00:00:00Z"}, "attribute 'at': expected timestamp, got string"),
        ({"tags": "a"}, "attribute 'tags': expected a list of string, got string"),
        (
            {"tags": ["a", 7]},
            "attribute 'tags': expected a list of string, got integer at position 1 of the list",
        ),
        ({"airline": ["UA"]}, "attribute 'airline': expected string, got a list"),
        ({"airline": []}, "attribute 'airline': expected string, got a list"),
        ({"airline": None}, "missing attribute 'airline', expected string"),
        ({"pirce": 3}, "unknown attribute 'pirce'; did you mean 'price'?"),
        ({"zzzzzz": 3}, "unknown attribute 'zzzzzz'"),
        ({"x" * 200: 3}, f"unknown attribute '{'x' * 200}'"),
        ({"airline": {"code": "UA"}}, "unknown attribute 'airline.code'"),
    ],
)
def test_a_problem_names_the_attribute_and_what_was_expected(registry, extra, problem):
    assert problem in problems(registry, {"airline": "UA", "price": 420.5} | extra)


def test_all_problems_are_reported_at_once(registry):
    found = problems(registry, {"price": "420", "tag": ["a"], "at": 7})
    assert found == [
        "attribute 'at': expected timestamp, got integer",
        "missing attribute 'airline', expected string",
        "attribute 'price': expected float, got string",
        "unknown attribute 'tag'; did you mean 'tags'?",
    ]


def test_the_error_says_the_type_and_survives_pickling(registry):
    with pytest.raises(ConformanceError, match="not a valid Quote: ") as caught:
        registry.check(Event({"price": 1, "airline": 2}, type="Quote"))
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


def test_an_event_without_type_passes_and_one_of_an_unknown_type_does_not(registry):
    registry.check(Event({"anything": 1}))
    with pytest.raises(UnknownTypeError, match="unknown event type 'Qoute'; did you mean 'Quote'"):
        registry.check(Event({"airline": "UA"}, type="Qoute"))


def test_an_event_full_of_near_misses_is_refused_quickly():
    names = [f"{'x' * 45}{i:03}" for i in range(256)]
    registry = TypeRegistry([EventType("T", dict.fromkeys(names, "string?"))])
    started = time.process_time()
    assert len(problems(registry, {name[::-1]: 1 for name in names}, "T")) == 256
    assert time.process_time() - started < 1


# ---------------------------------------------------------------- JSON at the door


def test_timestamps_of_json_data_are_parsed_and_nothing_else_is_converted(registry):
    data = {"at": "2026-01-01T01:00:00+01:00", "airline": "2026-01-01T00:00:00Z", "price": "420"}
    assert registry.from_json(data, "Quote") == {
        "at": NOW,
        "airline": "2026-01-01T00:00:00Z",
        "price": "420",
    }


def test_nested_and_repeated_timestamps_are_parsed():
    registry = TypeRegistry([EventType("Trip", {"leg.at": "timestamp", "stops": "timestamp[]"})])
    values = registry.from_json(
        {"leg": {"at": "2026-01-01T00:00:00Z"}, "stops": ["2026-01-01T00:00:00Z"]}, "Trip"
    )
    assert values == {"leg.at": NOW, "stops": (NOW,)}
    registry.check(Event(values, type="Trip"))


def test_every_bad_timestamp_is_a_problem():
    registry = TypeRegistry([EventType("Trip", {"a": "timestamp", "b": "timestamp[]", "c": "timestamp"})])
    with pytest.raises(ConformanceError) as caught:
        registry.from_json({"a": "yesterday", "b": ["2026-01-01T00:00:00Z", "never"], "c": 7}, "Trip")
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["attribute 'a'", "attribute 'b'"]


def test_json_data_that_no_event_can_hold_is_an_event_error(registry):
    with pytest.raises(EventError):
        registry.from_json({"price": 10**30}, "Quote")
    with pytest.raises(UnknownTypeError):
        registry.from_json({}, "Nothing")
