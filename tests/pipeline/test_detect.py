"""Patterns over history and streams, against the in-process monitor."""

import random
from datetime import timedelta

import pytest
from tests.pipeline.worlds import START, arrow, frame, quotes

from angelia import Event, Pattern, SyncBus
from angelia.errors import FilterError
from angelia.pattern import SequenceMatcher
from angelia.pipeline import PipelineError, detect
from angelia.pipeline.sequences import Seen, Sequences

PATTERN = 'origin = "JFK" then price > 700 then origin = "DEN" and urgent = false'


def found(result):
    return sorted((row.key, tuple(row.event_ids)) for row in result.collect())


def monitor(events, pattern, key=None):
    """What `SequenceMatcher` finds in each group, in the order of times."""
    matchers = {}
    whole = []
    for event in sorted(events, key=lambda e: (e.time, e.id)):
        group = "" if key is None else event.get(key)
        if group is not None:
            matcher = matchers.setdefault(group, SequenceMatcher.of(Pattern.parse(pattern)))
            if (done := matcher.see(event)) is not None:
                whole.append((str(group), tuple(e.id for e in done)))
    return sorted(whole)


def test_history_equals_what_a_subscriber_of_the_bus_is_told(spark):
    events = quotes(500)
    with (
        SyncBus(clock=lambda: START.timestamp()) as bus,
        bus.subscribe(Pattern.parse(PATTERN)) as occurrences,
    ):
        for event in events:
            bus.publish(event)
        live = sorted(("", tuple(e.id for e in whole)) for whole in occurrences.drain())
    shuffled = random.Random(3).sample(events, len(events))
    assert found(detect(frame(spark, shuffled), PATTERN)) == live
    assert len(live) > 10


def test_each_key_has_sequences_of_its_own(spark):
    events = quotes(500)
    pattern = "price > 500 then urgent = true"
    assert found(detect(frame(spark, events), pattern, key="origin")) == monitor(events, pattern, "origin")


def test_within_gives_up_what_was_begun_too_long_ago():
    sequences = Sequences(2, within=10)
    events = [Seen(0, "a", "", 1), Seen(11, "b", "", 3), Seen(21, "c", "", 2), Seen(22, "d", "", 2)]
    # b is too late for a, but begins another sequence, which c completes.
    assert [[i for _, i in whole.events] for whole in sequences.see(events)] == [["b", "c"]]


def test_occurrences_within_are_never_longer(spark):
    events, limit = quotes(500), timedelta(seconds=4)
    rows = detect(frame(spark, events), PATTERN, within=limit).collect()
    assert rows
    assert all(row.ended - row.started <= limit for row in rows)
    assert len(rows) < len(monitor(events, PATTERN))


def test_equal_times_are_not_after_each_other(spark):
    events = [Event({"x": 1}, id="a", time=START), Event({"x": 2}, id="b", time=START)]
    assert found(detect(frame(spark, events), "x = 1 then x = 2")) == []


def test_a_stream_out_of_order_and_over_a_restart_equals_history(spark, tmp_path):
    """Files come in with events up to 5 s out of order; the query is stopped and started again half way."""
    import pyarrow.parquet as pq

    events = quotes(300)
    rng = random.Random(5)
    mixed = sorted(events, key=lambda e: e.time + timedelta(seconds=rng.uniform(0, 5)))
    flush = Event({"origin": "NONE", "price": 999}, id="zz", time=START + timedelta(days=1))
    late = Event({"origin": "JFK", "price": 999}, id="late", time=START)
    source = tmp_path / "in"
    source.mkdir()
    schema = frame(spark, events).schema
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run():
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(source))
        result = detect(stream, PATTERN, key="origin", delay=timedelta(seconds=6), shards=2)
        query = (
            result.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start(out)
        )
        query.awaitTermination(120)

    for number, part in enumerate((mixed[:150], mixed[150:], [flush], [late, flush.replace(id="zzz")])):
        table = arrow([*part, events[0]]).select(arrow(events).column_names).slice(0, len(part))
        pq.write_table(table, source / f"{number}.parquet")
        run() if number in (1, 3) else None
    assert found(spark.read.parquet(out)) == monitor(events, PATTERN, "origin")


def test_a_bad_pattern_and_a_missing_column_are_clear_errors(spark):
    events = frame(spark, quotes(3))
    with pytest.raises(FilterError):
        detect(events, "x << 1 then y = 2")
    with pytest.raises(PipelineError, match="'nowhere'"):
        detect(events, PATTERN, key="nowhere")
