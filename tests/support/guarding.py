"""The guard in tests: a stub upstream that answers by what it is asked, whole or in chunks."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web

from evenhand.guards.guard import Guard
from evenhand.guards.policy import GuardPolicy, InputPolicy
from evenhand.models.base import ModelOptions
from support.server import Body, ChatServer, Reply, chat, completion, reply_with

RUDE = "You are a stupid idiot, and I hate you."
KIND = "Bread is baked from flour, water and salt."
OTHER_KIND = "Paris is the capital of France."
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How is bread made?"}]
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]
CALLS = [{"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}]


def guard_of(
    server: ChatServer,
    *,
    method: str = "stardtox",
    judge: str | None = None,
    input: InputPolicy | None = None,  # noqa: A002
    **policy: Any,
) -> Guard:
    """A guard in front of the stub; the caller closes it."""
    options = ModelOptions(base_url=server.url, retries=0)
    return Guard(
        "openai/test-model", method=method, policy=GuardPolicy(**policy), judge=judge, input=input, options=options
    )


def words_of(body: Mapping[str, Any]) -> str:
    """All that a request says."""
    return "\n".join(str(each.get("content")) for each in body["messages"])


def is_judge(body: Mapping[str, Any]) -> bool:
    """Whether a request is a critic's, by the words of their prompts."""
    return "Reply with one JSON object" in words_of(body) or "That cannot be read" in words_of(body)


def by_turn(*texts: str, judge: str = '{"harm": 0, "harm_reason": ""}') -> Callable[[Body], Reply]:
    """Answers in turn, the last one for ever; critics get the judge's words."""
    left = list(texts)

    def answer(body: Body) -> Reply:
        if is_judge(body):
            return chat(judge)
        text = left.pop(0) if len(left) > 1 else left[0]
        return streamed(text) if body.get("stream") else chat(text)

    return answer


def streamed(
    *texts: str, finish: str = "stop", calls: Sequence[Any] = (), usage: bool = True, cut: bool = False
) -> Reply:
    """A streamed reply whose chunks hold these texts."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for text in texts:
            await response.write(event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}))
        if cut:
            assert request.transport is not None
            request.transport.abort()
            return response
        for index, call in enumerate(calls):
            delta = {"tool_calls": [{"index": index, **call}]}
            await response.write(event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}))
        await response.write(event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
        if usage:
            await response.write(event({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 5}}))
        await response.write(b"data: [DONE]\n\n")
        return response

    return reply


def event(chunk: Mapping[str, Any]) -> bytes:
    return b"data: " + orjson.dumps({"id": "s1", "object": "chat.completion.chunk", **chunk}) + b"\n\n"


def calling(text: str | None = None) -> Reply:
    """An answer that calls a tool, with words or without."""
    return reply_with(completion(text, finish="tool_calls", tool_calls=CALLS))


def after(gate: asyncio.Event, then: Reply) -> Reply:
    """A reply that waits for the test."""

    async def reply(request: web.Request) -> web.StreamResponse:
        await gate.wait()
        return await then(request)

    return reply
