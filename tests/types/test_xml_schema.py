"""Event types as XML Schema: what is written, what is read, what is refused."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angelia.errors import EventTypeError, UnknownTypeError, XmlError
from angelia.event import MAX_DEPTH, Datatype
from angelia.types import Attribute, EventType, TypeRegistry
from angelia.types.xml_schema import from_xml_schema, to_xml_schema

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
SCHEMA = """\
<xsd:schema xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:t="http://www.cl.cam.ac.uk/opera/hermes/type" \
targetNamespace="http://www.cl.cam.ac.uk/opera/hermes/type">
  <xsd:include schemaLocation="Event"/>
  <xsd:complexType name="shop.OrderType">
    <xsd:annotation>
      <xsd:documentation>An order.</xsd:documentation>
    </xsd:annotation>
    <xsd:complexContent>
      <xsd:extension base="t:EventType">
        <xsd:sequence>
          <xsd:element name="customer" type="xsd:string">
            <xsd:annotation>
              <xsd:documentation>who ordered</xsd:documentation>
            </xsd:annotation>
          </xsd:element>
          <xsd:element name="total">
            <xsd:complexType>
              <xsd:sequence>
                <xsd:element name="amount" type="xsd:double"/>
                <xsd:element name="currency" type="xsd:string" minOccurs="0"/>
              </xsd:sequence>
            </xsd:complexType>
          </xsd:element>
          <xsd:element name="ship" minOccurs="0">
            <xsd:complexType>
              <xsd:sequence>
                <xsd:element name="city" type="xsd:string" minOccurs="0"/>
              </xsd:sequence>
            </xsd:complexType>
          </xsd:element>
          <xsd:element name="items" type="xsd:string" minOccurs="0" maxOccurs="unbounded"/>
          <xsd:element name="sizes" type="xsd:long" minOccurs="0" maxOccurs="unbounded" nillable="true"/>
          <xsd:element name="paid" type="xsd:boolean"/>
        </xsd:sequence>
      </xsd:extension>
    </xsd:complexContent>
  </xsd:complexType>
  <xsd:element name="shop.Order" type="t:shop.OrderType"/>
</xsd:schema>
"""


def with_elements(elements, head="", name="T"):
    """A schema of a type with these elements."""
    return f"""<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"
      xmlns="http://www.cl.cam.ac.uk/opera/hermes/type"
      targetNamespace="http://www.cl.cam.ac.uk/opera/hermes/type">{head}
      <xs:complexType name="{name}Type"><xs:sequence>{elements}</xs:sequence></xs:complexType>
      <xs:element name="{name}" type="{name}Type"/></xs:schema>"""


def test_a_type_is_written_with_its_own_attributes_as_an_extension_of_its_parent():
    assert to_xml_schema(ORDER) == SCHEMA
    assert from_xml_schema(SCHEMA) == ORDER
    assert from_xml_schema(SCHEMA.encode()) == ORDER


def test_with_a_registry_everything_is_written_out():
    registry = TypeRegistry([EVENT, ORDER])
    schema = to_xml_schema(ORDER, registry)
    assert "extension" not in schema
    assert "include" not in schema
    assert from_xml_schema(schema).attributes == registry.attributes("shop.Order")
    with pytest.raises(UnknownTypeError):
        to_xml_schema(ORDER, TypeRegistry())


# ---------------------------------------------------------------- round trips

parts = st.from_regex(r"[a-zA-Z_é][a-zA-Z0-9_-]{0,4}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"]), max_size=20)
docs = st.one_of(texts, st.sampled_from(["", "two\nlines", " spaces ", "<&>\"'", "tab\tand\rreturn"]))
attributes = st.builds(Attribute, st.sampled_from(Datatype), st.booleans(), st.booleans(), docs)


@st.composite
def event_types(draw):
    names = draw(st.lists(st.lists(parts, min_size=1, max_size=3).map(tuple), unique=True, max_size=6))
    leaves = [name for name in names if not any(o[: len(name)] == name and o != name for o in names)]
    type_name = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,5}(\.[A-Za-z][a-z]{0,3})?", fullmatch=True)
    name, parent = draw(type_name), draw(st.none() | type_name)
    chosen = {".".join(leaf): draw(attributes) for leaf in leaves}
    return EventType(name, chosen, parent=None if parent == name else parent, doc=draw(docs))


@settings(deadline=None)
@given(event_types())
def test_a_type_that_is_written_is_read_back_as_the_same(event_type):
    again = from_xml_schema(to_xml_schema(event_type))
    assert again == event_type


def test_what_xml_cannot_hold_is_refused():
    for name in ("a b", "1st", "a<b", "x:y", "a..b", "", "²"):
        with pytest.raises((XmlError, EventTypeError)):
            to_xml_schema(EventType("T", {name: "string"}))
    with pytest.raises(XmlError, match="cannot be written in XML"):
        to_xml_schema(EventType("T", {"a": Attribute("string", doc="\x00")}))


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("element", "attribute"),
    [
        ('<xs:element name="a" type="xs:string"/>', "string"),
        ('<xs:element name="a" type="xs:integer"/>', "integer"),
        ('<xs:element name="a" type="xs:int"/>', "integer"),
        ('<xs:element name="a" type="xs:float"/>', "float"),
        ('<xs:element name="a" type="xs:double" minOccurs="0" maxOccurs="1"/>', "float?"),
        ('<xs:element name="a" type="xs:boolean" minOccurs="1" nillable="false"/>', "boolean"),
        ('<xs:element name="a" type="xs:dateTime" minOccurs="0" maxOccurs="unbounded"/>', "timestamp[]"),
    ],
)
def test_the_built_in_types_are_our_datatypes(element, attribute):
    assert from_xml_schema(with_elements(element)) == EventType("T", {"a": attribute})


def test_an_element_in_an_optional_element_is_optional():
    inner = '<xs:complexType><xs:sequence><xs:element name="b" type="xs:int"/></xs:sequence></xs:complexType>'
    read = from_xml_schema(with_elements(f'<xs:element name="a" minOccurs="0">{inner}</xs:element>'))
    assert read == EventType("T", {"a.b": "integer?"})


def test_a_type_can_have_no_attributes():
    assert from_xml_schema(with_elements("")) == EventType("T")
    assert from_xml_schema(to_xml_schema(EventType("T", parent="P"))) == EventType("T", parent="P")


def nested(depth):
    element = '<xs:element name="a" type="xs:int"/>'
    for _ in range(depth):
        element = (
            f'<xs:element name="a"><xs:complexType><xs:sequence>{element}</xs:sequence>'
            "</xs:complexType></xs:element>"
        )
    return with_elements(element)


def test_depth_is_limited():
    assert len(from_xml_schema(nested(MAX_DEPTH - 1)).attributes) == 1
    with pytest.raises(EventTypeError, match="deeper than 32"):
        from_xml_schema(nested(MAX_DEPTH))
    with pytest.raises(XmlError, match="more than 128 levels"):
        from_xml_schema(nested(500))


STRING = '<xs:element name="a" type="xs:string"/>'
COMPLEX = f"<xs:complexType><xs:sequence>{STRING}</xs:sequence></xs:complexType>"


@pytest.mark.parametrize(
    ("elements", "complaint"),
    [
        ('<xs:element name="a" type="xs:decimal"/>', "'xs:decimal' is not one of xsd:string"),
        ('<xs:element name="a" type="xs:anyURI"/>', "is not one of"),
        ('<xs:element name="a" type="string"/>', "is not one of"),
        ('<xs:element name="a" type="TType"/>', "is not one of"),
        ('<xs:element name="a"/>', "is not one of"),
        ('<xs:element name="a" type="no:string"/>', "the prefix 'no' is not bound"),
        ('<xs:element name="a" type="xs:int" default="7"/>', "cannot have the attribute 'default'"),
        ('<xs:element ref="a"/>', "cannot have the attribute 'ref'"),
        ('<xs:element name="a" type="xs:int" maxOccurs="7"/>', "an element is there once"),
        ('<xs:element name="a" type="xs:int" maxOccurs="unbounded"/>', "an element is there once"),
        ('<xs:element name="a" type="xs:int" minOccurs="2" maxOccurs="2"/>', "an element is there once"),
        ('<xs:element name="a" type="xs:int" nillable="true"/>', "only a list can be nillable"),
        ('<xs:element name="a" type="xs:int" nillable="maybe"/>', "nillable is true or false"),
        ('<xs:element name="a"><xs:simpleType/></xs:element>', "<simpleType>: this is not supported"),
        ('<xs:element name="a"><xs:complexType/></xs:element>', "must have a sequence of elements inside"),
        (
            f'<xs:element name="a" type="xs:int">{COMPLEX}</xs:element>',
            "neither repeat, be nil nor have a type",
        ),
        ("<xs:choice/>", "<choice>: this is not supported in <sequence>"),
        ("<xs:any/>", "this is not supported"),
        ('<o:element xmlns:o="urn:other" name="a"/>', "this is not supported"),
        (STRING + STRING, "the attribute 'a' is there twice"),
        ("stray text", "cannot have text here"),
        ('<xs:element name="@type" type="xs:string"/>', "starts with '@'"),
        ('<xs:element name="" type="xs:string"/>', "is empty"),
        ('<xs:element type="xs:string"/>', "is empty"),
        (STRING + '<xs:element name="a.b" type="xs:string"/>', "also contain"),
    ],
)
def test_what_an_event_type_cannot_say_is_refused_with_the_place(elements, complaint):
    with pytest.raises((EventTypeError, XmlError), match=complaint) as caught:
        from_xml_schema(with_elements(elements))
    assert "line " in str(caught.value) or type(caught.value) is EventTypeError


HEAD = "http://www.cl.cam.ac.uk/opera/hermes/type"


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (f'targetNamespace="{HEAD}"', "", "the target namespace of an event type is"),
        (f'targetNamespace="{HEAD}"', 'targetNamespace="urn:x"', "the target namespace of an event type is"),
        ("targetNamespace", 'elementFormDefault="qualified" targetNamespace', "must be unqualified"),
        ("targetNamespace", 'blockDefault="x" targetNamespace', "cannot have the attribute 'blockDefault'"),
        ('schemaLocation="Event"', 'schemaLocation="Other"', "include can only name the parent type, Event"),
        ('schemaLocation="Event"', 'schemaLocation="http://169.254.169.254/"', "include can only name"),
        ("<xsd:include ", '<xsd:import namespace="x" ', "<import>: this is not supported"),
        ("<xsd:include ", "<xsd:redefine ", "<redefine>: this is not supported"),
        ('base="t:EventType"', 'base="EventType"', "the base must be an event type's complex type"),
        ('base="t:EventType"', 'base="t:Event"', "the base must be an event type's complex type"),
        ('base="t:EventType"', 'base="xsd:EventType"', "the base must be an event type's complex type"),
        ('base="t:EventType"', "", "the base must be an event type's complex type"),
        ('base="t:EventType"', 'base="t:OtherType"', "include can only name the parent type, Other"),
        ("xsd:extension", "xsd:restriction", "<restriction>: this is not supported"),
        ('name="shop.OrderType"', 'name="Order"', "must be shop.OrderType"),
        ('type="t:shop.OrderType"', 'type="t:EventType"', "must be of the type shop.OrderType"),
        ('type="t:shop.OrderType"', 'type="shop.OrderType"', "must be of the type shop.OrderType"),
        ('name="shop.OrderType"', 'name="shop.OrderType" abstract="true"', "attribute 'abstract'"),
        ('<xsd:element name="shop.Order" type="t:shop.OrderType"/>', "", "there must be one element"),
        ("<xsd:schema ", "<xsd:schemata ", "an XML Schema is due here"),
        ("http://www.w3.org/2001/XMLSchema", "urn:x", "an XML Schema is due here"),
    ],
)
def test_a_hostile_or_unsupported_schema_is_refused(old, new, complaint):
    changed = SCHEMA.replace(old, new)
    if "schemata" in new:
        changed = changed.replace("</xsd:schema>", "</xsd:schemata>")
    for tag in ("extension", "include"):
        if f"<xsd:{tag}" in old:
            changed = changed.replace(f"</xsd:{tag}>", new.split()[0].replace("<", "</") + ">")
    assert changed != SCHEMA
    with pytest.raises((EventTypeError, XmlError), match=complaint):
        from_xml_schema(changed)


def test_type_names_are_checked():
    with pytest.raises(EventTypeError, match="is not a type name"):
        from_xml_schema(with_elements("", name="1st"))
    with pytest.raises(EventTypeError, match="own parent"):
        from_xml_schema(to_xml_schema(EventType("A", parent="B")).replace("B", "A"))


@settings(deadline=None)
@given(st.data())
def test_a_damaged_schema_is_a_type_or_an_error_of_ours(data):
    at = data.draw(st.integers(0, len(SCHEMA)))
    cut = data.draw(st.integers(0, 30))
    put = data.draw(st.sampled_from(["", "<", ">", '"', "&", "</xsd:element>", "xsd:", "\x00", "é", "]]>"]))
    with contextlib.suppress(EventTypeError, XmlError):
        from_xml_schema(SCHEMA[:at] + put + SCHEMA[at + cut :])
