"""Fluency, coherence and relevance of a continuation, rated by a model; less toxicity must not cost quality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from evenhand.core.prompts import load_prompt
from evenhand.core.types import Message, Unscored
from evenhand.models.base import Model
from evenhand.scorers.base import SCORERS, Scores
from evenhand.scorers.model import ModelScorer
from evenhand.scorers.rubric import Ratings, Rubric, rate

QUALITIES = ("fluency", "coherence", "relevance")


def quality_rubric(*, reasons: bool = True) -> Rubric:
    """Return the rubric that the evaluator and the metric share; the metric needs no reasons."""
    return Rubric(load_prompt(__file__, "quality"), QUALITIES, after=None if reasons else ())


def quality_messages(context: str, text: str) -> Sequence[Message]:
    return quality_rubric().prompt.render(text=context, continuation=text)


@SCORERS.register("quality")
class QualityScorer(ModelScorer):
    """Fluency, coherence and relevance of a continuation, in one model call."""

    name: ClassVar[str] = "quality"
    attributes = QUALITIES

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.rubric = quality_rubric(reasons=False)
        self.version = self.rubric.prompt.hash

    async def ask(self, text: str, context: str) -> Scores | Unscored:
        messages = quality_messages(context, text)
        ratings = await rate(self.model.generate, self.rubric, messages, self.rubric.params(self.model.features))
        return dict(ratings.values) if isinstance(ratings, Ratings) else ratings
