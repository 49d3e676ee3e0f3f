"""Event types: a name, a parent, and attributes with datatypes (Hermes thesis, Definition 3.2).

An `EventType` knows its own attributes only; `inherit` adds those of the parent. A subtype may redefine
an attribute, but only to a narrower one, so that whatever conforms to the subtype is also good for
whoever reads it as the supertype.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import force_setattr

from angelia.errors import EventError, EventTypeError
from angelia.event import MAX_ATTRIBUTES, MAX_DEPTH, MAX_NAME_LENGTH, Datatype, check_name

__all__ = ["Attribute", "EventType", "inherit"]

_TYPE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*")
_SHORT = re.compile(r"([a-z]+)(\[\])?(\?)?")
_WIDER = {Datatype.INTEGER: Datatype.FLOAT}


class Attribute(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an event type says of one attribute; `str()` is its short text, such as `string[]?`."""

    datatype: Datatype
    optional: bool = False
    repeated: bool = False
    doc: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.datatype, Datatype):
            force_setattr(self, "datatype", _datatype(self.datatype))
        _check_text("doc", self.doc)

    @classmethod
    def parse(cls, text: str) -> Attribute:
        """The attribute of a short text: a datatype, `[]` if repeated, `?` if optional."""
        parts = _SHORT.fullmatch(text) if isinstance(text, str) else None
        if parts is None:
            raise EventTypeError(
                f"{str(text)[:64]!r} is not an attribute; write it as 'string', 'string?' or 'string[]'"
            )
        datatype, repeated, optional = parts.groups()
        return cls(_datatype(datatype), optional=optional is not None, repeated=repeated is not None)

    def narrows(self, wider: Attribute) -> bool:
        """Whether every value allowed by this attribute is allowed by `wider`."""
        return (
            wider.datatype in (self.datatype, _WIDER.get(self.datatype))
            and self.repeated == wider.repeated
            and (wider.optional or not self.optional)
        )

    def __str__(self) -> str:
        return f"{self.datatype}{'[]' if self.repeated else ''}{'?' if self.optional else ''}"


class EventType(msgspec.Struct, frozen=True, omit_defaults=True):
    """A type of events: `EventType("flights.Quote", {"price": "float", "note": "string?"}, parent="Event")`.

    `attributes` are its own, without the inherited ones; `version` counts its modifications in a registry.
    """

    name: str
    attributes: Mapping[str, Attribute] = {}
    parent: str | None = None
    owner: str | None = None
    version: int = 1
    doc: str = ""

    if TYPE_CHECKING:  # msgspec makes the real one; attributes may be written as short texts

        def __init__(
            self,
            name: str,
            attributes: Mapping[str, Attribute | str] = ...,
            parent: str | None = None,
            owner: str | None = None,
            version: int = 1,
            doc: str = "",
        ) -> None: ...

    def __post_init__(self) -> None:
        _check_type_name(self.name)
        if self.parent is not None:
            _check_type_name(self.parent)
        if self.parent == self.name:
            raise EventTypeError(f"{self.name} cannot be its own parent")
        if self.owner == "":
            raise EventTypeError(f"the owner of {self.name} is empty; leave it out instead")
        _check_text("owner", self.owner or "")
        _check_text("doc", self.doc)
        if self.version < 1:
            raise EventTypeError(f"the version of {self.name} is {self.version}; versions count from 1")
        if not isinstance(self.attributes, Mapping):
            raise EventTypeError(f"the attributes of {self.name} must be a mapping of names to datatypes")
        force_setattr(self, "attributes", dict(_own_attributes(self.name, self.attributes)))
        _check_attribute_names(self.name, self.attributes)

    def __hash__(self) -> int:
        return hash((self.name, self.parent, self.version))


def inherit(event_type: EventType, inherited: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """All attributes of `event_type` when its parent has those `inherited`, which come first."""
    for name, attribute in event_type.attributes.items():
        wider = inherited.get(name)
        if wider is not None and not attribute.narrows(wider):
            raise EventTypeError(
                f"{event_type.name} redefines the attribute {name!r} as {attribute}, which it inherits as "
                f"{wider}; only a narrower one is allowed: integer for float, required for optional"
            )
    attributes = {**inherited, **event_type.attributes}
    _check_attribute_names(event_type.name, attributes)
    return attributes


def _datatype(text: str) -> Datatype:
    try:
        return Datatype(text)
    except ValueError:
        raise EventTypeError(f"{text!r} is not a datatype; they are {', '.join(Datatype)}") from None


def _check_type_name(name: object) -> None:
    if not isinstance(name, str) or len(name) > MAX_NAME_LENGTH or not _TYPE_NAME.fullmatch(name):
        raise EventTypeError(
            f"{str(name)[:64]!r} is not a type name: use letters, digits, '_' and '-' in parts separated by "
            f"dots, each starting with a letter or '_', at most {MAX_NAME_LENGTH} characters in all"
        )


def _check_text(what: str, text: str) -> None:
    """Refuse what could not be sent to another broker."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise EventTypeError(
            f"{what}: a lone surrogate at position {error.start} is not valid Unicode"
        ) from None


def _own_attributes(
    type_name: str, attributes: Mapping[str, Attribute | str]
) -> Iterator[tuple[str, Attribute]]:
    for name, attribute in attributes.items():
        if not isinstance(name, str):
            raise EventTypeError(f"{type_name}: the attribute name {name!r} is not a string")
        try:
            check_name(name)
            yield name, attribute if isinstance(attribute, Attribute) else Attribute.parse(attribute)
        except EventError as error:
            raise EventTypeError(f"{type_name}: {error}") from None
        except EventTypeError as error:
            raise EventTypeError(f"{type_name}, attribute {name!r}: {error}") from None


def _check_attribute_names(type_name: str, names: Iterable[str]) -> None:
    """Refuse too many or too deep names, and a name that is a leaf and also the parent of another."""
    known = set(names)
    if len(known) > MAX_ATTRIBUTES:
        raise EventTypeError(f"{type_name} has {len(known)} attributes; at most {MAX_ATTRIBUTES} are allowed")
    for name in known:
        parts = name.split(".")
        if len(parts) > MAX_DEPTH:
            raise EventTypeError(
                f"{type_name}: the attribute {name!r} is nested deeper than {MAX_DEPTH} levels"
            )
        for end in range(1, len(parts)):
            if (prefix := ".".join(parts[:end])) in known:
                raise EventTypeError(
                    f"{type_name}: the attribute {prefix!r} has a value and cannot also contain {name!r}"
                )
