"""Python classes as event types: derived, published, received, and made at run time."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, Optional

import pytest

from angelia.errors import ConformanceError, EventTypeError, UnknownTypeError
from angelia.event import Event
from angelia.types import EventType, TypeRegistry, class_of, event_type, from_event, to_event, type_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@event_type
class Happening:
    """Anything that happened."""

    at: datetime | None = None


@dataclass(frozen=True)
class Fare:
    amount: float
    currency: str = "EUR"
    note: str | None = None


@event_type("flights.Quote", owner="united")
class Quote(Happening):
    limit: ClassVar[int] = 500
    airline: str
    price: float
    stops: Sequence[str] = ()
    seats: Optional[int] = None  # noqa: UP045 - the older spelling is understood too


@event_type("flights.Sale")
class Sale(Quote):
    fare: Fare
    refund: Fare | None = None
    days: list[int] | None = None
    open: bool = True
    sold_by: str | None = field(default=None, metadata={"name": "sold-by", "doc": "an agent"})


QUOTE = Quote(airline="UA", price=420, stops=["DEN"])
SALE = Sale(airline="UA", price=1.5, at=NOW, fare=Fare(3.0, note="x"), days=[1, 2], sold_by="ann")


# ---------------------------------------------------------------- class -> type


def test_annotations_become_attributes_and_inheritance_the_parent():
    assert type_of(Happening) == EventType("Happening", {"at": "timestamp?"}, doc="Anything that happened.")
    quote = {"airline": "string", "price": "float", "stops": "string[]", "seats": "integer?"}
    assert type_of(Quote) == EventType("flights.Quote", quote, parent="Happening", owner="united")
    sale = type_of(Sale)
    assert sale.parent == "flights.Quote"
    assert {name: str(attribute) for name, attribute in sale.attributes.items()} == {
        "fare.amount": "float",
        "fare.currency": "string",
        "fare.note": "string?",
        "refund.amount": "float?",
        "refund.currency": "string?",
        "refund.note": "string?",
        "days": "integer[]?",
        "open": "boolean",
        "sold-by": "string?",
    }
    assert sale.attributes["sold-by"].doc == "an agent"


def test_instances_are_frozen_hashable_and_keep_lists_as_tuples():
    assert QUOTE.stops == ("DEN",)
    assert hash(QUOTE) == hash(Quote(airline="UA", price=420, stops=("DEN",)))
    assert SALE.days == (1, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        QUOTE.price = 3
    with pytest.raises(TypeError):
        Quote("UA", 420)


def test_a_class_keeps_its_own_post_init():
    @event_type
    class Positive:
        n: int
        tags: list[str] = field(default_factory=list)

        def __post_init__(self) -> None:
            assert isinstance(self.tags, tuple)
            if self.n < 0:
                raise ValueError("negative")

    @event_type
    class Small(Positive):
        pass

    assert Small(n=1, tags=["a"]).tags == ("a",)
    with pytest.raises(ValueError, match="negative"):
        Small(n=-1)


@pytest.mark.parametrize(
    "annotation",
    [dict[str, int], int | str, bytes, object, list[Fare], list[int | None], tuple[int, str], list],
)
def test_an_annotation_that_is_no_attribute_is_refused_with_its_field(annotation):
    with pytest.raises(EventTypeError, match=r"Bad\.x: an attribute cannot be .*use str, int, float"):
        event_type(type("Bad", (), {"__annotations__": {"x": annotation}}))


def test_a_nested_dataclass_must_be_frozen():
    @dataclass
    class Loose:
        a: int

    with pytest.raises(EventTypeError, match=r"Bad\.x: an attribute cannot be"):
        event_type(type("Bad", (), {"__annotations__": {"x": Loose}}))


@dataclass(frozen=True)
class Link:
    next: "Link | None" = None


def test_classes_that_nest_without_end_are_refused():
    with pytest.raises(EventTypeError, match="deeper than 32"):

        @event_type
        class Chain:
            first: Link


def test_an_annotation_that_cannot_be_resolved_is_refused():
    with pytest.raises(EventTypeError, match="cannot resolve an annotation: name 'Missing'"):
        event_type(type("Bad", (), {"__annotations__": {"x": "Missing"}}))


def test_a_field_that_is_computed_is_refused():
    with pytest.raises(EventTypeError, match="init=False"):

        @event_type
        class Bad:
            x: int = field(init=False, default=1)


def test_a_class_may_narrow_but_not_widen_what_it_inherits():
    @event_type
    class Exact(Quote):
        seats: int

    assert str(type_of(Exact).attributes["seats"]) == "integer"
    with pytest.raises(EventTypeError, match="redefines the attribute 'airline'"):

        @event_type
        class Wide(Quote):
            airline: str | None = None


def test_two_fields_for_one_attribute_and_none_for_an_inherited_one_are_refused():
    with pytest.raises(EventTypeError, match="2 fields for the attribute 'price'"):

        @event_type
        class Twice(Quote):
            cost: float = field(metadata={"name": "price"})

    with pytest.raises(EventTypeError, match="hides the inherited attribute 'price'"):

        @event_type
        class Hidden(Quote):
            price: float = field(metadata={"name": "cost"})


def test_a_class_has_one_parent_at_most():
    with pytest.raises(EventTypeError, match="2 parents"):

        @event_type
        class Both(Quote, event_type(type("Other", (), {}))):
            pass


def test_a_subclass_without_the_decorator_is_no_event_type():
    class Forgotten(Quote):
        pass

    with pytest.raises(EventTypeError, match="Forgotten is not an event type; decorate it"):
        type_of(Forgotten)
    with pytest.raises(EventTypeError, match="Forgotten is not an event type"):
        to_event(Forgotten(airline="UA", price=1))


def test_fields_of_a_plain_base_belong_to_the_class():
    @event_type
    class Both(Fare):
        flag: bool

    assert list(type_of(Both).attributes) == ["amount", "currency", "note", "flag"]


def test_adding_a_class_adds_its_ancestors_first():
    registry = TypeRegistry()
    assert registry.add_class(Sale) == type_of(Sale)
    assert list(registry) == ["Happening", "flights.Quote", "flights.Sale"]
    assert registry.add_class(Quote).owner == "united"
    with pytest.raises(EventTypeError, match="not an event type"):
        registry.add_class(Fare)


# ---------------------------------------------------------------- instance <-> event


def test_an_instance_publishes_as_an_event_that_conforms():
    registry = TypeRegistry()
    registry.add_class(Sale)
    event = to_event(SALE, source="feeds/united", subject="UA1", id="7", time=NOW)
    assert event == Event(
        {
            "airline": "UA",
            "price": 1.5,
            "at": NOW,
            "stops": [],
            "fare": {"amount": 3.0, "currency": "EUR", "note": "x"},
            "days": [1, 2],
            "open": True,
            "sold-by": "ann",
        },
        type="flights.Sale",
        source="feeds/united",
        subject="UA1",
        id="7",
        time=NOW,
    )
    registry.check(event)


def test_an_instance_with_wrong_values_does_not_become_an_event():
    with pytest.raises(ConformanceError) as caught:
        to_event(Sale(airline=7, price="x", fare=None))
    assert caught.value.problems == [
        "attribute 'airline': expected string, got integer",
        "attribute 'price': expected float, got string",
        "missing attribute 'fare.amount', expected float",
        "missing attribute 'fare.currency', expected string",
    ]


@pytest.mark.parametrize(
    "instance", [QUOTE, SALE, Happening(), dataclasses.replace(SALE, refund=Fare(1, "USD"))]
)
def test_an_event_arrives_as_the_instance_that_was_published(instance):
    arrived = from_event(type(instance), to_event(instance))
    assert arrived == instance
    assert type(arrived) is type(instance)


def test_a_subscription_to_a_supertype_yields_instances_of_the_subtype():
    assert from_event(Happening, to_event(SALE)) == SALE
    assert from_event(Quote, to_event(SALE)) == SALE


@pytest.mark.parametrize("event", [to_event(Happening()), Event({"airline": "UA"}), Event({}, type="Other")])
def test_an_event_of_another_type_does_not_arrive(event):
    with pytest.raises(ConformanceError, match=r"expected flights\.Quote or a subtype"):
        from_event(Quote, event)


def test_a_subtype_without_a_class_arrives_as_its_nearest_ancestor_that_has_one():
    registry = TypeRegistry()
    registry.add_class(Quote)
    registry.add(EventType("flights.Late", {"delay": "integer"}, parent="flights.Quote"))
    event = Event({"airline": "UA", "price": 3, "stops": [], "delay": 5}, type="flights.Late")
    assert from_event(Happening, event, registry) == Quote(airline="UA", price=3)
    with pytest.raises(ConformanceError):
        from_event(Happening, event)
    with pytest.raises(ConformanceError):
        from_event(Sale, event, registry)


def test_attributes_that_a_type_gained_since_are_left_out():
    event = Event({"airline": "UA", "price": 3, "stops": [], "gate": "B"}, type="flights.Quote")
    assert from_event(Quote, event) == Quote(airline="UA", price=3)


def test_all_that_is_wrong_with_an_arriving_event_is_reported():
    event = Event({"airline": 7, "stops": "DEN", "refund": {"amount": 1}}, type="flights.Sale")
    with pytest.raises(ConformanceError) as caught:
        from_event(Happening, event)
    assert caught.value.type_name == "flights.Sale"
    assert caught.value.problems == [
        "attribute 'airline': expected string, got integer",
        "missing attribute 'price', expected float",
        "attribute 'stops': expected a list of string, got string",
        "missing attribute 'fare.amount', expected float",
        "missing attribute 'fare.currency', expected string",
        "missing attribute 'refund.currency', expected string",
        "missing attribute 'open', expected boolean",
    ]


def test_an_absent_optional_attribute_arrives_as_none_whatever_its_default():
    @event_type
    class Greeting:
        text: str | None = "hello"

    assert from_event(Greeting, to_event(Greeting(text=None))) == Greeting(text=None)


# ---------------------------------------------------------------- type -> class


@pytest.fixture
def registry():
    event = EventType("Event", {"at": "timestamp?"}, doc="Anything.")
    trip = EventType(
        "trips.Trip",
        {
            "leg.from": "string",
            "2nd": "integer?",
            "class": "string?",
            "__init__": "float?",
            "stops": "string[]",
        },
        parent="Event",
    )
    return TypeRegistry([event, trip])


def test_a_class_is_made_with_its_ancestors(registry):
    trip = class_of(registry.get("trips.Trip"), registry)
    assert trip.__name__ == "Trip"
    assert trip.__base__ is class_of(registry.get("Event"), registry)
    assert trip.__base__.__doc__ == "Anything."
    assert type_of(trip) == registry.get("trips.Trip")


def test_names_that_are_no_identifiers_are_mangled_and_published_as_they_were(registry):
    trip = class_of(registry.get("trips.Trip"), registry)
    instance = trip(leg_from="DEN", a_2nd=2, class_="first", a___init__=1.5, stops=["x"])
    event = to_event(instance)
    assert dict(event.attributes) == {
        "leg.from": "DEN",
        "2nd": 2,
        "class": "first",
        "__init__": 1.5,
        "stops": ("x",),
    }
    registry.check(event)
    base = class_of(registry.get("Event"), registry)
    assert from_event(base, event) == instance


def test_names_that_would_be_the_same_field_are_refused(registry):
    registry.add(EventType("Clash", {"a.b": "string", "a-b": "string"}))
    with pytest.raises(
        EventTypeError, match=r"Clash: the attributes 'a\.b' and 'a-b' would both be the field 'a_b'"
    ):
        class_of(registry.get("Clash"), registry)
    registry.add(EventType("Below", {"leg_from": "string"}, parent="trips.Trip"))
    with pytest.raises(EventTypeError, match="would both be the field 'leg_from'"):
        class_of(registry.get("Below"), registry)


def test_the_same_definitions_give_the_same_class_and_changed_ones_another(registry):
    trip = registry.get("trips.Trip")
    before = class_of(trip, registry)
    assert class_of(trip, registry) is before
    registry.modify(EventType("Event", {"at": "timestamp?", "note": "string?"}))
    after = class_of(trip, registry)
    assert after is not before
    assert after(leg_from="DEN", stops=(), note="x").note == "x"


def test_a_class_needs_the_ancestors_of_its_type(registry):
    with pytest.raises(UnknownTypeError):
        class_of(EventType("Orphan", parent="Nobody"), registry)


def test_a_made_class_can_be_derived_from(registry):
    base = class_of(registry.get("Event"), registry)

    @event_type
    class Special(base):
        note: str

    assert type_of(Special).parent == "Event"
    assert from_event(base, to_event(Special(note="x", at=NOW))) == Special(note="x", at=NOW)
