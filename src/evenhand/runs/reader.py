"""Reading a run's file: samples, turns, outcomes and scores, and what they add up to. Nothing here writes."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import orjson

from evenhand.core import sqlite
from evenhand.core.types import Record, Sample, Status, Turn, Usage
from evenhand.models.request import turn_from, unpack
from evenhand.runs.file import RunFile
from evenhand.runs.rows import FINAL, sample_from

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

    def snapshot(self, target: Path) -> None:
        """Write all that is committed to a file of its own, also while the run goes on."""
        sqlite.backup(self._read, target)

    def select(self, query: str, *parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Return the rows of a query, for other modules of this package."""
        return iter(self._read.execute(query, parameters))

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

    def has_answers(self) -> bool:
        """Return whether any call was answered."""
        return self._read.execute("SELECT 1 FROM turns WHERE calls + cached > 0 LIMIT 1").fetchone() is not None

    def find_sample(self, sample_id: str) -> tuple[int, Sample] | None:
        row = self._read.execute("SELECT number, body FROM samples WHERE id = ?", (sample_id,)).fetchone()
        if row is None:
            return None
        sample = self.decoded_sample(row[1], row[0])
        return None if sample is None else (row[0], sample)

    def samples(self) -> Iterator[tuple[int, Sample]]:
        """Yield all samples by id, so that several stores can be read in parallel."""
        for number, body in self._read.execute("SELECT number, body FROM samples ORDER BY id"):
            if (sample := self.decoded_sample(body, number)) is not None:
                yield number, sample

    def record(
        self, number: int, arm: int, sample: Sample, scorers: Sequence[str], iteration: int = FINAL
    ) -> Record | None:
        """The finished sample as the metrics see it, None while it is pending: the grades by `scorers` as one.

        With an iteration, the result as it stood after it; results that were final by then are carried forward.
        """
        rows = self._read.execute(
            "SELECT o.status, o.reason, s.scorer, s.iteration, s.status, s.reason, s.body FROM outcomes o LEFT JOIN"
            " scores s ON s.sample = o.sample AND s.arm = o.arm AND s.iteration <= ?"
            " WHERE o.sample = ? AND o.arm = ?",
            (iteration, number, arm),
        ).fetchall()
        if not rows:
            return None
        status, reason = rows[0][:2]
        reached = FINAL if iteration == FINAL else max((row[3] for row in rows if row[3] is not None), default=FINAL)
        found = {row[2]: row[4:] for row in rows if row[3] == reached and row[2] in scorers}
        if reached != FINAL and scorers[0] in found:
            status, reason = found[scorers[0]][:2]
        bodies = [found[scorer][2] for scorer in scorers if scorer in found]
        grade: dict[str, Any] = {}
        for body in (body for body in bodies if body is not None):
            values = self.decoded_score(body, number, arm)
            if values is None:
                return None
            grade |= values
        return Record(sample.id, sample.cluster, status, sample.metadata, grade or None, reason)

    def most_iterations(self, arm: int) -> int:
        """The highest iteration that any sample of the arm reached; 0 for methods that do not iterate."""
        return self._read.execute("SELECT MAX(iteration) FROM scores WHERE arm = ?", (arm,)).fetchone()[0] or 0

    def unscored(self, arm: int, scorer: str) -> list[tuple[str, int]]:
        """Why final results have no score by a scorer: (reason, count), most frequent first."""
        failed = self._read.execute(
            "SELECT reason, COUNT(*) AS n FROM scores WHERE arm = ? AND scorer = ? AND iteration = -1"
            " AND status != 'graded' GROUP BY reason ORDER BY n DESC, reason",
            (arm, scorer),
        ).fetchall()
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
            "SELECT status, reason, COUNT(*) AS n FROM outcomes WHERE arm = ?1 AND reason IS NOT NULL"
            " AND (?2 IS NULL OR sample IN (SELECT value FROM json_each(?2)))"
            " GROUP BY status, reason ORDER BY n DESC, reason LIMIT ?3",
            (arm, json_list(samples), most),
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
            "SELECT TOTAL(seconds), TOTAL(CASE WHEN arm = ?1"
            " AND (?2 IS NULL OR sample IN (SELECT value FROM json_each(?2))) THEN seconds END) FROM outcomes",
            (arm, json_list(samples)),
        ).fetchone()
        return (self.get("seconds") or 0.0) * part / whole if whole else 0.0

    def scoring(self) -> Usage:
        """What the calls of scorers took."""
        stored: dict[str, Any] = self.get("scoring") or {}
        return Usage(**stored)

    def usage(self, arm: int | None = None, samples: Sequence[int] | None = None) -> dict[str, Usage]:
        """What was consumed, by model role; of one arm or of the whole run, of all samples or of some."""
        rows = self._read.execute(
            "SELECT role, SUM(calls), SUM(prompt_tokens), SUM(completion_tokens), SUM(cached), SUM(retries),"
            " SUM(cost), SUM(cost IS NULL), SUM(thought_tokens) FROM turns WHERE (?1 IS NULL OR arm = ?1)"
            " AND (?2 IS NULL OR sample IN (SELECT value FROM json_each(?2)))"
            " GROUP BY role ORDER BY role",
            (arm, json_list(samples)),
        )
        return {
            role: Usage(calls, prompt, completion, cached, retries, None if unknown else cost or 0.0, thought)
            for role, calls, prompt, completion, cached, retries, cost, unknown, thought in rows
        }


def _turn_in(body: Any) -> Turn:
    return turn_from(unpack(body))


def _sample_in(body: Any) -> Sample:
    return sample_from(unpack(body))


def _outcome_from(body: Any) -> Any:
    outcome = unpack(body)
    results = [each["result"] for each in (outcome, *outcome["snapshots"])]
    if not all({"type", "value"} <= each.keys() for each in results):
        raise ValueError("a result is incomplete")
    return outcome


def _score_from(body: Any) -> dict[str, Any]:
    return dict(orjson.loads(body).items())


def json_list(samples: Sequence[int] | None) -> str | None:
    """Return sample numbers as the parameter of a query that reads them with json_each; None stands for all."""
    return None if samples is None else orjson.dumps(list(samples)).decode()
