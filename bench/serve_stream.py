"""Streams: a stub endpoint that writes a word every 20 ms, and clients that note when the first words come.

`serve_stream.py stub` prints its port; `serve_stream.py URL` prints what 50 clients saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time

import aiohttp
from aiohttp import web

CLIENTS, ROUNDS = 50, 4
WORD_SECONDS = 0.02
SENTENCE = "The second of the two people came to the office late. "
ANSWER = (SENTENCE * 6).split(" ")[:-1]
ASKED = {"model": "bench", "stream": True, "messages": [{"role": "user", "content": "Who was late?"}]}


async def answer(request: web.Request) -> web.StreamResponse:
    """One chunk a word, as models write."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number, word in enumerate(ANSWER):
        await asyncio.sleep(WORD_SECONDS)
        await response.write(_event({"content": word if not number else f" {word}"}))
    await response.write(_event({}, "stop") + b"data: [DONE]\n\n")
    return response


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "stub", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


async def client(session: aiohttp.ClientSession, url: str) -> list[tuple[float, float]]:
    """Seconds until the first words and until the end, of each stream."""
    seen: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        began, first, words = time.perf_counter(), None, ""
        async with session.post(f"{url}/chat/completions", json=ASKED) as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        words += choice["delta"].get("content") or ""
                    first = first or (time.perf_counter() - began if words else None)
        assert words == " ".join(ANSWER), words
        assert first is not None
        seen.append((first, time.perf_counter() - began))
    return seen


async def clients(url: str) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        every = [
            each for found in await asyncio.gather(*(client(session, url) for _ in range(CLIENTS))) for each in found
        ]
    first, whole = (1000 * statistics.median(each) for each in zip(*every, strict=True))
    print(json.dumps({"first_ms": first, "whole_ms": whole}))


async def serve() -> None:
    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=1024)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve() if sys.argv[1] == "stub" else clients(sys.argv[1]))
