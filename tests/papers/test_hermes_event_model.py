"""The event model of Hermes (P. Pietzuch's thesis, 2004): sections 3.2.4, 3.3.1, 4.2 and 4.4.2.

The pictures are lost: of Figure 3.1 the prose keeps the root, `BaseEvent` with `timestamp` and `pubID`.
The types below it are those that chapters 2 and 7 tell of the Active Office (locations of people that wear
Active Bats; doors, lighting and environmental conditions).
"""

from datetime import UTC, datetime

import msgspec
import pytest

from angelia.errors import ConformanceError, EventTypeError, UnknownTypeError
from angelia.event import Event
from angelia.types import (
    EventType,
    TypeRegistry,
    class_of,
    event_type,
    from_event,
    from_json_schema,
    to_event,
    to_json_schema,
    type_of,
)

NOON = datetime(2003, 6, 20, 12, tzinfo=UTC)

ACTIVE_OFFICE = [
    EventType("BaseEvent", {"timestamp": "timestamp", "pubID": "string"}),
    EventType("LocationEvent", {"person": "string", "room": "string"}, parent="BaseEvent"),
    EventType("ActiveBatEvent", {"x": "float", "y": "float", "z": "float"}, parent="LocationEvent"),
    EventType("SensorEvent", {"sensor": "string"}, parent="BaseEvent"),
    EventType("DoorEvent", {"open": "boolean"}, parent="SensorEvent"),
    EventType("LightEvent", {"level": "integer"}, parent="SensorEvent"),
]


@pytest.fixture
def office():
    return TypeRegistry(ACTIVE_OFFICE)


def door(**attributes):
    return Event(
        {"timestamp": NOON, "pubID": "p1", "sensor": "d1", "open": True} | attributes, type="DoorEvent"
    )


# ---------------------------------------------------------------- 3.3.1, event publications


def test_an_event_type_is_a_name_a_parent_and_typed_attributes():
    """Definition 3.2: an event type is a tuple of a name, a parent type and a set of attribute types."""
    location = ACTIVE_OFFICE[1]
    assert location.name == "LocationEvent"
    assert location.parent == "BaseEvent"
    assert {name: str(each) for name, each in location.attributes.items()} == {
        "person": "string",
        "room": "string",
    }


def test_a_type_inherits_all_attributes_and_is_a_subtype_of_all_its_ancestors(office):
    """3.3.1: "inheriting all its event attributes and entering into a subtyping relation with that type and
    all its ancestor types"."""
    assert set(office.attributes("DoorEvent")) == {"timestamp", "pubID", "sensor", "open"}
    assert all(office.is_subtype("DoorEvent", above) for above in ("DoorEvent", "SensorEvent", "BaseEvent"))
    assert not office.is_subtype("SensorEvent", "DoorEvent")


def test_a_publication_conforms_if_each_attribute_is_declared_with_a_supertype_of_its_datatype(office):
    """Definition 3.2: for each (n, v) in e, the type has an attribute n with a datatype that τ(v) ⪯."""
    office.check(door())
    bat = {"timestamp": NOON, "pubID": "p1", "person": "ann", "room": "FE02", "x": 1, "y": 2.5, "z": 0}
    office.check(Event(bat, type="ActiveBatEvent"))
    for wrong, complaint in (
        ({"opened": True}, "unknown attribute 'opened'; did you mean 'open'"),
        ({"open": "yes"}, "'open': expected boolean, got string"),
        ({"timestamp": 1}, "'timestamp': expected timestamp, got integer"),
    ):
        with pytest.raises(ConformanceError, match=complaint):
            office.check(door(**wrong))


def test_all_types_of_the_active_office_derive_from_the_base_event(office):
    """Figure 3.1: "all event types are derived from a common BaseEvent ancestor"."""
    assert office.roots() == ("BaseEvent",)
    assert office.descendants("BaseEvent") == set(office) - {"BaseEvent"}
    assert all({"timestamp", "pubID"} <= office.attributes(name).keys() for name in office)


def test_a_single_ancestor_is_not_required(office):
    """3.3.1: "sometimes a single ancestor event type may be too restrictive as it to some degree implies
    central administration of the event space"."""
    office.add(EventType("NewsEvent", {"headline": "string"}))
    assert office.roots() == ("BaseEvent", "NewsEvent")
    assert not office.is_subtype("NewsEvent", "BaseEvent")


def test_an_inherited_attribute_may_be_redefined_with_a_narrower_datatype():
    """Figure 2.5 redefines `id` as a `short` in `LocationEvent`, below the `id` of `BaseEvent`."""
    registry = TypeRegistry([EventType("BaseEvent", {"id": "float?"})])
    registry.add(
        EventType(
            "LocationEvent",
            {"id": "integer", "location": "string", "lastSighting": "integer"},
            parent="BaseEvent",
        )
    )
    assert str(registry.attributes("LocationEvent")["id"]) == "integer"
    with pytest.raises(EventTypeError, match="only a narrower one"):
        registry.add(EventType("Other", {"id": "string"}, parent="BaseEvent"))


# ---------------------------------------------------------------- 3.3.1, event subscriptions


def test_a_supertype_subscription_is_matched_by_events_of_all_descendants(office):
    """Definitions 3.3 and 3.4: "the subtyping relation determines if the event types of the event publication
    and subscription are compatible". (3.4 prints τ_s ⪯ τ_e; the prose means the other way round.)"""
    matched = {name for name in office if office.is_subtype(name, "SensorEvent")}
    assert matched == {"SensorEvent", "DoorEvent", "LightEvent"}


def test_an_attribute_of_the_subscribed_type_has_a_compatible_datatype_in_every_event_it_selects(office):
    """Definition 3.3: a predicate is checked against the subscription's type only; that is enough for all its
    subtypes, because a subtype has every attribute of its ancestors, as it was or narrower."""
    for name in office:
        for above in office.ancestors(name):
            for attribute, wider in office.attributes(above).items():
                assert office.attributes(name)[attribute].narrows(wider)


# ---------------------------------------------------------------- 4.2, type management


def test_who_adds_an_event_type_owns_it_and_only_the_owner_modifies_or_removes_it():
    """4.2.2: "it becomes the event type owner for this type. Only the event type owner is allowed to modify
    or remove the event type from the system"."""
    registry = TypeRegistry()
    assert registry.add(EventType("BaseEvent"), by="publisher1").owner == "publisher1"
    changed = EventType("BaseEvent", {"id": "integer?"})
    with pytest.raises(EventTypeError, match="belongs to 'publisher1'"):
        registry.modify(changed, by="publisher2")
    with pytest.raises(EventTypeError, match="belongs to 'publisher1'"):
        registry.remove("BaseEvent", by="publisher2")
    assert registry.modify(changed, by="publisher1").version == 2
    registry.remove("BaseEvent", by="publisher1")


def test_registering_an_existing_event_type_is_a_name_conflict(office):
    """4.2.1: "the rendezvous node can reject the type message and notify the client of the name conflict"."""
    with pytest.raises(EventTypeError, match="DoorEvent is registered with another definition"):
        office.add(EventType("DoorEvent", {"locked": "boolean"}))


# ---------------------------------------------------------------- 4.4.2, event data

BASE_EVENT = EventType("BaseEvent", {"id": "integer?", "publisher": "string?", "timestamp": "timestamp?"})
LOCATION_EVENT = EventType("LocationEvent", {"position": "string"}, parent="BaseEvent")


@event_type("BaseEvent")
class BaseEvent:
    id: int | None = None
    publisher: str | None = None
    timestamp: datetime | None = None


@event_type("LocationEvent")
class LocationEvent(BaseEvent):
    position: str


def test_base_event_as_a_schema():
    """Figure 4.9: three optional attributes: a long, a string and a dateTime."""
    schema = to_json_schema(BASE_EVENT)
    assert schema["properties"] == {
        "id": {"type": ["integer", "null"]},
        "publisher": {"type": ["string", "null"]},
        "timestamp": {"type": ["string", "null"], "format": "date-time"},
    }
    assert "required" not in schema
    assert from_json_schema(schema) == BASE_EVENT


def test_location_event_extends_base_event_by_reference():
    """Figure 4.10: the type message extends `BaseEvent` by name and declares `position` only."""
    schema = to_json_schema(LOCATION_EVENT)
    assert schema["allOf"] == [{"$ref": "BaseEvent"}]
    assert schema["properties"] == {"position": {"type": "string"}}
    assert from_json_schema(schema) == LOCATION_EVENT


def test_a_type_message_carries_the_definition_to_another_broker():
    """Figure 4.10 and 4.4.2: definitions travel in messages and are stored in the type repository there."""
    message = msgspec.msgpack.encode([BASE_EVENT, LOCATION_EVENT])
    registry = TypeRegistry(msgspec.msgpack.decode(message, type=list[EventType]))
    assert list(registry.attributes("LocationEvent")) == ["id", "publisher", "timestamp", "position"]
    with pytest.raises(UnknownTypeError, match="a parent that is not registered"):
        TypeRegistry([LOCATION_EVENT])


def test_the_publication_of_a_location():
    """Figure 4.13: what is published is validated first. Its `source` is in no schema of the thesis (Figure
    4.9 has `publisher`): a validating broker refuses the publication as printed."""
    registry = TypeRegistry([BASE_EVENT, LOCATION_EVENT])
    printed = {
        "source": "ActiveBat314",
        "id": 1234,
        "timestamp": "2003-06-20T12:00:00.000-00:00",
        "position": "FE02",
    }
    values = registry.from_json(printed, "LocationEvent")
    assert values["timestamp"] == NOON
    with pytest.raises(ConformanceError, match="unknown attribute 'source'"):
        registry.check(Event(values, type="LocationEvent"))
    values["publisher"] = values.pop("source")
    registry.check(Event(values, type="LocationEvent"))


def test_a_class_is_translated_to_an_event_type():
    """Table 4.9 and Figure 4.14, toXMLSchema: a class declaration gives the schema of a new event type."""
    assert type_of(BaseEvent) == BASE_EVENT
    assert type_of(LocationEvent) == LOCATION_EVENT


def test_events_are_bound_to_objects_both_ways():
    """Table 4.9, toXML and fromXML: objects publish as events, and events arrive as objects; with a supertype
    subscription (4.3.4) as objects of the subtype."""
    seen = LocationEvent(position="FE02", id=1234, publisher="ActiveBat314", timestamp=NOON)
    event = to_event(seen)
    assert event["position"] == "FE02"
    assert from_event(LocationEvent, event) == seen
    assert from_event(BaseEvent, event) == seen


def test_a_class_is_made_from_an_event_type_at_run_time():
    """4.4.2: "a fromXMLSchema method cannot be provided in Java because the language does not support the
    construction of new classes at runtime". Python does."""
    registry = TypeRegistry([BASE_EVENT, LOCATION_EVENT])
    location = class_of(from_json_schema(to_json_schema(LOCATION_EVENT)), registry)
    assert type_of(location) == LOCATION_EVENT
    assert type_of(location.__base__) == BASE_EVENT
    seen = location(position="FE02", id=1234)
    assert from_event(location, to_event(seen)) == seen


def test_data_is_type_checked_before_it_is_published():
    """3.2.4: "Event data should also be type-checked by standard language mechanisms, either statically at
    compile-time or dynamically at runtime". (Statically: tests/types/test_type_checkers.py.)"""
    with pytest.raises(ConformanceError, match="'position': expected string, got integer"):
        to_event(LocationEvent(position=2))
