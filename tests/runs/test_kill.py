"""kill -9 in the middle of a run, several times: the resumed run repeats at most the calls that were in flight."""

import asyncio
import hashlib
import os
import random
import sys
from collections import Counter
from pathlib import Path

import orjson
import pytest

from evenhand.runs.export import export
from support.fixtures import Serve
from support.server import Body, ChatServer, Reply, chat

CONCURRENCY = 8
WORKERS = 12
"""Samples under way at once: a few more than calls, since some wait for the store."""
SAMPLES = 80
SOURCE = Path(__file__).parents[2] / "src"


def answer(body: Body) -> Reply:
    """A reply that depends on the request alone; what cannot be read is part of it."""
    luck = random.Random(orjson.dumps(body, option=orjson.OPT_SORT_KEYS))
    return chat(
        luck.choice(["A", "B", "C", "The answer is B.", "Hard to say.", "I'm sorry, but I can't help with that."])
    )


async def start(server: ChatServer, out: Path) -> asyncio.subprocess.Process:
    """`evenhand run` in a process of its own, without a response cache: only the ledger can help."""
    plan = ["--model", "openai/test", "--base-url", server.url, "--method", "default", "--method", "cot"]
    how = ["--limit", str(SAMPLES), "--reading", "text", "-c", str(CONCURRENCY), "--no-cache", "--resume"]
    return await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "evenhand", "run", *plan, *how, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def finish(process: asyncio.subprocess.Process) -> None:
    output, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, output.decode()


def repeated(server: ChatServer) -> int:
    """How many calls were made more than once."""
    calls = Counter(hashlib.sha256(orjson.dumps(body)).digest() for body in server.bodies)
    return sum(count - 1 for count in calls.values())


def rows(out: Path) -> bytes:
    target = out.with_suffix(".jsonl")
    export(out, "outcomes", "jsonl", target)
    return target.read_bytes()


@pytest.mark.slow
async def test_a_killed_run_repeats_only_what_was_in_flight(serve: Serve, tmp_path: Path):
    whole = await serve(answer=answer)
    await finish(await start(whole, tmp_path / "whole"))
    server = await serve(answer=answer)
    kills = 0

    for seen in (1, 130):
        process = await start(server, tmp_path / "killed")
        await asyncio.wait_for(server.has_seen(seen), 60)
        process.kill()
        await process.communicate()
        kills += process.returncode == -9
    await finish(await start(server, tmp_path / "killed"))

    assert kills == 2
    assert repeated(whole) == 0
    assert len(server.requests) == len(whole.requests) + repeated(server)
    assert repeated(server) <= kills * WORKERS
    ends = [orjson.loads(line) for line in rows(tmp_path / "killed").splitlines()]
    assert len({(end["sample"], end["arm"]) for end in ends}) == len(ends) == 2 * SAMPLES
    # The endpoint's address is part of a row's model only by name: both runs must be equal to the byte.
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
