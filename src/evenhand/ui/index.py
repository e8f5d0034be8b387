"""The index of all runs under a folder, with a cache by the state of each run's files.

A run is read again only if its files have changed since. Reading goes on in the background: a page shows what is known
and says how many runs are still to be read.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from evenhand.core.files import cache_folder
from evenhand.core.sqlite import connect, version_of
from evenhand.runs.file import is_locked
from evenhand.runs.store import FILE_NAME, LOG_NAME
from evenhand.runs.summary import ArmSummary, RunSummary, read_or_fault

FRESH_SECONDS = 1.0
"""The folder is not searched again for so long."""
_VERSION = 3
_SEPARATOR = "::"
_READING = 64
"""Runs that are read before other work gets a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow(RunSummary):
    """A run of the index."""

    id: str
    """Its folder, from the folder of all runs."""
    stamp: str
    """Changes with the run's files."""

    @property
    def kind(self) -> str:
        """The state in one word, for filters."""
        return self.state.partition(" ")[0]

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]

    @property
    def group(self) -> str:
        """The folder that it shares with other runs, such as that of a suite; "" for none."""
        return self.id.rpartition("/")[0]


_ROW = TypeAdapter(RunRow)


@dataclass(frozen=True, slots=True)
class Chosen:
    """An arm that was chosen on a page."""

    row: RunRow
    arm: ArmSummary

    @property
    def key(self) -> str:
        return f"{self.row.id}{_SEPARATOR}{self.arm.number}"

    @property
    def label(self) -> str:
        return f"{self.arm.label} · {self.row.id}"


@dataclass(slots=True)
class Index:
    """All runs under `folder`; the cache may be lost at any time."""

    folder: Path
    cache: Path | None = None
    shown: str = field(init=False)
    """The folder as it was given, for the page: it need not tell where the server keeps it."""
    rows: dict[str, RunRow] = field(default_factory=dict[str, RunRow])
    unread: dict[str, str] = field(default_factory=dict[str, str])
    """Runs whose files have changed: id → stamp."""
    _searched: float = 0.0
    _costs: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """Of running runs: when they were read last, and how long it took."""
    _db: sqlite3.Connection | None = None
    _searching: asyncio.Lock = field(default_factory=asyncio.Lock)
    _task: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.shown = str(self.folder)
        self.folder = self.folder.resolve()
        self.cache = self.cache or cache_folder() / "ui"
        name = hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]
        with contextlib.suppress(OSError, sqlite3.Error):  # without a cache, all is read anew
            self.cache.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = connect(self.cache / f"{name}.sqlite", synchronous="OFF", busy=5)
            if version_of(self._db) != _VERSION:
                self._db.executescript(
                    "DROP TABLE IF EXISTS rows; DROP TABLE IF EXISTS found;"
                    "CREATE TABLE rows (id TEXT PRIMARY KEY, stamp TEXT NOT NULL, body BLOB NOT NULL);"
                    "CREATE TABLE found (what TEXT, id TEXT, stamp TEXT NOT NULL, body BLOB NOT NULL,"
                    f" PRIMARY KEY (what, id)); PRAGMA user_version = {_VERSION};"
                )
            for run_id, body in self._db.execute("SELECT id, body FROM rows"):
                self.rows[run_id] = _ROW.validate_json(body)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._db is not None:
            self._db.close()
            self._db = None

    # --- runs ---

    async def refresh(self) -> None:
        """Search the folder, and begin to read what has changed."""
        async with self._searching:
            if time.monotonic() - self._searched >= FRESH_SECONDS:
                stamps = await asyncio.to_thread(_stamps, self.folder)
                self._compare(stamps)
                self._searched = time.monotonic()
        if self.unread and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._read_all())
            # A few changed runs are read at once; of many, the page shows those that are known.
            await asyncio.wait([self._task], timeout=0.25)

    async def read(self, run_id: str) -> RunRow | None:
        """Return one run, which is read at once if it was not yet."""
        if run_id in self.unread and run_id not in self.rows:
            (row,) = await asyncio.to_thread(self._read_some, [(run_id, self.unread[run_id])])
            self.rows[run_id] = row
        return self.rows.get(run_id)

    def sorted(self) -> list[RunRow]:
        """All known runs, newest first."""
        return sorted(self.rows.values(), key=lambda row: (row.created, row.id), reverse=True)

    def path(self, row: RunRow) -> Path:
        return self.folder / row.id

    def arm(self, key: str) -> Chosen | None:
        """Return an arm by its key, RUN::NUMBER."""
        run_id, _, number = key.rpartition(_SEPARATOR)
        row = self.rows.get(run_id)
        arms = row.arms if row else ()
        return next((Chosen(row, arm) for arm in arms if row and str(arm.number) == number), None)

    def _compare(self, stamps: Mapping[str, str]) -> None:
        """Forget the runs that are gone, and note those whose files have changed."""
        for gone in self.rows.keys() - stamps.keys():
            del self.rows[gone]
            self._forget(gone)
        now = time.monotonic()
        unread: dict[str, str] = {}
        for run_id, stamp in stamps.items():
            known = self.rows.get(run_id)
            if known is not None and known.stamp == stamp:
                continue
            read, took = self._costs.get(run_id, (0.0, 0.0))
            if known is not None and known.running and stamp.endswith("running") and now - read < 10 * took:
                continue
            unread[run_id] = stamp
        self.unread = unread

    async def _read_all(self) -> None:
        while self.unread:
            # The newest first: those are on the first page.
            wanted = sorted(self.unread.items(), key=lambda each: each[1], reverse=True)[:_READING]
            for row in await asyncio.to_thread(self._read_some, wanted):
                self.rows[row.id] = row
                if self.unread.get(row.id) == row.stamp:
                    del self.unread[row.id]

    def _read_some(self, wanted: Iterable[tuple[str, str]]) -> list[RunRow]:
        rows: list[RunRow] = []
        for run_id, stamp in wanted:
            began = time.monotonic()
            rows.append(read_row(self.folder / run_id, run_id, stamp))
            self._costs[run_id] = (time.monotonic(), time.monotonic() - began)
        self._keep(rows)
        return rows

    # --- the cache ---

    def _keep(self, rows: Iterable[RunRow]) -> None:
        if self._db is not None:
            values = [(row.id, row.stamp, _ROW.dump_json(row)) for row in rows]
            with contextlib.suppress(sqlite3.Error):
                self._db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", values)

    def _forget(self, run_id: str) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("DELETE FROM rows WHERE id = ?", (run_id,))
                self._db.execute("DELETE FROM found WHERE id = ?", (run_id,))

    def all_found(self, what: str) -> dict[str, Any]:
        """Return what was computed of all runs in their present state, by run."""
        if self._db is None:
            return {}
        kept = self._db.execute("SELECT id, stamp, body FROM found WHERE what = ?", (what,)).fetchall()
        return {
            run_id: orjson.loads(body)
            for run_id, stamp, body in kept
            if run_id in self.rows and self.rows[run_id].stamp == stamp
        }

    def keep_found(self, what: str, run_id: str, stamp: str, value: Any) -> None:
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute(
                    "INSERT OR REPLACE INTO found VALUES (?, ?, ?, ?)", (what, run_id, stamp, orjson.dumps(value))
                )


def _stamps(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): _stamp(path) for path in run_folders(folder)}


def run_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders of runs, at any depth; links to other folders are not followed."""
    for place, folders, names in os.walk(folder):
        if FILE_NAME in names:
            folders.clear()
            yield Path(place)
        else:
            folders[:] = [each for each in folders if not each.startswith(".")]


def read_row(path: Path, run_id: str, stamp: str) -> RunRow:
    """Read one run; what cannot be read has a fault."""
    found = read_or_fault(path)
    return RunRow(**{each.name: getattr(found, each.name) for each in fields(found)}, id=run_id, stamp=stamp)


def _stamp(path: Path) -> str:
    """Return a text that changes with the run's files, and when its process ends; it sorts by time."""
    parts: list[str] = []
    for name in (FILE_NAME, LOG_NAME):
        with contextlib.suppress(OSError):
            status = (path / name).stat()
            # An empty log comes and goes with every reader.
            if status.st_size or name == FILE_NAME:
                parts.append(f"{status.st_mtime_ns}-{status.st_size}")
    return " ".join([max(parts, default=""), *parts, *(["running"] if is_locked(path) else [])])
