"""XML that attacks its reader is refused, quickly and with a clear error."""

import time
from pathlib import Path

import pytest

from angelia import EventType, TypeRegistry
from angelia.errors import AngeliaError, XmlError
from angelia.types.xml_document import (
    MAX_XML_ATTRIBUTES,
    MAX_XML_DEPTH,
    MAX_XML_ELEMENTS,
    MAX_XML_LENGTH,
    MAX_XML_NAMESPACES,
    parse_xml,
)
from angelia.types.xml_schema import from_xml_schema
from angelia.xml import from_xml, read_event

LAUGHS = (
    '<!DOCTYPE lolz [<!ENTITY l0 "lol">'
    + "".join(f'<!ENTITY l{i + 1} "{f"&l{i};" * 10}">' for i in range(20))
    + "]><lolz>&l20;</lolz>"
)
QUADRATIC = f'<!DOCTYPE q [<!ENTITY a "{"a" * 50_000}">]><q>{"&a;" * 10_000}</q>'
REGISTRY = TypeRegistry([EventType("T", {"a": "string?"})])


def refused(document, part, read=parse_xml, seconds=2):
    started = time.process_time()
    with pytest.raises(XmlError) as caught:
        read(document)
    assert time.process_time() - started < seconds
    assert part in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    "document",
    [
        LAUGHS,
        QUADRATIC,
        '<!DOCTYPE x SYSTEM "http://127.0.0.1:9/x.dtd"><x/>',
        '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><x>&f;</x>',
        '<!DOCTYPE x [<!ENTITY % p SYSTEM "file:///etc/passwd"> %p;]><x/>',
        '<!DOCTYPE x PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "http://127.0.0.1:9/">\n<x/>',
        "<!DOCTYPE x><x/>",
    ],
)
def test_document_types_and_entities_are_refused(document):
    for read in (
        parse_xml,
        from_xml_schema,
        lambda d: from_xml(d, REGISTRY),
        lambda d: read_event(d, REGISTRY),
    ):
        refused(document, "a document type declaration (DOCTYPE) is not allowed", read)
        refused(document.encode(), "a document type declaration (DOCTYPE) is not allowed", read)


def test_an_undeclared_entity_is_refused_and_the_five_of_xml_are_not():
    refused("<x>&nbsp;</x>", "undefined entity")
    refused('<x a="&nbsp;"/>', "undefined entity")
    assert parse_xml("<x>&lt;&gt;&amp;&quot;&apos;&#65;</x>").text == "<>&\"'A"


def test_length_is_limited():
    parse_xml(f"<x>{'a' * (MAX_XML_LENGTH - 7)}</x>")
    refused(f"<x>{'a' * MAX_XML_LENGTH}</x>", "at most 524288 are allowed")
    refused(b"<x>" + b"a" * 10 * MAX_XML_LENGTH, "at most 524288 are allowed")


def test_depth_is_limited():
    parse_xml("<a>" * MAX_XML_DEPTH + "</a>" * MAX_XML_DEPTH)
    refused("<a>" * (MAX_XML_DEPTH + 1) + "</a>" * (MAX_XML_DEPTH + 1), "more than 128 levels (line 1)")
    refused("<a>" * 100_000, "more than 128 levels")


def test_elements_attributes_and_namespaces_are_limited():
    refused(f"<x>{'<a/>' * MAX_XML_ELEMENTS}</x>", "more than 32768 elements", seconds=5)
    refused("<x " + " ".join(f'a{i}=""' for i in range(17)) + "/>", "more than 16 attributes of one element")
    refused("<x " + " ".join(f'a{i}=""' for i in range(50_000)) + "/>", "more than 16 attributes", seconds=5)
    refused("<x " + " ".join(f'xmlns:a{i}="u"' for i in range(33)) + "/>", "more than 32 namespaces")
    refused("<x>" + '<y xmlns="u"/>' * 40 + "</x>", "more than 32 namespaces")


@pytest.mark.parametrize(
    ("document", "part"),
    [
        ("", "no element found"),
        ("<x>", "no element found"),
        ("<x></y>", "mismatched tag"),
        ("<x/><y/>", "junk after document element"),
        ("<x a=1/>", "not well-formed"),
        ('<x a="" a=""/>', "duplicate attribute"),
        ("<p:x/>", "unbound prefix"),
        ("<x>\x00</x>", "not well-formed"),
        ("<x>&#0;</x>", "invalid character number"),
        ("plain", "syntax error"),
        (b"\xff\xfe<\x00x\x00/\x00>\x00", "not valid UTF-8"),
        (b'<?xml version="1.0" encoding="ISO-8859-1"?><x>\xe9</x>', "not valid UTF-8"),
        ("<x>\ud800</x>", "not valid UTF-8"),
        (None, "a text or bytes, not NoneType"),
    ],
)
def test_what_is_not_xml_is_refused(document, part):
    refused(document, part)


def test_the_line_is_told():
    with pytest.raises(XmlError) as caught:
        parse_xml("<x>\n<y>\n</x>")
    assert caught.value.line == 3


def test_a_byte_order_mark_is_no_part_of_the_document():
    assert parse_xml("\ufeff<x/>".encode()).name == "x"


def test_many_problems_do_not_make_a_long_error():
    document = (
        '<t:T xmlns:t="http://www.cl.cam.ac.uk/opera/hermes/type">'
        + "".join(f"<unknown{i}/>" for i in range(20_000))
        + "</t:T>"
    )
    started = time.process_time()
    with pytest.raises(AngeliaError) as caught:
        read_event(document, REGISTRY)
    assert time.process_time() - started < 5
    assert len(str(caught.value)) < 10_000


def test_the_page_tells_the_limits():
    page = (Path(__file__).parents[1] / "docs/xml.md").read_text("utf-8")
    for limit in (MAX_XML_LENGTH, MAX_XML_DEPTH, MAX_XML_ELEMENTS, MAX_XML_ATTRIBUTES, MAX_XML_NAMESPACES):
        assert f"{limit:,} " in page
