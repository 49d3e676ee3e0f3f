"""Kills a process at every step of rolling and of compacting: `faults.py ROOT roll|compact`.

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
from angelia.store.compact import compact

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


def main() -> None:
    root, what = Path(sys.argv[1]), sys.argv[2]
    if what == "compact" and os.fork() == 0:  # this process must have no threads, since it forks
        prepare(root / "fresh")
        os._exit(0)
    if what == "compact":
        os.wait()
    for step in count():
        lake = root / str(step)
        if what == "compact":
            shutil.copytree(root / "fresh", lake)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writer, 1)
            kill_at(step)
            roll(lake) if what == "roll" else compact(lake, grace=0)
            os._exit(0)
        os.close(writer)
        _, status = os.waitpid(child, 0)
        acknowledged = os.read(reader, 3) == b"ack" or what == "compact"
        os.close(reader)
        print(step, int(acknowledged), int(os.WIFSIGNALED(status)), flush=True)
        if not os.WIFSIGNALED(status):
            return


main()
