"""Event types as JSON Schema (draft 2020-12), in and out: what XML Schema was to Hermes (thesis 4.4.2).

A dotted attribute `order.total` is the property `total` of a nested object `order`. An attribute is
optional if it, or an object around it, is nullable or not required. The owner and the version of a type
are the registry's affair and not part of its schema.

Schemas come from strangers. A keyword that would be lost is refused, not ignored, except annotations;
nothing is fetched, and the only `$ref` is the one that names the parent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from angelia.errors import EventTypeError
from angelia.event import MAX_DEPTH, Datatype
from angelia.types.model import Attribute, EventType

if TYPE_CHECKING:
    from angelia.types.registry import TypeRegistry

__all__ = ["attribute_tree", "from_json_schema", "to_json_schema"]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SCALARS: dict[Datatype, dict[str, str]] = {
    Datatype.STRING: {"type": "string"},
    Datatype.INTEGER: {"type": "integer"},
    Datatype.FLOAT: {"type": "number"},
    Datatype.BOOLEAN: {"type": "boolean"},
    Datatype.TIMESTAMP: {"type": "string", "format": "date-time"},
}
_DATATYPES = {(each["type"], each.get("format")): datatype for datatype, each in _SCALARS.items()}

_ANNOTATIONS = {
    "$comment", "default", "deprecated", "description", "examples", "readOnly", "title", "writeOnly"
}  # fmt: skip
_SCALAR_KEYWORDS = _ANNOTATIONS | {"type", "format"}
_ARRAY_KEYWORDS = _ANNOTATIONS | {"type", "items"}
_OBJECT_KEYWORDS = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}
_PROPERTY_KEYWORDS = _SCALAR_KEYWORDS | _ARRAY_KEYWORDS | _OBJECT_KEYWORDS
_TOP_KEYWORDS = _OBJECT_KEYWORDS | {"$schema", "$id", "allOf", "unevaluatedProperties"}


# ---------------------------------------------------------------- out


def to_json_schema(event_type: EventType, registry: TypeRegistry | None = None) -> dict[str, Any]:
    """The JSON Schema of a type: its own attributes, and a reference to the parent by name.

    With the `registry` that knows the type, inherited attributes are written out and everything else is
    excluded, so that a plain validator accepts the same documents as the registry.
    """
    head: dict[str, Any] = {"$schema": _DIALECT, "$id": event_type.name, "title": event_type.name}
    if event_type.doc:
        head["description"] = event_type.doc
    if registry is not None:
        return head | _object(attribute_tree(registry.attributes(event_type.name)), closed=True)
    if event_type.parent is not None:
        head["allOf"] = [{"$ref": event_type.parent}]
    return head | _object(attribute_tree(event_type.attributes), closed=False)


def attribute_tree(attributes: Mapping[str, Attribute]) -> dict[str, Any]:
    """Dotted names as nested dictionaries."""
    tree: dict[str, Any] = {}
    for name, attribute in attributes.items():
        *objects, last = name.split(".")
        node = tree
        for part in objects:
            node = node.setdefault(part, {})
        node[last] = attribute
    return tree


def _object(tree: dict[str, Any], *, closed: bool) -> dict[str, Any]:
    properties = {
        name: _object(node, closed=closed) if isinstance(node, dict) else _leaf(node)
        for name, node in tree.items()
    }
    required = [name for name, node in tree.items() if not _is_optional(node)]
    for name, node in tree.items():
        if _is_optional(node):
            properties[name]["type"] = [properties[name]["type"], "null"]
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if closed:
        schema["additionalProperties"] = False
    return schema


def _leaf(attribute: Attribute) -> dict[str, Any]:
    schema: dict[str, Any] = dict(_SCALARS[attribute.datatype])
    if attribute.repeated:
        schema = {"type": "array", "items": schema}
    return schema | ({"description": attribute.doc} if attribute.doc else {})


def _is_optional(node: Attribute | dict[str, Any]) -> bool:
    if isinstance(node, Attribute):
        return node.optional
    return all(map(_is_optional, node.values()))


# ---------------------------------------------------------------- in


def from_json_schema(schema: Mapping[str, Any], name: str | None = None) -> EventType:
    """The type that a JSON Schema describes, named `name`, or by the schema's `$id` or `title`."""
    top = _checked(schema, "the schema", _TOP_KEYWORDS)
    type_name = name or top.get("$id") or top.get("title")
    if not isinstance(type_name, str):
        raise EventTypeError("the schema has no name: give it an $id or a title, or pass a name")
    attributes: dict[str, Attribute] = {}
    for attribute_name, attribute in _object_attributes(top, "the schema", "", 1):
        if attribute_name in attributes:
            raise EventTypeError(f"the schema has the attribute {attribute_name!r} twice")
        attributes[attribute_name] = attribute
    return EventType(type_name, attributes, parent=_parent(top), doc=_text(top, "the schema"))


def _parent(top: Mapping[str, Any]) -> str | None:
    match top.get("allOf"):
        case None:
            return None
        case [{"$ref": str(parent), **rest}] if not rest:
            return parent
    raise EventTypeError('allOf can only name the parent type, as [{"$ref": "the.Parent"}]')


def _object_attributes(
    schema: Mapping[str, Any], where: str, prefix: str, depth: int
) -> Iterator[tuple[str, Attribute]]:
    """The attributes of an object schema, with names that start with `prefix`."""
    if depth > MAX_DEPTH:
        raise EventTypeError(f"the schema is nested deeper than {MAX_DEPTH} levels")
    if _type_of(schema, where)[0] != "object":
        raise EventTypeError(f"{where} must have the type 'object'")
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if schema.get(keyword, False) is not False:
            raise EventTypeError(f"{where}: {keyword} must be false; event types name all their attributes")
    properties = _properties(schema, where)
    required = _required(schema, where, properties)
    for key, value in properties.items():
        for name, attribute in _property_attributes(value, prefix + key, depth):
            yield name, attribute if key in required else _as_optional(attribute)


def _property_attributes(schema: object, name: str, depth: int) -> Iterator[tuple[str, Attribute]]:
    where = f"property {name[:64]!r}"
    kind, nullable = _type_of(_checked(schema, where, _PROPERTY_KEYWORDS), where)
    if kind == "object":
        nested = _checked(schema, where, _OBJECT_KEYWORDS)
        if not nested.get("properties"):
            raise EventTypeError(f"{where} is an object without properties; say which it has")
        for below, attribute in _object_attributes(nested, where, f"{name}.", depth + 1):
            yield below, _as_optional(attribute) if nullable else attribute
    elif kind == "array":
        array = _checked(schema, where, _ARRAY_KEYWORDS)
        items = array.get("items")
        yield name, Attribute(_datatype(items, f"the items of {where}"), nullable, True, _text(array, where))
    else:
        scalar = {**_checked(schema, where, _SCALAR_KEYWORDS), "type": kind}
        yield name, Attribute(_datatype(scalar, where), nullable, False, _text(scalar, where))


def _datatype(schema: object, where: str) -> Datatype:
    scalar = _checked(schema, where, _SCALAR_KEYWORDS)
    kind, form = scalar.get("type"), scalar.get("format")
    if not isinstance(kind, str) or not isinstance(form, str | None) or (kind, form) not in _DATATYPES:
        allowed = "string (with no format but date-time), integer, number or boolean"
        raise EventTypeError(f"{where} must be of type {allowed}")
    return _DATATYPES[kind, form]


def _as_optional(attribute: Attribute) -> Attribute:
    return Attribute(attribute.datatype, True, attribute.repeated, attribute.doc)


# ---------------------------------------------------------------- untrusted parts


def _checked(schema: object, where: str, keywords: set[str]) -> Mapping[str, Any]:
    """`schema`, if it is an object with none but the given keywords."""
    if not isinstance(schema, Mapping):
        raise EventTypeError(f"{where} must be a JSON object, not {type(schema).__name__}")
    for keyword in schema:
        if keyword not in keywords:
            raise EventTypeError(
                f"{where}: the keyword {str(keyword)[:64]!r} is not supported here; supported are "
                + ", ".join(sorted(keywords))
            )
    return schema


def _type_of(schema: Mapping[str, Any], where: str) -> tuple[str, bool]:
    """The one type that a schema allows, and whether it also allows null."""
    found = schema.get("type")
    if isinstance(found, str):
        return found, False
    match found:
        case [str(kind), "null"] | ["null", str(kind)] if kind != "null":
            return kind, True
    raise EventTypeError(f"{where} must have one type, or one and 'null' if it is optional")


def _properties(schema: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping) or not all(isinstance(key, str) for key in properties):
        raise EventTypeError(f"{where}: properties must be a JSON object")
    return properties


def _required(schema: Mapping[str, Any], where: str, properties: Mapping[str, Any]) -> set[str]:
    required = schema.get("required", [])
    if not isinstance(required, list | tuple) or not all(isinstance(key, str) for key in required):
        raise EventTypeError(f"{where}: required must be a list of property names")
    missing = [key for key in required if key not in properties]
    if missing:
        raise EventTypeError(
            f"{where}: required names {missing[0][:64]!r}, which is not among its properties"
        )
    return set(required)


def _text(schema: Mapping[str, Any], where: str) -> str:
    text = schema.get("description", "")
    if not isinstance(text, str):
        raise EventTypeError(f"{where}: description must be a string")
    return text
