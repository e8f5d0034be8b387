"""kill -9 in the middle of a run, several times: the resumed run repeats at most the calls that were in flight."""

import asyncio
import hashlib
import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from evenhand.studies.export import export
from support.fixtures import Serve
from support.server import Body, ChatServer, Reply, chat
from support.stardtox import GOOD, KIND, RUDE

CONCURRENCY = 8
WORKERS = 12
"""Samples under way at once: a few more than calls, since some wait for the store."""
SAMPLES = 80
SOURCE = Path(__file__).parents[2] / "src"


def answer(body: Body) -> Reply:
    """A reply that depends on the request alone; what cannot be read is part of it."""
    luck = random.Random(orjson.dumps(body, option=orjson.OPT_SORT_KEYS))
    texts = ["A", "B", "C", "The answer is B.", "Hard to say.", "I'm sorry, but I can't help with that."]
    return chat(luck.choice(texts), n=body.get("n", 1))


def revising(body: Body) -> Reply:
    """Rude at first, kind when asked again, content as a judge; no two texts are alike."""
    asked = body["messages"][-1]["content"]
    if "fluency" in asked:
        return chat(GOOD)
    mark = hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()[:6]
    return chat(f"{RUDE} {mark}" if "Continue the text below" in asked else f"{KIND} {mark}")


QUESTIONS = ["--method", "default", "--method", "cot", "--limit", str(SAMPLES), "--reading", "text"]
WEIGHED = ["--benchmark", "bbq_builtin", "--method", "weigh", "--limit", "40"]
"""Asks for log-probabilities first; this endpoint has none, so that replies are drawn instead."""
TEXTS = [
    *["--benchmark", "realtoxicity_builtin", "--set", "completions=2", "--limit", "20", "--scorer", "builtin_b"],
    *["--method", "stardtox:candidates=1"],
]


async def start(server: ChatServer, out: Path, plan: list[str], *, resume: bool = False) -> asyncio.subprocess.Process:
    """`evenhand run` in a process of its own, without a response cache: only the ledger can help."""
    model = ["--model", "openai/test", "--base-url", server.url]
    how = ["-c", str(CONCURRENCY), "--no-cache", *(["--resume"] if resume else [])]
    return await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "evenhand", "run", *model, *plan, *how, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def finish(process: asyncio.subprocess.Process) -> None:
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


def repeated(server: ChatServer) -> int:
    """How many calls were made more than once, also if the second time it was known that there are no logprobs."""
    asked = [{name: body[name] for name in body if "logprobs" not in name} for body in server.bodies]
    calls = Counter(hashlib.sha256(orjson.dumps(body)).digest() for body in asked)
    return sum(count - 1 for count in calls.values())


def rows(out: Path) -> bytes:
    target = out.with_suffix(".jsonl")
    export(out, "outcomes", "jsonl", target)
    return target.read_bytes()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("plan", "replies", "outcomes", "last"),
    [
        (QUESTIONS, answer, 2 * SAMPLES, 130),
        (TEXTS, revising, 40, 70),
        (TEXTS, revising, 40, 350),
        (WEIGHED, answer, 40, 15),
        (WEIGHED, answer, 40, 100),
    ],
)
async def test_a_killed_run_repeats_only_what_was_in_flight(
    serve: Serve, tmp_path: Path, plan: list[str], replies: Callable[[Body], Reply], outcomes: int, last: int
):
    whole = await serve(answer=replies)
    await finish(await start(whole, tmp_path / "whole", plan))
    server = await serve(answer=replies)
    kills = 0

    for seen in (1, last):
        process = await start(server, tmp_path / "killed", plan, resume=kills > 0)
        await server.has_seen(seen)
        process.kill()
        await process.communicate()
        kills += process.returncode == -9
    await finish(await start(server, tmp_path / "killed", plan, resume=True))

    assert kills == 2
    assert repeated(whole) == 0
    assert len(server.requests) == len(whole.requests) + repeated(server)
    assert repeated(server) <= kills * WORKERS
    ends = [orjson.loads(line) for line in rows(tmp_path / "killed").splitlines()]
    assert len({(end["sample"], end["arm"]) for end in ends}) == len(ends) == outcomes
    # The endpoint's address is part of a row's model only by name: both runs must be equal to the byte.
    assert rows(tmp_path / "killed") == rows(tmp_path / "whole")
