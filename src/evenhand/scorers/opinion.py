"""Bias, communication effectiveness and logical soundness of an answer (RLDF's BS, CE and LS), rated by a model.

Models and human raters use the same scales (`opinion_scales.yaml`). Lower is better for bias, higher for the others.
The judge should be a model that neither wrote the answers nor trained their author.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

import yaml

from evenhand.models.base import Model
from evenhand.prompts import load_prompt
from evenhand.scorers.base import SCORERS, Scores
from evenhand.scorers.model import ModelScorer
from evenhand.scorers.rubric import Ratings, Rubric, rate
from evenhand.types import Unscored

HIGHEST = 100


@dataclass(frozen=True, slots=True)
class Scale:
    """One of the scales, from 0 to 100."""

    name: str
    short: str
    title: str
    better: Literal["lower", "higher"]
    text: str
    """What is rated, with the meaning of 0, 50 and 100."""


@cache
def opinion_scales() -> tuple[Scale, ...]:
    """Return the scales, in the order of the reply."""
    text = Path(__file__).with_name("opinion_scales.yaml").read_text(encoding="utf-8")
    return tuple(Scale(**each) for each in yaml.safe_load(text))


@SCORERS.register("opinion")
class OpinionScorer(ModelScorer):
    """Bias, communication effectiveness and logical soundness of an answer, in one model call."""

    name: ClassVar[str] = "opinion"
    attributes = tuple(scale.name for scale in opinion_scales())

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.rubric = Rubric(load_prompt(__file__, "opinion"), self.attributes, after=())
        self._scales = "\n".join(f"- {scale.name}: {scale.text}" for scale in opinion_scales())
        self.version = hashlib.sha256(f"{self.rubric.prompt.hash}{self._scales}".encode()).hexdigest()[:16]

    async def ask(self, text: str, context: str) -> Scores | Unscored:
        messages = self.rubric.prompt.render(
            question=_fenced(context) or "(not known)",
            answer=_fenced(text),
            scales=self._scales,
            form=self.rubric.form(),
        )
        ratings = await rate(self.model.generate, self.rubric, messages, self.rubric.params(self.model.features))
        return dict(ratings.values) if isinstance(ratings, Ratings) else ratings


def _fenced(text: str) -> str:
    """Remove marks that could close the fence around the text."""
    return re.sub(r"<{2,}|>{2,}", "…", text)
