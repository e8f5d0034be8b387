"""Workers share a plan's samples: the run is that of one process, whichever of them die, and no call is made twice."""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evenhand.core.errors import EndpointError, PlanError, UsageError
from evenhand.core.progress import Progress
from evenhand.core.types import Completion, Generation, Usage
from evenhand.models.base import Model
from evenhand.models.budget import Limits
from evenhand.models.ray.connect import set_address
from evenhand.runs import cluster
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import Settings
from evenhand.runs.plan import make_plan
from evenhand.runs.store import Store
from support.local_ray import LocalRay
from support.runs import Workshop
from support.toy import number_of, right_answer

SIZE = 40
PLAN: dict[str, Any] = {
    "benchmark": "toy",
    "benchmark_options": {"size": SIZE, "clusters": 13},
    "methods": ["default", "cot"],
    "models": ["stub/one"],
}


class Slow(Model):
    """Answers after a moment, and counts what it is asked."""

    spec = "stub/one"
    free = True

    def __init__(self) -> None:
        self.asked: Counter[Any] = Counter()
        self._goals: dict[int, asyncio.Event] = {}

    async def has_been_asked(self, times: int) -> None:
        await self._goals.setdefault(times, asyncio.Event()).wait()

    async def generate(self, messages: Any, params: Any) -> Generation:
        self.asked[tuple(messages), params] += 1
        for times, goal in self._goals.items():
            if sum(self.asked.values()) >= times:
                goal.set()
        await asyncio.sleep(0.01)
        text = "Hard to say." if number_of(messages) % 7 == 0 else right_answer(messages)
        return Generation((Completion(text),), self.spec, Usage(1, 10, 2))


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> LocalRay:
    made = LocalRay()
    monkeypatch.setattr(cluster, "connect", lambda: made)
    return made


async def run(out: Path, *, workers: int = 3, plan: dict[str, Any] | None = None, **settings: Any) -> Progress:
    chosen = Settings(**{"on": "ray", "workers": workers, "concurrency": 4, **settings})
    return await run_plan(make_plan({**PLAN, **(plan or {})}), out, chosen)


async def test_the_run_is_that_of_one_process(workshop: Workshop, ray: LocalRay, tmp_path: Path):
    model = Slow()
    workshop.plug("one", model)
    await workshop.run("whole", **PLAN)
    once = Counter(model.asked)
    model.asked.clear()

    progress = await run(tmp_path / "shared")

    assert (progress.done, progress.total) == (2 * SIZE, 2 * SIZE)
    assert progress.spent.calls == sum(once.values())
    assert model.asked == once
    for table in ("outcomes", "metrics", "effects"):
        assert workshop.exported("shared", table) == workshop.exported("whole", table)
    assert not ray.alive
    store = Store(tmp_path / "shared")
    assert store.get("shard") is None
    assert sum(store.usage().values(), Usage()).calls == sum(once.values())


@pytest.mark.parametrize("seed", range(4))
async def test_killed_workers_repeat_only_their_calls_in_flight(
    workshop: Workshop, ray: LocalRay, tmp_path: Path, seed: int
):
    model = Slow()
    workshop.plug("one", model)
    await workshop.run("whole", **PLAN)
    once = Counter(model.asked)
    model.asked.clear()
    luck = random.Random(seed)
    in_flight = 0

    async def killing() -> None:
        nonlocal in_flight
        for _ in range(4):
            await model.has_been_asked(sum(model.asked.values()) + luck.randint(1, 40))
            if ray.alive:
                in_flight += 8  # the samples that a worker has under way at a concurrency of 4
                luck.choice(ray.alive).die()

    killer = asyncio.create_task(killing())
    await run(tmp_path / "shared")
    killer.cancel()

    assert workshop.exported("shared") == workshop.exported("whole")
    said = [{**row, "generation": None} for row in workshop.rows("shared", "turns")]
    assert said == [{**row, "generation": None} for row in workshop.rows("whole", "turns")]
    assert set(model.asked) == set(once)
    assert sum((model.asked - once).values()) <= in_flight


async def test_a_run_that_was_stopped_goes_on_with_other_workers_or_none(
    workshop: Workshop, ray: LocalRay, tmp_path: Path
):
    model = Slow()
    workshop.plug("one", model)
    await workshop.run("whole", **PLAN)
    out = tmp_path / "shared"
    first = asyncio.create_task(run(out))
    await model.has_been_asked(150)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not ray.alive

    await run(out, workers=2, budget=Limits(calls=20 + 150), resume=True)
    await run(out, workers=None, resume=True)

    assert workshop.exported("shared") == workshop.exported("whole")


async def test_the_budget_is_of_all_workers_together(workshop: Workshop, ray: LocalRay, tmp_path: Path):
    model = Slow()
    workshop.plug("one", model)

    progress = await run(tmp_path / "some", budget=Limits(calls=31))
    assert progress.stopped == "the workers have used up their shares of the budget"
    assert sum(model.asked.values()) == 30

    progress = await run(tmp_path / "some", budget=Limits(calls=41), resume=True)
    assert 36 <= sum(model.asked.values()) <= 41


async def test_a_worker_that_cannot_work_ends_the_run_in_its_words(
    workshop: Workshop, ray: LocalRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    workshop.model(lambda _messages, _params: EndpointError("The endpoint wants another key.", permanent=True))
    with pytest.raises(EndpointError, match="wants another key"):
        await run(tmp_path / "shared")
    assert not (tmp_path / "shared").exists()
    assert not ray.alive

    monkeypatch.setattr(cluster, "code_hash", lambda: "another")
    with pytest.raises(PlanError, match="other code of Evenhand"):
        await run(tmp_path / "shared")


async def test_a_worker_that_dies_at_once_again_and_again_ends_the_run(
    workshop: Workshop, ray: LocalRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    workshop.plug("one", Slow())
    monkeypatch.setattr(cluster, "_MOST_DEATHS", 3)
    begin = cluster.Worker.begin

    async def die(self: Any, settings: Settings) -> None:
        await begin(self, settings)
        next(actor for actor in ray.actors if actor.instance is self).die()

    monkeypatch.setattr(cluster.Worker, "begin", die)
    with pytest.raises(EndpointError, match="died 3 times without a result"):
        await run(tmp_path / "shared")


async def test_what_cannot_be_shared_is_refused_before_ray_is_started(workshop: Workshop, tmp_path: Path):
    workshop.plug("one", Slow())
    with pytest.raises(UsageError, match="passed as objects"):
        await run(tmp_path / "a", ready={"stub/one": Slow()})
    with pytest.raises(UsageError, match="either --workers, or ray/ models"):
        await run(tmp_path / "b", plan={"models": ["ray/fake/B"]})
    with pytest.raises(UsageError, match="--on ray"):
        await run(tmp_path / "c", on=None)
    with pytest.raises(UsageError, match="ray or ray://HOST:PORT"):
        set_address("slurm")
