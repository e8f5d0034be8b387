"""llama.cpp's dialect of the chat completions format: requests out of our types, and replies in the usual form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenhand.types import Message, Params

_SEEDS = 2**32 - 1
"""llama.cpp takes 32 bits and reads the last value as 'random'."""


def request_body(messages: Sequence[Message], params: Params, start: int, n: int) -> dict[str, Any]:
    """The request for completions `start` … `start + n - 1`."""
    body: dict[str, Any] = {
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        # A streamed request can be stopped; but llama.cpp then leaves out the logprobs of tokens that it held back.
        "stream": not params.logprobs,
        "stream_options": {"include_usage": True},
        "n": n,
    }
    if params.temperature is not None:
        body |= {"temperature": params.temperature, "top_p": 1.0, "samplers": ["temperature", "top_p"]}
    if params.top_p is not None:
        body["top_p"] = params.top_p
    if params.max_tokens is not None:
        body["max_tokens"] = params.max_tokens
    if params.seed is not None:
        body["seed"] = (params.seed + start) % _SEEDS
    if params.stop:
        body["stop"] = list(params.stop)
    if params.logprobs:
        body |= {"logprobs": True, "top_logprobs": params.logprobs}
    return body


def joined(chunks: Sequence[Any]) -> dict[str, Any]:
    """A streamed reply in the form of a whole one; each completion ends with a count of its own."""
    choices: dict[int, dict[str, Any]] = {}
    prompt = completion = 0
    for chunk in chunks:
        for part in chunk["choices"]:
            choice = choices.setdefault(part["index"], {"message": {"content": ""}})
            choice["message"]["content"] += part["delta"].get("content") or ""
            choice["finish_reason"] = part["finish_reason"]
        if usage := chunk.get("usage"):
            prompt, completion = usage["prompt_tokens"], completion + usage["completion_tokens"]
    return {
        "choices": [choices[index] for index in sorted(choices)],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
    }


def named(reply: Any) -> Any:
    """A reply whose tokens bear their own text: llama.cpp moves text between tokens while it looks for stop strings."""
    for choice in reply["choices"]:
        for token in choice["logprobs"]["content"]:
            names = {each["id"]: each["token"] for each in token["top_logprobs"]}
            token["token"] = names.get(token["id"], token["token"])
    if len(reply["choices"]) > 1:  # the reply counts the first completion only
        counted = sum(len(choice["logprobs"]["content"]) for choice in reply["choices"])
        reply["usage"]["completion_tokens"] = counted
    return reply
