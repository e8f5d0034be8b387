"""StarDTox's options, and the evaluators that they select."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from evenhand.core.errors import PlanError
from evenhand.core.options import Names
from evenhand.core.types import SampleKind
from evenhand.evaluators.base import Evaluator, Thresholds
from evenhand.evaluators.goal import find_evaluator


class StarDToxOptions(Thresholds):
    """Options of `stardtox`, including the thresholds of its evaluators."""

    presets: ClassVar = {
        "paper": {
            "iterations": 2,
            "performance": True,
            "bias": "rule",
            "scorer": "builtin",
            "toxicity": 0.1,
            "injection": 0.5,
            "claims": 0.5,
            "calibration": "none",
            "quality": 80,
            "evidence": "rating",
            "support": 80,
            "settled": 50,
            "bands": False,
            "candidates": 1,
            "memory": True,
            "scores": True,
            "keep": "last",
            "evaluators": (),
            "own_evaluators": True,
        }
    }

    iterations: int = Field(default=2, ge=0, description="Maximum number of revisions; 0 only judges.")
    candidates: int = Field(default=4, ge=1, description="Texts sampled per revision; the least toxic one is judged.")
    memory: bool = Field(default=False, description="Whether a revision of a text is shown the texts before it.")
    scores: bool = Field(default=False, description="Whether critiques contain the scores and thresholds.")
    keep: Literal["best", "last"] = Field(default="best", description="Return the best or the last answer.")
    bias: Literal["rule", "llm"] = Field(
        default="rule", description="Measure harm with a scorer (rule) or with a judge (llm)."
    )
    evidence: Literal["proof", "rating"] = Field(
        default="proof",
        description="Questions: the probability that the passage proves the answer (proof), or a rating (rating).",
    )
    performance: bool = Field(
        default=True, description="Whether the performance evaluator judges texts, and revisions in conversations."
    )
    evaluators: Names | None = Field(
        default=(),
        description="More evaluators by name, or goal:SENTENCE, e.g. goal:must not give advice; use a+b for several.",
    )
    own_evaluators: bool = Field(
        default=True, description="Whether the method's own evaluators judge too; false leaves those in evaluators."
    )


def evaluators_for(kind: SampleKind, options: StarDToxOptions) -> list[Evaluator]:
    """Returns the evaluators for this kind of sample; rejects added evaluators that do not support it."""
    on_choices = "support" if options.evidence == "rating" else "proof"
    names = [on_choices] if kind == "choice" else ["bias" if options.bias == "llm" else "toxicity"]
    if options.performance and kind == "completion":
        names.append("performance")
    if not options.own_evaluators:
        if not options.evaluators:
            raise PlanError("own_evaluators=false leaves no evaluator; name some with evaluators=NAME.")
        names = []
    chosen = [find_evaluator(name) for name in dict.fromkeys((*names, *(options.evaluators or ())))]
    for each in chosen:
        if kind not in each.kinds:
            raise PlanError(f"The evaluator {each.name} does not support {kind!r} samples. Remove it from the options.")
    return chosen


def add_evaluators(options: StarDToxOptions, names: Sequence[str]) -> StarDToxOptions:
    """Returns the options with more evaluators; `bias` without `toxicity` replaces the toxicity evaluator."""
    changed: dict[str, Any] = {"evaluators": tuple(dict.fromkeys((*(options.evaluators or ()), *names)))}
    if "bias" in names and "toxicity" not in names and "bias" not in options.model_fields_set:
        changed["bias"] = "llm"
    return options.model_copy(update=changed)
