"""Queries of the scores table: texts without a score, means by arm, and pairs of scores of the same text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenhand.core.types import Sample
from evenhand.runs.rows import FINAL
from evenhand.runs.store import Store, json_list

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
        "SELECT iteration, COUNT(*) FROM scores WHERE arm = ?1 AND scorer = ?3 AND iteration >= 0"
        " AND (?2 IS NULL OR sample IN (SELECT value FROM json_each(?2)))"
        " GROUP BY iteration",
        arm,
        json_list(samples),
        grader,
    )
    return {each[0]: each[1] for each in rows}
