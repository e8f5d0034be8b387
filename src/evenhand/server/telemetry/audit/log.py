"""The writer of the audit file: an SQLite file with one row per request, to show later what was changed and why.

A thread commits rows in batches, so requests never wait for the disk. If the disk is too slow, rows are dropped and
counted in the metrics. A file that is too large is rotated (audit.sqlite → audit-20261231T235959.123456.sqlite), and
rows that are too old are deleted. The config decides whether texts are stored: not at all, redacted, or in full.

Every row is a link of a hash chain, which continues over restarts and rotated files. Notes in the chain tell of all
that is no request: starts and ends, lost rows, and rows and files that were deleted by age.

Rows are deleted by a clock of our own, which distrusts the system's clock: that may be wrong.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from evenhand.core.errors import StoreError
from evenhand.core.sqlite import BUSY_SECONDS, transaction
from evenhand.guards.types import Check, InputRecord
from evenhand.server.telemetry.audit.file import (
    START,
    VERSION,
    Hasher,
    Link,
    last_link,
    open_to_read,
    open_to_write,
    rotated_files,
    state_of,
    version_of,
)
from evenhand.server.telemetry.events import Event
from evenhand.server.telemetry.logs import Texts, with_texts, without_secrets

CATCH_UP = 2.0
"""How fast this clock may run compared to the time that passes, until it has caught up with the system's clock."""
BEHIND_SECONDS = 3600.0
"""A larger difference to the system's clock is logged."""
_log = logging.getLogger("evenhand.server")
WAITING = 20_000
"""Queue limit in rows."""
BATCH = 500
GATHER_SECONDS = 0.2
"""How long the writer collects rows before it commits."""
CHECK_SECONDS = 600.0
"""How often the age of rows is checked; the size is checked after every batch."""
RETRY_SECONDS = 60.0
"""When a file is rotated that could not be, because somebody read it."""
AHEAD_SECONDS = 60.0
"""A row with a time further ahead was written while the clock was wrong."""
_INSERT_REQUEST = "INSERT INTO requests VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"
_INSERT_NOTE = "INSERT INTO notes VALUES (?,?,?,?,?)"
_LAST_OLD = (
    "SELECT number, hash FROM requests WHERE time < ? AND number <"
    " coalesce((SELECT min(number) FROM requests WHERE time BETWEEN ? AND ?), ?) ORDER BY number DESC LIMIT 1"
)


class RetentionClock:
    """Never ahead of the system's clock, and never faster than twice the time that passes while the server runs.

    So a system clock that is wrong for an hour deletes at most one hour of rows too early, whatever it shows. After a
    long time without a running server, rows are deleted late until this clock has caught up.
    """

    def __init__(
        self,
        reached: float | None = None,
        wall: Callable[[], float] = time.time,
        passed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall, self._passed = wall, passed
        self.reached = wall() if reached is None else reached
        """The latest time that is certain, in seconds since 1970; it is stored for the next start."""
        self._at = passed()
        self._reported = False

    def now(self) -> float:
        wall, at = self._wall(), self._passed()
        self.reached = max(self.reached, min(wall, self.reached + CATCH_UP * (at - self._at)))
        self._at = at
        behind = wall - self.reached
        if behind > BEHIND_SECONDS and not self._reported:
            _log.warning(
                "The system's clock is %.0f hours ahead of the time that the audit file has seen; until that time has "
                "passed, its rows are deleted late",
                behind / 3600,
            )
        self._reported = behind > BEHIND_SECONDS
        return min(wall, self.reached)


# A row with an old time after rows with newer ones was written while the clock was wrong.


class AuditLog:
    """A sink that writes to `file`; one per file, because only one writer may rotate it."""

    def __init__(
        self,
        file: Path,
        *,
        texts: Texts = "none",
        megabytes: float = 100.0,
        days: float = 30.0,
        key: bytes = b"",
        clock: RetentionClock | None = None,
    ) -> None:
        self.file = file
        self.texts: Texts = texts
        self.most_bytes = megabytes * 1e6
        self._seconds = days * 86_400
        self._hasher = Hasher(key)
        self.dropped = 0
        """Rows that were lost because the disk was too slow, full or unavailable."""
        self._recorded = 0
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._db = open_to_write(file)
            try:
                if version_of(self._db) != VERSION or state_of(self._db, "key") not in (None, self._hasher.key_id):
                    self._set_aside()  # the chain of one file has one key
                self._start()
                self._clock = clock or RetentionClock(state_of(self._db, "clock"))
            except BaseException:
                self._db.close()
                raise
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"The audit file {file} cannot be used: {error}. Choose another file.") from error
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

    def _start(self, *, rotated: bool = False) -> None:
        """Record a start: whether the last process crashed and, in an empty file, which file it continues."""
        end = _end_in(self._db, self.file)
        body: dict[str, Any] = {}
        if end is None and (ends := self._ends()):
            end = ends[-1]
            body = {"file": end.file.name, "number": end.number, "hash": end.hash.hex()}
        end = end or _End(0, self.file)
        if not (rotated or end.closed):
            _log.warning("The audit file %s was not closed; rows that waited for the disk were lost", end.file)
            body["crashed"] = True
        with self._transaction(Link(end.number, end.hash)) as chain:
            chain.note("opened", body)
            chain.keep("key", self._hasher.key_id)
            chain.keep("clock", end.clock)
        self._own = end.number + 1

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
        try:
            self._end()
        except sqlite3.Error as error:
            self._lose(0, error)
        self._db.close()

    def _end(self) -> None:
        with self._transaction() as chain:
            self._record_losses(chain, self.dropped)
            chain.note("closed", {})
            self._clock.now()
            chain.keep("clock", self._clock.reached)
        self._log_end()

    def _log_end(self) -> None:
        """Log the last hash, so that somebody who can change the file but not the log cannot cut off its end."""
        if last := last_link(self._db):
            _log.info("The audit file %s ends with row %d, hash %s", self.file, last.number, last.hash.hex())

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
        dropped = self.dropped
        with self._transaction() as chain:
            for row in rows:
                chain.request(row)
            self._record_losses(chain, dropped)
        self._recorded = dropped

    def _record_losses(self, chain: _Chain, dropped: int) -> None:
        if dropped > self._recorded:
            chain.note("lost", {"rows": dropped - self._recorded})

    @contextlib.contextmanager
    def _transaction(self, last: Link | None = None) -> Generator[_Chain]:
        with transaction(self._db):
            chain = _Chain(self._db, self._hasher, last_link(self._db) or last or Link())
            yield chain
            chain.keep("head", self._hasher.head(chain.last.hash))

    def _tidy(self) -> None:
        """Rotate a file that is too large; every ten minutes, delete rows and files that are too old."""
        if _size(self.file) > self.most_bytes and time.monotonic() >= self._rotate_after:
            self._rotate()
        if time.monotonic() - self._checked < CHECK_SECONDS and self._checked:
            return
        self._checked = time.monotonic()
        now = self._clock.now()
        oldest = now - self._seconds
        with self._transaction() as chain:
            chain.keep("clock", self._clock.reached)
            self._delete_rows(chain, oldest, now)
        self._delete_files(oldest)

    def _delete_rows(self, chain: _Chain, oldest: float, now: float) -> None:
        """Delete from the first row to the last that is too old, without gaps, and record where the chain goes on."""
        row = self._db.execute(_LAST_OLD, (oldest, oldest, now + AHEAD_SECONDS, self._own)).fetchone()
        if row is not None:
            number, hashed = row
            count = self._db.execute("DELETE FROM requests WHERE number <= ?", (number,)).rowcount
            self._db.execute("DELETE FROM notes WHERE number <= ?", (number,))
            chain.note("deleted", {"number": number, "hash": hashed.hex(), "requests": count})

    def _delete_files(self, oldest: float) -> None:
        for end in self._ends():
            if end.file.stat().st_mtime >= oldest:  # the time of its newest row
                return
            with self._transaction() as chain:
                chain.note("deleted", {"file": end.file.name, "number": end.number, "hash": end.hash.hex()})
            end.file.unlink()

    def _ends(self) -> list[_End]:
        return sorted((_end_of(each) for each in rotated_files(self.file)), key=lambda end: (end.number, end.file))

    def _rotate(self) -> None:
        self._log_end()
        try:
            self._set_aside()
        except sqlite3.OperationalError:  # the file is being read; try again later
            self._rotate_after = time.monotonic() + RETRY_SECONDS
            return
        self._start(rotated=True)

    def _set_aside(self) -> None:
        """Rename the file and open a new one."""
        self._db.execute("PRAGMA busy_timeout=500")
        try:
            self._db.execute("PRAGMA journal_mode=DELETE")  # merges the write-ahead log into the file
        finally:
            self._db.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000:.0f}")
        self._db.close()
        try:
            self.file.rename(self.file.with_stem(f"{self.file.stem}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"))
        finally:
            self._db = open_to_write(self.file)


class _Chain:
    """Appends rows within one transaction."""

    def __init__(self, db: sqlite3.Connection, hasher: Hasher, last: Link) -> None:
        self._db, self._hasher = db, hasher
        self.last = last

    def request(self, values: tuple[Any, ...]) -> None:
        self._add(_INSERT_REQUEST, "request", values)

    def note(self, kind: str, body: dict[str, Any]) -> None:
        self._add(_INSERT_NOTE, "note", (time.time(), kind, _json(body)))

    def keep(self, name: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    def _add(self, insert: str, kind: str, values: tuple[Any, ...]) -> None:
        number = self.last.number + 1
        hashed = self._hasher.row(self.last.hash, kind, (number, *values))
        self._db.execute(insert, (number, *values, hashed))
        self.last = Link(number, hashed)


@dataclass(frozen=True, slots=True)
class _End:
    """Where the chain of a file ends; number 0 for a file without a chain.

    Numbers tell the order of files; their names may not, if the clock was wrong.
    """

    number: int
    file: Path
    hash: bytes = START
    clock: float | None = None
    closed: bool = True


def _end_in(db: sqlite3.Connection, file: Path) -> _End | None:
    if (link := last_link(db)) is None:
        return None
    kind = db.execute("SELECT kind FROM notes WHERE number = ?", (link.number,)).fetchone()
    return _End(link.number, file, link.hash, state_of(db, "clock"), kind == ("closed",))


def _end_of(file: Path) -> _End:
    try:
        with contextlib.closing(open_to_read(file)) as db:
            return _end_in(db, file) or _End(0, file)
    except sqlite3.Error:  # it is damaged, or an old version wrote it
        return _End(0, file)


def _input(record: InputRecord | None) -> dict[str, Any] | None:
    return record and {"action": record.action, "checks": [_check(check) for check in record.checks]}


def row_of(event: Event) -> tuple[Any, ...]:
    """Return the searchable columns as SQLite gives them back, and the other fields as JSON."""
    body = {
        "client": event.client,
        "why": event.why,
        "prompt": event.prompt,
        "first": event.first,
        "text": event.text,
        "input": _input(event.input),
        "checks": event.checks and asdict(event.checks),
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
    facts = (event.id, event.route, event.endpoint, event.key, event.status, event.action)
    cost = None if event.usage.cost is None else float(event.usage.cost)
    return (float(event.time), *facts, int(event.late), int(event.stream), cost, _json(body))


def _size(file: Path) -> int:
    log = file.with_name(file.name + "-wal")
    return file.stat().st_size + (log.stat().st_size if log.exists() else 0)


def _check(check: Check) -> dict[str, Any]:
    return {name: value for name, value in asdict(check).items() if value not in ("", None)}


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
