"""Asking for an answer in the model's own words, to a question that has no right one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evenhand.asking.choice import declined
from evenhand.prompts import Prompt
from evenhand.reading.text import looks_like_refusal, without_thought
from evenhand.session import BASE, Session
from evenhand.types import Answer, Completion, Message, Outcome, Params, Refusal, Result, Sample, Unscored

WRITING = Params(temperature=0.0, max_tokens=256)
"""Greedy, so that runs repeat; a few paragraphs. The run's own settings go over it."""


async def reply(
    session: Session, prompt: Prompt, messages: Sequence[Message], *, agent: str = "writer", role: str = BASE
) -> Result:
    """The model's answer, or why there is none."""
    completion = (await session.ask(prompt, messages, writing(session), agent=agent, role=role)).completions[0]
    return read_reply(completion)


def read_reply(completion: Completion) -> Result:
    """The words of an answer; a refusal is one whether the endpoint marks it or its words say so."""
    if refusal := declined(completion):
        return refusal
    if looks_like_refusal(completion.text):
        return Refusal(completion.text)
    text = without_thought(completion.text).strip()
    return Answer(text, details={"finish": completion.finish}) if text else Unscored("the answer is empty")


def writing(session: Session) -> Params:
    """How answers are written, the run's own settings first."""
    run = session.params
    return replace(
        WRITING,
        temperature=WRITING.temperature if run.temperature is None else run.temperature,
        max_tokens=run.max_tokens or WRITING.max_tokens,
    )


async def think_and_reply(session: Session, sample: Sample, first: Prompt, then: Prompt, *, agent: str) -> Outcome:
    """The answer that follows from what the model thought first, with the options' `temperature` and `max_tokens`."""
    question = first.render(question=sample.prompt)
    params = Params(temperature=session.options["temperature"], max_tokens=session.options["max_tokens"])
    completion = (await session.ask(first, question, params, agent=agent)).completions[0]
    if refusal := declined(completion):
        return Outcome(refusal, stop="refused")
    if not completion.text.strip():
        return Outcome(Unscored("the reasoning is empty"), stop="no_reasoning")
    conversation = (*question, Message("assistant", completion.text), *then.render())
    return Outcome(await reply(session, then, conversation), notes={"reasoning": completion.text})
