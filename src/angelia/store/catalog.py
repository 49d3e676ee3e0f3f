"""What a lake knows of event types: their definitions, version by version, and the kinds of their columns.

Both are small files that are replaced as a whole. Several brokers may write them: the definitions of one
version are resolved as registries do, and columns are added under a lock, the first kind being the one that
counts. Kinds only ever widen, from integers to floats.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from angelia.errors import AngeliaError, LakeError
from angelia.store.columns import Columns, column_of, widened
from angelia.store.layout import folder_names, folder_of, sync_folder, types_folder, wal_folder
from angelia.types import EventType, TypeRegistry

__all__ = ["Catalog", "is_owned", "locked", "open_locked", "write_whole"]

log = logging.getLogger("angelia.lake")

_COLUMNS = "columns.json"


class Catalog:
    """The `types` folder of a lake."""

    def __init__(self, lake: Path) -> None:
        self._folder = types_folder(lake)

    # ------------------------------------------------ definitions

    def save(self, event_type: EventType) -> None:
        """Keep a definition; of two with one version, the one that sorts last by its encoding."""
        folder = self._folder / folder_of(event_type.name)
        path = folder / f"{event_type.version}.json"
        text = msgspec.json.encode(event_type)
        try:
            known = path.read_bytes()
        except FileNotFoundError:
            known = b""
        if known < text:
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)

    def definitions(self) -> Iterator[EventType]:
        """All definitions, the versions of a type in their order."""
        for name in folder_names(self._folder):
            folder = self._folder / name
            versions = sorted(int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit())
            for version in versions:
                path = folder / f"{version}.json"
                try:
                    yield msgspec.json.decode(path.read_bytes(), type=EventType)
                except (OSError, AngeliaError, msgspec.MsgspecError) as error:
                    log.warning("%s is not the definition of a type, and is left out: %s", path, error)

    def registry(self) -> TypeRegistry:
        """The newest definition of each type; one whose parent is not there is left out."""
        newest = {each.name: each for each in self.definitions()}
        registry = TypeRegistry()
        waiting = dict(newest)
        while waiting:
            ready = [each for each in waiting.values() if each.parent is None or each.parent in registry]
            if not ready:
                log.warning("the parents of these types are not in the lake: %s", ", ".join(sorted(waiting)))
                break
            for each in ready:
                del waiting[each.name]
                try:
                    registry.add(each)
                except AngeliaError as error:
                    log.warning("the lake's definition of %s is left out: %s", each.name, error)
        return registry

    # ------------------------------------------------ columns

    def columns(self, folder: str) -> Columns:
        """The columns that files in a folder have, as far as anybody has written them."""
        path = self._folder / folder / _COLUMNS
        try:
            texts: Mapping[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
            return {name: column_of(text) for name, text in texts.items()}
        except FileNotFoundError:
            return {}
        except (msgspec.MsgspecError, AngeliaError) as error:
            raise LakeError(f"{path} is damaged: {error}; remove it, and it is made anew") from None

    def settle(self, folder: str, wanted: Columns) -> Columns:
        """Add columns to those of a folder; returns all, as they are from now on."""
        known = self.columns(folder)
        if wanted.keys() <= known.keys() and all(
            (widened(known[name], column) or known[name]) == known[name] for name, column in wanted.items()
        ):
            return known
        (self._folder / folder).mkdir(parents=True, exist_ok=True)
        with locked(self._folder / folder / ".lock"):
            known = self.columns(folder)
            for name, column in wanted.items():
                there = known.get(name, column)
                known[name] = widened(there, column) or there
            texts = {name: str(column) for name, column in known.items()}
            write_whole(self._folder / folder / _COLUMNS, msgspec.json.encode(texts))
        return known


# ---------------------------------------------------------------- files


def write_whole(path: Path, data: bytes) -> None:
    """Replace a small file: readers see the old one or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; waits for it."""
    handle = open_locked(path, wait=True)
    assert handle is not None
    try:
        yield
    finally:
        os.close(handle)


def open_locked(path: Path, wait: bool) -> int | None:
    """Open a file and lock it until it is closed; None if somebody else has it and we do not `wait`."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    try:
        _lock(handle, wait)
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return handle


def is_owned(lake: Path, broker: str) -> bool:
    """Whether a process writes the lake as this broker (the name of its folder)."""
    folder = wal_folder(lake) / broker
    if not folder.is_dir():
        return False
    handle = open_locked(folder / "lock", wait=False)
    if handle is None:
        return True
    os.close(handle)
    return False


def _lock(handle: int, wait: bool) -> None:
    try:
        import fcntl
    except ImportError:  # not on this system: brokers there do not share a lake
        return
    fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
