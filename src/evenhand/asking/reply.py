"""Asking and reading in one step: a reply that was cut before it could be read is asked for once more.

A JSON object is asked for by constrained decoding where the model has it; an invalid one is asked for once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from evenhand.core.files import in_words
from evenhand.core.prompts import Prompt
from evenhand.core.types import Completion, Cut, Generation, Message, Params, Refusal, Unscored
from evenhand.models.base import read_replies
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


def declined(completion: Completion) -> Refusal | None:
    """The refusal that the endpoint itself reports, by a field of its own or by its content filter."""
    if completion.refusal is not None:
        return Refusal(completion.refusal)
    if completion.finish == "filter":
        return Refusal(completion.text or "stopped by the endpoint's content filter")
    return None


Shape = TypeVar("Shape", bound=BaseModel)

_LONGEST = 40_000


async def ask_json(
    session: Session,
    prompt: Prompt,
    messages: Sequence[Message],
    shape: type[Shape],
    schema: Mapping[str, Any],
    params: Params,
    *,
    agent: str,
    role: str = BASE,
    slot: str | None = None,
) -> Shape | Unscored:
    """The object that the model replies with, or Unscored; the prompt must describe its fields."""
    if "schema" in session.model(role).features:
        params = replace(params, schema=schema)

    def read(completion: Completion) -> Shape | Refusal | Unscored:
        return declined(completion) or read_json(completion.text, shape)

    reply: Shape | Refusal | Unscored = Unscored("nothing was asked")
    for attempt in range(2):
        at = f"{slot}/{attempt}" if slot else None
        reply = await ask_and_read(session, prompt, messages, params, read, agent=agent, role=role, slot=at)
        if isinstance(reply, Refusal):
            return Unscored(f"the {agent} declined", reply.text)
        if not isinstance(reply, Unscored) or isinstance(reply, Cut):
            return reply
        again = Message("user", "That cannot be read. Reply with the JSON object that was asked for and nothing else.")
        messages = (*messages, Message("assistant", reply.raw[:2000] or "(nothing)"), again)
    return reply


def read_json(text: str, shape: type[Shape]) -> Shape | Unscored:
    """The JSON object in the text, ignoring what surrounds it."""
    answer = text[:_LONGEST]
    start, end = answer.find("{"), answer.rfind("}")
    if start < 0 or end < start:
        return Unscored("the reply holds no JSON object", text)
    try:
        return shape.model_validate(orjson.loads(answer[start : end + 1]))
    except orjson.JSONDecodeError as error:
        return Unscored(f"the reply is not valid JSON ({error})", text)
    except ValidationError as error:
        return Unscored(f"the reply is wrong: {in_words(error.errors()[0])}", text)


def object_schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object with exactly these fields, all required, as constrained decoding needs it."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
