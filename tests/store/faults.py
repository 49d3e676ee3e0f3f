"""Kills a process at every step of its work: `faults.py ROOT roll|compact|batch|import`.

The steps are the calls that change what is on disk. For each, a forked process does the work on a fresh copy
of the lake and kills itself just before that call; the one that is not killed ends the series.
"""

import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

from tests.store.helpers import events, registry

from angelia.store import LakeWriter
from angelia.store.batches import Move, commit_batch, held_path
from angelia.store.compact import compact
from angelia.store.importer import import_file
from angelia.store.layout import file_name

STEPS = ("replace", "unlink", "fsync")


def kill_at(step: int) -> None:
    """Have this process killed before a call."""
    calls = count()

    def guarded(original):
        def call(*arguments, **keywords):
            if next(calls) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **keywords)

        return call

    for name in STEPS:
        setattr(os, name, guarded(getattr(os, name)))


def roll(lake: Path) -> None:
    writer = LakeWriter(lake, "b1", registry(), background=False)
    writer.append(events(0, 90))
    os.write(1, b"ack")
    writer.close()


def prepare(lake: Path) -> None:
    with LakeWriter(lake, "b1", registry(), background=False, fsync="none") as writer:
        for start in range(0, 90, 30):
            writer.append(events(start, start + 30))
            writer.roll()


def stage(lake: Path) -> None:
    """Two files of a batch, where nobody sees them."""
    for number, some in enumerate((events(0, 30), events(30, 60))):
        with LakeWriter(lake / "made", f"b{number}", registry(), background=False, fsync="none") as writer:
            writer.append([each for each in some if each.type == "flights.Quote"])
    made = sorted((lake / "made" / "events").rglob("*.parquet"))
    (lake / "staged" / "sink").mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(made):
        path.replace(lake / "staged" / "sink" / f"{number}.parquet")
    shutil.rmtree(lake / "made")


def commit(lake: Path) -> None:
    """Make them visible."""
    folder = "events/flights.Quote/date=2026-03-01"
    moves = [
        Move(f"staged/sink/{n}.parquet", f"{folder}/{file_name('sink', 70 + n, 'flights.Quote')}")
        for n in range(2)
    ]
    (lake / "wal" / "sink").mkdir(parents=True, exist_ok=True)
    commit_batch(lake, held_path(lake, "sink", 70, 79), moves)


def take_in(lake: Path) -> None:
    """Import a file with rows of two days."""
    source = lake.parent / "rows.jsonl"
    lines = [f'{{"id": "{n}", "time": "2026-03-0{1 + n % 2}T00:00:00Z", "n": {n}}}\n' for n in range(10)]
    source.write_text("".join(lines))
    import_file(source, lake)


WORK = {"roll": roll, "compact": lambda lake: compact(lake, grace=0), "batch": commit, "import": take_in}
BEFORE = {"compact": prepare, "batch": stage}  # what there is when the work begins


def main() -> None:
    root, what = Path(sys.argv[1]), sys.argv[2]
    if what in BEFORE and os.fork() == 0:  # this process must have no threads, since it forks
        BEFORE[what](root / "fresh")
        os._exit(0)
    if what in BEFORE:
        os.wait()
    for step in count():
        lake = root / str(step)
        if what in BEFORE:
            shutil.copytree(root / "fresh", lake)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writer, 1)
            kill_at(step)
            WORK[what](lake)
            os._exit(0)
        os.close(writer)
        _, status = os.waitpid(child, 0)
        acknowledged = os.read(reader, 3) == b"ack"
        os.close(reader)
        print(step, int(acknowledged), int(os.WIFSIGNALED(status)), flush=True)
        if not os.WIFSIGNALED(status):
            return


if __name__ == "__main__":
    main()
