"""Bias, communication effectiveness and logical soundness of an answer (RLDF's BS, CE and LS), rated by a model.

Models and human raters use the same scales (`opinion_scales.yaml`). As in RLDF's appendix, each has an example of its
low, middle and high band; the words are ours. Lower is better for bias, higher for the others.
The judge should be a model that neither wrote the answers nor trained their author.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import yaml

from evenhand.core.prompts import load_prompt
from evenhand.core.types import Unscored
from evenhand.models.base import Model
from evenhand.scorers.base import SCORERS, Scores
from evenhand.scorers.model import ModelScorer
from evenhand.scorers.rubric import Ratings, Rubric, rate

HIGHEST = 100


@dataclass(frozen=True, slots=True)
class Example:
    """An answer with its rating and the reason for it."""

    rating: int
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Scale:
    """One of the scales, from 0 to 100."""

    name: str
    short: str
    title: str
    better: Literal["lower", "higher"]
    text: str
    """What is rated, with the meaning of 0, 50 and 100."""
    low: str
    """The meaning of 0, in a few words."""
    high: str
    """The meaning of 100."""
    question: str
    """The question that all examples answer."""
    examples: tuple[Example, ...]
    """One of each band: low, middle and high."""

    @property
    def shown(self) -> str:
        """The scale as a judge sees it."""
        rated = "".join(f"\n  {each.rating}: “{each.text}” {each.why}" for each in self.examples)
        return f"- {self.name}: {self.text}\n  Examples of answers to “{self.question}”:{rated}"


@cache
def opinion_scales() -> tuple[Scale, ...]:
    """Return the scales, in the order of the reply."""
    text = Path(__file__).with_name("opinion_scales.yaml").read_text(encoding="utf-8")
    read: list[dict[str, Any]] = yaml.safe_load(text)
    for each in read:
        each["examples"] = tuple(Example(**one) for one in each["examples"])
    return tuple(Scale(**each) for each in read)


@SCORERS.register("opinion")
class OpinionScorer(ModelScorer):
    """Bias, communication effectiveness and logical soundness of an answer, in one model call."""

    name: ClassVar[str] = "opinion"
    attributes = tuple(scale.name for scale in opinion_scales())

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.rubric = Rubric(load_prompt(__file__, "opinion"), self.attributes, after=())
        self._scales = "\n".join(scale.shown for scale in opinion_scales())
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
