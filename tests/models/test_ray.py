"""Models on Ray: replies as of one process, replicas that die are replaced, and each request is answered once."""

import asyncio
import random
from typing import Any

import pytest

from evenhand.core.errors import EndpointError, ModelError, UsageError
from evenhand.core.types import Completion, Generation, Message, Params
from evenhand.models import ray as ray_models
from evenhand.models.base import Model, ModelOptions
from evenhand.models.fake import FunctionModel
from evenhand.models.load import load_model
from evenhand.models.ray import RayModel
from evenhand.runs.plan import make_plan
from support.local_ray import LocalRay


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> LocalRay:
    made = LocalRay()
    monkeypatch.setattr(ray_models, "connect", lambda: made)
    return made


class Engine(Model):
    """Answers with the question and its seed after a while; it computes so many at a time, and dies of some."""

    spec = "fake/engine"
    free = True
    slots = 4

    def __init__(self, ray: LocalRay, deadly: str = "") -> None:
        self._ray, self._deadly = ray, deadly
        self.most = self.now = 0

    async def generate(self, messages: Any, params: Params) -> Generation:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.005)
        if messages[-1].content == self._deadly:
            next(actor for actor in self._ray.actors if actor.instance._model is self).die()
            await asyncio.sleep(60)
        self.now -= 1
        return Generation((Completion(f"{messages[-1].content} {params.seed}"),), self.spec)


def loaded(ray: LocalRay, replicas: int, deadly: str = "") -> RayModel:
    return RayModel("fake/engine", ModelOptions(extra={"replicas": replicas}), lambda: Engine(ray, deadly))


async def ask(model: Model, count: int) -> list[str]:
    asked = (model.generate([Message("user", f"q{i}")], Params(seed=i)) for i in range(count))
    return [reply.text for reply in await asyncio.gather(*asked)]


EXPECTED = [f"q{i} {i}" for i in range(100)]


async def test_all_replicas_work_and_none_holds_more_than_it_computes(ray: LocalRay):
    async with loaded(ray, 3) as model:
        assert model.slots == 12
        assert model.endpoints == 3
        assert await ask(model, 100) == EXPECTED
        assert [actor.instance._model.most for actor in ray.actors] == [4, 4, 4]
        assert ray.calls.count("submit") < 100, "requests are sent in batches"
    assert not ray.alive


@pytest.mark.parametrize("seed", range(3))
async def test_requests_of_dead_replicas_are_sent_again(ray: LocalRay, seed: int):
    luck = random.Random(seed)

    async def killing() -> None:
        for _ in range(3):
            await asyncio.sleep(luck.uniform(0.01, 0.03))
            luck.choice(ray.alive).die()

    async with loaded(ray, 3) as model:
        killer = asyncio.create_task(killing())
        assert await ask(model, 100) == EXPECTED
        killer.cancel()
        died = len(ray.actors) - 3
        assert died == 0 or any("died" in note for note in model.notes())


async def test_a_request_that_ends_every_replica_fails_alone(ray: LocalRay):
    async with loaded(ray, 2, deadly="q7") as model:
        asked = (model.generate([Message("user", f"q{i}")], Params(seed=i)) for i in range(20))
        found = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(found[7], ModelError)
    assert "3 replicas died with this request" in str(found[7])
    others = [each.text for each in found if isinstance(each, Generation)]
    assert others == [text for text in EXPECTED[:20] if text != "q7 7"]


async def test_replicas_that_never_work_fail_all_requests(ray: LocalRay, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ray_models, "_MOST_STARTS", 2)
    async with loaded(ray, 1, deadly="q0") as model:
        with pytest.raises(EndpointError, match="The replicas of ray/fake/engine die"):
            await ask(model, 1)
        with pytest.raises(EndpointError):
            await ask(model, 3)


async def test_errors_of_the_engine_arrive_as_they_are(ray: LocalRay):
    replies = {"a": ModelError("too long"), "b": UsageError("no such schema"), "c": ValueError("a bug")}

    def reply(messages: Any, _params: Params) -> Any:
        return replies[messages[-1].content]

    async with RayModel("fake/engine", ModelOptions(), lambda: FunctionModel(reply)) as model:
        for text, kind, words in [
            ("a", ModelError, "too long"),
            ("b", UsageError, "schema"),
            ("c", ModelError, "a bug"),
        ]:
            with pytest.raises(kind, match=words):
                await model.generate([Message("user", text)], Params())


async def test_an_engine_that_does_not_load_is_reported_at_once(ray: LocalRay):
    def load() -> Model:
        raise UsageError("There are no such weights.")

    with pytest.raises(UsageError, match="no such weights"):
        RayModel("fake/engine", ModelOptions(), load)
    assert not ray.alive


async def test_a_cancelled_request_is_not_answered_and_holds_nobody_up(ray: LocalRay):
    async with loaded(ray, 1) as model:
        task = asyncio.create_task(model.generate([Message("user", "never mind")], Params()))
        await asyncio.sleep(0.004)
        task.cancel()
        assert await ask(model, 10) == EXPECTED[:10]


async def test_a_spec_on_ray_is_the_same_model(ray: LocalRay):
    async with load_model("ray/fake/B?replicas=2") as model, load_model("fake/B") as alone:
        assert model.fingerprint() == alone.fingerprint()
        assert (await model.generate([], Params())).model == "fake/B"
    plans = [make_plan({"models": [spec]}) for spec in ("hf/x", "ray/hf/x", "ray/hf/x?replicas=8&gpus_per_replica=1")]
    assert plans[0].essence() == plans[1].essence() == plans[2].essence()
    assert plans[0].essence() != make_plan({"models": ["ray/hf/x?batch=4"]}).essence()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("ray/openai/x", "several endpoints are a pool"),
        ("ray/call/module:function", "not call/"),
        ("ray/ray/hf/x", "not ray/"),
        ("ray/fake/B?replicas=0", "replicas must be a whole number from 1"),
        ("ray/fake/B?replicas=1.5", "replicas must be a whole number from 1"),
        ("ray/fake/B?gpus_per_replica=2", "needs 2 GPUs, and this machine has 0"),
        ("ray/fake/B?cpus_per_replica=99", "needs 99 CPU cores, and this machine has 8"),
        ("ray/hf", "is not a model spec"),
    ],
)
async def test_what_ray_cannot_run_is_refused(ray: LocalRay, spec: str, words: str):
    with pytest.raises(UsageError, match=words):
        load_model(spec)
