"""Events and lakes for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from angelia import Event, EventType, TypeRegistry
from angelia.store import LakeWriter

if TYPE_CHECKING:
    from angelia.store import Lake

START = datetime(2026, 3, 1, 23, 0, tzinfo=UTC)
QUOTE = EventType("flights.Quote", {"price": "float", "airline": "string"})
LAST_MINUTE = EventType(
    "flights.LastMinute", {"hours": "integer?", "tags": "string[]?"}, parent="flights.Quote"
)


def registry() -> TypeRegistry:
    return TypeRegistry([QUOTE, LAST_MINUTE])


def event(number: int, **context: object) -> Event:
    """One of three kinds in turn, a minute apart: they cross midnight at 60."""
    at = START + timedelta(minutes=number)
    attributes: dict[str, object] = {"price": number + 0.5, "airline": "UA" if number % 2 else "AA"}
    kind: str | None = "flights.Quote"
    if number % 3 == 1:
        attributes |= {"hours": number, "tags": ["a", str(number)]}
        kind = "flights.LastMinute"
    elif number % 3 == 2:
        attributes, kind = {"n": number, "deep": {"down": True}, "at": at}, None
    return Event(attributes, **{"type": kind, "id": str(number), "time": at, "source": "test"} | context)  # type: ignore[arg-type]


def events(*numbers: int) -> list[Event]:
    return [event(number) for number in range(*numbers)]


def ids(found: object) -> list[str | None]:
    return [each.id for each in found]  # type: ignore[attr-defined]


def lake_of(path: Path, *batches: list[Event], types: TypeRegistry | None = None) -> Lake:
    """A lake with one file (a type and day) for each batch."""
    with LakeWriter(path, "b1", types or registry(), fsync="none", background=False) as writer:
        for batch in batches:
            writer.append(batch)
            writer.roll()
    from angelia.store import Lake  # not above: processes that write only start faster

    return Lake(path)


def damage(path: str, place: int = 0) -> None:
    """Flip a bit of a column's page: of what a checksum covers, wherever a file has it."""
    import pyarrow.parquet as pq

    column = pq.read_metadata(path).row_group(0).column(place)
    start = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)))
    data = bytearray(Path(path).read_bytes())
    data[start + column.total_compressed_size - 1] ^= 1
    Path(path).write_bytes(data)
