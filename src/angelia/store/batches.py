"""Batches: files that count together, or not at all.

A hold, `wal/<name>/<first>-<last>.held`, hides the files of a writer whose segments have these numbers. So a
batch is put in place file by file, and one rename of the hold to `….released` makes it visible: readers have
all of it or nothing, whenever the process is killed.

The hold of a sink tells which staged files become which: to write it is the commit. Whoever finds one that
nobody works on completes it: the writer when it comes back, or a compaction. What was released is remembered
for a while, so that a batch that is committed again changes nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from angelia.errors import LakeError
from angelia.store.catalog import locked, open_locked, write_whole
from angelia.store.layout import LakeFile, folder_names, listed, sync_folder, wal_folder

__all__ = [
    "Hold",
    "Holds",
    "Move",
    "commit_batch",
    "finish_batches",
    "held_path",
    "holds",
    "is_committed",
    "release",
]

KEPT = 100  # batches of a writer that are remembered
FORGOTTEN = 86_400  # seconds after which what was staged will not be committed any more

_NAME = re.compile(r"(\d{1,20})-(\d{1,20})\.(held|released)")


class Hold(NamedTuple):
    """The files of a writer (the name of its folder) with the numbers from `first` to `last`."""

    writer: str
    first: int
    last: int


class Holds(NamedTuple):
    """What is hidden, and which batches were made visible of late."""

    held: frozenset[Hold]
    released: frozenset[Hold]

    def hide(self, file: LakeFile) -> bool:
        """Whether a file does not count yet."""
        return any(
            file.broker == hold.writer and hold.first <= file.segment <= hold.last for hold in self.held
        )

    def since(self, before: Holds) -> bool:
        """Whether a batch became visible after `before`."""
        return bool(before.held - self.held or self.released - before.released)


class Move(msgspec.Struct, array_like=True):
    """A staged file, and what it is to be; both within the lake."""

    staged: str
    final: str


def held_path(lake: Path, writer: str, first: int, last: int) -> Path:
    """The hold on some numbers of a writer."""
    return wal_folder(lake, writer) / f"{first:016d}-{last:016d}.held"


def holds(lake: Path) -> Holds:
    """What is hidden in a lake now."""
    found: dict[str, set[Hold]] = {"held": set(), "released": set()}
    for writer in folder_names(wal_folder(lake)):
        for name in listed(wal_folder(lake) / writer):
            if parts := _NAME.fullmatch(name):
                found[parts[3]].add(Hold(writer, int(parts[1]), int(parts[2])))
    return Holds(frozenset(found["held"]), frozenset(found["released"]))


def is_committed(hold: Path) -> bool:
    """Whether the batch of a hold was committed before."""
    return hold.exists() or hold.with_suffix(".released").exists()


def commit_batch(lake: Path, hold: Path, moves: Sequence[Move]) -> None:
    """Make staged files visible; its writer must not do so twice at once, and `locked` sees to it."""
    with locked(hold.parent / "lock"):
        if not is_committed(hold):
            write_whole(hold, msgspec.json.encode(moves))
        if hold.exists():
            _complete(lake, hold)


def _complete(lake: Path, hold: Path) -> None:
    try:
        moves = msgspec.json.decode(hold.read_bytes(), type=list[Move])
    except msgspec.MsgspecError as error:
        raise LakeError(f"{hold} is damaged: {error}") from None
    folders = set()
    for move in moves:
        staged, final = lake / move.staged, lake / move.final
        if staged.exists():
            final.parent.mkdir(parents=True, exist_ok=True)
            os.replace(staged, final)
            folders.add(final.parent)
    for folder in folders:
        sync_folder(folder)
    release(hold)


def release(hold: Path) -> None:
    """Have files count from now on."""
    os.replace(hold, hold.with_suffix(".released"))
    sync_folder(hold.parent)
    for path in sorted(hold.parent.glob("*.released"))[:-KEPT]:
        path.unlink(missing_ok=True)


def finish_batches(lake: Path) -> int:
    """Complete what sinks that died had committed; remove what they staged in vain, and tell how much."""
    removed = 0
    for folder in _sinks(lake):
        lock = open_locked(folder / "lock", wait=False)
        if lock is None:
            continue  # it is at it
        try:
            for hold in sorted(folder.glob("*.held")):
                _complete(lake, hold)
            removed += _tidied(lake / "staged" / folder.name)
        finally:
            os.close(lock)
    return removed


def _sinks(lake: Path) -> Iterator[Path]:
    for name in folder_names(lake / "staged"):
        folder = wal_folder(lake) / name
        if folder.is_dir():
            yield folder


def _tidied(staged: Path) -> int:
    old = [path for path in staged.iterdir() if time.time() - path.stat().st_mtime > FORGOTTEN]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)
