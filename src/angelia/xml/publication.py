"""Publications as XML documents (thesis, Figure 4.13): each attribute an element, typed by the schema.

The context of an event (`source`, `subject`, `id`, `time`) is written as XML attributes of the event's
element, which is where XPath's `@source` looks. Figure 4.13 has a `<source>` that its type does not
declare: such an element, named like a part of the context, is read as that part.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from angelia.errors import ConformanceError, EventError, XmlError
from angelia.event import (
    CONTEXT,
    MAX_NAME_LENGTH,
    Datatype,
    Event,
    Scalar,
    Value,
    format_timestamp,
    parse_timestamp,
)
from angelia.types import Attribute, TypeRegistry
from angelia.types.conformance import did_you_mean
from angelia.types.schema import attribute_tree
from angelia.types.xml_document import (
    XSI,
    Element,
    check_xml_name,
    parse_xml,
    write_attributes,
    write_text,
)
from angelia.types.xml_schema import TYPE_NAMESPACE

__all__ = ["event_element", "event_lines", "read_event", "write_event"]

_NIL = f"{XSI}nil"
_SHOWN_CONTEXT = tuple(name for name in CONTEXT if name != "type")


def write_event(event: Event, registry: TypeRegistry) -> str:
    """An event as a document of its type, to which it must conform."""
    return "\n".join(event_lines(event, registry)) + "\n"


def read_event(document: str | bytes, registry: TypeRegistry) -> Event:
    """The event of a document, its values typed by the event type; a `ConformanceError` if they are not."""
    return event_element(parse_xml(document), registry)


# ---------------------------------------------------------------- out


def event_lines(event: Event, registry: TypeRegistry) -> list[str]:
    """The document of an event, line by line."""
    if event.type is None:
        raise XmlError("an event without a type cannot be written in XML: its element is named by it")
    registry.check(event)
    tree = attribute_tree(registry.attributes(event.type))
    context = [(name, _text(value)) for name in _SHOWN_CONTEXT if (value := getattr(event, name)) is not None]
    head = write_attributes([("xmlns:t", TYPE_NAMESPACE), ("xmlns:xsi", XSI.strip("{}")), *context])
    tag = f"t:{event.type}"
    return [f"<{tag}{head}>", *_lines(tree, "", event.attributes, "  "), f"</{tag}>"]


def _lines(tree: dict[str, Any], prefix: str, values: Mapping[str, Value], indent: str) -> Iterator[str]:
    for name, node in tree.items():
        check_xml_name(name)
        if isinstance(node, Attribute):
            for text in _written_values(node, values.get(prefix + name)):
                yield f"{indent}<{name}{text}</{name}>"
        else:
            inside = list(_lines(node, f"{prefix}{name}.", values, indent + "  "))
            if inside:
                yield from (f"{indent}<{name}>", *inside, f"{indent}</{name}>")


def _written_values(attribute: Attribute, value: Value | None) -> list[str]:
    """What follows the names of the elements of an attribute: none, one, or one a value of a list."""
    if value is None:
        return []
    if value == ():
        return [' xsi:nil="true">'] if attribute.optional else []
    return [f">{write_text(_text(each))}" for each in (value if isinstance(value, tuple) else (value,))]


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    if isinstance(value, datetime):
        return format_timestamp(value)
    return str(value)


# ---------------------------------------------------------------- in


def event_element(element: Element, registry: TypeRegistry) -> Event:
    """The event of an element, perhaps a part of a larger document."""
    namespace, _, name = element.name.rpartition("}")
    if namespace != f"{{{TYPE_NAMESPACE}":
        raise XmlError(f"an event's element is in the namespace {TYPE_NAMESPACE}", element.line)
    if len(name) > MAX_NAME_LENGTH:
        raise XmlError(f"a type's name has at most {MAX_NAME_LENGTH} characters", element.line)
    reader = _Reader(registry.attributes(name))
    reader.read(element.checked(*_SHOWN_CONTEXT), "")
    context: dict[str, Any] = {**reader.context, **element.attributes}
    twice = reader.context.keys() & element.attributes.keys()
    reader.problems += [f"{part} is given twice" for part in sorted(twice)]
    if reader.problems:
        raise ConformanceError(name, reader.problems[:_MAX_PROBLEMS])
    if "time" in context:
        context["time"] = parse_timestamp(context["time"].strip())
    event = Event(reader.values(), type=name, **context)
    registry.check(event)
    return event


_MAX_PROBLEMS = 100


class _Reader:
    """Gathers the values of a type's attributes, and what is wrong with them."""

    def __init__(self, attributes: Mapping[str, Attribute]) -> None:
        self.context: dict[str, str] = {}
        self.problems: list[str] = []
        self._attributes = attributes
        self._objects = {
            name[:end] for name in attributes for end, character in enumerate(name) if character == "."
        }
        self._seen: set[str] = set()  # of the objects
        self._found: dict[str, list[Scalar]] = {}

    def values(self) -> dict[str, Value]:
        """The values read; a list that must be there is empty if no element was."""
        values: dict[str, Value] = {}
        for name, attribute in self._attributes.items():
            found = self._found.get(name)
            if attribute.repeated and (found is not None or not attribute.optional):
                values[name] = tuple(found or ())
            elif found is not None:
                values[name] = found[0]
        return values

    def read(self, element: Element, prefix: str) -> None:
        for child in element.children:
            name = prefix + child.name
            if name in self._attributes:
                self._read_leaf(child, name, self._attributes[name])
            elif name in self._objects and name not in self._seen:
                self._seen.add(name)
                self.read(child.checked(), f"{name}.")
            elif name in _SHOWN_CONTEXT and not child.children and name not in self.context:
                self.context[name] = child.text
            elif name in self._seen:
                self.problems.append(f"{name!r} is given twice (line {child.line})")
            else:
                hint = did_you_mean(name, self._attributes) if len(self.problems) < 3 else ""
                self.problems.append(f"unknown attribute {name[:64]!r}{hint} (line {child.line})")

    def _read_leaf(self, element: Element, name: str, attribute: Attribute) -> None:
        known = self._found.get(name)
        if element.children or element.attributes.keys() - {_NIL}:
            self.problems.append(f"attribute {name!r} can have a value only (line {element.line})")
        elif known is not None and not attribute.repeated:
            self.problems.append(f"attribute {name!r} is given twice (line {element.line})")
        elif element.attributes.get(_NIL, "false") in ("true", "1"):
            self._read_nil(element, name, attribute)
        else:
            self._read_value(element, name, attribute)

    def _read_nil(self, element: Element, name: str, attribute: Attribute) -> None:
        if not attribute.repeated or name in self._found or element.text:
            self.problems.append(f"attribute {name!r}: only an empty list is nil (line {element.line})")
        self._found[name] = []

    def _read_value(self, element: Element, name: str, attribute: Attribute) -> None:
        try:
            self._found.setdefault(name, []).append(_READERS[attribute.datatype](element.text))
        except (ValueError, EventError):
            shown = repr(element.text[:32]) + ("…" if len(element.text) > 32 else "")
            self.problems.append(
                f"attribute {name!r}: expected {attribute.datatype}, got {shown} (line {element.line})"
            )


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_SPECIAL = {"INF": math.inf, "+INF": math.inf, "-INF": -math.inf, "NaN": math.nan}
_SPACE = " \t\r\n"


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text := text.strip(_SPACE)):
        raise ValueError(text)
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number


def _float(text: str) -> int | float:
    """A double; one without a point stays an integer, which conforms to a float as well."""
    text = text.strip(_SPACE)
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    if not _DOUBLE.fullmatch(text):
        raise ValueError(text)
    return float(text)


def _boolean(text: str) -> bool:
    try:
        return _BOOLEANS[text.strip(_SPACE)]
    except KeyError:
        raise ValueError(text) from None


_READERS: dict[Datatype, Callable[[str], Scalar]] = {
    Datatype.STRING: str,
    Datatype.INTEGER: _integer,
    Datatype.FLOAT: _float,
    Datatype.BOOLEAN: _boolean,
    Datatype.TIMESTAMP: lambda text: parse_timestamp(text.strip(_SPACE)),
}
