"""A streamed reply: its text so far and the other fields of its chunks."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast

from evenhand.asking.chat import ANSWER
from evenhand.guards.conversation import content_words
from evenhand.guards.request import Request, usage_in
from evenhand.guards.upstream import UpstreamError
from evenhand.models.fake import estimate_tokens
from evenhand.prompts import Prompt
from evenhand.types import Completion, Generation, Message, Params, Turn, Usage


class StreamedReply:
    """One streamed call of the upstream."""

    def __init__(self, request: Request, messages: Sequence[Message], *, first: bool) -> None:
        self.text = ""
        self.refusal = ""
        self.finish = "stop"
        self.head: dict[str, Any] = {}
        """The fields of the chunks apart from choices and usage."""
        self.seconds = 0.0
        self._request = request
        self._messages = tuple(messages)
        self._first = first
        self._calls: dict[int, dict[str, Any]] = {}
        self._usage: Mapping[str, Any] | None = None

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        return [self._calls[index] for index in sorted(self._calls)]

    async def texts(self) -> AsyncGenerator[str]:
        """The pieces of text as they come."""
        began = time.perf_counter()
        body = self._request.answer_body(self._messages, first=self._first)
        try:
            async with aclosing(self._request.upstream.chat_stream(body)) as chunks:
                async for chunk in chunks:
                    try:
                        text = self._taken(chunk)
                    except (TypeError, ValueError, LookupError, AttributeError) as error:
                        raise UpstreamError(502, f"The upstream sent a chunk that is malformed ({error}).") from error
                    if text:
                        self.text += text
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
        if isinstance(chunk.get("usage"), Mapping):
            self._usage = chunk["usage"]
        self.head |= {name: value for name, value in chunk.items() if name not in ("choices", "usage")}
        choices: Any = chunk.get("choices") or ()
        if not choices:
            return ""
        choice = cast(Mapping[str, Any], choices[0])
        if choice.get("finish_reason"):
            self.finish = str(choice["finish_reason"])
        delta: Mapping[str, Any] = choice.get("delta") or {}
        self.refusal += delta.get("refusal") or ""
        for part in cast(Sequence[Mapping[str, Any]], delta.get("tool_calls") or ()):
            self._add_call(part)
        return content_words(delta.get("content"))

    def _add_call(self, part: Mapping[str, Any]) -> None:
        """Merge a tool call delta: names and ids come once, arguments in pieces."""
        index = part.get("index", len(self._calls))
        call = self._calls.setdefault(index, {"type": "function", "function": {"name": "", "arguments": ""}})
        call |= {name: part[name] for name in ("id", "type") if part.get(name)}
        function: Mapping[str, Any] = part.get("function") or {}
        call["function"]["name"] = function.get("name") or call["function"]["name"]
        call["function"]["arguments"] += function.get("arguments") or ""
