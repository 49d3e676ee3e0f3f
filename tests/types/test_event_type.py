"""What an event type may say, and what it refuses to."""

import msgspec
import pytest

from angelia.errors import EventTypeError
from angelia.event import MAX_ATTRIBUTES, MAX_DEPTH, Datatype
from angelia.types import Attribute, EventType


def test_short_texts_and_attribute_objects_mean_the_same():
    short = EventType("Q", {"a": "string", "b": "float?", "c": "integer[]", "d": "timestamp[]?"})
    assert short.attributes == {
        "a": Attribute(Datatype.STRING),
        "b": Attribute(Datatype.FLOAT, optional=True),
        "c": Attribute(Datatype.INTEGER, repeated=True),
        "d": Attribute(Datatype.TIMESTAMP, optional=True, repeated=True),
    }
    assert EventType("Q", short.attributes) == short
    assert EventType("Q", {name: str(attribute) for name, attribute in short.attributes.items()}) == short


@pytest.mark.parametrize("text", ["", "text", "String", "string?[]", "string[]??", "string ", 7, None])
def test_a_short_text_that_is_no_attribute_is_refused_with_its_attribute(text):
    with pytest.raises(EventTypeError, match="attribute 'a'"):
        EventType("Q", {"a": text})


def test_an_unknown_datatype_is_answered_with_the_known_ones():
    with pytest.raises(EventTypeError, match="'text' is not a datatype; they are string, integer, float"):
        EventType("Q", {"a": "text"})
    with pytest.raises(EventTypeError, match="not a datatype"):
        Attribute("text")
    assert Attribute("string") == Attribute(Datatype.STRING)


@pytest.mark.parametrize("name", ["Event", "flights.Quote", "_a.b-c.D9", "a" * 255])
def test_type_names_are_dotted_identifiers(name):
    assert EventType(name).name == name


@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a..b", "9a", "a.9", "-a", "a b", "é", "a/b", "a\n", "a" * 256, None, 7]
)
def test_other_type_names_are_refused_as_name_and_as_parent(name):
    with pytest.raises(EventTypeError, match="is not a type name"):
        EventType(name)
    if name is not None:
        with pytest.raises(EventTypeError, match="is not a type name"):
            EventType("Child", parent=name)


def test_a_type_is_not_its_own_parent():
    with pytest.raises(EventTypeError, match="own parent"):
        EventType("A", parent="A")


@pytest.mark.parametrize("name", ["", "@type", "a\n", "a" * 256, 7])
def test_attribute_names_are_those_events_can_have(name):
    with pytest.raises(EventTypeError, match=r"^Q: "):
        EventType("Q", {name: "string"})


def test_an_attribute_with_a_value_cannot_also_contain_attributes():
    EventType("Q", {"a.b": "string", "a.c": "string", "a-b": "string", "ab": "string"})
    with pytest.raises(EventTypeError, match=r"'a' has a value and cannot also contain 'a\.b\.c'"):
        EventType("Q", {"a.b.c": "string", "a-x": "string", "a": "string"})


def test_the_number_and_the_depth_of_attributes_are_limited():
    EventType("Q", {f"a{i}": "string" for i in range(MAX_ATTRIBUTES)})
    EventType("Q", {".".join("a" * MAX_DEPTH): "string"})
    with pytest.raises(EventTypeError, match="257 attributes; at most 256"):
        EventType("Q", {f"a{i}": "string" for i in range(MAX_ATTRIBUTES + 1)})
    with pytest.raises(EventTypeError, match="deeper than 32"):
        EventType("Q", {".".join("a" * (MAX_DEPTH + 1)): "string"})


def test_what_could_not_be_sent_is_refused():
    with pytest.raises(EventTypeError, match="doc: a lone surrogate"):
        EventType("Q", doc="\ud800")
    with pytest.raises(EventTypeError, match="doc: a lone surrogate"):
        Attribute(Datatype.STRING, doc="\ud800")
    with pytest.raises(EventTypeError, match="owner"):
        EventType("Q", owner="")
    with pytest.raises(EventTypeError, match="versions count from 1"):
        EventType("Q", version=0)
    with pytest.raises(EventTypeError, match="mapping"):
        EventType("Q", ["price"])


def test_a_type_does_not_share_the_mapping_it_was_made_with():
    attributes = {"a": "string"}
    event_type = EventType("Q", attributes)
    attributes["b"] = "string"
    assert list(event_type.attributes) == ["a"]


def test_types_travel_in_messagepack_and_json():
    sent = EventType("Q", {"a": "string?", "b": "float[]"}, "P", "alice", 3, "a quote")
    for codec in (msgspec.msgpack, msgspec.json):
        assert codec.decode(codec.encode(sent), type=EventType) == sent
    with pytest.raises(msgspec.ValidationError, match="not a type name"):
        msgspec.json.decode(b'{"name": "9"}', type=EventType)


def test_equal_types_have_equal_hashes():
    first, second = (
        EventType("Q", {"a": "string", "b": "float"}),
        EventType("Q", {"b": "float", "a": "string"}),
    )
    assert first == second
    assert hash(first) == hash(second)
    assert first != EventType("Q", {"a": "string"})


@pytest.mark.parametrize(
    ("narrow", "wide", "expected"),
    [
        ("integer", "float", True),
        ("float", "integer", False),
        ("string", "string?", True),
        ("string?", "string", False),
        ("integer", "float?", True),
        ("integer[]", "float[]", True),
        ("string[]", "string", False),
        ("string", "string[]", False),
        ("boolean", "integer", False),
        ("timestamp", "string", False),
    ],
)
def test_narrower_is_integer_below_float_and_required_below_optional(narrow, wide, expected):
    assert Attribute.parse(narrow).narrows(Attribute.parse(wide)) is expected
