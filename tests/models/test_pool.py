"""A pool of endpoints: calls are spread, repeated elsewhere, and endpoints that fail rest."""

import asyncio
import socket
from collections.abc import Sequence

import pytest

from evenhand.core.errors import BadResponseError, EndpointError
from evenhand.core.http import RefusedError
from evenhand.core.types import Generation, Message, Params
from evenhand.models.base import Model, ModelOptions
from evenhand.models.fake import FunctionModel, Reply
from evenhand.models.load import load_model
from evenhand.models.pool import PoolModel
from support.fixtures import Serve
from support.server import chat, raw, refuse

QUESTION = [Message("user", "Hello?")]


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Waiting(Model):
    """A model whose calls end when the test says so."""

    spec = "stub/waiting"

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = 0
        self.end = asyncio.Event()
        self._error = error

    async def generate(self, messages: Sequence[Message], params: Params) -> Generation:
        del messages, params
        self.calls += 1
        await self.end.wait()
        if self._error:
            raise self._error
        return Generation((), self.spec)


def failing(*replies: Reply) -> FunctionModel:
    """A model that gives these replies in turn, the last one for ever."""
    left = list(replies)
    return FunctionModel(lambda _messages, _params: left.pop(0) if len(left) > 1 else left[0])


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


async def test_several_addresses_are_a_pool_whose_calls_are_spread(serve: Serve):
    first, second = await serve(chat("A")), await serve(chat("B"))

    async with load_model(f"openai/m?base_url={second.url},{first.url}") as model:
        texts = [(await model.generate(QUESTION, Params())).text for _ in range(4)]

    assert sorted(texts) == ["A", "A", "B", "B"]
    assert model.endpoints == 2
    assert model.fingerprint()["endpoint"] == sorted(f"{each.url}/chat/completions" for each in (first, second))
    assert model.features == {"logprobs", "schema", "seed", "tools"}


async def test_repeated_addresses_in_a_spec_are_a_pool_too(serve: Serve):
    first, second = await serve(chat("A")), await serve(chat("B"))

    async with load_model(f"openai/m?base_url={first.url}&base_url={second.url}") as model:
        assert {(await model.generate(QUESTION, Params())).text for _ in range(2)} == {"A", "B"}


async def test_the_least_busy_endpoint_gets_the_call():
    members = [Waiting(), Waiting(), Waiting()]
    pool = PoolModel(members)

    calls = [asyncio.create_task(pool.generate(QUESTION, Params())) for _ in range(4)]
    await asyncio.sleep(0)
    members[2].end.set()
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    await pool.generate(QUESTION, Params())

    assert [member.calls for member in members] == [2, 1, 2]
    for member in members:
        member.end.set()
    await asyncio.gather(*calls)


@pytest.mark.parametrize("fault", [raw(b"down", 500), raw(b"", 429), refuse("no", status=401), raw(b"<p>hi</p>")])
async def test_a_call_that_fails_is_repeated_elsewhere(serve: Serve, fault: object):
    bad, good = await serve(fault), await serve(chat("B"))

    async with load_model(f"openai/m?base_url={bad.url},{good.url}") as model:
        replies = [await model.generate(QUESTION, Params()) for _ in range(6)]

    assert {reply.text for reply in replies} == {"B"}
    assert len(bad.requests) == 1  # it rests
    assert sum(reply.usage.retries for reply in replies) == 1


async def test_an_endpoint_that_nobody_listens_at_is_no_loss(serve: Serve):
    good = await serve(chat("B"))

    async with load_model(f"openai/m?base_url={closed_port()},{good.url}") as model:
        assert [(await model.generate(QUESTION, Params())).text for _ in range(3)] == ["B"] * 3


async def test_the_rest_doubles_up_to_a_minute_and_ends_with_a_success():
    clock = Clock()
    down = EndpointError("down")
    pool = PoolModel([failing(*[down] * 8, "fine", down, "fine")], retries=20, sleep=clock.sleep, clock=clock)

    await pool.generate(QUESTION, Params())
    await pool.generate(QUESTION, Params())

    assert clock.slept == [1, 2, 4, 8, 16, 32, 60, 60, 1]


async def test_calls_that_fail_together_make_one_rest():
    clock = Clock()
    bad, good = Waiting(EndpointError("down")), Waiting()
    pool = PoolModel([bad, good], sleep=clock.sleep, clock=clock)

    calls = [asyncio.create_task(pool.generate(QUESTION, Params())) for _ in range(8)]
    await asyncio.sleep(0)
    bad.end.set()
    await asyncio.sleep(0)
    good.end.set()
    await asyncio.gather(*calls)
    clock.now = 1.0
    await pool.generate(QUESTION, Params())

    assert (bad.calls, good.calls) == (4 + 1, 8 + 1)  # tried again after one second, not after 2 ** 3


async def test_where_all_fail_the_commonest_error_is_told(serve: Serve):
    one, two, three = [await serve(refuse("wrong key", status=status)) for status in (401, 404, 401)]

    async with load_model(f"openai/m?base_url={one.url},{two.url},{three.url}") as model:
        with pytest.raises(EndpointError, match=r"3 of the 3 endpoints of openai/m fail.*answered 401") as caught:
            await model.generate(QUESTION, Params())

    assert caught.value.permanent
    assert [len(each.requests) for each in (one, two, three)] == [1, 1, 1]


async def test_a_pool_gives_up_after_its_retries():
    clock = Clock()
    members = [failing(BadResponseError("odd")), failing(EndpointError("down")), failing(EndpointError("down"))]
    pool = PoolModel(members, retries=2, sleep=clock.sleep, clock=clock)

    with pytest.raises(EndpointError, match="endpoints of fake/function fail") as caught:
        await pool.generate(QUESTION, Params())

    assert sum(len(member.requests) for member in members) == 3 + 2
    assert str(caught.value).endswith("down") and not caught.value.permanent


async def test_a_request_that_an_endpoint_refuses_is_not_repeated(serve: Serve):
    servers = [await serve(refuse("too long", status=413)) for _ in range(2)]

    async with load_model("openai/m", ModelOptions(base_url=",".join(each.url for each in servers))) as model:
        with pytest.raises(RefusedError, match="too long"):
            await model.generate(QUESTION, Params())

    assert sum(len(each.requests) for each in servers) == 1


async def test_a_feature_that_one_endpoint_lacks_is_no_feature_of_the_pool(serve: Serve):
    lacking, whole = await serve(refuse("'seed' is not supported", param="seed"), chat("A")), await serve(chat("B"))

    async with load_model(f"openai/m?base_url={lacking.url},{whole.url}") as model:
        for _ in range(2):
            await model.generate(QUESTION, Params(seed=1))

    assert "seed" not in model.features and "schema" in model.features
    assert [caveat for caveat in model.caveats() if "does not support seed" in caveat]
    async with load_model(f"openai/m?base_url={lacking.url},{whole.url}") as again:
        again.recall(model.learned())
        assert "seed" not in again.features
