"""Long texts: others are served while one is checked, redacted and recorded."""

import asyncio
import threading
from pathlib import Path

import pytest

from evenhand.scorers import builtin
from evenhand.server.telemetry import logs as redact
from evenhand.server.telemetry.audit import read_audit
from support.fixtures import Serve
from support.guard_server import Guarding, route
from support.server import chat

LONG = "Write to jo@mail.example, a kind man. " * 5_500


async def test_a_long_text_is_scored_redacted_and_recorded_in_threads(
    serve: Serve, guarding: Guarding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    worked: dict[str, set[threading.Thread]] = {"scored": set(), "redacted": set()}
    split, replace = builtin.words_of, redact.redacted
    turns = 0

    def words_of(text: str) -> object:
        worked["scored"].add(threading.current_thread())
        return split(text)

    def redacted(text: str) -> str:
        worked["redacted"].add(threading.current_thread())
        return replace(text)

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(builtin, "words_of", words_of)
    monkeypatch.setattr(redact, "redacted", redacted)
    caplog.set_level("INFO", "evenhand")
    behind = await serve(chat(LONG))
    audit = {"file": str(tmp_path / "audit.sqlite"), "texts": "redacted"}
    guard = await guarding(route(behind.url), audit=audit, log={"texts": "redacted"})
    turning = asyncio.create_task(turn())

    answer = await guard.chat("Who?")

    turning.cancel()
    assert answer.status == 200
    assert guard.server.audit is not None
    await asyncio.to_thread(guard.server.audit.close)
    [row] = read_audit(tmp_path / "audit.sqlite")
    assert row["text"].startswith("Write to [email], a kind man.")
    assert "jo@mail.example" not in row["text"]
    assert worked["scored"]
    assert worked["redacted"]
    assert threading.main_thread() not in worked["scored"] | worked["redacted"]
    assert turns > 20
