"""What a model is worth as a judge: how it rates pairs that any judge should tell apart, and the thresholds to use.

Judges use their scales differently: some rate everything between 60 and 75. A threshold is worth something only for
the judge it was found with. The pairs are ours: no public benchmark is used to tune what is measured on it. The
passages are those of `bbq_builtin`, whose own numbers are flattered by that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from evenhand import aio
from evenhand.agents.judge import judge
from evenhand.agents.session import Session
from evenhand.data.bbq_generate import builtin_rows
from evenhand.methods.stardtox.evaluators import abstains, bias_messages, bias_rubric, support_messages, support_rubric
from evenhand.models.base import Model
from evenhand.scorers.quality import QUALITIES, quality_messages, quality_rubric
from evenhand.scorers.rubric import Rubric
from evenhand.types import Message, Sample, Unscored

PASSAGES = 24
"""Built-in passages that are rated in two forms, with and without the fact that settles the question."""
AT_CHANCE = 0.6


@dataclass(frozen=True, slots=True)
class Calibration:
    """How well a judge's rating tells the high texts from the low ones."""

    rating: str
    high: Sequence[float]
    low: Sequence[float]
    unscored: int

    @property
    def auc(self) -> float | None:
        """The chance that a high text is rated above a low one; ties count half."""
        if not self.high or not self.low:
            return None
        wins = sum((a > b) + 0.5 * (a == b) for a in self.high for b in self.low)
        return wins / (len(self.high) * len(self.low))

    @property
    def threshold(self) -> float | None:
        """The rating that parts the two best: the highest share of each on its side; None for a judge at chance."""
        if self.auc is None or self.auc < AT_CHANCE:
            return None
        marks = sorted({*self.high, *self.low})
        cuts = [(a + b) / 2 for a, b in pairwise(marks)] or marks
        return max(cuts, key=self._balance)

    def _balance(self, cut: float) -> float:
        return sum(x >= cut for x in self.high) / len(self.high) + sum(x < cut for x in self.low) / len(self.low)


Found = Callable[[int, int], None]
"""Told how many of how many calls are done."""


async def calibrate(model: Model, progress: Found | None = None) -> list[Calibration]:
    """Every rating that StarDTox's judges give, by this model."""
    jobs = [*_support_jobs(), *_quality_jobs(), *_harm_jobs()]
    done = 0

    async def run(job: _Job) -> list[tuple[str, bool, float | None]]:
        nonlocal done
        session = Session(job.sample, {"base": model})
        found = await judge(session, job.rubric, job.messages, agent="judge")
        done += 1
        if progress is not None:
            progress(done, len(jobs))
        return [
            (rating, high, None if isinstance(found, Unscored) else found.values[rating])
            for rating, high in job.expected
        ]

    rated = [each for rows in await aio.all_of([run(job) for job in jobs]) for each in rows]
    names = dict.fromkeys(rating for rating, _, _ in rated)
    return [_calibration(name, [each for each in rated if each[0] == name]) for name in names]


def _calibration(name: str, rated: Sequence[tuple[str, bool, float | None]]) -> Calibration:
    return Calibration(
        name,
        [value for _, high, value in rated if high and value is not None],
        [value for _, high, value in rated if not high and value is not None],
        sum(value is None for _, _, value in rated),
    )


@dataclass(frozen=True, slots=True)
class _Job:
    sample: Sample
    rubric: Rubric
    messages: Sequence[Message]
    expected: Sequence[tuple[str, bool]]
    """(rating, whether it should be high)."""


def _support_jobs() -> Iterator[_Job]:
    """Each passage with the fact and the right person, and without the fact and the same person."""
    pairs: dict[str, dict[str, dict[str, Any]]] = {}
    for row in builtin_rows():
        if row["question_polarity"] == "neg":
            pairs.setdefault(f"{row['category']}/{row['question_index']}", {}).setdefault(row["context_condition"], row)
    both = [pair for pair in pairs.values() if len(pair) == 2]
    for pair in random.Random(0).sample(both, min(PASSAGES, len(both))):
        clear, vague = pair["disambig"], pair["ambig"]
        person = clear[f"ans{clear['label']}"]
        same = next((vague[f"ans{i}"] for i in range(3) if vague[f"ans{i}"] == person), None)
        other = next(vague[f"ans{i}"] for i in range(3) if not abstains(vague[f"ans{i}"]))
        for row, answer, high in ((clear, person, True), (vague, same or other, False)):
            sample = Sample("contrast", "choice", row["question"], row["context"])
            messages = support_messages(sample, answer)
            yield _Job(sample, support_rubric(), messages, [("settled", high), ("support", high)])


def _quality_jobs() -> Iterator[_Job]:
    pairs = _contrast()["quality"]
    for number, (beginning, good) in enumerate(pairs):
        words = good.split()
        random.Random(number).shuffle(words)
        other = pairs[(number + 5) % len(pairs)][1]
        for text, high in ((good, True), (" ".join(words), False), (other, False)):
            wrong = QUALITIES if high else (("relevance", "coherence") if text == other else ("fluency", "coherence"))
            sample = Sample("contrast", "completion", beginning)
            expected = [(name, high) for name in wrong]
            yield _Job(sample, quality_rubric(), quality_messages(beginning, text), expected)


def _harm_jobs() -> Iterator[_Job]:
    for beginning, harmful, harmless in _contrast()["harm"]:
        for text, high in ((harmful, True), (harmless, False)):
            sample = Sample("contrast", "completion", beginning)
            yield _Job(sample, bias_rubric(), bias_messages(beginning, text), [("harm", high)])


@cache
def _contrast() -> dict[str, Any]:
    return yaml.safe_load(Path(__file__).with_name("contrast.yaml").read_text(encoding="utf-8"))


def suggested_options(found: Sequence[Calibration]) -> dict[str, float]:
    """StarDTox's options for a judge with these calibrations; ratings at chance give none."""
    by_name = {each.rating: each.threshold for each in found}
    options: dict[str, float] = {}
    for name in ("support", "settled"):
        if by_name.get(name) is not None:
            options[name] = round(100 * (by_name[name] or 0), 1)
    qualities = [by_name[name] for name in QUALITIES if by_name.get(name) is not None]
    if qualities:
        # One threshold for three scales: the lowest, so that a good text can pass on all of them.
        options["quality"] = round(100 * min(value for value in qualities if value is not None), 1)
    return options
