"""Bulk matching, against direct evaluation."""

import gc
import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.worlds import START, arrow, expected_pairs, frame, pairs_of, quotes, subscriptions

from angelia import Event, EventType, Filter, TypeRegistry
from angelia.pipeline import PipelineError, match
from angelia.pipeline.index import Index, load
from angelia.pipeline.matching import match_lake, pairs
from angelia.pipeline.meter import Meter
from angelia.pipeline.options import query_of
from angelia.store import LakeWriter


def lines(path, filters):
    path.write_text("".join(json.dumps({"id": i, "filter": f}) + "\n" for i, f in filters.items()))
    return path


def test_the_pairs_are_those_of_direct_evaluation(spark):
    events, filters = quotes(400), subscriptions(60)
    assert pairs_of(match(frame(spark, events), filters)) == expected_pairs(events, filters)


def test_subscriptions_come_as_a_table_a_file_or_a_directory(spark, tmp_path):
    events, filters = frame(spark, quotes(50)), subscriptions(10)
    wanted = pairs_of(match(events, filters))
    table = pa.table({"id": list(filters), "filter": list(filters.values())})
    folder = tmp_path / "folder"
    folder.mkdir()
    pq.write_table(table.slice(0, 4), folder / "a.parquet")
    lines(folder / "b.jsonl", dict(list(filters.items())[4:]))
    for form in (spark.createDataFrame(table), lines(tmp_path / "s.jsonl", filters), str(folder)):
        assert pairs_of(match(events, form)) == wanted


def test_ids_of_subscriptions_keep_their_type(spark):
    events = frame(spark, quotes(3))
    assert dict(match(events, {1: "true"}).dtypes)["subscription_id"] == "bigint"
    mixed = match(events, {1: "true", "a": "true"})
    assert {row.subscription_id for row in mixed.collect()} == {"1", "a"}


def test_event_types_match_with_their_descendants(spark):
    registry = TypeRegistry([EventType("A", {}), EventType("B", {}, parent="A")])
    events = [Event(type=name, id=name, time=START) for name in ("A", "B", "C")]
    filters = {"a": "A: true", "b": "B: true"}
    found = pairs_of(match(frame(spark, events), filters, registry=registry))
    assert found == {("A", "a"), ("B", "a"), ("B", "b")} == expected_pairs(events, filters, registry)


def test_structs_and_dotted_columns_are_the_same_attribute(spark):
    rows = spark.sql("select 'e' as `@id`, named_struct('total', 7) as `order`")
    assert pairs_of(match(rows, {"s": "order.total = 7"})) == {("e", "s")}


def test_a_filter_that_no_column_concerns_still_has_its_say(spark):
    events = frame(spark, quotes(3))
    filters = {"all": "true", "none": "nowhere = 1", "not": "not exists nowhere"}
    assert {s for _, s in pairs_of(match(events, filters))} == {"all", "not"}


def test_a_worker_need_not_look_at_all_that_it_has_loaded_after_each_task(spark):
    match(frame(spark, quotes(50)), subscriptions(10)).collect()

    def tracked(batches):
        for _ in batches:
            loaded = "numba" in sys.modules
            yield pa.RecordBatch.from_pydict({"loaded": [loaded], "objects": [len(gc.get_objects())]})

    rows = spark.range(0, 8, 1, 8).mapInArrow(tracked, "loaded boolean, objects bigint").collect()
    assert min(row.objects for row in rows if row.loaded) < 50_000  # of half a million


def test_very_many_pairs_come_in_parts_of_bounded_size():
    batch = arrow(quotes(4000)).to_batches()[0]
    index = Index.of({n: Filter.parse("true") for n in range(2000)})
    sizes = [part.num_rows for part in pairs(batch, index)]
    assert sum(sizes) == 8_000_000
    assert max(sizes) < 2_200_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"id": 1}', "line 1"),
        ("nonsense", "line 1: not valid JSON"),
        ('{"id": 1, "filter": "x < 1"}\n{"id": 2, "filter": "x << 1"}', "line 2.*column 4"),
        ('{"id": 1, "filter": "x < 1"}\n\n{"id": 1, "filter": "x < 2"}', "line 3.*twice"),
        ('{"id": null, "filter": "x < 1"}', "a string or an integer"),
        ('{"id": 1, "filter": 3}', "a filter is a text"),
    ],
)
def test_bad_subscriptions_say_where(tmp_path, text, message):
    path = tmp_path / "s.jsonl"
    path.write_text(text)
    with pytest.raises(PipelineError, match=f"(?s){message}"):
        load(path)


def test_a_file_that_is_none_of_ours_is_refused(tmp_path):
    for name, content in (("s.csv", b"id,filter"), ("s.parquet", b"PAR1"), ("s.jsonl", b"\xff\xfe")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PipelineError, match=name):
            load(tmp_path / name)
    with pytest.raises(PipelineError, match="no subscriptions at"):
        load(tmp_path / "nowhere")


def test_events_without_ids_cannot_be_matched(spark):
    with pytest.raises(PipelineError, match="'@id'"):
        match(spark.range(3), {"s": "true"})


def test_a_lake_is_matched_by_the_workers_that_read_it(spark, tmp_path):
    """Rolled and fresh events, several types, and attributes that only `@rest` has."""
    events = quotes(300) + quotes(200, type="Other", prefix="o")
    odd = [Event({"price": "much"}, type="Other", id="odd", time=START), Event({"z": 1}, id="z", time=START)]
    filters = subscriptions(40) | {"odd": 'price = "much"', "z": "z = 1", "nowhere": "y = 1"}
    with LakeWriter(tmp_path, "b1", background=False) as writer:
        writer.append(events)
        writer.roll()
        writer.append(odd)
        meter = Meter(spark)
        result = match_lake(spark, query_of({"lake": str(tmp_path)}), filters, meter)
        assert pairs_of(result) == expected_pairs([*events, *odd], filters)
        assert (meter.events, meter.problems) == (502, [])


def test_a_damaged_file_is_reported_and_the_rest_is_matched(spark, tmp_path):
    with LakeWriter(tmp_path, "b1", background=False) as writer:
        for prefix in ("a", "b"):
            writer.append(quotes(20, prefix=prefix))
            writer.roll()
    broken, _ = sorted((tmp_path / "events").rglob("*.parquet"))
    broken.write_bytes(b"PAR1 and then nothing")
    meter = Meter(spark)
    found = pairs_of(match_lake(spark, query_of({"lake": str(tmp_path)}), {"all": "true"}, meter))
    assert found == {(event.id, "all") for event in quotes(20, prefix="b")}
    assert [path for path, _ in meter.problems] == [str(broken)]


def test_an_empty_lake_has_no_pairs(spark, tmp_path):
    assert pairs_of(match_lake(spark, query_of({"lake": str(tmp_path)}), {"all": "true"})) == set()
