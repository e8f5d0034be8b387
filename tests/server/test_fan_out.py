"""What one request may ask for: choices, inputs, messages, parts and tools have limits in the config."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from evenhand.server.config import make_config
from evenhand.server.telemetry.audit import read_audit
from support.fixtures import Serve
from support.guard_server import Guarding, route
from support.server import chat

CLEAN = "Bread is baked from flour."
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
PART = {"type": "text", "text": "Hello?"}
LIMITS = {"choices": 2, "inputs": 2, "messages": 3, "tools": 2}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n": 3}, "n must be a whole number from 1 to 2."),
        ({"best_of": 3}, "best_of must be a whole number from 1 to 2."),
        ({"messages": [{"role": "user", "content": "Hello?"}] * 4}, "at most 3 messages"),
        ({"messages": [{"role": "user", "content": [PART, PART]}] * 2}, "at most 3 messages and parts"),
        ({"tools": [TOOL] * 3}, "at most 2 tools"),
        ({"functions": [TOOL["function"]] * 3}, "at most 2 functions"),
    ],
)
async def test_a_request_over_a_limit_is_refused(serve: Serve, guarding: Guarding, fields: dict[str, Any], words: str):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url), limits=LIMITS)

    answer = await guard.chat(**fields)

    assert answer.status == 400
    assert words in answer.body["error"]["message"]
    assert behind.bodies == []


@pytest.mark.parametrize(
    "fields",
    [{"input": [{"role": "user", "content": "Hello?"}] * 4}, {"input": "Hello?", "best_of": 3}],
)
async def test_the_limits_hold_for_responses_too(serve: Serve, guarding: Guarding, fields: dict[str, Any]):
    behind = await serve(chat(CLEAN))
    guard = await guarding(route(behind.url), limits=LIMITS)

    assert (await guard.post("/v1/responses", {"model": "guarded", **fields})).status == 400
    assert behind.bodies == []


async def test_a_request_at_its_limits_is_answered(serve: Serve, guarding: Guarding, tmp_path: Path):
    behind = await serve(chat(CLEAN))
    guard = await guarding(
        route(behind.url), limits=LIMITS, audit={"file": str(tmp_path / "a.sqlite"), "texts": "full"}
    )

    messages = [{"role": "user", "content": "Hello?"}] * 3
    answer = await guard.chat(n=2, messages=messages, tools=[TOOL] * 2)
    assert guard.server.audit is not None
    await asyncio.to_thread(guard.server.audit.close)
    [row] = read_audit(tmp_path / "a.sqlite")

    assert [each["message"]["content"] for each in answer.body["choices"]] == [CLEAN] * 2
    assert [each["text"] for each in (row, *row["others"])] == [CLEAN] * 2


async def test_moderation_inputs_are_limited_and_a_reload_changes_the_limit(guarding: Guarding):
    config = {"routes": {"guarded": {"model": "fake/Good day.", "method": "default"}}}
    guard = await guarding(**config, limits=LIMITS)

    refused = await guard.post("/v1/moderations", {"input": ["Hello."] * 3})
    guard.server.reload(make_config({**config, "limits": {**LIMITS, "inputs": 3}}))
    scored = await guard.post("/v1/moderations", {"input": ["Hello."] * 3})

    assert (refused.status, scored.status) == (400, 200)
    assert "at most 2 texts" in refused.body["error"]["message"]
