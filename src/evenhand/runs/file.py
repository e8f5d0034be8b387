"""The file of a run: its lock, its schema as numbered migrations, opening, recovery after a kill, facts and damage."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, NotRequired

import orjson
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from evenhand.core import files, sqlite
from evenhand.core.errors import PlanError, StoreError
from evenhand.core.events import held
from evenhand.core.files import scratch
from evenhand.judging.certificate import Certificate

LOCK_NAME = "lock"


@contextlib.contextmanager
def locked(directory: Path) -> Generator[None]:
    """Hold the directory's lock. The operating system releases it if the process dies."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.locked(directory / LOCK_NAME))
        except BlockingIOError as error:
            message = f"Another process is running in {directory}; wait for it or choose another --out."
            raise PlanError(message) from error
        except OSError as error:
            raise StoreError(f"The run directory {directory} cannot be used: {error}.") from error
        yield


def is_locked(directory: Path) -> bool:
    """Whether a process is running in the directory."""
    return files.is_locked(directory / LOCK_NAME)


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
    "ALTER TABLE turns ADD COLUMN recorded REAL;",
)


TABLES = frozenset({"facts", "samples", "turns", "outcomes", "scores"})


def migrate(db: sqlite3.Connection) -> None:
    """Apply the migrations that are missing; refuse a store of a newer version, or one that has lost tables."""
    try:
        sqlite.migrate(db, STEPS)
    except sqlite.NewerFileError as error:
        raise PlanError("This run was made by a newer version of Evenhand; upgrade to open it.") from error
    if missing := TABLES - {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}:
        raise sqlite3.DatabaseError(f"its file is damaged and has no table {', '.join(sorted(missing))}")


_INTEGER, _NUMBER, _TEXT = "'integer'", "'integer', 'real'", "'text'"
_MAYBE = ", 'null'"
_TYPES: Mapping[str, Mapping[str, str]] = {
    "turns": {
        **dict.fromkeys(("sample", "arm", "calls", "cached", "prompt_tokens", "completion_tokens"), _INTEGER),
        **dict.fromkeys(("retries", "thought_tokens"), _INTEGER),
        **{"role": _TEXT, "latency": _NUMBER, "cost": _NUMBER + _MAYBE, "recorded": _NUMBER + _MAYBE},
    },
    "outcomes": {
        **dict.fromkeys(("sample", "arm", "at_limit"), _INTEGER),
        **{"status": _TEXT, "reason": _TEXT + _MAYBE, "seconds": _NUMBER, "reading": _TEXT + _MAYBE},
    },
    "scores": {
        **dict.fromkeys(("sample", "arm", "iteration"), _INTEGER),
        **{"scorer": _TEXT, "status": _TEXT, "reason": _TEXT + _MAYBE},
    },
}
"""What the columns of a row hold; SQLite itself lets any column hold anything."""
_SOUND = {
    table: " AND ".join(f"typeof({column}) IN ({types})" for column, types in columns.items())
    for table, columns in _TYPES.items()
}
_FACTS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("plan", "options", "benchmark", "searches", "files", "versions", "scorers", "arms"), dict),
    **dict.fromkeys(("settings", "scoring"), dict),
    **dict.fromkeys(("models", "caveats", "notes"), list),
    **dict.fromkeys(("identity", "created", "scope", "scorer"), str),
    **{"samples": int, "seconds": (int, float)},
}
"""What facts hold, if they are set."""


class _Criterion(TypedDict):
    name: str
    title: str
    better: Literal["lower", "higher"]


class _About(TypedDict):
    """What a run stores about a scorer."""

    spec: str
    attributes: list[str]
    planned: bool
    criteria: NotRequired[list[_Criterion]]


_SHAPES: Mapping[str, Any] = {"scorers": dict[str, _About], "certificates": list[Certificate]}
"""What is in facts that others than their own module read."""
_OPENED: deque[Path] = deque(maxlen=20)
"""Folders of the runs that this process opened last."""

FILE_NAME = "run.sqlite"
LOG_NAME = f"{FILE_NAME}-wal"
"""SQLite's write-ahead log: what was committed and is not in the file yet."""
_LOG_STARTS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
OPEN = "open"
"""A fact that is in the file while a process writes to it; without the log, rows are then missing."""
_NAMED = 5
"""Damaged rows that are listed; more are only counted."""
_LEFT_OUT: ContextVar[dict[Path, list[str]] | None] = ContextVar("left_out", default=None)
"""Damaged rows by run, of files that are opened within `leaving_out_damaged`."""


@contextlib.contextmanager
def leaving_out_damaged() -> Generator[Callable[[], list[str]]]:
    """Open every run in this block with `skip_damaged`, where it would have to pass through many hands.

    What it yields says what was left out so far, in a sentence for each damaged run.
    """
    rows: dict[Path, list[str]] = {}
    with held(_LEFT_OUT, rows):
        yield lambda: [_damage(directory, each) for directory, each in rows.items() if each]


class RunFile:
    """One run directory's SQLite file.

    A folder that cannot be written can still be read, if need be from a temporary copy. A row that cannot be read
    raises StoreError; with `skip_damaged` it is left out and named in `damaged`.
    """

    def __init__(self, directory: Path, *, create: bool = False, skip_damaged: bool = False) -> None:
        self.directory = directory
        _OPENED.append(directory)
        self.path = directory / FILE_NAME
        left_out = _LEFT_OUT.get()
        self.damaged: list[str] = [] if left_out is None else left_out.setdefault(directory, [])
        self._skip_damaged = skip_damaged or left_out is not None
        self._temporary = contextlib.ExitStack()
        exists = self.path.is_file()
        if not create and not exists:
            raise PlanError(_no_run(directory))
        self._writable = create or (os.access(directory, os.W_OK) and os.access(self.path, os.W_OK))
        log_is_lost = exists and is_lost(directory / LOG_NAME)  # seen before SQLite makes a new log
        try:
            if create:
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)  # prompts and answers are for nobody else
            self._read = self._connect()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"The run directory {directory} cannot be used: {error}.") from error
        try:
            if exists and sqlite.version_of(self._read) == 0:
                raise PlanError(no_plan(directory))
            if not self._writable and sqlite.version_of(self._read) < len(STEPS):
                self._read.close()
                self._copy()
                self._read = self._connect()
            migrate(self._read)
            if self._skip_damaged:
                for table, sound in _SOUND.items():  # in place of the tables, for all that is read
                    self._read.execute(f"CREATE TEMP VIEW {table} AS SELECT * FROM main.{table} WHERE {sound}")  # noqa: S608
            if self.get(OPEN) and (create or not is_locked(directory)):
                self._recover(log_is_lost)
        except BaseException as error:
            self._read.close()
            self._temporary.close()
            if isinstance(error, sqlite3.Error):
                raise StoreError(f"The run directory {directory} cannot be used: {error}.") from error
            raise

    def _connect(self) -> sqlite3.Connection:
        if not self._writable and not is_lost(self.directory / LOG_NAME):
            self._copy()  # SQLite would have to merge the log into the file
        if not self._writable:
            return sqlite.connect_to_read(self.path, immutable=True)
        return sqlite.connect(self.path)

    def _copy(self) -> None:
        """Read a copy in a temporary folder, since this one cannot be written."""
        folder = self._temporary.enter_context(scratch())
        for name in (FILE_NAME, LOG_NAME):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(self.directory / name, folder / name)
        self.path = folder / FILE_NAME
        self._writable = True

    def _recover(self, log_is_lost: bool) -> None:
        """Go on after a process that was killed: the log has its last rows."""
        if log_is_lost:
            self._leave_out(f"the newest results, because the log {LOG_NAME} is missing or damaged", "them")
        elif self._writable:
            self._read.execute("DELETE FROM facts WHERE key = ?", (OPEN,))

    def _leave_out(self, row: str, it: str = "it") -> None:
        """Note a row that cannot be read, or refuse to go on."""
        if not self._skip_damaged:
            raise StoreError(
                f"The run in {self.directory} is damaged: {row} cannot be read. "
                f"Report, show, export, evidence, paper and resume go on without {it} if given --skip-damaged."
            )
        if row not in self.damaged:
            self.damaged.append(row)

    def damage(self) -> str | None:
        """Say which damaged rows were left out so far."""
        if self._skip_damaged and not is_locked(self.directory):  # a run that goes on is counted at its end
            with contextlib.suppress(OSError, sqlite3.Error):
                stamp = self.path.stat()
                rows = _unsound_rows(self.path, stamp.st_mtime_ns, stamp.st_size)
                self.damaged += [each for each in rows if each not in self.damaged]
        return _damage(self.directory, self.damaged) if self.damaged else None

    def get(self, key: str) -> Any:
        """Return a fact by name; None if it was never set."""
        row = self._read.execute("SELECT value FROM facts WHERE key = ?", (key,)).fetchone()
        try:
            value = None if row is None else orjson.loads(row[0])
        except orjson.JSONDecodeError as error:
            raise unreadable(self.directory, f"its fact {key} is no JSON") from error
        if value is not None and not _is_sound(key, value):
            raise unreadable(self.directory, f"its fact {key} is of another kind than facts of this name")
        return value

    def put(self, **facts: Any) -> None:
        with store_errors(self.directory), sqlite.transaction(self._read):
            self._read.executemany(
                "INSERT OR REPLACE INTO facts VALUES (?, ?)",
                [(key, orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()) for key, value in facts.items()],
            )


def _is_sound(key: str, value: Any) -> bool:
    if not isinstance(value, _FACTS.get(key, object)):
        return False
    try:
        _shape(key).validate_python(value)
    except ValidationError:
        return False
    return True


@cache
def _shape(key: str) -> TypeAdapter[Any]:
    return TypeAdapter(_SHAPES.get(key, Any))


def _unsound(db: sqlite3.Connection) -> list[str]:
    """Count the rows whose columns hold something else than they should, by table."""
    counts = {
        table: db.execute(f"SELECT COUNT(*) FROM main.{table} WHERE NOT ({sound})").fetchone()[0]  # noqa: S608
        for table, sound in _SOUND.items()
    }
    return [f"{count:,} rows of the table {table}" for table, count in counts.items() if count]


@lru_cache(maxsize=100)
def _unsound_rows(path: Path, _mtime: int, _size: int) -> list[str]:
    """Count them once for each state of a file: every row is read for it."""
    with contextlib.closing(sqlite.connect_to_read(path)) as db:
        return _unsound(db)


def damage_of_opened() -> str | None:
    """Say which of the runs that this process opened has rows of wrong types, for a fault that these may explain."""
    for directory in reversed(_OPENED):
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite.connect_to_read(directory / FILE_NAME)) as db,
        ):
            if rows := _unsound(db):
                return (
                    f"The run in {directory} is damaged: {', '.join(rows)} cannot be read. Report, show, export, "
                    "evidence, paper and resume go on without them if given --skip-damaged."
                )
    return None


def is_lost(log: Path) -> bool:
    """Whether there is no log, or none that SQLite would read."""
    try:
        with log.open("rb") as file:
            return file.read(4) not in _LOG_STARTS
    except OSError:
        return True


def no_plan(directory: Path) -> str:
    return (
        f"The run in {directory} has no plan: it stopped before its plan was stored, or its file has lost it. "
        "Remove the folder to begin again."
    )


def unreadable(directory: Path, why: object) -> StoreError:
    return StoreError(f"The run in {directory} cannot be read ({why}); its file is damaged.")


def _no_run(directory: Path) -> str:
    """Say why there is no run, and where there is one if a file of it is named."""
    if not directory.is_file():
        within = sorted(str(path.parent) for path in directory.glob(f"*/{FILE_NAME}"))
        named = f"; name one of the runs in it: {', '.join(within[:5])}{', …' if within[5:] else ''}" if within else ""
        return f"{directory} holds no run (there is no {FILE_NAME} in it){named}."
    run = f"its run: {directory.parent}" if (directory.parent / FILE_NAME).is_file() else "a run"
    return f"{directory} is a file; name the folder of {run}."


class store_errors:  # noqa: N801 - reads as a statement
    """Turn SQLite errors into one sentence that says what to do."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (sqlite3.Error, OSError)):
            raise StoreError(
                f"The run in {self._directory} cannot be written ({error}); free some space and resume with --resume. "
                "Everything finished so far is kept."
            ) from error


def _damage(directory: Path, rows: Sequence[str]) -> str:
    more = f" and {len(rows) - _NAMED:,} more" if len(rows) > _NAMED else ""
    return f"{directory} is damaged; left out: {', '.join(rows[:_NAMED])}{more}."
