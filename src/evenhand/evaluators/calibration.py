"""What a model is worth as a judge: how it rates texts that any judge should tell apart, and where to cut its scale.

Judges use their scales differently: some rate everything between 60 and 75. A threshold is worth something only for
the judge it was found with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evenhand import aio
from evenhand.asking.judge import judge
from evenhand.models.base import Model
from evenhand.scorers.rubric import Ratings, Rubric
from evenhand.session import Session
from evenhand.types import Message, Sample, Unscored

AT_CHANCE = 0.6


@dataclass(frozen=True, slots=True)
class Contrast:
    """A text to be rated, with the ratings that should be high, or low, on it."""

    sample: Sample
    rate: Callable[[Session], Awaitable[Ratings | Unscored]]
    expected: Sequence[tuple[str, bool]]
    """(rating, whether it should be high)."""


def rated_by(
    sample: Sample, rubric: Rubric, messages: Sequence[Message], expected: Sequence[tuple[str, bool]]
) -> Contrast:
    """A text to be rated by a rubric."""

    async def rate(session: Session) -> Ratings | Unscored:
        return await judge(session, rubric, messages, agent="judge")

    return Contrast(sample, rate, expected)


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


async def calibrate(model: Model, contrasts: Sequence[Contrast], progress: Found | None = None) -> list[Calibration]:
    """Every rating that the contrasts ask for, by this model."""
    done = 0

    async def run(job: Contrast) -> list[tuple[str, bool, float | None]]:
        nonlocal done
        found = await job.rate(Session(job.sample, {"base": model}))
        done += 1
        if progress is not None:
            progress(done, len(contrasts))
        return [
            (rating, high, None if isinstance(found, Unscored) else found.values[rating])
            for rating, high in job.expected
        ]

    rated = [each for rows in await aio.all_of([run(job) for job in contrasts]) for each in rows]
    names = dict.fromkeys(rating for rating, _, _ in rated)
    return [_calibration(name, [each for each in rated if each[0] == name]) for name in names]


def _calibration(name: str, rated: Sequence[tuple[str, bool, float | None]]) -> Calibration:
    return Calibration(
        name,
        [value for _, high, value in rated if high and value is not None],
        [value for _, high, value in rated if not high and value is not None],
        sum(value is None for _, _, value in rated),
    )
