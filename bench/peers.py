"""Other clients doing the work of `cases.py`, each as its own documentation would have it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from cases import CRITIQUE, MAX_TOKENS, REVISE, SYSTEM, all_samples, question


async def raw_aiohttp(url: str, samples: int, concurrency: int, scratch: Path) -> None:
    """aiohttp and one SQLite row per call, committed by fifties: the floor for this work, without retries, cache,
    resume or a promise that a call is stored before the next one is made."""
    import aiohttp
    import orjson

    db = sqlite3.connect(scratch / f"raw-{samples}.sqlite", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("CREATE TABLE calls (request BLOB, response BLOB)")
    rows: list[tuple[bytes, bytes]] = []

    def write() -> None:
        db.execute("BEGIN")
        db.executemany("INSERT INTO calls VALUES (?, ?)", rows)
        db.execute("COMMIT")
        rows.clear()

    connector = aiohttp.TCPConnector(limit=concurrency)
    async with aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"}) as session:

        async def ask(messages: list[dict[str, str]]) -> str:
            body = {"model": "stub", "messages": messages, "temperature": 0.0, "max_tokens": MAX_TOKENS}
            request = orjson.dumps(body)
            async with session.post(f"{url}/chat/completions", data=request) as response:
                payload = await response.read()
            rows.append((request, payload))
            if len(rows) >= 50:
                write()
            return orjson.loads(payload)["choices"][0]["message"]["content"]

        await all_samples(ask, samples, concurrency)
    write()
    db.close()


async def openai_sdk(url: str, samples: int, concurrency: int) -> None:
    """The official client, as it comes; nothing is stored."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=url, api_key="none") as client:

        async def ask(messages: Any) -> str:
            reply = await client.chat.completions.create(
                model="stub", messages=messages, temperature=0.0, max_tokens=MAX_TOKENS
            )
            return reply.choices[0].message.content or ""

        await all_samples(ask, samples, concurrency)


def inspect_ai(url: str, samples: int, scratch: Path, **options: Any) -> None:
    """Inspect's `eval` with a solver that makes the three calls and its log on disk; `options` go to `eval`."""
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ChatMessageSystem, ChatMessageUser
    from inspect_ai.scorer import includes
    from inspect_ai.solver import Generate, Solver, TaskState, solver

    os.environ |= {"STUB_API_KEY": "none", "STUB_BASE_URL": url}

    @solver
    def revise() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            state.messages.insert(0, ChatMessageSystem(content=SYSTEM))
            state = await generate(state)
            for follow_up in (CRITIQUE, REVISE):
                state.messages.append(ChatMessageUser(content=follow_up))
                state = await generate(state)
            return state

        return solve

    dataset = MemoryDataset([Sample(id=n + 1, input=question(n), target="told") for n in range(samples)])
    task = Task(dataset=dataset, solver=revise(), scorer=includes())
    logs = evaluate(
        task,
        model="openai-api/stub/stub",
        log_dir=str(scratch / "logs"),
        temperature=0.0,
        max_tokens=MAX_TOKENS,
        **{"display": "none", **options},
    )
    assert logs[0].status == "success", logs[0].error
