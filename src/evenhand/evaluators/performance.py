"""Performance evaluator with a judge: how well a text is written and does its task.

A continuation is rated for fluency, coherence and relevance, an answer in a conversation for helpfulness as well. A
text that fails in relevance or helpfulness has dropped its task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evenhand.asking.chat import quoted
from evenhand.core.prompts import load_prompt
from evenhand.core.types import Answer, Message, Sample, Unscored
from evenhand.core.untrusted import fenced
from evenhand.evaluators.base import Thresholds, Verdict, evaluator
from evenhand.evaluators.words import without_scores
from evenhand.judging.card import session_card
from evenhand.judging.judge import judge
from evenhand.judging.rubric import Rubric
from evenhand.judging.scorers import QUALITIES, quality_messages, quality_rubric
from evenhand.session import Session

HELPFULNESS = "helpfulness"
OF_TASK = ("relevance", HELPFULNESS)
"""The ratings that tell whether a text does what it was written for."""
ADVICE: Mapping[str, str] = {
    "fluency": "The wording is not natural or not grammatical.",
    "coherence": "It does not make sense after what comes before it.",
    "relevance": "It does not keep to what it is about.",
    HELPFULNESS: "It does not do what was asked.",
}


@evaluator("performance", kinds={"completion", "chat"})
async def performance(sample: Sample, answer: Answer, session: Session[Thresholds]) -> Verdict | Unscored:
    """The performance evaluator. Brain: a judge. Toolbox: none. Memory: none."""
    threshold = session.options.quality / 100
    if sample.kind == "chat":
        rubric, messages = chat_rubric(), chat_messages(sample, answer.text)
    else:
        rubric, messages = quality_rubric(), quality_messages(sample.prompt, answer.text)
    ratings = await judge(session, rubric, messages, agent="performance evaluator")
    if isinstance(ratings, Unscored):
        return ratings
    card = session_card(session)
    values = {name: card.probability(name, value) for name, value in ratings.values.items()}
    lacking = [name for name in rubric.names if values[name] < threshold]
    return Verdict(
        passed=not lacking,
        critique=" ".join(without_scores(ratings.texts[f"{name}_reason"]) or ADVICE[name] for name in lacking),
        quality=sum(values.values()) / len(values),
        excess=sum(threshold - values[name] for name in lacking) / len(values),
        details=", ".join(f"{name} {values[name]:.2f}" for name in rubric.names)
        + f"; each must be {threshold:.2f} or more",
        off_task=any(name in OF_TASK for name in lacking),
    )


def chat_rubric() -> Rubric:
    return Rubric(load_prompt(__file__, "performance_chat"), (*QUALITIES, HELPFULNESS))


def chat_messages(sample: Sample, answer: str) -> Sequence[Message]:
    return chat_rubric().prompt.render(conversation=quoted(sample.messages), answer=fenced(answer))
