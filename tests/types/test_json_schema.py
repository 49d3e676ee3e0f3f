"""Event types as JSON Schema: what is written, what is read, what is refused."""

import copy

import pytest
from jsonschema import Draft202012Validator

from angelia.errors import EventTypeError, UnknownTypeError
from angelia.event import MAX_DEPTH, Event
from angelia.types import Attribute, EventType, TypeRegistry, from_json_schema, to_json_schema

EVENT = EventType("Event", {"at": "timestamp?"}, doc="Anything that happened.")
ORDER = EventType(
    "shop.Order",
    {
        "customer": Attribute("string", doc="who ordered"),
        "total.amount": "float",
        "total.currency": "string?",
        "ship.city": "string?",
        "items": "string[]",
        "sizes": "integer[]?",
        "paid": "boolean",
    },
    parent="Event",
    doc="An order.",
)
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "shop.Order",
    "title": "shop.Order",
    "description": "An order.",
    "allOf": [{"$ref": "Event"}],
    "type": "object",
    "properties": {
        "customer": {"type": "string", "description": "who ordered"},
        "total": {
            "type": "object",
            "properties": {"amount": {"type": "number"}, "currency": {"type": ["string", "null"]}},
            "required": ["amount"],
        },
        "ship": {"type": ["object", "null"], "properties": {"city": {"type": ["string", "null"]}}},
        "items": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": ["array", "null"], "items": {"type": "integer"}},
        "paid": {"type": "boolean"},
    },
    "required": ["customer", "total", "items", "paid"],
}
GOOD = {"customer": "ann", "total": {"amount": 7}, "items": [], "paid": False}


@pytest.fixture
def registry():
    return TypeRegistry([EVENT, ORDER])


def test_a_type_is_written_with_its_own_attributes_and_the_name_of_its_parent():
    assert to_json_schema(ORDER) == SCHEMA
    assert from_json_schema(SCHEMA) == ORDER


def test_what_is_written_is_valid_json_schema(registry):
    for schema in (to_json_schema(ORDER), to_json_schema(ORDER, registry)):
        Draft202012Validator.check_schema(schema)


def test_with_a_registry_everything_is_written_out(registry):
    schema = to_json_schema(ORDER, registry)
    assert "allOf" not in schema
    assert schema["properties"]["at"] == {"type": ["string", "null"], "format": "date-time"}
    assert from_json_schema(schema).attributes == registry.attributes("shop.Order")
    with pytest.raises(UnknownTypeError):
        to_json_schema(ORDER, TypeRegistry())


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"at": "2026-01-01T00:00:00Z"},
        {"at": None, "ship": None},
        {"ship": {"city": None}},
        {"ship": {}},
        {"sizes": [1, 2]},
        {"customer": None},
        {"customer": 7},
        {"total": None},
        {"total": {"amount": "7"}},
        {"total": {"amount": True}},
        {"total": {"amount": 7, "vat": 1}},
        {"items": "one"},
        {"items": ["one", 2]},
        {"paid": 1},
        {"sizes": [1.5]},
        {"colour": "red"},
    ],
)
def test_a_plain_validator_agrees_with_the_registry(registry, change):
    document = GOOD | change
    try:
        registry.check(Event(registry.from_json(document, "shop.Order"), type="shop.Order"))
        conforms = True
    except ValueError:
        conforms = False
    assert Draft202012Validator(to_json_schema(ORDER, registry)).is_valid(document) is conforms


def test_the_name_is_given_or_the_id_or_the_title():
    schema = {"type": "object", "title": "Title", "$id": "Id"}
    assert from_json_schema(schema, name="Given").name == "Given"
    assert from_json_schema(schema).name == "Id"
    assert from_json_schema({"type": "object", "title": "Title"}).name == "Title"
    with pytest.raises(EventTypeError, match="has no name"):
        from_json_schema({"type": "object"})
    with pytest.raises(EventTypeError, match="is not a type name"):
        from_json_schema({"type": "object", "$id": "https://example.org/order.json"})


def test_annotations_are_accepted():
    schema = {
        "type": "object",
        "$comment": "c",
        "properties": {
            "a": {"type": "string", "title": "A", "default": "x", "examples": ["y"], "deprecated": True}
        },
    }
    assert from_json_schema(schema, "T") == EventType("T", {"a": "string?"})


def test_an_attribute_is_optional_if_anything_around_it_is():
    leaf = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    nullable = leaf | {"type": ["null", "object"]}
    schema = {"type": "object", "properties": {"a": leaf, "b": leaf, "c": nullable}, "required": ["a", "c"]}
    assert from_json_schema(schema, "T") == EventType(
        "T", {"a.x": "string", "b.x": "string?", "c.x": "string?"}
    )


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_depth_is_limited():
    assert len(from_json_schema(nested(MAX_DEPTH), "T").attributes) == 1
    for depth in (MAX_DEPTH + 1, 5000):
        with pytest.raises(EventTypeError, match="deeper than 32"):
            from_json_schema(nested(depth), "T")


def test_a_schema_that_contains_itself_is_refused():
    schema = {"type": "object", "properties": {}}
    schema["properties"]["self"] = schema
    with pytest.raises(EventTypeError, match="deeper than 32"):
        from_json_schema(schema, "T")


@pytest.mark.parametrize(
    ("property_schema", "complaint"),
    [
        ({"anyOf": [{"type": "string"}]}, "property 'a': the keyword 'anyOf' is not supported"),
        ({"$ref": "#/properties/a"}, "'\\$ref' is not supported"),
        ({"$ref": "http://169.254.169.254/"}, "'\\$ref' is not supported"),
        ({"type": "string", "pattern": "(a+)+$"}, "'pattern' is not supported"),
        ({"type": "string", "enum": ["x"]}, "'enum' is not supported"),
        ({"type": "integer", "minimum": 1}, "'minimum' is not supported"),
        ({"type": "string", "items": {}}, "'items' is not supported"),
        ({"type": "string", "format": "email"}, "no format but date-time"),
        ({"type": "integer", "format": "date-time"}, "must be of type"),
        ({"type": "string", "format": {}}, "must be of type"),
        ({"type": "string", "description": 7}, "description must be a string"),
        ({"type": ["string", "integer"]}, "must have one type"),
        ({"type": ["string", "integer", "null"]}, "must have one type"),
        ({"type": ["null", "null"]}, "must have one type"),
        ({"type": "null"}, "must be of type"),
        ({"type": {}}, "must have one type"),
        ({}, "must have one type"),
        (True, "must be a JSON object, not bool"),
        (None, "must be a JSON object, not NoneType"),
        ({"type": "array"}, "the items of property 'a' must be a JSON object"),
        (
            {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
            "'items' is not supported",
        ),
        ({"type": "array", "items": {"type": "object"}}, "the items of property 'a' must be of type"),
        (
            {"type": "array", "items": {"type": ["string", "null"]}},
            "the items of property 'a' must be of type",
        ),
        ({"type": "array", "items": [{"type": "string"}]}, "must be a JSON object, not list"),
        ({"type": "object"}, "object without properties"),
        (
            {"type": "object", "properties": {"x": {"type": "string"}}, "additionalProperties": True},
            "must be false",
        ),
        (
            {"type": "object", "properties": {"x": {"type": "string"}}, "patternProperties": {}},
            "patternProperties",
        ),
        ({"type": "object", "properties": [1]}, "properties must be a JSON object"),
        ({"type": "object", "properties": {1: {}}}, "properties must be a JSON object"),
    ],
)
def test_what_an_event_type_cannot_say_is_refused_with_the_place(property_schema, complaint):
    with pytest.raises(EventTypeError, match=complaint):
        from_json_schema({"type": "object", "properties": {"a": property_schema}}, "T")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"allOf": [{"$ref": "Event"}, {"$ref": "Log"}]}, "allOf can only name the parent"),
        ({"allOf": [{"$ref": "Event", "x": 1}]}, "allOf can only name the parent"),
        ({"allOf": {"$ref": "Event"}}, "allOf can only name the parent"),
        ({"allOf": [{"$ref": "#"}]}, "is not a type name"),
        ({"allOf": [{"$ref": "file:///etc/passwd"}]}, "is not a type name"),
        ({"allOf": [{"$ref": "shop.Order"}]}, "own parent"),
        ({"$ref": "Event"}, "'\\$ref' is not supported"),
        ({"$defs": {}}, "'\\$defs' is not supported"),
        ({"type": "string"}, "must have the type 'object'"),
        ({"required": "customer"}, "required must be a list"),
        ({"required": ["customer", 7]}, "required must be a list"),
        ({"required": ["custmer"]}, "required names 'custmer', which is not among its properties"),
        ({"unevaluatedProperties": True}, "must be false"),
        ({"description": {}}, "description must be a string"),
        (
            {"properties": {"total.amount": {"type": "number"}, **SCHEMA["properties"]}},
            "'total.amount' twice",
        ),
        ({"properties": {"@type": {"type": "string"}}, "required": []}, "starts with '@'"),
        (
            {"properties": {"a": {"type": "string"}, "a.b": {"type": "string"}}, "required": []},
            "also contain",
        ),
        ({7: 7}, "'7' is not supported"),
    ],
)
def test_a_hostile_or_unsupported_schema_is_refused(change, complaint):
    with pytest.raises(EventTypeError, match=complaint):
        from_json_schema(copy.deepcopy(SCHEMA) | change)


@pytest.mark.parametrize("schema", [None, True, [], "Event", 7])
def test_what_is_no_schema_is_refused(schema):
    with pytest.raises(EventTypeError, match="must be a JSON object"):
        from_json_schema(schema)
