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


# ---------------------------------------------------------------- removals


def registries(*event_types):
    return TypeRegistry(event_types), TypeRegistry(event_types)


def test_a_removal_is_taken_over_and_no_old_copy_brings_the_type_back():
    old = EventType("A", {"x": "integer"})
    one, other = registries(old)
    gone = one.remove("A")
    assert other.adopt_removal(gone)
    assert not other.adopt_removal(gone), "it is no news twice"
    assert "A" not in other
    assert not other.adopt(old)
    assert not one.adopt(old)
    assert list(other.removed) == ["A"]


def test_a_removal_may_come_before_the_type_that_it_removes():
    old = EventType("A", {"x": "integer"})
    one, late = TypeRegistry([old]), TypeRegistry()
    assert late.adopt_removal(one.remove("A"))
    assert not late.adopt(old)
    assert "A" not in late


def test_a_type_that_is_added_again_is_newer_than_its_removal():
    one, other = registries(EventType("A", {"x": "integer"}))
    other.adopt_removal(one.remove("A"))
    again = one.add(EventType("A", {"y": "string"}))
    assert other.adopt(again) == (again,)
    assert other.get("A").attributes.keys() == {"y"}
    assert not other.removed


def test_a_change_that_is_newer_than_a_removal_wins():
    one, other = registries(EventType("A", {"x": "integer"}))
    for optional in ("y", "z"):
        known = other.get("A").attributes
        other.modify(EventType("A", {**known, optional: "string?"}))
    assert not other.adopt_removal(one.remove("A"))
    assert one.adopt(other.get("A"))
    assert one.get("A") == other.get("A")


def test_a_type_that_is_removed_while_a_subtype_is_added_comes_back_everywhere():
    one, other = registries(EventType("Top", {}), EventType("A", {"x": "integer"}, parent="Top"))
    below = other.add(EventType("B", {}, parent="A"))
    gone = one.remove("A")
    assert other.adopt_removal(gone), "it stays, and that is to be told"
    assert one.adopt(below) == (one.get("A"), below)
    assert other.get("A") == one.get("A"), "both have brought it back, and agree"
    assert one.is_subtype("B", "Top")
