"""Where things are in a lake: names of folders and files, and what they tell.

    events/<EventType>/date=YYYY-MM-DD/<broker>-<segment>-<tag>.parquet    what was published, rolled
    types/<EventType>/<version>.json, columns.json                         definitions, and kinds of columns
    wal/<broker>/<segment>.wal                                             what is not rolled yet

A segment is a number that rises; the tag is a digest of the type's name. So a file name says which segment
it was made of (rolling again makes the same names), and types that share a folder on a file system that
does not tell `quote` from `Quote` still have files of their own.

Names of types come from strangers: what is not a letter, a digit, `-`, `_` or a dot is escaped as Hive does
(`%2F`), and so is a first character that would hide the folder (`.`, `_`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from angelia.errors import LakeError

__all__ = [
    "COMPACTED",
    "IMPORT",
    "UNTYPED",
    "LakeFile",
    "Segment",
    "compacted_name",
    "date_folder",
    "events_folder",
    "file_name",
    "folder_names",
    "folder_of",
    "is_marker",
    "listed",
    "marker_name",
    "marker_result",
    "name_of",
    "parse_date",
    "parse_file",
    "replaced_name",
    "segment_path",
    "sync_folder",
    "tag_of",
    "temporary_name",
    "temporary_owner",
    "types_folder",
    "wal_folder",
]

UNTYPED = "Event"  # the folder of events without a type
COMPACTED = "compacted"  # stands for the broker in the names of files that `compact` made
IMPORT = "import"  # and in those of files that were imported

_MAX_FOLDER = 200  # bytes; file systems allow 255
_ODD = re.compile(rb"[^A-Za-z0-9._-]")
_FILE = re.compile(r"(?P<broker>.+)-(?P<segment>\d{1,20})-(?P<tag>[0-9a-f]{8})\.parquet")
_TEMPORARY = re.compile(rf"_{_FILE.pattern}\.\d+\.tmp")
_DATE = re.compile(r"date=(\d{4}-\d\d-\d\d)")


@dataclass(frozen=True, slots=True, order=True)
class LakeFile:
    """A Parquet file of a lake. `folder` is that of the type, as it is on disk."""

    path: str
    folder: str
    date: date
    broker: str
    segment: int
    tag: str
    size: int


@dataclass(frozen=True, slots=True, order=True)
class Segment:
    """A write-ahead segment, and how many bytes of it count."""

    path: str
    broker: str
    number: int
    size: int


# ---------------------------------------------------------------- names


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]


def _escape(name: str) -> str:
    text = _ODD.sub(_escaped, name.encode()).decode()
    if text[0] in "._":
        text = f"%{ord(text[0]):02X}{text[1:]}"
    if text[-1] == ".":
        text = f"{text[:-1]}%2E"
    if len(text) > _MAX_FOLDER:
        text = f"{text[:_MAX_FOLDER]}~{sha256(name.encode()).hexdigest()[:16]}"
    return text


@lru_cache(maxsize=4096)
def folder_of(type_name: str | None) -> str:
    """The folder of a type's events."""
    return UNTYPED if type_name is None else _escape(type_name)


def name_of(folder: str) -> str | None:
    """The type whose folder this is, or None if the name was too long to tell."""
    if "~" in folder:
        return None
    return re.sub(rb"%([0-9A-F]{2})", lambda m: bytes.fromhex(m[1].decode()), folder.encode()).decode(
        errors="replace"
    )


@lru_cache(maxsize=4096)
def tag_of(type_name: str | None) -> str:
    """A digest of a type's name."""
    return sha256((type_name or "").encode()).hexdigest()[:8]


def file_name(broker: str, segment: int, type_name: str | None) -> str:
    """The name of a Parquet file."""
    return f"{_escape(broker)}-{segment:016d}-{tag_of(type_name)}.parquet"


def compacted_name(number: int, tag: str) -> str:
    """The name of a file that a compaction makes."""
    return f"{COMPACTED}-{number:016d}-{tag}.parquet"


def replaced_name(name: str) -> str:
    """The name, hidden from readers, of a file whose events are in another one now."""
    return f"_replaced-{name}"


def marker_name(name: str) -> str:
    """The name of the marker that tells what a compacted file replaces."""
    return f"_marker-{name}.json"


def is_marker(name: str) -> bool:
    """Whether a name is that of a marker."""
    return name.startswith("_marker-") and name.endswith(".json")


def marker_result(name: str) -> str:
    """The compacted file that a marker is about."""
    return name.removeprefix("_marker-").removesuffix(".json")


def temporary_name(name: str) -> str:
    """The name of a file while it is written; readers take no notice of it."""
    return f"_{name}.{os.getpid()}.tmp"


def temporary_owner(name: str) -> str | None:
    """The broker (the name of its folder) that writes a file under a temporary name, or None."""
    parts = _TEMPORARY.fullmatch(name)
    return None if parts is None else parts["broker"]


# ---------------------------------------------------------------- places


def events_folder(lake: Path) -> Path:
    """Where the folders of types are."""
    return lake / "events"


def types_folder(lake: Path) -> Path:
    """Where definitions of types are kept."""
    return lake / "types"


def wal_folder(lake: Path, broker: str | None = None) -> Path:
    """Where segments are: of all brokers, or of one."""
    return lake / "wal" if broker is None else lake / "wal" / _escape(broker)


def segment_path(lake: Path, broker: str, number: int) -> Path:
    """A segment of a broker."""
    return wal_folder(lake, broker) / f"{number:016d}.wal"


def date_folder(at: datetime) -> str:
    """The folder of a day, in UTC."""
    return f"date={at.astimezone(UTC).date().isoformat()}"


def parse_file(path: str, folder: str, day: date, size: int) -> LakeFile | None:
    """What a path tells, or None if it is no file of ours."""
    parts = _FILE.fullmatch(os.path.basename(path))
    if parts is None:
        return None
    return LakeFile(path, folder, day, parts["broker"], int(parts["segment"]), parts["tag"], size)


def parse_date(name: str) -> date | None:
    """The day of a folder, or None."""
    parts = _DATE.fullmatch(name)
    try:
        return date.fromisoformat(parts[1]) if parts else None
    except ValueError:
        return None


def folder_names(path: Path) -> list[str]:
    """The folders in a folder, sorted; none if it is not there."""
    try:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise LakeError(f"cannot read {path}: {error.strerror}") from None


def listed(path: Path) -> list[str]:
    """The names in a folder, sorted, as they were at one moment.

    Files may come and go while a folder is read, and what is renamed may be missed under both names. Two
    readings that agree are one picture: whatever made the first one wrong is in the second.
    """
    before: list[str] | None = None
    while True:
        try:
            now = sorted(os.listdir(path))
        except FileNotFoundError:
            return []
        if now == before:
            return now
        before = now


def sync_folder(path: Path) -> None:
    """Have names that were made or removed in a folder survive a loss of power."""
    if os.name == "nt":
        return  # folders cannot be opened there
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
