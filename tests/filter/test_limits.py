"""Filters come from strangers: what is too much is refused at once, what is allowed is read soon.

Every filter that is accepted can be written as canonical text and read again.
"""

import time

import pytest

from angelia import Filter
from angelia.errors import FilterLimitError, FilterSyntaxError
from angelia.event import MAX_ATTRIBUTES, MAX_NAME_LENGTH
from angelia.filter.normal import MAX_COMPARED, MAX_CONJUNCTIONS, MAX_TEXTS
from angelia.filter.operators import MAX_POINTS
from angelia.filter.parser import MAX_CONSTRAINTS, MAX_NESTING, MAX_TEXT_LENGTH


def parse(text):
    return Filter.parse(text)


def failure(text):
    with pytest.raises(FilterSyntaxError) as caught:
        parse(text)
    return caught.value


def fitting(pieces, between):
    """As many of the pieces as a filter has room for."""
    text = between.join(pieces)
    return text[: text.rindex(between, 0, MAX_TEXT_LENGTH - 10)]


NUMBERS = range(20_000)
WIDE = "(" + " or ".join(f"x = {i} and y = 1" for i in range(128)) + ")"

HOSTILE = {
    "100,000 nested parentheses": ("(" * 100_000 + "x = 1" + ")" * 100_000, "200005 characters; at most"),
    "30,000 nested parentheses": ("(" * 30_000 + "x = 1" + ")" * 30_000, "nested deeper than 50 levels"),
    "100,000 nots": ("not " * 100_000 + "x = 1", "400005 characters; at most 65536"),
    "16,000 nots": ("not " * 16_000 + "x = 1", "nested deeper than 50 levels"),
    "nested types": ("(T: " * 10_000 + "x = 1" + ")" * 10_000, "nested deeper than 50 levels"),
    "one megabyte": ('x = "' + "a" * 1_000_000 + '"', "1000006 characters; at most 65536"),
    "20,000 alternatives": (" or ".join(f"x = {i}" for i in NUMBERS), "characters; at most 65536"),
    "20,000 constraints": (" and ".join(f"x{i} = 1" for i in NUMBERS), "characters; at most 65536"),
    "6,000 alternatives": (fitting((f"x={i}" for i in NUMBERS), " or "), "at most 1000 constraints"),
    "6,000 constraints": (fitting((f"x!={i}" for i in NUMBERS), " and "), "at most 1000 constraints"),
    "257 alternatives": (" or ".join(f"x = {i}" for i in range(257)), "expands to 257 alternatives"),
    "257 attributes": (" and ".join(f"x{i} = 1" for i in range(257)), "at most 256 attributes"),
    "2 times 200 attributes": (
        " and ".join(f"x{i} = 1" for i in range(200))
        + " and (" + " and ".join(f"y{i} = 1" for i in range(200)) + ")",
        "at most 256 attributes",
    ),
    "a product": (" and ".join(f"(a{i} = 1 or b{i} = 1)" for i in range(300)), "expands to 512 alternatives"),
    "a negated sum": (
        "not (" + " or ".join(f"(a{i} = 1 and b{i} = 1)" for i in range(300)) + ")",
        "expands to ",
    ),
    "a thousand contains": (
        " and ".join(f'x contains "{i:04}"' for i in range(1000)),
        "at most 64 contains, matches",
    ),
    "a thousand not contains": (
        " and ".join(f'not x contains "{i:04}"' for i in range(1000)),
        "at most 64 contains, matches",
    ),
    "absorbed products": (
        "(" + " or ".join(f"x > {i} and y < {i}" for i in range(64)) + ") and "
        + " and ".join(f"(x > {-i} or y < {1000 + i})" for i in range(300)),
        "more than 4096 combinations",
    ),
    "absorbed negations": (
        f"{WIDE} and " + " and ".join(f"(not x = {1000 + i} or y = 1)" for i in range(30)),
        f"more than {MAX_COMPARED} comparisons",
    ),
    "20,000 values": ("x in (" + fitting(map(str, NUMBERS), ",") + ")", f"at most {MAX_POINTS} are allowed"),
    "long alternatives": (
        " and ".join(f'(x{i} = "{"a" * 200}" or y{i} = 1)' for i in range(7)),
        "characters; at most 65536",
    ),
    "a long name": ("x" * 256 + " = 1", "a name has at most 255 characters"),
    "a long pattern": (f'x matches "{"a" * 1001}"', "1001 characters; at most 1000"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_filter_beyond_a_limit_is_refused_at_once(what):
    text, complaint = HOSTILE[what]
    started = time.process_time()
    error = failure(text)
    assert time.process_time() - started < 1
    assert complaint in str(error)
    assert len(str(error)) < 600
    if what not in ("20,000 values", "a long pattern"):
        assert isinstance(error, FilterLimitError)


ALLOWED = {
    "as deep as may be": "(" * (MAX_NESTING - 1) + "x = 1" + ")" * (MAX_NESTING - 1),
    "as many alternatives as may be": " or ".join(f"x = {i}" for i in range(MAX_CONJUNCTIONS)),
    "as many attributes as may be": " and ".join(f"x{i} = 1" for i in range(MAX_ATTRIBUTES)),
    "as many constraints as may be": " and ".join(f"x != {i}" for i in range(MAX_CONSTRAINTS)),
    "as many negations as may be": " and ".join(f"not x = {i}" for i in range(MAX_CONSTRAINTS)),
    "as many texts as may be": " and ".join(f'x contains "{i:02}"' for i in range(MAX_TEXTS)),
    "as many texts in alternatives": " and ".join(f'not x suffix "{i:02}"' for i in range(MAX_TEXTS)),
    "as long a name as may be": "x" * MAX_NAME_LENGTH + " = 1",
    "many types": " and ".join(f"(T{i}: true)" for i in range(MAX_NESTING + 10)),
    "absorption": f"{WIDE} and " + " and ".join(["(exists x or y = 1)"] * 300),
    "negated lists": " and ".join(
        f"not x in ({', '.join(str(i * 10 + k) for k in range(8))})" for i in range(MAX_CONSTRAINTS)
    ),
    "nested disjunctions": "(" * 40
    + " or ".join(f"x > {i} and y < {i}" for i in range(200))
    + "".join(f") or z{i} = 1" for i in range(40)),
    "negated alternatives": "not (" + " or ".join(f"x = {i}" for i in range(MAX_CONJUNCTIONS)) + ")",
    "values less others": f"x in ({', '.join(map(str, range(1000)))}) and "
    + " and ".join(f"x != {i} and not x between {i}.5 and {i}.6" for i in range(450)),
    "negated ranges": "x > 0 and "
    + " and ".join(f"not x between {3 * i} and {3 * i + 1}" for i in range(MAX_CONSTRAINTS - 1)),
    "a wide in": "x in (" + ", ".join(map(str, range(MAX_POINTS))) + ")",
}


@pytest.mark.parametrize("what", ALLOWED)
def test_a_filter_at_the_limit_is_read_in_bounded_time_and_can_be_written(what):
    started = time.process_time()
    f = parse(ALLOWED[what])
    assert time.process_time() - started < 1
    assert parse(str(f)) == f


def test_what_is_wrong_at_the_start_is_refused_without_reading_the_rest():
    for text in ("=" * MAX_TEXT_LENGTH, ") " * (MAX_TEXT_LENGTH // 2), "x = 1 x " + "= " * 30_000 + "'"):
        assert failure(text).column < 10


def test_limits_hold_for_filters_built_in_python():
    wide = Filter.parse(" or ".join(f"x = {i}" for i in range(20)))
    with pytest.raises(FilterLimitError, match="expands to 400 alternatives"):
        wide & Filter.parse(" or ".join(f"y = {i}" for i in range(20)))
