"""`/v1/messages`, Anthropic's format: requests become chat completions requests, so that one guard answers both.

Content blocks become messages, and fields with another name are translated. What has no counterpart there is refused
by name, but for settings that leave the words of the answer alone (metadata, cache_control, thinking). Text is streamed
as it is released; tool calls and refusals are checked at the end of an answer, so each is sent in one piece then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web

from evenhand.core.types import token_count
from evenhand.guards.fields import allowed_message, as_mapping, text_of
from evenhand.guards.types import Guarded, Segment
from evenhand.server.chat_api.chat import answer_as_chat
from evenhand.server.chat_api.streaming import named_event
from evenhand.server.chat_api.wire import Json, Stamp, as_list, as_object, record, usage_of
from evenhand.server.routes import Routes
from evenhand.web.errors import RequestError, json_response

PATH = "/v1/messages"
_SAME = ("model", "max_tokens", "temperature", "top_p", "top_k", "stream", "evenhand")
_TRANSLATED = ("messages", "system", "stop_sequences", "tools", "tool_choice", "output_config")
_IGNORED = ("metadata", "thinking", "service_tier")
_STOP = {"length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use", "content_filter": "refusal"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def as_chat(body: Json) -> Json:
    """Return the chat completions request with the same conversation; raises RequestError with the field's name."""
    for name in body.keys() - {*_SAME, *_TRANSLATED, *_IGNORED}:
        raise RequestError(400, f"{name} is not supported here.", param=name)
    if not isinstance(body.get("max_tokens"), int):
        raise RequestError(400, "max_tokens must be a whole number.", param="max_tokens")
    chat = {name: body[name] for name in _SAME if body.get(name) is not None}
    system = _blocks(body.get("system"), "system") if body.get("system") else []
    messages = [{"role": "system", "content": _parts(system, "system")}] if system else []
    for index, each in enumerate(as_list(body.get("messages")) or ()):
        messages += _messages(as_object(each) or {}, f"messages[{index}]")
    chat["messages"] = messages
    if stop := body.get("stop_sequences"):
        chat["stop"] = stop
    if tools := as_list(body.get("tools")):
        chat["tools"] = [_tool(as_object(each) or {}, f"tools[{index}]") for index, each in enumerate(tools)]
        if choice := as_mapping(body.get("tool_choice")):
            named = {"type": "function", "function": {"name": choice.get("name")}}
            chat["tool_choice"] = named if choice.get("type") == "tool" else _CHOICES.get(str(choice.get("type")))
    output = as_mapping(body.get("output_config"))
    if (form := as_mapping(output.get("format"))).get("type") == "json_schema":
        chat["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "reply", "strict": True, "schema": form.get("schema")},
        }
    if output.get("effort"):
        chat["reasoning_effort"] = output["effort"]
    return chat


def _messages(message: Json, place: str) -> Iterator[Json]:
    """Yield a message, behind the results of tools that it holds."""
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise RequestError(400, f"{place} must have the role user or assistant.", param=place)
    said: list[Json] = []
    calls: list[Json] = []
    for block in _blocks(message.get("content"), place):
        match block:
            case {"type": "tool_result", "tool_use_id": str(name)}:
                content = _parts(_blocks(block.get("content") or "", place), place)
                yield {"role": "tool", "tool_call_id": name, "content": content}
            case {"type": "tool_use", "id": str(name), "name": str(called), "input": given}:
                function = {"name": called, "arguments": orjson.dumps(given).decode()}
                calls.append({"id": name, "type": "function", "function": function})
            case {"type": "thinking" | "redacted_thinking"}:
                pass  # of an earlier answer; no other model can read them
            case _:
                said.append(block)
    if said or calls:
        content = _parts(said, place) if said else None
        yield {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}


def _blocks(content: Any, place: str) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    blocks = [as_object(each) for each in as_list(content) or ()]
    if not blocks or None in blocks:
        raise RequestError(400, f"{place} must be a text or a list of content blocks.", param=place)
    return [each for each in blocks if each is not None]


def _parts(blocks: Sequence[Json], place: str) -> str | list[Json]:
    """Return the content of a chat message: one text, or parts if there are images or several texts."""
    parts: list[Json] = []
    for block in blocks:
        match block:
            case {"type": "text", "text": str(text)}:
                parts.append({"type": "text", "text": text})
            case {"type": "image", "source": {"type": "url", "url": str(url)}}:
                parts.append({"type": "image_url", "image_url": {"url": url}})
            case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
                parts.append({"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}})
            case _:
                kind = str(block.get("type"))[:40]
                raise RequestError(400, f"{place} has a block of the type {kind!r}, which is not supported here.")
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _tool(tool: Json, place: str) -> Json:
    if tool.get("type") not in (None, "custom") or not isinstance(tool.get("name"), str):
        raise RequestError(
            400, f"{place} is not a tool of your own. Tools that run at Anthropic are not supported here."
        )
    function = {"name": tool["name"], "parameters": tool.get("input_schema")}
    given = {"description": tool["description"]} if tool.get("description") else {}
    return {"type": "function", "function": {**function, **given}}


def _head(stamp: Stamp) -> Json:
    return {"id": f"msg_{stamp.id}", "type": "message", "role": "assistant", "model": stamp.route}


def _usage(answers: Sequence[Guarded]) -> Json:
    used = usage_of(answers)
    names = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}
    return {name: token_count(used.get(theirs)) for name, theirs in names.items()}


def _content(stamp: Stamp, answer: Guarded, streamed: str | None = None) -> tuple[list[Json], str]:
    """Return the blocks of an answer and why it stopped; `streamed` is the text that was already sent."""
    text = text_of(answer.message.get("content")) if streamed is None else streamed
    said = allowed_message(answer.message, text)
    refusal = said.get("refusal")
    words = text or refusal or ""
    blocks: list[Json] = []
    for index, call in enumerate(said.get("tool_calls", ())):
        called = as_mapping(call.get("function"))
        name = call.get("id") or f"toolu_{stamp.id}_{index}"
        blocks.append({"type": "tool_use", "id": name, "name": called.get("name"), "input": _input(called)})
    if words or not blocks:
        blocks.insert(0, {"type": "text", "text": words})
    return blocks, "refusal" if refusal and not text else _STOP.get(answer.finish, "end_turn")


def _input(called: Mapping[str, Any]) -> Any:
    try:
        return as_mapping(orjson.loads(called.get("arguments") or "{}"))
    except ValueError:
        return {}


def finished_message(stamp: Stamp, _body: Json, answers: Sequence[Guarded]) -> Json:
    blocks, stopped = _content(stamp, answers[0])
    ends: Json = {"stop_reason": stopped, "stop_sequence": None, "usage": _usage(answers)}
    return {**_head(stamp), "content": blocks, **ends, "evenhand": record(answers)}


class MessageEvents:
    """The stream of one message; a `StreamFormat`."""

    def __init__(self, stamp: Stamp, body: Json) -> None:
        del body
        self._stamp = stamp
        self._started = False
        self._text = ""
        self._stopped = "end_turn"

    def segment(self, index: int, segment: Segment) -> Iterator[bytes]:
        del index
        if not self._started:
            self._started = True
            empty: Json = {"content": [], "stop_reason": None, "stop_sequence": None}
            usage = {"input_tokens": 0, "output_tokens": 0}
            yield named_event("message_start", message={**_head(self._stamp), **empty, "usage": usage})
        if segment.text:
            if not self._text:
                yield named_event("content_block_start", index=0, content_block={"type": "text", "text": ""})
            self._text += segment.text
            yield named_event("content_block_delta", index=0, delta={"type": "text_delta", "text": segment.text})
        if segment.final is not None:
            blocks, self._stopped = _content(self._stamp, segment.final, self._text)
            for place, block in enumerate(blocks):
                if place or not self._text:
                    yield from _whole(place, block)
                yield named_event("content_block_stop", index=place)

    def end(self, answers: Sequence[Guarded]) -> Iterator[bytes]:
        delta = {"stop_reason": self._stopped, "stop_sequence": None}
        yield named_event("message_delta", delta=delta, usage=_usage(answers), evenhand=record(answers))
        yield named_event("message_stop")

    def failure(self, fault: RequestError) -> Iterator[bytes]:
        yield named_event("error", error=fault.body["error"])


def _whole(place: int, block: Json) -> Iterator[bytes]:
    """Yield the start of a block that was not streamed, and all of its content."""
    if block["type"] == "text":
        yield named_event("content_block_start", index=place, content_block={"type": "text", "text": ""})
        yield named_event("content_block_delta", index=place, delta={"type": "text_delta", "text": block["text"]})
        return
    yield named_event("content_block_start", index=place, content_block={**block, "input": {}})
    given = {"type": "input_json_delta", "partial_json": orjson.dumps(block["input"]).decode()}
    yield named_event("content_block_delta", index=place, delta=given)


def error_response(fault: RequestError) -> web.Response:
    return json_response({"type": "error", **fault.body}, fault.status, fault.headers)


async def answer_messages(request: web.Request, routes: Routes) -> web.StreamResponse:
    return await answer_as_chat(request, routes, as_chat, MessageEvents, finished_message)
