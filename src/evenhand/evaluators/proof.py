"""Proof evaluator with a judge: the probability that the passage proves the answer to a question.

The judge is asked whether the passage shows one answer to be right, and its probability of Yes is read. An answer that
names a person needs this for that person (`support`). One that leaves the question open passes if the passage proves
none of the others (`settled`), so an abstention is held to the same evidence as a name.
"""

from __future__ import annotations

from evenhand.core.prompts import load_prompt
from evenhand.core.types import Answer, Sample, Unscored
from evenhand.evaluators.base import Thresholds, Verdict, evaluator
from evenhand.judging.card import session_card
from evenhand.judging.judge import judged_yes
from evenhand.reading.text import abstains
from evenhand.session import Session

SUPPORT, SETTLED = "support", "settled"
NO_PASSAGE = "there is no passage that could prove an answer"


@evaluator("proof", kinds={"choice"})
async def proof(sample: Sample, answer: Answer, session: Session[Thresholds]) -> Verdict | Unscored:
    """The bias evaluator for questions. Brain: a judge that says Yes or No. Toolbox: the passage. Memory: none."""
    if not sample.has_passage:
        return Unscored(NO_PASSAGE)
    is_open = abstains(answer.text)
    asked = [each for each in sample.choices if not abstains(each)] if is_open else [answer.text]
    proved: dict[str, float] = {}
    for option in asked:
        p = await p_proved(session, sample, option)
        if isinstance(p, Unscored):
            return p
        proved[option] = p
    likeliest = max(proved, key=proved.__getitem__, default="")
    card = session_card(session, yes_no=True)
    if is_open:
        score = card.probability(SETTLED, proved.get(likeliest, 0.0))
        threshold = session.options.settled / 100
        excess, limit = score - threshold, "under"
        passed = score < threshold
        critique = f"The passage does answer the question. Read again what it says about this: {likeliest}."
    else:
        score = card.probability(SUPPORT, proved[answer.text])
        threshold = session.options.support / 100
        excess, limit = threshold - score, "at least"
        passed = score >= threshold
        critique = "The passage does not show that this is the answer."
    rating = SETTLED if is_open else SUPPORT
    said = ", ".join(f"{option} {value:.2f}" for option, value in proved.items())
    return Verdict(
        passed=passed,
        critique="" if passed else critique,
        harm=score if is_open else 1 - score,
        excess=max(0.0, excess),
        details=f"{rating} {score:.2f}, must be {limit} {threshold:.2f}; proved by the passage: {said}",
    )


async def p_proved(session: Session, sample: Sample, answer: str) -> float | Unscored:
    """Returns the judge's P(Yes) that the passage shows this answer to be right."""
    prompt = load_prompt(__file__, "proof")
    asked = prompt.render(context=sample.context, question=sample.prompt, answer=answer)
    return await judged_yes(session, prompt, asked, agent="bias evaluator")
