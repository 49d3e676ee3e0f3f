"""Event types as XML Schema, in and out, as Hermes has them (thesis 4.4.2, Figures 4.9, 4.10, 4.14).

A type `LocationEvent` is an element of that name and a complex type `LocationEventType`, which extends
that of its parent. A dotted attribute `order.total` is an element `total` in an element `order`. An
optional attribute has `minOccurs="0"`, a repeated one `maxOccurs="unbounded"` too, and one that is both
is also `nillable` (a nil element stands for a list that is there, but empty).

Schemas come from strangers. What would be lost is refused, not ignored, and nothing is fetched: an
`include` can only name the parent. As in the thesis' Figure 4.10, the elements of a schema may be
written without the prefix of XML Schema's namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from angelia.errors import EventTypeError
from angelia.event import MAX_DEPTH, Datatype
from angelia.types.model import Attribute, EventType
from angelia.types.schema import attribute_tree
from angelia.types.xml_document import Element, check_xml_name, parse_xml, write_attributes, write_text

if TYPE_CHECKING:
    from angelia.types.registry import TypeRegistry

__all__ = ["TYPE_NAMESPACE", "from_xml_schema", "read_schema", "to_xml_schema"]

TYPE_NAMESPACE = "http://www.cl.cam.ac.uk/opera/hermes/type"
_XSD = "http://www.w3.org/2001/XMLSchema"
_SUFFIX = "Type"  # of the complex type's name, after the element's

_WRITTEN: dict[Datatype, str] = {
    Datatype.STRING: "string",
    Datatype.INTEGER: "long",
    Datatype.FLOAT: "double",
    Datatype.BOOLEAN: "boolean",
    Datatype.TIMESTAMP: "dateTime",
}
_READ = {name: datatype for datatype, name in _WRITTEN.items()} | {
    "int": Datatype.INTEGER,
    "integer": Datatype.INTEGER,
    "float": Datatype.FLOAT,
}


# ---------------------------------------------------------------- out


def to_xml_schema(event_type: EventType, registry: TypeRegistry | None = None) -> str:
    """The XML Schema of a type: its own attributes, as an extension of its parent's.

    With the `registry` that knows the type, inherited attributes are written out instead.
    """
    name = event_type.name
    attributes = event_type.attributes if registry is None else registry.attributes(name)
    parent = event_type.parent if registry is None else None
    head = [("xmlns:xsd", _XSD), ("xmlns:t", TYPE_NAMESPACE), ("targetNamespace", TYPE_NAMESPACE)]
    content = ["<xsd:sequence>", *_indented(_elements(attribute_tree(attributes))), "</xsd:sequence>"]
    if parent is not None:
        base = write_attributes([("base", f"t:{parent}{_SUFFIX}")])
        content = [
            "<xsd:complexContent>",
            f"  <xsd:extension{base}>",
            *_indented(_indented(content)),
            "  </xsd:extension>",
            "</xsd:complexContent>",
        ]
    lines = [
        f"<xsd:schema{write_attributes(head)}>",
        *([f"  <xsd:include{write_attributes([('schemaLocation', parent)])}/>"] if parent else []),
        f"  <xsd:complexType{write_attributes([('name', name + _SUFFIX)])}>",
        *_indented(_indented([*_documentation(event_type.doc), *content])),
        "  </xsd:complexType>",
        f"  <xsd:element{write_attributes([('name', name), ('type', f't:{name}{_SUFFIX}')])}/>",
        "</xsd:schema>",
    ]
    return "\n".join(lines) + "\n"


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _documentation(doc: str) -> list[str]:
    if not doc:
        return []
    text = write_text(doc).replace("\n", "&#10;")  # one line, whatever the indentation
    return ["<xsd:annotation>", f"  <xsd:documentation>{text}</xsd:documentation>", "</xsd:annotation>"]


def _elements(tree: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, node in tree.items():
        check_xml_name(name)
        lines += _leaf(name, node) if isinstance(node, Attribute) else _object(name, node)
    return lines


def _leaf(name: str, attribute: Attribute) -> list[str]:
    written = [("name", name), ("type", f"xsd:{_WRITTEN[attribute.datatype]}")]
    written += [("minOccurs", "0")] if attribute.optional or attribute.repeated else []
    written += [("maxOccurs", "unbounded")] if attribute.repeated else []
    written += [("nillable", "true")] if attribute.optional and attribute.repeated else []
    tag = f"<xsd:element{write_attributes(written)}"
    if not attribute.doc:
        return [f"{tag}/>"]
    return [f"{tag}>", *_indented(_documentation(attribute.doc)), "</xsd:element>"]


def _object(name: str, tree: dict[str, Any]) -> list[str]:
    optional = [("minOccurs", "0")] if _is_optional(tree) else []
    content = ["<xsd:sequence>", *_indented(_elements(tree)), "</xsd:sequence>"]
    nested = ["<xsd:complexType>", *_indented(content), "</xsd:complexType>"]
    return [
        f"<xsd:element{write_attributes([('name', name), *optional])}>",
        *_indented(nested),
        "</xsd:element>",
    ]


def _is_optional(node: Attribute | dict[str, Any]) -> bool:
    """Whether an object may be left out: every attribute below is optional."""
    if isinstance(node, Attribute):
        return node.optional
    return all(map(_is_optional, node.values()))


# ---------------------------------------------------------------- in


def from_xml_schema(document: str | bytes) -> EventType:
    """The type that an XML Schema describes; an `EventTypeError` or `XmlError` if it describes none."""
    return read_schema(parse_xml(document))


def read_schema(schema: Element) -> EventType:
    """The type that a schema, perhaps a part of a larger document, describes."""
    if schema.name != f"{{{_XSD}}}schema":
        raise _refusal(schema, "an XML Schema is due here")
    schema.checked("targetNamespace", "elementFormDefault", "attributeFormDefault", "version")
    if schema.attributes.get("targetNamespace") != TYPE_NAMESPACE:
        raise _refusal(schema, f"the target namespace of an event type is {TYPE_NAMESPACE}")
    for form in ("elementFormDefault", "attributeFormDefault"):
        if schema.attributes.get(form, "unqualified") != "unqualified":
            raise _refusal(schema, f"{form} must be unqualified")
    parts = _parts(schema, "include", "complexType", "element")
    definition, element = _single(schema, parts, "complexType"), _single(schema, parts, "element")
    name = _type_name(definition.checked("name"), element.checked("name", "type"))
    parent, content = _content(definition)
    _check_includes(parts["include"], parent)
    attributes: dict[str, Attribute] = {}
    for attribute_name, attribute in _attributes(content, "", 1):
        if attribute_name in attributes:
            raise _refusal(definition, f"the attribute {attribute_name[:64]!r} is there twice")
        attributes[attribute_name] = attribute
    doc = _read_documentation(definition) or _read_documentation(element)
    return EventType(name, attributes, parent=parent, doc=doc)


def _type_name(definition: Element, element: Element) -> str:
    name = element.attributes.get("name", "")
    if definition.attributes.get("name") != name + _SUFFIX:
        raise _refusal(
            definition, f"the complex type of the element {name[:64]!r} must be {name[:64]}{_SUFFIX}"
        )
    if element.expanded(element.attributes.get("type", "")) != f"{{{TYPE_NAMESPACE}}}{name}{_SUFFIX}":
        raise _refusal(element, f"the element {name[:64]!r} must be of the type {name[:64]}{_SUFFIX}")
    _parts(element)
    return name


def _content(definition: Element) -> tuple[str | None, Element]:
    """The name of the parent, and the element that holds the sequence of attributes."""
    parts = _parts(definition, "complexContent", "sequence", "all")
    if not parts["complexContent"]:
        return None, definition
    if parts["sequence"] or parts["all"]:
        raise _refusal(definition, "attributes stand inside of the extension if there is one")
    content = _single(definition, parts, "complexContent").checked()
    extension = _single(content, _parts(content, "extension"), "extension").checked("base")
    namespace, _, base = extension.expanded(extension.attributes.get("base", "")).rpartition("}")
    parent = base.removesuffix(_SUFFIX)
    if namespace != f"{{{TYPE_NAMESPACE}" or parent == base:
        raise _refusal(extension, f"the base must be an event type's complex type, as t:Parent{_SUFFIX}")
    return parent, extension


def _check_includes(includes: list[Element], parent: str | None) -> None:
    for include in includes:
        location = include.checked("schemaLocation").attributes.get("schemaLocation")
        _parts(include)
        if parent is None or location != parent:
            raise _refusal(
                include, f"include can only name the parent type, {parent or 'of which there is none'}"
            )


def _attributes(holder: Element, prefix: str, depth: int) -> Iterator[tuple[str, Attribute]]:
    """The attributes of the sequence in a complex type or extension."""
    if depth > MAX_DEPTH:
        raise _refusal(holder, f"the schema is nested deeper than {MAX_DEPTH} levels")
    groups = _parts(holder, "sequence", "all", "complexContent")
    for group in groups["sequence"] + groups["all"]:
        if len(groups["sequence"] + groups["all"]) > 1:
            raise _refusal(group, "there can be one sequence only")
        for element in _parts(group.checked(), "element")["element"]:
            yield from _element_attributes(element, prefix, depth)


def _element_attributes(element: Element, prefix: str, depth: int) -> Iterator[tuple[str, Attribute]]:
    element.checked("name", "type", "minOccurs", "maxOccurs", "nillable")
    name = prefix + element.attributes.get("name", "")
    nested = _parts(element, "complexType")["complexType"]
    least, repeated, nillable = _occurrence(element)
    if not nested:
        if nillable != (repeated and nillable):
            raise _refusal(element, "only a list can be nillable")
        optional = nillable if repeated else least == 0
        yield name, Attribute(_datatype(element), optional, repeated, _read_documentation(element))
        return
    if repeated or nillable or "type" in element.attributes or len(nested) > 1:
        raise _refusal(element, "an element with elements inside can neither repeat, be nil nor have a type")
    found = list(_attributes(nested[0].checked(), f"{name}.", depth + 1))
    if not found or _parts(nested[0], "sequence", "all", "complexContent")["complexContent"]:
        raise _refusal(element, "an element without a type must have a sequence of elements inside")
    for below, attribute in found:
        yield below, _as_optional(element, attribute) if least == 0 else attribute


def _as_optional(element: Element, attribute: Attribute) -> Attribute:
    if attribute.repeated and not attribute.optional:
        raise _refusal(element, "a list in an optional element must be nillable, as it is optional too")
    return Attribute(attribute.datatype, True, attribute.repeated, attribute.doc)


def _occurrence(element: Element) -> tuple[int, bool, bool]:
    """How often an element is there at least, whether it can be there often, and whether it can be nil."""
    least = element.attributes.get("minOccurs", "1")
    most = element.attributes.get("maxOccurs", "1")
    nillable = element.attributes.get("nillable", "false")
    if (least, most) not in (("0", "1"), ("1", "1"), ("0", "unbounded")):
        raise _refusal(
            element, "an element is there once, or with minOccurs 0 at most once, or any number of times"
        )
    if nillable not in ("true", "false"):
        raise _refusal(element, "nillable is true or false")
    return int(least), most == "unbounded", nillable == "true"


def _datatype(element: Element) -> Datatype:
    written = element.attributes.get("type", "")
    namespace, _, name = element.expanded(written).rpartition("}")
    if namespace != f"{{{_XSD}" or name not in _READ:
        raise _refusal(element, f"the type {written[:64]!r} is not one of xsd:{', xsd:'.join(_READ)}")
    return _READ[name]


# ---------------------------------------------------------------- untrusted parts


def _refusal(element: Element, message: str) -> EventTypeError:
    return EventTypeError(f"<{element.local}>: {message} (line {element.line})")


def _parts(element: Element, *kinds: str) -> dict[str, list[Element]]:
    """The elements right below, by kind; refuses other kinds than these and annotations."""
    found: dict[str, list[Element]] = {kind: [] for kind in (*kinds, "annotation")}
    for child in element.children:
        namespace, _, kind = child.name.rpartition("}")
        if namespace not in ("", f"{{{_XSD}") or kind not in found:
            supported = ", ".join(found)
            raise _refusal(child, f"this is not supported in <{element.local}>; supported are {supported}")
        found[kind].append(child)
    if len(found["annotation"]) > 1:
        raise _refusal(element, "there can be one annotation only")
    return found


def _single(element: Element, parts: dict[str, list[Element]], kind: str) -> Element:
    if len(parts[kind]) != 1:
        raise _refusal(element, f"there must be one {kind}, and there are {len(parts[kind])}")
    return parts[kind][0]


def _read_documentation(element: Element) -> str:
    for annotation in element.children:
        if annotation.local == "annotation":
            texts = _parts(annotation.checked(), "documentation")["documentation"]
            for text in texts:
                _parts(text)
            return "\n".join(text.text for text in texts)
    return ""
