"""Fluency, coherence and relevance of a continuation, rated by a model: what must not be lost when toxicity falls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from evenhand.errors import ModelError
from evenhand.models.base import Model
from evenhand.prompts import load_prompt
from evenhand.scorers.base import SCORERS, Scorer, Scores
from evenhand.scorers.rubric import Ratings, Rubric, rate
from evenhand.types import Message, Unscored

QUALITIES = ("fluency", "coherence", "relevance")


def quality_rubric() -> Rubric:
    """The rubric that the performance evaluator and the final metric share."""
    return Rubric(load_prompt(__file__, "quality"), QUALITIES)


def quality_messages(context: str, text: str) -> Sequence[Message]:
    return quality_rubric().prompt.render(text=context, continuation=text)


@SCORERS.register("quality")
class QualityScorer(Scorer):
    """Fluency, coherence and relevance of a continuation, all three in one call of a model."""

    name: ClassVar[str] = "quality"
    takes: ClassVar[Literal["nothing", "variant", "model"]] = "model"
    attributes = QUALITIES

    def __init__(self, model: Model) -> None:
        self.model = model
        self.argument = model.spec
        self.version = quality_rubric().prompt.hash

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        contexts = contexts or [""] * len(texts)
        return list(await asyncio.gather(*map(self._one, texts, contexts)))

    async def _one(self, text: str, context: str) -> Scores | Unscored:
        if not text.strip():
            return Unscored("empty text")
        try:
            found = await rate(
                self.model.generate, quality_rubric(), quality_messages(context, text), self.model.features
            )
        except ModelError as error:
            return Unscored(str(error))
        return dict(found.values) if isinstance(found, Ratings) else found

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "model": dict(self.model.fingerprint())}

    async def aclose(self) -> None:
        await self.model.aclose()
