"""A real HTTP server on this machine that answers chat completion requests as a test tells it to."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

Body = dict[str, Any]
Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True)
class Seen:
    """One request as it came in."""

    path: str
    query: str
    headers: Mapping[str, str]
    body: Body


class ChatServer:
    """Gives the replies in turn, the last one for ever; `answer` may choose a reply by the request instead."""

    def __init__(self, *replies: Reply, answer: Callable[[Body], Reply] | None = None, port: int = 0) -> None:
        self.requests: list[Seen] = []
        self._replies = list(replies)
        self._answer = answer
        self._port = port
        self._runner: web.AppRunner | None = None
        self._news = asyncio.Event()
        self.url = ""

    @property
    def bodies(self) -> list[Body]:
        return [seen.body for seen in self.requests]

    async def start(self) -> "ChatServer":
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=1024)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def has_seen(self, count: int) -> None:
        """Wait until so many requests have come."""
        while len(self.requests) < count:
            self._news.clear()
            await self._news.wait()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        self.requests.append(Seen(request.path, request.query_string, dict(request.headers), body))
        self._news.set()
        if self._answer is not None:
            return await self._answer(body)(request)
        reply = self._replies[min(len(self.requests), len(self._replies)) - 1]
        return await reply(request)


def completion(
    text: str | None = "B", *, n: int = 1, finish: str | None = "stop", logprobs: bool = False, **message: Any
) -> Body:
    """The body of a chat completion, if wanted with the log-probability of its one token."""
    choice = {"message": {"role": "assistant", "content": text, **message}, "finish_reason": finish}
    if logprobs:
        choice["logprobs"] = {"content": [{"token": text, "logprob": -0.1, "top_logprobs": []}]}
    return {
        "object": "chat.completion",
        "choices": [{"index": index, **choice} for index in range(n)],
        "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25},
    }


def chat(text: str | None = "B", **fields: Any) -> Reply:
    """A good reply that says `text`."""
    return reply_with(completion(text, **fields))


def reply_with(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A JSON reply."""
    return raw(orjson.dumps(body), status, headers)


def raw(data: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """Any bytes."""

    async def reply(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=data, status=status, headers=headers)

    return reply


def refuse(message: str, *, param: str | None = None, status: int = 400, code: str | None = None) -> Reply:
    """An error in the form of OpenAI."""
    return reply_with(
        {"error": {"message": message, "type": "invalid_request_error", "param": param, "code": code}}, status
    )


def cut() -> Reply:
    """The beginning of a reply, and then the connection is gone."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b'{"choices": [{"message": {"content": "A"')
        assert request.transport is not None
        request.transport.abort()
        return response

    return reply


def hang() -> Reply:
    """No reply, as long as the client waits."""

    async def reply(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("never reached")

    return reply


def outlast(seconds: float, then: Reply | None = None) -> Reply:
    """A reply, or none, that is so many seconds late without a wait: the event loop's clock jumps."""

    async def reply(request: web.Request) -> web.StreamResponse:
        skip(seconds)
        return await (then or hang())(request)

    return reply


def skip(seconds: float) -> None:
    """The event loop's clock jumps: time limits within that time are reached at once."""
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds
