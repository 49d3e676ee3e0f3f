"""What a broker keeps over restarts, in a directory of its own: webhook subscriptions and event types.

An SQLite database that one process has at a time. Every change is one transaction, forced to disk: it is
there whole or not at all, however the process ends. A change of a subscription is there before it is
answered; that of a type, which may come from a peer, soon after. The secrets of subscriptions are in it,
so it is readable by its owner alone, and what is removed is overwritten.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from angelia.errors import AngeliaError, BrokerError, EventTypeError
from angelia.types import EventType, TypeRegistry

__all__ = ["KeptWebhook", "State", "Status"]

log = logging.getLogger("angelia.broker")

FILE = "broker.sqlite"
_VERSION = 1
_APPLICATION = 0x414E4745  # ANGE: what tells our files from others
_SETUP = (
    "PRAGMA locking_mode = EXCLUSIVE",
    "PRAGMA journal_mode = TRUNCATE",
    "PRAGMA synchronous = FULL",
    "PRAGMA secure_delete = ON",
    "BEGIN EXCLUSIVE",
)
_TABLES = (
    "CREATE TABLE types (name TEXT PRIMARY KEY, definition BLOB NOT NULL)",
    "CREATE TABLE webhooks (id TEXT PRIMARY KEY, record BLOB NOT NULL)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_VERSION}",
)
_KEEP = {
    table: f"INSERT INTO {table} VALUES (?, ?) ON CONFLICT ({key}) DO UPDATE SET {value} = excluded.{value}"
    for table, key, value in (("types", "name", "definition"), ("webhooks", "id", "record"))
}

Status = Literal["pending", "active", "ended"]
_Kept = TypeVar("_Kept")


class KeptWebhook(msgspec.Struct, frozen=True):
    """A webhook subscription as it was asked for, secrets included, and what its sink has said to it."""

    id: str
    document: dict[str, Any]
    key: str  # with which the sink may confirm
    status: Status
    reason: str = ""
    rate: int | None = None


class State:
    """The database of a broker. Changes are made one after the other, in a thread beside the event loop."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / FILE
        try:
            self._database = self._open(directory)
        except OSError as error:
            raise BrokerError(f"cannot keep state in {directory}: {error.strerror or error}") from None
        except sqlite3.OperationalError as error:
            raise BrokerError(f"cannot keep state in {self.file}: {_told(error)}") from None
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from None
        self._writer = ThreadPoolExecutor(1, "state")

    def _open(self, directory: Path) -> sqlite3.Connection:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.file, os.O_RDWR | os.O_CREAT, 0o600))
        self.file.chmod(0o600)  # and so that of its journal
        database = sqlite3.connect(self.file, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            for statement in _SETUP:
                database.execute(statement)
            if (found := _value(database, "PRAGMA quick_check")) != "ok":
                raise self._damaged(str(found))
            ours = _value(database, "PRAGMA application_id"), _value(database, "PRAGMA user_version")
            is_new = ours == (0, 0) and _value(database, "SELECT count(*) FROM sqlite_master") == 0
            if not is_new and ours != (_APPLICATION, _VERSION):
                raise self._damaged("another program, or another version of angelia, has made it")
            for statement in (*(_TABLES if is_new else ()), "COMMIT"):
                database.execute(statement)
        except BaseException:
            database.close()
            raise
        return database

    def _damaged(self, why: str) -> BrokerError:
        return BrokerError(f"{self.file} is damaged, or no state of a broker: {why}; restore or remove it")

    # ------------------------------------------------ what was kept

    def restore_types(self, registry: TypeRegistry) -> None:
        """Add the event types that were kept to those that a registry knows."""
        for event_type in self._read("SELECT definition FROM types ORDER BY rowid", EventType):
            try:
                registry.adopt(event_type)
            except EventTypeError as error:
                raise BrokerError(f"an event type in {self.file} does not fit the others: {error}") from None

    def webhooks(self) -> list[KeptWebhook]:
        """The webhook subscriptions, in the order in which they were made."""
        return list(self._read("SELECT record FROM webhooks ORDER BY rowid", KeptWebhook))

    def _read(self, query: str, kind: type[_Kept]) -> Iterator[_Kept]:
        try:
            for (data,) in self._database.execute(query):
                yield msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, AngeliaError, sqlite3.DatabaseError, TypeError) as error:
            raise self._damaged(str(error)) from None

    # ------------------------------------------------ changes

    async def keep_webhook(self, kept: KeptWebhook) -> None:
        """Keep a subscription as it is now; a `BrokerError` if that cannot be."""
        await self._write(_KEEP["webhooks"], kept.id, msgspec.json.encode(kept))

    async def forget_webhook(self, identity: str) -> None:
        """Forget a subscription; a `BrokerError` if that cannot be."""
        await self._write("DELETE FROM webhooks WHERE id = ?", identity)

    def keep_types(self, news: Iterable[EventType], gone: Iterable[str]) -> None:
        """Keep definitions as they are now, and forget others, soon; the log tells if that cannot be."""
        for event_type in news:
            self._soon(event_type.name, _KEEP["types"], event_type.name, msgspec.json.encode(event_type))
        for name in gone:
            self._soon(name, "DELETE FROM types WHERE name = ?", name)

    def _soon(self, name: str, statement: str, *values: object) -> None:
        def written(done: Future[None]) -> None:
            if (error := done.exception()) is not None:
                log.error("what became of the event type %s is not kept: %s", name, error)

        self._writer.submit(self._execute, statement, *values).add_done_callback(written)

    async def _write(self, statement: str, *values: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._writer, self._execute, statement, *values)

    def _execute(self, statement: str, *values: object) -> None:
        try:
            self._database.execute(statement, values)
        except sqlite3.DatabaseError as error:
            raise BrokerError(f"cannot write to {self.file}: {error}") from None

    def close(self) -> None:
        """Let another process have it; what was asked for before is written first."""
        self._writer.shutdown()
        self._database.close()


def _value(database: sqlite3.Connection, query: str) -> Any:
    return database.execute(query).fetchone()[0]


def _told(error: sqlite3.OperationalError) -> str:
    return "another process has it" if "locked" in str(error) else str(error)
