"""Prices and budgets: spending is bounded before it happens, whatever runs side by side."""

import asyncio
from dataclasses import replace

import pytest

from evenhand.core.errors import BudgetExhausted, EndpointError, UsageError
from evenhand.core.types import Completion, Generation, Message, Params, Usage
from evenhand.models.base import Model, ModelOptions
from evenhand.models.budget import Budget, Limits, MeteredModel, Price
from evenhand.models.fake import FunctionModel
from evenhand.models.reasoning import ReasoningModel
from support.fixtures import Connect, Serve
from support.guard_server import until
from support.server import Reply, chat, completion, cut, outlast, raw, refuse, reply_with

QUESTION = (Message("user", "x" * 400),)
"""About 100 tokens."""


def test_a_larger_budget_is_larger_than_nothing():
    assert Limits(calls=0, tokens=5, money=0.0).doubled().texts() == ["$1", "100 calls", "10 tokens"]


@pytest.mark.parametrize(
    ("texts", "limits"),
    [
        (["500 calls"], Limits(calls=500)),
        (["500calls"], Limits(calls=500)),
        (["1 call"], Limits(calls=1)),
        (["2k calls"], Limits(calls=2000)),
        (["2M tokens"], Limits(tokens=2_000_000)),
        (["1.5k tokens"], Limits(tokens=1500)),
        (["$5"], Limits(money=5.0)),
        (["$0.25"], Limits(money=0.25)),
        (["5 usd"], Limits(money=5.0)),
        (["5USD"], Limits(money=5.0)),
        ([" $5 ", "10 calls", "1M tokens"], Limits(calls=10, tokens=1_000_000, money=5.0)),
        ([], Limits()),
    ],
)
def test_budgets_are_written_in_words(texts: list[str], limits: Limits):
    assert Limits.parse(texts) == limits


@pytest.mark.parametrize("text", ["", "5", "$", "$-1", "five calls", "5 euros", "$1.2.3", ".", "1e3 calls", "-5 calls"])
def test_a_text_that_is_no_budget_is_refused_with_examples(text: str):
    with pytest.raises(UsageError, match=r"is not a budget; write e\.g\. '\$5', '500 calls' or '2M tokens'"):
        Limits.parse([text])


def test_limits_leave_the_rest_for_the_next_run():
    limits = Limits(calls=10, tokens=500, money=1.0)

    assert limits.less(Usage(4, 200, 100, cost=0.25)) == Limits(6, 200, 0.75)
    assert limits.less(Usage(99, 999, 999, cost=9.0)) == Limits(0, 0, 0.0)
    assert Limits().less(Usage(4, 200, 100)) == Limits()


def metered(limits: Limits, price: Price | None = None) -> tuple[MeteredModel, Budget, FunctionModel]:
    inner = FunctionModel(lambda *_: "B")
    budget = Budget(limits)
    return MeteredModel(inner, price, budget), budget, inner


async def test_a_call_is_priced():
    model, budget, _ = metered(Limits(), Price(input=2.0, output=10.0))

    generation = await model.generate(QUESTION, Params())

    assert generation.usage.cost == pytest.approx((100 * 2 + 1 * 10) / 1e6)
    assert budget.spent == generation.usage


async def test_a_free_model_costs_nothing():
    model, _, _ = metered(Limits(money=0.0))

    assert (await model.generate(QUESTION, Params())).usage.cost == 0.0


async def test_without_a_price_the_cost_is_unknown_and_not_zero():
    inner = FunctionModel(lambda *_: "B")
    inner.free = False  # pyright: ignore

    generation = await MeteredModel(inner, None, Budget(Limits())).generate(QUESTION, Params())

    assert generation.usage.cost is None


def test_a_budget_in_money_needs_a_price_before_anything_is_spent():
    inner = FunctionModel(lambda *_: "B", spec="openai/gpt")
    inner.free = False  # pyright: ignore

    with pytest.raises(UsageError, match="pass --price openai/gpt=INPUT/OUTPUT"):
        MeteredModel(inner, None, Budget(Limits(money=1.0)))

    assert inner.requests == []


async def test_earlier_calls_of_unknown_price_cannot_be_counted_in_money():
    model, budget, inner = metered(Limits(money=1.0), Price(1, 1))
    budget.spent = Usage(calls=1, cost=None)

    with pytest.raises(UsageError, match="whose price is not known"):
        await model.generate(QUESTION, Params())

    assert inner.requests == []


async def test_the_call_that_would_exceed_the_calls_is_not_made():
    model, budget, inner = metered(Limits(calls=2))
    for _ in range(2):
        await model.generate(QUESTION, Params())

    with pytest.raises(BudgetExhausted, match="could exceed the budget of 2 calls"):
        await model.generate(QUESTION, Params())

    assert (len(inner.requests), budget.spent.calls) == (2, 2)


async def test_the_call_that_could_exceed_the_tokens_is_not_made():
    model, _, inner = metered(Limits(tokens=250))

    with pytest.raises(BudgetExhausted, match="250 tokens"):
        await model.generate(QUESTION, Params(max_tokens=200))
    await model.generate(QUESTION, Params(max_tokens=10))

    assert len(inner.requests) == 1


async def test_the_call_that_could_exceed_the_money_is_not_made():
    model, _, inner = metered(Limits(money=0.001), Price(input=1.0, output=10.0))

    with pytest.raises(BudgetExhausted, match=r"0\.001 money"):
        await model.generate(QUESTION, Params(max_tokens=100))
    await model.generate(QUESTION, Params(max_tokens=50))

    assert len(inner.requests) == 1


async def test_all_of_several_replies_are_set_aside():
    model, _, inner = metered(Limits(tokens=250))

    with pytest.raises(BudgetExhausted):
        await model.generate(QUESTION, Params(max_tokens=10, n=20))

    assert inner.requests == []


class Gated(Model):
    """Holds its calls until the test lets them go; each uses 110 tokens."""

    spec = "fake/gated"
    free = True

    def __init__(self) -> None:
        self.calls = 0
        self.most = 0
        self.in_flight = 0
        self.gate = asyncio.Event()

    async def generate(self, messages: object, params: object) -> Generation:
        self.calls += 1
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await self.gate.wait()
        finally:
            self.in_flight -= 1
        return Generation((Completion("B"),), self.spec, Usage(calls=1, prompt_tokens=100, completion_tokens=10))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_under_way_count_as_spent():
    inner = Gated()
    model = MeteredModel(inner, None, Budget(Limits(calls=3)))
    calls = [asyncio.create_task(model.generate(QUESTION, Params())) for _ in range(10)]
    await settle()
    in_flight = inner.in_flight

    inner.gate.set()
    results = await asyncio.gather(*calls, return_exceptions=True)

    assert (in_flight, inner.calls) == (3, 3)
    assert sum(isinstance(each, BudgetExhausted) for each in results) == 7


async def test_what_was_set_aside_and_not_used_is_used_by_calls_that_wait_for_it():
    inner = Gated()
    budget = Budget(Limits(tokens=2000))
    model = MeteredModel(inner, None, budget)
    calls = [asyncio.create_task(model.generate(QUESTION, Params(max_tokens=500))) for _ in range(10)]
    await settle()
    in_flight = inner.in_flight

    inner.gate.set()
    await asyncio.gather(*calls)

    # Each sets 604 tokens aside and uses 110: only three may run at once, and yet there is room for all ten.
    assert in_flight == 3
    assert budget.spent.tokens == 1100


async def test_a_failed_call_gives_back_what_was_set_aside():
    inner = FunctionModel(lambda *_: EndpointError("no") if len(inner.requests) < 3 else "B")
    budget = Budget(Limits(calls=1))
    model = MeteredModel(inner, None, budget)

    for _ in range(2):
        with pytest.raises(EndpointError):
            await model.generate(QUESTION, Params())
    await model.generate(QUESTION, Params())

    assert budget.spent.calls == 1


@pytest.mark.parametrize(
    "unanswered",
    [outlast(3600), cut(), raw(b'{"choices": [{"mess'), reply_with({"choices": []})],
    ids=["too late", "broken off", "broken JSON", "no choices"],
)
async def test_an_attempt_that_the_endpoint_bills_is_charged_when_it_is_made_again(
    serve: Serve, connect: Connect, waits: list[float], unanswered: Reply
):
    server = await serve(unanswered, unanswered, chat("B"))
    budget = Budget(Limits(tokens=10_000))

    generation = await MeteredModel(connect(server), Price(1, 1), budget).generate(QUESTION, Params())

    assert budget.spent == generation.usage
    assert (generation.usage.calls, generation.usage.retries) == (1, 2)
    assert generation.usage.prompt_tokens == 2 * 104 + 20
    assert generation.usage.cost == pytest.approx((2 * 104 + 25) / 1e6)


@pytest.mark.parametrize("fault", [refuse("no", status=500), refuse("no", status=429), raw(b"<html>Down for repair.")])
async def test_an_attempt_that_no_endpoint_bills_is_not_charged(
    serve: Serve, connect: Connect, waits: list[float], fault: Reply
):
    server = await serve(chat("B"), fault, chat("B"))
    budget = Budget(Limits(tokens=10_000))
    model = MeteredModel(connect(server), None, budget)

    await model.generate(QUESTION, Params())
    await model.generate(QUESTION, Params())

    assert len(server.requests) == 3
    assert budget.spent.tokens == 2 * 25


async def test_a_call_that_is_given_up_costs_all_its_prompts(serve: Serve, connect: Connect, waits: list[float]):
    server = await serve(outlast(3600))
    budget = Budget(Limits(tokens=10_000))

    with pytest.raises(EndpointError, match="in time") as failed:
        await MeteredModel(connect(server, retries=2), Price(1, 1), budget).generate(QUESTION, Params())

    assert failed.value.spent == budget.spent
    assert (budget.spent.calls, budget.spent.tokens) == (1, 3 * 104)


async def test_no_attempt_is_made_that_could_exceed_the_budget(serve: Serve, connect: Connect, waits: list[float]):
    server = await serve(outlast(3600))
    budget = Budget(Limits(tokens=300))
    model = MeteredModel(connect(server, retries=6), Price(1, 1), budget)

    with pytest.raises(BudgetExhausted) as ended:
        await model.generate(QUESTION, Params(max_tokens=10))

    assert len(server.requests) == 2
    assert budget.spent.tokens == 2 * 104
    assert ended.value.spent == budget.spent


async def test_an_attempt_waits_for_what_others_have_set_aside(serve: Serve, connect: Connect, waits: list[float]):
    server, slow = await serve(outlast(3600), chat("B")), Gated()
    budget = Budget(Limits(tokens=450))
    model, other = MeteredModel(connect(server), None, budget), MeteredModel(slow, None, budget)
    waiting = asyncio.create_task(other.generate(QUESTION, Params(max_tokens=100)))
    await settle()

    asking = asyncio.create_task(model.generate(QUESTION, Params(max_tokens=100)))
    await until(lambda: budget.spent.tokens == 104)
    await settle()
    assert len(server.requests) == 1
    slow.gate.set()
    await waiting

    assert (await asking).text == "B"
    assert budget.spent.tokens == 110 + 104 + 25


async def test_requests_of_one_call_that_are_made_again_do_not_wait_for_each_other(
    serve: Serve, connect: Connect, waits: list[float]
):
    """Both wait for another call; then there is room for one reservation, which all requests of a call share."""
    server, slow = await serve(chat("A"), cut(), cut(), chat("B")), Gated()
    budget = Budget(Limits(tokens=500))
    model, other = MeteredModel(connect(server), None, budget), MeteredModel(slow, None, budget)
    waiting = asyncio.create_task(other.generate(QUESTION, Params(max_tokens=200)))
    await settle()

    asking = asyncio.create_task(model.generate(QUESTION, Params(max_tokens=10, n=3)))
    await until(lambda: budget.spent.tokens == 2 * 104)
    slow.gate.set()
    await waiting

    async with asyncio.timeout(10):
        assert [each.text for each in (await asking).completions] == ["A", "B", "B"]
    assert budget.spent.tokens == 110 + 2 * 104 + 3 * 25


async def test_the_first_request_of_a_call_whose_second_one_fails_is_charged(serve: Serve, connect: Connect):
    server = await serve(reply_with(completion("", finish="length")), refuse("no", status=500))
    budget = Budget(Limits())
    model = MeteredModel(ReasoningModel(connect(server, retries=0), ModelOptions()), None, budget)

    with pytest.raises(EndpointError, match="500"):
        await model.generate(QUESTION, Params(max_tokens=5))

    assert (budget.spent.calls, budget.spent.tokens) == (1, 25)


async def test_the_replies_that_came_are_charged_if_one_of_several_fails(serve: Serve, connect: Connect):
    server = await serve(chat("A"), chat("B"), refuse("no", status=500))
    budget = Budget(Limits())

    with pytest.raises(EndpointError, match="500"):
        await MeteredModel(connect(server, retries=0), None, budget).generate(QUESTION, Params(n=3))

    assert (budget.spent.calls, budget.spent.tokens) == (2, 50)


async def test_a_cancelled_call_gives_back_what_was_set_aside():
    inner = Gated()
    model = MeteredModel(inner, None, Budget(Limits(calls=1)))
    first = asyncio.create_task(model.generate(QUESTION, Params()))
    second = asyncio.create_task(model.generate(QUESTION, Params()))
    await settle()

    first.cancel()
    inner.gate.set()

    assert (await second).text == "B"


async def test_a_call_that_waits_for_room_can_be_cancelled():
    inner = Gated()
    model = MeteredModel(inner, None, Budget(Limits(calls=1)))
    first, second = (asyncio.create_task(model.generate(QUESTION, Params())) for _ in range(2))
    await settle()

    second.cancel()
    inner.gate.set()

    assert (await first).text == "B"
    assert inner.calls == 1


async def test_tokens_that_a_server_does_not_report_are_estimated():
    silent = Generation((Completion("y" * 40),), "fake/silent", Usage(calls=1))

    class Silent(Model):
        spec = "fake/silent"
        free = True

        async def generate(self, messages: object, params: object) -> Generation:
            return silent

    budget = Budget(Limits(tokens=250))
    model = MeteredModel(Silent(), None, budget)

    await model.generate(QUESTION, Params(max_tokens=10))
    await model.generate(QUESTION, Params(max_tokens=10))
    with pytest.raises(BudgetExhausted):
        await model.generate(QUESTION, Params(max_tokens=10))

    assert budget.spent.tokens == 220


async def test_what_was_spent_before_counts():
    budget = Budget(Limits(calls=5), Usage(calls=5))

    with pytest.raises(BudgetExhausted):
        await MeteredModel(FunctionModel(lambda *_: "B"), None, budget).generate(QUESTION, Params())


def test_usage_adds_up_and_unknown_money_stays_unknown():
    one = Usage(calls=1, prompt_tokens=2, completion_tokens=3, cached_calls=4, retries=5, cost=0.5)

    assert one + one == Usage(2, 4, 6, 8, 10, 1.0)
    assert (one + replace(one, cost=None)).cost is None
    assert one.tokens == 5
