"""The scales as raters see them: what is rated, the meaning of the ends, and rated examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from evenhand.scorers.opinion import Scale, opinion_scales


@dataclass(frozen=True, slots=True)
class Example:
    """An answer with its rating and the reason for it."""

    rating: int
    text: str
    why: str


@dataclass(frozen=True, slots=True)
class ScaleGuide:
    """A scale with what helps to use it."""

    scale: Scale
    low: str
    """The meaning of 0, in a few words."""
    high: str
    """The meaning of 100."""
    question: str
    """The question that all examples answer."""
    examples: Sequence[Example]


@cache
def rubric() -> tuple[ScaleGuide, ...]:
    """Return a guide to every scale, in the order of the sheets' columns."""
    guides = yaml.safe_load(Path(__file__).with_name("examples.yaml").read_text(encoding="utf-8"))
    return tuple(
        ScaleGuide(scale, each["low"], each["high"], each["question"], [Example(**one) for one in each["answers"]])
        for scale in opinion_scales()
        for each in [guides[scale.short]]
    )
