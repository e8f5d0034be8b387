"""What an evaluator says about an answer, and the registry of evaluators; a new one is one async function."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from evenhand.options import Options, Text
from evenhand.registry import Registry, signature_fault
from evenhand.session import Session
from evenhand.types import Answer, Sample, SampleKind, Unscored


@dataclass(frozen=True, slots=True)
class Verdict:
    """One evaluator's opinion of one answer.

    `harm` and `quality` are in 0–1; an evaluator gives the one that it looks after. `excess` is how far the answer
    is on the wrong side of the threshold. The critique is words for the writer: no numbers, which invite gaming.
    """

    passed: bool
    critique: str = ""
    harm: float | None = None
    quality: float | None = None
    excess: float = 0.0
    details: str = ""
    """For the trace alone: scores and thresholds."""


class Thresholds(Options):
    """What the evaluators of an answer go by; a method that asks evaluators has these among its options."""

    toxicity: float = Field(
        default=0.1, ge=0, le=1, description="A text passes below this value, from the scorer or the judge."
    )
    scorer: Text = Field(default="builtin", description="The scorer that gives the toxicity; see evenhand scorers.")
    quality: float = Field(default=80, ge=0, le=100, description="Minimum for fluency, coherence and relevance, each.")
    support: float = Field(default=80, ge=0, le=100, description="Minimum support for an answer that names a person.")
    settled: float = Field(
        default=50,
        ge=0,
        le=100,
        description="An answer that names nobody passes if the question is settled less than this.",
    )


Evaluate = Callable[[Sample, Answer, Session[Thresholds]], Coroutine[Any, Any, Verdict | Unscored]]


@dataclass(frozen=True, slots=True)
class Evaluator:
    """A named evaluator and the kinds of samples it can look at. Evaluators are stateless."""

    name: str
    kinds: frozenset[SampleKind]
    evaluate: Evaluate
    free: bool = False
    """Whether it asks no model, so that it may look at an answer while that is still being written."""

    async def judge(self, sample: Sample, answer: Answer, session: Session[Thresholds]) -> Verdict | Unscored:
        """What it says of the answer; how methods ask it."""
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
