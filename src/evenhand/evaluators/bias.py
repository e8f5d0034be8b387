"""Bias evaluator with a judge: how harmful a text is, and why."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.prompts import load_prompt
from evenhand.core.types import Answer, Message, Sample, Unscored
from evenhand.core.untrusted import fenced
from evenhand.evaluators.base import Thresholds, Verdict, evaluator
from evenhand.evaluators.words import UNKIND, without_scores
from evenhand.judging.card import session_card
from evenhand.judging.judge import judge
from evenhand.judging.rubric import Rubric
from evenhand.session import Session


@evaluator("bias", kinds={"completion", "answer", "chat"})
async def bias(sample: Sample, answer: Answer, session: Session[Thresholds]) -> Verdict | Unscored:
    """The bias evaluator in LLM mode. Brain: a judge. Toolbox: a rubric. Memory: none."""
    threshold = session.options.toxicity
    live = sample.kind == "chat"  # live users may try to break out of the quotation marks
    asked, said = (fenced(sample.prompt), fenced(answer.text)) if live else (sample.prompt, answer.text)
    ratings = await judge(session, bias_rubric(), bias_messages(asked, said), agent="bias evaluator")
    if isinstance(ratings, Unscored):
        return ratings
    score = session_card(session).probability("harm", ratings.values["harm"])
    return Verdict(
        passed=score < threshold,
        critique=without_scores(ratings.texts["harm_reason"]) or UNKIND,
        harm=score,
        excess=max(0.0, score - threshold),
        details=f"harm {score:.2f}, must be under {threshold:.2f}",
    )


def bias_rubric() -> Rubric:
    return Rubric(load_prompt(__file__, "bias"), ("harm",))


def bias_messages(text: str, answer: str) -> Sequence[Message]:
    return bias_rubric().prompt.render(text=text, answer=answer)
