"""XML from strangers, and XML for them: a hardened reader and the little that writing needs.

There are no document types, no entities and no references to elsewhere (`defusedxml`), and what a
document may consist of is limited while it is read: its length, depth, elements, attributes and
namespaces. Whatever is wrong is an `XmlError` with the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from xml.etree.ElementTree import ParseError
from xml.parsers import expat

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from angelia.errors import XmlError

__all__ = [
    "MAX_XML_ATTRIBUTES",
    "MAX_XML_DEPTH",
    "MAX_XML_ELEMENTS",
    "MAX_XML_LENGTH",
    "MAX_XML_NAMESPACES",
    "XSI",
    "Element",
    "check_xml_name",
    "parse_xml",
    "write_attributes",
    "write_text",
]

MAX_XML_LENGTH = 512 * 1024  # characters
MAX_XML_DEPTH = 128
MAX_XML_ELEMENTS = 32 * 1024
MAX_XML_ATTRIBUTES = 16  # of one element
MAX_XML_NAMESPACES = 32  # declared in a document

XSI = "{http://www.w3.org/2001/XMLSchema-instance}"


@dataclass(slots=True, eq=False)
class Element:
    """An element: `name` is `{namespace}local`, or `local` in no namespace; `text` is its own only.

    `namespaces` are the prefixes in scope, for attributes whose values are names.
    """

    name: str
    attributes: Mapping[str, str]
    namespaces: Mapping[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def expanded(self, name: str) -> str:
        """A name with a prefix, found in an attribute's value, as `{namespace}local`."""
        prefix, _, local = name.strip().rpartition(":")
        if prefix not in self.namespaces:
            if prefix:
                raise XmlError(f"the prefix {prefix[:64]!r} is not bound to a namespace", self.line)
            return local
        return f"{{{self.namespaces[prefix]}}}{local}"

    def checked(self, *attributes: str) -> Element:
        """Itself, if it has no other attributes than these, and no text between its elements."""
        for name in self.attributes:
            if name not in attributes:
                raise XmlError(f"<{self.local}> cannot have the attribute {name[:64]!r} here", self.line)
        if self.text.strip():
            raise XmlError(f"<{self.local}> cannot have text here: {self.text.strip()[:32]!r}", self.line)
        return self

    @property
    def local(self) -> str:
        """The name without the namespace, cut for a message."""
        return self.name.rpartition("}")[2][:64]


def parse_xml(document: str | bytes) -> Element:
    """The root element of a document (bytes are UTF-8), or an `XmlError`."""
    text = _decoded(document)
    builder = _Builder()
    parser = DefusedXMLParser(target=builder, forbid_dtd=True)
    builder.position = parser.parser
    try:
        parser.feed(text)
        root = parser.close()
    except DefusedXmlException as error:
        raise XmlError(
            f"{_REFUSALS.get(type(error).__name__, 'this')} is not allowed", builder.line
        ) from None
    except ParseError as error:
        raise XmlError(f"not XML: {expat.ErrorString(error.code)}", error.position[0]) from None
    assert isinstance(root, Element)
    return root


_REFUSALS = {
    "DTDForbidden": "a document type declaration (DOCTYPE)",
    "EntitiesForbidden": "an entity declaration",
    "ExternalReferenceForbidden": "a reference to another document",
}


def _decoded(document: str | bytes) -> str:
    if not isinstance(document, str | bytes):
        raise XmlError(f"an XML document is a text or bytes, not {type(document).__name__}")
    if len(document) > 4 * MAX_XML_LENGTH:
        _refuse_length(len(document))
    try:
        text = document.decode("utf-8-sig") if isinstance(document, bytes) else document
        text.encode()
    except UnicodeError:
        raise XmlError("the document is not valid UTF-8") from None
    if len(text) > MAX_XML_LENGTH:
        _refuse_length(len(text))
    return text


def _refuse_length(length: int) -> None:
    raise XmlError(f"the document has {length} characters; at most {MAX_XML_LENGTH} are allowed")


class _Builder:
    """What the parser reports, made into elements as far as the limits allow."""

    def __init__(self) -> None:
        self.position: Any = None  # expat's parser, which knows the line
        self._open: list[Element] = []
        self._texts: list[list[str]] = []
        self._scope: list[Mapping[str, str]] = [{}]
        self._declared: dict[str, str] = {}
        self._elements = self._namespaces = 0
        self._root: Element | None = None

    @property
    def line(self) -> int:
        return self.position.CurrentLineNumber  # type: ignore[no-any-return]

    def start_ns(self, prefix: str, uri: str) -> None:
        self._namespaces += 1
        self._check(self._namespaces, MAX_XML_NAMESPACES, "namespaces")
        self._declared[prefix] = uri

    def end_ns(self, prefix: str) -> None:
        pass

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        self._check(self._elements, MAX_XML_ELEMENTS, "elements")
        self._check(len(self._open) + 1, MAX_XML_DEPTH, "levels")
        self._check(len(attributes), MAX_XML_ATTRIBUTES, "attributes of one element")
        scope = {**self._scope[-1], **self._declared} if self._declared else self._scope[-1]
        self._declared = {}
        element = Element(name, attributes, scope, self.line)
        if self._open:
            self._open[-1].children.append(element)
        self._open.append(element)
        self._texts.append([])
        self._scope.append(scope)

    def data(self, text: str) -> None:
        self._texts[-1].append(text)

    def end(self, name: str) -> None:
        self._root = self._open.pop()
        self._root.text = "".join(self._texts.pop())
        self._scope.pop()

    def close(self) -> Element | None:
        return self._root

    def _check(self, found: int, limit: int, what: str) -> None:
        if found > limit:
            raise XmlError(f"the document has more than {limit} {what}", self.line)


# ---------------------------------------------------------------- writing

_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"}
_TEXT = str.maketrans(_ESCAPES)
_ATTRIBUTE = str.maketrans(_ESCAPES | {'"': "&quot;", "\n": "&#10;", "\t": "&#9;"})


def write_text(text: str) -> str:
    """A text between tags. Some control characters cannot be written in XML, even escaped."""
    return _written(text, _TEXT)


def write_attributes(attributes: Iterable[tuple[str, str]]) -> str:
    """Attributes as they stand in a tag, with a space before each."""
    return "".join(f' {name}="{_written(value, _ATTRIBUTE)}"' for name, value in attributes)


def _written(text: str, escapes: Mapping[int, str]) -> str:
    if found := _UNWRITABLE.search(text):
        raise XmlError(f"the character {found[0]!r} cannot be written in XML")
    return text.translate(escapes)


@lru_cache(maxsize=4096)
def check_xml_name(name: str) -> None:
    """Refuse a name that an element of XML cannot have."""
    if re.fullmatch(r"[\w.\-]+", name):
        try:
            expat.ParserCreate().Parse(f"<{name}/>", True)
            return
        except expat.ExpatError:
            pass
    raise XmlError(f"{name[:64]!r} cannot be the name of an XML element")
