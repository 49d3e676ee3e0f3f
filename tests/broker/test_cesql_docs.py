"""docs/cesql.md tells the truth."""

import re
from pathlib import Path

import pytest

from angelia import Filter
from angelia.broker.cesql import MAX_NESTING, MAX_STRING_LENGTH, MAX_TEXT_LENGTH, compile_expression
from angelia.broker.cesql.coarse import MAX_ALTERNATIVES
from angelia.broker.cesql.functions import FUNCTIONS
from angelia.broker.cesql.parser import KEYWORDS

PAGE = (Path(__file__).parents[2] / "docs/cesql.md").read_text("utf-8")


def test_the_example_gives_what_the_page_says():
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line.split("  # ") for line in code.splitlines() if "  # " in line]
    names = {"compile_expression": compile_expression}
    exec(next(line for line in code.splitlines() if line.startswith("expression =")), names)
    shown = [repr(eval(call, names)) for call, _ in lines]
    assert [shown[0], shown[2]] == [lines[0][1], lines[2][1]]
    assert "MissingAttributeError" in shown[1]


@pytest.mark.parametrize(
    ("text", "implied"),
    re.findall(r"^\| `([^`]+)` \| `([^`]+)`(?:: everything comes)? \|$", PAGE, re.MULTILINE),
)
def test_an_expression_routes_as_the_page_says(text, implied):
    assert compile_expression(text).coarse_filter() == Filter.parse(implied)


def test_the_page_names_every_function_keyword_and_limit():
    words = set(re.findall(r"[A-Z_]{2,}", PAGE))
    assert words >= FUNCTIONS.keys() | (KEYWORDS - {"FALSE"})
    for limit in (MAX_TEXT_LENGTH, MAX_NESTING, MAX_STRING_LENGTH, MAX_ALTERNATIVES):
        assert f"{limit:,} " in PAGE
