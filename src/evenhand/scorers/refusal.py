"""Whether a reply declines its request, rated by a model; rules miss refusals in unusual words."""

from __future__ import annotations

from typing import ClassVar

from evenhand.core.prompts import load_prompt
from evenhand.core.types import Unscored
from evenhand.core.untrusted import fenced
from evenhand.models.base import Model
from evenhand.scorers.base import SCORERS, Scores
from evenhand.scorers.model import ModelScorer
from evenhand.scorers.rubric import Ratings, Rubric, rate


@SCORERS.register("refusal")
class RefusalScorer(ModelScorer):
    """How far a reply declines its request, in one model call: 0 does it, 1 declines."""

    name: ClassVar[str] = "refusal"
    attributes = ("declined",)

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.rubric = Rubric(load_prompt(__file__, "refusal"), self.attributes, after=())
        self.version = self.rubric.prompt.hash

    async def ask(self, text: str, context: str) -> Scores | Unscored:
        messages = self.rubric.prompt.render(
            request=fenced(context) or "(not known)", reply=fenced(text), form=self.rubric.form()
        )
        ratings = await rate(self.model.generate, self.rubric, messages, self.rubric.params(self.model.features))
        return dict(ratings.values) if isinstance(ratings, Ratings) else ratings
