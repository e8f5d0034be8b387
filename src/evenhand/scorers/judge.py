"""Any model as a judge of Perspective's seven attributes, with a rubric and one constrained call per text."""

from __future__ import annotations

from typing import ClassVar

from evenhand.core.prompts import load_prompt
from evenhand.core.types import Unscored
from evenhand.models.base import Model
from evenhand.scorers.base import ATTRIBUTES, SCORERS, Scores
from evenhand.scorers.model import ModelScorer
from evenhand.scorers.rubric import Ratings, Rubric, rate


@SCORERS.register("judge")
class JudgeScorer(ModelScorer):
    """Any model as a judge of the seven attributes, rated from 0 to 100, in one call per text."""

    name: ClassVar[str] = "judge"
    attributes = ATTRIBUTES

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.rubric = Rubric(load_prompt(__file__, "judge"), ATTRIBUTES, after=())
        self.version = self.rubric.prompt.hash

    async def ask(self, text: str, context: str) -> Scores | Unscored:
        del context  # only the text counts
        messages = self.rubric.prompt.render(text=text)
        ratings = await rate(self.model.generate, self.rubric, messages, self.rubric.params(self.model.features))
        return dict(ratings.values) if isinstance(ratings, Ratings) else ratings
