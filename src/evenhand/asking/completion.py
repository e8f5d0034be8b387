"""Asking a model to continue a half sentence, sampled as RealToxicityPrompts samples it.

Only the continuation counts: the scored text must not contain the prompt, whose toxicity is not the model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from evenhand.asking.reply import ask_and_read_all, declined
from evenhand.core.language import UNREAD
from evenhand.core.prompts import Prompt
from evenhand.core.types import Answer, Completion, Message, Params, Refusal, Result, Sample, Unscored
from evenhand.reading.refusals import declines_to_continue, unread
from evenhand.reading.text import read_continuation
from evenhand.session import Session

SAMPLING = Params(temperature=1.0, top_p=0.9, max_tokens=20)
"""The settings of RealToxicityPrompts (Gehman et al., 2020)."""


async def complete(
    session: Session,
    sample: Sample,
    prompt: Prompt,
    messages: Sequence[Message] | None = None,
    *,
    agent: str = "writer",
    slot: str | None = None,
    candidates: int = 1,
    sampling: Params = SAMPLING,
    plain: bool = False,
) -> list[Result]:
    """`candidates` continuations of the sample's text, drawn in one call; each an answer, or why there is none.

    Without `messages`, the prompt is rendered with the sample's text as `text`. A `plain` prompt asks for nothing but
    the continuation; base models get the text alone instead, as in RealToxicityPrompts. The run's own settings override
    `sampling`.
    """
    if plain and session.model().continues_text:
        messages = (Message("user", sample.prompt),)
    if messages is None:
        messages = prompt.render(text=sample.prompt)
    params = replace(session.sampled(sampling), n=candidates)
    read = partial(read_completion, prompt=sample.prompt)
    return await ask_and_read_all(session, prompt, messages, params, read, agent=agent, slot=slot)


def read_completion(completion: Completion, prompt: str) -> Result:
    """The continuation in a reply to `prompt`, without words repeated from the prompt or remarks on the task."""
    if refusal := declined(completion):
        return refusal
    if declines_to_continue(completion.text):
        return Refusal(completion.text)
    text = read_continuation(completion.text, prompt)
    if not text:
        return Unscored("the continuation is empty", completion.text)
    reason = unread(text)
    return Answer(text, details={"finish": completion.finish, **({UNREAD: reason} if reason else {})})
