"""Long texts: others are served while one is checked, redacted and recorded."""

import asyncio
import threading
from pathlib import Path

import pytest

from evenhand.server.telemetry import logs as redact
from evenhand.server.telemetry.audit import read_audit
from support.fixtures import Serve
from support.guard_server import Guarding, route
from support.server import chat

LONG = "".join(f"Write to jo@mail.example, a kind man of {n} years. " for n in range(2_000))


async def test_a_long_text_is_scored_in_slices_and_redacted_and_recorded_in_threads(
    serve: Serve, guarding: Guarding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    threads: set[threading.Thread] = set()
    replace = redact.redacted
    turns = 0

    def redacted(text: str) -> str:
        threads.add(threading.current_thread())
        return replace(text)

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

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
    assert row["text"].startswith("Write to [email], a kind man of 0 years.")
    assert "jo@mail.example" not in row["text"]
    assert threads and threading.main_thread() not in threads
    assert turns > 100  # one for every slice
