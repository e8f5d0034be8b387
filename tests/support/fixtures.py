"""Fixtures for tests that talk to a model endpoint."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from evenhand.models.base import ModelOptions
from evenhand.models.openai import OpenAIModel
from support.server import ChatServer, Reply, skip

Serve = Callable[..., Awaitable[ChatServer]]
Connect = Callable[..., OpenAIModel]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """`await serve(reply, …)` starts a server that is stopped after the test."""
    servers: list[ChatServer] = []

    async def start(*replies: Reply, **options: Any) -> ChatServer:
        servers.append(await ChatServer(*replies, **options).start())
        return servers[-1]

    yield start
    for server in servers:
        await server.stop()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """`connect(server)` gives a model of that server, closed after the test."""
    models: list[OpenAIModel] = []

    def make(server: ChatServer | str, **options: Any) -> OpenAIModel:
        url = server if isinstance(server, str) else server.url
        models.append(OpenAIModel("test-model", ModelOptions(base_url=url, **options)))
        return models[-1]

    yield make
    for model in models:
        await model.aclose()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which are noted instead of made."""
    noted: list[float] = []

    async def note(seconds: float) -> None:
        noted.append(seconds)
        await asyncio.sleep(0)

    async def note_and_skip(seconds: float) -> None:
        await note(seconds)
        skip(seconds)

    for module, sleep in (("evenhand.core.http", note), ("evenhand.models.pool", note_and_skip)):
        monkeypatch.setattr(f"{module}.asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    return noted
