"""The state of several processes: of one host in an SQLite file, of several in Redis.

SQLite's work is done in a thread of its own; a batch for Redis is one call of a script, which Redis runs atomically.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import orjson

from evenhand.core.errors import UsageError, needs_extra
from evenhand.core.sqlite import connect, transaction
from evenhand.server.state.types import (
    KEPT_SECONDS,
    PERIODS,
    SILENT_SECONDS,
    Account,
    Admission,
    Admit,
    AllSpent,
    Lease,
    Operation,
    Publish,
    Read,
    ReadSpent,
    Settle,
    SharedPage,
    SharedStoreError,
    Spent,
    WrongKey,
    from_json,
    period_of,
    to_json,
)
from evenhand.server.telemetry.events import KEPT
from evenhand.web.keys import FORGET_SECONDS, Per

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


SECONDS = 1.0
"""Time limit of a call: requests wait for it."""
_PREFIX = "{evenhand}"
_SCRIPT = (files("evenhand.server.state") / "redis.lua").read_text()
_HASH = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()
_CONSTANTS = (KEPT, int(KEPT_SECONDS), int(FORGET_SECONDS), int(SILENT_SECONDS))


class RedisStore:
    """Connects with the first operation; `url` may hold a password, which no message shows."""

    def __init__(self, url: str) -> None:
        with needs_extra("a state in Redis", "redis"):
            from redis.asyncio import Redis
            from redis.asyncio.retry import Retry
            from redis.backoff import NoBackoff
        self._place = _place(url)
        try:
            self._client: Any = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
                url,
                socket_timeout=SECONDS,
                socket_connect_timeout=SECONDS,
                retry=Retry(NoBackoff(), 1),
                decode_responses=True,
            )
        except ValueError as error:
            raise UsageError("The state's Redis has no valid URL. Write redis://HOST:PORT/0.") from error

    async def apply(self, operations: Sequence[Operation]) -> list[Any]:
        from redis.exceptions import NoScriptError, RedisError

        arguments = (1, _PREFIX, orjson.dumps(list(map(_fields, operations))), uuid.uuid4().hex, *_CONSTANTS)
        try:
            try:
                results = await self._client.evalsha(_HASH, *arguments)
            except NoScriptError:
                results = await self._client.eval(_SCRIPT, *arguments)
        except (RedisError, OSError) as error:
            raise SharedStoreError(f"Redis at {self._place}: {type(error).__name__}") from error
        return [_result(operation, each) for operation, each in zip(operations, results, strict=True)]

    async def aclose(self) -> None:
        await self._client.aclose()


def _place(url: str) -> str:
    try:
        parts = urlsplit(url)
        return f"{parts.hostname or parts.path}:{parts.port or 6379}"
    except ValueError as error:
        raise UsageError("The state's Redis has no valid URL. Write redis://HOST:PORT/0.") from error


def _fields(operation: Operation) -> dict[str, Any]:
    match operation:
        case Admit(key, quota, lease, at):
            fields: dict[str, Any] = {
                "kind": "admit",
                "key": key,
                "at": at,
                "per_minute": quota.per_minute,
                "burst": quota.burst,
                "at_once": quota.at_once,
                "tokens": quota.tokens,
                "money": quota.money,
                "per": quota.per,
                "period": period_of(quota.per, at),
                "lease": _member(lease) if quota.leases else None,
                "until": lease.until,
                "held_tokens": lease.tokens,
                "held_money": lease.money,
            }
        case Settle(key, lease, tokens, money, at):
            periods = {per: period_of(per, at) for per in PERIODS} if tokens or money else {}
            fields = {"kind": "settle", "key": key, "tokens": tokens, "money": money, "periods": periods}
            fields["lease"] = lease and _member(lease)
        case WrongKey(address):
            fields = {"kind": "wrong_key", "address": address}
        case Publish(process, events, board):
            fields = {"kind": "publish", "process": process, "events": events, "board": board}
        case Read(since):
            fields = {"kind": "read", "since": since}
        case ReadSpent():
            fields = {"kind": "spent"}
    return {name: value for name, value in fields.items() if value is not None}  # Lua's JSON has no useful null


def _member(lease: Lease) -> str:
    return f"{lease.id}|{lease.tokens!r}|{lease.money!r}"


def _result(operation: Operation, value: Any) -> Any:
    match operation:
        case Read():
            return SharedPage(*value)
        case ReadSpent():
            return _spent(value)
        case Admit():
            return Admission(*orjson.loads(value))
        case _:
            return orjson.loads(value)


def _spent(rows: Sequence[tuple[str, Per, str, str, str]]) -> AllSpent:
    found: dict[str, dict[Per, Spent]] = {}
    for key, per, period, tokens, money in sorted(rows):
        found.setdefault(key, {})[per] = Spent(period, float(tokens), float(money))
    return cast(AllSpent, found)
