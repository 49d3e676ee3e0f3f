"""Hermes thesis, 4.4.2: the XML documents of Figures 4.9 to 4.14, as they stand there."""

from datetime import UTC, datetime

import pytest

from angelia import Event, EventType, Filter, TypeRegistry, event_type
from angelia.errors import ConformanceError
from angelia.filter import Advertisement
from angelia.types import from_event, to_event, type_of
from angelia.types.xml_schema import from_xml_schema, to_xml_schema
from angelia.xml import from_xml, read_event, to_xml, write_event

FIGURE_4_9 = """<?xml version="1.0" encoding="UTF-8"?>
<xsd:schema xmlns:xsd="http://www.w3.org/2001/XMLSchema"
  xmlns:t="http://www.cl.cam.ac.uk/opera/hermes/type"
  targetNamespace="http://www.cl.cam.ac.uk/opera/hermes/type">

  <xsd:complexType name="BaseEventType">
    <xsd:sequence>
      <xsd:element name="id" type="xsd:long" minOccurs="0"/>
      <xsd:element name="publisher" type="xsd:string" minOccurs="0"/>
      <xsd:element name="timestamp" type="xsd:dateTime" minOccurs="0"/>
    </xsd:sequence>
  </xsd:complexType>

  <xsd:element name="BaseEvent" type="t:BaseEventType"/>
</xsd:schema>
"""

FIGURE_4_10 = """<?xml version="1.0" encoding="UTF-8"?>
<h:hermes xmlns:h="http://www.cl.cam.ac.uk/opera/hermes">
  <type>
    <addtype typename="LocationEvent" extends="BaseEvent">

      <xsd:schema xmlns:xsd="http://www.w3.org/2001/XMLSchema"
        xmlns:t="http://www.cl.cam.ac.uk/opera/hermes/type"
        targetNamespace="http://www.cl.cam.ac.uk/opera/hermes/type">

        <include schemaLocation="BaseEvent"/>

        <complexType name="LocationEventType">
          <complexContent>
            <extension base="t:BaseEventType">
              <all> <element name="position" type="xsd:string"/> </all>
            </extension>
          </complexContent>
        </complexType>

        <element name="LocationEvent" type="t:LocationEventType"/>
      </xsd:schema>

    </addtype>
  </type>
</h:hermes>
"""

FIGURE_4_11 = """<?xml version="1.0" encoding="UTF-8"?>
<h:hermes xmlns:h="http://www.cl.cam.ac.uk/opera/hermes">
  <advertisement>
    <advertise typename="LocationEvent"/>
  </advertisement>
</h:hermes>
"""

FIGURE_4_12 = """<?xml version="1.0" encoding="UTF-8"?>
<h:hermes xmlns:h="http://www.cl.cam.ac.uk/opera/hermes">
  <subscription>
    <subscribe typename="LocationEvent">
      <typeattr>
        <xpath>child::*[child::id>3141 and child::position="FE02"]</xpath>
      </typeattr>
    </subscribe>
  </subscription>
</h:hermes>
"""

FIGURE_4_13 = """<?xml version="1.0" encoding="UTF-8"?>
<h:hermes xmlns:h="http://www.cl.cam.ac.uk/opera/hermes">
  <publication routing="typeAttr">
    <publish typename="LocationEvent">
      <t:LocationEvent xmlns:t="http://www.cl.cam.ac.uk/opera/hermes/type">
        <source>ActiveBat314</source>
        <id>1234</id>
        <timestamp>2003-06-20T12:00:00.000-00:00</timestamp>
        <position>FE02</position>
      </t:LocationEvent>
    </publish>
  </publication>
</h:hermes>
"""

BASE = EventType("BaseEvent", {"id": "integer?", "publisher": "string?", "timestamp": "timestamp?"})
LOCATION = EventType("LocationEvent", {"position": "string"}, parent="BaseEvent")


@pytest.fixture
def registry():
    return TypeRegistry([BASE, LOCATION])


def test_figure_4_9_is_an_event_type():
    assert from_xml_schema(FIGURE_4_9) == BASE


def test_figure_4_10_is_a_type_message_that_extends_it():
    assert from_xml(FIGURE_4_10, TypeRegistry()) == LOCATION


def test_the_types_of_the_figures_inherit():
    registry = TypeRegistry([from_xml_schema(FIGURE_4_9)])
    registry.add(from_xml(FIGURE_4_10, registry))
    assert registry.is_subtype("LocationEvent", "BaseEvent")
    assert [*registry.attributes("LocationEvent")] == ["id", "publisher", "timestamp", "position"]


def test_figure_4_11_is_an_advertisement(registry):
    assert from_xml(FIGURE_4_11, registry) == Advertisement.parse("LocationEvent:")


def test_figure_4_12_is_a_subscription(registry):
    wanted = from_xml(FIGURE_4_12, registry)
    assert wanted == Filter.parse('LocationEvent: id > 3141 and position = "FE02"')


def test_figure_4_13_is_a_publication(registry):
    """Its `source` is no attribute of Figures 4.9 and 4.10, so it is the event's."""
    assert from_xml(FIGURE_4_13, registry) == Event(
        {"id": 1234, "timestamp": datetime(2003, 6, 20, 12, tzinfo=UTC), "position": "FE02"},
        type="LocationEvent",
        source="ActiveBat314",
    )


def test_the_subscription_of_figure_4_12_wants_greater_ids_than_that_of_figure_4_13(registry):
    wanted, event = from_xml(FIGURE_4_12, registry), from_xml(FIGURE_4_13, registry)
    assert not wanted.matches(event, registry)
    greater = from_xml(FIGURE_4_13.replace("1234", "31415"), registry)
    assert wanted.matches(greater, registry)


def test_publications_and_subscriptions_are_checked_against_the_schema(registry):
    """4.4.2: "only admitted for further routing in HERMES if this succeeds"."""
    with pytest.raises(ConformanceError, match="'id': expected integer, got 'bat'"):
        from_xml(FIGURE_4_13.replace("1234", "bat"), registry)
    with pytest.raises(ConformanceError, match="missing attribute 'position'"):
        from_xml(FIGURE_4_13.replace("<position>FE02</position>", ""), registry)
    with pytest.raises(ConformanceError, match="asks 'id' for a string"):
        from_xml(FIGURE_4_12.replace("3141", '"3141"'), registry)


@pytest.mark.parametrize("figure", [FIGURE_4_10, FIGURE_4_11, FIGURE_4_12, FIGURE_4_13])
def test_each_message_is_read_back_as_the_same(registry, figure):
    content = from_xml(figure, registry)
    assert from_xml(to_xml(content, registry), registry) == content


def test_what_is_written_for_the_base_type_is_figure_4_9_and_the_left_of_figure_4_14():
    def words(text):
        return text.replace("<", " <").replace("/>", " />").split()

    assert words(to_xml_schema(BASE)) == words(FIGURE_4_9)[3:]


def test_a_publication_has_the_attributes_in_the_order_of_the_schema(registry):
    lines = [line.strip() for line in write_event(from_xml(FIGURE_4_13, registry), registry).splitlines()]
    assert lines[1:-1] == [
        "<id>1234</id>",
        "<timestamp>2003-06-20T12:00:00Z</timestamp>",
        "<position>FE02</position>",
    ]


def test_figure_4_14_maps_a_class_to_the_schema_and_table_4_9_has_its_three_calls():
    @event_type("BaseEvent")
    class BaseEvent:
        id: int | None = None
        publisher: str | None = None
        timestamp: datetime | None = None

    registry = TypeRegistry()
    registry.add_class(BaseEvent)
    assert from_xml_schema(to_xml_schema(type_of(BaseEvent))) == from_xml_schema(FIGURE_4_9)  # toXMLSchema
    document = write_event(to_event(BaseEvent(id=7, publisher="bat")), registry)  # toXML
    assert from_event(BaseEvent, read_event(document, registry)) == BaseEvent(
        id=7, publisher="bat"
    )  # fromXML
