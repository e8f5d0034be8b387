"""The ratings given on the web page: one SQLite file, to which every rating is written before it is confirmed.

The latest rating of a cell (rater, answer, scale) counts. To undo is to remove a rater's last row, so that the rating
before it counts again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.core import sqlite
from evenhand.core.errors import DataError, StoreError

FILE = "ratings.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS ratings (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    rater TEXT NOT NULL,
    item TEXT NOT NULL,
    scale TEXT NOT NULL,
    value INTEGER,
    at REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS cells ON ratings (rater, item, scale, number);
"""
_CURRENT = """
SELECT rater, item, scale, value, at FROM ratings
WHERE number IN (SELECT max(number) FROM ratings GROUP BY rater, item, scale) ORDER BY number
"""


@dataclass(frozen=True, slots=True)
class Rating:
    """What a rater said about an answer on one scale; None if they cannot tell."""

    rater: str
    item: str
    scale: str
    value: int | None
    at: float
    """In seconds since 1970."""


class Journal:
    """All ratings of a study; several processes may use the file at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # A rating survives a crash of this process in any case, and with FULL also a power failure.
            self._db = sqlite.connect(path, synchronous="FULL", private=True)
            sqlite.migrate(self._db, (_SCHEMA,))
        except OSError as error:
            raise DataError(
                f"cannot be written: {error.strerror}. Use a folder that you may write to.", file=path
            ) from error
        except sqlite.NewerFileError as error:
            raise DataError("written by a newer version of Evenhand. Update Evenhand to read it.", file=path) from error
        except sqlite3.Error as error:
            raise DataError(
                f"cannot be used: {sqlite.reason(error)}. Restore the file, or move it away.", file=path
            ) from error

    def close(self) -> None:
        self._db.close()

    def rate(self, rating: Rating) -> None:
        """Store a rating; it is on disk when this returns. The same rating twice in a row is one."""
        cell = (rating.rater, rating.item, rating.scale)
        with self._writing():
            last = self._db.execute(
                "SELECT value FROM ratings WHERE rater = ? AND item = ? AND scale = ? ORDER BY number DESC LIMIT 1",
                cell,
            ).fetchone()
            if last != (rating.value,):
                self._db.execute(
                    "INSERT INTO ratings (rater, item, scale, value, at) VALUES (?, ?, ?, ?, ?)",
                    (*cell, rating.value, rating.at),
                )

    def undo(self, rater: str) -> tuple[str, str] | None:
        """Take back the rater's last rating and return its answer and scale; None if there is nothing to take back."""
        with self._writing():
            last = self._db.execute(
                "SELECT number, item, scale FROM ratings WHERE rater = ? ORDER BY number DESC LIMIT 1", (rater,)
            ).fetchone()
            if last is None:
                return None
            self._db.execute("DELETE FROM ratings WHERE number = ?", last[:1])
            return last[1], last[2]

    def current(self) -> list[Rating]:
        """Return the rating that counts of every cell, in the order in which they were given."""
        return [Rating(*row) for row in self._db.execute(_CURRENT)]

    def stamp(self) -> tuple[Any, ...]:
        """Return a value that changes with the ratings."""
        return self._db.execute("SELECT max(number), count(*) FROM ratings").fetchone()

    @contextmanager
    def _writing(self) -> Generator[None]:
        try:
            with sqlite.transaction(self._db):
                yield
        except sqlite3.Error as error:
            raise StoreError(f"The rating was not saved: {error} ({self._path.name}).") from error
