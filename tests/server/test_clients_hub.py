"""Hugging Face's client, unchanged, against the server."""

import asyncio
from typing import Any

import pytest

from support.fixtures import Serve
from support.guard_server import CLEAN, Guarding, route, streamed
from support.server import chat

hub = pytest.importorskip("huggingface_hub")
HELLO = [{"role": "user", "content": "Hello?"}]


async def test_it_reads_answers_and_streams(serve: Serve, guarding: Guarding):
    def answer(body: Any):
        return streamed(["The weather is mild. ", "The park is open."]) if body.get("stream") else chat(CLEAN)

    behind = await serve(answer=answer)
    guard = await guarding(route(behind.url))

    def work() -> tuple[str, str]:
        client = hub.InferenceClient(base_url=guard.url, api_key="none")
        whole = client.chat_completion(HELLO, model="guarded").choices[0].message.content
        stream = client.chat_completion(HELLO, model="guarded", stream=True)
        return whole, "".join(each.choices[0].delta.content or "" for each in stream if each.choices)

    whole, pieces = await asyncio.to_thread(work)

    assert whole == CLEAN
    assert pieces == "The weather is mild. The park is open."
