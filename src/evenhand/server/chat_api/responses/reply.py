"""A guarded answer as a response object. Pure functions."""

from __future__ import annotations

from typing import Any

from evenhand.core.types import token_count
from evenhand.guards.fields import allowed_message, as_mapping, text_of
from evenhand.guards.types import Guarded
from evenhand.server.chat_api.wire import Json, Stamp, record, usage_of

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reasons of answers that are not whole, and the reason that a response gives."""
_REPEATED: Json = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "user": None,
}
"""Fields of the request that a response repeats, and their defaults."""


def finished_response(stamp: Stamp, body: Json, answer: Guarded, output: list[Json] | None = None) -> Json:
    """Return the response for a whole answer; its items may be given as they were streamed."""
    reason = _INCOMPLETE.get(answer.finish)
    return {
        **unfinished_response(stamp, body, "incomplete" if reason else "completed"),
        "incomplete_details": {"reason": reason} if reason else None,
        "output": output_items(stamp, answer) if output is None else output,
        "usage": _usage(answer),
        "evenhand": record([answer]),
    }


def unfinished_response(stamp: Stamp, body: Json, status: str) -> Json:
    return {
        "id": f"resp_{stamp.id}",
        "object": "response",
        "created_at": stamp.created,
        "model": stamp.route,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "output": [],
        "previous_response_id": None,
        "store": False,
        "truncation": "disabled",
        "usage": None,
        **{name: default if body.get(name) is None else body[name] for name, default in _REPEATED.items()},
    }


def output_items(stamp: Stamp, answer: Guarded, streamed: str | None = None) -> list[Json]:
    """Return the message, if there is one, and the function calls; `streamed` is the text that was already sent."""
    text = text_of(answer.message.get("content")) if streamed is None else streamed
    said = allowed_message(answer.message, text)
    calls = [_call_item(stamp, index, each) for index, each in enumerate(said.get("tool_calls", ()))]
    parts: list[Json] = []
    if text or not (calls or said.get("refusal")):
        parts.append(text_part(text))
    if said.get("refusal"):
        parts.append({"type": "refusal", "refusal": said["refusal"]})
    status = "incomplete" if answer.finish in _INCOMPLETE else "completed"
    return [*([message_item(stamp, parts, status)] if parts else []), *calls]


def message_item(stamp: Stamp, parts: list[Json], status: str) -> Json:
    return {"id": f"msg_{stamp.id}", "type": "message", "role": "assistant", "status": status, "content": parts}


def text_part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call_item(stamp: Stamp, index: int, call: Json) -> Json:
    called = call.get("function") or call["custom"]
    return {
        "id": f"fc_{stamp.id}_{index}",
        "type": "function_call",
        "status": "completed",
        "call_id": call.get("id") or f"call_{stamp.id}_{index}",
        "name": called["name"],
        "arguments": called.get("arguments", called.get("input", "")),
    }


def _usage(answer: Guarded) -> Json:
    used = usage_of([answer])
    asked, written = token_count(used.get("prompt_tokens")), token_count(used.get("completion_tokens"))

    def detail(where: str, name: str) -> Any:
        return token_count(as_mapping(used.get(where)).get(name))

    return {
        "input_tokens": asked,
        "input_tokens_details": {
            "cached_tokens": detail("prompt_tokens_details", "cached_tokens"),
            "cache_write_tokens": detail("prompt_tokens_details", "cache_write_tokens"),
        },
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": detail("completion_tokens_details", "reasoning_tokens")},
        "total_tokens": asked + written,
    }
