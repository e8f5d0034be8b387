"""The store: one SQLite file per run directory that holds the plan, the samples and all that came of them.

First the rows as pure functions, then the reader, then the writer. Writes go through one batching writer in a thread of
its own. Awaiting `record` means that the row is committed, so a call whose turn was awaited is never repeated, whatever
kills the process afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson

from evenhand.core import sqlite
from evenhand.core.errors import StoreError
from evenhand.core.sqlite import transaction
from evenhand.core.types import Answer, Outcome, Record, Sample, Status, Turn, Usage
from evenhand.models.request import as_stored, compressed, messages_from, pack, to_json, turn_from, unpack
from evenhand.runs.file import FILE_NAME, LOG_NAME, OPEN, RunFile, no_plan, store_errors, unreadable

FINAL = -1
"""The iteration under which scores of the final result are stored."""
NO_SAMPLE = 0
"""The sample and the arm of calls that belong to none: those of scorers, and of the controls of judges."""


@dataclass(frozen=True, slots=True)
class Scored:
    """A grade or score of the final result, or of the result after one iteration."""

    scorer: str
    iteration: int
    status: Status
    reason: str | None = None
    values: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """An outcome ready to be stored."""

    sample: int
    arm: int
    status: Status
    reason: str | None
    seconds: float
    outcome: Outcome | None
    scores: Sequence[Scored] = ()
    readings: Iterable[str] = ()
    """How the judges of this sample were read."""


def turn_row(sample: int, arm: int, key: bytes, turn: Turn) -> tuple[Any, ...]:
    generation = turn.generation
    usage = generation.usage if generation else turn.spent or Usage()
    return (
        sample,
        arm,
        turn.role,
        b"" if turn.spent else key,  # it failed: no answer is found under its key
        usage.calls,
        usage.cached_calls,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.thought_tokens,
        usage.retries,
        usage.cost,
        generation.latency if generation else 0.0,
        generation.recorded if generation else None,
        to_json(_as_stored(turn)),
    )


def _as_stored(turn: Turn) -> Turn:
    kept = None if turn.generation is None else as_stored(turn.generation)
    return turn if kept is turn.generation else replace(turn, generation=kept)


def outcome_row(each: Finished) -> tuple[Any, ...]:
    body = None if each.outcome is None else to_json(outcome_json(each.outcome))
    result = each.outcome.result if each.outcome else None
    at_limit = isinstance(result, Answer) and result.details.get("finish") == "length"
    reading = " and ".join(sorted(each.readings)) or None
    return (each.sample, each.arm, each.status, _storable(each.reason), each.seconds, at_limit, reading, body)


def _storable(reason: str | None) -> str | None:
    """Return the reason as valid UTF-8; it may quote arbitrary output."""
    return None if reason is None else reason.encode("utf-8", "replace").decode()


def stored_form(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row with its last column, the body, compressed."""
    return row if row[-1] is None else (*row[:-1], compressed(row[-1]))


def score_row(sample: int, arm: int, each: Scored) -> tuple[Any, ...]:
    body = None if each.values is None else orjson.dumps(each.values).decode()
    return (sample, arm, each.scorer, each.iteration, each.status, _storable(each.reason), body)


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain values. Each result names its kind, because a refusal is not an answer."""
    return {
        "result": {"type": type(outcome.result).__name__, "value": outcome.result},
        "stop": outcome.stop,
        "snapshots": [
            {
                "iteration": snapshot.iteration,
                "result": {"type": type(snapshot.result).__name__, "value": snapshot.result},
                "notes": snapshot.notes,
            }
            for snapshot in outcome.snapshots
        ],
        "notes": outcome.notes,
    }


def sample_from(value: Any) -> Sample:
    """Return a Sample from its JSON form; samples of older runs have no messages and no texts."""
    messages, texts = value.get("messages"), value.get("texts")
    fields: dict[str, Any] = {**value, "choices": tuple(value["choices"])}
    fields["messages"], fields["texts"] = messages_from(messages) if messages else (), tuple(texts) if texts else ()
    return Sample(**fields)


T = TypeVar("T")


class RunReader(RunFile):
    """What a run's file holds; reads are synchronous and cheap."""

    def _decoded(
        self, read: Callable[[Any], T], value: Any, table: str, number: int, arm: int | None = None
    ) -> T | None:
        """Return `read(value)` of a row's body; None if it is damaged and to be left out."""
        try:
            return read(value)
        except (zlib.error, ValueError, LookupError, TypeError, AttributeError):
            name = self._read.execute("SELECT id FROM samples WHERE number = ?", (number,)).fetchone()
            place = "" if arm is None else f" in arm {arm}"
            self._leave_out(f"{table} sample {name[0] if name else number}{place}")
            return None

    def unpacked(self, body: Any, number: int, arm: int) -> Any:
        """Return a stored outcome as JSON; None if it is damaged and left out."""
        return self._decoded(_outcome_from, body, "the outcome of", number, arm)

    def decoded_score(self, body: Any, number: int, arm: int) -> dict[str, Any] | None:
        """Return stored scores; None if they are damaged and left out."""
        return self._decoded(_score_from, body, "a score of", number, arm)

    def decoded_sample(self, body: Any, number: int) -> Sample | None:
        """Return a stored sample; None if it is damaged and left out."""
        return self._decoded(_sample_in, body, "the", number)

    def sample_fields(self, body: Any, number: int) -> dict[str, Any] | None:
        """Return a stored sample for `sample_from`; None if it is damaged and left out."""
        return self._decoded(_fields_in, body, "the", number)

    def snapshot(self, target: Path) -> None:
        """Write all that is committed to a file of its own, also while the run goes on."""
        sqlite.backup(self._read, target)

    def select(self, query: str, *parameters: Any, **named: Any) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a query, for other modules of this package; its parameters have all names or none."""
        return iter(self._read.execute(query, named or parameters))

    def pending(self, arms: Sequence[int], page: int = 256) -> Iterator[tuple[int, int, Sample]]:
        """(arm, sample number, sample) for all that has no outcome yet, sample by sample, read in pages."""
        last = 0
        while True:
            rows = self._read.execute(
                "SELECT number, body FROM samples WHERE number > ? ORDER BY number LIMIT ?", (last, page)
            ).fetchall()
            if not rows:
                return
            first, last = rows[0][0], rows[-1][0]
            done = set(
                self._read.execute("SELECT sample, arm FROM outcomes WHERE sample BETWEEN ? AND ?", (first, last))
            )
            for number, body in rows:
                missing = [arm for arm in arms if (number, arm) not in done]
                sample = self.decoded_sample(body, number) if missing else None
                if sample is not None:
                    for arm in missing:
                        yield arm, number, sample

    def turns(self, sample: int, arm: int) -> list[tuple[bytes, Turn]]:
        """The recorded turns of one sample in one arm, oldest first, with their request keys."""
        rows = self._read.execute("SELECT key, body FROM turns WHERE sample = ? AND arm = ? ORDER BY id", (sample, arm))
        found = [(key, self._decoded(_turn_in, body, "a call of", sample, arm)) for key, body in rows]
        return [(key, turn) for key, turn in found if turn is not None]

    def calls_of_scorers(self) -> dict[bytes, list[int]]:
        """Request → the ids of the turns that recorded it outside of samples, the latest first."""
        found: dict[bytes, list[int]] = {}
        rows = self._read.execute("SELECT key, id FROM turns WHERE sample = ? ORDER BY id DESC", (NO_SAMPLE,))
        for key, turn in rows:
            found.setdefault(key, []).append(turn)
        return found

    def turn(self, number: int) -> Turn | None:
        """A recorded turn by its id; None if it is damaged and left out."""
        body, sample, arm = self._read.execute("SELECT body, sample, arm FROM turns WHERE id = ?", (number,)).fetchone()
        return self._decoded(_turn_in, body, "a call of", sample, arm)

    def has_answers(self) -> bool:
        return (
            self._read.execute("SELECT 1 FROM turns WHERE calls + cached > 0 AND key != x'' LIMIT 1").fetchone()
            is not None
        )

    def find_sample(self, sample_id: str) -> tuple[int, Sample] | None:
        row = self._read.execute("SELECT number, body FROM samples WHERE id = ?", (sample_id,)).fetchone()
        if row is None:
            return None
        sample = self.decoded_sample(row[1], row[0])
        return None if sample is None else (row[0], sample)

    def samples(self) -> Iterator[tuple[int, Sample]]:
        """Yield all samples by id, so that several stores can be read in parallel."""
        for _, number, body in self.stored_samples():
            if (sample := self.decoded_sample(body, number)) is not None:
                yield number, sample

    def stored_samples(self) -> Iterator[tuple[str, int, bytes]]:
        """Yield id, number and body of all samples by id."""
        return self.select("SELECT id, number, body FROM samples ORDER BY id")

    def record(
        self, number: int, arm: int, sample: Sample, scorers: Sequence[str], iteration: int = FINAL
    ) -> Record | None:
        """The finished sample as the metrics see it, None while it is pending: the grades by `scorers` as one.

        With an iteration, the result as it stood after it; results that were final by then are carried forward.
        """
        (row,) = self._results(arm, scorers, iteration, "WHERE s.number = ?", number)
        return self.record_of(row, number, arm, sample.id, sample.cluster, sample.metadata)

    def results(self, arm: int, scorers: Sequence[str], iteration: int) -> Iterator[tuple[Any, ...]]:
        """Yield a row for `record_of` of every sample, by id."""
        return self._results(arm, scorers, iteration, "ORDER BY s.id")

    def _results(self, arm: int, scorers: Sequence[str], iteration: int, which: str, *more: Any) -> sqlite3.Cursor:
        """Select status, reason and what each scorer said: of the final result, or after the last iteration so far."""
        final = iteration == FINAL
        earlier = f"sample = s.number AND arm = o.arm AND iteration <= {iteration:d}"
        stage = "-1" if final else f"(SELECT MAX(iteration) FROM scores WHERE {earlier})"  # noqa: S608 - ours
        names = [f"c{place}" for place in range(len(scorers))]
        joins = [
            f"LEFT JOIN scores {name} ON {name}.sample = s.number AND {name}.arm = o.arm AND {name}.iteration = {stage}"
            f" AND {name}.scorer = ?"
            for name in names
        ]
        status = "o.status, o.reason"
        if not final:
            status = ", ".join(f"CASE WHEN c0.iteration >= 0 THEN c0.{x} ELSE o.{x} END" for x in ("status", "reason"))
        query = (
            f"SELECT {', '.join([status, *(f'{name}.body' for name in names)])} FROM samples s"  # noqa: S608 - ours
            f" LEFT JOIN outcomes o ON o.sample = s.number AND o.arm = ? {' '.join(joins)} {which}"
        )
        return self._read.execute(query, (arm, *scorers, *more))

    def record_of(
        self, row: Sequence[Any], number: int, arm: int, name: str, cluster: str, metadata: Mapping[str, Any]
    ) -> Record | None:
        if row[0] is None:
            return None
        grade = self._decoded(_grade_from, row[2:], "a score of", number, arm)
        if grade is None:
            return None
        return Record(name, cluster, row[0], metadata, grade or None, row[1])

    def most_iterations(self, arm: int) -> int:
        """The highest iteration that any sample of the arm reached; 0 for methods that do not iterate."""
        return self._read.execute("SELECT MAX(iteration) FROM scores WHERE arm = ?", (arm,)).fetchone()[0] or 0

    def unscored(self, arm: int, scorer: str) -> list[tuple[str, int]]:
        """Why final results have no score by a scorer: (reason, count), most frequent first."""
        found = self._read.execute(
            "SELECT status != 'graded' AS failed, reason, COUNT(*) AS n FROM scores WHERE arm = ? AND scorer = ?"
            " AND iteration = -1 GROUP BY failed, reason ORDER BY n DESC, reason",
            (arm, scorer),
        ).fetchall()
        failed = [(reason, n) for has_failed, reason, n in found if has_failed]
        if sum(n for *_, n in found) == sum(self.counts(arm).values()):  # every outcome has its score
            return failed
        missing = self._read.execute(
            "SELECT COUNT(*) FROM outcomes o WHERE arm = ? AND status = 'graded' AND NOT EXISTS (SELECT 1 FROM scores s"
            " WHERE s.sample = o.sample AND s.arm = o.arm AND s.iteration = -1 AND s.scorer = ?)",
            (arm, scorer),
        ).fetchone()[0]
        return [*failed, *([("not scored yet", missing)] if missing else [])]

    def answers(self, arm: int) -> Iterator[tuple[int, Any]]:
        """(sample number, outcome as JSON) of every outcome of the arm that has a body, read in pages."""
        last = 0
        while rows := self._read.execute(
            "SELECT sample, body FROM outcomes WHERE arm = ? AND sample > ? AND body IS NOT NULL ORDER BY sample"
            " LIMIT 256",
            (arm, last),
        ).fetchall():
            last = rows[-1][0]
            for number, body in rows:
                if (outcome := self.unpacked(body, number, arm)) is not None:
                    yield number, outcome

    def outcome(self, number: int, arm: int) -> tuple[Status, str | None, float, Any] | None:
        """(status, reason, seconds, outcome as JSON) of one sample in one arm."""
        row = self._read.execute(
            "SELECT status, reason, seconds, body FROM outcomes WHERE sample = ? AND arm = ?", (number, arm)
        ).fetchone()
        if row is None or row[3] is None:
            return row
        body = self.unpacked(row[3], number, arm)
        return None if body is None else (*row[:3], body)

    def counts(self, arm: int) -> dict[Status, int]:
        rows = self._read.execute("SELECT status, COUNT(*) FROM outcomes WHERE arm = ? GROUP BY status", (arm,))
        return dict(rows.fetchall())

    def unread(self) -> str:
        """The first reply in which no answer could be read. Damaged rows are skipped here: this is only an example."""
        rows = self._read.execute("SELECT body FROM outcomes WHERE status IN ('unscored', 'cut') AND body IS NOT NULL")
        for (body,) in rows:
            with contextlib.suppress(zlib.error, ValueError, LookupError, TypeError, AttributeError):
                if raw := unpack(body)["result"]["value"].get("raw"):
                    return str(raw)
        return ""

    def at_limit(self, arm: int) -> int:
        """How many answers end at the token limit, although they could be read."""
        return self._read.execute("SELECT COALESCE(SUM(at_limit), 0) FROM outcomes WHERE arm = ?", (arm,)).fetchone()[0]

    def readings(self, arm: int) -> dict[str, int]:
        """How judges were read → in how many samples."""
        rows = self._read.execute(
            "SELECT reading, COUNT(*) FROM outcomes WHERE arm = ? AND reading IS NOT NULL GROUP BY reading"
            " ORDER BY reading",
            (arm,),
        )
        return dict(rows.fetchall())

    def reasons(self, arm: int, most: int = 20, samples: Sequence[int] | None = None) -> list[tuple[Status, str, int]]:
        return self._read.execute(
            "SELECT status, reason, COUNT(*) AS n FROM outcomes WHERE arm = :arm AND reason IS NOT NULL"
            " AND (:samples IS NULL OR sample IN (SELECT value FROM json_each(:samples)))"
            " GROUP BY status, reason ORDER BY n DESC, reason LIMIT :most",
            {"arm": arm, "samples": json_list(samples), "most": most},
        ).fetchall()

    def sample_usage(self, sample: int, arm: int) -> dict[str, Any]:
        """Calls, tokens and money of one sample in one arm."""
        names = ("calls", "cached_calls", "prompt_tokens", "completion_tokens", "cost")
        row = self._read.execute(
            "SELECT TOTAL(calls), TOTAL(cached), TOTAL(prompt_tokens), TOTAL(completion_tokens),"
            " CASE WHEN SUM(cost IS NULL) > 0 THEN NULL ELSE TOTAL(cost) END FROM turns WHERE sample = ? AND arm = ?",
            (sample, arm),
        ).fetchone()
        return {name: value if name == "cost" else int(value) for name, value in zip(names, row, strict=True)}

    def seconds(self, arm: int, samples: Sequence[int] | None = None) -> float:
        """The arm's part of the run's wall time, by the time that its samples took; arms run side by side."""
        whole, part = self._read.execute(
            "SELECT TOTAL(seconds), TOTAL(CASE WHEN arm = :arm"
            " AND (:samples IS NULL OR sample IN (SELECT value FROM json_each(:samples))) THEN seconds END)"
            " FROM outcomes",
            {"arm": arm, "samples": json_list(samples)},
        ).fetchone()
        return (self.get("seconds") or 0.0) * part / whole if whole else 0.0

    def scoring(self) -> Usage:
        """What the calls of scorers and of controls took; runs of older versions have the sum as a fact."""
        stored: dict[str, Any] = self.get("scoring") or {}
        return sum(self.usage(NO_SAMPLE).values(), Usage(**stored))

    def recorded(self) -> dict[str, int]:
        """How many answers were recorded on which day (UTC) in earlier runs, and under an empty name those of this run.

        Of runs of older versions nothing is known: all answers count as those of the run.
        """
        rows = self._read.execute(
            "SELECT COALESCE(date(recorded, 'unixepoch'), '') AS day, COUNT(*) FROM turns WHERE calls + cached > 0"
            " AND key != x'' AND arm > 0 GROUP BY day ORDER BY day"
        )
        return dict(rows.fetchall())

    def usage(self, arm: int | None = None, samples: Sequence[int] | None = None) -> dict[str, Usage]:
        """What was consumed, by model role; of one arm or of all of them, of all samples or of some."""
        rows = self._read.execute(
            "SELECT role, SUM(calls), SUM(prompt_tokens), SUM(completion_tokens), SUM(cached), SUM(retries),"
            " SUM(cost), SUM(cost IS NULL), SUM(thought_tokens) FROM turns"
            " WHERE (arm = :arm OR :arm IS NULL AND arm > 0)"
            " AND (:samples IS NULL OR sample IN (SELECT value FROM json_each(:samples)))"
            " GROUP BY role ORDER BY role",
            {"arm": arm, "samples": json_list(samples)},
        )
        return {
            role: Usage(calls, prompt, completion, cached, retries, None if unknown else cost or 0.0, thought)
            for role, calls, prompt, completion, cached, retries, cost, unknown, thought in rows
        }


def _turn_in(body: Any) -> Turn:
    return turn_from(unpack(body))


def _sample_in(body: Any) -> Sample:
    return sample_from(unpack(body))


_FIELDS = frozenset({"id", "kind", "prompt", "choices", "cluster", "metadata"})


def _fields_in(body: Any) -> dict[str, Any]:
    fields = unpack(body)
    if not fields.keys() >= _FIELDS:
        raise ValueError("a sample is incomplete")
    return fields


def _outcome_from(body: Any) -> Any:
    outcome = unpack(body)
    results = [each["result"] for each in (outcome, *outcome["snapshots"])]
    if not all({"type", "value"} <= each.keys() for each in results):
        raise ValueError("a result is incomplete")
    return outcome


def _score_from(body: Any) -> dict[str, Any]:
    values = orjson.loads(body)
    if not isinstance(values, dict):
        raise TypeError("scores are an object")
    return cast("dict[str, Any]", values)


def _grade_from(bodies: Sequence[Any]) -> dict[str, Any]:
    grade: dict[str, Any] = {}
    for body in bodies:
        if body is not None:
            grade = grade | _score_from(body) if grade else _score_from(body)
    return grade


def json_list(samples: Sequence[int] | None) -> str | None:
    """Return sample numbers as the parameter of a query that reads them with json_each; None means all."""
    return None if samples is None else orjson.dumps(list(samples)).decode()


__all__ = ["FILE_NAME", "LOG_NAME", "Rows", "Store", "json_list", "no_plan", "unreadable"]

GATHER_SECONDS = 0.004
"""Seconds that the writer waits for more rows before it commits."""

_COLUMNS = {
    "samples": "number, id, body",
    "turns": "sample, arm, role, key, calls, cached, prompt_tokens, completion_tokens, thought_tokens, retries, cost,"
    " latency, recorded, body",
    "outcomes": "sample, arm, status, reason, seconds, at_limit, reading, body",
    "scores": "sample, arm, scorer, iteration, status, reason, body",
}
"""What a store holds of its samples, by table."""


def _insert(table: str, verb: str = "INSERT") -> str:
    columns = _COLUMNS[table]
    return f"{verb} INTO main.{table} ({columns}) VALUES ({','.join('?' * (columns.count(',') + 1))})"


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
            damage = self.damage()
            self._read.close()
            self._temporary.close()
            if damage:
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
                    f"SELECT {columns} FROM {table} WHERE (:samples IS NULL OR {own} IN"  # noqa: S608 - constants of ours
                    " (SELECT value FROM json_each(:samples))) ORDER BY rowid",
                    samples=json_list(None if samples is None else list(samples)),
                )
                self._read.executemany(_insert(table), rows)

    def forget(self, status: Status) -> int:
        """Delete the outcomes with this status, so that they are run again; their turns are kept."""
        with store_errors(self.directory):
            return self._read.execute("DELETE FROM main.outcomes WHERE status = ?", (status,)).rowcount
