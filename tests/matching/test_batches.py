"""A batch finds for each row what a single match finds, whatever the columns are made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from angelia import EventType, Filter, TypeRegistry
from angelia.errors import AngeliaError
from angelia.matching import BatchError, Matcher

START = datetime(2026, 1, 1, tzinfo=UTC)
TEXTS = (
    'name = "ab"', 'name prefix "a"', 'name suffix "b"', 'name contains "é"', 'name in ("a", "b", "")',
    'name != "a"', "exists name", "not exists name", "price < 2.5", "price >= 2", "price = 2",
    "not price = 2", "price is number", "count = 9007199254740993", "count > 9007199254740992",
    "count != 0", "flag = true", "not flag = true", 'at >= t"2026-01-01T00:00:00.000001Z"',
    'at = t"2026-01-01T00:00:00Z"', 'tags = "x"', 'not tags = "x"', 'tags != "x"',
    'tags > "a" and tags < "c"', 'name = "ab" or price = 2', 'name matches "^a.*b$"', "true",
)  # fmt: skip


@cache
def matcher_of(texts: tuple[str, ...] = TEXTS, engine: Any = "compiled") -> Matcher:
    matcher = Matcher(engine=engine)
    matcher.add_all({i: Filter.parse(text) for i, text in enumerate(texts)})
    return matcher


def rows_found(offsets: Any, ids: Any) -> list[list[Any]]:
    return [sorted(ids[offsets[i] : offsets[i + 1]]) for i in range(len(offsets) - 1)]


def assert_as_single(matcher: Matcher, batch: Any, rows: list[dict[str, Any]]) -> None:
    single = [sorted(matcher.match({k: v for k, v in row.items() if v is not None})) for row in rows]
    assert rows_found(*matcher.match_batch(batch)) == single


ROWS = st.fixed_dictionaries(
    {
        "name": st.sampled_from((None, "", "a", "ab", "b", "é", "abb")),
        "price": st.sampled_from((None, 2.0, 2.5, 1.0, float("nan"), float("inf"))),
        "count": st.sampled_from((None, 0, 2**53, 2**53 + 1, -(2**63), 2**63 - 1)),
        "flag": st.sampled_from((None, True, False)),
        "at": st.sampled_from((None, START, START + timedelta(microseconds=1))),
        "tags": st.sampled_from((None, (), ("x",), ("x", "b"), ("a", "c"), ("d", "a"))),
    }
)
SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("price", pa.float64()),
        ("count", pa.int64()),
        ("flag", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
    ]
)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(ROWS, max_size=20),
    st.integers(0, 20),
    st.sampled_from(("plain", "dictionary", "chunked", "batch")),
)
def test_tables_with_nulls_chunks_and_dictionaries(rows: list[dict[str, Any]], cut: int, form: str) -> None:
    table: Any = pa.Table.from_pylist(rows, SCHEMA)
    if form == "dictionary":
        table = table.set_column(0, "name", table["name"].dictionary_encode())
    elif form == "chunked":
        table = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    elif form == "batch":
        table, rows = table.combine_chunks().slice(cut), rows[cut:]
        table = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], SCHEMA)
    assert_as_single(matcher_of(), table, rows)


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.large_string())]
)
def test_every_kind_of_string_column(kind: pa.DataType) -> None:
    names = ["ab", None, "", "é" * 20, "b"]
    table = pa.table({"name": pa.array(names).cast(kind)})
    assert_as_single(matcher_of(), table, [{"name": name} for name in names])


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.uint8(),
        pa.int16(),
        pa.uint16(),
        pa.int32(),
        pa.uint32(),
        pa.uint64(),
        pa.float16(),
        pa.float32(),
    ],
)
def test_every_width_of_number(kind: pa.DataType) -> None:
    values = [0, 2, None, 3, 100]
    column = (
        pa.array([None if v is None else np.float16(v) for v in values], kind)
        if kind == pa.float16()
        else pa.array(values, kind)
    )
    assert_as_single(matcher_of(), pa.table({"price": column}).slice(1), [{"price": v} for v in values[1:]])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Rome"])
def test_timestamps_of_every_unit_and_zone(unit: str, zone: str | None) -> None:
    times = [START, None, START + timedelta(seconds=1), START - timedelta(days=40_000)]
    plain = [None if at is None else at.replace(tzinfo=None) for at in times]
    column = pa.array(plain, pa.timestamp("us")).cast(pa.timestamp(unit)).cast(pa.timestamp(unit, zone))
    if zone == "Europe/Rome":
        column = pa.array(times, pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, zone))
    assert_as_single(matcher_of(), pa.table({"at": column}), [{"at": at} for at in times])


def test_digits_beyond_the_microsecond_are_cut_off() -> None:
    nanoseconds = [1767225600_000000999, 1767225600_000001000, 1767225600_000001999]
    table = pa.table({"at": pa.array(nanoseconds, pa.timestamp("ns", "UTC"))})
    times = [START, START + timedelta(microseconds=1), START + timedelta(microseconds=1)]
    assert_as_single(matcher_of(), table, [{"at": at} for at in times])


def test_struct_columns_are_taken_apart() -> None:
    matcher = matcher_of(("order.total > 5", 'order.to.city prefix "R"', "exists order.total"))
    rows = [
        {"order": {"total": 7, "to": {"city": "Rome"}}},
        {"order": None},
        {"order": {"total": None, "to": None}},
    ]
    kind = pa.struct([("total", pa.int64()), ("to", pa.struct([("city", pa.string())]))])
    table = pa.table({"order": pa.array([row["order"] for row in rows], kind)})
    assert rows_found(*matcher.match_batch(table)) == [[0, 1, 2], [], []]


def test_lists_of_numbers_with_nulls_inside() -> None:
    matcher = matcher_of(("price > 1 and price < 3", "price = 9", "not price = 9"))
    lists = [[1, 9], [2], [None, 2.5], [], None, [9, 0]]
    table = pa.table({"price": pa.array(lists, pa.list_(pa.float64()))})
    want = [[1], [0, 2], [0, 2], [2], [2], [1]]
    assert rows_found(*matcher.match_batch(table)) == want
    assert rows_found(*matcher.match_batch(table.slice(2))) == want[2:]
    fixed = pa.table({"price": pa.array([[1, 9], [2, 2]], pa.list_(pa.int32(), 2))})
    assert rows_found(*matcher.match_batch(fixed)) == [[1], [0, 2]]


def test_numpy_columns_of_every_kind() -> None:
    columns = {
        "name": np.array(["ab", "a", "q"]),
        "price": np.ma.masked_array([2.0, 1.0, 2.5], mask=[False, True, False]),
        "count": np.array([0, 2**53 + 1, 5]),
        "flag": np.array([True, False, True]),
        "at": np.array(["2026-01-01", "NaT", "2026-01-02"], "datetime64[s]"),
        "tags": np.array([("x", "b"), None, "x"], object),
    }
    rows = [
        {"name": "ab", "price": 2.0, "count": 0, "flag": True, "at": START, "tags": ("x", "b")},
        {"name": "a", "count": 2**53 + 1, "flag": False},
        {"name": "q", "price": 2.5, "count": 5, "flag": True, "at": START + timedelta(days=1), "tags": "x"},
    ]
    assert_as_single(matcher_of(), columns, rows)
    assert rows_found(*matcher_of(engine="pure").match_batch(columns | {"price": [2.0, None, 2.5]}))[0]


def test_a_column_may_mix_kinds() -> None:
    values = ["ab", 2, 2.5, True, START, None, ("a", 2)]
    column = np.empty(len(values), object)
    column[:] = values
    matcher = matcher_of(
        ('name = "ab"', "name = 2", "name = true", "name > 2", "exists name", "name is timestamp")
    )
    assert_as_single(matcher, {"name": column}, [{"name": value} for value in values])


def test_the_context_has_columns_of_its_own() -> None:
    types = TypeRegistry([EventType("Base"), EventType("Leaf", parent="Base")])
    matcher = Matcher(types, engine="compiled")
    matcher.add_all({0: Filter.parse("Base: price > 1"), 1: Filter.parse('@source prefix "feeds/"')})
    table = pa.table(
        {"@type": ["Leaf", "Other", None], "@source": ["feeds/a", None, "b"], "price": [2, 2, 2]}
    )
    assert rows_found(*matcher.match_batch(table)) == [[0, 1], [], []]
    types.add(EventType("Other", parent="Leaf"))
    assert rows_found(*matcher.match_batch(table)) == [[0, 1], [0], []]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([Decimal("2")]),
        pa.array([b"x"]),
        pa.array([1], pa.date32()),
        pa.array([[["x"]]]),
        pa.array([{"a": 1}]),
        pa.array([2**63], pa.uint64()),
        np.array([b"x"]),
        np.array([1j]),
        [object()],
        ["\ud800"],
    ],
)
def test_what_an_event_cannot_have_is_refused_by_name(column: Any) -> None:
    batch = pa.table({"price": column}) if isinstance(column, pa.Array) else {"price": column}
    if isinstance(column, pa.Array) and pa.types.is_struct(column.type):
        assert rows_found(*matcher_of(("not exists price",)).match_batch(batch)) == [[0]]
        return
    with pytest.raises(AngeliaError, match="price"):
        matcher_of(("price < 5", 'price = "x"')).match_batch(batch)


def test_columns_that_no_filter_asks_about_are_not_looked_at() -> None:
    batch = {"price": [2], "other": [object()]}
    assert rows_found(*matcher_of(("price = 2",)).match_batch(batch)) == [[0]]


def test_what_is_no_batch_is_refused() -> None:
    for engine in ("pure", "compiled"):
        with pytest.raises(BatchError, match="lengths"):
            matcher_of(engine=engine).match_batch({"a": [1], "b": [1, 2]})
        with pytest.raises(BatchError, match="batch"):
            matcher_of(engine=engine).match_batch([{"a": 1}])
    with pytest.raises(BatchError, match="twice"):
        matcher_of().match_batch(pa.table([[1], [2]], ["price", "price"]))


@pytest.mark.parametrize("engine", ["pure", "compiled"])
def test_an_empty_batch_has_no_rows(engine: str) -> None:
    for batch in ({"price": []}, {}, pa.table({"price": pa.array([], pa.int64())})):
        offsets, ids = matcher_of(engine=engine).match_batch(batch)
        assert list(offsets) == [0]
        assert len(ids) == 0
    offsets, ids = Matcher(engine="compiled").match_batch(pa.table({"price": [1, 2]}))
    assert (list(offsets), len(ids)) == ([0, 0, 0], 0)


def test_more_matches_than_any_buffer_holds() -> None:
    matcher = matcher_of(tuple(f"price > {i % 7}" for i in range(3_000)))
    table = pa.table({"price": np.arange(20_000) % 10})
    offsets, ids = matcher.match_batch(table)
    assert offsets[-1] == len(ids) == sum(len(matcher.match({"price": p})) * 2_000 for p in range(10))
    assert rows_found(offsets[-3:] - offsets[-3], ids[offsets[-3] :]) == [
        sorted(matcher.match({"price": p})) for p in (8, 9)
    ]


def test_ids_are_int64_if_all_are_integers_else_objects() -> None:
    batch = pa.table({"price": [2]})
    for ids, kind in (([1, 2], np.int64), (["s1", 2], object), ([(1, 2), (3, 4)], object), ([2**70], object)):
        matcher = Matcher(engine="compiled")
        matcher.add_all({id_: Filter.parse("price = 2") for id_ in ids})
        found = matcher.match_batch(batch)[1]
        assert found.dtype == kind
        assert set(found.tolist()) == set(matcher.match({"price": 2})) == set(ids)


def test_many_distinct_strings_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from angelia.matching import encode

    monkeypatch.setattr(encode, "MAX_LEARNT", 100)
    matcher = matcher_of()
    for start in range(0, 2_000, 250):
        names = [f"a{i}b" if i % 2 else f"{i}" for i in range(start, start + 250)]
        assert_as_single(matcher, pa.table({"name": names}), [{"name": name} for name in names])
    (snapshot,) = matcher._store.view.snapshots
    assert len(snapshot._encoder.codes["name"]) < 1_000
