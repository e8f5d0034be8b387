"""Asking and reading in one step: a reply that was cut before it could be read is asked for once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from evenhand.core.prompts import Prompt
from evenhand.core.types import Completion, Generation, Message, Params, Unscored
from evenhand.models.room import read_replies
from evenhand.session import BASE, Session

T = TypeVar("T")

SAMPLING = 0.7
"""The temperature at which several replies are drawn."""


async def ask_and_read(
    session: Session,
    prompt: Prompt,
    messages: Sequence[Message],
    params: Params,
    read: Callable[[Completion], T | Unscored],
    *,
    agent: str,
    role: str = BASE,
    slot: str | None = None,
) -> T | Unscored:
    """What `read` finds in the reply; `Cut` if it also reached the raised limit."""
    return (await ask_and_read_all(session, prompt, messages, params, read, agent=agent, role=role, slot=slot))[0]


async def ask_and_read_all(
    session: Session,
    prompt: Prompt,
    messages: Sequence[Message],
    params: Params,
    read: Callable[[Completion], T | Unscored],
    *,
    agent: str,
    role: str = BASE,
    slot: str | None = None,
) -> list[T | Unscored]:
    """The same for each of the `params.n` replies."""

    async def ask(params: Params) -> Generation:
        return await session.ask(prompt, messages, params, agent=agent, role=role, slot=slot)

    return await read_replies(ask, session.limited(params, role), read)
