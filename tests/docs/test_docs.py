"""The documentation tells the truth: its examples are run."""

import json
import re
from pathlib import Path

import pytest

from angelia import Event, Filter
from angelia.errors import FilterSyntaxError
from angelia.event import CONTEXT

ROOT = Path(__file__).parents[2]


def blocks(path, kind):
    text = (ROOT / path).read_text("utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


LINES = [line for block in blocks("docs/filters.md", "filter-examples") for line in block.splitlines()]


def event(text):
    data = json.loads(text)
    context = {name: data.pop(f"@{name}") for name in CONTEXT if f"@{name}" in data}
    return Event(data, **context)


def refused(text, part):
    with pytest.raises(FilterSyntaxError, match=re.escape(part)):
        Filter.parse(text)
    return True


VERBS = {
    "matches": lambda a, b: Filter.parse(b).matches(event(a)),
    "no match": lambda a, b: not Filter.parse(b).matches(event(a)),
    "prints": lambda a, b: str(Filter.parse(a)) == b and Filter.parse(b) == Filter.parse(a),
    "covers": lambda a, b: Filter.parse(a).covers(Filter.parse(b)),
    "not covers": lambda a, b: not Filter.parse(a).covers(Filter.parse(b)),
    "overlaps": lambda a, b: Filter.parse(a).overlaps(Filter.parse(b)),
    "not overlaps": lambda a, b: not Filter.parse(a).overlaps(Filter.parse(b)),
}


@pytest.mark.parametrize("line", LINES)
def test_an_example_of_the_filter_specification_holds(line):
    verb, *arguments = [part.strip() for part in re.split(r" \|(?: |$)", line)]
    if verb.startswith("error:"):
        assert refused(arguments[0], verb.removeprefix("error:").strip())
    else:
        assert VERBS[verb](*arguments)


def test_the_specification_has_examples_of_every_sort():
    assert len(LINES) > 60
    assert {re.split(r" +\|", line)[0] for line in LINES} >= VERBS.keys()


@pytest.mark.parametrize("path", ["README.md", "docs/types.md", "docs/xml.md"])
def test_the_python_of_a_page_runs(path):
    code = "\n".join(blocks(path, "python"))
    assert code
    exec(compile(code, path, "exec"), {"__name__": "page"})


@pytest.mark.parametrize("path", ["README.md", *[f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")]])
def test_links_between_pages_lead_somewhere(path):
    page = ROOT / path
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing
