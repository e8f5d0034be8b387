"""The audit file: an SQLite file with one row per request, to show later what was changed and why.

A thread commits rows in batches, so requests never wait for the disk. If the disk is too slow, rows are dropped and
counted in the metrics. A file that is too large is rotated (audit.sqlite → audit-20261231T235959.123456.sqlite), and
rows that are too old are deleted, unless the system's clock has jumped. The config decides whether texts are stored:
not at all, redacted, or in full.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any

import orjson

from evenhand.errors import DataError, StoreError
from evenhand.guards.types import Check, InputRecord
from evenhand.server.telemetry.events import Event
from evenhand.server.telemetry.redact import Texts, with_texts, without_secrets

WAITING = 20_000
"""Queue limit in rows."""
BATCH = 500
GATHER_SECONDS = 0.2
"""How long the writer collects rows before it commits."""
CHECK_SECONDS = 60.0
"""How often the age of rows is checked; the size is checked after every batch."""
JUMP_SECONDS = 60.0
"""A clock that differs by more from the time that has passed has jumped."""
DOUBT_SECONDS = 3600.0
"""How long nothing is deleted after a jump."""
BUSY_SECONDS = 30.0
"""How long the writer waits for a lock on the file."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, id TEXT NOT NULL, route TEXT NOT NULL, endpoint TEXT NOT NULL,
    key TEXT NOT NULL, status INTEGER NOT NULL, action TEXT NOT NULL, late INTEGER NOT NULL, stream INTEGER NOT NULL,
    cost REAL, body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_time ON requests (time);
"""
_COLUMNS = ["number", "time", "id", "route", "endpoint", "key", "status", "action", "late", "stream", "cost", "body"]
_VERSION = 1
_INSERT = (
    "INSERT INTO requests (time, id, route, endpoint, key, status, action, late, stream, cost, body)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?)"
)
_DELETE = (  # a row with an old time after rows with newer ones was written while the clock was wrong
    "DELETE FROM requests WHERE time < ? AND number <"
    " coalesce((SELECT min(number) FROM requests WHERE time BETWEEN ? AND ?), ?)"
)
_log = logging.getLogger("evenhand.server")


class DoubtedClock:
    """The system's clock, doubted for a while after a jump: a wrong date must not make all rows look old."""

    def __init__(self, wall: Callable[[], float] = time.time, passed: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._passed = wall, passed
        self._offset = wall() - passed()
        self._doubted_until = float("-inf")

    def doubt(self) -> None:
        self._doubted_until = self._passed() + DOUBT_SECONDS

    def now(self) -> float | None:
        """Return the time in seconds since 1970; None while it is in doubt."""
        wall, passed = self._wall(), self._passed()
        offset = wall - passed
        if abs(offset - self._offset) > JUMP_SECONDS:
            _log.warning(
                "The system's clock jumped by %+.0f s; no audit row is deleted for %g s",
                offset - self._offset,
                DOUBT_SECONDS,
            )
            self.doubt()
        self._offset = offset
        return None if passed < self._doubted_until else wall


class AuditLog:
    """A sink that writes to `file`; one per file, because only one writer may rotate it."""

    def __init__(
        self,
        file: Path,
        *,
        texts: Texts = "none",
        megabytes: float = 100.0,
        days: float = 30.0,
        clock: DoubtedClock | None = None,
    ) -> None:
        self.file = file
        self._clock = clock or DoubtedClock()
        self.texts: Texts = texts
        self.most_bytes = megabytes * 1e6
        self._seconds = days * 86_400
        self.dropped = 0
        """Rows that were lost because the disk was too slow, full or unavailable."""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._db = _open(file)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"The audit file {file} cannot be used: {error}. Choose another file.") from error
        newest, self._own = self._db.execute("SELECT max(time), coalesce(max(number), 0) + 1 FROM requests").fetchone()
        if newest is not None and newest < (self._clock.now() or 0.0) - self._seconds:
            self._clock.doubt()  # all rows look too old, and a wrong date is a likely reason
        self._queue: queue.Queue[Event | None] = queue.Queue(WAITING)
        self._checked = self._rotate_after = 0.0
        self._thread = threading.Thread(target=self._write_all, name="evenhand-audit", daemon=True)
        self._thread.start()

    def __call__(self, event: Event) -> None:
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Commit the waiting rows and close the file."""
        self._queue.put(None)
        self._thread.join()

    # --- in the writer's thread ---

    def _write_all(self) -> None:
        running = True
        while running:
            batch, running = self._next_batch()
            rows = [row for event in batch if (row := self._row(event))]
            try:
                if rows:
                    self._commit(rows)
            except sqlite3.Error as error:
                self._lose(len(rows), error)
            try:
                self._tidy()
            except (OSError, sqlite3.Error) as error:
                self._lose(0, error)
        self._db.close()

    def _next_batch(self) -> tuple[list[Event], bool]:
        """Return the events of the next batch, and whether to continue."""
        batch: list[Event] = []
        end = time.monotonic() + CHECK_SECONDS
        while len(batch) < BATCH:
            try:
                event = self._queue.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if event is None:
                return batch, False
            if not batch:
                end = time.monotonic() + GATHER_SECONDS
            batch.append(event)
        return batch, True

    def _row(self, event: Event) -> tuple[Any, ...] | None:
        try:
            return row_of(with_texts(event, self.texts))
        except (TypeError, ValueError) as error:  # a bad row must not lose the others of its batch
            self._lose(1, error)
            return None

    def _lose(self, rows: int, error: Exception) -> None:
        """Log the loss and continue, because the disk may recover."""
        self.dropped += rows
        _log.error("The audit file %s lost %d rows: %s", self.file, rows, error)

    def _commit(self, rows: list[tuple[Any, ...]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.executemany(_INSERT, rows)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _tidy(self) -> None:
        """Rotate a file that is too large; every minute, delete rows and files that are too old."""
        if _size(self.file) > self.most_bytes and time.monotonic() >= self._rotate_after:
            self._rotate()
        if time.monotonic() - self._checked < CHECK_SECONDS and self._checked:
            return
        self._checked = time.monotonic()
        if (now := self._clock.now()) is None:
            return
        oldest = now - self._seconds
        self._db.execute(_DELETE, (oldest, oldest, now + JUMP_SECONDS, self._own))
        for old in rotated_files(self.file):
            if old.stat().st_mtime < oldest:  # the time of its newest row
                old.unlink()

    def _rotate(self) -> None:
        self._db.execute("PRAGMA busy_timeout=500")
        try:
            self._db.execute("PRAGMA journal_mode=DELETE")  # merges the write-ahead log into the file
        except sqlite3.OperationalError:  # the file is being read; try again later
            self._rotate_after = time.monotonic() + CHECK_SECONDS
            self._db.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000:.0f}")
            return
        self._db.close()
        try:
            self.file.rename(self.file.with_stem(f"{self.file.stem}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"))
        finally:
            self._db = _open(self.file)
            self._own = 1


def rotated_files(file: Path) -> list[Path]:
    """Return the rotated files, oldest first."""
    return sorted(file.parent.glob(f"{escape(file.stem)}-[0-9]*T[0-9]*{escape(file.suffix)}"))


def _input(record: InputRecord | None) -> dict[str, Any] | None:
    return record and {"action": record.action, "checks": [_check(check) for check in record.checks]}


def row_of(event: Event) -> tuple[Any, ...]:
    """Return the searchable columns, and the other fields as JSON."""
    body = {
        "why": event.why,
        "prompt": event.prompt,
        "first": event.first,
        "text": event.text,
        "input": _input(event.input),
        "before": [_check(check) for check in event.before],
        "after": [_check(check) for check in event.after],
        "first_segment": event.first_segment,
        "stages": dict(event.stages),
        "usage": asdict(event.usage),
        "error": without_secrets(event.error),
        "upstream_error": event.upstream_error,
        "upstream": event.upstream,
        "upstreams_tried": event.upstreams_tried,
    }
    facts = (event.time, event.id, event.route, event.endpoint, event.key, event.status, event.action)
    return (*facts, event.late, event.stream, event.usage.cost, _json(body))


def read_audit(file: Path, *, since: float = 0.0, actions: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield the rows of an audit file in order, as plain values."""
    try:
        db = _open_to_read(file)
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


@dataclass(frozen=True, slots=True)
class AuditState:
    """What a check of an audit file found."""

    damage: str = ""
    """What is wrong with it; empty where nothing is."""
    actions: Counter[str] = field(default_factory=Counter[str])
    """How many requests ended with each action."""
    missing: int = 0
    """Row numbers between the first and the last that are not there. Deletion by age may leave a few."""


def verify_audit(file: Path) -> AuditState:
    """Read an audit file to its end: SQLite's own check, the schema, and every row. It has no hash chain to check."""
    db = _open_to_read(file)
    try:
        return _verify(db)
    except sqlite3.Error as error:
        return AuditState(f"SQLite says: {error}")
    finally:
        db.close()


def _verify(db: sqlite3.Connection) -> AuditState:
    (result,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if result != "ok":
        return AuditState(f"SQLite says: {result}")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    columns = [name for _, name, *_ in db.execute("PRAGMA table_info(requests)")]
    if columns != _COLUMNS:
        return AuditState("it has no table of requests as the server writes it")
    if version != _VERSION:
        return AuditState(f"its schema has version {version}, and this Evenhand knows {_VERSION}")
    actions: Counter[str] = Counter()
    first = last = 0
    for number, action, body in db.execute("SELECT number, action, body FROM requests ORDER BY number"):
        first, last = first or number, number
        try:
            readable = isinstance(orjson.loads(body), dict)
        except orjson.JSONDecodeError:
            readable = False
        if not readable:
            return AuditState(f"the record of request {number:,} cannot be read")
        actions[action] += 1
    return AuditState("", actions, last - first + 1 - actions.total() if actions else 0)


def _open_to_read(file: Path) -> sqlite3.Connection:
    if not file.is_file():
        raise DataError("There is no such audit file.", file=file)
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=30)


def _open(file: Path) -> sqlite3.Connection:
    file.touch(mode=0o600)  # prompts are private
    db = sqlite3.connect(file, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        _prepare(db)
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection) -> None:
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and "requests" not in tables:
        raise sqlite3.DatabaseError("it holds other data")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("PRAGMA secure_delete=ON")  # overwrites deleted rows
    db.executescript(_SCHEMA)
    db.execute(f"PRAGMA user_version={_VERSION}")


def _size(file: Path) -> int:
    log = file.with_name(file.name + "-wal")
    return file.stat().st_size + (log.stat().st_size if log.exists() else 0)


def _check(check: Check) -> dict[str, Any]:
    return {name: value for name, value in asdict(check).items() if value not in ("", None)}


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
