"""`/v1/responses`: requests become chat completions requests, so that one guard answers both. Nothing is stored.

Items of the input become messages, and fields with another name or form are translated. Fields that both formats
share, and unknown ones, are passed on. Whatever needs stored state or tools that run at OpenAI is refused by name.

A streamed response is a row of numbered events in OpenAI's order. Text is sent as it is released. Function calls and
refusals are checked at the end of an answer, so each is sent in one piece then. A stream that fails ends in `error` and
`response.failed`: clients know one or the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from aiohttp import web

from evenhand.core.types import token_count
from evenhand.guards.fields import allowed_message, as_mapping, text_of
from evenhand.guards.types import Guarded, Segment
from evenhand.server.chat_api.chat import answer_as_chat
from evenhand.server.chat_api.streaming import named_event
from evenhand.server.chat_api.wire import (
    Json,
    Stamp,
    as_list,
    as_object,
    record,
    usage_of,
)
from evenhand.server.routes import Routes
from evenhand.web.errors import RequestError

_STORED = "Responses are not stored. Send the earlier items in input"
_NO_LOGPROBS = "Use /v1/chat/completions for logprobs"
_CHAT_ONLY = "This field belongs to /v1/chat/completions"
_REFUSED: Mapping[str, str] = {
    "previous_response_id": _STORED,
    "conversation": _STORED,
    "prompt": "Stored prompts are not available. Send instructions and input",
    "background": "Ask for the answer, or stream it",
    "context_management": "Send the items that the model needs",
    "moderation": "Use /v1/moderations",
    "top_logprobs": _NO_LOGPROBS,
    **dict.fromkeys(("messages", "n", "functions", "function_call", "response_format", "logprobs"), _CHAT_ONLY),
}
_TRANSLATED = frozenset({"input", "instructions", "tools", "tool_choice", "text", "max_output_tokens", "reasoning"})
_IGNORED = frozenset({"metadata", "store", "stream_options", "include", "truncation", "max_tool_calls"})
"""Fields that change nothing in the answer, or only what the response says of itself."""
_ROLES = ("user", "assistant", "system", "developer")
_TEXTS = ("input_text", "output_text", "text", "summary_text")
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


def as_chat(body: Json) -> Json:
    """Return the chat completions request with the same conversation; raises RequestError with the field's name."""
    _refuse(body)
    left_out = {*_REFUSED, *_TRANSLATED, *_IGNORED}
    chat = {name: value for name, value in body.items() if name not in left_out and value is not None}
    chat["messages"] = _messages(body)
    if tools := _list(body, "tools"):
        chat["tools"] = [_tool(each, f"tools[{index}]") for index, each in enumerate(tools)]
        if (choice := body.get("tool_choice")) is not None:
            chat["tool_choice"] = _tool_choice(choice)
    else:
        chat.pop("parallel_tool_calls", None)
    if (limit := body.get("max_output_tokens")) is not None:
        chat["max_completion_tokens"] = limit
    if (effort := _object(body, "reasoning").get("effort")) is not None:
        chat["reasoning_effort"] = effort
    text = _object(body, "text")
    if (verbosity := text.get("verbosity")) is not None:
        chat["verbosity"] = verbosity
    if (form := _object(text, "format", "text.format")) and form.get("type") != "text":
        chat["response_format"] = _response_format(form)
    return chat


def _refuse(body: Json) -> None:
    for name, why in _REFUSED.items():
        if body.get(name) not in (None, False, 0):
            raise _error(f"{name} is not supported here. {why}.", name)
    if body.get("truncation") not in (None, "disabled"):
        raise _error("truncation must be disabled: the input is passed on as a whole.", "truncation")
    if "message.output_text.logprobs" in _list(body, "include"):
        raise _error(f"message.output_text.logprobs is not supported here. {_NO_LOGPROBS}.", "include")
    if not isinstance(body.get("instructions"), str | None):
        raise _error("instructions must be a text.", "instructions")


def _messages(body: Json) -> list[Json]:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else as_list(given)
    if not items:
        raise _error("input must be a text or a list with at least one item.", "input")
    messages: list[Json] = []
    for index, each in enumerate(items):
        place = f"input[{index}]"
        if (item := as_object(each)) is None:
            raise _error(f"{place} must be an object.", place)
        kind = item.get("type") or "message"
        if not isinstance(kind, str) or (add := _ITEMS.get(kind)) is None:
            raise _error(f"{place} has the type {_shown(kind)}, which is not supported here.{_why(kind)}", place)
        add(messages, item, place)
    if not messages:
        raise _error("input has no message.", "input")
    if instructions := body.get("instructions"):
        role = "developer" if any(each["role"] == "developer" for each in messages) else "system"
        messages.insert(0, {"role": role, "content": instructions})
    return messages


def _add_message(messages: list[Json], item: Json, place: str) -> None:
    role = item.get("role")
    if role not in _ROLES:
        raise _error(f"{place} needs a role: {', '.join(_ROLES)}.", place)
    content, refusals = _content(item.get("content"), f"{place}.content")
    message: Json = {"role": role, "content": content}
    if role == "assistant" and refusals:
        message["refusal"] = "\n".join(refusals)
    messages.append(message)


def _add_call(messages: list[Json], item: Json, place: str) -> None:
    """Add a call to the assistant's last message; chat completions has one message per turn."""
    called = {name: _text(item, name, place) for name in ("name", "arguments")}
    call = {"id": _text(item, "call_id", place), "type": "function", "function": called}
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1].setdefault("tool_calls", []).append(call)


def _add_output(messages: list[Json], item: Json, place: str) -> None:
    content, _ = _content(item.get("output"), f"{place}.output")
    messages.append({"role": "tool", "tool_call_id": _text(item, "call_id", place), "content": content})


def _add_nothing(_messages: list[Json], _item: Json, _place: str) -> None:
    """Thoughts of earlier answers have no place in a chat completions request."""


_ITEMS: Mapping[str, Callable[[list[Json], Json, str], None]] = {
    "message": _add_message,
    "function_call": _add_call,
    "function_call_output": _add_output,
    "reasoning": _add_nothing,
}


def _content(content: Any, place: str) -> tuple[Any, list[str]]:
    """Return a message's content, as text where it is text alone, and the refusals in it."""
    if isinstance(content, str):
        return content, []
    if (given := as_list(content)) is None:
        raise _error(f"{place} must be a text or a list of parts.", place)
    parts: list[Json] = []
    refusals: list[str] = []
    for index, each in enumerate(given):
        where = f"{place}[{index}]"
        if (part := as_object(each)) is None:
            raise _error(f"{where} must be an object.", where)
        if part.get("type") == "refusal":
            refusals.append(_text(part, "refusal", where))
        else:
            parts.append(_part(part, where))
    if not parts:
        return (None if refusals else ""), refusals
    return (parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts), refusals


def _part(part: Json, place: str) -> Json:
    match part:
        case {"type": str(kind)} if kind in _TEXTS:
            return {"type": "text", "text": _text(part, "text", place)}
        case {"type": "input_image", "image_url": str(url)}:
            detail = {"detail": part["detail"]} if part.get("detail") else {}
            return {"type": "image_url", "image_url": {"url": url, **detail}}
        case {"type": "input_file", "file_data": str(data)}:
            named = {"filename": part["filename"]} if part.get("filename") else {}
            return {"type": "file", "file": {"file_data": data, **named}}
        case {"type": "input_audio", "input_audio": {**audio}}:
            return {"type": "input_audio", "input_audio": audio}
        case {"type": "input_image" | "input_file"}:
            raise _error(f"{place} must hold the picture or file itself; uploaded files are not available.", place)
        case _:
            raise _error(f"{place} has the type {_shown(part.get('type'))}, which is not supported here.", place)


def _tool(value: Any, place: str) -> Json:
    tool = as_object(value) or {}
    if (kind := tool.get("type")) != "function":
        raise _error(f"{place} has the type {_shown(kind)}. Only function tools are supported here.", place)
    fields = ("description", "parameters", "strict")
    given = {name: tool[name] for name in fields if tool.get(name) is not None}
    return {"type": "function", "function": {"name": _text(tool, "name", place), **given}}


def _tool_choice(choice: Any) -> Any:
    match choice:
        case "none" | "auto" | "required":
            return choice
        case {"type": "function", "name": str(name)}:
            return {"type": "function", "function": {"name": name}}
        case _:
            raise _error("tool_choice must be none, auto, required or a function.", "tool_choice")


def _response_format(form: Json) -> Json:
    match form:
        case {"type": "json_object"}:
            return {"type": "json_object"}
        case {"type": "json_schema", "schema": {**schema}}:
            fields = ("name", "description", "strict")
            given = {name: form[name] for name in fields if form.get(name) is not None}
            return {"type": "json_schema", "json_schema": {**given, "schema": schema}}
        case _:
            raise _error("text.format must be text, json_object or json_schema with a schema.", "text.format")


def _list(body: Json, name: str) -> list[Any]:
    if body.get(name) is None:
        return []
    if (value := as_list(body[name])) is None:
        raise _error(f"{name} must be a list.", name)
    return value


def _object(fields: Json, name: str, place: str = "") -> Json:
    if fields.get(name) is None:
        return {}
    if (value := as_object(fields[name])) is None:
        raise _error(f"{place or name} must be an object.", place or name)
    return value


def _text(fields: Json, name: str, place: str) -> str:
    if not isinstance(value := fields.get(name), str):
        raise _error(f"{place}.{name} must be a text.", f"{place}.{name}")
    return value


def _why(kind: Any) -> str:
    if kind != "item_reference":
        return ""
    return " Responses are not stored. With store: false, clients send the items themselves."


def _shown(kind: Any) -> str:
    return repr(kind)[:60]


def _error(message: str, param: str) -> RequestError:
    return RequestError(400, message, param=param)


def finished_response(stamp: Stamp, body: Json, answers: Sequence[Guarded], output: list[Json] | None = None) -> Json:
    """Return the response for a whole answer; its items may be given as they were streamed."""
    answer = answers[0]
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


_EMPTY: dict[str, Json] = {"output_text": text_part(""), "refusal": {"type": "refusal", "refusal": ""}}


class ResponseEvents:
    """The stream of one response; a `StreamFormat`."""

    def __init__(self, stamp: Stamp, body: Json) -> None:
        self._stamp = stamp
        self._body = body
        self._sent = 0
        self._text = ""
        self._output: list[Json] = []

    def segment(self, index: int, segment: Segment) -> Iterator[bytes]:
        del index
        if not self._sent:
            for kind in ("response.created", "response.in_progress"):
                yield self._event(kind, response=unfinished_response(self._stamp, self._body, "in_progress"))
        if segment.text:
            if not self._text:
                yield self._added(0, message_item(self._stamp, [], "in_progress"))
                yield self._part_event("response.content_part.added", 0, part=_EMPTY["output_text"])
            self._text += segment.text
            yield self._part_event("response.output_text.delta", 0, delta=segment.text, logprobs=[])
        if segment.final is not None:
            self._output = output_items(self._stamp, segment.final, self._text)
            for place, item in enumerate(self._output):
                yield from self._message(item) if item["type"] == "message" else self._call(place, item)

    def end(self, answers: Sequence[Guarded]) -> Iterator[bytes]:
        response = finished_response(self._stamp, self._body, answers, self._output)
        yield self._event(f"response.{response['status']}", response=response)

    def failure(self, fault: RequestError) -> Iterator[bytes]:
        error: Json = fault.body["error"]
        told = {name: error[name] for name in ("code", "message", "param")}
        yield self._event("error", **told, error=error)
        code = "rate_limit_exceeded" if fault.status == 429 else "server_error"
        parts = [message_item(self._stamp, [text_part(self._text)], "incomplete")] if self._text else []
        response = unfinished_response(self._stamp, self._body, "failed")
        response |= {"error": {"code": code, "message": error["message"]}, "output": self._output or parts}
        yield self._event("response.failed", response=response)

    def _message(self, item: Json) -> Iterator[bytes]:
        """Yield the rest of the message: its text is sent, a refusal is not."""
        if not self._text:
            yield self._added(0, {**item, "status": "in_progress", "content": []})
        for index, part in enumerate(item["content"]):
            is_text = part["type"] == "output_text"
            if not (is_text and self._text):
                yield self._part_event("response.content_part.added", index, part=_EMPTY[part["type"]])
            if is_text:
                yield self._part_event("response.output_text.done", index, text=part["text"], logprobs=[])
            else:
                yield self._part_event("response.refusal.delta", index, delta=part["refusal"])
                yield self._part_event("response.refusal.done", index, refusal=part["refusal"])
            yield self._part_event("response.content_part.done", index, part=part)
        yield self._event("response.output_item.done", output_index=0, item=item)

    def _call(self, place: int, item: Json) -> Iterator[bytes]:
        yield self._added(place, {**item, "status": "in_progress", "arguments": ""})
        where: Json = {"item_id": item["id"], "output_index": place}
        yield self._event("response.function_call_arguments.delta", **where, delta=item["arguments"])
        done: Json = {"name": item["name"], "arguments": item["arguments"]}
        yield self._event("response.function_call_arguments.done", **where, **done)
        yield self._event("response.output_item.done", output_index=place, item=item)

    def _added(self, place: int, item: Json) -> bytes:
        return self._event("response.output_item.added", output_index=place, item=item)

    def _part_event(self, kind: str, index: int, **fields: Any) -> bytes:
        return self._event(kind, item_id=f"msg_{self._stamp.id}", output_index=0, content_index=index, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._sent += 1
        return named_event(kind, sequence_number=self._sent - 1, **fields)


async def answer_responses(request: web.Request, routes: Routes) -> web.StreamResponse:
    return await answer_as_chat(request, routes, as_chat, ResponseEvents, finished_response)
