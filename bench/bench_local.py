"""Tokens per second of the built-in model through LocalModel, next to llama.cpp's own server object.

Both have the same settings, prompts and number of requests at once, and decode greedily, so they make the same tokens.
They take turns in one process, and each one's best round counts, since others use the machine too; the median of the
rounds' ratios is shown beside it. llama.cpp's own figure comes from the `timings` in its replies, which leave out all
that is around the engine; its figure by the clock is shown too. One core is left to the rest of the machine: the
engine's threads wait for each other, and a busy neighbour would be all that is measured.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
from common import installed, save, table, verdict

SLOTS, TOKENS, ROUNDS = (1, 4, 8), 24, 12
MOST_SECONDS = 40
"""On a busy machine there are fewer rounds; short ones, so that both engines meet the same weather."""
_THINGS = ("a river", "a bridge", "a market", "a school", "a garden", "a train", "a harbour", "a bakery")
# Asked for something long, the model uses all its tokens, so that no slot is idle at the end.
_PROMPTS = [f"Write a very long story about {thing} and the people who meet there." for thing in _THINGS]


def run() -> None:
    from evenhand.models.weights import installed as weights_installed

    if not installed("xllamacpp") or weights_installed("builtin") is None:
        print(
            "\nLocal engine: xllamacpp or the built-in weights are missing; `evenhand models pull builtin`. Left out."
        )
        return
    rows = {slots: asyncio.run(_compare(slots)) for slots in SLOTS}
    table(
        f"Local engine, built-in model ({TOKENS} tokens a request, tokens/s)",
        ("slots", "evenhand", "llama.cpp, wall", "llama.cpp, own timings", "ours / own", "its median", "target, %"),
        [
            (
                slots,
                row["ours"],
                row["direct"],
                row["timings"],
                row["ours"] / row["timings"],
                row["median_ratio"],
                verdict(100 * row["ours"] / row["timings"], 90, least=True),
            )
            for slots, row in rows.items()
        ],
    )
    save("local", rows)


async def _compare(slots: int) -> dict[str, float]:
    from evenhand.core.types import Message, Params
    from evenhand.models.base import ModelOptions
    from evenhand.models.local import LocalModel, _import_engine, usable_cores

    options = {"slots": slots, "context": 1024, "threads": max(1, usable_cores() - 1)}
    model = LocalModel("builtin", ModelOptions(concurrency=slots, extra=options))
    engine = _import_engine()
    server = engine.Server(model._settings(engine))
    prompts = _PROMPTS[: max(4, slots)]
    params = Params(temperature=0.0, max_tokens=TOKENS)

    async def ours(texts: list[str]) -> float:
        started = time.perf_counter()
        made = await asyncio.gather(*(model.generate((Message("user", text),), params) for text in texts))
        return sum(each.usage.completion_tokens for each in made) / (time.perf_counter() - started)

    try:
        await ours(prompts[:1])  # both engines are loaded and warm before the first round
        await asyncio.to_thread(_direct, server, slots, prompts[:1])
        started = time.perf_counter()
        rounds: list[tuple[float, float, float]] = []
        while len(rounds) < ROUNDS and (not rounds or time.perf_counter() - started < MOST_SECONDS):
            if len(rounds) % 2:
                direct, speed = await asyncio.to_thread(_direct, server, slots, prompts), await ours(prompts)
            else:
                speed, direct = await ours(prompts), await asyncio.to_thread(_direct, server, slots, prompts)
            rounds.append((speed, *direct))
    finally:
        await model.aclose()
    return {
        "ours": max(ours for ours, _, _ in rounds),
        "direct": max(direct for _, direct, _ in rounds),
        "timings": max(timings for _, _, timings in rounds),
        "median_ratio": statistics.median(ours / timings for ours, _, timings in rounds),
    }


def _direct(server: Any, slots: int, prompts: list[str]) -> tuple[float, float]:
    """Tokens per second by the clock, and by the engine's own timings with all slots busy."""

    def request(text: str) -> dict[str, float]:
        replies: list[bytes] = []
        body = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": TOKENS,
            "temperature": 0.0,
            "top_p": 1.0,
            "samplers": ["temperature", "top_p"],
        }
        server.handle_chat_completions(orjson.dumps(body), lambda chunk: bool(replies.append(chunk)))
        return orjson.loads(replies[-1])["timings"]

    started = time.perf_counter()
    with ThreadPoolExecutor(slots) as pool:
        timings = list(pool.map(request, prompts))
    tokens = sum(each["predicted_n"] for each in timings)
    busy = sum(each["prompt_ms"] + each["predicted_ms"] for each in timings) / 1000 / slots
    return tokens / (time.perf_counter() - started), tokens / busy
