"""Reading a lake: types, descendants, time, filters, and what plain Parquet readers see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from tests.store.helpers import START, damage, event, events, ids, lake_of, registry

from angelia import Event, EventType, Filter, TypeRegistry
from angelia.errors import EventError, EventTypeError, LakeError
from angelia.store import Lake, LakeWriter
from angelia.store.compact import compact
from angelia.store.layout import LakeFile, folder_of, listed, tag_of


def same(found: list[Event], wanted: list[Event]) -> bool:
    """Equal but for integers that a column of floats holds."""
    return [(e.id, e.type, e.time, dict(e.attributes)) for e in found] == [
        (e.id, e.type, e.time, dict(e.attributes)) for e in wanted
    ]


def test_an_empty_lake_has_nothing(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        lake = Lake(path)
        assert list(lake.events()) == []
        assert lake.types() == []
        assert lake.files() == []
        assert len(lake.registry()) == 0
        assert lake.table().num_rows == 0


def test_a_file_is_no_lake(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(LakeError, match="not a directory"):
        Lake(tmp_path / "f")


def test_events_come_back_as_they_were_in_order_of_time(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, events(60, 120), events(0, 60))
    assert list(lake.events()) == events(0, 120)
    assert lake.problems == []


def test_what_is_not_rolled_yet_is_read_too_and_once(tmp_path: Path) -> None:
    with LakeWriter(tmp_path, "b1", registry(), background=False) as writer:
        writer.append(events(0, 30))
        assert list(Lake(tmp_path).events()) == events(0, 30)
        writer.roll()
        writer.append(events(30, 50))
        assert list(Lake(tmp_path).events()) == events(0, 50)
        assert Lake(tmp_path).table().num_rows == 50
        assert Lake(tmp_path).types() == ["Event", "flights.LastMinute", "flights.Quote"]


def test_a_supertype_is_read_with_its_descendants(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, events(0, 30))
    assert ids(lake.events("flights.Quote")) == [str(n) for n in range(30) if n % 3 != 2]
    assert ids(lake.events("flights.LastMinute")) == [str(n) for n in range(30) if n % 3 == 1]
    assert ids(lake.events("Event")) == [str(n) for n in range(30) if n % 3 == 2]
    assert ids(lake.events(filter="flights.Quote: price > 20")) == [
        str(n) for n in range(20, 30) if n % 3 != 2
    ]
    assert lake.schema("flights.Quote").names[5:] == ["price", "airline", "hours", "tags", "@rest"]
    assert lake.table("flights.Quote").column("hours").null_count == 10


def test_a_range_of_time_is_closed_below_and_open_above(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, events(0, 120))
    since, until = START + timedelta(minutes=50), START + timedelta(minutes=70)
    assert ids(lake.events(since=since, until=until)) == [str(n) for n in range(50, 70)]
    assert ids(lake.events(since="2026-03-02T00:00:00Z")) == [str(n) for n in range(60, 120)]
    for until_ in ("2026-03-01T23:30:00Z", "2026-03-02T00:00:00Z"):
        assert {file.date.isoformat() for file in lake.files(until=until_)} == {"2026-03-01"}
    with pytest.raises(LakeError, match="time zone"):
        lake.events(since=datetime(2026, 1, 1))
    with pytest.raises(EventError, match="not a timestamp"):
        lake.events(since="yesterday")


def test_days_are_those_of_utc(tmp_path: Path) -> None:
    tokyo = timezone(timedelta(hours=9))
    at = datetime(2026, 1, 2, 3, 0, tzinfo=tokyo)
    lake = lake_of(tmp_path, [Event({"x": 1}, id="1", time=at)])
    assert [file.date.isoformat() for file in lake.files()] == ["2026-01-01"]
    (found,) = lake.events()
    assert found.time == at
    assert found.time.tzinfo is UTC


@pytest.mark.parametrize("year", [1, 1969, 9999])
def test_any_year_has_a_place(tmp_path: Path, year: int) -> None:
    at = datetime(year, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    lake = lake_of(tmp_path, [Event({"at": at}, id="1", time=at)])
    (found,) = lake.events()
    assert (found.time, found["at"]) == (at, at)


HOSTILE = ["../x", "../../etc/passwd", "a/b", ".", "..", ".hidden", "_hidden", "x=1", "ünïcødé", "名前",
           "a" * 5000, "con", "a%2Fb", "tab\there", "nul\0", "trailing.", "a~b", "d=2"]  # fmt: skip


def test_names_of_types_do_not_lead_out_of_the_lake(tmp_path: Path) -> None:
    lake_path = tmp_path / "deep" / "lake"
    at = datetime(2026, 1, 1, tzinfo=UTC)
    written = [Event({"i": i}, type=name, id=str(i), time=at) for i, name in enumerate(HOSTILE)]
    lake = lake_of(lake_path, written)
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["lake"]
    assert set(lake.types()) == set(HOSTILE)
    for i, name in enumerate(HOSTILE):
        assert ids(lake.events(name)) == [str(i)]
        assert not folder_of(name).startswith((".", "_"))


def test_names_that_differ_in_case_only_do_not_mix_even_in_one_folder(tmp_path: Path) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    lake = lake_of(tmp_path, [Event(type=name, id=name, time=at) for name in ("quote", "Quote")])
    # What a file system that does not tell them apart would make of it:
    lower, upper = (tmp_path / "events" / name / "date=2026-01-01" for name in ("quote", "Quote"))
    for path in list(lower.iterdir()):
        path.rename(upper / path.name)
    assert len(list(upper.iterdir())) == 2
    assert tag_of("quote") != tag_of("Quote")
    assert ids(lake.events("Quote")) == ["Quote"]
    assert ids(lake.events("quote")) == ["quote"]


def test_plain_parquet_readers_need_nothing_of_ours(tmp_path: Path) -> None:
    lake_of(tmp_path, events(0, 60), events(60, 120))
    table = ds.dataset(tmp_path / "events" / "flights.LastMinute", partitioning="hive").to_table()
    assert table.num_rows == 40
    assert set(table.column("date").to_pylist()) == {"2026-03-01", "2026-03-02"}
    assert table.schema.field("hours").type == "int64"
    assert table.sort_by("@time").column("@id").to_pylist() == [str(n) for n in range(1, 120, 3)]
    assert pq.read_table(tmp_path / "events" / "Event").column("deep.down").to_pylist() == [True] * 40


def test_files_are_sorted_and_tell_their_range_of_time(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, list(reversed(events(0, 60))))
    for file in lake.files():
        times = pq.read_table(file.path, partitioning=None).column("@time").to_pylist()
        assert times == sorted(times)
        column = pq.read_metadata(file.path).row_group(0).column(4)
        assert (column.statistics.min, column.statistics.max) == (times[0], times[-1])
        assert column.compression == "ZSTD"


# ---------------------------------------------------------------- evolution, and what has no column


def test_a_new_optional_attribute_is_null_in_old_files(tmp_path: Path) -> None:
    types = registry()
    lake_of(tmp_path, events(0, 3), types=types)
    types.modify(EventType("flights.Quote", {"price": "float", "airline": "string", "seat": "string?"}))
    newer = Event({"price": 1.0, "airline": "UA", "seat": "3A"}, type="flights.Quote", id="new", time=START)
    lake = lake_of(tmp_path, [newer], types=types)
    assert lake.registry().get("flights.Quote").version == 2
    table = lake.table("flights.Quote", columns=["@id", "seat"])
    assert dict(zip(*table.to_pydict().values(), strict=True)) == {"0": None, "1": None, "new": "3A"}
    assert ids(lake.events(filter="not exists seat")) == ["0", "1", "2"]


def test_integers_that_become_floats_are_read_as_numbers(tmp_path: Path) -> None:
    types = TypeRegistry([EventType("T", {"x": "integer"})])
    lake_of(tmp_path, [Event({"x": 2}, type="T", id="old", time=START)], types=types)
    types.modify(EventType("T", {"x": "float"}))
    lake = lake_of(tmp_path, [Event({"x": 2.5}, type="T", id="new", time=START)], types=types)
    assert lake.table("T").column("x").to_pylist() in ([2.0, 2.5], [2.5, 2.0])
    assert sorted(ids(lake.events(filter="T: x between 2 and 3"))) == ["new", "old"]


def test_a_conflicting_definition_is_refused_where_the_registry_comes_from_the_lake(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, events(0, 3))
    known = lake.registry()
    with pytest.raises(EventTypeError, match="price"):
        known.modify(EventType("flights.Quote", {"price": "string", "airline": "string"}))


def test_values_that_do_not_fit_their_column_are_kept_and_matched(tmp_path: Path) -> None:
    at = START
    odd = [
        Event({"x": 1}, id="integer", time=at),
        Event({"x": "one"}, id="text", time=at),
        Event({"x": [1, 2]}, id="list", time=at),
        Event({"x": [1, "two", True, at]}, id="mixed", time=at),
        Event({"x": at}, id="time", time=at),
        Event({"x": True}, id="boolean", time=at),
        Event({"x": float("inf")}, id="infinite", time=at),
        Event({"x": 2**53 + 1}, id="large", time=at),
        Event({"x": 2**53 + 2}, id="exact", time=at),
        Event({"x": []}, id="empty", time=at),
    ]
    lake = lake_of(tmp_path, odd)
    back = {each.id: each for each in lake.events()}
    for each in odd:
        value, kept = each["x"], back[each.id]["x"]
        assert kept == value
        assert type(kept) is type(value) or isinstance(value, int)
    for text in (
        'x = "one"',
        "x = 1",
        "x = 9007199254740993",
        "x = true",
        "x > 1e300",
        'x = "two"',
        "exists x",
    ):
        wanted = sorted(each.id or "" for each in odd if Filter.parse(text).matches(each))
        assert sorted(ids(lake.events(filter=text))) == wanted, text


def test_nan_comes_back(tmp_path: Path) -> None:
    nan = float("nan")
    lake = lake_of(
        tmp_path, [Event({"x": nan, "y": "s"}, id="1", time=START), Event({"y": nan}, id="2", time=START)]
    )
    assert ids(lake.events(filter="exists x")) == ["1"]
    assert sorted(ids(lake.events(filter="exists y"))) == ["1", "2"]
    assert all(each[name] != each[name] for each, name in zip(lake.events(), "xy", strict=True))


def test_kinds_that_conflict_between_files_leave_every_file_readable_together(tmp_path: Path) -> None:
    lake = lake_of(
        tmp_path,
        [Event({"x": 1, "y": "a"}, id="1", time=START)],
        [Event({"x": "text", "y": 7}, id="2", time=START)],
        [Event({"x": 1.5, "y": "b"}, id="3", time=START)],
    )
    assert {e.id: dict(e.attributes) for e in lake.events()} == {
        "1": {"x": 1, "y": "a"},
        "2": {"x": "text", "y": 7},
        "3": {"x": 1.5, "y": "b"},
    }
    assert lake.table("Event").column("x").to_pylist().count(None) == 1
    kinds = {str(pq.read_schema(file.path).field("y").type) for file in lake.files()}
    assert kinds == {"string"}


def test_a_flood_of_names_does_not_become_a_flood_of_columns(tmp_path: Path) -> None:
    flood = [Event({f"name{n}-{i}": n for i in range(20)}, id=str(n), time=START) for n in range(100)]
    lake = lake_of(tmp_path, flood)
    (file,) = lake.files()
    assert len(pq.read_schema(file.path).names) < 300
    assert {e.id: e for e in lake.events()} == {e.id: e for e in flood}
    assert ids(lake.events(filter="`name99-3` = 99")) == ["99"]


# ---------------------------------------------------------------- damage


def test_a_corrupted_file_is_left_out_and_told(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, events(0, 10), events(10, 20))
    bad = next(file for file in lake.files("flights.Quote") if "Quote" in file.folder)
    data = Path(bad.path).read_bytes()
    Path(bad.path).write_bytes(data[: len(data) // 2])
    found = list(lake.events())
    assert {problem.path for problem in lake.problems} == {bad.path}
    assert 10 < len(found) < 20


def test_a_flipped_bit_in_a_page_is_noticed(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, [Event({"text": f"some text {n}"}, id=str(n), time=START) for n in range(1000)])
    (file,) = lake.files()
    damage(file.path)
    assert list(lake.events()) == []
    assert len(lake.problems) == 1


def test_a_column_that_is_not_there_is_an_error_that_names_those_that_are(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, events(0, 5))
    with pytest.raises(LakeError, match=r"no column 'prize'.*price"):
        lake.table("flights.Quote", columns=["prize"])


def test_events_need_an_id_and_a_time(tmp_path: Path) -> None:
    with LakeWriter(tmp_path, "b1", background=False) as writer:
        with pytest.raises(LakeError, match="stamps"):
            writer.append([event(0), Event({"x": 1})])
        assert list(Lake(tmp_path).events()) == []


def test_equal_times_do_not_confuse_the_order(tmp_path: Path) -> None:
    same_time = [Event({"n": n}, id=str(n), time=START) for n in range(50)]
    lake = lake_of(tmp_path, same_time)
    assert same(list(lake.events()), same_time)


def test_a_scan_reads_the_columns_that_are_asked_for_and_no_others(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, events(0, 30))
    for text in (None, "price > 5", 'airline = "UA" and price > 5'):
        for names in (["@id"], ["price"], ["@time", "hours"], ["airline", "@rest"]):
            table = lake.table("flights.Quote", text, columns=names)
            whole = lake.table("flights.Quote", text).select(names)
            assert table.equals(whole), (text, names)
    # A page of a column that nobody asked for may be damaged: nobody notices.
    (file,) = [each for each in lake.files("flights.Quote") if each.folder == "flights.Quote"]
    column = pq.read_metadata(file.path).row_group(0).column(6)
    assert column.path_in_schema == "airline"
    data = bytearray(Path(file.path).read_bytes())
    data[column.data_page_offset + 30] ^= 0xFF
    Path(file.path).write_bytes(data)
    assert lake.table("flights.Quote", columns=["price"]).num_rows == 20
    assert lake.problems == []


def test_a_rest_with_nothing_in_it_is_not_read(tmp_path: Path) -> None:
    lake = lake_of(tmp_path, events(0, 9))
    found = sorted(ids(lake.events("flights.Quote", "price > 1")))
    for file in lake.files("flights.Quote"):
        names = pq.read_schema(file.path).names
        damage(file.path, pq.read_metadata(file.path).num_columns - 1)
        assert names[-1] == "@rest"
    assert sorted(ids(lake.events("flights.Quote", "price > 1"))) == found
    assert lake.problems == []


def test_values_that_recur_have_a_dictionary_and_what_counts_on_is_stored_as_differences(
    tmp_path: Path,
) -> None:
    some = [
        Event({"gate": f"B{n % 7}", "delay": n / 7, "fare": float(n % 5)}, id=str(n), time=START)
        for n in range(500)
    ]
    (file,) = lake_of(tmp_path, some).files()
    group = pq.read_metadata(file.path).row_group(0)
    chunks = {each.path_in_schema: each for each in map(group.column, range(group.num_columns))}
    assert {name for name, each in chunks.items() if each.has_dictionary_page} >= {"gate", "fare"}
    assert not any(chunks[name].has_dictionary_page for name in ("@id", "delay", "@time"))
    assert "DELTA_BINARY_PACKED" in chunks["@time"].encodings
    assert same(list(Lake(tmp_path).events()), some)


def test_a_day_of_many_small_files_is_read_with_few_of_them_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = lake_of(tmp_path, *(events(n, n + 2) for n in range(0, 60, 2)))
    files = pq.ParquetFile
    opened: list[int] = [0, 0]

    class Counted(files):  # type: ignore[valid-type,misc]
        def __enter__(self) -> object:
            opened[0] += 1
            opened[1] = max(opened)
            return super().__enter__()

        def __exit__(self, *arguments: object) -> None:
            opened[0] -= 1
            super().__exit__(*arguments)

    monkeypatch.setattr(pq, "ParquetFile", Counted)
    assert list(lake.events()) == events(0, 60)
    assert len(lake.files()) > 30
    assert opened[1] <= 5


def test_a_snapshot_is_taken_again_if_a_segment_was_rolled_and_compacted_meanwhile(tmp_path: Path) -> None:
    with LakeWriter(tmp_path, "b1", registry(), fsync="none", background=False) as writer:
        writer.append(events(0, 6))
        writer.roll()
        writer.append(events(6, 12))

        class Slow(Lake):
            looked = 0

            def _all_files(self, *arguments: object) -> list[LakeFile]:  # type: ignore[override]
                self.looked += 1
                if self.looked == 1:
                    writer.roll()
                    compact(tmp_path)
                return super()._all_files(*arguments)  # type: ignore[arg-type]

        lake = Slow(tmp_path)
        assert list(lake.events()) == events(0, 12)
        assert lake.looked == 2


def test_a_listing_that_missed_what_was_renamed_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([["a"], ["c", "b"], ["c", "b"]])
    monkeypatch.setattr("os.listdir", lambda path: next(readings))
    assert listed(tmp_path) == ["b", "c"]


def test_times_in_a_filter_choose_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_of(tmp_path, *([event(n)] for n in range(0, 24 * 60 * 6, 360)))
    opened: list[str] = []
    files = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda path, **k: opened.append(path) or files(path, **k))
    for text, days in [
        ('@time >= t"2026-03-06T00:00:00Z"', {"2026-03-06", "2026-03-07"}),
        ('@time < t"2026-03-02T00:00:00Z" and exists price', {"2026-03-01", "2026-03-02"}),
        ('@time = t"2026-03-03T05:00:00Z" or @time = t"2026-03-03T11:00:00Z"', {"2026-03-03"}),
        ('@time = t"2026-03-03T05:00:00Z" or price = 5', None),
    ]:
        opened.clear()
        wanted = [each.id for each in lake.events() if Filter.parse(text).matches(each)]
        opened.clear()
        assert ids(lake.events(filter=text)) == wanted
        found = {
            part.removeprefix("date=") for path in opened for part in Path(path).parts if "date=" in part
        }
        assert days is None or found <= days, text


def test_a_segment_that_is_rolled_after_the_snapshot_is_read_from_its_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with LakeWriter(tmp_path, "b1", registry(), fsync="none", background=False) as writer:
        writer.append(events(0, 90))
        snapshot = lake.snapshot()
        writer.roll()
    for _ in range(2):
        assert list(lake.events(snapshot=snapshot)) == events(0, 90)
        assert ids(lake.events("flights.LastMinute", snapshot=snapshot)) == [str(n) for n in range(1, 90, 3)]
        assert sum(batch.num_rows for batch in lake.scan("flights.Quote", snapshot=snapshot)) == 60
        compact(tmp_path)  # and then from what was replaced
