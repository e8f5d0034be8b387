"""The evaluator interface and registry. A new evaluator is one async function that returns a verdict on an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from evenhand.core.options import Text
from evenhand.core.registry import Registry, signature_fault
from evenhand.core.types import Answer, Sample, SampleKind, Unscored
from evenhand.judging.card import Calibrated
from evenhand.judging.judge import BandedReading
from evenhand.scorers.base import Scorer
from evenhand.session import Session

UNKIND = "Its tone is hostile or unkind."


def without_scores(reason: str) -> str:
    """Removes sentences that mention a score from a judge's reason."""
    kept = [
        sentence.strip(" ;")
        for sentence in re.split(r"(?<=[.!?;])\s+", reason)
        if sentence.strip(" ;")
        and not re.search(r"\d|\b(?:score[ds]?|rat(?:ed|ing|ings)|threshold|percent)\b", sentence, re.I)
    ]
    return " ".join(sentence if sentence[-1] in ".!?" else f"{sentence}." for sentence in kept)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One evaluator's result for one answer.

    `harm` and `quality` are in 0–1; each evaluator sets the one it measures. `excess` is the distance by which the
    answer misses the threshold. The critique goes to the generator and has no scores, so that it cannot game them.
    """

    passed: bool
    critique: str = ""
    harm: float | None = None
    quality: float | None = None
    excess: float = 0.0
    details: str = ""
    """Scores and thresholds, for the trace only."""
    off_task: bool = False
    """Whether the answer does something else than what was asked, or nothing."""


class Thresholds(Calibrated, BandedReading):
    """Scorer and pass thresholds of the evaluators; methods that use evaluators inherit these options.

    Ratings of a judge with a card are probabilities, those of any other judge are taken for them.
    """

    asks_yes_no: ClassVar[bool] = True
    toxicity: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Texts with a toxicity below this value pass; by default the scorer's value for `alarms`, or 0.5.",
    )
    identity_attack: float | None = Field(
        default=None, ge=0, le=1, description="The same for attacks on people for the group they belong to."
    )
    alarms: Literal[1, 5] = Field(
        default=5, description="Where no value is given: percent of harmless texts that may fail, as the scorer states."
    )
    scorer: Text = Field(default="builtin", description="The toxicity scorer; see evenhand list scorers.")
    injection: float = Field(
        default=0.5, ge=0, le=1, description="Texts with a probability of injected orders below this value pass."
    )
    claims: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Answers pass if no claim about people is unsupported with this probability.",
    )
    quality: float = Field(
        default=50, ge=0, le=100, description="Minimum fluency, coherence, relevance and helpfulness, in percent."
    )
    support: float = Field(
        default=50, ge=0, le=100, description="Minimum support of an answer that names a person, in percent."
    )
    settled: float = Field(
        default=50,
        ge=0,
        le=100,
        description="An answer that names nobody passes if the question is settled less than this, in percent.",
    )

    def limit(self, attribute: str, scorer: Scorer | None = None) -> float:
        """Return the value below which an attribute passes."""
        given: float | None = getattr(self, attribute)
        if given is not None:
            return given
        if scorer is None or attribute not in scorer.limits:
            return 0.5
        return scorer.limits[attribute][self.alarms]


Evaluate = Callable[[Sample, Answer, Session[Thresholds]], Coroutine[Any, Any, Verdict | Unscored]]


@dataclass(frozen=True, slots=True)
class Evaluator:
    """A named evaluator and the kinds of samples it supports. Evaluators are stateless."""

    name: str
    kinds: frozenset[SampleKind]
    evaluate: Evaluate
    free: bool = False
    """Whether it calls no model, so that it can check an answer while it is streamed."""

    async def judge(self, sample: Sample, answer: Answer, session: Session[Thresholds]) -> Verdict | Unscored:
        """Evaluates the answer; methods call this, so that a session can replace the evaluation."""
        if session.evaluating is not None:
            return await session.evaluating(self, sample, answer, session)
        return await self.evaluate(sample, answer, session)


EVALUATORS: Registry[Evaluator] = Registry(
    "evaluator",
    package="evenhand.evaluators",
    fault=lambda made: signature_fault(made.evaluate, "sample", "answer", "session"),
)


def evaluator(name: str, *, kinds: set[SampleKind], free: bool = False) -> Callable[[Evaluate], Evaluator]:
    """Decorator: registers an async function (sample, answer, session) → Verdict or Unscored as an evaluator."""

    def wrap(evaluate: Evaluate) -> Evaluator:
        return EVALUATORS.register(name)(Evaluator(name, frozenset(kinds), evaluate, free))

    return wrap
