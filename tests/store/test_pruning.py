"""Pruning never loses a match; and it does prune."""

from __future__ import annotations

import math
from datetime import timedelta
from pathlib import Path

import pyarrow.dataset as ds
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.helpers import START, ids, lake_of

from angelia import Event, Filter
from angelia.store import Lake, pruning_expression
from angelia.store.columns import discover, table_of
from angelia.store.segment import Parts

TEXTS = ["", "a", "ab", "abc", "b", "ü", "\U0010ffff", "a\0"]
NUMBERS = [0, -0.0, 1, 1.5, 2, -3, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 1e300, math.inf, -math.inf, 0.1]
SCALARS = [*TEXTS, *NUMBERS, math.nan, True, False, START, START + timedelta(microseconds=1)]

scalars = st.sampled_from(SCALARS)
values = scalars | st.lists(scalars, max_size=3)
rows = st.lists(st.dictionaries(st.sampled_from("xyz"), values, max_size=3), min_size=1, max_size=6)


def literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value.replace("\0", "\\0") + '"'
    if hasattr(value, "isoformat"):
        return f't"{value.isoformat()}"'
    return repr(value)


plain = st.sampled_from(
    [
        value
        for value in SCALARS
        if not (isinstance(value, float) and not math.isfinite(value)) and value != "a\0"
    ]
)
names = st.sampled_from(["x", "y", "z", "@id", "@time", "@type"])
constraints = st.one_of(
    st.builds(
        lambda name, operator, value: f"{name} {operator} {literal(value)}",
        names,
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        plain,
    ),
    st.builds(
        lambda name, some: f"{name} in ({', '.join(map(literal, some))})",
        names,
        st.lists(plain, min_size=1, max_size=4),
    ),
    st.builds(
        lambda name, operator, text: f'{name} {operator} "{text}"',
        names,
        st.sampled_from(["prefix", "suffix", "contains"]),
        st.sampled_from(["a", "ab", "ü"]),
    ),
    st.builds(lambda name: f"exists {name}", names),
)
texts = st.recursive(
    constraints,
    lambda inner: st.one_of(
        st.builds(lambda a, b: f"({a}) and ({b})", inner, inner),
        st.builds(lambda a, b: f"({a}) or ({b})", inner, inner),
        st.builds(lambda a: f"not ({a})", inner),
    ),
    max_leaves=4,
)


def parsed(text: str) -> Filter | None:
    try:
        return Filter.parse(text)
    except ValueError:  # `true < 1`, `x < true` and the like
        return None


@given(rows, texts)
@settings(max_examples=600, deadline=None)
def test_no_row_that_matches_is_pruned(attributes: list[dict[str, object]], text: str) -> None:
    wanted = parsed(text)
    if wanted is None:
        return
    happened = [Event(each, id=str(n), time=START) for n, each in enumerate(attributes)]
    parts = [Parts(dict(e.attributes), None, None, None, e.id, e.time) for e in happened]
    table = table_of(parts, discover((row.attributes for row in parts), {}), None)
    kept = table.filter(pruning_expression(wanted, table.schema)).column("@id").to_pylist()
    assert {e.id for e in happened if wanted.matches(e)} <= set(kept)


@given(st.lists(rows, min_size=1, max_size=3), texts)
@settings(max_examples=25, deadline=None)
def test_a_scan_finds_exactly_what_the_filter_matches(
    tmp_path_factory: object, batches: list[list[dict[str, object]]], text: str
) -> None:
    wanted = parsed(text)
    if wanted is None:
        return
    path: Path = tmp_path_factory.mktemp("lake")  # type: ignore[attr-defined]
    written = [
        [Event(each, id=f"{b}-{n}", time=START + timedelta(hours=b)) for n, each in enumerate(batch)]
        for b, batch in enumerate(batches)
    ]
    lake = lake_of(path, *written)
    matching = [event.id for batch in written for event in batch if wanted.matches(event)]
    assert sorted(ids(lake.events(filter=wanted))) == sorted(matching)  # type: ignore[type-var]
    assert lake.table(filter=wanted).num_rows == len(matching)
    assert lake.problems == []


def test_row_groups_are_skipped_by_their_statistics(tmp_path: Path) -> None:
    many = [
        Event({"n": n, "s": f"{n:06}"}, id=str(n), time=START + timedelta(milliseconds=n))
        for n in range(70_000)
    ]
    lake = lake_of(tmp_path, many)
    (file,) = lake.files()
    fragment = next(ds.dataset(file.path).get_fragments())
    for text, groups in [
        ("n >= 69000", 1),
        ('s prefix "00"', 1),
        ("n = 40000", 1),
        ("n < -1", 0),
        ("x = 1", 0),
    ]:
        expression = pruning_expression(Filter.parse(text), fragment.physical_schema)
        assert len(fragment.subset(expression).row_groups) == groups, text
    assert [e["n"] for e in Lake(tmp_path).events(filter="n between 32760 and 32775")] == list(
        range(32760, 32776)
    )
