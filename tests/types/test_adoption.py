"""Definitions that travel between brokers: all come to agree."""

import pytest

from angelia import EventType, TypeRegistry
from angelia.errors import EventTypeError, UnknownTypeError


def test_an_unknown_type_is_taken_over_and_an_equal_one_is_no_news():
    registry = TypeRegistry()
    assert registry.adopt(EventType("A", {"x": "integer"}, version=3))
    assert registry.get("A").version == 3
    assert not registry.adopt(EventType("A", {"x": "integer"}, version=3))


def test_the_higher_version_wins_in_whatever_order_they_come():
    old, new = EventType("A", {"x": "integer"}), EventType("A", {"x": "float", "y": "string?"}, version=2)
    one, other = TypeRegistry([old]), TypeRegistry([new])
    assert one.adopt(new)
    assert not other.adopt(old)
    assert one.get("A") == other.get("A") == new


def test_of_two_definitions_with_one_version_both_sides_choose_the_same():
    a, b = EventType("A", {"x": "integer"}), EventType("A", {"x": "integer", "y": "string?"})
    one, other = TypeRegistry([a]), TypeRegistry([b])
    assert one.adopt(b) != other.adopt(a)
    assert one.get("A") == other.get("A")


def test_a_change_of_an_adopted_type_reaches_its_subtypes():
    registry = TypeRegistry([EventType("A", {"x": "integer"}), EventType("B", {}, parent="A")])
    registry.adopt(EventType("A", {"x": "integer", "y": "string?"}, version=2))
    assert "y" in registry.attributes("B")


def test_what_cannot_be_adopted_is_refused_and_changes_nothing():
    registry = TypeRegistry([EventType("A", {"x": "integer"}), EventType("B", {}, parent="A")])
    with pytest.raises(UnknownTypeError):
        registry.adopt(EventType("C", {}, parent="nowhere"))
    with pytest.raises(EventTypeError, match="parent"):
        registry.adopt(EventType("B", {}, parent="nowhere", version=9))
    assert registry.get("B").version == 1
