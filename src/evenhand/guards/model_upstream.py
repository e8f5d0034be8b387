"""Any other model of Evenhand (local/, hf/, call/, fake/) as an upstream: words in, words out."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from evenhand.core.errors import ModelError
from evenhand.core.types import Generation, Message, Params
from evenhand.guards.conversation import conversation_in
from evenhand.guards.upstream import BadRequest, Upstream, UpstreamError, as_chunk
from evenhand.models.base import Model

_WORDS = ("tools", "functions", "audio", "modalities")
_FINISH = {"stop": "stop", "length": "length", "filter": "content_filter", "other": "stop"}


class ModelUpstream(Upstream):
    """A model that takes messages of text; requests for tools are refused, other fields that it lacks are ignored."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.spec = model.spec
        self.name = model.spec

    @property
    def model(self) -> Model:
        return self._model

    async def chat(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self._check(body)
        messages = conversation_in(body)
        generation = await self._generated(messages, self._params(body))
        choices = [
            {
                "index": index,
                "message": {"role": "assistant", "content": each.text, "refusal": each.refusal},
                "finish_reason": _FINISH[each.finish],
                "logprobs": None,
            }
            for index, each in enumerate(generation.completions)
        ]
        return _envelope("chat.completion", self.spec, choices, generation)

    async def completions(self, body: Mapping[str, Any]) -> dict[str, Any]:
        prompt = body.get("prompt")
        if not isinstance(prompt, str):
            raise BadRequest("This model takes one prompt of text.", "prompt")
        generation = await self._generated((Message("user", prompt),), self._params(body))
        choices = [
            {"index": index, "text": each.text, "finish_reason": _FINISH[each.finish], "logprobs": None}
            for index, each in enumerate(generation.completions)
        ]
        return _envelope("text_completion", self.spec, choices, generation)

    async def chat_stream(self, body: Mapping[str, Any], *, held: bool = False) -> AsyncGenerator[dict[str, Any]]:
        """One chunk: these models give their answer as a whole."""
        del held
        yield as_chunk(await self.chat({key: value for key, value in body.items() if key != "n"}))

    async def _generated(self, messages: tuple[Message, ...], params: Params) -> Generation:
        try:
            return await self._model.generate(messages, params)
        except UpstreamError:
            raise
        except ModelError as error:
            fault = UpstreamError(502, str(error))
            fault.request_at_fault = error.request_at_fault
            raise fault from error

    def _check(self, body: Mapping[str, Any]) -> None:
        for name in _WORDS:
            if body.get(name) and body[name] != ["text"]:
                raise BadRequest(f"This model takes and gives text alone; leave out {name}.", name)
        for message in body["messages"]:
            content = message.get("content")
            parts: list[Any] = cast(list[Any], content) if isinstance(content, list) else []
            if (
                not all(map(_is_text, parts))
                or message.get("role") in ("tool", "function")
                or message.get("tool_calls")
            ):
                raise BadRequest("This model takes text alone, no pictures and no tools.", "messages")

    def _params(self, body: Mapping[str, Any]) -> Params:
        """The fields of a request that every model knows."""
        params = Params(
            temperature=_number(body, "temperature"),
            top_p=_number(body, "top_p"),
            max_tokens=_count(body, "max_completion_tokens") or _count(body, "max_tokens"),
            max_tokens_exact=True,
            seed=_whole(body, "seed"),
            stop=_texts(body, "stop"),
            n=_count(body, "n") or 1,
        )
        form: Any = body.get("response_format")
        if isinstance(form, Mapping) and "schema" in self._model.features:
            named: Any = cast(Mapping[str, Any], form).get("json_schema")
            schema: Any = cast(Mapping[str, Any], named).get("schema") if isinstance(named, Mapping) else None
            params = replace(params, schema=schema or {"type": "object"})
        return params


def _is_text(part: Any) -> bool:
    match part:
        case {"type": "text"}:
            return True
        case _:
            return False


def _number(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise BadRequest(f"The field {name} is a number.", name)
    if value is not None and value < 0:
        raise BadRequest(f"The field {name} is not below 0.", name)
    return value


def _whole(body: Mapping[str, Any], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise BadRequest(f"The field {name} is a whole number.", name)
    return value


def _count(body: Mapping[str, Any], name: str) -> int | None:
    value = _whole(body, name)
    if value is not None and value < 1:
        raise BadRequest(f"The field {name} is at least 1.", name)
    return value


def _texts(body: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = body.get(name)
    texts: Any = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in cast(list[Any], texts)):
        raise BadRequest(f"The field {name} is a text or a list of texts.", name)
    return tuple(cast(list[str], texts))


def _envelope(kind: str, model: str, choices: list[dict[str, Any]], generation: Generation) -> dict[str, Any]:
    used = generation.usage
    counts = {"prompt_tokens": used.prompt_tokens, "completion_tokens": used.completion_tokens}
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "choices": choices,
        "usage": {**counts, "total_tokens": used.tokens},
    }
