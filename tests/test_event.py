"""Events: what goes in, what comes out, what is refused."""

import math
import pickle
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from angelia import Event
from angelia.errors import EventError, EventLimitError
from angelia.event import MAX_ATTRIBUTES, MAX_DEPTH, MAX_EVENT_BYTES, format_timestamp, parse_timestamp

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_nested_data_is_flattened_to_dotted_names():
    event = Event({"order": {"total": 7, "buyer": {"name": "Ann"}}, "x": 1})
    assert dict(event.attributes) == {"order.total": 7, "order.buyer.name": "Ann", "x": 1}


def test_none_means_that_an_attribute_is_absent():
    event = Event({"x": None, "y": {"z": None}})
    assert "x" not in event
    assert len(event) == 0


def test_lists_of_scalars_become_tuples_and_other_lists_are_refused():
    assert Event({"tags": ["a", 1, True]})["tags"] == ("a", 1, True)
    for bad in ([[1]], [{"a": 1}], [None]):
        with pytest.raises(EventError, match="attribute 'x'"):
            Event({"x": bad})


def test_an_event_cannot_be_changed():
    data = {"x": 1}
    event = Event(data)
    data["x"] = 2
    assert event["x"] == 1
    with pytest.raises(TypeError):
        event.attributes["x"] = 2
    with pytest.raises(AttributeError):
        event.type = "t"
    with pytest.raises(AttributeError):
        del event.id


def test_the_context_is_read_with_an_at_sign():
    event = Event({"type": "a"}, type="T", source="s", subject="j", id="i", time=NOON)
    assert [event[f"@{name}"] for name in ("type", "source", "subject", "id", "time")] == [
        "T", "s", "j", "i", NOON,
    ]  # fmt: skip
    assert event["type"] == "a"
    assert Event().get("@type") is None
    with pytest.raises(KeyError):
        Event()["x"]


def test_one_is_not_true_and_not_one_point_zero():
    assert Event({"x": 1}) != Event({"x": True})
    assert Event({"x": 1}) != Event({"x": 1.0})
    assert Event({"x": [1]}) != Event({"x": [True]})
    assert Event({"x": 1, "y": 2}) == Event({"y": 2, "x": 1})
    assert hash(Event({"x": 1, "y": 2})) == hash(Event({"y": 2, "x": 1}))


def test_timestamps_are_kept_in_utc_and_need_a_time_zone():
    local = datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))
    assert Event({"at": local})["at"] == NOON
    with pytest.raises(EventError, match="no time zone"):
        Event({"at": datetime(2026, 1, 1)})
    with pytest.raises(EventError, match=r"time: .*no time zone"):
        Event(time=datetime(2026, 1, 1))


def test_subclasses_of_scalars_become_plain():
    class Colour(StrEnum):
        RED = "red"

    class Level(IntEnum):
        HIGH = 3

    event = Event({"c": Colour.RED, "l": Level.HIGH})
    assert [type(value) for value in event.attributes.values()] == [str, int]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"x": 2**63}, "64 bits"),
        ({"x": object()}, "not allowed"),
        ({"x": b"raw"}, "not allowed"),
        ({"x": "\ud800"}, "lone surrogate"),
        ({"": 1}, "empty"),
        ({"@type": 1}, "kept for the context"),
        ({"a\nb": 1}, "cannot be printed"),
        ({1: 2}, "is a string"),
        ({"a": {"b": 1}, "a.b": 2}, "given twice"),
        ({"n" * 256: 1}, "256 characters"),
    ],
)
def test_bad_attributes_are_refused_with_a_reason(bad, message):
    with pytest.raises(EventError, match=message):
        Event(bad)


def test_limits_are_errors_that_name_the_limit():
    with pytest.raises(EventLimitError, match=str(MAX_ATTRIBUTES)):
        Event({f"a{i}": i for i in range(MAX_ATTRIBUTES + 1)})
    with pytest.raises(EventLimitError, match=str(MAX_EVENT_BYTES)):
        Event({"x": "y" * MAX_EVENT_BYTES})
    deep = {"x": 1}
    for _ in range(MAX_DEPTH):
        deep = {"d": deep}
    with pytest.raises(EventLimitError, match="deeper"):
        Event(deep)


def test_an_event_just_below_the_limit_is_accepted():
    event = Event({"x": "y" * (MAX_EVENT_BYTES - 20)})
    assert event.encoded_size() <= MAX_EVENT_BYTES


def test_a_copy_with_another_context_keeps_the_attributes():
    event = Event({"x": 1}, type="T").replace(id="7")
    assert (event.type, event.id, event["x"]) == ("T", "7", 1)
    with pytest.raises(EventError, match="colour"):
        event.replace(colour="red")


def test_an_event_survives_pickling():
    event = Event({"x": [1, 2], "at": NOON}, type="T", time=NOON)
    assert pickle.loads(pickle.dumps(event)) == event


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.datetimes(),
    st.decimals(), st.fractions(),
)  # fmt: skip
json_like = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text() | st.integers(), json_like, max_size=6))
def test_any_data_gives_an_event_or_an_event_error(data):
    try:
        event = Event(data)
    except EventError:
        return
    assert all(isinstance(name, str) for name in event)
    assert Event(event.attributes) == event or any(
        isinstance(v, float) and math.isnan(v) for value in event.attributes.values()
        for v in (value if isinstance(value, tuple) else (value,))
    )  # fmt: skip


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_timestamp_is_printed_and_read_back(at):
    assert parse_timestamp(format_timestamp(at)) == at


@pytest.mark.parametrize(
    "text",
    ["2026-01-01", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T25:00:00Z", "now", "",
     "2026-01-01T00:00:00+99:00", "0001-01-01T00:00:00+01:00"],
)  # fmt: skip
def test_what_is_no_timestamp_is_refused(text):
    with pytest.raises(EventError):
        parse_timestamp(text)


def test_digits_beyond_the_microsecond_are_cut_off():
    assert parse_timestamp("2026-01-01T12:00:00.123456789Z") == NOON + timedelta(microseconds=123456)
