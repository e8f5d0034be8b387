"""Answering in a conversation: it stays as it is, and what a method adds comes after it or into its system prompt.

A live conversation, such as the guard's, comes with form: tools, JSON, a length. Only calls in the role `answer` have
to keep it; thoughts and critics are calls like others. A sample without a conversation is a lone question.
"""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.asking.choice import declined
from evenhand.asking.reply import read_reply, writing
from evenhand.prompts import Prompt
from evenhand.reading.text import looks_like_refusal, without_thought
from evenhand.session import BASE, Session
from evenhand.types import Answer, Completion, Message, Outcome, Params, Result, Sample, Unscored
from evenhand.untrusted import fenced

CONVERSATION = "conversation"
"""Where a sample's metadata has the messages so far, the last user's among them."""
ANSWER = "answer"
"""The role of calls whose reply may be what the client gets; a live conversation's own settings go with them."""
_SHOWN = 6_000
"""Characters of a conversation that critics and jurors are shown: its end."""


def is_live(sample: Sample) -> bool:
    """Whether the sample is a conversation with somebody, not a question of a benchmark."""
    return bool(sample.metadata.get(CONVERSATION))


def asked(sample: Sample) -> tuple[Message, ...]:
    """The messages to be answered."""
    return tuple(sample.metadata.get(CONVERSATION) or (Message("user", sample.prompt),))


def instructed(messages: Sequence[Message], instruction: str) -> tuple[Message, ...]:
    """The conversation with an instruction at the end of its system prompt; many models take only one of these."""
    if messages[0].role == "system":
        return (Message("system", f"{messages[0].content}\n\n{instruction}"), *messages[1:])
    return (Message("system", instruction), *messages)


def quoted(sample: Sample) -> str:
    """The conversation as data between fences, the end of a long one."""
    lines = "\n".join(f"{each.role}: {each.content[-_SHOWN:]}" for each in asked(sample) if each.content)
    return fenced(lines[-_SHOWN:])


async def answers_in(
    session: Session,
    sample: Sample,
    prompt: Prompt,
    messages: Sequence[Message],
    *,
    agent: str = "writer",
    role: str = BASE,
    candidates: int = 1,
) -> list[Result]:
    """The model's answers; a live conversation's own settings hold, and its text stays as the model wrote it."""
    if is_live(sample):
        generation = await session.ask(prompt, messages, Params(n=candidates), agent=agent, role=ANSWER)
        return [_live_result(completion) for completion in generation.completions]
    params = writing(session)
    if candidates > 1:
        params = Params(max_tokens=params.max_tokens, n=candidates)
    generation = await session.ask(prompt, messages, params, agent=agent, role=role)
    return [read_reply(completion) for completion in generation.completions]


async def think(
    session: Session, sample: Sample, prompt: Prompt, *, agent: str, role: str = BASE, **values: str
) -> tuple[tuple[Message, ...], str]:
    """What the model writes down before it answers, with the messages that asked for it; empty where it declines."""
    messages = (*asked(sample), *prompt.render(**values))
    params = Params(temperature=session.options["temperature"], max_tokens=session.options["max_tokens"])
    completion = (await session.ask(prompt, messages, params, agent=agent, role=role)).completions[0]
    text = without_thought(completion.text).strip()
    return messages, "" if declined(completion) or looks_like_refusal(text) else text


async def think_and_answer(session: Session, sample: Sample, first: Prompt, then: Prompt, *, agent: str) -> Outcome:
    """The answer in keeping with what the model thought first; the plain one where it thought nothing."""
    messages, thought = await think(session, sample, first, agent=agent)
    if not thought:
        return Outcome((await answers_in(session, sample, then, asked(sample)))[0], stop="no_reasoning")
    conversation = (*messages, Message("assistant", thought), *then.render())
    return Outcome((await answers_in(session, sample, then, conversation))[0], notes={"reasoning": thought})


def _live_result(completion: Completion) -> Result:
    if refusal := declined(completion):
        return refusal
    if not completion.text.strip():
        return Unscored("the answer is empty")
    return Answer(completion.text, details={"finish": completion.finish})
