"""Laws of event types, on generated types, events, classes and garbage."""

import json
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from angelia.errors import ConformanceError, EventTypeError
from angelia.event import Datatype, Event, format_timestamp
from angelia.types import (
    Attribute,
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
from angelia.types.binding import _identifier

FEW = settings(max_examples=60, deadline=None)

SCALARS = {
    Datatype.STRING: st.text(max_size=5),
    Datatype.INTEGER: st.integers(-(2**63), 2**63 - 1),
    Datatype.FLOAT: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5),
    Datatype.BOOLEAN: st.booleans(),
    Datatype.TIMESTAMP: st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)).map(
        lambda t: t.replace(tzinfo=UTC)
    ),
}
PYTHON = {str: "string", int: "integer", float: "float", bool: "boolean", datetime: "timestamp"}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    [" x", "a\n  b\n", "\tx"]
)
parts = st.text(st.sampled_from("ab-_é9 "), min_size=1, max_size=2) | st.sampled_from(
    ["class", "self", "__init__"]
)
names = st.lists(parts, min_size=1, max_size=3).map(".".join)
attributes = st.builds(Attribute, st.sampled_from(Datatype), st.booleans(), st.booleans(), texts)


@st.composite
def event_types(draw, name="T", parent=None, inherited=None):
    """A valid type; below `inherited` attributes, it narrows some of them."""
    inherited = dict(inherited or {})
    own = {key: draw(narrower(attribute)) for key, attribute in inherited.items() if draw(st.booleans())}
    for key, attribute in draw(st.dictionaries(names, attributes, max_size=5)).items():
        if not any(clashes(key, other) for other in (*inherited, *own)):
            own[key] = attribute
    return EventType(name, own, parent=parent, doc=draw(texts))


def clashes(name, other):
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")


def narrower(attribute):
    below = (
        [Datatype.INTEGER, Datatype.FLOAT] if attribute.datatype is Datatype.FLOAT else [attribute.datatype]
    )
    return st.builds(
        Attribute,
        st.sampled_from(below),
        st.booleans() if attribute.optional else st.just(False),
        st.just(attribute.repeated),
    )


@st.composite
def families(draw):
    """A registry with a type `T`, its parent `P` and its grandparent `G`."""
    registry = TypeRegistry()
    for name, parent in (("G", None), ("P", "G"), ("T", "P")):
        inherited = registry.attributes(parent) if parent else {}
        registry.add(draw(event_types(name, parent, inherited)))
    return registry


@st.composite
def conforming(draw, registry, name):
    """The attributes of an event that conforms to a type."""
    values = {}
    for key, attribute in registry.attributes(name).items():
        if attribute.optional and draw(st.booleans()):
            continue
        scalar = SCALARS[attribute.datatype]
        values[key] = tuple(draw(st.lists(scalar, max_size=3))) if attribute.repeated else draw(scalar)
    return values


@given(event_types())
def test_a_type_survives_json_schema(original):
    schema = json.loads(json.dumps(to_json_schema(original)))
    Draft202012Validator.check_schema(schema)
    assert from_json_schema(schema) == original


@given(event_types())
def test_a_type_survives_the_wire(original):
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(original), type=EventType) == original


@FEW
@given(families(), st.data())
def test_what_conforms_to_a_subtype_conforms_to_its_supertypes(registry, data):
    values = data.draw(conforming(registry, "T"))
    registry.check(Event(values, type="T"))
    for above in registry.ancestors("T"):
        restricted = {key: value for key, value in values.items() if key in registry.attributes(above)}
        registry.check(Event(restricted, type=above))


@FEW
@given(families(), st.data())
def test_whatever_an_allowed_modification_is_old_events_conform(registry, data):
    values = data.draw(conforming(registry, "T"))
    above = data.draw(st.sampled_from(["G", "P", "T"]))
    old = registry.get(above)
    change = data.draw(
        st.dictionaries(names | st.sampled_from(sorted(old.attributes) or ["a"]), attributes, max_size=2)
    )
    try:
        registry.modify(EventType(above, {**old.attributes, **change}, parent=old.parent))
    except EventTypeError:
        assert registry.get(above) == old
    registry.check(Event(values, type="T"))


@FEW
@given(families(), st.data())
def test_the_document_of_a_conforming_event_is_valid_by_the_schema_and_comes_back(registry, data):
    values = data.draw(conforming(registry, "T"))
    document = {}
    for key, value in values.items():
        *objects, last = key.split(".")
        node = document
        for part in objects:
            node = node.setdefault(part, {})
        node[last] = _json(value)
    document = json.loads(json.dumps(document))
    Draft202012Validator(to_json_schema(registry.get("T"), registry)).validate(document)
    assert Event(registry.from_json(document, "T")) == Event(values)


def _json(value):
    if isinstance(value, tuple):
        return [_json(element) for element in value]
    return format_timestamp(value) if isinstance(value, datetime) else value


@FEW
@given(families(), st.data())
def test_a_type_survives_being_a_class_and_an_event_being_an_instance(registry, data):
    all_names = registry.attributes("T")
    assume(len({_identifier(name) for name in all_names}) == len(all_names))
    made = class_of(registry.get("T"), registry)
    assert type_of(made) == registry.get("T")
    event = Event(data.draw(conforming(registry, "T")), type="T")
    instance = from_event(made, event)
    assert to_event(instance) == event
    assert from_event(made, to_event(instance)) == instance


hints = st.sampled_from(list(PYTHON)).flatmap(
    lambda t: st.sampled_from([t, t | None, list[t], tuple[t, ...] | None])
)


@FEW
@given(st.dictionaries(st.sampled_from("abcdef"), hints), st.dictionaries(st.sampled_from("uvwxyz"), hints))
def test_a_class_survives_being_a_type(base_hints, own_hints):
    base = event_type("Base")(type("Base", (), {"__annotations__": base_hints}))
    own = event_type("Own")(type("Own", (base,), {"__annotations__": own_hints}))
    registry = TypeRegistry()
    registry.add_class(own)
    again = class_of(type_of(own), registry)
    assert type_of(again) == type_of(own)
    assert type_of(again.__base__) == type_of(base)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
keywords = st.sampled_from(
    [
        *to_json_schema(EventType("T", parent="P", doc="x")),
        "$ref",
        "format",
        "items",
        "additionalProperties",
        "a",
    ]
)
type_words = st.sampled_from(
    ["object", "string", "integer", "number", "boolean", "array", "null", "date-time", "T"]
)
near_schemas = st.recursive(
    type_words | st.lists(type_words, max_size=2) | json_values,
    lambda inner: (
        st.dictionaries(keywords, inner, max_size=5)
        | st.fixed_dictionaries(
            {"type": type_words, "properties": st.dictionaries(keywords, inner, max_size=3)}
        )
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(near_schemas, st.none() | st.just("Named"))
def test_any_json_is_a_type_or_a_clear_refusal(schema, name):
    try:
        made = from_json_schema(schema, name)
    except EventTypeError:
        return
    assert from_json_schema(to_json_schema(made)) == made


@FEW
@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4))
def test_any_event_conforms_or_is_told_why(data):
    registry = TypeRegistry([EventType("T", {"a": "string", "b": "float?", "c.d": "timestamp[]"})])
    try:
        event = Event(data, type="T")
    except ValueError:
        return
    with pytest.raises(ConformanceError) as caught:
        registry.check(event)
    assert caught.value.problems
