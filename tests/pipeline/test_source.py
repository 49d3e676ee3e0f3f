"""The data source `angelia` over a lake: batch and stream, reading and writing."""

import os
from datetime import UTC, datetime, timedelta, timezone

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.pipeline.worlds import START, arrow, frame, quotes

from angelia import Event, EventType, Filter, TypeRegistry
from angelia.pipeline import PipelineError
from angelia.pipeline.following import LakeStream
from angelia.pipeline.options import query_of
from angelia.pipeline.sinks import LakeSink
from angelia.pipeline.staging import as_events
from angelia.store import Lake, LakeWriter
from angelia.store.compact import compact

MOVEMENT = {"origin": "string?", "price": "integer?", "order.total": "float?", "urgent": "boolean?"}


def types(**more):
    return TypeRegistry(
        [
            EventType("flights.Movement", MOVEMENT | more),
            EventType("flights.Quote", {}, parent="flights.Movement"),
            EventType("flights.Departure", {"gate": "string?"}, parent="flights.Movement"),
        ]
    )


def fill(path, *parts, registry=None, broker="b1"):
    """Append parts to a lake, each rolled to files of its own."""
    with LakeWriter(path, broker, registry or types(), background=False) as writer:
        for part in parts:
            writer.append(part)
            writer.roll()


def read(spark, lake, **options):
    return spark.read.format("angelia").options(lake=str(lake), **options).load()


def ids(result):
    rows = [row["@id"] for row in result.select("`@id`").collect()]
    assert len(rows) == len(set(rows))
    return set(rows)


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "lake"
    step = timedelta(minutes=3)
    fill(path, quotes(300, step=step), quotes(200, seed=2, step=step, type="flights.Departure", prefix="d"))
    fill(
        path,
        [Event({"x": 1, "note": "a"}, id="odd", time=START), Event({"x": "one"}, id="odder", time=START)],
    )
    return path


def test_a_supertype_reads_its_descendants_with_their_columns(spark, lake):
    movements = read(spark, lake, type="flights.Movement")
    assert movements.count() == 500
    assert {"gate", "order.total", "@time"} <= set(movements.columns)
    assert read(spark, lake, type="flights.Departure").count() == 200


def test_a_filter_and_a_range_of_time_are_exact(spark, lake):
    text = 'origin = "JFK" and (order.total > 50 or not exists price)'
    since, until = "2026-03-02T01:00:00+02:00", "2026-03-02T06:00:00Z"
    first, last = datetime(2026, 3, 1, 23, tzinfo=UTC), datetime(2026, 3, 2, 6, tzinfo=UTC)
    wanted = {
        event.id
        for event in quotes(300, step=timedelta(minutes=3))
        if Filter.parse(text).matches(event) and first <= event.time < last
    }
    assert wanted
    assert ids(read(spark, lake, type="flights.Quote", filter=text, since=since, until=until)) == wanted


def test_times_are_utc_whatever_the_zone_of_the_publisher(spark, lake, tmp_path):
    at = datetime(2026, 7, 1, 1, 30, tzinfo=timezone(timedelta(hours=3)))
    fill(tmp_path, [Event({"x": 1}, id="a", time=at)])
    assert (tmp_path / "events" / "Event" / "date=2026-06-30").is_dir()
    (row,) = read(spark, tmp_path).selectExpr("string(`@time`) as at").collect()
    assert row.at == "2026-06-30 22:30:00"


def test_an_attribute_that_has_no_column_is_still_matched(spark, lake):
    assert ids(read(spark, lake, filter='x = "one"')) == {"odder"}
    assert ids(read(spark, lake, filter="x = 1")) == {"odd"}


def test_a_new_attribute_is_null_in_old_files(spark, tmp_path):
    old, new = quotes(5), quotes(5, prefix="n")
    fill(tmp_path, old)
    wider = types(seats="integer?")
    definition = wider.get("flights.Movement")
    grown = types()
    grown.modify(definition)
    fill(
        tmp_path,
        [Event({**event.attributes, "seats": 3}, **_context(event)) for event in new],
        registry=grown,
    )
    rows = {row["@id"]: row.seats for row in read(spark, tmp_path, type="flights.Quote").collect()}
    assert rows == {**{e.id: None for e in old}, **{e.id: 3 for e in new}}


def _context(event):
    return {"type": event.type, "source": event.source, "id": event.id, "time": event.time}


def test_what_was_published_a_moment_ago_is_there(spark, tmp_path):
    with LakeWriter(tmp_path, "b1", background=False) as writer:
        writer.append([Event({"x": 1}, id="fresh", time=START)])
        assert ids(read(spark, tmp_path)) == {"fresh"}


def test_an_empty_lake_is_an_empty_frame(spark, tmp_path):
    nothing = read(spark, tmp_path / "nowhere")
    assert nothing.count() == 0
    assert "@id" in nothing.columns


def test_a_damaged_file_is_left_out_or_fails_as_asked(spark, tmp_path):
    fill(tmp_path, quotes(10), quotes(10, prefix="good"))
    broken, *_ = sorted((tmp_path / "events").rglob("*.parquet"))
    broken.write_bytes(broken.read_bytes()[:200])
    half = broken.with_name("_half.parquet.1.tmp")
    half.write_bytes(b"PAR1")  # somebody is writing this one
    assert ids(read(spark, tmp_path)) == {event.id for event in quotes(10, prefix="good")}
    with pytest.raises(Exception, match="cannot be read"):
        read(spark, tmp_path, mode="fail").count()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filter": "x << 1"}, "column 4"),
        ({"since": "yesterday"}, "not a timestamp"),
        ({"fliter": "x = 1"}, "fliter"),
        ({"broker": "tcp://x"}, "one of them"),
        ({"mode": "loose"}, "mode"),
    ],
)
def test_bad_options_are_clear_errors(spark, lake, options, message):
    with pytest.raises(Exception, match=message):
        read(spark, lake, **options).count()


# ---------------------------------------------------------------- streams


def follow(spark, lake, out, checkpoint, **options):
    """Run a stream until it has read all there is."""
    stream = spark.readStream.format("angelia").options(lake=str(lake), **options).load()
    writer = stream.select("`@id`").writeStream.option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).format("parquet").start(str(out))
    query.awaitTermination(120)
    return query


def test_a_stream_reads_each_file_once_over_restarts_and_compactions(spark, tmp_path):
    lake, out, checkpoint = tmp_path / "lake", tmp_path / "out", tmp_path / "checkpoint"
    first, second, third = quotes(20), quotes(20, prefix="f"), quotes(20, prefix="g")
    fill(lake, first, second, [Event({"x": 1}, id="other", time=START)])
    follow(spark, lake, out, checkpoint, type="flights.Movement", maxFilesPerTrigger="1")
    seen = {event.id for event in (*first, *second)}
    assert ids(spark.read.parquet(str(out))) == seen
    fill(lake, third, broker="b2")
    compact(lake)  # what was read, and what was not, is in one file now
    follow(spark, lake, out, checkpoint, type="flights.Movement")
    assert ids(spark.read.parquet(str(out))) == seen | {event.id for event in third}
    follow(spark, lake, tmp_path / "anew", tmp_path / "another", type="flights.Movement")
    assert ids(spark.read.parquet(str(tmp_path / "anew"))) == seen | {event.id for event in third}


def test_a_stream_whose_files_were_compacted_away_says_so(spark, tmp_path):
    lake = tmp_path / "lake"
    fill(lake, quotes(5))
    stream = LakeStream(query_of({"lake": str(lake)}), None)
    start = stream.initialOffset()
    fill(lake, quotes(5, prefix="f"), quotes(5, prefix="g"))
    end = stream.latestOffset(start, ReadAllAvailable())
    assert sum(len(part.value.files) for part in stream.partitions(start, end)) == 3
    compact(lake, grace=0)
    compact(lake, grace=0)
    with pytest.raises(PipelineError, match="3 files"):
        stream.partitions(start, end)


# ---------------------------------------------------------------- writing


def test_what_is_written_comes_back_equal(spark, tmp_path):
    events = quotes(50, type="Untold")
    frame(spark, events).write.format("angelia").mode("append").option("lake", str(tmp_path)).save()
    assert sorted(Lake(tmp_path).events(), key=lambda e: e.id) == events


def test_a_batch_that_is_committed_again_is_there_once(tmp_path):
    sink = LakeSink(str(tmp_path), "s")
    batches = arrow(quotes(30, type="Untold")).to_batches()
    for _ in range(2):
        sink.commit(sink.stage(iter(batches)).files, 7)
    assert len(list(Lake(tmp_path).events())) == 30
    assert not list((tmp_path / "staged").rglob("*.parquet"))


def test_a_commit_that_was_cut_short_is_completed_by_the_next(tmp_path, monkeypatch):
    """The hold is written, one of two files is moved, then the process dies."""
    sink = LakeSink(str(tmp_path), "s")
    both = arrow(quotes(30, type="A") + quotes(30, type="B", prefix="b")).to_batches()
    real, moved = os.replace, []

    def dying(source, target):
        if str(target).endswith(".parquet") and "staged" not in str(target):
            if moved:
                raise KeyboardInterrupt
            moved.append(target)
        real(source, target)

    staged = sink.stage(iter(both)).files
    monkeypatch.setattr(os, "replace", dying)
    with pytest.raises(KeyboardInterrupt):
        sink.commit(staged, 0)
    monkeypatch.setattr(os, "replace", real)
    assert moved
    assert list(Lake(tmp_path).events()) == []  # nobody sees half a batch
    again = LakeSink(str(tmp_path), "s")
    again.commit(again.stage(iter(both)).files, 0)
    assert not list((tmp_path / "staged").rglob("*.parquet"))
    found = [event.id for event in Lake(tmp_path).events()]
    assert len(found) == len(set(found)) == 60


def test_events_of_a_lake_need_an_id_a_time_and_kinds_that_events_have(spark):
    import pyarrow as pa

    good = arrow(quotes(3)).to_batches()[0]
    for bad, message in (
        (good.drop_columns(["@time"]), "@time"),
        (good.drop_columns(["@id"]), "@id"),
        (good.append_column("day", pa.array([1, 2, 3], pa.date32())), "day"),
    ):
        with pytest.raises(ValueError, match=message):
            as_events(bad)


def test_a_required_attribute_that_is_missing_is_refused(tmp_path):
    fill(tmp_path, [], registry=TypeRegistry([EventType("T", {"x": "integer"})]))
    with LakeWriter(tmp_path, "b", TypeRegistry([EventType("T", {"x": "integer"})])) as writer:
        writer.append([Event({"x": 1}, type="T", id="a", time=START)])
    sink = LakeSink(str(tmp_path), "s")
    with pytest.raises(ValueError, match="not a valid T: 'x' is missing in 1 events"):
        sink.stage(iter(arrow([Event({"y": 1}, type="T", id="b", time=START)]).to_batches()))
