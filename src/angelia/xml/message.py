"""The XML messages of Hermes (thesis, Figures 4.10 to 4.13), each as the object it carries.

| message       | object          |
|---------------|-----------------|
| type          | `EventType`     |
| advertisement | `Advertisement` |
| subscription  | `Filter`        |
| publication   | `Event`         |

The routing algorithm that a publication asks for is checked and otherwise the network's affair.
"""

from __future__ import annotations

from collections.abc import Callable

from angelia.errors import EventTypeError, FilterError, FilterSyntaxError, XmlError
from angelia.event import Event
from angelia.filter import Advertisement, Filter, check_filter
from angelia.filter.normal import expand, union
from angelia.filter.parser import And, Constant, Constraint, Node, Typed, checked_name
from angelia.types import EventType, TypeRegistry
from angelia.types.xml_document import Element, parse_xml, write_attributes, write_text
from angelia.types.xml_schema import read_schema, to_xml_schema
from angelia.xml.publication import event_element, event_lines
from angelia.xml.xpath import constraint_to_xpath, parse_xpath, to_xpath

__all__ = ["HERMES_NAMESPACE", "Content", "from_xml", "to_xml"]

HERMES_NAMESPACE = "http://www.cl.cam.ac.uk/opera/hermes"
_ROUTINGS = ("type", "typeAttr")
_MAX_SUBSCRIBES = 16  # alternatives of one subscription

Content = EventType | Advertisement | Filter | Event


# ---------------------------------------------------------------- in


def from_xml(document: str | bytes, registry: TypeRegistry) -> Content:
    """What a message carries. All but types are checked against those of the registry.

    A type is not added to the registry, and need not have its parent there.
    """
    root = parse_xml(document)
    if root.name != f"{{{HERMES_NAMESPACE}}}hermes":
        raise XmlError(f"a message is an element hermes of the namespace {HERMES_NAMESPACE}", root.line)
    (message,) = _children(root.checked(), *_MESSAGES, least=1)
    return _MESSAGES[message.name](message, registry)


def _children(element: Element, *names: str, least: int = 0, most: int = 1) -> list[Element]:
    """The elements right below, which must be of these names, and so many."""
    for child in element.children:
        if child.name not in names:
            raise XmlError(
                f"<{child.local}> is not expected in <{element.local}>, but {' or '.join(names)}", child.line
            )
    if len(element.children) < least or len(element.children) > most:
        raise XmlError(
            f"<{element.local}> has {len(element.children)} elements; {_amount(least, most)} expected",
            element.line,
        )
    return element.children


def _amount(least: int, most: int) -> str:
    return f"{most} is" if least == most else f"at least {least} and at most {most} are"


def _typename(element: Element) -> str:
    name = element.attributes.get("typename", "")
    try:
        return checked_name(name)
    except FilterSyntaxError:
        raise XmlError(
            f"<{element.local}> must have the attribute typename, with a name", element.line
        ) from None


def _type(message: Element, registry: TypeRegistry) -> EventType:
    (added,) = _children(message.checked(), "addtype", least=1)
    added.checked("typename", "extends")
    if len(added.children) != 1:
        raise XmlError("<addtype> holds one XML Schema", added.line)
    event_type = read_schema(added.children[0])
    declared = _typename(added), added.attributes.get("extends")
    if declared != (event_type.name, event_type.parent):
        raise EventTypeError(
            f"<addtype>: the message is about {declared[0][:64]!r} extending {str(declared[1])[:64]!r}, its "
            f"schema about {event_type.name!r} extending {str(event_type.parent)!r} (line {added.line})"
        )
    return event_type


def _advertisement(message: Element, registry: TypeRegistry) -> Advertisement:
    (advertise,) = _children(message.checked(), "advertise", least=1)
    name, node = _wanted(advertise)
    registry.get(name)
    if node == Constant(True):
        return Advertisement(None, name)
    parts = node.parts if isinstance(node, And) else (node,)
    plain = [part for part in parts if isinstance(part, Constraint)]
    if len(plain) < len(parts):
        raise XmlError(
            "an advertisement is a list of comparisons joined by and, without or and not", advertise.line
        )
    for part in plain:  # one by one: several on one attribute are alternatives
        check_filter(Filter(expand(Typed(name, part))), registry)
    return Advertisement(plain, name)


def _subscription(message: Element, registry: TypeRegistry) -> Filter:
    parts = []
    for subscribe in _children(message.checked(), "subscribe", least=1, most=_MAX_SUBSCRIBES):
        name, node = _wanted(subscribe)
        parts.append(expand(Typed(name, node)))
    wanted = Filter(union(*parts))
    check_filter(wanted, registry)
    return wanted


def _wanted(element: Element) -> tuple[str, Node]:
    """The type and the syntax tree of the XPath, if any, of an advertisement or a subscription."""
    name = _typename(element.checked("typename"))
    for typeattr in _children(element, "typeattr"):
        (xpath,) = _children(typeattr.checked(), "xpath", least=1)
        if xpath.children or xpath.attributes:
            raise XmlError("<xpath> holds a text only", xpath.line)
        return name, parse_xpath(xpath.text)
    return name, Constant(True)


def _publication(message: Element, registry: TypeRegistry) -> Event:
    routing = message.checked("routing").attributes.get("routing", _ROUTINGS[0])
    if routing not in _ROUTINGS:
        raise XmlError(f"routing is one of {', '.join(_ROUTINGS)}, not {routing[:64]!r}", message.line)
    (publish,) = _children(message, "publish", least=1)
    name = _typename(publish.checked("typename"))
    if len(publish.children) != 1:
        raise XmlError("<publish> holds one event", publish.line)
    event = event_element(publish.children[0], registry)
    if event.type != name:
        raise XmlError(f"<publish> is about {name[:64]!r}, its event is a {event.type!r}", publish.line)
    return event


_MESSAGES: dict[str, Callable[[Element, TypeRegistry], Content]] = {
    "type": _type,
    "advertisement": _advertisement,
    "subscription": _subscription,
    "publication": _publication,
}


# ---------------------------------------------------------------- out


def to_xml(thing: Content, registry: TypeRegistry) -> str:
    """The message that carries a type, an advertisement, a filter or an event; `from_xml` reads it back.

    An error says so if it cannot be: `FilterError` where our XPath cannot express a filter, `XmlError`
    where XML cannot hold a name or a character.
    """
    match thing:
        case EventType():
            lines = _write_type(thing)
        case Advertisement():
            lines = _write_advertisement(thing)
        case Filter():
            lines = _write_subscription(thing)
        case Event():
            lines = _write_publication(thing, registry)
    head = ['<?xml version="1.0" encoding="UTF-8"?>', f'<h:hermes xmlns:h="{HERMES_NAMESPACE}">']
    return "\n".join([*head, *lines, "</h:hermes>"]) + "\n"


def _write_type(event_type: EventType) -> list[str]:
    extends = [] if event_type.parent is None else [("extends", event_type.parent)]
    head = write_attributes([("typename", event_type.name), *extends])
    schema = to_xml_schema(event_type).rstrip("\n").split("\n")
    return ["<type>", f"<addtype{head}>", *schema, "</addtype>", "</type>"]


def _write_advertisement(advertisement: Advertisement) -> list[str]:
    if advertisement.type is None:
        raise FilterError("an advertisement in Hermes names an event type")
    xpath = None
    if advertisement.allowed is not None:
        parts = [
            constraint_to_xpath(name, domain)
            for name, domains in advertisement.allowed.items()
            for domain in domains
        ]
        if not parts:
            raise FilterError("XPath cannot say that no attribute at all is allowed")
        xpath = f"child::*[{' and '.join(parts)}]"
    return ["<advertisement>", *_part("advertise", advertisement.type, xpath), "</advertisement>"]


def _write_subscription(wanted: Filter) -> list[str]:
    by_type: dict[str, Filter] = {}
    for conjunction in wanted.conjunctions:
        if len(conjunction.types) != 1 or conjunction.not_types:
            raise FilterError(f"a subscription in Hermes names one event type; this one does not: {wanted}")
        (name,) = conjunction.types
        by_type[name] = by_type.get(name, Filter(())) | Filter((conjunction,))
    if not by_type:
        raise FilterError("a filter that nothing matches cannot be a subscription in Hermes")
    lines: list[str] = []
    for name, part in by_type.items():
        xpath = to_xpath(part)
        lines += _part("subscribe", name, None if xpath == "child::*" else xpath)
    return ["<subscription>", *lines, "</subscription>"]


def _part(tag: str, typename: str, xpath: str | None) -> list[str]:
    head = f"<{tag}{write_attributes([('typename', typename)])}"
    if xpath is None:
        return [f"{head}/>"]
    return [f"{head}>", "<typeattr>", f"<xpath>{write_text(xpath)}</xpath>", "</typeattr>", f"</{tag}>"]


def _write_publication(event: Event, registry: TypeRegistry) -> list[str]:
    lines = event_lines(event, registry)
    head = write_attributes([("typename", event.type or "")])
    return ['<publication routing="typeAttr">', f"<publish{head}>", *lines, "</publish>", "</publication>"]
