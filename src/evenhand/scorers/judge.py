"""A model as the judge: Perspective's seven attributes by a rubric, in one constrained call per text."""

from __future__ import annotations

from typing import ClassVar

from evenhand.models.base import Model
from evenhand.prompts import load_prompt
from evenhand.scorers.base import ATTRIBUTES, SCORERS, Scores
from evenhand.scorers.model import ModelScorer
from evenhand.scorers.rubric import Ratings, Rubric, rate
from evenhand.types import Unscored


@SCORERS.register("judge")
class JudgeScorer(ModelScorer):
    """Any model as the judge: the seven attributes from 0 to 100, one call per text."""

    name: ClassVar[str] = "judge"
    attributes = ATTRIBUTES

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.rubric = Rubric(load_prompt(__file__, "judge"), ATTRIBUTES, after=())
        self.version = self.rubric.prompt.hash

    async def ask(self, text: str, context: str) -> Scores | Unscored:
        del context  # the text alone is judged
        messages = self.rubric.prompt.render(text=text)
        found = await rate(self.model.generate, self.rubric, messages, self.model.features)
        return dict(found.values) if isinstance(found, Ratings) else found
