"""The data source `angelia` with a real broker process: as a stream, and as a sink."""

import time

import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from tests.pipeline.worlds import arrow, expected_pairs, frame, pairs_of, quotes, subscriptions
from typer.testing import CliRunner

from angelia import connect_sync
from angelia.errors import AngeliaError
from angelia.local import LocalNetwork
from angelia.pipeline import PipelineError, match
from angelia.pipeline.cli import app
from angelia.pipeline.index import read_subscriptions
from angelia.pipeline.live import SCHEMA, BrokerStream, Spool
from angelia.pipeline.matching import match_lake
from angelia.pipeline.options import query_of
from angelia.pipeline.publishing import BrokerSink, republish
from angelia.store import LakeWriter


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    path = tmp_path_factory.mktemp("network")
    network = LocalNetwork.plan(path, 1, lake=path / "lake")
    network.start()
    yield network.brokers[0].address
    network.stop()


def until(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def test_batch_streaming_and_live_find_the_same_pairs(spark, broker, tmp_path):
    """The same events and subscriptions through subscribers, a stream of the broker, and the lake."""
    events, filters = quotes(60, type="Live"), subscriptions(15)
    stream = spark.readStream.format("angelia").option("broker", broker).option("filter", "Live: true")
    stream = stream.option("spool", str(tmp_path / "spool")).schema(
        "`@id` string, `@type` string, `@source` string, origin string, price bigint, "
        "`order.total` double, urgent boolean, `@rest` string"
    )
    query = (
        match(stream.load(), filters)
        .writeStream.format("memory")
        .queryName("live_pairs")
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    with connect_sync(broker) as client:
        inboxes = {id_: client.subscribe(text) for id_, text in filters.items()}
        until(lambda: (tmp_path / "spool").exists() and client.interest("Live: true"))
        time.sleep(1)  # the query's own subscription is not to be told from the inboxes'
        client.publish_all(events)
        wanted = expected_pairs(events, filters)
        until(lambda: spark.table("live_pairs").count() >= len(wanted))
        query.stop()
        live = {(event.id, id_) for id_, inbox in inboxes.items() for event in inbox.drain()}
    assert live == wanted
    assert pairs_of(spark.table("live_pairs")) == wanted
    with LakeWriter(tmp_path / "lake", "b1") as writer:
        writer.append(events)
    assert pairs_of(match_lake(spark, query_of({"lake": str(tmp_path / "lake")}), filters)) == wanted


def test_match_takes_the_subscriptions_that_a_broker_has(spark, broker, tmp_path):
    """As the command is given its address; what was told live is what is found in the lake."""
    events, filters = quotes(60, type="Asked"), subscriptions(15, seed=2)
    with connect_sync(broker, name="asker") as client:
        gone = client.subscribe("Asked: true")
        inboxes = {f"asker#{n}": client.subscribe(text) for n, text in enumerate(filters.values(), 2)}
        client.subscribe("price > 1 then price > 2")  # no filter, and not in the snapshot
        gone.close()
        client.publish_all(events)
        wanted = expected_pairs(events, {id_: str(box.filter) for id_, box in inboxes.items()})
        live: set[tuple[str, str]] = set()

        def told():
            live.update((event.id, id_) for id_, box in inboxes.items() for event in box.drain())
            return len(live) >= len(wanted)

        until(told)
        with LakeWriter(tmp_path / "lake", "b1") as writer:
            writer.append(events)
        places = ["--lake", str(tmp_path / "lake"), "--out", str(tmp_path / "out")]
        done = CliRunner().invoke(app, ["match", "--subscriptions", broker, *places], catch_exceptions=False)
    assert f"60 events, 15 subscriptions, {len(wanted):,} pairs" in done.stdout
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert {(row["event_id"], row["subscription_id"]) for row in rows} == wanted == live
    with pytest.raises(AngeliaError, match=r"127\.0\.0\.1:1"):
        read_subscriptions("tcp://127.0.0.1:1")


def test_a_broker_tells_of_more_subscriptions_than_fit_in_a_frame(broker):
    long = "x" * 1000
    with connect_sync(broker, name="many") as client:
        for number in range(1_200):
            client.subscribe(f'word = "{long}{number}"')
        found = client.subscriptions()
    mine = {id_: text for id_, text in found.items() if id_.startswith("many#")}
    assert mine == {f"many#{n + 1}": f'word = "{long}{n}"' for n in range(1_200)}


def test_a_frame_is_published_once_however_often_its_batch_is_committed(spark, broker, tmp_path):
    events = quotes(30, type="Sunk")
    options = {"broker": broker, "sink": "s", "spool": str(tmp_path / "ledger")}
    with connect_sync(broker) as client, client.subscribe("Sunk: true") as inbox:
        rows = frame(spark, events)
        rows.write.format("angelia").mode("append").options(batch="3", **options).save()
        rows.write.format("angelia").mode("append").options(batch="3", **options).save()
        found = [inbox.get(10) for _ in events]
        assert found == events
        sink = BrokerSink(options, "s")
        sink.commit([sink.collect(iter(arrow(events).to_batches()))], 2)  # a batch of the past
        sink.commit([sink.collect(iter(arrow(events[:1]).to_batches()))], 4)
        assert inbox.get(10) == events[0]
        time.sleep(0.2)
        assert inbox.drain() == []


def test_the_past_is_published_again_in_order(broker, tmp_path):
    with LakeWriter(tmp_path, "b1") as writer:
        writer.append(quotes(20, type="Past", prefix="p")[::-1])
    query = query_of({"lake": str(tmp_path), "type": "Past", "filter": "price < 500"})
    with connect_sync(broker) as client, client.subscribe("Past: true") as inbox:
        count = republish(query, broker, rate=1000)
        again = [inbox.get(10).id for _ in range(count)]
    assert again == [e.id for e in quotes(20, type="Past", prefix="p") if (e.get("price") or 999) < 500]


def test_a_stream_with_since_has_the_past_and_what_came_while_it_was_away(broker, tmp_path):
    events = quotes(30, type="Away")
    options = {"broker": broker, "type": "Away", "since": "2026-01-01T00:00:00Z", "spool": str(tmp_path)}
    rows = from_arrow_schema(SCHEMA)
    found = []
    with connect_sync(broker) as client:
        for start in (0, 10, 20):  # each time it is a new query, over the same spool
            client.publish_all(events[start : start + 10])
            stream = BrokerStream(options, rows)
            before = stream.initialOffset()
            until(lambda s=stream, b=before, n=start + 10: s.latestOffset(b, None)["events"] >= n)
            after = stream.latestOffset(before, None)
            parts = stream.partitions({"events": len(found)}, after)
            found += [i for part in parts for b in stream.read(part) for i in b.column("@id").to_pylist()]
            stream.stop()
    assert found == [event.id for event in events]


def test_a_spool_survives_a_torn_end_and_forgets_what_was_read(tmp_path, monkeypatch):
    monkeypatch.setattr("angelia.pipeline.live.FILE", 1)  # each append is a file
    events = quotes(12)
    spool = Spool(tmp_path)
    for place in range(9):
        spool.append(events[place : place + 1])
    with pytest.raises(PipelineError, match="another query"):
        Spool(tmp_path)
    assert [row.id for row in spool.read(2, 7)] == [event.id for event in events[2:7]]
    spool.forget(4)
    spool.close()
    last = max(tmp_path.glob("*.spool"))
    last.write_bytes(last.read_bytes() + b"\xa7WAL torn")
    spool = Spool(tmp_path)
    assert spool.end == 9
    spool.append(events[9:])
    assert [row.id for row in spool.read(4, 12)] == [event.id for event in events[4:]]
    assert spool.knows(events[8])
    with pytest.raises(PipelineError, match="are gone"):
        spool.read(0, 12)
    spool.close()


def test_a_broker_that_is_not_there_is_a_clear_error(spark, tmp_path):
    stream = (
        spark.readStream.format("angelia")
        .option("broker", "tcp://127.0.0.1:1")
        .option("spool", str(tmp_path))
    )
    query = stream.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        query.awaitTermination(60)
    with pytest.raises(Exception, match="readStream"):
        spark.read.format("angelia").option("broker", "tcp://127.0.0.1:1").load().count()
