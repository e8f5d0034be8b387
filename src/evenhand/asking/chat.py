"""Answering a conversation: it stays as it is, and what a method adds comes after it or into its system prompt.

A session with a model for the role `answer` serves a live request, as the guard's sessions do. Answers are then asked
of that model, without settings, since the request brings its own (tools, JSON, length), and the text stays as the
model wrote it. Everything else that a method asks is an ordinary call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evenhand.asking.reply import ask_and_read, ask_and_read_all, declined
from evenhand.core.language import UNREAD
from evenhand.core.prompts import Prompt
from evenhand.core.types import Answer, Completion, Message, Params, Refusal, Result, Unscored
from evenhand.core.untrusted import fenced
from evenhand.reading.refusals import looks_like_refusal, unread
from evenhand.session import BASE, Session

ANSWER = "answer"
"""The role of calls whose reply may be what the client of a live request gets."""
WRITING = Params(temperature=0.0, max_tokens=256)
"""Greedy, so that runs repeat; a few paragraphs. The run's own settings override it."""
_QUOTED = 6_000
"""Characters of a conversation that critics and jurors are shown: its end."""


async def reply(
    session: Session, prompt: Prompt, messages: Sequence[Message], *, agent: str = "writer", role: str = BASE
) -> Result:
    """The model's answer to a conversation, or why there is none."""
    return (await replies(session, prompt, messages, 1, agent=agent, role=role))[0]


async def replies(
    session: Session,
    prompt: Prompt,
    messages: Sequence[Message],
    candidates: int,
    *,
    agent: str = "writer",
    role: str = BASE,
) -> list[Result]:
    """Several answers to a conversation, drawn in one call; `role` is the model that answers in a benchmark."""
    if _is_live(session):
        return await ask_and_read_all(
            session, prompt, messages, Params(n=candidates), _as_written, agent=agent, role=ANSWER
        )
    params = session.sampled(WRITING) if candidates == 1 else Params(max_tokens=WRITING.max_tokens, n=candidates)
    return await ask_and_read_all(session, prompt, _joined(messages), params, read_reply, agent=agent, role=role)


async def think(
    session: Session,
    prompt: Prompt,
    messages: Sequence[Message],
    params: Params,
    *,
    agent: str,
    role: str = BASE,
    slot: str | None = None,
) -> str:
    """What the model writes on the way to an answer; empty where it declines."""
    # The guard joins turns itself, since the client's own messages may hold more than words.
    turns = messages if _is_live(session) else _joined(messages)
    found = await ask_and_read(session, prompt, turns, params, _read_thinking, agent=agent, role=role, slot=slot)
    return found if isinstance(found, str) else ""


def instructed(messages: Sequence[Message], instruction: str) -> tuple[Message, ...]:
    """The conversation with an instruction at the end of its system prompt, since many models take only one."""
    if messages[0].role == "system":
        return (Message("system", f"{messages[0].content}\n\n{instruction}"), *messages[1:])
    return (Message("system", instruction), *messages)


def quoted(messages: Sequence[Message]) -> str:
    """The conversation as fenced data; only the end of a long one."""
    lines = "\n".join(f"{each.role}: {each.content[-_QUOTED:]}" for each in messages if each.content)
    return fenced(lines[-_QUOTED:])


def read_reply(completion: Completion) -> Result:
    """The answer; a refusal is one whether the endpoint marks it or its words say so.

    In a language without patterns it stays open whether the words decline; the answer says so.
    """
    if refusal := declined(completion):
        return refusal
    if looks_like_refusal(completion.text):
        return Refusal(completion.text)
    text = completion.text.strip()
    if not text:
        return Unscored("the answer is empty")
    reason = unread(text)
    return Answer(text, details={"finish": completion.finish, **({UNREAD: reason} if reason else {})})


def _is_live(session: Session) -> bool:
    return ANSWER in session.models


def _read_thinking(completion: Completion) -> str | Unscored:
    text = completion.text.strip()
    if declined(completion) or looks_like_refusal(text):
        return ""
    return text or Unscored("nothing was written")


def _joined(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages with consecutive user turns joined, since many chat templates refuse two in a row."""
    joined: list[Message] = []
    for each in messages:
        if joined and joined[-1].role == each.role == "user":
            joined[-1] = Message("user", f"{joined[-1].content}\n\n{each.content}")
        else:
            joined.append(each)
    return tuple(joined)


def _as_written(completion: Completion) -> Result:
    if refusal := declined(completion):
        return refusal
    if not completion.text.strip():
        return Unscored("the answer is empty")
    return Answer(completion.text, details={"finish": completion.finish})
