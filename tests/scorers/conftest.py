"""Fixtures for scorers that are services."""

import asyncio
import socket
from types import SimpleNamespace

import pytest


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of the HTTP client, which are noted instead of made."""
    noted: list[float] = []

    async def note(seconds: float) -> None:
        noted.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr("evenhand.core.http.asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": note}))
    return noted


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
