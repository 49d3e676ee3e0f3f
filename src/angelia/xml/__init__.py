"""XML at the door of Hermes (thesis 4.4.2): types, advertisements, subscriptions and publications.

    from_xml(document, registry)    an `EventType`, `Advertisement`, `Filter` or `Event`
    to_xml(thing, registry)         and back

Filters are in a subset of XPath; `docs/xml.md` is its specification.
"""

from angelia.errors import XmlError
from angelia.xml.message import from_xml, to_xml
from angelia.xml.publication import read_event, write_event
from angelia.xml.xpath import from_xpath, to_xpath

__all__ = ["XmlError", "from_xml", "from_xpath", "read_event", "to_xml", "to_xpath", "write_event"]
