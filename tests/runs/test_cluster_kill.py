"""kill -9 of a worker, a node, a replica and the driver on a real Ray: nothing lost, twice or invented."""

import asyncio
import hashlib
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from evenhand.core.types import Message, Params
from evenhand.models.base import Model
from evenhand.models.load import load_model
from evenhand.studies.export import export
from support.fixtures import Serve
from support.ray_cluster import TwoNodes, two_nodes
from support.server import Body, ChatServer, Reply, chat
from support.tiny import make_model

pytestmark = pytest.mark.processes
SAMPLES = 80
IN_FLIGHT = 12
"""Samples that a worker has under way at a concurrency of 8."""


@pytest.fixture
def cluster() -> Iterator[TwoNodes]:
    with two_nodes() as made:
        yield made


def answer(body: Body) -> Reply:
    """A reply that depends on the request alone."""
    luck = random.Random(orjson.dumps(body, option=orjson.OPT_SORT_KEYS))
    return chat(luck.choice(["A", "B", "C", "The answer is B.", "I'm sorry, but I can't help with that."]))


async def evenhand(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "evenhand", *arguments],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def run(server: ChatServer, out: Path, *how: str) -> asyncio.subprocess.Process:
    plan = ["--method", "default", "--method", "cot", "--limit", str(SAMPLES), "--reading", "text"]
    model = ["--model", "openai/test", "--base-url", server.url, "-c", "8", "--no-cache"]
    return await evenhand("run", *plan, *model, "--out", str(out), *how)


async def finish(process: asyncio.subprocess.Process) -> None:
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


def repeated(server: ChatServer) -> int:
    calls = Counter(hashlib.sha256(orjson.dumps(body)).digest() for body in server.bodies)
    return sum(count - 1 for count in calls.values())


def rows(out: Path) -> bytes:
    target = out.with_suffix(".jsonl")
    export(out, "outcomes", "jsonl", target)
    return target.read_bytes()


async def test_workers_a_node_and_the_driver_are_killed_under_load(cluster: TwoNodes, serve: Serve, tmp_path: Path):
    whole = await serve(answer=answer)
    await finish(await run(whole, tmp_path / "whole"))
    server = await serve(answer=answer)
    total = len(whole.requests)

    driver = await run(server, tmp_path / "shared", "--on", "ray", "--workers", "2")
    await server.has_seen(10)
    os.kill(cluster.pids("Worker")[0], signal.SIGKILL)
    await server.has_seen(total // 3)
    driver.kill()
    await driver.communicate()
    driver = await evenhand("resume", str(tmp_path / "shared"))
    await server.has_seen(2 * total // 3)
    cluster.kill_node()
    await finish(driver)

    # One worker, both workers with the driver, and those of the node.
    assert repeated(server) <= 5 * IN_FLIGHT
    assert len(server.requests) == total + repeated(server)
    assert rows(tmp_path / "shared") == rows(tmp_path / "whole")


async def ask(model: Model) -> list[object]:
    words = ("cat", "dog", "tree", "sun", "moon", "river")

    async def one(i: int) -> object:
        params = Params(seed=i, temperature=1.0, max_tokens=12, logprobs=2)
        return (await model.generate([Message("user", f"{words[i % 6]} w{i % 29}")], params)).completions

    return await asyncio.gather(*map(one, range(60)))


async def test_replicas_answer_as_one_process_though_one_is_killed(cluster: TwoNodes, tmp_path: Path):
    make_model(tmp_path)
    async with load_model(f"hf/{tmp_path}?device=cpu&batch=4") as model:
        expected = await ask(model)

    async with load_model(f"ray/hf/{tmp_path}?device=cpu&batch=4&replicas=2") as model:
        asked = asyncio.create_task(ask(model))
        await asyncio.sleep(0)
        os.kill(cluster.pids("Replica")[0], signal.SIGKILL)
        found = await asked
        assert any("died" in note for note in model.notes())

    assert [each[0].text for each in found] == [each[0].text for each in expected]  # type: ignore[index]
