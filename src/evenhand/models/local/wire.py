"""llama.cpp's dialect of the chat completions format: builds requests and converts replies to the standard form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evenhand.core.types import Message, Params

_SEEDS = 2**32 - 1
"""Number of seeds: llama.cpp takes 32 bits, and the last value means 'random'."""


def request_body(messages: Sequence[Message], params: Params, start: int, n: int) -> dict[str, Any]:
    """Build the request for completions `start` … `start + n - 1`."""
    body: dict[str, Any] = {
        "messages": [{"role": message.role, "content": message.content} for message in messages],
        # Only a streamed request can be stopped, but streaming loses the logprobs of tokens that llama.cpp held back.
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


def join_chunks(chunks: Sequence[Any]) -> dict[str, Any]:
    """Join a streamed reply into a complete one; each completion reports its own token count."""
    choices: dict[int, dict[str, Any]] = {}
    prompt = completion = 0
    for chunk in chunks:
        for delta in chunk["choices"]:
            choice = choices.setdefault(delta["index"], {"message": {"content": ""}})
            choice["message"]["content"] += delta["delta"].get("content") or ""
            choice["finish_reason"] = delta["finish_reason"]
        if usage := chunk.get("usage"):
            prompt, completion = usage["prompt_tokens"], completion + usage["completion_tokens"]
    return {
        "choices": [choices[index] for index in sorted(choices)],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion},
    }


def restore_tokens(reply: Any) -> Any:
    """Restore each token's own text: llama.cpp moves text between tokens while it looks for stop strings."""
    for choice in reply["choices"]:
        for token in choice["logprobs"]["content"]:
            names = {each["id"]: each["token"] for each in token["top_logprobs"]}
            token["token"] = names.get(token["id"], token["token"])
    if len(reply["choices"]) > 1:  # the reply counts the first completion only
        counted = sum(len(choice["logprobs"]["content"]) for choice in reply["choices"])
        reply["usage"]["completion_tokens"] = counted
    return reply
