"""The fields of an answer that reach a client: a list of what is allowed. Pure functions.

Whatever else an endpoint sends (thoughts, audio, annotations, fields of its own) is not checked, so it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import orjson

_FINISHES = ("stop", "length", "tool_calls", "content_filter", "function_call")
_TEXT_PARTS = ("text", "output_text")
_CALLED = {"function": "arguments", "custom": "input"}
"""The kinds of tool calls, and the field with what the model wrote."""
_NAME = re.compile(r"[\w.:|/+=-]{1,128}")
"""Names and ids; anything else in their place is checked like text."""
_REPLY = ("id", "object", "created", "model", "system_fingerprint", "service_tier")


def as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, (dict, Mapping)) else {}  # pyright: ignore[reportUnknownVariableType]


def as_sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()  # pyright: ignore[reportUnknownVariableType]


def first_choice(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice of a reply or a chunk; empty if there is none."""
    choices = as_sequence(chunk.get("choices"))
    return as_mapping(choices[0]) if choices else {}


def text_of(content: Any) -> str:
    """The text of an answer's content; parts that are not text are left out."""
    if isinstance(content, str):
        return content
    return "".join(
        text
        for part in map(as_mapping, as_sequence(content))
        if part.get("type", "text") in _TEXT_PARTS and isinstance(text := part.get("text"), str)
    )


def finish_of(value: Any) -> str:
    return value if value in _FINISHES else "stop"


def allowed_calls(calls: Any) -> list[dict[str, Any]]:
    """Tool calls with the fields that are known, and arguments as text."""
    return [call for each in as_sequence(calls) if (call := _allowed_call(as_mapping(each)))]


def allowed_message(message: Mapping[str, Any], text: str) -> dict[str, Any]:
    """An assistant message with its text and the other fields that are checked."""
    allowed: dict[str, Any] = {"role": "assistant", "content": text or None}
    if isinstance(message.get("refusal"), str):
        allowed["refusal"] = message["refusal"]
    if calls := allowed_calls(message.get("tool_calls")):
        allowed["tool_calls"] = calls
    if called := as_mapping(message.get("function_call")):
        allowed["function_call"] = _allowed_called(called, "arguments")
    return allowed


def left_out(message: Mapping[str, Any], allowed: Mapping[str, Any]) -> list[str]:
    """The names of the fields that an allowed message lacks."""
    parts = {str(as_mapping(part).get("type")) for part in as_sequence(message.get("content"))} - {*_TEXT_PARTS}
    return sorted({name for name, value in message.items() if value and not allowed.get(name)} | parts)


def allowed_reply(reply: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any]:
    """A whole reply with one choice; names that are no names, and anything but numbers in the usage, are left out."""
    return {**allowed_head(reply), "choices": [choice], "usage": _numbers(reply.get("usage"))}


def allowed_head(reply: Mapping[str, Any]) -> dict[str, Any]:
    return {name: reply[name] for name in _REPLY if is_name(reply.get(name))}


def allowed_logprobs(logprobs: Any, text: str) -> dict[str, Any] | None:
    """The log-probabilities of a text's tokens; None if the tokens are not those of the text.

    Alternatives (`top_logprobs`) are text that the model did not say and nobody checked, so they are left out.
    """
    tokens = [as_mapping(each) for each in as_sequence(as_mapping(logprobs).get("content"))]
    if "".join(str(each.get("token")) for each in tokens) != text:
        return None
    return {
        "content": [
            {
                "token": each["token"],
                "logprob": each["logprob"],
                "bytes": [*each["token"].encode("utf-8", "replace")],
                "top_logprobs": [],
            }
            for each in tokens
            if isinstance(each.get("logprob"), (int, float))
        ]
    }


def call_words(message: Mapping[str, Any], offered: Sequence[str] = ()) -> str:
    """What the tool calls of an allowed message say: the texts in their arguments, and names that nobody offered."""
    words: list[str] = []
    for each in (*message.get("tool_calls", ()), {"function": message.get("function_call")}):
        if not (called := as_mapping(each.get("function") or each.get("custom"))):
            continue
        words += [name for name in (called["name"], each.get("id", "")) if name and not _NAME.fullmatch(name)]
        if called["name"] not in offered:
            words.append(called["name"])
        written: str = called.get("arguments", called.get("input", ""))
        found = json_words(written)
        words += [written] if found is None else found
    return "\n".join(dict.fromkeys(filter(None, words)))


def json_words(text: str) -> list[str] | None:
    """The texts inside JSON: values, and keys that are no names; None if it is no JSON."""
    try:
        return [*_texts(orjson.loads(text))]
    except (ValueError, RecursionError):
        return None


def offered_names(body: Mapping[str, Any]) -> list[str]:
    """The names of the tools that a request offers."""
    tools = [*as_sequence(body.get("tools")), *({"function": each} for each in as_sequence(body.get("functions")))]
    called = (as_mapping(as_mapping(each).get(kind)) for each in tools for kind in _CALLED)
    return [name for each in called if isinstance(name := each.get("name"), str)]


def _allowed_call(call: Mapping[str, Any]) -> dict[str, Any]:
    for kind, written in _CALLED.items():
        if called := as_mapping(call.get(kind)):
            ids = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
            return {**ids, "type": kind, kind: _allowed_called(called, written)}
    return {}


def _allowed_called(called: Mapping[str, Any], written: str) -> dict[str, str]:
    value = called.get(written) or ""
    return {
        "name": str(called.get("name") or ""),
        written: value if isinstance(value, str) else orjson.dumps(value).decode(),
    }


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in cast(dict[str, Any], value).items():
            if not _NAME.fullmatch(key):
                yield key
            yield from _texts(each)
    elif isinstance(value, list):
        for each in cast(list[Any], value):
            yield from _texts(each)


def is_name(value: Any) -> bool:
    """Whether a value is a number, or a name or id that says nothing."""
    return isinstance(value, int) or (isinstance(value, str) and _NAME.fullmatch(value) is not None)


def _numbers(usage: Any) -> dict[str, Any]:
    return {
        name: _numbers(value) if isinstance(value, dict) else value
        for name, value in as_mapping(usage).items()
        if isinstance(value, (int, float, dict)) and _NAME.fullmatch(name)
    }
