"""The store: one SQLite file per run directory that holds the plan, the samples and all that came of them.

Writes go through one batching writer in a thread of its own. Awaiting `record` means that the row is committed, so
a call whose turn was awaited is never repeated, whatever kills the process afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import warnings
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.core.errors import StoreError
from evenhand.core.sqlite import transaction
from evenhand.core.types import Sample, Status, Turn
from evenhand.models.request import pack
from evenhand.runs.file import FILE_NAME, LOG_NAME, OPEN, no_plan, store_errors, unreadable
from evenhand.runs.reader import RunReader, json_list
from evenhand.runs.rows import Finished, Scored, outcome_row, score_row, stored_form, turn_row

__all__ = ["FILE_NAME", "LOG_NAME", "Rows", "Store", "json_list", "no_plan", "unreadable"]

GATHER_SECONDS = 0.004
"""Seconds that the writer waits for more rows before it commits."""

_COLUMNS = {
    "samples": "number, id, body",
    "turns": "sample, arm, role, key, calls, cached, prompt_tokens, completion_tokens, thought_tokens, retries, cost,"
    " latency, body",
    "outcomes": "sample, arm, status, reason, seconds, at_limit, reading, body",
    "scores": "sample, arm, scorer, iteration, status, reason, body",
}
"""What a store holds of its samples, by table."""


def _insert(table: str, verb: str = "INSERT") -> str:
    columns = _COLUMNS[table]
    return f"{verb} INTO {table} ({columns}) VALUES ({','.join('?' * (columns.count(',') + 1))})"


_INSERT_TURN = _insert("turns")
_INSERT_OUTCOME = _insert("outcomes", "INSERT OR REPLACE")
_INSERT_SCORE = _insert("scores", "INSERT OR REPLACE")


@dataclass(slots=True)
class Rows:
    """Rows in their stored form, by table."""

    turns: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    outcomes: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    scores: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def __iadd__(self, other: Rows) -> Rows:
        self.turns += other.turns
        self.outcomes += other.outcomes
        self.scores += other.scores
        return self


class _Batch:
    """Rows that are committed together, and the tasks that wait for the commit."""

    __slots__ = ("outcomes", "rows", "scores", "turns", "waiters")

    def __init__(self) -> None:
        self.turns: list[tuple[Any, ...]] = []
        self.outcomes: list[tuple[Any, ...]] = []
        self.scores: list[tuple[Any, ...]] = []
        self.rows = Rows()
        """Rows that are in their stored form already."""
        self.waiters: list[asyncio.Future[None]] = []

    def settle(self, failure: StoreError | None = None) -> None:
        """Pass the result of the commit to all waiting tasks."""
        for waiter in self.waiters:
            if waiter.done():
                continue
            if failure is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(failure)


class Store(RunReader):
    """One run directory's data; reads are synchronous and cheap, writes are awaited.

    A folder that cannot be written can still be read, if need be from a temporary copy. A row that cannot be read
    raises StoreError; with `skip_damaged` it is left out and named in `damaged`.
    """

    def __init__(self, directory: Path, *, create: bool = False, skip_damaged: bool = False) -> None:
        super().__init__(directory, create=create, skip_damaged=skip_damaged)
        self._begun = False
        self._writer: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._batch: _Batch | None = None
        self._flushing: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Mark the file as open for writing until `close`, so that a log that is lost meanwhile is noticed."""
        self._begun = True
        self.put(**{OPEN: True})
        with store_errors(self.directory):
            self._read.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def settle(self) -> None:
        """Commit pending rows, for example after an interrupt; nothing can be recorded afterwards."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None
        if self._batch is not None:
            batch, self._batch = self._batch, None
            self._commit(batch)

    def close(self) -> None:
        """Commit pending rows and close the file; warn of rows that were left out."""
        try:
            self.settle()
            if self._begun:
                # On a full disk the log cannot grow; merged into the file, it leaves room to take the mark away.
                with contextlib.suppress(sqlite3.Error):
                    self._read.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                with store_errors(self.directory):
                    self._read.execute("DELETE FROM facts WHERE key = ?", (OPEN,))
        finally:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self._read.close()
            self._temporary.close()
            if damage := self.damage():
                warnings.warn(damage, stacklevel=2)

    def add_samples(self, samples: Iterable[Sample]) -> int:
        """Store the samples of the plan in one transaction; return how many there are."""
        return self.add_numbered(enumerate(samples, 1))

    def add_numbered(self, samples: Iterable[tuple[int, Sample]]) -> int:
        """Store samples with their numbers in the whole plan."""
        count = 0
        with store_errors(self.directory), transaction(self._read):
            self._read.execute("DELETE FROM samples")
            for number, sample in samples:
                self._read.execute("INSERT INTO samples VALUES (?, ?, ?)", (number, sample.id, pack(sample)))
                count += 1
            self._read.execute("INSERT OR REPLACE INTO facts VALUES ('samples', ?)", (str(count),))
        return count

    # --- writing results ---

    # The caller makes the rows, so that a value that cannot be stored (TypeError) fails one sample and not a batch.
    # Only the bodies are compressed in the writer thread.

    async def record_turn(self, sample: int, arm: int, key: bytes, turn: Turn) -> None:
        """Commit one turn."""
        row = turn_row(sample, arm, key, turn)
        batch = self._next_batch()
        batch.turns.append(row)
        await self._committed(batch)

    async def record_outcome(self, finished: Finished) -> None:
        """Commit one outcome with its grade and scores."""
        row = outcome_row(finished)
        scores = [score_row(finished.sample, finished.arm, each) for each in finished.scores]
        batch = self._next_batch()
        batch.outcomes.append(row)
        batch.scores += scores
        await self._committed(batch)

    async def record_scores(self, sample: int, arm: int, scores: Sequence[Scored]) -> None:
        """Commit scores of an outcome that is stored already."""
        rows = [score_row(sample, arm, each) for each in scores]
        batch = self._next_batch()
        batch.scores += rows
        await self._committed(batch)

    async def record_rows(self, rows: Rows) -> None:
        """Commit rows of another store of the same plan."""
        batch = self._next_batch()
        batch.rows += rows
        await self._committed(batch)

    def _next_batch(self) -> _Batch:
        if self._batch is None:
            self._batch = _Batch()
        return self._batch

    async def _committed(self, batch: _Batch) -> None:
        loop = asyncio.get_running_loop()
        committed = loop.create_future()
        batch.waiters.append(committed)
        if self._flushing is None:
            self._flushing = loop.create_task(self._flush())
        await committed

    async def _flush(self) -> None:
        """Commit batches until none is left."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="evenhand-store")
        while self._batch is not None:
            await asyncio.sleep(GATHER_SECONDS)
            batch, self._batch = self._batch, None
            try:
                await self._sent(await loop.run_in_executor(self._thread, self._commit, batch))
            except Exception as error:
                batch.settle(error if isinstance(error, StoreError) else StoreError(f"The store failed: {error!r}."))
            else:
                batch.settle()
        self._flushing = None

    async def _sent(self, rows: Rows) -> None:
        """Called with rows that are committed here, before their tasks go on; for stores that have a second place."""

    def _commit(self, batch: _Batch) -> Rows:
        with store_errors(self.directory):
            if self._writer is None:
                self._writer = self._connect()
            rows = Rows(list(map(stored_form, batch.turns)), list(map(stored_form, batch.outcomes)), batch.scores)
            rows += batch.rows
            with transaction(self._writer) as db:
                db.executemany(_INSERT_TURN, rows.turns)
                db.executemany(_INSERT_OUTCOME, rows.outcomes)
                db.executemany(_INSERT_SCORE, rows.scores)
            return rows

    def copy_rows(self, other: Store, samples: Collection[int] | None = None) -> None:
        """Copy samples and all that came of them from another store, in one transaction; of all samples or of some."""
        with store_errors(self.directory), transaction(self._read):
            for table, columns in _COLUMNS.items():
                own = "number" if table == "samples" else "sample"
                rows = other.select(
                    f"SELECT {columns} FROM {table} WHERE (?1 IS NULL OR {own} IN (SELECT value FROM json_each(?1)))"  # noqa: S608 - constants of ours
                    " ORDER BY rowid",
                    json_list(None if samples is None else list(samples)),
                )
                self._read.executemany(_insert(table), rows)

    def forget(self, status: Status) -> int:
        """Delete the outcomes with this status, so that they are run again; their turns are kept."""
        with store_errors(self.directory):
            return self._read.execute("DELETE FROM outcomes WHERE status = ?", (status,)).rowcount
