"""The state of several processes of one host, in an SQLite file; all work is done in a thread of its own."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from evenhand.core.sqlite import connect, transaction
from evenhand.server.state.types import (
    KEPT_SECONDS,
    SILENT_SECONDS,
    Account,
    Admit,
    AllSpent,
    Operation,
    Publish,
    Read,
    ReadSpent,
    Settle,
    SharedPage,
    SharedStoreError,
    WrongKey,
    from_json,
    to_json,
)
from evenhand.server.telemetry.events import KEPT
from evenhand.web.keys import FORGET_SECONDS

BUSY_SECONDS = 2.0
"""How long to wait for another process's write."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS accounts (key TEXT PRIMARY KEY, account BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS wrong_keys (address TEXT PRIMARY KEY, row INTEGER NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS events (number INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, event TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS boards (process TEXT PRIMARY KEY, at REAL NOT NULL, board TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS about (start TEXT NOT NULL);
"""


class SqliteStore:
    """Opens the file with the first operation and creates it if it is missing."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="state")
        self._database: sqlite3.Connection | None = None

    async def apply(self, operations: Sequence[Operation]) -> list[Any]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._apply, operations)

    async def aclose(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _apply(self, operations: Sequence[Operation]) -> list[Any]:
        try:
            database = self._database = self._database or _opened(self._file)
            with transaction(database):
                batch = _Batch(database)
                results = [batch.result(each) for each in operations]
                batch.save()
        except (sqlite3.Error, OSError) as error:
            self._close()
            raise SharedStoreError(f"{self._file}: {error}") from error
        return results

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
        self._database = None


def _opened(file: Path) -> sqlite3.Connection:
    database = connect(file, busy=BUSY_SECONDS, private=True)
    try:
        database.executescript(_SCHEMA)
        database.execute("INSERT INTO about SELECT ? WHERE NOT EXISTS (SELECT 1 FROM about)", (uuid.uuid4().hex,))
    except BaseException:
        database.close()
        raise
    return database


class _Batch:
    """The operations of one transaction; every account is read and written once."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._accounts: dict[str, Account] = {}

    def result(self, operation: Operation) -> Any:
        match operation:
            case Admit():
                return self._account(operation.key).admit(operation)
            case Settle():
                return self._account(operation.key).settle(operation)
            case WrongKey():
                return self._wrong_key(operation)
            case Publish():
                return self._publish(operation)
            case Read():
                return self._read(operation)
            case ReadSpent():
                return self._spent()

    def save(self) -> None:
        rows = [(key, to_json(account)) for key, account in self._accounts.items()]
        self._database.executemany("INSERT OR REPLACE INTO accounts VALUES (?, ?)", rows)

    def _account(self, key: str) -> Account:
        account = self._accounts.get(key)
        if account is None:
            row = self._database.execute("SELECT account FROM accounts WHERE key = ?", (key,)).fetchone()
            account = self._accounts[key] = from_json(row[0]) if row else Account()
        return account

    def _wrong_key(self, wrong: WrongKey) -> int:
        self._database.execute("DELETE FROM wrong_keys WHERE at <= ?", (wrong.at - FORGET_SECONDS,))
        return self._database.execute(
            "INSERT INTO wrong_keys VALUES (?, 1, ?)"
            " ON CONFLICT DO UPDATE SET row = row + 1, at = excluded.at RETURNING row",
            (wrong.address, wrong.at),
        ).fetchone()[0]

    def _publish(self, news: Publish) -> None:
        rows = [(news.at, event) for event in news.events]
        self._database.executemany("INSERT INTO events (at, event) VALUES (?, ?)", rows)
        self._database.execute("DELETE FROM events WHERE number <= ? OR at < ?", (self._count() - KEPT, _oldest(news)))
        self._database.execute("INSERT OR REPLACE INTO boards VALUES (?, ?, ?)", (news.process, news.at, news.board))
        self._database.execute("DELETE FROM boards WHERE at < ?", (news.at - SILENT_SECONDS,))

    def _read(self, ask: Read) -> SharedPage:
        def column(query: str, *values: float) -> list[str]:
            return [row[0] for row in self._database.execute(query, values)]

        return SharedPage(
            start=column("SELECT start FROM about")[0],
            count=self._count(),
            events=column(
                "SELECT event FROM events WHERE number > ? AND at >= ? ORDER BY number", ask.since, _oldest(ask)
            ),
            boards=column("SELECT board FROM boards WHERE at >= ?", ask.at - SILENT_SECONDS),
        )

    def _count(self) -> int:
        row = self._database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return row[0] if row else 0

    def _spent(self) -> AllSpent:
        rows = self._database.execute("SELECT key, account FROM accounts ORDER BY key")
        return {key: spent for key, account in rows if (spent := from_json(account).spent)}


def _oldest(operation: Publish | Read) -> float:
    return operation.at - KEPT_SECONDS
