"""The chat completions format: builds requests and parses replies, in pure functions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import orjson

from evenhand.core.types import (
    Completion,
    Finish,
    Generation,
    Message,
    Params,
    TokenLogprob,
    ToolCall,
    Usage,
    mapping,
    token_count,
)

_FINISH: Mapping[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "filter",
    # As gateways to other providers pass them on.
    "end_turn": "stop",
    "stop_sequence": "stop",
    "eos": "stop",
    "max_tokens": "length",
    "refusal": "filter",
}
_OPTIONAL = (
    "response_format",
    "logprobs",
    "seed",
    "max_tokens",
    "max_completion_tokens",
    "reasoning_effort",
    "temperature",
    "top_p",
    "stop",
    "n",
    "chat_template_kwargs",
    "tools",
    # Those of Anthropic and Gemini.
    *("output_config", "stop_sequences", "responseJsonSchema", "topP", "stopSequences", "candidateCount"),
)
"""Parameters that can be omitted if a server does not support them."""
_REQUIRED = frozenset({"messages", "model"})
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "logprobs": ("top_logprobs",),
    "response_format": ("json_schema",),
    "tools": ("tool_choice", "tool choice"),
    "output_config": ("output_format",),
    "responseJsonSchema": ("response_json_schema", "responseMimeType", "response_mime_type"),
    "topP": ("top_p",),
    "stopSequences": ("stop_sequences",),
    "candidateCount": ("candidate_count",),
}
# `stop` and `n` are ordinary words, so they count only if the text marks them as names.
_NAMED: Mapping[str, re.Pattern[str]] = {
    name: re.compile(
        rf"(?:['\"`]|param(?:eter)?s?:? +){name}\b"
        if name in ("stop", "n")
        else rf"(?<!\w)(?:{'|'.join((name, *_ALIASES.get(name, ())))})(?!\w)",
        re.IGNORECASE,
    )
    for name in _OPTIONAL
}
_NO_NUMBER = re.compile(rb"[:,\[]\s*-?(?:NaN|Infinity)\b")
_TOO_LONG = re.compile(r"context.?length|context.?size|too (?:large|long|many tokens)", re.IGNORECASE)
"""The request is too long, whatever parameters the message mentions."""
_PLACE = re.compile(r"'loc': \('body', '(\w+)'")
_ECHO = re.compile(r"'input': .*", re.DOTALL)


def request_body(
    name: str,
    messages: Sequence[Message],
    params: Params,
    dropped: Collection[str],
    extra: Mapping[str, Any],
    effort: str | None = None,
) -> dict[str, Any]:
    """Build the JSON body of one request, without the parameters that the server does not support."""
    body: dict[str, Any] = {"model": name}
    if params.schema is not None and "response_format" not in dropped:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "reply", "strict": True, "schema": params.schema},
        }
    body["messages"] = chat_messages(messages, params.schema if "response_format" in dropped else None)
    # Newer OpenAI models accept only the longer name; it is used once the short one was rejected.
    limit = "max_completion_tokens" if "max_tokens" in dropped else "max_tokens"
    if params.logprobs and "logprobs" not in dropped:
        body |= {"logprobs": True, "top_logprobs": params.logprobs}
    optional: dict[str, Any] = {
        limit: params.max_tokens,
        "reasoning_effort": effort,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "seed": params.seed,
        "stop": list(params.stop) or None,
        "n": params.n if params.n > 1 else None,
        "chat_template_kwargs": dict(params.template) if params.template else None,
        "tools": [{"type": "function", "function": dict(each)} for each in params.tools] or None,
    }
    body |= {key: value for key, value in optional.items() if value is not None and key not in dropped}
    return body | dict(extra)


def _message(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        functions = [(each.id, {"name": each.name, "arguments": each.arguments}) for each in message.calls]
        sent["tool_calls"] = [{"id": key, "type": "function", "function": function} for key, function in functions]
    return sent | ({"tool_call_id": message.call_id} if message.call_id else {})


def chat_messages(messages: Sequence[Message], schema: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return messages as they are sent; a schema that cannot constrain the reply is asked for in words."""
    chat = [_message(message) for message in messages]
    if schema is not None:
        # In the last user message: many chat templates accept no system message at the end.
        last = next((each for each in reversed(chat) if each["role"] == "user"), chat[-1])
        last["content"] += f"\n\nReply with JSON only, valid under this schema: {orjson.dumps(schema).decode()}"
    return chat


def unsupported_parameter(payload: bytes, body: Mapping[str, Any]) -> str | None:
    """Return the optional parameter of `body` that a 400 reply complains about, if it names one."""
    try:
        named, text = _complaint(orjson.loads(payload))
    except ValueError:
        return None
    sent = [parameter for parameter in _OPTIONAL if parameter in body]
    for parameter in sent:
        if named & {parameter, *_ALIASES.get(parameter, ())}:
            return parameter
    if named & _REQUIRED or _TOO_LONG.search(text):
        return None
    return next((parameter for parameter in sent if _NAMED[parameter].search(text)), None)


def _complaint(reply: Any) -> tuple[set[str], str]:
    """Return the field names in an error reply and its message, without the request that it may echo."""
    match reply:
        case {"error": {"message": str(text), **rest}} | {"message": str(text), **rest}:
            # OpenAI and llama.cpp name `param`; vLLM prints a list of places into the message.
            places = [str(rest.get("param") or ""), *_PLACE.findall(text)]
            return {part for place in places for part in re.split(r"\W+", place)} - {""}, _ECHO.sub("", text)
        case {"detail": [{"loc": [*place]}, *_]}:  # FastAPI
            return {str(part) for part in place}, ""
        case {"error": str(text)} | {"detail": str(text)}:
            return set(), text
        case _:
            return set(), ""


def is_too_long(payload: bytes) -> bool:
    """Whether an error reply says that prompt and answer exceed what the model can take."""
    return _TOO_LONG.search(payload.decode("utf-8", "replace")) is not None


def is_filtered(payload: bytes) -> bool:
    """Whether a 400 reply says that a content filter blocked the prompt (Azure): a refusal, not an error."""
    try:
        return orjson.loads(payload)["error"]["code"] == "content_filter"
    except (ValueError, KeyError, TypeError):
        return False


def parse_reply(payload: bytes) -> Any:
    """Parse a reply; some servers write NaN for a log-probability, which is no JSON."""
    try:
        return orjson.loads(payload)
    except ValueError:
        if not _NO_NUMBER.search(payload):
            raise
        return json.loads(payload)


def parse_generation(reply: Any, spec: str) -> Generation:
    """Parse a chat completion reply, thoughts apart from the text; raise ValueError if it has no choices."""
    choices = reply["choices"]
    if not choices:
        raise ValueError("no choices")
    return Generation(
        tuple(_completion(choice) for choice in choices),
        spec,
        _usage(reply.get("usage")),
        fingerprint=_fingerprint(reply) if reply.get("system_fingerprint") else "",
    )


_NOT_IN_NAMES = re.compile(r"[^\w.:/@+-]+")


def _fingerprint(reply: Any) -> str:
    """The model's name and the fingerprint that a reply states, without characters that names do not have."""
    stated = (reply.get("model"), reply["system_fingerprint"])
    return " ".join(_NOT_IN_NAMES.sub("", each)[:80] for each in stated if isinstance(each, str) and each)


def _usage(reported: Any) -> Usage:
    usage = mapping(reported)
    prompt, completion = token_count(usage.get("prompt_tokens")), token_count(usage.get("completion_tokens"))
    details = mapping(usage.get("completion_tokens_details")) or usage
    thoughts = token_count(details.get("reasoning_tokens"))
    if token_count(usage.get("total_tokens")) >= prompt + completion + thoughts:
        completion += thoughts  # some providers count thoughts beside the completion, not in it
    return Usage(calls=1, prompt_tokens=prompt, completion_tokens=completion, thought_tokens=thoughts)


def _completion(choice: Any) -> Completion:
    message = choice["message"]
    content = message.get("content")
    refusal = message.get("refusal") or None
    thought = _thought_of(message)
    if isinstance(content, list):
        blocks = cast(list[Any], content)
        thought = thought or "\n\n".join(filter(None, map(_thought_of, blocks)))
        content = "".join(each["text"] for each in blocks if each.get("type") in ("text", "output_text"))
    finish = choice.get("finish_reason")
    calls = tuple(map(_call, message.get("tool_calls") or ()))
    if content is None and refusal is None and finish is None and not calls:
        raise ValueError("neither content nor a finish reason")
    if content is not None and not isinstance(content, str):
        raise ValueError("content is not text")
    tokens: Any = mapping(choice.get("logprobs")).get("content")
    return Completion(
        content or "",
        _FINISH.get(str(finish or "stop").lower(), "other"),
        refusal,
        _logprobs(tokens) if tokens else None,
        thought,
        calls,
    )


def _call(call: Any) -> ToolCall:
    """A tool call; some servers send the arguments as an object."""
    name, arguments = call["function"]["name"], call["function"].get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
    return ToolCall(str(call.get("id") or name), str(name), text)


_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "thinking_blocks", "reasoning_details", "summary")
"""The fields in which servers send thoughts, in a message or in one block of its content."""
_FIELDS_OF_THOUGHTS = frozenset(_THOUGHTS)


def _thought_of(holder: Mapping[str, Any]) -> str:
    """The thoughts in a message or block: the first of the known fields that holds any; servers fill several alike."""
    if _FIELDS_OF_THOUGHTS.isdisjoint(holder):
        return ""
    return next(filter(None, (_words(holder.get(name)) for name in _THOUGHTS)), "")


def _words(value: Any) -> str:
    match value:
        case str():
            return value.strip()
        case [*parts]:
            return "\n\n".join(filter(None, map(_words, parts)))
        case {"text": str(text)}:
            return text.strip()
        case {**fields}:
            return _thought_of(fields)
        case _:
            return ""


def _logprobs(tokens: Any) -> tuple[TokenLogprob, ...] | None:
    """The tokens; none if any has no usable log-probability, because the rest would be taken for all."""
    found = tuple(
        TokenLogprob(
            token["token"],
            token["logprob"],
            tuple((each["token"], each["logprob"]) for each in token.get("top_logprobs") or ()),
        )
        for token in tokens
    )
    given = (value for token in found for value in (token.logprob, *(value for _, value in token.top)))
    return found if all(map(_is_logprob, given)) else None


def _is_logprob(value: Any) -> bool:
    """Whether it is a number of at most 0, but for rounding."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < 0.01
