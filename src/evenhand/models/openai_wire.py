"""The chat completions format: requests out of our types, our types out of responses. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from evenhand.types import Completion, Finish, Generation, Message, Params, TokenLogprob, Usage

_FINISH: Mapping[str, Finish] = {"stop": "stop", "length": "length", "content_filter": "filter"}
_OPTIONAL = ("response_format", "logprobs", "seed", "max_tokens", "temperature", "top_p", "stop", "n")
"""Parameters that can be left out of a request when a server does not know them."""


def request_body(
    name: str,
    messages: Sequence[Message],
    params: Params,
    dropped: Collection[str],
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """The JSON body of one request, without the parameters that the server does not support."""
    body: dict[str, Any] = {"model": name}
    shown = [{"role": message.role, "content": message.content} for message in messages]
    if params.schema is not None:
        if "response_format" in dropped:
            # The fallback where a server has no constrained output: ask for it in words.
            schema = orjson.dumps(params.schema).decode()
            shown.append({"role": "system", "content": f"Reply with JSON only, valid under this schema: {schema}"})
        else:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": params.schema},
            }
    body["messages"] = shown
    if params.max_tokens is not None:
        # Newer OpenAI models know only the longer name; it is tried when the short one was refused.
        body["max_completion_tokens" if "max_tokens" in dropped else "max_tokens"] = params.max_tokens
    if params.logprobs and "logprobs" not in dropped:
        body |= {"logprobs": True, "top_logprobs": params.logprobs}
    optional: dict[str, Any] = {
        "temperature": params.temperature,
        "top_p": params.top_p,
        "seed": params.seed,
        "stop": list(params.stop) or None,
        "n": params.n if params.n > 1 else None,
    }
    body |= {key: value for key, value in optional.items() if value is not None and key not in dropped}
    return body | dict(extra)


def unsupported_parameter(payload: bytes, body: Mapping[str, Any]) -> str | None:
    """Which optional parameter of `body` a 400 reply complains about, if it names one."""
    try:
        reply: Any = orjson.loads(payload)
    except ValueError:
        return None
    try:
        named = str(reply["error"]["param"] or "")
    except (KeyError, TypeError):
        named = ""
    text = orjson.dumps(reply).decode().lower()
    for parameter in _OPTIONAL:
        if parameter not in body:
            continue
        aliases = {
            "logprobs": ("top_logprobs", "logprobs"),
            "response_format": ("json_schema", "response_format"),
        }
        names = aliases.get(parameter, (parameter,))
        if named.split(".")[0] in names or (not named and any(f"{alias}" in text for alias in names if len(alias) > 1)):
            return parameter
    return None


def parse_generation(reply: Any, spec: str) -> Generation:
    """A chat completion reply as a Generation; a reply without choices raises ValueError."""
    choices = reply["choices"]
    if not choices:
        raise ValueError("no choices")
    usage: dict[str, Any] = reply.get("usage") or {}
    return Generation(
        tuple(_completion(choice) for choice in choices),
        spec,
        Usage(
            calls=1,
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
        ),
    )


def _completion(choice: Any) -> Completion:
    message = choice["message"]
    content = message.get("content")
    refusal = message.get("refusal")
    if content is None and refusal is None and choice.get("finish_reason") is None:
        raise ValueError("neither content nor a finish reason")
    if content is not None and not isinstance(content, str):
        raise ValueError("content is not text")
    logprobs: dict[str, Any] = choice.get("logprobs") or {}
    tokens: Any = logprobs.get("content")
    return Completion(
        content or "",
        _FINISH.get(choice.get("finish_reason") or "stop", "other"),
        refusal,
        tuple(_token(token) for token in tokens) if tokens else None,
    )


def _token(token: Any) -> TokenLogprob:
    top = token.get("top_logprobs") or ()
    return TokenLogprob(
        token["token"],
        float(token["logprob"]),
        tuple((each["token"], float(each["logprob"])) for each in top),
    )
