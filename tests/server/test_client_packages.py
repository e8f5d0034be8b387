"""The packages that applications use, unchanged, each in an environment of its own, against the server.

A script in `clients/` asks four things of every endpoint that its package has, and prints what it understood.
"""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from support.clients import clean_environment, node_with, python_with
from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, Served, route, streamed
from support.server import Body, Reply, chat, reply_with

pytestmark = pytest.mark.clients
SCRIPTS = Path(__file__).parent / "clients"
PINS = {
    "openai_node.mjs": ["openai@7.53.0"],
    "vercel_ai.mjs": ["ai@7.0.169", "@ai-sdk/openai@4.0.114", "zod@4.6.7"],
    "langchain_client.py": ["langchain-openai==1.7.3"],
    "llama_index_client.py": ["llama-index-llms-openai==0.8.3"],
    "litellm_client.py": ["litellm==1.102.0"],
    "instructor_client.py": ["instructor==1.17.0"],
    "pydantic_ai_client.py": ["pydantic-ai-slim[openai]==2.66.0"],
}
WITHHELD = "Withheld."
PARIS = {"city": "Paris"}
VECTOR = [0.5, 1.0]


def answer(body: Body) -> Reply:
    """By what is asked: a rude answer, a stream that breaks off, a call of the first tool, JSON, or plain words."""
    if "messages" not in body:
        return reply_with({"data": [{"embedding": VECTOR}], "usage": {"prompt_tokens": 3}})
    asked = str(body["messages"][-1]["content"])
    text = RUDE if "rude" in asked else '{"city": "Paris"}' if body.get("response_format") else CLEAN
    if "Break off" in asked:
        return streamed(["The weather is mild. ", "The park is open. "], fail=True)
    if body.get("tools") and body["messages"][-1]["role"] == "user" and "rude" not in asked:
        function = {"name": body["tools"][0]["function"]["name"], "arguments": '{"city": "Paris"}'}
        calls = [{"id": "c1", "type": "function", "function": function}]
        whole = chat(None, finish="tool_calls", tool_calls=calls)
        return streamed([], tool_calls=calls, finish="tool_calls") if body.get("stream") else whole
    return streamed([text]) if body.get("stream") else chat(text)


async def run(guard: Served, script: str) -> dict[str, Any]:
    """What a script understood, with its packages installed."""
    if script.endswith(".mjs"):
        folder = await asyncio.to_thread(node_with, PINS[script])
        command = ("node", SCRIPTS / script, guard.url, folder)
    else:
        command = (await asyncio.to_thread(python_with, PINS[script]), SCRIPTS / script, guard.url)
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**clean_environment(), "NO_PROXY": "*"},
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return orjson.loads(out.splitlines()[-1])


@pytest.fixture
async def guard(serve: Serve, guarding: Guarding) -> Served:
    behind = await serve(answer=answer)
    return await guarding(routes={"gpt-4o-mini": route(behind.url, policy="block", blocked_text=WITHHELD)})


@pytest.mark.parametrize("script", PINS)
async def test_answers_streams_calls_and_blocks_are_understood(guard: Served, script: str):
    found = await run(guard, script)

    for form in ("chat", "responses"):
        understood = found[form]
        assert understood["structured"] == PARIS
        assert understood["cut"]
        if script == "instructor_client.py":
            assert (understood["stream"], understood["blocked"]) == (PARIS, "content_filter")
        else:
            reason = "content-filter" if script == "vercel_ai.mjs" else "content_filter"
            assert (understood["plain"], understood["stream"]) == (CLEAN, CLEAN)
            assert understood["blocked"] == [reason, WITHHELD]
        assert understood.get("call", [None, PARIS])[1] == PARIS
        assert {understood.get(name, CLEAN) for name in ("after_call", "next")} == {CLEAN}
    assert found.get("vector", VECTOR) == VECTOR
    asked = {each.endpoint for each in guard.server.events.recent}
    assert asked >= {"/v1/chat/completions", "/v1/responses"}
