"""SQLite files: how they are opened, migrated and written, and what is said of a damaged one.

All connections commit each statement by itself, unless it stands in a `transaction`, and may be used by any thread,
one at a time.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Literal

BUSY_SECONDS = 30.0
"""How long to wait for another process that is writing."""


class NewerFileError(sqlite3.DatabaseError):
    """A newer version of Evenhand wrote the file."""


def connect(
    path: Path,
    *,
    synchronous: Literal["OFF", "NORMAL", "FULL"] = "NORMAL",
    busy: float = BUSY_SECONDS,
    private: bool = False,
    check: Callable[[sqlite3.Connection], object] | None = None,
) -> sqlite3.Connection:
    """Open a file that several processes may use at once; it is made if it is missing, and so is its folder.

    Args:
        synchronous: OFF for caches, whose loss costs only time; FULL for what must survive a power cut at once.
        private: Deleted rows are overwritten.
        check: Raises if the file is not the wanted one; called before anything is written to it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.touch(mode=0o600)  # prompts and answers are for nobody else
    db = sqlite3.connect(path, timeout=busy, isolation_level=None, check_same_thread=False)
    try:
        if check is not None:
            check(db)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(f"PRAGMA synchronous={synchronous}")
        if private:
            db.execute("PRAGMA secure_delete=ON")
    except BaseException:
        db.close()
        raise
    return db


def connect_to_read(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """Open a file without changing it; `immutable` also where not even a lock can be taken."""
    address = f"{path.absolute().as_uri()}?{'immutable=1' if immutable else 'mode=ro'}"
    return sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)


def connect_to_draft(path: Path | None) -> sqlite3.Connection:
    """Open a file that is thrown away if it is not finished, so it needs no journal; None: in memory."""
    db = sqlite3.connect(path or ":memory:", isolation_level=None)
    db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;")
    return db


def backup(db: sqlite3.Connection, path: Path) -> None:
    """Write all that is committed to a file of its own, also while others write."""
    with contextlib.closing(sqlite3.connect(path)) as copy:
        db.backup(copy)


def version_of(db: sqlite3.Connection) -> int:
    """Return the number of the last migration."""
    return db.execute("PRAGMA user_version").fetchone()[0]


def migrate(db: sqlite3.Connection, steps: Sequence[str]) -> None:
    """Apply the migrations that are missing, all or none; steps are only ever added at the end."""
    if version_of(db) > len(steps):
        raise NewerFileError("it was written by a newer version of Evenhand")
    if version_of(db) == len(steps):
        return
    with transaction(db):
        for step in steps[version_of(db) :]:  # another process may have just applied them
            for statement in step.split(";"):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(steps)}")


@contextlib.contextmanager
def transaction(db: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    """Write all statements of the block, or none."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def reason(error: Exception) -> str:
    """Return in plain words why a file cannot be used, with SQLite's own words behind them."""
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    for words, plain in _REASONS.items():
        if words in text:
            return f"{plain} ({text})"
    return text


_REASONS = {
    "not a database": "the file is damaged or no SQLite file",
    "malformed": "the file is damaged",
    "disk is full": "the disk is full",
    "locked": "another process has kept it locked",
    "readonly": "it may not be written",
    "unable to open": "the file cannot be opened",
}
