"""CPU time per call of Anthropic's and Gemini's API: our adapters next to LiteLLM, against the same stub on loopback.

LiteLLM is imported by the Python that EVENHAND_LITELLM names (it is no dependency of ours); without it, it is left out.
All are asked for the same words, sixteen at a time, in processes of their own; imports and a warm-up are not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from common import save, table

CALLS, CONCURRENCY, ROUNDS = 400, 16, 3
_TEXT = "The answer that the text supports is that it cannot be told."
_ANTHROPIC = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": _TEXT}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 180, "output_tokens": 42},
}
_GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": _TEXT}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 180, "candidatesTokenCount": 42, "totalTokenCount": 222},
    "modelVersion": "gemini-x",
}
_MEASURE = """
import asyncio, json, resource, sys, time
async def work(count):
    gate = asyncio.Semaphore({concurrency})
    async def one(number):
        async with gate:
            assert await ask(f"Question {{number}}: who was it?")
    await asyncio.gather(*(one(number) for number in range(count)))
async def main():
    await work(20)
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    await work({calls})
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps([1000 * cpu / {calls}, 1000 * (time.perf_counter() - began) / {calls}]))
asyncio.run(main())
"""
_OURS = """
from evenhand.core.types import Message, Params
from evenhand.models.base import ModelOptions
from evenhand.models.load import load_model
model = load_model("{provider}/x", ModelOptions(base_url="{url}/{version}", concurrency=64))
async def ask(text):
    return (await model.generate([Message("user", text)], Params(temperature=0.0, max_tokens=64))).text
"""
_LITELLM = """
import litellm
litellm.telemetry = False
async def ask(text):
    reply = await litellm.acompletion(model="{provider}/x", messages=[{{"role": "user", "content": text}}],
        temperature=0.0, max_tokens=64, api_base="{base}", api_key="none")
    return reply.choices[0].message.content
"""


class _Stub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps(_ANTHROPIC if "messages" in self.path else _GEMINI).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...  # pyright: ignore


def _measured(python: str, setup: str) -> tuple[float, float]:
    """CPU and wall milliseconds of one call, in a process of its own."""
    code = setup + _MEASURE.format(calls=CALLS, concurrency=CONCURRENCY)
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent.parent / "src"),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    done = subprocess.run([python, "-c", code], env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    cpu, wall = json.loads(done.stdout.strip().splitlines()[-1])
    return cpu, wall


def run() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Stub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    litellm = os.environ.get("EVENHAND_LITELLM")
    found: dict[str, tuple[float, float]] = {}
    for _ in range(ROUNDS):
        for provider, version in (("anthropic", "v1"), ("gemini", "v1beta")):
            ways = [(f"{provider}, ours", sys.executable, _OURS.format(provider=provider, url=url, version=version))]
            if litellm:
                base = url if provider == "anthropic" else f"{url}/v1beta/models/x"
                ways.append((f"{provider}, LiteLLM", litellm, _LITELLM.format(provider=provider, base=base)))
            for title, python, setup in ways:
                one = _measured(python, setup)
                found[title] = min(found.get(title, one), one)
    server.shutdown()
    rows = [(title, cpu, wall) for title, (cpu, wall) in found.items()]
    note = "" if litellm else "LiteLLM was left out; EVENHAND_LITELLM names a Python that has it."
    table(
        f"One call of a provider's own API ({CALLS} calls, best of {ROUNDS})",
        ("client", "CPU ms", "wall ms"),
        rows,
        note,
    )
    save("providers", found)
