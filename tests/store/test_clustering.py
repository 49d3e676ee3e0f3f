"""Clustering: who asks for one value of a scattered attribute reads little, and in order of time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.store.helpers import START, damage, ids

from angelia.errors import LakeError
from angelia.store import Lake
from angelia.store.catalog import Catalog
from angelia.store.clustering import CLUSTER_KEY, clustered
from angelia.store.columns import TIME, arrow_column, schema_of
from angelia.store.compact import compact
from angelia.store.layout import date_folder, events_folder, file_name, folder_of
from angelia.store.rolling import write_table

ROWS = 200_000
TYPE = "flights.Departure"

T = TypeVar("T")


def departures(rows: int, first: int = 0) -> pa.Table:
    """Flights of 1,000 tails to 200 places, in order of time; `leg` counts on, ten events each."""
    draw = np.random.default_rng(first)
    number = np.arange(first, first + rows)
    names = lambda prefix, some: pa.array([f"{prefix}{n:04}" for n in some])  # noqa: E731
    attributes = {
        "tail": names("N", range(1000)).take(pa.array(draw.integers(0, 1000, rows))),
        "dest": names("D", range(200)).take(pa.array(draw.integers(0, 200, rows))),
        "leg": pa.array(number // 10),
        "delay": pa.array(draw.random(rows)),
        "weight": pa.array(draw.random(rows)),
    }
    micros = round(START.timestamp() * 1e6) + number * 10_000
    columns = {
        "@id": pa.array(number).cast(pa.string()),
        "@type": pa.array([TYPE] * rows),
        "@source": pa.nulls(rows, pa.string()),
        "@subject": pa.nulls(rows, pa.string()),
        "@time": pa.array(micros).cast(TIME),
        **attributes,
        "@rest": pa.nulls(rows, pa.string()),
    }
    kinds = {name: arrow_column(array.type) for name, array in attributes.items()}
    return pa.table(columns, schema=schema_of(kinds, TYPE))  # type: ignore[arg-type]


def written(path: Path, *tables: pa.Table) -> Lake:
    for number, table in enumerate(tables):
        columns = {name: arrow_column(table.schema.field(name).type) for name in table.column_names[5:-1]}
        Catalog(path).settle(folder_of(TYPE), columns)  # type: ignore[arg-type]
        folder = events_folder(path) / folder_of(TYPE) / date_folder(START)
        write_table(table, folder / file_name("b1", number, TYPE), durable=False)
    return Lake(path)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    path = tmp_path_factory.mktemp("lake")
    return written(path, departures(ROWS // 2), departures(ROWS // 2, ROWS // 2))


def share_read(lake: Lake, read: Callable[[], T]) -> tuple[float, T]:
    """Which share of the lake's bytes a thread reads, and what it finds.

    All that is read once, such as modules, is read before, and other threads read what they like: what is
    left is read of the lake's files.
    """

    def count() -> int:
        lines = Path("/proc/thread-self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["rchar"])

    read()
    before = count()
    found = read()
    return (count() - before) / sum(file.size for file in lake.files()), found


def expected(condition: pa.ChunkedArray, table: pa.Table) -> list[str]:
    found: list[str] = table.filter(condition).column("@id").to_pylist()
    return found


def all_ids(lake: Lake) -> list[str]:
    whole = pa.Table.from_batches(lake.scan(columns=["@id"]))  # without the time it is sorted by
    found: list[str] = whole.column("@id").to_pylist()
    return found


def test_a_replay_of_one_in_a_thousand_scattered_events_reads_little_and_is_in_order(lake: Lake) -> None:
    every = pa.concat_tables([departures(ROWS // 2), departures(ROWS // 2, ROWS // 2)])
    wanted = expected(pa.compute.equal(every.column("tail"), "N0123"), every)
    share, found = share_read(lake, lambda: ids(lake.events(filter='tail = "N0123"')))
    assert found == wanted
    assert 100 < len(found) < 300
    assert share < 0.05
    share, table = share_read(lake, lambda: lake.table(filter='tail = "N0123" and delay < 0.5'))
    assert table.num_rows < 150
    assert share < 0.05


def test_all_of_a_clustered_file_comes_in_order_of_time(lake: Lake) -> None:
    assert all_ids(lake) == [str(n) for n in range(ROWS)]
    since, until = START + timedelta(seconds=500), START + timedelta(seconds=520)
    assert ids(lake.events(since=since, until=until)) == [str(n) for n in range(50_000, 52_000)]


def test_other_readers_find_the_same_rows(lake: Lake) -> None:
    first, _ = lake.files()
    table = pq.read_table(first.path, partitioning=None)
    assert table.schema.metadata[CLUSTER_KEY] == b"tail"
    assert table.sort_by("@time").equals(departures(ROWS // 2))


@pytest.mark.parametrize(
    ("left_out", "key"),
    [
        ([], "tail"),
        (["tail"], "dest"),
        (["tail", "dest"], None),  # legs follow each other, ids are there once, and delays are no names
    ],
)
def test_the_key_has_many_values_that_recur_all_over(left_out: list[str], key: str | None) -> None:
    found = clustered(departures(20_000).drop_columns(left_out))
    assert (found and found.key) == key


def test_a_small_table_is_not_clustered() -> None:
    assert clustered(departures(10_000)) is None


def test_a_compaction_clusters_by_what_it_is_told(tmp_path: Path) -> None:
    lake = written(tmp_path, *(departures(40_000, start) for start in range(0, ROWS, 40_000)))
    with pytest.raises(LakeError, match=r"cannot be clustered by 'tial', but by @id, .*tail"):
        compact(tmp_path, cluster="tial")
    done = compact(tmp_path, cluster="dest")
    assert (done.merged, done.made, done.rows) == (5, 1, ROWS)
    share, found = share_read(lake, lambda: ids(lake.events(filter='dest = "D0007"')))
    every = pa.concat_tables([departures(40_000, start) for start in range(0, ROWS, 40_000)])
    assert found == expected(pa.compute.equal(every.column("dest"), "D0007"), every)
    assert share < 0.05  # nearly all, if it were not so clustered
    assert compact(tmp_path, cluster="dest").merged == 0
    assert compact(tmp_path).merged == 0  # whatever else would suit
    assert compact(tmp_path, cluster="tail").merged == 1
    assert all_ids(lake) == [str(n) for n in range(ROWS)]


def test_a_damaged_row_group_is_told(tmp_path: Path) -> None:
    lake = written(tmp_path, departures(20_000))
    (file,) = lake.files()
    damage(file.path)
    assert len(list(lake.events())) < 20_000
    assert [problem.path for problem in lake.problems] == [file.path]
