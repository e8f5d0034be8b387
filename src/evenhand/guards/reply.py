"""A streamed reply: its text so far and the other fields of its chunks."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import orjson

from evenhand.asking.chat import ANSWER
from evenhand.core.prompts import Prompt
from evenhand.core.tracing import ModelCall
from evenhand.core.types import Completion, Generation, Message, Params, Turn, Usage
from evenhand.guards.fields import allowed_calls, as_mapping, as_sequence, first_choice, text_of
from evenhand.guards.request import Request, usage_in
from evenhand.guards.upstream import UpstreamError
from evenhand.models.fake import estimate_tokens
from evenhand.models.reasoning import ThoughtStream


class StreamedReply:
    """One streamed call of the upstream."""

    def __init__(self, request: Request, messages: Sequence[Message], *, first: bool, checked: bool) -> None:
        self.refusal = ""
        self.finish = "stop"
        self.head: dict[str, Any] = {}
        """The fields of the chunks apart from choices and usage."""
        self.seconds = 0.0
        self._request = request
        self._messages = tuple(messages)
        self._first = first
        self._thoughts = ThoughtStream() if checked else None
        """Thoughts inside the text are left out of checked answers."""
        self._texts: list[str] = []
        self._calls: dict[Any, dict[str, Any]] = {}
        self._usage: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        return allowed_calls(list(self._calls.values()))

    @property
    def message(self) -> dict[str, Any]:
        """What the reply says beside its text."""
        return {"refusal": self.refusal, "tool_calls": self.tool_calls}

    async def texts(self) -> AsyncGenerator[str]:
        """The pieces of text as they come."""
        began = time.perf_counter()
        body = self._request.answer_body(self._messages, first=self._first)
        self._traced = ModelCall(self._request.upstream.spec, ANSWER, stream=True)
        try:
            raw = self._request.upstream.chat_stream(body, held=self._thoughts is not None)
            async with aclosing(self._traced.stream(raw)) as chunks:
                async for chunk in chunks:
                    try:
                        text = self._taken(chunk)
                    except (TypeError, ValueError, LookupError, AttributeError) as error:
                        raise UpstreamError(502, f"The upstream sent a chunk that is malformed ({error}).") from error
                    if text and self._thoughts is not None:
                        text = self._thoughts.feed(text)
                    if text:
                        self._texts.append(text)
                        yield text
            if self._thoughts is not None and (text := self._thoughts.rest()):
                self._texts.append(text)
                yield text
        finally:
            self.seconds = time.perf_counter() - began

    def turn(self, prompt: Prompt, spec: str) -> Turn:
        """Return the recorded call; the tokens of an aborted stream are estimated."""
        if self._usage is not None:
            usage = usage_in({"usage": self._usage})
        else:
            asked = sum(estimate_tokens(each.content) for each in self._messages)
            usage = Usage(calls=1, prompt_tokens=asked, completion_tokens=estimate_tokens(self.text))
        completion = Completion(self.text, refusal=self.refusal or None)
        generation = Generation((completion,), spec, usage, self.seconds)
        agent = "writer" if self._first else "reviser"
        return Turn(agent, ANSWER, prompt.id, prompt.hash, self._messages, Params(), generation)

    def _taken(self, chunk: Mapping[str, Any]) -> str:
        """Return the text of a chunk and keep its other fields."""
        for name, value in chunk.items():
            if name == "usage":
                if usage := as_mapping(value):
                    self._usage = usage
                    self._traced.used(usage_in(chunk), self.finish)
            elif name != "choices":
                self.head[name] = value
        choice = first_choice(chunk)
        if finish := choice.get("finish_reason"):
            self.finish = str(finish)
        delta = as_mapping(choice.get("delta"))
        if refusal := delta.get("refusal"):
            self.refusal += text_of(refusal)
        if calls := delta.get("tool_calls"):
            for part in as_sequence(calls):
                self._add_call(as_mapping(part))
        return text_of(delta.get("content"))

    def _add_call(self, part: Mapping[str, Any]) -> None:
        """Merge a tool call delta: names and ids come once, arguments in pieces."""
        index = str(part.get("index", len(self._calls)))
        call = self._calls.setdefault(index, {"function": {"name": "", "arguments": ""}})
        call |= {"id": part["id"]} if part.get("id") else {}
        function = as_mapping(part.get("function"))
        call["function"]["name"] = function.get("name") or call["function"]["name"]
        written = function.get("arguments") or ""
        call["function"]["arguments"] += written if isinstance(written, str) else orjson.dumps(written).decode()
