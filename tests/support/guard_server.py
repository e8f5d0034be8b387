"""A guard server in this process, in front of a stub endpoint, for tests that are its clients."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from evenhand.server.app import make_runner
from evenhand.server.config import make_config
from evenhand.server.process import connections
from evenhand.server.server import Server
from evenhand.web.listening import ListeningSocket
from support.server import Reply

CLEAN = "The weather is mild and the park is open."
RUDE = "You are a worthless idiot and everybody hates you, stupid fool."


Guarding = Callable[..., Awaitable["Served"]]


class Served:
    """`await Served({...}).start()`; `url` is what a client is pointed at."""

    def __init__(self, config: dict[str, Any], **options: Any) -> None:
        self.server = Server(make_config(config), "127.0.0.1", **options)
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.root = ""

    @property
    def url(self) -> str:
        return f"{self.root}/v1"

    async def start(self) -> "Served":
        self._runner = make_runner(self.server, self._reload)
        await self._runner.setup()
        self._listener = ListeningSocket("127.0.0.1", 0)
        self._listener.start(connections(self._runner))
        self.port = self._listener.port
        self.root = f"http://127.0.0.1:{self.port}"
        self._session = aiohttp.ClientSession()
        return self

    async def stop(self) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._session.close()
        self._listener.close()
        if self.server.page is not None:
            self.server.page.close()
        await self._runner.cleanup()
        await self.server.close()

    async def post(self, path: str, body: Any = None, **options: Any) -> SimpleNamespace:
        """Status, headers and JSON (or text) of the answer."""
        return await self._ask("POST", path, data=body if isinstance(body, bytes) else orjson.dumps(body), **options)

    async def get(self, path: str, **options: Any) -> SimpleNamespace:
        return await self._ask("GET", path, **options)

    async def chat(self, text: str = "Hello?", model: str = "guarded", **fields: Any) -> SimpleNamespace:
        headers = fields.pop("headers", {})
        messages = fields.pop("messages", [{"role": "user", "content": text}])
        return await self.post(
            "/v1/chat/completions", {"model": model, "messages": messages, **fields}, headers=headers
        )

    @property
    def event(self) -> Any:
        """Of the last request."""
        return self.server.events.recent[-1]

    async def told(self, count: int = 1) -> None:
        """Until so many events were published."""
        await until(lambda: len(self.server.events.recent) >= count)

    async def _ask(self, method: str, path: str, **options: Any) -> SimpleNamespace:
        assert self._session is not None
        async with self._session.request(method, self.root + path, **options) as response:
            data = await response.read()
            is_json = response.content_type == "application/json"
            return SimpleNamespace(
                status=response.status,
                headers=response.headers,
                body=orjson.loads(data) if is_json and data else None,
                text=data.decode(),
            )

    async def _reload(self) -> list[str]:
        return []


async def until(true: Callable[[], bool]) -> None:
    """Wait for something that nobody tells."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def route(url: str, **fields: Any) -> dict[str, Any]:
    """One route `guarded` to an endpoint; with rule-based checks alone unless `fields` say otherwise."""
    return {
        "model": "openai/behind",
        "base_url": url,
        "method": "stardtox:performance=false",
        "retries": 0,
        "timeout": 600,
        **fields,
    }


def streamed(
    pieces: Sequence[str],
    *,
    tool_calls: Sequence[dict[str, Any]] = (),
    finish: str = "stop",
    then: asyncio.Event | None = None,
    fail: bool = False,
) -> Reply:
    """A reply in chunks; waits for `then` before the last one, or breaks off."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)

        async def send(delta: dict[str, Any], finish: str | None = None, **more: Any) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            chunk = {"id": "x", "object": "chat.completion.chunk", "model": "behind", "choices": [choice], **more}
            await response.write(b"data: " + orjson.dumps(chunk) + b"\n\n")

        await send({"role": "assistant", "content": ""})
        for place, piece in enumerate(pieces):
            if then is not None and place == len(pieces) - 1:
                await then.wait()
            await send({"content": piece})
        if fail:
            assert request.transport is not None
            request.transport.abort()
            return response
        for index, call in enumerate(tool_calls):
            await send({"tool_calls": [{"index": index, **call}]})
        await send({}, finish, usage={"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25})
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    return reply


@pytest.fixture
async def guarding() -> AsyncIterator[Guarding]:
    """`await guarding(route(url))` starts a server with the one route `guarded`; fields of the config by name.

    `may_open` and `allow_call` are options of the server.
    """
    started: list[Served] = []

    async def start(one: dict[str, Any] | None = None, **config: Any) -> Served:
        routes = {} if one is None else {"routes": {"guarded": one}}
        options = {name: config.pop(name) for name in ("may_open", "allow_call") if name in config}
        started.append(await Served({**routes, **config}, **options).start())
        return started[-1]

    yield start
    for each in started:
        await each.stop()
