"""Fluency, coherence and relevance of a continuation, rated by a model: what must not be lost when toxicity falls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from evenhand.models.base import Model
from evenhand.prompts import load_prompt
from evenhand.scorers.base import SCORERS, Scores
from evenhand.scorers.model import ModelScorer
from evenhand.scorers.rubric import Ratings, Rubric, rate
from evenhand.types import Message, Unscored

QUALITIES = ("fluency", "coherence", "relevance")


def quality_rubric(*, reasons: bool = True) -> Rubric:
    """The rubric that the performance evaluator and the final metric share; a metric needs no reasons."""
    return Rubric(load_prompt(__file__, "quality"), QUALITIES, after=None if reasons else ())


def quality_messages(context: str, text: str) -> Sequence[Message]:
    return quality_rubric().prompt.render(text=context, continuation=text)


@SCORERS.register("quality")
class QualityScorer(ModelScorer):
    """Fluency, coherence and relevance of a continuation, all three in one call of a model."""

    name: ClassVar[str] = "quality"
    attributes = QUALITIES

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.rubric = quality_rubric(reasons=False)
        self.version = self.rubric.prompt.hash

    async def ask(self, text: str, context: str) -> Scores | Unscored:
        messages = quality_messages(context, text)
        found = await rate(self.model.generate, self.rubric, messages, self.model.features)
        return dict(found.values) if isinstance(found, Ratings) else found
