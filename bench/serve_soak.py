"""A long soak of the guard: `python bench/serve_soak.py [--seconds 600] [--clients 1000]`.

Three endpoints that fail in every way, half of the answers streamed, the config file rewritten every five seconds. Some
of the endpoints' answers hold a marker that the check refuses. Counted: requests without an answer in form, answers
with the marker, and the server's memory. The endpoints and the clients share this process; the server has its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from common import save, table
from serve import GUARDED, rss, started

MARKER = "worthless idiot"
CLEAN = "The park is open until eight. The weather is mild. Bring a coat for the evening."
RUDE = f"The park is open. You are a {MARKER} and everybody hates you, stupid fool. Bring a coat."
RELOAD_SECONDS = 5.0


class Endpoint:
    """Answers seven times in ten; otherwise it fails, late, half-way, or in the wrong form."""

    def __init__(self, seed: int) -> None:
        self._luck = random.Random(seed)

    async def start(self) -> str:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, backlog=4096)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        luck = self._luck
        await asyncio.sleep(luck.uniform(0.05, 0.3))
        text = RUDE if luck.random() < 0.1 else CLEAN
        fault = luck.choice(("status", "html", "half", "empty", "close")) if luck.random() < 0.3 else ""
        if fault == "status":
            return web.json_response({"error": {"message": "busy"}}, status=luck.choice((429, 500, 503)))
        if fault == "html":
            return web.Response(text="<html>Hello</html>", content_type="text/html")
        if fault == "empty":
            return web.Response(body=b"")
        if fault == "close":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if body.get("stream"):
            return await self._stream(request, text, half=fault == "half")
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 20, "completion_tokens": 20, "total_tokens": 40}
        data = orjson.dumps({"object": "chat.completion", "choices": [choice], "usage": usage})
        return web.Response(body=data[: len(data) // 2] if fault == "half" else data, content_type="application/json")

    async def _stream(self, request: web.Request, text: str, *, half: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        words = text.split()
        for word in words[: len(words) // 2] if half else words:
            choice = {"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None}
            await response.write(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n")
        if not half:
            choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
            await response.write(b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\ndata: [DONE]\n\n")
        return response


class Clients:
    """All clients of the soak, and what they saw."""

    def __init__(self, url: str, until: float) -> None:
        self._url, self._until = url, until
        self.seen: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()

    async def run(self, count: int) -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(120)) as session:
            await asyncio.gather(*(self._client(session, number) for number in range(count)))

    async def _client(self, session: aiohttp.ClientSession, number: int) -> None:
        luck = random.Random(number)
        await asyncio.sleep(luck.uniform(0, 5))
        while time.monotonic() < self._until:
            stream = luck.random() < 0.5
            body = {"model": "bench", "stream": stream, "messages": [{"role": "user", "content": "When is it open?"}]}
            try:
                async with session.post(f"{self._url}/chat/completions", json=body) as response:
                    data = await response.read()
            except (aiohttp.ClientError, TimeoutError) as error:
                self.seen["lost"] += 1
                self.seen[f"lost: {type(error).__name__}"] += 1
                continue
            self.statuses[response.status] += 1
            self.seen["requests"] += 1
            self.seen["with the marker"] += MARKER.encode() in data
            self.seen["not in form"] += not _in_form(response.status, data, stream=stream)


def _in_form(status: int, data: bytes, *, stream: bool) -> bool:
    """Whether an answer is a completion or an error; a stream must say how it ended."""
    try:
        if status != 200:
            return bool(orjson.loads(data)["error"]["message"])
        if not stream:
            return orjson.loads(data)["choices"][0]["finish_reason"] is not None
        events = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
        chunks = [orjson.loads(event) for event in events if event != b"[DONE]"]
        finished = any(choice.get("finish_reason") for chunk in chunks for choice in chunk.get("choices", ()))
        return any("error" in chunk for chunk in chunks) or (finished and events[-1] == b"[DONE]")
    except (orjson.JSONDecodeError, KeyError, IndexError, TypeError):
        return False


async def reload(file: Path, config: dict[str, Any], until: float) -> int:
    """Rewrite the config every few seconds, each time with another blocked text, half-written for a moment."""
    count = 0
    while time.monotonic() < until - RELOAD_SECONDS:
        await asyncio.sleep(RELOAD_SECONDS)
        count += 1
        config["routes"]["bench"]["blocked_text"] = f"This answer was withheld ({count})."
        text = json.dumps(config)
        await asyncio.to_thread(file.write_text, text[: len(text) // 2])
        await asyncio.sleep(0.05)
        await asyncio.to_thread(file.write_text, text)
    return count


async def soak(seconds: float, count: int) -> dict[str, Any]:
    logging.getLogger("aiohttp").setLevel(logging.CRITICAL)  # the endpoints fail on purpose
    endpoints = [Endpoint(seed) for seed in range(3)]
    urls = [await endpoint.start() for endpoint in endpoints]
    route = {
        "model": "openai/stub",
        "retries": 1,
        **GUARDED,
        "policy": "block",
        "upstreams": [{"base_url": url} for url in urls],
    }
    with tempfile.TemporaryDirectory(prefix="evenhand-soak-") as folder, ExitStack() as stack:
        file = Path(folder) / "guard.yaml"
        config = {"routes": {"bench": route}, "log": {"requests": False}}
        await asyncio.to_thread(file.write_text, json.dumps(config))
        url, pid = await asyncio.to_thread(lambda: stack.enter_context(started(file)))
        until = time.monotonic() + seconds
        clients = Clients(url, until)
        memory: list[tuple[float, float]] = []

        async def watch() -> None:
            while time.monotonic() < until:
                memory.append((seconds - (until - time.monotonic()), rss(pid)))
                await asyncio.sleep(10)

        _, reloads, _ = await asyncio.gather(clients.run(count), reload(file, config, until), watch())
        await asyncio.to_thread(stack.close)
    for endpoint in endpoints:
        await endpoint.stop()
    return {
        **clients.seen,
        "statuses": {str(status): number for status, number in clients.statuses.items()},
        "reloads": reloads,
        "memory": memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=1000)
    given = parser.parse_args()
    found = asyncio.run(soak(given.seconds, given.clients))
    memory = found["memory"]
    steady = [mb for at, mb in memory if at >= given.seconds / 5]
    table(
        f"{given.clients:,} clients for {given.seconds:.0f} s, three failing endpoints, {found['reloads']} reloads",
        ("second", "memory MB"),
        [(f"{at:.0f}", mb) for at, mb in memory[:: max(1, len(memory) // 10)]],
        f"{found['requests']:,} answers: {found['statuses']}; {found.get('lost', 0)} lost, "
        f"{found['not in form']} not in form, {found['with the marker']} with the marker; "
        f"memory {100 * (steady[-1] / steady[0] - 1):+.1f} %",
    )
    save("serve_soak", {**found, "seconds": given.seconds, "clients": given.clients})


if __name__ == "__main__":
    main()
