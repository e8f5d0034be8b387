"""Scores the answers of checkpoints with a scorer that training does not optimise, so that the best one can be kept."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.benchmarks.opinions import opinion_scales
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.types import Unscored
from evenhand.judging.scorers import QUALITIES
from evenhand.scorers.base import Scorer, Scores, load_scorer
from evenhand.training.data import Prompt

_HIGHER_IS_BETTER = {*QUALITIES, *(scale.name for scale in opinion_scales() if scale.better == "higher")}


class Chooser:
    """Rates answers from 0 to 1, higher for the better ones."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._scorer: Scorer = load_scorer(spec)

    def rate(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> float:
        """Return the mean rating. An empty answer has 0; what the scorer cannot score is left out."""
        contexts = [prompt[-1].content for prompt in prompts]
        found = aio.run_lasting(self._scorer.score(answers, contexts))
        ratings = [_rating(each, answer) for each, answer in zip(found, answers, strict=True)]
        rated = [rating for rating in ratings if rating is not None]
        if not rated:
            reason = next(each.reason for each in found if isinstance(each, Unscored))
            raise UsageError(f"The scorer {self._spec} scored no answer: {reason}.")
        return sum(rated) / len(rated)

    def close(self) -> None:
        aio.run_lasting(self._scorer.aclose())


def _rating(scores: Scores | Unscored, answer: str) -> float | None:
    """Return the mean of all scores, each turned so that higher is better."""
    if not answer.strip():
        return 0.0
    if isinstance(scores, Unscored):
        return None
    turned = [value if name in _HIGHER_IS_BETTER else 1 - value for name, value in scores.items()]
    return sum(turned) / len(turned)
