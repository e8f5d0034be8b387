"""The store's schema as numbered, append-only migrations, applied when a store is opened."""

from __future__ import annotations

import sqlite3

from evenhand.core import sqlite
from evenhand.core.errors import PlanError

STEPS: tuple[str, ...] = (
    """
    CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE samples (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body BLOB NOT NULL);
    CREATE TABLE turns (
        id INTEGER PRIMARY KEY, sample INTEGER NOT NULL, arm INTEGER NOT NULL, role TEXT NOT NULL, key BLOB NOT NULL,
        calls INTEGER NOT NULL, cached INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL, retries INTEGER NOT NULL, cost REAL, latency REAL NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX turns_of_sample ON turns (sample, arm);
    CREATE TABLE outcomes (
        sample INTEGER NOT NULL, arm INTEGER NOT NULL, status TEXT NOT NULL, reason TEXT, seconds REAL NOT NULL,
        body BLOB, PRIMARY KEY (sample, arm)
    );
    CREATE TABLE scores (
        sample INTEGER NOT NULL, arm INTEGER NOT NULL, scorer TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (sample, arm, scorer)
    );
    """,
    """
    ALTER TABLE scores RENAME TO scores_before;
    CREATE TABLE scores (
        sample INTEGER NOT NULL, arm INTEGER NOT NULL, scorer TEXT NOT NULL, iteration INTEGER NOT NULL,
        status TEXT NOT NULL, reason TEXT, body TEXT, PRIMARY KEY (sample, arm, iteration, scorer)
    );
    INSERT INTO scores SELECT sample, arm, scorer, -1, 'graded', NULL, body FROM scores_before;
    DROP TABLE scores_before;
    """,
    """
    ALTER TABLE turns ADD COLUMN thought_tokens INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE outcomes ADD COLUMN at_limit INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE outcomes ADD COLUMN reading TEXT;
    """,
)


TABLES = frozenset({"facts", "samples", "turns", "outcomes", "scores"})


def is_older(db: sqlite3.Connection) -> bool:
    """Whether migrations are missing."""
    return sqlite.version_of(db) < len(STEPS)


def migrate(db: sqlite3.Connection) -> None:
    """Apply the migrations that are missing; refuse a store of a newer version, or one that has lost tables."""
    try:
        sqlite.migrate(db, STEPS)
    except sqlite.NewerFileError as error:
        raise PlanError("This run was made by a newer version of Evenhand; upgrade to open it.") from error
    if missing := TABLES - {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}:
        raise sqlite3.DatabaseError(f"its file is damaged and has no table {', '.join(sorted(missing))}")
