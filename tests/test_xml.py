"""XML at the door: publications, XPath filters and messages, there and back, and what is refused."""

import contextlib
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angelia import Event, EventType, Filter, TypeRegistry
from angelia.errors import (
    AngeliaError,
    ConformanceError,
    EventError,
    EventTypeError,
    FilterError,
    FilterLimitError,
    FilterSyntaxError,
    UnknownTypeError,
    XmlError,
)
from angelia.filter import Advertisement, attr
from angelia.xml import from_xml, from_xpath, read_event, to_xml, to_xpath, write_event

NOTE = EventType(
    "shop.Note",
    {
        "text": "string",
        "count": "integer?",
        "price.amount": "float?",
        "price.old": "float?",
        "paid": "boolean?",
        "at": "timestamp?",
        "tags": "string[]",
        "sizes": "integer[]?",
        "price.all": "float[]?",
    },
)
REGISTRY = TypeRegistry([NOTE, EventType("shop.Remark", {"by": "string?"}, parent="shop.Note")])
TYPE = "http://www.cl.cam.ac.uk/opera/hermes/type"
XSI = "http://www.w3.org/2001/XMLSchema-instance"


def note(inside, head=""):
    return f'<t:shop.Note xmlns:t="{TYPE}" xmlns:xsi="{XSI}"{head}>{inside}</t:shop.Note>'


def hermes(inside):
    return f'<h:hermes xmlns:h="http://www.cl.cam.ac.uk/opera/hermes">{inside}</h:hermes>'


# ---------------------------------------------------------------- publications

strings = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cn", "Cc"]), max_size=20) | (
    st.sampled_from(["", " ", "\n", "\r", "\r\n", "\t x ", "]]>", "<a/>", "&amp;", "&#65;", "'\""])
)
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False) | integers
times = st.datetimes(timezones=st.just(UTC))
contexts = strings.filter(bool)


@st.composite
def events(draw):
    values = {"text": draw(strings), "tags": draw(st.lists(strings, max_size=3))}
    options = {
        "count": integers,
        "price.amount": floats,
        "price.old": floats,
        "paid": st.booleans(),
        "at": times,
        "sizes": st.lists(integers, max_size=3),
        "price.all": st.lists(floats, max_size=3),
    }
    values |= {name: draw(of) for name, of in options.items() if draw(st.booleans())}
    context = {name: draw(contexts) for name in ("source", "subject", "id") if draw(st.booleans())}
    return Event(values, type="shop.Note", time=draw(st.none() | times), **context)


@settings(deadline=None)
@given(events())
def test_an_event_that_is_written_is_read_back_as_the_same(event):
    assert read_event(write_event(event, REGISTRY), REGISTRY) == event
    assert from_xml(to_xml(event, REGISTRY), REGISTRY) == event


def test_not_a_number_is_written_too():
    event = Event({"text": "", "tags": [], "price.amount": math.nan}, type="shop.Note")
    assert math.isnan(read_event(write_event(event, REGISTRY), REGISTRY)["price.amount"])


def test_elements_come_in_any_order_and_whitespace_between_them_is_nothing():
    event = read_event(
        note("\n <tags>b</tags> <price>\n<amount> 7.5 </amount></price><tags>a</tags><text> x </text>"),
        REGISTRY,
    )
    assert event == Event({"tags": ["b", "a"], "price.amount": 7.5, "text": " x "}, type="shop.Note")


def test_comments_instructions_and_cdata_are_allowed():
    event = read_event(note("<!-- c --><?p i?><text>a<![CDATA[<b>]]><!-- c -->c</text>"), REGISTRY)
    assert event["text"] == "a<b>c"


def test_lists_may_be_empty_and_are_absent_only_if_optional():
    event = read_event(note("<text/>"), REGISTRY)
    assert event["tags"] == ()
    assert "sizes" not in event
    assert read_event(note('<text/><sizes xsi:nil="true"/>'), REGISTRY)["sizes"] == ()


def test_the_context_is_in_attributes_or_in_elements_that_the_type_does_not_have():
    event = read_event(
        note("<text/><subject>s</subject>", ' source="a&#10;b" time="2026-01-01T00:00:00Z"'), REGISTRY
    )
    assert (event.source, event.subject) == ("a\nb", "s")
    assert event.time == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("lexical", "value"),
    [("7", 7), ("+7", 7), (" -007\n", -7), ("9223372036854775807", 2**63 - 1)],
)
def test_integers_are_read_as_xml_schema_writes_them(lexical, value):
    assert read_event(note(f"<text/><count>{lexical}</count>"), REGISTRY)["count"] == value


@pytest.mark.parametrize(
    ("lexical", "value"),
    [
        ("1.5", 1.5),
        ("-1E3", -1000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("INF", math.inf),
        ("-INF", -math.inf),
        ("3", 3),
    ],
)
def test_doubles_are_read_as_xml_schema_writes_them(lexical, value):
    read = read_event(note(f"<text/><price><old>{lexical}</old></price>"), REGISTRY)["price.old"]
    assert (type(read), read) == (type(value), value)


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("", "missing attribute 'text'"),
        ("<text/><text/>", "attribute 'text' is given twice"),
        ("<text/><price/><price/>", "'price' is given twice"),
        ("<text/><txt/>", "unknown attribute 'txt'; did you mean 'text'?"),
        ("<text/><price><vat>1</vat></price>", "unknown attribute 'price.vat'"),
        ("<text/><price.amount.x/>", "unknown attribute"),
        ("<text><b/></text>", "attribute 'text' can have a value only"),
        ('<text lang="en"/>', "attribute 'text' can have a value only"),
        ('<text xsi:nil="true"/>', "only an empty list is nil"),
        ('<text/><sizes>1</sizes><sizes xsi:nil="true"/>', "only an empty list is nil"),
        ("<text/><count>1.0</count>", "'count': expected integer, got '1.0'"),
        ("<text/><count>1_0</count>", "expected integer"),
        ("<text/><count>٣</count>", "expected integer"),
        ("<text/><count>9223372036854775808</count>", "expected integer"),
        ("<text/><count/>", "expected integer, got ''"),
        ("<text/><paid>yes</paid>", "expected boolean, got 'yes'"),
        ("<text/><paid>TRUE</paid>", "expected boolean"),
        ("<text/><at>2026-01-01</at>", "expected timestamp"),
        ("<text/><at>2026-01-01T00:00:00</at>", "expected timestamp"),
        ("<text/><price><amount>nan</amount></price>", "expected float"),
        ("<text/><price><amount>infinity</amount></price>", "expected float"),
        ("<text/><price><amount>0x10</amount></price>", "expected float"),
        ("<text/><sizes>1</sizes><sizes>x</sizes>", "'sizes': expected integer, got 'x'"),
        ("<text/><subject>a</subject><subject>b</subject>", "unknown attribute 'subject'"),
        (f'<t:text xmlns:t="{TYPE}"/>', "unknown attribute '{http"),
    ],
)
def test_an_event_that_does_not_conform_is_refused_with_every_problem(inside, problem):
    with pytest.raises(ConformanceError) as caught:
        read_event(note(inside), REGISTRY)
    assert any(problem in each for each in caught.value.problems)


@pytest.mark.parametrize(
    ("document", "error", "message"),
    [
        (note("<text/>stray"), XmlError, "cannot have text here"),
        (note("<text/><price>7</price>"), XmlError, "<price> cannot have text here"),
        (note("<text/>", ' colour="red"'), XmlError, "cannot have the attribute 'colour'"),
        (note("<text/>", ' source=""'), EventError, "source is empty"),
        (note("<text/>", ' time="now"'), EventError, "is not a timestamp"),
        (note("<text/><id>1</id>", ' id="2"'), ConformanceError, "id is given twice"),
        ("<shop.Note/>", XmlError, "an event's element is in the namespace"),
        (f'<t:shop.Not xmlns:t="{TYPE}"/>', UnknownTypeError, "did you mean 'shop.Note'"),
        (f'<t:{"x" * 300} xmlns:t="{TYPE}"/>', XmlError, "at most 255 characters"),
    ],
)
def test_what_is_no_event_is_refused(document, error, message):
    with pytest.raises(error, match=message):
        read_event(document, REGISTRY)


def test_what_xml_cannot_hold_is_not_written():
    with pytest.raises(XmlError, match="without a type"):
        write_event(Event({"text": "a"}), REGISTRY)
    with pytest.raises(XmlError, match="cannot be written in XML"):
        write_event(Event({"text": "\x00", "tags": []}, type="shop.Note"), REGISTRY)
    with pytest.raises(ConformanceError):
        write_event(Event({"text": 7}, type="shop.Note"), REGISTRY)
    odd = TypeRegistry([EventType("Odd", {"a b": "string"})])
    with pytest.raises(XmlError, match="'a b' cannot be the name of an XML element"):
        write_event(Event({"a b": ""}, type="Odd"), odd)


# ---------------------------------------------------------------- XPath


@pytest.mark.parametrize(
    ("xpath", "text"),
    [
        ("child::*", "true"),
        ("*", "true"),
        ("child::*[child::id>3141 and child::position='FE02']", 'id > 3141 and position = "FE02"'),
        ("*[id]", "exists id"),
        ("*[not(id)]", "not exists id"),
        ("*[price/amount <= -1.5]", "price.amount <= -1.5"),
        ("*[child::price/child::amount >= .5]", "price.amount >= 0.5"),
        ("*[5 < x]", "x > 5"),
        ("*['a' != x]", 'x != "a"'),
        ("*[x = true() or y = false()]", "x = true or y = false"),
        ("*[true()]", "true"),
        ("*[false() or x = 1]", "x = 1"),
        ("*[x = (1, 2)]", "x in (1, 2)"),
        (
            "*[starts-with(x, 'a') and ends-with(y, 'b') and contains(z, 'c')]",
            'x prefix "a" and y suffix "b" and z contains "c"',
        ),
        ("*[x > xs:dateTime('2026-01-01T01:00:00+01:00')]", 'x > t"2026-01-01T00:00:00Z"'),
        ("*[x = xsd:dateTime('2026-01-01T00:00:00Z')]", 'x = t"2026-01-01T00:00:00Z"'),
        ("*[@source = 'a' and attribute::subject]", '@source = "a" and exists @subject'),
        ("*[a = 1 or b = 2 and c = 3]", "a = 1 or b = 2 and c = 3"),
        ("*[(a = 1 or b = 2) and not(c = 3 or d)]", "(a = 1 or b = 2) and not (c = 3 or exists d)"),
        ('*[x = "say ""ay""" and y = \'it\'\'s\']', r'x = "say \"ay\"" and y = "it' + "'" + 's"'),
        ("*[or = 1 or and = 2 and not = 3]", "`or` = 1 or `and` = 2 and `not` = 3"),  # no reserved words
        ("*[true = 1 and contains]", "`true` = 1 and exists `contains`"),
        ("*[x = 1e3]", "x = 1000"),
        ("*[größe > 3]", "größe > 3"),
        ("\n *\t[ x\n=\n1 ] ", "x = 1"),
    ],
)
def test_an_xpath_is_a_filter(xpath, text):
    assert from_xpath(xpath) == Filter.parse(text)


@pytest.mark.parametrize(
    ("xpath", "column", "message"),
    [
        ("", 1, "expected '*', found the end"),
        ("id > 3", 1, "expected '*', found 'id'"),
        ("//x", 1, "expected '*'"),
        ("/child::*", 1, "expected '*'"),
        ("*[", 3, "expected a value"),
        ("*[]", 3, "expected a value"),
        ("*[x = 1", 8, "expected ']', found the end"),
        ("*[x = 1]/y", 9, "expected the end of the expression"),
        ("*[x = 1][y = 2]", 9, "expected the end of the expression"),
        ("*[x = y]", 7, "expected a value"),
        ("*[x = ]", 7, "expected a value"),
        ("*[x == 1]", 6, "expected a value"),
        ("*[x + 1 = 2]", 5, "'+': is not part of our XPath"),
        ("*[x = 1 | y]", 9, "'|': is not part of our XPath"),
        ("*[x = 'abc]", 7, "this string does not end"),
        ("*[position() = 1]", 3, "the function 'position' is not part of our XPath"),
        ("*[matches(x, 'a')]", 3, "the function 'matches' is not part of our XPath"),
        ("*[document('file:///etc/passwd')]", 3, "the function 'document' is not part"),
        ("*[starts-with(x, 1)]", 18, "expected a string"),
        ("*[starts-with('a', x)]", 15, "expected the name of an attribute"),
        ("*[not x]", 7, "expected ']', found 'x'"),
        ("*[@type = 'a']", 4, "expected one of id, source, subject, time"),
        ("*[@colour = 'a']", 4, "expected one of"),
        ("*[parent::x]", 9, "':': is not part of our XPath"),
        ("*[../x]", 3, "'.': is not part of our XPath"),
        ("*[x > true()]", 7, "booleans have no order"),
        ("*[true() > x]", 3, "booleans have no order"),
        ("*[x = (1, 'a')]", 7, "of several kinds"),
        ("*[x < (1, 2)]", 7, "expected a value"),
        ("*[1 = 1]", 7, "expected the name of an attribute"),
        ("*[5]", 4, "expected an operator"),
        ("*[x = 123456789012345678901234567890]", 7, "this number is too long"),
        ("*[x = 9223372036854775808]", 7, "does not fit in 64 bits"),
        ("*[x = 1e999]", 7, "must be finite"),
        ("*[x = xs:dateTime('yesterday')]", 19, "is not a timestamp"),
        ("*[x = xs:dateTime(1)]", 19, "expected a string"),
        ("*[x² = 1]", 3, "cannot be the name of an XML element"),
    ],
)
def test_what_is_not_in_the_subset_is_refused_at_its_column(xpath, column, message):
    with pytest.raises(FilterSyntaxError) as caught:
        from_xpath(xpath)
    assert message in caught.value.message
    assert caught.value.column == column


def test_an_xpath_is_of_limited_length_depth_and_size():
    from_xpath("*[" + "(" * 50 + "x" + ")" * 50 + "]")
    for xpath in (
        "*[" + "(" * 51 + "x" + ")" * 51 + "]",
        "*[" + "not(" * 5000 + "x" + ")" * 5000 + "]",
        "*[" + "x or " * 1000 + "x]",
        "*[x = '" + "a" * 70000 + "']",
        "*[" + " and ".join(f"(a{i} or b{i})" for i in range(20)) + "]",
    ):
        with pytest.raises(FilterLimitError):
            from_xpath(xpath)


names = st.sampled_from(["a", "b", "c.d", "c.e", "größe", "@source", "@time"])
values = st.one_of(
    strings, st.integers(-5, 5), st.sampled_from([1.5, -0.25, 1e300, 1e-7]), st.booleans(), times
)
ordered = st.one_of(strings, st.integers(-5, 5), times)
constraints = st.one_of(
    st.builds(lambda n, v: attr(n) == v, names, values),
    st.builds(lambda n, v: attr(n) != v, names, values),
    st.builds(lambda n, v: attr(n) < v, names, ordered),
    st.builds(lambda n, v: attr(n) >= v, names, ordered),
    st.builds(lambda n, v, w: attr(n).in_(v, w), names, strings, strings),
    st.builds(lambda n, v, w: attr(n).between(min(v, w), max(v, w)), names, integers, integers),
    st.builds(lambda n, v: attr(n).prefix(v), names, strings),
    st.builds(lambda n, v: attr(n).suffix(v), names, strings),
    st.builds(lambda n, v: attr(n).contains(v), names, strings),
    st.builds(lambda n: attr(n).exists(), names),
)
filters = st.recursive(
    constraints,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=4,
)


@settings(deadline=None, max_examples=300)
@given(filters)
def test_a_filter_that_is_written_as_xpath_is_read_back_as_the_same(wanted):
    try:
        xpath = to_xpath(wanted)
    except FilterError as error:
        assert "XPath cannot say" in str(error)  # noqa: PT017
        return
    assert from_xpath(xpath) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('x matches "a+"', "XPath cannot say that child::x matches a regular expression"),
        ("x is number", "XPath cannot say that child::x is any number"),
        ("x is timestamp", "is any timestamp"),
        ('@type = "a"', "XPath cannot compare @type"),
        ("`a b` = 1", "the attribute 'a b' cannot be in an XPath"),
        ("`a..b` = 1", "cannot be in an XPath"),
    ],
)
def test_a_filter_that_xpath_cannot_say_is_refused(text, message):
    with pytest.raises(FilterError) as caught:
        to_xpath(Filter.parse(text))
    assert message in str(caught.value)


# ---------------------------------------------------------------- messages


@pytest.mark.parametrize(
    "content",
    [
        NOTE,
        EventType("shop.Remark", {"by": "string?"}, parent="shop.Note", doc="a\u2028b <&>"),
        Advertisement.parse("shop.Note:"),
        Advertisement.parse('shop.Note: count > 3 and count < 1 and text prefix "<&>"'),
        Filter.parse("shop.Note:"),
        Filter.parse('shop.Note: count > 3 and (text = "<&>" or paid = true)'),
        Filter.parse('(shop.Note: count > 3) or (shop.Remark: by = "me")'),
        Filter.parse('shop.Note: tags in ("a", "b") and not sizes = 3'),
    ],
)
def test_a_message_is_read_back_as_what_it_carries(content):
    assert from_xml(to_xml(content, REGISTRY), REGISTRY) == content


@pytest.mark.parametrize(
    "content",
    [
        Filter.parse("count > 3"),
        Filter.parse("(shop.Note: true) and (shop.Remark: true)"),
        Filter.parse("not (shop.Note: true)"),
        Filter.parse("shop.Note: false"),
        Advertisement.parse("count > 3"),
        Advertisement.parse("shop.Note: count between 1 and 3"),
        Advertisement([], "shop.Note"),
    ],
)
def test_a_message_that_hermes_does_not_have_is_not_written(content):
    with pytest.raises(FilterError):
        to_xml(content, REGISTRY)


ADVERTISEMENT = """<advertisement><advertise typename="shop.Note">
  <typeattr><xpath>*[a or b]</xpath></typeattr></advertise></advertisement>"""


def subscription(xpath):
    return f"""<subscription><subscribe typename="shop.Note">
      <typeattr><xpath>{xpath}</xpath></typeattr></subscribe></subscription>"""


def publication(typename):
    return f'<publication><publish typename="{typename}">{note("<text/>")}</publish></publication>'


@pytest.mark.parametrize(
    ("inside", "error", "message"),
    [
        ("", XmlError, "<hermes> has 0 elements; 1 is expected"),
        ("<gossip/>", XmlError, "<gossip> is not expected in <hermes>, but type or advertisement"),
        ("<subscription/><subscription/>", XmlError, "<hermes> has 2 elements"),
        ("text", XmlError, "cannot have text here"),
        ("<subscription/>", XmlError, "<subscription> has 0 elements; at least 1 and at most 16"),
        ("<subscription><subscribe/></subscription>", XmlError, "must have the attribute typename"),
        (
            '<subscription><subscribe typename=""/></subscription>',
            XmlError,
            "must have the attribute typename",
        ),
        ('<subscription><subscribe typename="No"/></subscription>', UnknownTypeError, "No"),
        (
            '<subscription><subscribe typename="shop.Note"><xpath/></subscribe></subscription>',
            XmlError,
            "typeattr",
        ),
        (
            subscription("*[cuont > 3]"),
            ConformanceError,
            "shop.Note has no attribute 'cuont'; did you mean 'count'",
        ),
        (
            subscription("*[count &gt;]"),
            FilterSyntaxError,
            "expected a value",
        ),
        (
            ADVERTISEMENT,
            XmlError,
            "a list of comparisons joined by and",
        ),
        ("<advertisement/>", XmlError, "<advertisement> has 0 elements"),
        ('<advertisement><advertise typename="No"/></advertisement>', UnknownTypeError, "No"),
        (ADVERTISEMENT.replace("a or b", "cuont &gt; 3"), ConformanceError, "did you mean 'count'"),
        ('<publication routing="fast"/>', XmlError, "routing is one of type, typeAttr, not 'fast'"),
        ("<publication/>", XmlError, "<publication> has 0 elements"),
        ('<publication><publish typename="shop.Note"/></publication>', XmlError, "<publish> holds one event"),
        (
            publication(typename="shop.Remark"),
            XmlError,
            "<publish> is about 'shop.Remark', its event is a 'shop.Note'",
        ),
        ("<type/>", XmlError, "<type> has 0 elements"),
        ('<type><addtype typename="A"/></type>', XmlError, "<addtype> holds one XML Schema"),
        ('<type><addtype typename="A"><x/></addtype></type>', EventTypeError, "an XML Schema is due here"),
    ],
)
def test_a_message_that_is_not_one_is_refused(inside, error, message):
    with pytest.raises(error) as caught:
        from_xml(hermes(inside), REGISTRY)
    assert message in str(caught.value)


def test_a_subscription_has_a_limited_number_of_alternatives():
    part = '<subscribe typename="shop.Note"><typeattr><xpath>*[count = {}]</xpath></typeattr></subscribe>'
    for count in (16, 17, 5000):
        document = hermes(f"<subscription>{''.join(part.format(i) for i in range(count))}</subscription>")
        if count == 16:
            assert len(from_xml(document, REGISTRY).conjunctions) == 16
        else:
            with pytest.raises(XmlError, match="at most 16"):
                from_xml(document, REGISTRY)


def test_a_type_message_must_say_what_its_schema_says():
    message = to_xml(EventType("A", parent="B"), REGISTRY)
    for old, new in (('typename="A"', 'typename="C"'), ('extends="B"', 'extends="C"'), (' extends="B"', "")):
        with pytest.raises(EventTypeError, match="the message is about"):
            from_xml(message.replace(old, new), REGISTRY)


def test_a_message_is_in_the_namespace_of_hermes():
    with pytest.raises(XmlError, match="a message is an element hermes of the namespace"):
        from_xml("<hermes><type/></hermes>", REGISTRY)


MESSAGES = [
    to_xml(thing, REGISTRY)
    for thing in (
        NOTE,
        Filter.parse('shop.Note: count > 3 and text = "a"'),
        Event({"text": "a", "tags": ["b"], "price.amount": 7.5}, type="shop.Note", source="s"),
    )
]


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(MESSAGES), st.data())
def test_a_damaged_message_is_a_message_or_an_error_of_ours(message, data):
    at = data.draw(st.integers(0, len(message)))
    put = data.draw(
        st.one_of(st.sampled_from(["", "<", ">", "&", '"', "<x/>", "]]>", "\x00"]), st.text(max_size=3))
    )
    with contextlib.suppress(AngeliaError):
        from_xml(message[:at] + put + message[at + data.draw(st.integers(0, 20)) :], REGISTRY)


@settings(deadline=None)
@given(st.one_of(st.text(max_size=80), st.binary(max_size=80)))
def test_garbage_is_an_error_of_ours(garbage):
    with pytest.raises(XmlError):
        from_xml(garbage, REGISTRY)


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.text(max_size=40), st.text("*[]()/=<>!'\"1.-@ andorxtrue", max_size=40)))
def test_garbage_is_an_xpath_or_an_error_of_ours(text):
    for each in (text, f"*[{text}]"):
        with contextlib.suppress(FilterSyntaxError):
            from_xpath(each)
