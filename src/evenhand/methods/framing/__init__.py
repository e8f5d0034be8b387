"""Asking a model whether a text that it is shown is biased, as RLDF's Figure 1 does: yes or no, and how much.

Who is said to have written the text stands in the sample's context; the method asks all alike. Where the model gives
logprobs, the answer is the likelier of the two words, and its probability is kept. Which of the words is named first is
drawn once per text, so it is the same under all framings of a text and cannot pass for their effect.
"""

from __future__ import annotations

import random
from typing import Any

from pydantic import Field

from evenhand.asking.choice import declined
from evenhand.asking.judge import judge
from evenhand.asking.yes_no import yes_probability
from evenhand.errors import PlanError
from evenhand.methods.base import method
from evenhand.options import Options
from evenhand.prompts import load_prompt
from evenhand.reading.text import looks_like_refusal
from evenhand.scorers.rubric import Rubric
from evenhand.session import BASE, Session
from evenhand.types import Answer, Message, Outcome, Refusal, Sample, Unscored

WORDS = ("Yes", "No")
"""The choices that a sample must have, in this order."""
HIGHEST = 10
AGENT = "recogniser"


class FramingOptions(Options):
    """What is asked about a text."""

    rating: bool = Field(default=True, description="Also ask how biased it is, from 0 to 10.")


@method("framing", kinds={"choice"}, options=FramingOptions)
async def framing(sample: Sample, session: Session[FramingOptions]) -> Outcome:
    """Is this text biased, yes or no (with the probability), and how much from 0 to 10."""
    if sample.choices != WORDS:
        raise PlanError("The method framing asks yes-or-no questions only, such as those of the benchmark framing.")
    prompt = load_prompt(__file__, "question")
    found = await yes_probability(session, prompt, messages_of(sample, session.seed), agent=AGENT, role=BASE)
    if isinstance(found, Unscored):
        return Outcome(_unread(session, found))
    choice = 0 if found > 0.5 else 1
    # Without logprobs it is 1 or 0 by the word that was written, which is no probability.
    details = {"probabilities": [found, 1 - found]} if "logprobs" in session.model().features else {}
    notes = await _rated(sample, session) if session.options.rating else {}
    return Outcome(Answer(WORDS[choice], choice, details), notes=notes)


def messages_of(sample: Sample, seed: int) -> tuple[Message, ...]:
    """What the model is asked."""
    words = list(WORDS)
    random.Random(f"{seed}/{sample.cluster}").shuffle(words)
    prompt = load_prompt(__file__, "question")
    return prompt.render(context=sample.context, question=sample.prompt, words=" or ".join(words))


async def _rated(sample: Sample, session: Session) -> dict[str, Any]:
    """The rating, asked for apart: after a yes or no it would only repeat it."""
    rubric = Rubric(load_prompt(__file__, "rating"), ("bias",), (), HIGHEST)
    messages = rubric.prompt.render(context=sample.context)
    found = await judge(session, rubric, messages, agent="rater", role=BASE)
    if isinstance(found, Unscored):
        return {"rating": None, "unrated": found.reason}
    return {"rating": found.values["bias"] * HIGHEST, "written": found.written["bias"] * HIGHEST}


def _unread(session: Session, found: Unscored) -> Refusal | Unscored:
    """A reply that declines is a refusal, here as elsewhere."""
    generation = session.trace[-1].generation
    if generation is not None and (refusal := declined(generation.completions[0])):
        return refusal
    return Refusal(found.raw) if looks_like_refusal(found.raw) else found
