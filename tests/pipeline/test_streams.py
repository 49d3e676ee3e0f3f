"""Streams that run for long: subscriptions that change, and processes that are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.pipeline.conftest import FAST
from tests.pipeline.worlds import expected_pairs, pairs_of, quotes, subscriptions

from angelia import Event
from angelia.pipeline import match
from angelia.store import Lake, LakeWriter

JOB = """
import json, sys
from angelia.pipeline import keep, match, open_session

lake, filters, out, copy, once = sys.argv[1:]
spark = open_session("local[2]", json.loads({conf!r}))
source = spark.readStream.format("angelia").option("lake", lake).option("maxFilesPerTrigger", "1")
found = keep(match(source.load(), filters), out, out + "-checkpoint", every="0 seconds", once=once == "once")
sink = source.load().writeStream.format("angelia").option("lake", copy).option("sink", "copy")
sink = sink.option("checkpointLocation", copy + "-checkpoint")
sink = sink.trigger(availableNow=True) if once == "once" else sink.trigger(processingTime="0 seconds")
copied = sink.start()
found.awaitTermination()
copied.awaitTermination()
"""
# What Spark itself fails of, under load, when one of its threads serialises what another one changes.
RACE = "of collection, expected"


def until(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


def write_whole(path, filters):
    """As a careful user replaces a file."""
    text = "".join(json.dumps({"id": i, "filter": f}) + "\n" for i, f in filters.items())
    path.with_suffix(".tmp").write_text(text)
    path.with_suffix(".tmp").rename(path)


def test_a_stream_that_is_killed_twice_loses_nothing_and_has_nothing_twice(tmp_path):
    """Each kill takes the driver and its JVM, in the middle of a micro-batch; files are there one a batch."""
    lake, out, copy = (tmp_path / name for name in ("lake", "out", "copy"))
    events, filters = quotes(300, type="Told"), subscriptions(10)
    with LakeWriter(lake, "b1", background=False) as writer:
        for start in range(0, 300, 25):
            writer.append(events[start : start + 25])
            writer.roll()
    write_whole(tmp_path / "subscriptions.jsonl", filters)
    script = tmp_path / "job.py"
    script.write_text(JOB.format(conf=json.dumps(FAST)))
    command = [
        sys.executable,
        str(script),
        str(lake),
        str(tmp_path / "subscriptions.jsonl"),
        str(out),
        str(copy),
    ]

    def commits(which):
        return len(list(Path(f"{which}-checkpoint/commits").glob("[0-9]*")))

    def kill_after(done):
        """Whether it came so far."""
        with (tmp_path / "log").open("w") as log:
            job = subprocess.Popen([*command, "go on"], start_new_session=True, stderr=log)
        try:
            until(lambda: max(commits(out), commits(copy)) >= done or job.poll() is not None)
            return job.poll() is None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)  # the group that was made for this job
            job.wait()

    def restarted(job):
        """Start a job again, as its user would, if it is Spark that failed."""
        for _ in range(3):
            if job():
                return
            told = (tmp_path / "log").read_text()
            assert RACE in told, told
        pytest.fail("Spark failed three times")

    def finish():
        with (tmp_path / "log").open("w") as log:
            return subprocess.run([*command, "once"], stderr=log, timeout=400).returncode == 0

    restarted(lambda: kill_after(2))
    restarted(lambda: kill_after(5))
    assert commits(out) + commits(copy) < 24  # there is something left to do
    restarted(finish)
    import pyarrow.parquet as pq

    rows = [row for file in out.rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    found = [(row["event_id"], row["subscription_id"]) for row in rows]
    assert len(found) == len(set(found))
    assert set(found) == expected_pairs(events, filters)
    assert [event.id for event in Lake(copy).events()] == [event.id for event in events]


def test_a_stream_picks_up_new_subscriptions_without_a_restart(spark, tmp_path):
    lake, path = tmp_path / "lake", tmp_path / "subscriptions.jsonl"
    write_whole(path, {"a": "x = 1"})
    with LakeWriter(lake, "b1", background=False) as writer:
        writer.append([Event({"x": 1}, id="first", time=quotes(1)[0].time)])
        writer.roll()
        events = spark.readStream.format("angelia").option("lake", str(lake)).load()
        stream = match(events, path).writeStream.format("memory").queryName("watched")
        query = stream.trigger(processingTime="100 milliseconds").start()
        until(lambda: spark.table("watched").count() == 1)
        path.write_text('{"id": "a", "filter": "x = 1"}\n{"id": "b", ')  # an editor at work
        writer.append([Event({"x": 1}, id="second", time=quotes(1)[0].time)])
        writer.roll()
        until(lambda: spark.table("watched").count() == 2)
        write_whole(path, {"a": "x = 1", "b": "y = 2"})  # an attribute that nobody asked about before
        writer.append([Event({"x": 1, "y": 2}, id="third", time=quotes(1)[0].time)])
        writer.roll()
        until(lambda: spark.table("watched").count() >= 4)
        query.stop()
    assert pairs_of(spark.table("watched")) == {
        ("first", "a"),
        ("second", "a"),
        ("third", "a"),
        ("third", "b"),
    }


@pytest.mark.parametrize("ids", [{1: "true"}, {"a": "true"}])
def test_ids_of_watched_subscriptions_keep_their_type(spark, tmp_path, ids):
    write_whole(tmp_path / "s.jsonl", ids)
    with LakeWriter(tmp_path / "lake", "b1") as writer:
        writer.append(quotes(3))
    events = spark.readStream.format("angelia").option("lake", str(tmp_path / "lake")).load()
    kinds = dict(match(events, tmp_path / "s.jsonl").dtypes)
    assert kinds["subscription_id"] == ("bigint" if 1 in ids else "string")
