"""The base class of scorers that call a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from evenhand.core.aio import all_of
from evenhand.core.errors import EndpointError, ModelError
from evenhand.core.options import Options, Text
from evenhand.core.types import Unscored
from evenhand.models.base import Model
from evenhand.scorers.base import Scorer, Scores


class ModelScorerOptions(Options):
    """The options of a scorer that calls a model."""

    model: Text = Field(description="The model to call: PROVIDER/NAME.")


class ModelScorer(Scorer):
    """Calls its model for each text; a failed call leaves the text unscored, a permanent error is raised."""

    Options = ModelScorerOptions
    asks_model: ClassVar[bool] = True

    def __init__(self, model: Model) -> None:
        self.model = model
        self.argument = model.spec

    @abstractmethod
    async def ask(self, text: str, context: str) -> Scores | Unscored:
        """Score one non-empty text; `context` is the prompt that it answers or continues, if known."""

    async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
        return await all_of(map(self._one, texts, contexts or [""] * len(texts)))

    def fingerprint(self) -> Mapping[str, Any]:
        return {**super().fingerprint(), "model": dict(self.model.fingerprint())}

    async def aclose(self) -> None:
        await self.model.aclose()

    async def _one(self, text: str, context: str) -> Scores | Unscored:
        if not text.strip():
            return Unscored("empty text", text)
        try:
            return await self.ask(text, context)
        except ModelError as error:
            if isinstance(error, EndpointError) and error.permanent:
                raise
            return Unscored(str(error))
