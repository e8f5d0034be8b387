"""Budgets, places and rates of keys, with real requests: one server, and two that share their state."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from aiohttp import web

from evenhand.core.errors import PlanError
from evenhand.server import page as feed
from evenhand.server.config import make_config
from evenhand.server.server import Server
from evenhand.web.keys import new_key
from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, Served, route, streamed, until
from support.redis_server import redis_server
from support.server import Reply, chat, completion, cut, hang, raw, reply_with

KEY, HASH = new_key()
HEADERS = {"Authorization": f"Bearer {KEY}"}
PRICE = {"input": 1000, "output": 1000}


def team(**fields: Any) -> dict[str, Any]:
    return {"team": {"hash": HASH, **fields}}


def tokens(amount: int, per: str = "day") -> dict[str, Any]:
    return {"tokens": amount, "per": per}


def costing(text: str, tokens: int, go: asyncio.Event | None = None) -> Reply:
    """A reply that costs so many tokens, and waits for `go`."""
    reply = reply_with(completion(text) | {"usage": {"prompt_tokens": tokens - 1, "completion_tokens": 1}})

    async def later(request: web.Request) -> web.StreamResponse:
        if go is not None:
            await go.wait()
        return await reply(request)

    return later


async def spent(server: Served) -> SimpleNamespace:
    """What the key has spent today, when nothing is in flight."""
    await until(lambda: not server.server.in_flight)
    found = (await server.server.state.spent()).get("team", {}).get("day")
    return SimpleNamespace(tokens=found.tokens if found else 0, money=found.money if found else 0)


@asynccontextmanager
async def two_servers(folder: Path, behind: str, place: str, **key: Any) -> AsyncGenerator[list[Served]]:
    """Two servers with one state."""
    with redis_server(folder) if place == "redis" else nullcontext(str(folder / "state.sqlite")) as where:
        state = {place: where}
        config = {"routes": {"guarded": route(behind)}, "keys": team(**key), "state": state}
        servers = [await Served(config).start() for _ in range(2)]
        try:
            yield servers
        finally:
            for each in servers:
                await each.stop()


async def test_a_key_over_its_budget_is_told_when_it_renews(serve: Serve, guarding: Guarding):
    behind = await serve(costing(CLEAN, 100))
    guard = await guarding(route(behind.url), keys=team(budget=tokens(150)))

    answers = [await guard.chat(headers=HEADERS) for _ in range(3)]

    assert [each.status for each in answers] == [200, 200, 429]
    error = answers[2].body["error"]
    assert (error["type"], error["code"]) == ("insufficient_quota", "insufficient_quota")
    assert error["message"].startswith("This key has used up its budget of 150 tokens a day. It renews on 20")
    assert 0 < int(answers[2].headers["Retry-After"]) <= 86_400
    assert answers[2].headers["x-should-retry"] == "false"
    assert answers[0].headers["x-ratelimit-limit-tokens"] == "150"
    assert answers[2].headers["x-ratelimit-remaining-tokens"] == "0"
    assert (await spent(guard)).tokens == 200
    assert len(behind.requests) == 2


async def test_openais_client_reads_the_headers_and_does_not_repeat_a_request_over_budget(
    serve: Serve, guarding: Guarding
):
    behind = await serve(costing(CLEAN, 100))
    guard = await guarding(route(behind.url), keys=team(budget=tokens(100, "total"), per_minute=60))
    client = openai.AsyncOpenAI(base_url=guard.url, api_key=KEY)

    async def ask() -> Any:
        return await client.chat.completions.with_raw_response.create(
            model="guarded", messages=[{"role": "user", "content": "Hello?"}]
        )

    first = await ask()
    with pytest.raises(openai.RateLimitError, match="does not renew") as caught:
        await ask()
    await client.close()

    assert first.headers["x-ratelimit-limit-requests"] == "60"
    assert first.headers["x-ratelimit-remaining-requests"] == "9"
    assert first.headers["x-ratelimit-reset-requests"] == "1s"
    assert caught.value.code == "insufficient_quota"
    assert guard.server.limits.quotas.turned_away == 1


async def test_calls_of_the_method_and_the_judge_count(serve: Serve, guarding: Guarding):
    behind = await serve(costing(RUDE, 20))
    judge = await serve(costing('{"harm": 0, "harm_reason": ""}', 5))
    asked = route(
        behind.url,
        judge="openai/judge",
        judge_base_url=judge.url,
        evaluators=["toxicity", "bias"],
        price=PRICE,
        judge_price={"input": 2000, "output": 2000},
    )
    guard = await guarding(asked, keys=team(budget={"money": 100, "per": "day"}))

    answer = await guard.chat(headers=HEADERS)

    assert answer.status == 200
    assert len(behind.requests) > 1 and len(judge.requests) > 0
    used = await spent(guard)
    assert used.tokens == 20 * len(behind.requests) + 5 * len(judge.requests)
    assert used.money == pytest.approx(0.02 * len(behind.requests) + 0.01 * len(judge.requests))


@pytest.mark.parametrize("method", ["stardtox:performance=false", "default"])
async def test_streams_count(serve: Serve, guarding: Guarding, method: str):
    behind = await serve(streamed([CLEAN]))
    guard = await guarding(route(behind.url, method=method, price=PRICE), keys=team(budget=tokens(1000)))

    answer = await guard.chat(headers=HEADERS, stream=True)

    assert answer.headers["x-ratelimit-limit-tokens"] == "1000"
    used = await spent(guard)
    assert (used.tokens, used.money) == (25, pytest.approx(0.025))


async def test_a_request_that_fails_after_some_calls_counts(serve: Serve, guarding: Guarding):
    behind = await serve(streamed([CLEAN + " ", "And"], fail=True))
    guard = await guarding(route(behind.url), keys=team(budget=tokens(1000)))

    await guard.chat(headers=HEADERS, stream=True)

    assert (await spent(guard)).tokens > 0


@pytest.mark.parametrize("fields", [{}, {"evaluators": [], "method": "default", "policy": "flag"}])
async def test_a_client_that_leaves_pays_for_the_prompt(serve: Serve, guarding: Guarding, fields: dict[str, Any]):
    behind = await serve(hang())
    guard = await guarding(route(behind.url, **fields), keys=team(budget=tokens(1000)))

    asking = asyncio.ensure_future(guard.chat("x" * 400, headers=HEADERS))
    await until(lambda: bool(behind.requests))
    asking.cancel()
    await until(lambda: not guard.server.in_flight)

    assert 100 <= (await spent(guard)).tokens < 200


@pytest.mark.parametrize("leaves", [True, False])
async def test_embeddings_that_end_in_vain_cost_their_texts(serve: Serve, guarding: Guarding, leaves: bool):
    behind = await serve(hang())
    guard = await guarding(route(behind.url, timeout=600 if leaves else 0.2), keys=team(budget=tokens(1000)))

    body = {"model": "guarded", "input": "x" * 400}
    asking = asyncio.ensure_future(guard.post("/v1/embeddings", body, headers=HEADERS))
    await until(lambda: bool(behind.requests))
    if leaves:
        asking.cancel()
    await asyncio.wait([asking])

    assert (await spent(guard)).tokens == 101


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fields", [{}, {"evaluators": [], "method": "default", "policy": "flag"}])
async def test_a_call_that_takes_too_long_costs_its_prompt(
    serve: Serve, guarding: Guarding, fields: dict[str, Any], stream: bool
):
    behind = await serve(hang())
    guard = await guarding(route(behind.url, timeout=0.2, **fields), keys=team(budget=tokens(1000)))

    answer = await guard.chat("x" * 400, headers=HEADERS, stream=stream)

    assert answer.status == 504
    assert 100 <= (await spent(guard)).tokens < 110
    assert guard.event.usage.calls == 1


@pytest.mark.parametrize("unread", [cut(), raw(b'{"choices": [{"mess'), reply_with({"choices": []})])
@pytest.mark.parametrize("fields", [{}, {"evaluators": [], "method": "default", "policy": "flag"}])
async def test_an_answer_that_cannot_be_read_costs_its_prompt(
    serve: Serve, guarding: Guarding, fields: dict[str, Any], unread: Reply
):
    behind = await serve(unread)
    guard = await guarding(route(behind.url, retries=0, **fields), keys=team(budget=tokens(1000)))

    answer = await guard.chat("x" * 400, headers=HEADERS)

    assert answer.status == 502
    assert 100 * len(behind.requests) <= (await spent(guard)).tokens < 120 * len(behind.requests)


async def test_a_judge_that_takes_too_long_costs_its_prompt(serve: Serve, guarding: Guarding):
    behind, judge = await serve(costing(CLEAN, 20)), await serve(hang())
    asked = route(behind.url, method="default", judge="openai/judge", judge_base_url=judge.url, evaluators=["bias"])
    guard = await guarding({**asked, "timeout": 0.2, "retries": 0}, keys=team(budget=tokens(10_000)))

    await guard.chat("x" * 400, headers=HEADERS)

    assert len(judge.requests) == 1
    assert guard.event.usage.calls == 2
    assert (await spent(guard)).tokens > 120


@pytest.mark.parametrize("answers", [True, False])
async def test_a_judge_that_is_asked_again_after_a_timeout_costs_its_prompt_again(
    serve: Serve, guarding: Guarding, answers: bool
):
    rated = costing('{"harm": 0, "harm_reason": ""}', 5)
    behind, judge = await serve(costing(CLEAN, 20)), await serve(hang(), rated if answers else hang())
    asked = route(behind.url, method="default", judge="openai/judge", judge_base_url=judge.url, evaluators=["bias"])
    prices = {"price": PRICE, "judge_price": {"input": 2000, "output": 2000}}
    guard = await guarding({**asked, **prices, "timeout": 0.2, "retries": 1}, keys=team(budget=tokens(10_000)))

    await guard.chat("x" * 400, headers=HEADERS)

    assert len(judge.requests) == 2
    assert guard.event.usage.calls == 2  # a repeated attempt is a retry, not a call
    prompt = sum(len(each["content"]) for each in judge.requests[0].body["messages"]) / 4
    used = await spent(guard)
    assert used.tokens == pytest.approx(20 + (prompt + 5 if answers else 2 * prompt), abs=4)
    assert used.money == pytest.approx(0.02 + 0.002 * (used.tokens - 20))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fields", [{}, {"evaluators": [], "method": "default", "policy": "flag"}])
async def test_an_answer_that_comes_at_the_second_attempt_costs_the_prompt_of_the_first(
    serve: Serve, guarding: Guarding, fields: dict[str, Any], stream: bool
):
    answer = streamed([CLEAN]) if stream else costing(CLEAN, 20)
    behind = await serve(hang(), answer)
    guard = await guarding(route(behind.url, timeout=0.2, retries=1, **fields), keys=team(budget=tokens(1000)))

    answered = await guard.chat("x" * 400, headers=HEADERS, stream=stream)

    assert answered.status == 200
    assert len(behind.requests) == 2
    assert 100 <= (await spent(guard)).tokens - (25 if stream else 20) < 110
    assert (guard.event.usage.calls, guard.event.usage.retries) == (1, 1)


async def test_money_is_what_calls_of_known_price_cost(serve: Serve, guarding: Guarding):
    behind = await serve(costing(CLEAN, 100))
    routes = {"guarded": route(behind.url), "priced": route(behind.url, price=PRICE)}
    guard = await guarding(routes=routes, keys=team(budget=tokens(1000)))

    await guard.chat(headers=HEADERS)
    await guard.chat(headers=HEADERS, model="priced")

    assert (await spent(guard)).money == pytest.approx(0.1)


async def test_a_hundred_at_once_cannot_overrun_a_budget(serve: Serve, guarding: Guarding):
    go = asyncio.Event()
    behind = await serve(costing(CLEAN, 600, go))
    guard = await guarding(route(behind.url), keys=team(budget=tokens(2000)))

    asked = [asyncio.ensure_future(guard.chat(headers=HEADERS)) for _ in range(100)]
    await until(lambda: sum(each.done() for each in asked) + len(behind.requests) == 100)
    go.set()
    answers = await asyncio.gather(*asked)

    refused = [each for each in answers if each.status == 429]
    assert len(refused) == 96  # 4 × about 530 tokens are reserved
    assert {each.body["error"]["code"] for each in refused} == {"rate_limit_exceeded"}
    assert "in flight" in refused[0].body["error"]["message"]
    assert (await spent(guard)).tokens == 2400


async def test_a_key_has_so_many_requests_at_once(serve: Serve, guarding: Guarding):
    go = asyncio.Event()
    behind = await serve(costing(CLEAN, 25, go))
    guard = await guarding(route(behind.url), keys=team(at_once=1))

    first = asyncio.ensure_future(guard.chat(headers=HEADERS))
    await until(lambda: bool(behind.requests))
    second = await guard.chat(headers=HEADERS)
    go.set()
    third_after = [(await first).status, (await guard.chat(headers=HEADERS)).status]

    assert (second.status, second.body["error"]["code"]) == (429, "rate_limit_exceeded")
    assert "1 requests at once" in second.body["error"]["message"]
    assert third_after == [200, 200]


async def test_an_empty_budget_still_allows_scoring_and_reloading(guarding: Guarding):
    key = team(budget=tokens(1), may=["score", "admin"])
    guard = await guarding({"model": "fake/x", "method": "default", "evaluators": []}, keys=key)
    await guard.chat("words " * 10, headers=HEADERS)

    over = await guard.chat(headers=HEADERS)
    scored = await guard.post("/v1/moderations", {"input": "Hello."}, headers=HEADERS)
    reloaded = await guard.post("/admin/reload", {}, headers=HEADERS)

    assert (over.status, scored.status, reloaded.status) == (429, 200, 200)


@pytest.mark.parametrize("place", ["file", "redis"])
async def test_two_servers_share_budgets_places_and_wrong_keys(serve: Serve, tmp_path: Path, place: str):
    behind = await serve(costing(CLEAN, 100))
    async with two_servers(tmp_path, behind.url, place, budget=tokens(150), per_minute=6000) as (one, two):
        statuses = [(await each.chat(headers=HEADERS)).status for each in (one, two, one, two)]
        for each in (one, two, two):
            await each.chat(headers={"Authorization": "Bearer evh-wrong"})
        row = await one.server.state.wrong_key("127.0.0.1", time())
        ready = await one.get("/readyz")

    assert statuses == [200, 200, 429, 429]
    assert row == 4
    assert ready.body["shared_state"] == "up"


@pytest.mark.parametrize("place", ["file", "redis"])
async def test_two_servers_share_places(serve: Serve, tmp_path: Path, place: str):
    go = asyncio.Event()
    behind = await serve(costing(CLEAN, 25, go))
    async with two_servers(tmp_path, behind.url, place, at_once=1) as (one, two):
        first = asyncio.ensure_future(one.chat(headers=HEADERS))
        await until(lambda: bool(behind.requests))
        second = await two.chat(headers=HEADERS)
        go.set()
        after = [(await first).status, *[(await each.chat(headers=HEADERS)).status for each in (two, one, two)]]

    assert second.status == 429
    assert after == [200, 200, 200, 200]


@pytest.mark.parametrize(("required", "status", "ready"), [(False, 200, 200), (True, 503, 503)])
async def test_without_its_redis_a_server_counts_alone_or_refuses(
    serve: Serve, guarding: Guarding, required: bool, status: int, ready: int
):
    pytest.importorskip("redis")
    behind = await serve(chat(CLEAN))
    state = {"redis": "redis://127.0.0.1:9", "required": required}
    guard = await guarding(route(behind.url), keys=team(per_minute=60, may=["metrics"]), state=state)

    answer = await guard.chat(headers=HEADERS)
    readiness = await guard.get("/readyz")
    metrics = await guard.get("/metrics", headers=HEADERS)

    assert answer.status == status
    assert (readiness.status, readiness.body["shared_state"]) == (ready, "down")
    assert "evenhand_state_down 1.0" in metrics.text
    assert "127.0.0.1" not in answer.text


def test_money_needs_prices():
    model = route("http://127.0.0.1:9", price=PRICE)
    judge = {**model, "judge": "openai/j"}
    config = {"keys": team(budget={"money": 1, "per": "day"})}

    with pytest.raises(PlanError, match=r"The key team has a budget in money, so the route b needs .* openai/j"):
        Server(make_config({**config, "routes": {"a": model, "b": judge}}), "127.0.0.1")


async def test_money_may_be_limited_to_the_routes_with_prices(guarding: Guarding):
    url = "http://127.0.0.1:9"
    routes = {"a": route(url, price=PRICE), "b": route(url), "c": {"model": "fake/x", "method": "default"}}
    key = team(budget={"money": 1, "per": "day"}, routes=["a", "c"])
    guard = await guarding(routes=routes, keys=key)

    with pytest.raises(PlanError, match="the route b needs the price of openai/behind"):
        guard.server.reload(make_config({"routes": routes, "keys": team(budget={"money": 1, "per": "day"})}))
    assert guard.server.limits.quotas.prices == {"team": pytest.approx(0.001)}


async def test_the_hundred_requests_of_a_client_are_few_round_trips(serve: Serve, tmp_path: Path):
    behind = await serve(chat(CLEAN))
    async with two_servers(tmp_path, behind.url, "file", per_minute=60_000) as (one, _):
        store = one.server.state._store  # pyright: ignore[reportPrivateUsage]
        assert store is not None
        trips: list[int] = []
        apply = store.apply

        async def counted(operations: Any) -> Any:
            trips.append(len(operations))
            return await apply(operations)

        store.apply = counted  # type: ignore[method-assign]
        await asyncio.gather(*(one.chat(headers=HEADERS) for _ in range(100)))

    assert sum(trips) >= 200
    assert len(trips) < 150


@pytest.mark.parametrize("place", ["file", "redis"])
async def test_the_live_page_shows_the_requests_of_all_servers(
    serve: Serve, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(feed, "PUBLISH_SECONDS", 0)
    monkeypatch.setattr(feed, "FRESH_SECONDS", 0)
    behind = await serve(chat(CLEAN))
    async with two_servers(tmp_path, behind.url, place, may=["admin"]) as (one, two):
        for number in range(2):
            await one.chat(f"first {number}", headers=HEADERS)
        await two.chat("odd \u202e", headers=HEADERS)
        states: list[Any] = []
        for each in (one, two):
            while (state := (await each.get("/page/state", headers=HEADERS)).body)["totals"]["requests"] < 3:
                pass
            states.append(state)
        last = f"/page/requests/{states[0]['start']}/{states[0]['rows'][-1]['number']}"
        details = [(await each.get(last, headers=HEADERS)).body for each in (one, two)]
        two.server.state.down = "gone"
        alone = (await two.get("/page/state", headers=HEADERS)).body

    assert [[row["number"] for row in state["rows"]] for state in states] == [[0, 1, 2]] * 2
    assert {row["prompt"] for row in states[0]["rows"]} == {"first 0", "first 1", "odd [U+202E]"}
    assert states[0]["start"] == states[1]["start"]
    assert states[0]["totals"] == states[1]["totals"]
    assert states[0]["totals"]["actions"] == {"passed": 3}
    assert states[0]["routes"] == [
        {"name": "guarded", "requests": 3, "answered": 3, "revised": 0, "blocked": 0, "failing": 0, "errors": 0}
    ]
    assert sum(states[0]["windows"][2]["lines"]["toxicity"]["n"]) == 3
    assert details[0] == details[1]
    assert details[0]["text"] == CLEAN
    assert (alone["totals"]["requests"], len(alone["rows"])) == (1, 1)
