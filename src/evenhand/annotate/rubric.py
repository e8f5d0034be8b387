"""The scales as raters see them: what is rated, the meaning of the ends, and rated examples. Judges get the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from evenhand.benchmarks.opinions import Example, Scale, opinion_scales

__all__ = ["Example", "ScaleGuide", "rubric"]


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
    return tuple(ScaleGuide(scale, scale.low, scale.high, scale.question, scale.examples) for scale in opinion_scales())
