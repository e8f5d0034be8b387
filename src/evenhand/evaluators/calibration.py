"""Judge calibration: rates contrasting texts with a model and finds the threshold that separates them best.

Judges use their scales differently (some rate everything between 60 and 75), so a threshold is valid only for the
judge it was calibrated with.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from evenhand.asking.judge import judge
from evenhand.core import aio
from evenhand.core.progress import Count, ignore
from evenhand.core.types import Message, Sample, SampleKind, Unscored
from evenhand.models.base import Model
from evenhand.scorers.rubric import Ratings, Rubric
from evenhand.session import Session

AT_CHANCE = 0.6


@dataclass(frozen=True, slots=True)
class Contrast:
    """A text to rate, and which of its ratings should be high or low."""

    sample: Sample
    rate: Callable[[Session], Awaitable[Ratings | Unscored]]
    expected: Sequence[tuple[str, bool]]
    """(rating, whether it should be high). A call that rates several texts names its ratings `rating/text`."""


def rated_by(
    sample: Sample, rubric: Rubric, messages: Sequence[Message], expected: Sequence[tuple[str, bool]]
) -> Contrast:
    """Returns a contrast that is rated by a judge with a rubric."""

    async def rate(session: Session) -> Ratings | Unscored:
        return await judge(session, rubric, messages, agent="judge")

    return Contrast(sample, rate, expected)


@dataclass(frozen=True, slots=True)
class Calibration:
    """How well a judge's rating separates texts that should be high from texts that should be low."""

    rating: str
    high: Sequence[float]
    low: Sequence[float]
    unscored: int
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """The prompts that were asked with → their hashes."""

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve: the probability that a high text is rated above a low one; ties count half."""
        if not self.high or not self.low:
            return None
        wins = sum((a > b) + 0.5 * (a == b) for a in self.high for b in self.low)
        return wins / (len(self.high) * len(self.low))

    @property
    def threshold(self) -> float | None:
        """The threshold with the best balanced accuracy; None if the judge is at chance."""
        if self.auc is None or self.auc < AT_CHANCE:
            return None
        marks = sorted({*self.high, *self.low})
        cuts = [(a + b) / 2 for a, b in pairwise(marks)] or marks
        return max(cuts, key=self._balance)

    def _balance(self, cut: float) -> float:
        return sum(x >= cut for x in self.high) / len(self.high) + sum(x < cut for x in self.low) / len(self.low)


@dataclass(frozen=True, slots=True)
class JudgeTest:
    """A method's calibration of its judge: contrasting texts, and the options suggested by the ratings."""

    task: str
    """The judge's task in words, such as `judge for NAME`; messages say "another model to …"."""
    contrasts: Callable[[], Sequence[Contrast]]
    options: Callable[[Sequence[Calibration]], Mapping[str, Any]] = lambda _: {}
    """Options of the method that suit this judge; empty if it needs none, or is at chance."""
    kinds: frozenset[SampleKind] = frozenset({"choice"})
    """The kinds of samples that these options are for."""
    commands: Callable[[Sequence[Calibration]], Sequence[str]] = lambda _: ()
    """Other commands whose options depend on the judge."""


async def calibrate(model: Model, contrasts: Sequence[Contrast], count: Count = ignore) -> list[Calibration]:
    """Rates all contrasts with the model and returns one calibration per rating."""
    done = 0
    sessions = [Session(each.sample, {"base": model}) for each in contrasts]

    async def run(contrast: Contrast, session: Session) -> Ratings | Unscored:
        nonlocal done
        ratings = await contrast.rate(session)
        done += 1
        count(done, len(contrasts))
        return ratings

    replies = await aio.all_of([run(*each) for each in zip(contrasts, sessions, strict=True)])
    names = dict.fromkeys(_rating(key) for each in contrasts for key, _ in each.expected)
    return [_calibration(name, list(zip(contrasts, sessions, replies, strict=True))) for name in names]


def _calibration(name: str, rated: Sequence[tuple[Contrast, Session, Ratings | Unscored]]) -> Calibration:
    high: list[float] = []
    low: list[float] = []
    prompts: dict[str, str] = {}
    unscored = 0
    for contrast, session, reply in rated:
        expected = [(key, is_high) for key, is_high in contrast.expected if _rating(key) == name]
        if expected:
            prompts |= {turn.prompt_id: turn.prompt_hash for turn in session.trace}
        if isinstance(reply, Unscored):
            unscored += bool(expected)
            continue
        for key, is_high in expected:
            (high if is_high else low).append(reply.values[key])
    return Calibration(name, high, low, unscored, prompts)


def _rating(key: str) -> str:
    return key.partition("/")[0]
