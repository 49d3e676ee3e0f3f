"""What `make demo` runs, with fewer flights."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime

from angelia.demo import flights
from angelia.types import TypeRegistry


def test_flights_come_in_the_order_of_time_and_conform_to_their_types():
    registry = TypeRegistry()
    for cls in flights.TYPES:
        registry.add_class(cls)
    events = flights.load(2000)
    assert len({event.id for event in events}) == 2000
    assert [event.time for event in events] == sorted(event.time for event in events)
    assert events[0].time >= datetime(2013, 1, 1, 10, tzinfo=UTC)
    assert {event.type for event in events} == {"flights.Departure", "flights.Cancellation"}
    for event in events:
        registry.check(event)


def test_the_demo_delivers_what_direct_evaluation_and_spark_find_and_cleans_up(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "angelia", "demo", "--flights", "3000"],
        capture_output=True,
        text=True,
        timeout=240,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "HOME": str(tmp_path), "COLUMNS": "200"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("equal") == 7  # six subscribers, and Spark
    assert "3,000 events published" in run.stdout
    sent = int(re.search(r"([\d,]+) messages on links", run.stdout)[1].replace(",", ""))
    assert 0 < sent < 3000 * 4 / 2  # less than half of what flooding sends
    assert list(tmp_path.glob("angelia-demo-*")) == []
