"""Reads replies, and asks for them once more with more room if they were cut before they could be read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from evenhand.core.types import Completion, Cut, Generation, Params, Unscored

T = TypeVar("T")

MORE = 4
"""How many times as many tokens the second request allows."""


async def read_replies(
    ask: Callable[[Params], Awaitable[Generation]], params: Params, read: Callable[[Completion], T | Unscored]
) -> list[T | Unscored]:
    """What `read` finds in each reply, or `Cut`. If all were cut, they are asked for again, once.

    A limit of the user's own is not raised. Replies without any text are not repeated: the model layer has done that.
    """
    completions = (await ask(params)).completions
    found = [_read(each, read, params) for each in completions]
    cut = all(isinstance(each, Cut) for each in found) and any(each.text.strip() for each in completions)
    if not cut or params.max_tokens is None or params.max_tokens_exact:
        return found
    params = replace(params, max_tokens=MORE * params.max_tokens)
    return [_read(each, read, params) for each in (await ask(params)).completions]


def _read(completion: Completion, read: Callable[[Completion], T | Unscored], params: Params) -> T | Unscored:
    found = read(completion)
    # A reply of one token is meant to end there: it is read by its alternatives.
    if not isinstance(found, Unscored) or completion.finish != "length" or params.max_tokens == 1:
        return found
    if completion.thought and not completion.text.strip():
        return Cut("cut while the model was thinking")
    limit = "the token limit" if params.max_tokens is None else f"{params.max_tokens:,} tokens"
    return Cut(f"cut at {limit}", completion.text)
