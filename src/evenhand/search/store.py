"""The cache of search results: one SQLite file shared by runs and processes. Without it, searches still work."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import DataError
from evenhand.core.sqlite import connect
from evenhand.search.base import SearchResult
from evenhand.search.replay import read_result, result_row


class SearchCache:
    """Search key → result with its time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        """Why the file is not used, or no longer used."""
        self._db: sqlite3.Connection | None = None
        try:
            self._db = connect(path, synchronous="OFF", busy=5)
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS searches"
                " (key BLOB PRIMARY KEY, query TEXT NOT NULL, time TEXT NOT NULL, found BLOB NOT NULL) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            self._give_up(error)

    def get(self, key: bytes) -> SearchResult | None:
        """Return the cached result; None if there is none or it cannot be read."""
        if self._db is None:
            return None
        try:
            row = self._db.execute("SELECT found FROM searches WHERE key = ?", (key,)).fetchone()
            return None if row is None else read_result(orjson.loads(row[0]))
        except sqlite3.Error as error:
            self._give_up(error)
        except (DataError, ValueError, TypeError):
            pass  # a damaged entry is searched again and overwritten
        return None

    def put(self, key: bytes, result: SearchResult) -> None:
        if self._db is None:
            return
        try:
            row = (key, result.query, result.time, orjson.dumps(result_row(result)))
            self._db.execute("INSERT OR REPLACE INTO searches VALUES (?, ?, ?, ?)", row)
        except sqlite3.Error as error:
            self._give_up(error)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _give_up(self, error: Exception) -> None:
        self.problem = f"the search cache {self.path} cannot be used ({error}); searches were made without it"
        self.close()


def search_key(**inputs: Any) -> bytes:
    """Return a hash of everything that determines the result of a search."""
    return hashlib.sha256(orjson.dumps(inputs, option=orjson.OPT_SORT_KEYS)).digest()
