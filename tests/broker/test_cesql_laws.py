"""CESQL under random expressions: total, bounded, and never filtered away by routing."""

import itertools
import random
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angelia import Event, Filter
from angelia.broker.cesql import (
    MAX_NESTING,
    MAX_STRING_LENGTH,
    MAX_TEXT_LENGTH,
    FaultKind,
    compile_expression,
)
from angelia.broker.cesql.like import LikePattern
from angelia.errors import CesqlError

WORDS = ["", "a", "ab", "ba", "abab", "true", "false", "1", "-2", "07"]
CONTEXT = ["type", "source", "subject", "id"]
NAMES = [*CONTEXT, "time", "specversion", "datacontenttype", "ext", "other"]


def quoted(text):
    return "'" + text.replace("'", r"\'") + "'"


literals = st.one_of(
    st.sampled_from(WORDS).map(quoted),
    st.sampled_from(["TRUE", "FALSE", "0", "1", "-2", "2147483647", "-2147483648"]),
)
patterns = st.text("ab%_1", max_size=5).map(quoted)
names = st.sampled_from(NAMES)


def listed(parts):
    return st.lists(parts, min_size=1, max_size=3).map(", ".join)


binary = st.sampled_from(["AND", "OR", "XOR", "=", "!=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%"])
unary = st.sampled_from(["INT", "BOOL", "LENGTH", "UPPER", "CONCAT", "NOSUCH"])


def grown(parts):
    inner = parts.map(lambda text: f"({text})")
    return st.one_of(
        st.tuples(inner, binary, inner).map(" ".join),
        st.tuples(inner, binary, inner, binary, inner).map(" ".join),
        st.tuples(st.sampled_from(["NOT", "-"]), inner).map(" ".join),
        st.tuples(inner, st.sampled_from(["LIKE", "NOT LIKE"]), patterns).map(" ".join),
        st.builds("{} {} ({})".format, inner, st.sampled_from(["IN", "NOT IN"]), listed(parts)),
        st.builds("{}({})".format, unary, parts),
        st.builds("LEFT({}, {})".format, parts, parts),
        st.builds("SUBSTRING({}, {}, {})".format, parts, parts, parts),
    )


tests = st.one_of(
    st.builds("{} {} {}".format, names, st.sampled_from(["=", "!="]), literals),
    st.builds("{} {} {}".format, literals, st.sampled_from(["=", "<>"]), names),
    st.builds("{} {} {}".format, names, st.sampled_from(["LIKE", "NOT LIKE"]), patterns),
    st.builds("{} {} ({})".format, names, st.sampled_from(["IN", "NOT IN"]), listed(literals)),
    names.map("EXISTS {}".format),
)
expressions = st.recursive(st.one_of(tests, tests, names, literals), grown, max_leaves=8)
values = st.one_of(st.sampled_from(WORDS), st.booleans(), st.sampled_from([0, 1, -2, 7, 2**31 - 1]))
cloudevents = st.dictionaries(names, values)


def seen_at_the_door(seed):
    """An event of ours, and the attributes that the door shows of it."""
    draw = random.Random(seed)
    context = {name: draw.choice(WORDS[1:]) for name in CONTEXT if draw.random() < 0.7}
    extensions = {name: draw.choice([*WORDS, True, False, 0, 1, -2]) for name in ("ext", "other")}
    extensions = {name: value for name, value in extensions.items() if draw.random() < 0.7}
    return Event(extensions, **context), {"specversion": "1.0", **context, **extensions}


EVENTS = [seen_at_the_door(seed) for seed in range(100)]


def assert_nothing_is_lost(text):
    expression = compile_expression(text)
    coarse, finer = expression.coarse_filter(), expression.coarse_filter(extension=str)
    for event, attributes in EVENTS:
        if expression.matches(attributes):
            assert coarse.matches(event)
            assert finer.matches(event)


LITERALS = [*map(quoted, WORDS), "TRUE", "FALSE", "0", "1", "-2"]
PATTERNS = ["".join(p) for length in range(5) for p in itertools.product("ab%_", repeat=length)]


@pytest.mark.parametrize("name", ["type", "ext"])
def test_an_event_that_passes_a_single_test_matches_the_coarse_filter(name):
    for literal in LITERALS:
        for operator in ("=", "!=", "<"):
            assert_nothing_is_lost(f"{name} {operator} {literal}")
            assert_nothing_is_lost(f"{literal} {operator} {name}")
        for operator in ("IN", "NOT IN"):
            assert_nothing_is_lost(f"{name} {operator} ('ab', {literal})")
    for pattern in PATTERNS:
        assert_nothing_is_lost(f"{name} LIKE '{pattern}'")
        assert_nothing_is_lost(f"{name} NOT LIKE '{pattern}'")


@settings(deadline=None, max_examples=400)
@given(expressions)
def test_an_event_that_passes_matches_the_coarse_filter(text):
    assert_nothing_is_lost(text)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(["AND", "OR", "XOR"]), tests), min_size=2, max_size=6))
def test_an_event_that_passes_a_chain_of_tests_matches_the_coarse_filter(parts):
    assert_nothing_is_lost(" ".join(f"{operator} {test}" for operator, test in parts).split(" ", 1)[1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("type = 'a'", '@type = "a"'),
        ("'a' = type", '@type = "a"'),
        ("type != 'a'", '@type != "a"'),
        ("NOT (type = 'a')", '@type != "a"'),
        ("type = 5", "exists @type"),  # '05' too
        ("5 = type", '@type = "5"'),
        ("type < 5", "exists @type"),
        ("type LIKE 'a.%'", '@type prefix "a."'),
        ("type LIKE '%.a'", '@type suffix ".a"'),
        ("type LIKE '%a%'", '@type contains "a"'),
        ("type LIKE 'a%b%c'", '@type prefix "a" and @type suffix "c" and @type contains "b"'),
        ("type LIKE 'a_c'", '@type prefix "a" and @type suffix "c"'),
        ("type NOT LIKE 'a%'", 'exists @type and not @type prefix "a"'),
        ("type NOT LIKE 'a%b'", "exists @type"),
        ("type IN ('a', 5, TRUE)", '@type in ("a", "5", "true")'),
        ("type IN ('a', id)", "exists @type"),
        ("EXISTS subject", "exists @subject"),
        ("NOT EXISTS subject", "not exists @subject"),
        ("EXISTS type", "true"),
        ("EXISTS time", "exists @time"),
        ("time = '2026-01-01T00:00:00Z'", "exists @time"),
        ("LENGTH(subject) > 3", "exists @subject"),
        ("type = 'a' AND subject = 'b'", '@type = "a" and @subject = "b"'),
        ("type = 'a' OR subject = 'b'", '@type = "a" and exists @type or exists @type and @subject = "b"'),
        ("type = 'a' AND cargo > 5", '@type = "a"'),
        ("cargo > 5 OR type = 'a'", "true"),
        ("datacontenttype = 'text/plain'", "true"),
        ("TRUE", "true"),
        ("FALSE", "false"),
        ("NOSUCH() AND type = 'a'", "false"),
    ],
)
def test_the_coarse_filter_says_what_the_filter_language_can(text, expected):
    assert compile_expression(text).coarse_filter() == Filter.parse(expected)


def test_extensions_are_looked_at_where_events_hold_them():
    expression = compile_expression("cargo = 'fish' AND crates = '12' AND fresh = 'true'")
    assert expression.coarse_filter() == Filter.parse("true")
    expected = (
        'x.cargo = "fish" and (x.crates = "12" or x.crates = 12) and (x.fresh = "true" or x.fresh = true)'
    )
    assert expression.coarse_filter(lambda name: f"x.{name}") == Filter.parse(expected)


def test_integers_of_64_bits_are_strings_at_the_door_but_not_in_the_event():
    for number in (2**31, 10**18 + 1, 2**63 - 1, -(2**63)):
        expression = compile_expression(f"ext = '{number}'")
        assert expression.matches({"ext": number})
        assert expression.coarse_filter(extension=str).matches(Event({"ext": number}))


@pytest.mark.parametrize("value", [1.5, ["a"], []])
def test_an_attribute_that_is_no_extension_is_as_if_it_were_not_there(value):
    event, attributes = Event({"ext": value}, type="a"), {"type": "a"}
    for text in ("NOT EXISTS ext", "NOT EXISTS ext AND type = 'a'", "EXISTS ext XOR TRUE"):
        assert compile_expression(text).matches(attributes)
        assert compile_expression(text).coarse_filter(extension=str).matches(event)


def test_what_the_filter_language_cannot_hold_is_left_out():
    for text in (f"{'x' * 300} = 'a'", f"EXISTS {'x' * 300}", "type = '\ud800'", "type LIKE 'a%\ud800'"):
        assert compile_expression(text).coarse_filter(extension=str).matches(Event(type="a"))


def test_a_coarse_filter_stays_small():
    tangled = " AND ".join(f"(type = 't{i}' OR subject LIKE 's{i}%')" for i in range(150))
    started = time.process_time()
    for text in (tangled, tangled.replace(" AND (", " XOR ("), f"NOT ({tangled})"):
        implied = compile_expression(text).coarse_filter()
        assert Filter.parse(str(implied)) == implied
        assert len(implied.conjunctions) <= 32
    assert time.process_time() - started < 5


@settings(deadline=None, max_examples=500)
@given(expressions, cloudevents)
def test_evaluation_is_total_and_the_two_modes_agree(text, attributes):
    expression = compile_expression(text)
    before = dict(attributes)
    value, fault = expression.evaluate(attributes)
    complete, faults = expression.evaluate_completely(attributes)
    assert type(value) in (str, int, bool)
    assert type(complete) in (str, int, bool)
    assert fault == (faults[0] if faults else None)
    assert faults or (type(value), value) == (type(complete), complete)
    assert expression.matches(attributes) is (value is True and fault is None)
    assert all(1 <= fault.column <= len(text) for fault in faults)
    assert attributes == before


@settings(deadline=None, max_examples=500)
@given(st.text("ab%_\\", max_size=8), st.text("ab%_\\", max_size=10))
def test_like_is_as_a_regular_expression_says(pattern, text):
    parts = re.findall(r"\\[%_]|.", pattern)
    translated = "".join({"%": ".*", "_": "."}.get(part) or re.escape(part[-1]) for part in parts)
    assert LikePattern(pattern).matches(text) is bool(re.fullmatch(translated, text))


# ---------------------------------------------------------------- strangers


def assert_expression_or_parse_error(text):
    columns = [1]
    try:
        compile_expression(text).evaluate({"a": "b"})
    except CesqlError as error:
        columns.append(error.column)
    assert all(1 <= column <= len(text) + 1 for column in columns)


@settings(deadline=None, max_examples=500)
@given(st.one_of(st.text(max_size=60), st.text("()',\"\\ ab1A_-+=<>!%*/NOTIN", max_size=60)))
def test_garbage_is_an_expression_or_a_parse_error(text):
    assert_expression_or_parse_error(text)


@settings(deadline=None)
@given(expressions, st.data())
def test_a_damaged_expression_is_an_expression_or_a_parse_error(text, data):
    at = data.draw(st.integers(0, len(text)))
    damaged = (
        text[:at] + data.draw(st.sampled_from(["", "'", "(", ")", "NOT ", "-", "\\", "é"])) + text[at + 1 :]
    )
    assert_expression_or_parse_error(damaged)


def test_an_expression_is_of_limited_length():
    compile_expression("'" + "x" * (MAX_TEXT_LENGTH - 2) + "'")
    with pytest.raises(CesqlError, match="at most 8192 are allowed"):
        compile_expression("'" + "x" * MAX_TEXT_LENGTH + "'")


@pytest.mark.parametrize(
    "nest",
    [
        lambda n: "(" * n + "TRUE" + ")" * n,
        lambda n: "NOT " * n + "TRUE",
        lambda n: "- " * n + "1",
        lambda n: "ABS(" * n + "1" + ")" * n,
        lambda n: "1 IN (" * n + "1" + ")" * n,
        lambda n: "1 OR 1 = 1 + 1 * (" * n + "1" + ")" * n,
    ],
)
def test_an_expression_is_of_limited_depth(nest):
    expression = compile_expression(nest(MAX_NESTING))
    expression.evaluate({})
    expression.coarse_filter()
    with pytest.raises(CesqlError, match="nested deeper than 40 levels"):
        compile_expression(nest(MAX_NESTING + 1))
    with pytest.raises(CesqlError):
        compile_expression(nest(400))


@pytest.mark.parametrize("operator", ["OR", "AND", "XOR", "=", "<", "+", "*", "%"])
def test_a_long_chain_is_not_deep(operator):
    expression = compile_expression(f" {operator} ".join(["1"] * 1000))
    value, _ = expression.evaluate({})
    expression.coarse_filter()
    if operator in "+*":
        assert value == (1000 if operator == "+" else 1)


LONG = "a" * MAX_STRING_LENGTH


@pytest.mark.parametrize(
    "text",
    [
        f"subject LIKE '{'%a_' * 2000}b'",
        f"subject LIKE '{'a%' * 3000}b'",
        f"subject LIKE '%{'a' * 6000}b%'",
        f"subject LIKE '%{'a_' * 3000}b%'",
        "CONCAT(" + ", ".join(["subject"] * 900) + ") = 'a'",
        "CONCAT(subject, " * 39 + "''" + ")" * 39 + " = 'a'",
        "UPPER(subject) = 'a' OR " * 330 + "FALSE",
        "subject = 1 OR " * 500 + "FALSE",
        "INT(CONCAT('1', subject)) = 1",
        "IS_INT(subject) OR " * 400 + "FALSE",
    ],
)
def test_no_expression_takes_long(text):
    started = time.process_time()
    for subject in (LONG, "0" * MAX_STRING_LENGTH):
        expression = compile_expression(text)
        expression.evaluate_completely({"subject": subject})
        expression.coarse_filter()
    assert time.process_time() - started < 2


def test_no_function_makes_a_string_beyond_the_limit():
    value, fault = compile_expression("CONCAT(subject, 'b')").evaluate({"subject": LONG})
    assert (value, fault.kind) == ("", FaultKind.FUNCTION_EVALUATION)
    value, fault = compile_expression("UPPER(subject)").evaluate({"subject": "ß" * MAX_STRING_LENGTH})
    assert (value, fault.kind) == ("", FaultKind.FUNCTION_EVALUATION)
