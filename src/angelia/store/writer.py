"""The lake's writer: one for a broker. It appends to a segment, and has segments rolled behind its back.

`append` returns when the events are where a killed process cannot take them back: with the operating system,
and, by the policy `batch`, on the disk. A segment that is large or old enough is sealed, and a thread rolls
it. What a writer finds of an earlier life of its broker is rolled when it starts.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple, Self, get_args

from angelia.errors import AngeliaError, LakeError
from angelia.event import Event
from angelia.store import segment as segments
from angelia.store.catalog import Catalog, open_locked
from angelia.store.layout import COMPACTED, IMPORT, segment_path, sync_folder, wal_folder
from angelia.store.rolling import roll
from angelia.store.segment import Damage, Parts, encode_event, read_segment
from angelia.types import TypeRegistry

__all__ = ["Fsync", "LakeWriter", "Limits", "Position", "Recovery"]

log = logging.getLogger("angelia.lake")

_RESERVED = (COMPACTED, IMPORT)
_PATIENCE = 10  # times that a lock is asked for

Fsync = Literal["batch", "interval", "none"]


@dataclass(frozen=True, slots=True)
class Limits:
    """When a segment is sealed: whichever comes first. Rolling takes some ten times its bytes of memory."""

    size: int = 16 << 20  # bytes
    rows: int = 100_000
    age: float = 60.0  # seconds


class Position(NamedTuple):
    """A place in what a broker has appended: everything before it is of its past."""

    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a writer found damaged in a segment of an earlier life."""

    path: str
    damage: tuple[Damage, ...]


class _Active:
    """The segment that is appended to."""

    def __init__(self, path: Path, number: int, now: float) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        self.handle = os.open(path, flags, 0o644)
        self.path = path
        self.number = number
        self.started = now
        self.size = 0
        self.rows = 0
        self.is_dirty = False

    def write(self, data: bytes) -> None:
        """Write it all; if that fails, the segment is as before."""
        view, start = memoryview(data), self.size
        try:
            while view:
                view = view[os.write(self.handle, view) :]
        except OSError as error:
            os.ftruncate(self.handle, start)
            os.lseek(self.handle, start, os.SEEK_SET)
            raise LakeError(f"cannot append to {self.path}: {error.strerror}; nothing was kept") from error
        self.size += len(data)
        self.is_dirty = True

    def sync(self) -> None:
        """Have it on the disk."""
        if self.is_dirty:
            os.fsync(self.handle)
            self.is_dirty = False


class LakeWriter:
    """Appends events to the lake in `directory` for the broker `broker_id`, which no other process is.

    `fsync`: `batch` (each append waits for the disk: nothing acknowledged is lost when the power goes),
    `interval` (every `interval` seconds: a killed process loses nothing, a loss of power what came since) or
    `none` (when the system likes). Without `background`, segments are rolled when `roll` is called.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        broker_id: str,
        registry: TypeRegistry | None = None,
        *,
        fsync: Fsync = "batch",
        interval: float = 1.0,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
        background: bool = True,
    ) -> None:
        if fsync not in get_args(Fsync):
            raise LakeError(f"there is no fsync policy {fsync!r}; there are {', '.join(get_args(Fsync))}")
        if not broker_id or broker_id in _RESERVED:
            raise LakeError(f"a broker that writes a lake needs a name, other than {' and '.join(_RESERVED)}")
        self.lake = Path(directory)
        self.broker_id = broker_id
        self.fsync: Fsync = fsync
        self.recovered: list[Recovery] = []
        self._registry = registry if registry is not None else TypeRegistry()
        self._limits = limits or Limits()
        self._clock = clock
        self._interval = interval
        self._catalog = Catalog(self.lake)
        self._types = self._catalog.registry()
        self._types_seen = -1
        self._wal = wal_folder(self.lake, broker_id)
        self._lock = threading.RLock()  # guards what follows; nobody rolls while holding it
        self._rolling = threading.Lock()  # held by the one who rolls
        self._wake = threading.Condition(self._lock)
        self._active: _Active | None = None
        self._sealed: list[int] = []
        self._rolled: list[int] = []  # that somebody still reads
        self._holds: dict[object, int] = {}
        self._is_closed = False
        self._owner = self._own()
        self._last = self._read_last()
        self._recover()
        self._thread: threading.Thread | None = None
        if background:
            self._thread = threading.Thread(target=self._run, name=f"lake-{broker_id}", daemon=True)
            self._thread.start()

    # ------------------------------------------------ appending

    def append(self, events: Iterable[Event]) -> None:
        """Keep events; they need an id and a time. All of them, or none if this raises."""
        encoded = []
        for event in events:
            if event.id is None or event.time is None:
                raise LakeError("an event of the lake has an id and a time: who publishes it stamps it")
            encoded.append(encode_event(event))
        self.append_encoded(encoded)

    def append_encoded(self, encoded: Sequence[bytes]) -> None:
        """Keep events that are encoded as on the wire (`[attributes, type, source, subject, id, time]`)."""
        if not encoded:
            return
        data = segments.record(encoded)
        with self._lock:
            self._check_open()
            self._save_types()
            active = self._active or self._open()
            active.write(data)
            active.rows += len(encoded)
            if self.fsync == "batch":
                self._sync(active)
            if self._is_due(active):
                self._seal()

    def _sync(self, active: _Active) -> None:
        try:
            active.sync()
        except OSError as error:
            self._seal()  # what the system did with the pages is unknown: go on elsewhere
            raise LakeError(f"the disk did not take {active.path}: {error.strerror}") from error

    def _save_types(self) -> None:
        """Keep definitions that are new: a reader, and our next life, may know no broker."""
        if self._registry.version == self._types_seen:
            return
        self._types_seen = self._registry.version
        for name in self._registry:
            event_type = self._registry.get(name)
            try:
                if self._types.adopt(event_type):
                    self._catalog.save(event_type)
            except AngeliaError as error:
                log.warning("the lake knows %s otherwise; what does not fit goes to @rest: %s", name, error)

    def position(self) -> Position:
        """Where the next event will be."""
        with self._lock:
            if self._active is None:
                return Position(self._last + 1, 0)
            return Position(self._active.number, self._active.size)

    def path(self, number: int) -> Path:
        """Where a segment is."""
        return segment_path(self.lake, self.broker_id, number)

    def following(self, number: int) -> int | None:
        """The first segment from a number on that is there, or None."""
        with self._lock:
            active = [] if self._active is None else [self._active.number]
            return min(
                (each for each in (*self._rolled, *self._sealed, *active) if each >= number), default=None
            )

    # ------------------------------------------------ segments

    def _open(self) -> _Active:
        number = max(self._last + 1, round(self._clock() * 1e6))
        path = self.path(number)
        self._write_last(number)
        self._active = active = _Active(path, number, self._clock())
        if self.fsync != "none":
            sync_folder(path.parent)
        return active

    def _is_due(self, active: _Active) -> bool:
        limits = self._limits
        return (
            active.size >= limits.size
            or active.rows >= limits.rows
            or self._clock() - active.started >= limits.age
        )

    def _seal(self) -> None:
        active, self._active = self._active, None
        if active is None:
            return
        try:
            if self.fsync != "none" and active.is_dirty:
                os.fsync(active.handle)
        except OSError as error:
            log.error("the disk did not take %s: %s", active.path, error.strerror)
        finally:
            os.close(active.handle)
        self._sealed.append(active.number)
        self._wake.notify_all()

    def roll(self) -> int:
        """Seal what there is and turn it into Parquet now; returns how many segments were rolled."""
        with self._lock:
            self._check_open()
            self._seal()
        return self._roll_sealed()

    def _roll_sealed(self) -> int:
        count = 0
        with self._rolling:
            while True:
                with self._lock:
                    if not self._sealed:
                        return count
                    number = self._sealed[0]
                self._roll(number)
                with self._lock:
                    self._sealed.remove(number)
                    self._rolled.append(number)
                    self._drop_rolled()
                count += 1

    def _roll(self, number: int) -> None:
        path = self.path(number)
        damage: list[Damage] = []
        rows: list[Parts] = []
        for _, events in read_segment(path, damage=damage):
            rows += events
        with self._lock:
            self._save_types()
        roll(
            self.lake, self.broker_id, number, rows, self._catalog, self._types, durable=self.fsync != "none"
        )
        if damage:
            self._report(path, damage)

    def _report(self, path: Path, damage: list[Damage]) -> None:
        for each in damage:
            log.warning("%s: %s at byte %d, %d bytes cut", path, each.reason, each.offset, each.length)
        self.recovered.append(Recovery(str(path), tuple(damage)))
        if not all(each.is_tail for each in damage):  # more than an append that did not return: keep it
            kept = path.with_suffix(".damaged")
            kept.write_bytes(path.read_bytes())
            log.warning("the damaged segment is kept as %s", kept)

    def _drop_rolled(self) -> None:
        """Remove segments that are rolled and that nobody reads."""
        oldest = min(self._holds.values(), default=None)
        for number in list(self._rolled):
            if oldest is None or number < oldest:
                self.path(number).unlink(missing_ok=True)
                self._rolled.remove(number)
        if self.fsync != "none":
            sync_folder(self._wal)

    def hold(self, position: Position, token: object = None) -> object:
        """Keep the segments from `position` on until `release`; a `token` moves on what it holds."""
        with self._lock:
            token = token if token is not None else object()
            self._holds[token] = position.segment
            self._drop_rolled()
        return token

    def release(self, token: object) -> None:
        """Let go of what `hold` kept."""
        with self._lock:
            if self._holds.pop(token, None) is not None:
                self._drop_rolled()

    # ------------------------------------------------ the background

    def _run(self) -> None:
        while not self._is_closed:
            with self._lock:
                if not self._sealed and not self._is_closed:
                    self._wake.wait(self._pause())
                active = self._active
                if active is not None and self._is_due(active):
                    self._seal()
            self._sync_at_intervals()
            try:
                self._roll_sealed()
            except Exception:  # a full disk, say: the segments are there, and it is tried again
                log.exception("segments of %s could not be rolled; trying again", self.broker_id)
                time.sleep(self._interval)

    def _pause(self) -> float:
        return min(self._interval, max(0.01, self._limits.age / 4))

    def _sync_at_intervals(self) -> None:
        with self._lock:
            active = self._active
            if self.fsync != "interval" or active is None or not active.is_dirty:
                return
            active.is_dirty = False
            handle = os.dup(active.handle)
        try:
            os.fsync(handle)  # without the lock: appends go on
        except OSError as error:
            log.error("the disk did not take %s: %s", active.path, error.strerror)
        finally:
            os.close(handle)

    # ------------------------------------------------ beginning and end

    def _own(self) -> int:
        try:
            self._wal.mkdir(parents=True, exist_ok=True)
            owner = open_locked(self._wal / "lock", wait=False)
        except OSError as error:
            raise LakeError(f"cannot write to the lake {self.lake}: {error.strerror}") from None
        for _ in range(_PATIENCE):  # somebody may just have a look whether anybody has it
            if owner is not None:
                break
            time.sleep(0.02)
            owner = open_locked(self._wal / "lock", wait=False)
        if owner is None:
            raise LakeError(
                f"another process writes {self.lake} as {self.broker_id!r}; brokers that share a lake "
                "need names of their own"
            )
        return owner

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._wal.glob("*.wal") if path.stem.isdigit())

    def _read_last(self) -> int:
        """The last number that was used: it must not be used again, even if the clock goes back."""
        text = os.pread(self._owner, 32, 0).decode("ascii", "replace").strip()
        return max(int(text) if text.isdigit() else 0, *self._numbers(), 0)

    def _write_last(self, number: int) -> None:
        self._last = number
        os.pwrite(self._owner, f"{number:020d}\n".encode(), 0)
        if self.fsync != "none":
            os.fsync(self._owner)

    def _recover(self) -> None:
        """Roll what an earlier life left."""
        self._sealed = self._numbers()
        self._roll_sealed()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LakeError(f"the writer of {self.broker_id!r} is closed")

    def close(self) -> None:
        """Roll what there is and let go of the broker's name."""
        with self._lock:
            if self._is_closed:
                return
            self._seal()
            self._is_closed = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()
        try:
            self._roll_sealed()
        finally:
            os.close(self._owner)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
