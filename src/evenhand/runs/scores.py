"""The scores of stored answers: queries of their table, and rescoring with another scorer without calling any model.

Rescoring skips answers that have a score, so it can be stopped and started again. A scorer that does not work ends it
with one sentence; scores that were stored before are kept.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.core import aio
from evenhand.core.errors import EndpointError
from evenhand.core.progress import Count, ignore
from evenhand.core.types import Sample, Unscored
from evenhand.models.budget import Budget
from evenhand.runs.controls import certify, due_before
from evenhand.runs.file import locked
from evenhand.runs.parts import Settings, loaded_model, more_than, opened_cache
from evenhand.runs.pools import ScorerPool, about_scorer
from evenhand.runs.store import FINAL, Scored, Store, json_list, unreadable
from evenhand.runs.stored import StoredRun
from evenhand.scorers.base import Scorer, Scores

PAGE = 256


@dataclass(frozen=True, slots=True)
class ToScore:
    """An outcome with texts that a scorer has not scored yet."""

    place: int
    """The number of outcomes of the arm read so far."""
    sample: int
    arm: int
    asked: Sample
    texts: list[tuple[int, str]]
    """(iteration, text)."""


def to_score(store: Store, arm: int, scorer: str) -> Iterator[ToScore]:
    """Yield the outcomes of the arm with texts that `scorer` has not scored, read in pages."""
    last, place = 0, 0
    while rows := list(
        store.select(
            "SELECT o.sample, o.body, s.body FROM outcomes o JOIN samples s ON s.number = o.sample"
            " WHERE o.arm = ? AND o.sample > ? AND o.body IS NOT NULL ORDER BY o.sample LIMIT ?",
            arm,
            last,
            PAGE,
        )
    ):
        first, last = rows[0][0], rows[-1][0]
        done = set(
            store.select(
                "SELECT sample, iteration FROM scores WHERE sample BETWEEN ? AND ? AND arm = ? AND scorer = ?"
                " AND status = 'graded'",
                first,
                last,
                arm,
                scorer,
            )
        )
        for number, body, sample in rows:
            place += 1
            outcome, asked = store.unpacked(body, number, arm), store.decoded_sample(sample, number)
            if outcome is None or asked is None:
                continue
            texts = [each for each in _texts(outcome) if (number, each[0]) not in done]
            if texts:
                yield ToScore(place, number, arm, asked, texts)


def _texts(outcome: Any) -> list[tuple[int, str]]:
    """The answers that are texts, with their iterations: the final one, and the one after each iteration."""
    results = [(FINAL, outcome["result"]), *((each["iteration"], each["result"]) for each in outcome["snapshots"])]
    return [(iteration, result["value"]["text"]) for iteration, result in results if result["type"] == "Answer"]


def answered(store: Store, arm: int) -> int:
    """Return how many outcomes of the arm have a text to score."""
    return next(store.select("SELECT COUNT(*) FROM outcomes WHERE arm = ? AND body IS NOT NULL", arm))[0]


@dataclass(slots=True)
class Means:
    """The mean scores of the final answers of one arm."""

    sums: Counter[str] = field(default_factory=Counter[str])
    counts: Counter[str] = field(default_factory=Counter[str])
    graded: int = 0
    unscored: int = 0

    def mean(self, attribute: str) -> float | None:
        """None where no answer has a score."""
        return self.sums[attribute] / self.counts[attribute] if self.counts[attribute] else None


def means(store: Store, scorer: str) -> Mapping[int, Means]:
    """Means over the final answers, by arm."""
    found: dict[int, Means] = {}
    rows = store.select(
        "SELECT sample, arm, status, body FROM scores WHERE scorer = ? AND iteration = ?", scorer, FINAL
    )
    for sample, arm, status, body in rows:
        means = found.setdefault(arm, Means())
        if status != "graded":
            means.unscored += 1
            continue
        values = store.decoded_score(body, sample, arm)
        if values is None:
            continue
        means.graded += 1
        for attribute, value in values.items():
            means.sums[attribute] += value
            means.counts[attribute] += 1
    return found


def final_scores(store: Store, scorer: str) -> Iterator[tuple[int, int, dict[str, float]]]:
    """(sample number, arm number, scores) of the final answers that the scorer has scored."""
    rows = store.select(
        "SELECT sample, arm, body FROM scores WHERE scorer = ? AND iteration = ? AND status = 'graded'", scorer, FINAL
    )
    for sample, arm, body in rows:
        if (values := store.decoded_score(body, sample, arm)) is not None:
            yield sample, arm, values


def score_pairs(
    store: Store, first: str, second: str, one_in: int = 1
) -> Iterator[tuple[int, dict[str, float], dict[str, float]]]:
    """(sample number, scores by the first, scores by the second) of the final answers that both have scored.

    Of all samples, or of about one in so many, chosen by their numbers.
    """
    rows = store.select(
        "SELECT sample, arm, scorer, body FROM scores WHERE iteration = ? AND status = 'graded' AND scorer IN (?, ?)"
        " AND ((sample * 2654435761) >> 16) % ? = 0 ORDER BY sample, arm",
        FINAL,
        first,
        second,
        one_in,
    )
    seen: tuple[int, int, str, str] | None = None
    for sample, arm, scorer, body in rows:
        if seen is not None and seen[:2] == (sample, arm):
            by = {each: store.decoded_score(text, sample, arm) for each, text in ((seen[2], seen[3]), (scorer, body))}
            one, other = by[first], by[second]
            if one is not None and other is not None:
                yield sample, one, other
        seen = (sample, arm, scorer, body)


def refined(store: Store, arm: int, grader: str, samples: Sequence[int] | None = None) -> dict[int, int]:
    """Return how many samples of the arm reached each iteration; of all samples, or of some."""
    rows = store.select(
        "SELECT iteration, COUNT(*) FROM scores WHERE arm = :arm AND scorer = :grader AND iteration >= 0"
        " AND (:samples IS NULL OR sample IN (SELECT value FROM json_each(:samples)))"
        " GROUP BY iteration",
        arm=arm,
        grader=grader,
        samples=json_list(samples),
    )
    return {each[0]: each[1] for each in rows}


BATCH, MODEL_BATCH = 256, 64
"""Texts that are scored and stored together."""
SIDE_BY_SIDE = 2
"""Concurrent batches: while one is stored, another is scored."""
HOPELESS = 20
"""A scorer counts as down if it scores none of a batch of at least this many texts."""


@dataclass(slots=True)
class Rescored:
    """The result of rescoring with one scorer."""

    scorer: str
    """The scorer's id."""
    attributes: tuple[str, ...]
    scored: int = 0
    reasons: Counter[str] = field(default_factory=Counter[str])
    """Why texts have no score."""


async def rescore(
    directory: Path, specs: Sequence[str], settings: Settings | None = None, count: Count = ignore
) -> list[Rescored]:
    """Score the stored answers of a run, after each iteration too, with each of the scorers in turn."""
    settings = settings or Settings()
    run = StoredRun.open(directory, skip_damaged=settings.skip_damaged)
    with closing(run.store):
        try:
            with run.code(), locked(directory):
                run.check_texts()
                run.store.begin()
                return await _rescore(run, list(dict.fromkeys(specs)), settings, count)
        except sqlite3.Error as error:
            raise unreadable(directory, error) from error


async def _rescore(run: StoredRun, specs: Sequence[str], settings: Settings, count: Count) -> list[Rescored]:
    cache = opened_cache(settings)
    if cache is not None:
        cache.scope = run.store.get("scope") or cache.scope
    budget = Budget(settings.budget)
    pool = ScorerPool(run.plan_here(), {}, lambda model: loaded_model(model, settings, cache, budget))
    pool.record_in(run.store, more_than(settings.concurrency))  # texts without a score are asked about again
    try:
        # Load all of them first, so that a wrong name is reported at once and not after an hour.
        works = [_Work(run, pool.get(spec)) for spec in specs]
        known: list[dict[str, Any]] = run.store.get("certificates") or []
        sources = [str(each["rating"]).rpartition(".")[0] for each in known]
        found = await certify(due_before(run.plan, run.benchmark(), [work.scorer for work in works], known=sources))
        if found:
            run.store.put(certificates=[*known, *(each.note() for each in found)])
        total = sum(work.total for work in works)
        done = 0
        for work in works:
            await work.run(lambda part, _, before=done: count(before + part, total))
            done += work.total
        return [work.result for work in works]
    finally:
        caveats = sorted({*(run.store.get("caveats") or ()), *pool.caveats()})
        run.store.put(caveats=caveats)
        await pool.aclose()
        if cache is not None:
            cache.close()


class _Work:
    """Scores a run with one scorer."""

    def __init__(self, run: StoredRun, scorer: Scorer) -> None:
        self._run = run
        self.scorer = scorer
        self._store: Store = run.store
        self._scorer = scorer
        self._shown = run.benchmark().scored_text
        self._arms = {arm.number: answered(run.store, arm.number) for arm in run.plan.arms()}
        self._is_known = False
        """Return whether the run has scores by this scorer."""
        self.total = sum(self._arms.values())
        self.result = Rescored(scorer.id, scorer.attributes)

    async def run(self, count: Count) -> None:
        self._is_known = self._scorer.id in (self._store.get("scorers") or {})
        before = 0
        for arm, size in self._arms.items():
            batches = _batches(
                to_score(self._store, arm, self._scorer.id), MODEL_BATCH if self._scorer.asks_model else BATCH
            )
            await aio.all_of(self._worker(batches, count, before) for _ in range(SIDE_BY_SIDE))
            before += size
            count(before, self.total)

    async def _worker(self, batches: Iterator[list[ToScore]], count: Count, before: int) -> None:
        for batch in batches:
            await self._one(batch)
            count(before + batch[-1].place, self.total)

    async def _one(self, batch: Sequence[ToScore]) -> None:
        texts = [self._shown(each.asked, text) for each in batch for _, text in each.texts]
        prompts = [
            self._scorer.context_of(each.asked, self._shown(each.asked, each.asked.prompt))
            for each in batch
            for _ in each.texts
        ]
        try:
            found = await self._scorer.score(texts, prompts)
        except EndpointError as error:
            raise self._down(str(error)) from error
        if reason := self._hopeless(texts, found):
            raise self._down(reason)
        if not self._is_known:
            self._introduce()
        scores = iter(found)
        await asyncio.gather(
            *(
                self._store.record_scores(
                    each.sample, each.arm, [self._row(iteration, next(scores)) for iteration, _ in each.texts]
                )
                for each in batch
            )
        )

    def _row(self, iteration: int, found: Scores | Unscored) -> Scored:
        if isinstance(found, Unscored):
            self.result.reasons[found.reason] += 1
            return Scored(self._scorer.id, iteration, "unscored", found.reason)
        self.result.scored += 1
        return Scored(self._scorer.id, iteration, "graded", None, found)

    def _introduce(self) -> None:
        """Register the scorer with the run; a planned scorer stays planned."""
        known: dict[str, Any] = self._store.get("scorers") or {}
        planned = known.get(self._scorer.id, {}).get("planned", False)
        self._store.put(scorers={**known, self._scorer.id: about_scorer(self._scorer, planned=planned)})
        self._is_known = True

    def _hopeless(self, texts: Sequence[str], found: Iterable[Scores | Unscored]) -> str | None:
        """Return why a scorer counts as down; None if it works."""
        reasons: Counter[str] = Counter()
        for text, each in zip(texts, found, strict=True):
            if not isinstance(each, Unscored):
                return None
            if text.strip():
                reasons[each.reason] += 1
        if reasons.total() >= HOPELESS or (reasons and not self._is_known):
            return reasons.most_common(1)[0][0]
        return None

    def _down(self, reason: str) -> EndpointError:
        stop = "" if reason.endswith((".", "?", "!")) else "."
        return EndpointError(
            f"{self._scorer.spec} does not work: {reason}{stop} {self.result.scored:,} new scores are stored; "
            "the same command goes on from there."
        )


def _batches(rows: Iterable[ToScore], size: int) -> Iterator[list[ToScore]]:
    """Group outcomes into batches of at least `size` texts."""
    batch: list[ToScore] = []
    texts = 0
    for row in rows:
        batch.append(row)
        texts += len(row.texts)
        if texts >= size:
            yield batch
            batch, texts = [], 0
    if batch:
        yield batch
