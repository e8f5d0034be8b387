"""Comparing the likelihoods of given texts: no question is asked, and nothing is generated."""

from __future__ import annotations

from evenhand.core.prompts import Prompt
from evenhand.core.types import Answer, Params, Result, Sample, Unscored
from evenhand.models.given import log_likelihood
from evenhand.session import BASE, Session

NO_PROMPT = Prompt("none", "", (), frozenset())
"""Recorded where a text is scored as it is."""


def compares(session: Session, sample: Sample) -> bool:
    """Whether the sample's texts are compared by their likelihood: the model can score them, and no reading is set."""
    able = "likelihood" in session.model(BASE).features
    return bool(sample.texts) and able and session.answering.reading == "auto"


async def likeliest(session: Session, sample: Sample, *, agent: str = "likelihood") -> Result:
    """The choice whose text is the likeliest; the details hold log-likelihoods and token counts of all of them.

    If all texts begin with the sample's context, it is a condition, and its tokens do not count.
    """
    params = Params(temperature=0.0, given=sample.texts)
    generation = await session.ask(NO_PROMPT, (), params, agent=agent)
    led = bool(sample.context) and all(text.startswith(sample.context) for text in sample.texts)
    after = len(sample.context) if led else 0
    found = [log_likelihood(each.logprobs or (), after) for each in generation.completions]
    if len(found) != len(sample.choices) or not all(count for _, count in found):
        return Unscored("the model gave no likelihood for one of the texts")
    best = max(range(len(found)), key=lambda place: found[place][0])
    details = {
        "reading": "likelihood",
        "log_likelihoods": [value for value, _ in found],
        "tokens": [count for _, count in found],
    }
    return Answer(sample.choices[best], best, details)
