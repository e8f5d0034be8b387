"""The audit file: an SQLite file with one row per request, to show later what was changed and why; how it is verified.

A thread commits rows in batches, so requests never wait for the disk. If the disk is too slow, rows are dropped and
counted in the metrics. A file that is too large is rotated (audit.sqlite → audit-20261231T235959.123456.sqlite), and
rows that are too old are deleted. The config decides whether texts are stored: not at all, redacted, or in full.

Every row has the hash of its values and of the hash before it, so a row that is changed, inserted or removed breaks the
chain from there on. With a key the hashes are HMACs, so that somebody who may write to the file, but does not know the
key, cannot compute a new chain. The chain continues over restarts and rotated files. Notes in the chain tell of all
that is no request: starts and ends, lost rows, and rows and files that were deleted by age.

Rows are deleted by a clock of our own, which distrusts the system's clock: that may be wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import hmac
import json
import logging
import os
import queue
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Any, NamedTuple, cast

import orjson

from evenhand.core.errors import DataError, PlanError, StoreError, UsageError
from evenhand.core.files import locked
from evenhand.core.sqlite import BUSY_SECONDS, NewerFileError, connect, connect_to_read, transaction, version_of
from evenhand.guards.fields import mended
from evenhand.guards.types import Check, InputRecord
from evenhand.server.telemetry.events import Event, OtherAnswer
from evenhand.server.telemetry.logs import Texts, with_texts, without_secrets

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


@contextlib.contextmanager
def one_writer(file: Path) -> Generator[None]:
    """Hold the lock of an audit file; refuse one that another server writes."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(file.parent / f".{file.name}.lock"))
        except BlockingIOError as error:
            raise PlanError(f"Another server writes the audit file {file}; name another file in the config.") from error
        except OSError as error:
            raise _unusable(file, error) from error
        yield


def _unusable(file: Path, error: Exception) -> StoreError:
    return StoreError(f"The audit file {file} cannot be used: {error}. Choose another file.")


def open_to_write(file: Path) -> sqlite3.Connection:
    db = connect(file, private=True, check=_check_version)  # prompts are private
    if not _tables(db) or version_of(db) == VERSION:
        with transaction(db):  # a half-made file would be set aside, and be a fault in the chain
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version={VERSION}")
    return db


def check_place(file: Path) -> None:
    """Refuse a place where the audit file cannot be written, or that holds something else; nothing is written."""
    place = next(each for each in (file.absolute(), *file.absolute().parents) if each.exists())
    try:
        if place.is_dir() == (place == file.absolute()):
            raise OSError("it is a folder" if place.is_dir() else f"{place} is not a folder")
        for each in (place, place if place.is_dir() else place.parent):  # SQLite writes files beside its own
            if not os.access(each, os.W_OK):
                raise PermissionError(f"nothing can be written in {each}")
        if place == file.absolute():
            with closing(connect_to_read(file)) as db:
                _check_version(db)
    except (OSError, sqlite3.Error) as error:
        raise _unusable(file, error) from error


def _check_version(db: sqlite3.Connection) -> None:
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
    return sorted(file.parent.glob(f"{escape(file.stem)}-[0-9]*T[0-9]*{escape(file.suffix)}"))


def read_audit(file: Path, *, since: float = 0.0, actions: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Yield the requests in an audit file and its rotated files in order, as plain values.

    A file that cannot be read is an error after all others were.
    """
    fault: DataError | None = None
    for each in (*rotated_files(file), file):
        try:
            yield from _read_one(each, since, actions)
        except DataError as error:
            fault = fault or error
    if fault is not None:
        raise fault


def _read_one(file: Path, since: float, actions: tuple[str, ...]) -> Iterator[dict[str, Any]]:
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
    """A sink that writes to `file`; one per file, which it locks, because only one writer may rotate it."""

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
            with ExitStack() as opened:
                opened.enter_context(one_writer(file))
                self._db = open_to_write(file)
                opened.callback(lambda: self._db.close())  # noqa: PLW0108 - a rotation replaces it
                if version_of(self._db) != VERSION or state_of(self._db, "key") not in (None, self._hasher.key_id):
                    self._set_aside()  # the chain of one file has one key
                self._start()
                self._clock = clock or RetentionClock(state_of(self._db, "clock"))
                self._opened = opened.pop_all()
        except (OSError, sqlite3.Error) as error:
            raise _unusable(file, error) from error
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
        self._opened.close()

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
        "prompt": event.prompt,
        **_answer(event),
        "input": _input(event.input),
        "checks": event.checks and asdict(event.checks),
        "others": [{"action": each.action, **_answer(each)} for each in event.others],
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


def _answer(of: Event | OtherAnswer) -> dict[str, Any]:
    checks = {"before": [*map(_check, of.before)], "after": [*map(_check, of.after)]}
    return {"why": of.why, "first": of.first, "text": of.text, **checks}


def _size(file: Path) -> int:
    log = file.with_name(file.name + "-wal")
    return file.stat().st_size + (log.stat().st_size if log.exists() else 0)


def _check(check: Check) -> dict[str, Any]:
    return {name: value for name, value in asdict(check).items() if value not in ("", None)}


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:  # half a character
        return orjson.dumps(json.loads(mended(json.dumps(value, ensure_ascii=False)))).decode()


MOST_PROBLEMS = 20
"""How many problems are described; the others are only counted."""
_NOT_OURS = (ValueError, TypeError, KeyError, AttributeError)
_ROTATED = re.compile(r"(?<=.)-[0-9]+T[0-9.]+$")


@dataclass(slots=True)
class ChainState:
    """What the verification of one chain found."""

    problems: list[str] = field(default_factory=list[str])
    """What is wrong, first row first; empty if the chain is intact."""
    more_problems: int = 0
    actions: Counter[str] = field(default_factory=Counter[str])
    """How many requests ended with each action."""
    files: int = 0
    unchained: list[str] = field(default_factory=list[str])
    """Files of an older version, without a chain: they can be read, but changes cannot be noticed."""
    last: Link = Link()
    deleted: int = 0
    """The last row that was deleted by age."""
    crashes: int = 0
    lost: int = 0
    """Rows that the server recorded as lost."""
    unproved: str = ""
    """The file before the first one, if the newest file of the chain is not there to say what became of it."""
    signed: bool = False
    expected_seen: bool = False

    def problem(self, text: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)
        else:
            self.more_problems += 1


class _Row(NamedTuple):
    number: int
    table: str
    values: tuple[Any, ...]
    hash: bytes


def newest_file(file: Path) -> Path:
    """Return the file that the server writes to, for a rotated file of its chain; otherwise the file itself."""
    newest = file.parent / f"{_ROTATED.sub('', file.stem)}{file.suffix}"
    return newest if newest.is_file() else file


def verify_audit(file: Path, keys: Sequence[bytes] = (), expected: bytes = b"") -> ChainState:
    """Check every row of a file and of its rotated files.

    With keys, the newest file must be signed; one row must have the `expected` hash, if any.
    """
    hashers = {hasher.key_id: hasher for hasher in map(Hasher, keys)}
    state = ChainState()
    with ExitStack() as stack:
        parts: list[tuple[int, Path, sqlite3.Connection]] = []
        for path in (file, *rotated_files(file)):
            state.files += 1
            db = stack.enter_context(closing(open_to_read(path)))
            try:
                db.execute("BEGIN")  # one view of the file, even if the server is writing
                if problem := _unreadable(db):
                    state.problem(f"{path.name}: {problem}")
                elif version_of(db) == UNCHAINED:
                    state.unchained.append(path.name)
                    state.actions += Counter(dict(db.execute("SELECT action, count(*) FROM requests GROUP BY action")))
                else:
                    parts.append((next((row.number for row in _rows(db)), 0), path, db))
            except sqlite3.Error as error:
                state.problem(f"{path.name}: SQLite says: {error}")
        parts.sort(key=lambda part: (part[0], part[1] == file))
        chain = _CheckedChain(state, file, hashers, [db for *_, db in parts])
        for _, path, db in parts:
            try:
                chain.check(path, db, expected)
            except sqlite3.Error as error:
                state.problem(f"{path.name}: SQLite says: {error}")
            except _NOT_OURS:
                state.problem(f"{path.name}: it has values that the server never writes")
    if keys and not state.signed:
        state.problem("it is not signed, although a key is given")
    if expected and not state.expected_seen:
        state.problem(f"no row has the hash {expected.hex()}")
    return state


class _CheckedChain:
    """Follows the chain through its files."""

    def __init__(
        self, state: ChainState, newest: Path, hashers: dict[str, Hasher], files: Sequence[sqlite3.Connection]
    ) -> None:
        self._state, self._hashers = state, hashers
        self._alone = bool(_ROTATED.search(newest.stem))
        self._deletions = {number: body for db in files for number, body in _deletions(db)}
        state.deleted = max(self._deletions, default=0)
        self._end: tuple[str, Link] | None = None
        """Of the file before."""

    def check(self, path: Path, db: sqlite3.Connection, expected: bytes) -> None:
        state = self._state
        hasher = self._hasher(path, state_of(db, "key") or "")
        last: Link | None = None
        before = len(state.problems)
        for row in _rows(db):
            if last is None:
                last = self._beginning(path, row)
            if row.number != last.number + 1:
                state.problem(f"{path.name}: {_span(last.number + 1, row.number - 1)} missing")
            elif last.hash and hasher.row(last.hash, row.table, (row.number, *row.values)) != row.hash:
                state.problem(f"{path.name}: row {row.number:,} was changed")
            last = Link(row.number, row.hash)
            state.expected_seen |= row.hash == expected
            self._count(path, row)
        if last is None:
            state.problem(f"{path.name}: all rows are missing")
            return
        if state_of(db, "head") != hasher.head(last.hash) and len(state.problems) == before:
            state.problem(f"{path.name}: rows after {last.number:,} are missing")
        self._end = path.name, last
        state.last = last
        state.signed = bool(hasher.key_id)

    def _hasher(self, path: Path, key_id: str) -> Hasher:
        if not key_id:
            return Hasher()
        if key_id not in self._hashers:
            which = "another key than the given" if self._hashers else "a key"
            raise UsageError(f"{path.name} is signed with {which}. Name its environment variable with --key-env.")
        return self._hashers[key_id]

    def _beginning(self, path: Path, first: _Row) -> Link:
        """Return the hash that the first row of a file continues from."""
        number = first.number - 1
        opened = _body(first) if first.table == "note" and first.values[1] == "opened" else {}
        deletion = self._deletions.get(number)
        known = Link(number, bytes.fromhex((deletion or opened).get("hash", "")) if number else START)
        if self._end is not None and self._end[1].number == number:
            if self._end[1] != known:
                self._state.problem(f"{path.name} does not continue {self._end[0]}, whose end was changed")
        elif not deletion and (number or self._end):
            if self._end is None and self._alone:
                self._state.unproved = opened.get("file", "")
            elif "file" in opened:
                self._state.problem(f"{path.name}: the file before it, {opened['file']}, is missing")
            else:
                self._state.problem(f"{path.name}: rows before {first.number:,} are missing")
        return known

    def _count(self, path: Path, row: _Row) -> None:
        state = self._state
        try:
            body = _body(row)
        except (orjson.JSONDecodeError, TypeError):
            state.problem(f"{path.name}: row {row.number:,} cannot be read")
            return
        if row.table == "request":
            state.actions[row.values[REQUEST.index("action")]] += 1
        elif row.values[1] == "opened":
            state.crashes += bool(body.get("crashed"))
        elif row.values[1] == "lost":
            state.lost += body["rows"]


def _unreadable(db: sqlite3.Connection) -> str:
    (result,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    if result != "ok":
        return f"SQLite says: {result}"
    version = version_of(db)
    columns = [name for _, name, *_ in db.execute("PRAGMA table_info(requests)")]
    if version not in (UNCHAINED, VERSION):
        return f"its schema has version {version}, and this Evenhand knows {VERSION}"
    if columns != (["number", *REQUEST, "hash"] if version == VERSION else ["number", *REQUEST]):
        return "it has no table of requests as the server writes it"
    return ""


def _rows(db: sqlite3.Connection) -> Iterator[_Row]:
    """Yield requests and notes in the order of their numbers."""

    def read(table: str, kind: str, columns: Sequence[str]) -> Iterator[_Row]:
        for number, *values, hashed in db.execute(
            f"SELECT number, {', '.join(columns)}, hash FROM {table} ORDER BY number"  # noqa: S608
        ):
            yield _Row(number, kind, tuple(values), hashed)

    return heapq.merge(read("requests", "request", REQUEST), read("notes", "note", NOTE), key=lambda row: row.number)


def _deletions(db: sqlite3.Connection) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield what was deleted by age, by its last number; notes that were changed are reported with their rows."""
    for (body,) in db.execute("SELECT body FROM notes WHERE kind = 'deleted'"):
        with suppress(*_NOT_OURS):
            deletion = orjson.loads(body)
            yield int(deletion["number"]), deletion


def _body(row: _Row) -> dict[str, Any]:
    body = orjson.loads(row.values[-1])
    if not isinstance(body, dict):
        raise TypeError
    return cast(dict[str, Any], body)


def _span(first: int, last: int) -> str:
    return f"row {first:,} is" if first == last else f"rows {first:,} to {last:,} are"
