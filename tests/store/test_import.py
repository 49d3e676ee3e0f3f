"""Importing files: what is good is in the lake, what is not is told, and the counts add up."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.store.helpers import events, lake_of

from angelia import EventType, TypeRegistry
from angelia.errors import LakeError
from angelia.store import Lake, LakeWriter
from angelia.store.compact import compact
from angelia.store.importer import ImportReport, Naming, import_file
from angelia.store.ingest import Ingest

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def imported(path: Path, lake: Path, **options: Any) -> ImportReport:
    report = import_file(path, lake, **options)
    assert report.read == report.imported + report.rejected
    assert len(list(Lake(lake).events())) >= report.imported
    return report


def rejects(path: Path) -> list[dict[str, Any]]:
    lines = path.with_name(f"{path.name}.rejects.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def written(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def typed(lake: Path) -> None:
    types = TypeRegistry([EventType("T", {"x": "float", "note": "string?", "on": "timestamp?"})])
    lake_of(lake, [], types=types)
    with LakeWriter(lake, "b1", types, background=False) as writer:
        writer._save_types()


def test_csv(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.csv",
        "time,id,n,ratio,flag,at,text\n"
        "2026-01-01T12:00:00Z,a,1,0.5,true,2026-01-01T00:00:00Z,plain\n"
        '2026-01-01T14:00:00+02:00,b,2,3,false,2026-01-02 01:02:03,"two\nlines, quoted"\n'
        "2026-01-01 12:00:00,,,,,,\n",
    )
    assert imported(path, tmp_path / "lake") == ImportReport(str(path), 3, 3, 0)
    a, b, empty = Lake(tmp_path / "lake").events()
    assert dict(a.attributes) == {
        "n": 1,
        "ratio": 0.5,
        "flag": True,
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "text": "plain",
    }
    assert (b["text"], b["ratio"], b.time) == ("two\nlines, quoted", 3.0, NOON)
    assert (len(empty), empty.time) == (0, NOON)
    assert empty.id
    assert not path.with_name("a.csv.rejects.jsonl").exists()


def test_bad_rows_of_csv_are_rejected_with_row_and_reason(tmp_path: Path) -> None:
    typed(tmp_path / "lake")
    path = written(
        tmp_path / "a.csv",
        b"when,x,note\n"
        b"2026-01-01T12:00:00Z,1.5,good\n"
        b"yesterday,2,bad time\n"
        b"2026-01-01T12:00:00Z,much,bad number\n"
        b"2026-01-01T12:00:00Z,1\n"
        b"2026-01-01T12:00:00Z,,no number\n"
        b",3,no time\n"
        b"2026-01-01T12:00:00Z,4,\xff\xfe\n"
        b"2026-01-01T12:00:00Z,5," + b"x" * 70_000 + b"\n"
        b"2026-01-01T12:00:00Z,6,good too\n",
    )
    report = imported(path, tmp_path / "lake", naming=Naming(time="when", type="T"))
    assert (report.read, report.imported, report.rejected) == (9, 2, 7)
    found = {each["row"]: each["reason"] for each in rejects(path)}
    assert found.keys() == {2, 3, 4, 5, 6, 7, 8}
    assert "'yesterday' is no timestamp" in found[2]
    assert "'much' is no float" in found[3]
    assert "2 columns, not 3" in found[4]
    assert "missing attribute 'x'" in found[5]
    assert "no time" in found[6]
    assert "UTF-8" in found[7]
    assert "bytes" in found[8]
    assert sorted(e["x"] for e in Lake(tmp_path / "lake").events("T")) == [1.5, 6.0]


def test_json_lines(tmp_path: Path) -> None:
    typed(tmp_path / "lake")
    lines = [
        '{"@time": "2026-01-01T12:00:00Z", "@id": "1", "deep": {"list": [1, 2]}, "nothing": null}',
        "",
        '{"time": "2026-01-01T12:00:00Z", "@type": "T", "x": 1, "on": "2026-01-01T00:00:00Z"}',
        '{"time": "2026-01-01T12:00:00Z", "@type": "T", "x": "one"}',
        '{"x": 1}',
        "{",
        "[1]",
        '{"time": "noon"}',
        '{"time": "2026-01-01T12:00:00Z", "x": {"$float": "NaN"}}',
        '{"time": "2026-01-01T12:00:00Z", "x": 123456789012345678901234567890}',
    ]
    path = written(tmp_path / "a.jsonl", "\n".join(lines))
    report = imported(path, tmp_path / "lake")
    assert (report.read, report.imported, report.rejected) == (9, 3, 6)
    assert [each["row"] for each in rejects(path)] == [4, 5, 6, 7, 8, 10]
    found = {e.id: e for e in Lake(tmp_path / "lake").events()}
    assert found["1"]["deep.list"] == (1, 2)
    (one,) = Lake(tmp_path / "lake").events("T")
    assert (one["x"], one["on"]) == (1.0, datetime(2026, 1, 1, tzinfo=UTC))


def test_cloudevents_batches(tmp_path: Path) -> None:
    good = {
        "specversion": "1.0",
        "id": "1",
        "source": "s",
        "type": "com.example.It",
        "time": "2026-01-01T12:00:00Z",
    }
    batch = [
        good | {"data": {"x": 1, "deep": {"down": "y"}}, "subject": "me"},
        good | {"specversion": "0.3"},
        good | {"id": ""},
        good | {"data": "text"},
        good | {"data_base64": "AA=="},
        {"id": "2"},
        7,
    ]
    path = written(tmp_path / "a.json", json.dumps(batch))
    report = imported(path, tmp_path / "lake")
    assert (report.read, report.imported, report.rejected) == (7, 1, 6)
    (found,) = Lake(tmp_path / "lake").events("com.example.It")
    assert (found.subject, found.source, dict(found.attributes)) == ("me", "s", {"x": 1, "deep.down": "y"})
    with pytest.raises(LakeError, match="JSON array"):
        import_file(written(tmp_path / "b.json", "{}"), tmp_path / "lake")


def test_parquet_of_any_making(tmp_path: Path) -> None:
    table = pa.table(
        {
            "time": pa.array([datetime(2026, 1, 1, 12), None], pa.timestamp("ns")),
            "small": pa.array([1, 2], pa.int8()),
            "half": pa.array([0.5, 1.5], pa.float32()),
            "large": pa.array(["a", "b"], pa.large_string()),
            "coded": pa.array(["u", "v"]).dictionary_encode(),
            "day": pa.array([date(2026, 1, 1), None]),
            "list": pa.array([[1, 2], None], pa.large_list(pa.int32())),
            "deep": pa.array([{"a": 1, "b": {"c": "x"}}, None]),
            "unsigned": pa.array([7, 2**64 - 1], pa.uint64()),
            "nothing": pa.nulls(2),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    report = imported(tmp_path / "a.parquet", tmp_path / "lake")
    assert (report.read, report.imported, report.rejected) == (2, 1, 1)
    (found,) = Lake(tmp_path / "lake").events()
    assert found.time == NOON
    assert dict(found.attributes) == {
        "small": 1, "half": 0.5, "large": "a", "coded": "u", "day": datetime(2026, 1, 1, tzinfo=UTC),
        "list": (1, 2), "deep.a": 1, "deep.b.c": "x", "unsigned": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "x,y\n1,2\n", "--time-column"),
        ("a.csv", "time,x,x\n1,2,3\n", "two columns 'x'"),
        ("a.csv", "time,@other\n1,2\n", "'@'"),
        ("a.txt", "time\n", "what format"),
        ("a.parquet", "no parquet", "nothing was imported"),
        ("a.json", "nonsense", "JSON array"),
    ],
)
def test_a_file_that_cannot_be_taken_is_refused_whole(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    with pytest.raises(LakeError, match=reason):
        import_file(written(tmp_path / name, text), tmp_path / "lake")
    assert list(Lake(tmp_path / "lake").events()) == []
    assert list((tmp_path / "lake").rglob("*.parquet*")) == []


def test_a_column_that_no_event_can_have_is_refused_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"time": [NOON], "blob": [b"x"]}), tmp_path / "a.parquet")
    with pytest.raises(LakeError, match="'blob' is of type binary"):
        import_file(tmp_path / "a.parquet", tmp_path / "lake")


def test_a_file_is_imported_once_unless_asked_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "time,x\n2026-01-01T12:00:00Z,1\n")
    assert imported(path, tmp_path / "lake").imported == 1
    copy = written(tmp_path / "copy.csv", path.read_bytes())
    assert import_file(copy, tmp_path / "lake").known
    assert len(list(Lake(tmp_path / "lake").events())) == 1
    assert import_file(path, tmp_path / "lake", again=True).imported == 1
    assert len(list(Lake(tmp_path / "lake").events())) == 2


def test_an_import_that_was_committed_is_finished_whatever_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "a.csv", "time,x\n2026-01-01T12:00:00Z,1\n2026-01-02T12:00:00Z,2\n")
    monkeypatch.setattr("angelia.store.ingest.finish_imports", lambda lake: None)
    import_file(path, tmp_path / "lake")
    assert list(Lake(tmp_path / "lake").events()) == []
    monkeypatch.undo()
    compact(tmp_path / "lake")
    assert [e["x"] for e in Lake(tmp_path / "lake").events()] == [1, 2]


def test_an_import_that_was_not_committed_leaves_nothing(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ingest = Ingest(lake, lambda row, reason: None, "x")
    with pytest.raises(LakeError, match="another import"):
        Ingest(lake, lambda row, reason: None, "y")
    ingest.close()
    assert list(lake.rglob("*.parquet*")) == []


def test_an_import_joins_what_brokers_wrote(tmp_path: Path) -> None:
    lake_of(tmp_path / "lake", events(0, 6))
    path = written(
        tmp_path / "a.csv", "time,airline,price\n2026-03-01T22:00:00Z,LH,7\n2026-03-01T22:00:00Z,LH,cheap\n"
    )
    report = imported(path, tmp_path / "lake", naming=Naming(type="flights.Quote", source="file"))
    assert (report.imported, report.rejected) == (1, 1)
    found = list(Lake(tmp_path / "lake").events("flights.Quote"))
    assert (found[0]["price"], found[0].source, len(found)) == (7.0, "file", 5)
