"""Two turns: words first, then the choice in the same conversation, read exactly as all other choices are read."""

from __future__ import annotations

from evenhand.asking.choice import choose, declined, listed
from evenhand.prompts import Prompt
from evenhand.reading.text import looks_like_refusal
from evenhand.session import Session
from evenhand.types import Message, Outcome, Params, Refusal, Sample, Unscored


async def deliberate(
    session: Session, sample: Sample, first: Prompt, then: Prompt, *, agent: str, made: str, wordy: bool = True
) -> Outcome:
    """The choice that follows from what the model wrote first, which `made` names in the notes.

    The options `temperature` and `max_tokens` are those of the first turn, which shows the options in the order of the
    question that follows. With `wordy`, what sounds like a refusal in the first turn is one.
    """
    question = first.render(context=sample.context, question=sample.prompt, options=listed(session, sample))
    params = Params(temperature=session.options["temperature"], max_tokens=session.options["max_tokens"])
    completion = (await session.ask(first, question, params, agent=agent)).completions[0]
    refusal = declined(completion)
    if refusal is None and wordy and looks_like_refusal(completion.text):
        refusal = Refusal(completion.text)
    if refusal is not None:
        return Outcome(refusal, stop="refused")
    if not completion.text.strip():
        return Outcome(Unscored(f"the {made} is empty"), stop=f"no_{made}")
    conversation = (*question, Message("assistant", completion.text))
    result = await choose(session, sample, then, lambda options: (*conversation, *then.render(options=options)))
    return Outcome(result, notes={made: completion.text})
