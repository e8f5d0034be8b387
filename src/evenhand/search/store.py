"""What was found before: one SQLite file, shared by runs and processes; a file that cannot be used is done without."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from typing import Any

import orjson

from evenhand.errors import DataError
from evenhand.search.base import SearchResult
from evenhand.search.replay import found_row, read_found

_PATIENCE = 5.0
"""Seconds to wait for another process that is writing."""


class FoundStore:
    """Search → what it brought, with the time of finding."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trouble: str | None = None
        """Why the file is not used (any more)."""
        self._db: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=OFF")  # a lost entry costs one search, not a result
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS searches"
                " (key BLOB PRIMARY KEY, query TEXT NOT NULL, time TEXT NOT NULL, found BLOB NOT NULL) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def get(self, key: bytes) -> SearchResult | None:
        """What was found; an entry that cannot be read is none."""
        if self._db is None:
            return None
        try:
            row = self._db.execute("SELECT found FROM searches WHERE key = ?", (key,)).fetchone()
            return None if row is None else read_found(orjson.loads(row[0]))
        except sqlite3.Error as error:
            self._give_up(error)
        except (DataError, ValueError, TypeError):
            pass  # found again, and written over
        return None

    def put(self, key: bytes, found: SearchResult) -> None:
        if self._db is None:
            return
        try:
            row = (key, found.query, found.time, orjson.dumps(found_row(found)))
            self._db.execute("INSERT OR REPLACE INTO searches VALUES (?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            self._give_up(error)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _give_up(self, error: Exception) -> None:
        self.trouble = f"the cache of searches {self.path} cannot be used ({error}); searches were made without it"
        self.close()


def search_key(**parts: Any) -> bytes:
    """The hash of all that decides what a search brings."""
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).digest()
