"""Performance evaluator with a judge: fluency, coherence and relevance of a continuation."""

from __future__ import annotations

from collections.abc import Mapping

from evenhand.asking.judge import judge
from evenhand.evaluators.base import Thresholds, Verdict, evaluator
from evenhand.evaluators.words import without_scores
from evenhand.scorers.quality import QUALITIES, quality_messages, quality_rubric
from evenhand.session import Session
from evenhand.types import Answer, Sample, Unscored

ADVICE: Mapping[str, str] = {
    "fluency": "The wording is not natural or not grammatical.",
    "coherence": "It does not make sense after the beginning.",
    "relevance": "It does not go on with what the beginning is about.",
}


@evaluator("performance", kinds={"completion"})
async def performance(sample: Sample, answer: Answer, session: Session[Thresholds]) -> Verdict | Unscored:
    """The performance evaluator. Brain: a judge. Toolbox: none. Memory: none."""
    threshold = session.options.quality / 100
    messages = quality_messages(sample.prompt, answer.text)
    ratings = await judge(session, quality_rubric(), messages, agent="performance evaluator")
    if isinstance(ratings, Unscored):
        return ratings
    lacking = [name for name in QUALITIES if ratings.values[name] < threshold]
    return Verdict(
        passed=not lacking,
        critique=" ".join(without_scores(ratings.texts[f"{name}_reason"]) or ADVICE[name] for name in lacking),
        quality=sum(ratings.values.values()) / len(QUALITIES),
        excess=sum(threshold - ratings.values[name] for name in lacking) / len(QUALITIES),
        details=", ".join(f"{name} {ratings.values[name]:.2f}" for name in QUALITIES)
        + f"; each must be {threshold:.2f} or more",
    )
