"""The audit file: its tables, its hash chain, how it is opened, and how its rows are read.

Every row has the hash of its values and of the hash before it, so a row that is changed, inserted or removed breaks the
chain from there on. With a key the hashes are HMACs, so that somebody who may write to the file, but does not know the
key, cannot compute a new chain.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import DataError, PlanError
from evenhand.core.sqlite import NewerFileError, connect, connect_to_read, version_of

START = bytes(32)
"""What stands in place of the hash before the first row."""

SHORTEST_KEY = 16
"""In bytes."""
VERSION = 2
UNCHAINED = 1
"""The version of files without a hash chain."""
REQUEST = ("time", "id", "route", "endpoint", "key", "status", "action", "late", "stream", "cost", "body")
"""The columns of a request that are hashed, after its number."""
NOTE = ("time", "kind", "body")
"""The columns of a note: a row of the chain on the file itself, e.g. that old rows were deleted."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, id TEXT NOT NULL, route TEXT NOT NULL, endpoint TEXT NOT NULL,
    key TEXT NOT NULL, status INTEGER NOT NULL, action TEXT NOT NULL, late INTEGER NOT NULL, stream INTEGER NOT NULL,
    cost REAL, body TEXT NOT NULL, hash BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS by_time ON requests (time);
CREATE TABLE IF NOT EXISTS notes (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, hash BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value);
"""
_TABLES = ("requests", "notes")


def key_from(variable: str) -> bytes:
    """Return the key of the chain from an environment variable."""
    key = os.environ.get(variable, "").encode("utf-8", "surrogateescape")
    if len(key) < SHORTEST_KEY:
        state = f"has fewer than {SHORTEST_KEY} bytes" if key else "is not set"
        raise PlanError(f"The environment variable {variable} {state}; it must hold the key of the audit file.")
    return key


@dataclass(frozen=True, slots=True)
class Link:
    """A row's number and hash."""

    number: int = 0
    hash: bytes = START


class Hasher:
    """Computes the hashes of one file."""

    def __init__(self, key: bytes = b"") -> None:
        self._key = key
        self.key_id = self._digest(b"key").hex()[:16] if key else ""
        """Tells keys apart and reveals nothing about them; "" without a key."""

    def row(self, before: bytes, kind: str, values: tuple[Any, ...]) -> bytes:
        return self._digest(before + orjson.dumps([kind, *values]))

    def head(self, last: bytes) -> bytes:
        """Return the seal of the last row: without the key, nobody can make an earlier row the last one."""
        return self._digest(b"head" + last)

    def _digest(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256") if self._key else hashlib.sha256(data).digest()


def open_to_write(file: Path) -> sqlite3.Connection:
    db = connect(file, private=True, check=_check)  # prompts are private
    if not _tables(db) or version_of(db) == VERSION:
        db.executescript(f"{_SCHEMA} PRAGMA user_version={VERSION};")
    return db


def _check(db: sqlite3.Connection) -> None:
    tables = _tables(db)
    if tables and "requests" not in tables:
        raise sqlite3.DatabaseError("it holds other data")
    if tables and version_of(db) > VERSION:
        raise NewerFileError(f"a newer Evenhand wrote it (version {version_of(db)})")


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def open_to_read(file: Path) -> sqlite3.Connection:
    if not file.is_file():
        raise DataError("There is no such audit file.", file=file)
    return connect_to_read(file)


def last_link(db: sqlite3.Connection) -> Link | None:
    """Return the last row's link; None if there is no row."""
    rows = [db.execute(f"SELECT number, hash FROM {table} ORDER BY number DESC LIMIT 1") for table in _TABLES]  # noqa: S608
    return max((Link(*row) for each in rows for row in each), key=lambda link: link.number, default=None)


def state_of(db: sqlite3.Connection, name: str) -> Any:
    """Return the metadata that the writer stored next to the chain, or None."""
    row = db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
    return row and row[0]


def rotated_files(file: Path) -> list[Path]:
    """Return the rotated files, oldest first."""
    return sorted(file.parent.glob(f"{escape(file.stem)}-[0-9]*T[0-9]*{escape(file.suffix)}"))


def read_audit(file: Path, *, since: float = 0.0, actions: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield the requests in an audit file in order, as plain values."""
    try:
        db = open_to_read(file)
        try:
            columns = "time, id, route, endpoint, key, status, action, late, stream, body"
            for row in db.execute(f"SELECT {columns} FROM requests WHERE time >= ? ORDER BY number", (since,)):  # noqa: S608
                facts = dict(zip(columns.split(", ")[:-1], row[:-1], strict=True))
                if not actions or facts["action"] in actions:
                    facts |= {"late": bool(facts["late"]), "stream": bool(facts["stream"])}
                    yield {**facts, "at": _date(facts["time"]), **orjson.loads(row[-1])}
        finally:
            db.close()
    except sqlite3.Error as error:
        raise DataError(f"This is not an audit file of the server ({error}).", file=file) from error


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
