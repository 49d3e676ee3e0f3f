"""SIGKILL: nothing that was acknowledged is lost, and nothing is there twice. Real processes, real kills."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.store.faults import commit, take_in
from tests.store.helpers import event, events, registry

from angelia.store import Lake, LakeWriter
from angelia.store.compact import compact
from angelia.store.verify import verify

ROOT = Path(__file__).parents[2]


def start(lake: Path, first: int, fsync: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.appender", str(lake), str(first), fsync],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def run_and_kill(lake: Path, first: int, fsync: str, after: float) -> int:
    """Let a process append for a while and kill it; the last number it was told is safe."""
    process = start(lake, first, fsync)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(after)
    process.kill()
    numbers = [line for line in process.stdout.read().splitlines(keepends=False) if line]
    process.wait()
    return int(numbers[-1]) if numbers else first - 1


@pytest.mark.parametrize(("fsync", "kills"), [("batch", 3), ("interval", 1), ("none", 2)])
def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path, fsync: str, kills: int) -> None:
    chance = random.Random(fsync)
    acknowledged: set[int] = set()
    first = 0
    for _ in range(kills):
        last = run_and_kill(tmp_path, first, fsync, chance.uniform(0.0, 0.6))
        acknowledged |= set(range(first, last + 1))
        first = last + 1 + 1000 - (last + 1) % 20  # what was under way may be there or not
    found = Counter(int(each.id or -1) for each in Lake(tmp_path).events())
    LakeWriter(tmp_path, "b1", registry(), background=False).close()
    rolled = Counter(int(each.id or -1) for each in Lake(tmp_path).events())
    assert found == rolled
    assert acknowledged <= rolled.keys()
    assert len(rolled) <= len(acknowledged) + kills * 20
    assert set(rolled.values()) == {1}
    assert Lake(tmp_path).snapshot().segments == ()
    for each in Lake(tmp_path).events():
        assert each == event(int(each.id or -1))


def faults(root: Path, what: str) -> list[tuple[int, bool, bool]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.store.faults", str(root), what],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = [map(int, line.split()) for line in done.stdout.splitlines()]
    return [(step, bool(acknowledged), bool(killed)) for step, acknowledged, killed in lines]


def test_a_kill_at_each_step_of_rolling_leaves_all_events_once(tmp_path: Path) -> None:
    steps = faults(tmp_path, "roll")
    assert len(steps) > 10
    assert [killed for _, _, killed in steps] == [True] * (len(steps) - 1) + [False]
    for step, acknowledged, _ in steps:
        lake = tmp_path / str(step)
        before = list(Lake(lake).events())
        assert before in ([], events(0, 90))
        assert before or not acknowledged, step
        LakeWriter(lake, "b1", registry(), fsync="none", background=False).close()
        assert list(Lake(lake).events()) == before, step
        compact(lake, grace=0)
        assert list(Lake(lake).events()) == before, step
        leftovers = [p.name for p in lake.rglob("*") if p.name.endswith((".tmp", ".wal"))]
        assert [name for name in leftovers if not name.startswith(".")] == [], step


def test_a_kill_at_each_step_of_compacting_leaves_all_events_once(tmp_path: Path) -> None:
    steps = faults(tmp_path, "compact")
    assert len(steps) > 20
    assert any(killed for _, _, killed in steps)
    for step, _, _ in steps:
        lake = tmp_path / str(step)
        assert list(Lake(lake).events()) == events(0, 90), step
        assert Lake(lake).problems == []
        compact(lake, grace=0)
        assert list(Lake(lake).events()) == events(0, 90), step
        compact(lake, grace=0)
        hidden = [p.name for p in (lake / "events").rglob("*") if p.is_file() and p.name[0] in "._"]
        assert hidden == [], step


@pytest.mark.parametrize("again", ["compact", "commit"])
def test_a_kill_at_each_step_of_a_batch_shows_all_of_it_or_nothing(tmp_path: Path, again: str) -> None:
    """A compaction in between completes the batch, and its writer, when it is back, finds it done."""
    steps = faults(tmp_path, "batch")
    assert len(steps) > 5
    seen = set()
    for step, _, _ in steps:
        lake = tmp_path / str(step)
        before = len(list(Lake(lake).events()))
        assert before in (0, 20), step
        was_committed = any((lake / "wal" / "sink").glob("*.held"))
        assert bool(verify(lake).problems) == was_committed
        if again == "compact":
            compact(lake, grace=0)
            assert len(list(Lake(lake).events())) == (20 if was_committed else before), step
        seen.add((before, was_committed))
        commit(lake)
        found = [each.id for each in Lake(lake).events()]
        assert len(found) == len(set(found)) == 20, step
        assert verify(lake).problems == []
    assert seen == {(0, False), (0, True), (20, False)}


def test_a_kill_at_each_step_of_an_import_shows_all_of_it_or_nothing(tmp_path: Path) -> None:
    steps = faults(tmp_path, "import")
    for step, _, _ in steps:
        lake = tmp_path / str(step)
        assert len(list(Lake(lake).events())) in (0, 10), step
        take_in(lake)
        assert len(list(Lake(lake).events())) == 10, step
    assert len(steps) > 10


def test_a_broker_that_died_is_rolled_by_a_compaction(tmp_path: Path) -> None:
    run_and_kill(tmp_path, 0, "none", 0.1)
    before = list(Lake(tmp_path).events())
    compact(tmp_path)
    assert Lake(tmp_path).snapshot().segments == ()
    assert list(Lake(tmp_path).events()) == before
