"""Whole runs against servers of reasoning models: everything is graded, and no thought is taken for an answer."""

import contextlib
from pathlib import Path

import pytest

from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.runner import Runner
from evenhand.runs.store import Store
from support.fixtures import Serve
from support.thinkers import SERVERS, THOUGHT

METHODS = ["default", "cot", "stardtox", "mabrf"]


@pytest.mark.parametrize("name", SERVERS)
async def test_every_method_is_graded(serve: Serve, tmp_path: Path, name: str):
    server = await serve(answer=SERVERS[name])
    plan = make_plan(
        {"models": [{"spec": "openai/thinker", "base_url": server.url}], "methods": METHODS, "limit": 4, "seeds": [0]}
    )

    progress = await Runner(plan, tmp_path / "run", Settings(concurrency=8)).run()

    assert progress.statuses == {"graded": 4 * len(METHODS)}
    with contextlib.closing(Store(tmp_path / "run")) as store:
        outcomes = [store.outcome(number, arm) for number, _ in store.samples() for arm in range(1, len(METHODS) + 1)]
        turns = [turn for number, _ in store.samples() for _, turn in store.turns(number, 1)]
    assert THOUGHT[:30] not in str(outcomes)
    assert THOUGHT[:30] not in str([turn.messages for turn in turns])
