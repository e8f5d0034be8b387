"""Several upstreams behind one route: failover, circuit breakers, limits, reloads, and what is told about them."""

import asyncio
import logging
import socket
from typing import Any

import aiohttp
import pytest

from evenhand.core.errors import PlanError, UsageError
from evenhand.models.pool import RetryBudget
from evenhand.server.config import make_config
from support.fixtures import Serve
from support.guard_server import Guarding, Served, route, streamed
from support.guarding import after, is_judge
from support.server import ChatServer, chat, cut, hang, outlast, raw, refuse, reply_with, skip

CLEAN = "Bread is baked from flour."
OTHER = "Paris is the capital of France."
LONG = ["Bread is baked from flour and water. ", "It needs an hour. ", "Then it is done."]


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures need no time to open a breaker."""
    monkeypatch.setattr("evenhand.guards.upstreams.FAILING_SECONDS", 0.0)


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def routed(*servers: ChatServer | str, **fields: Any) -> dict[str, Any]:
    """A route whose upstreams are used in this order."""
    urls = [each if isinstance(each, str) else each.url for each in servers]
    upstreams = [{"base_url": url, "priority": place} for place, url in enumerate(urls)]
    plain = {name: value for name, value in route("").items() if name != "base_url"}
    return {**plain, "upstreams": upstreams, **fields}


def text_in(answer: Any) -> str:
    return answer.body["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "fault",
    [
        raw(b"", 500),
        reply_with({}, 429, {"Retry-After": "30"}),
        refuse("no such model", status=404),
        refuse("wrong key", status=401),
        raw(b"<html>Welcome</html>"),
        cut(),
        chat(CLEAN, finish=None),
        outlast(40),
    ],
    ids=["500", "429", "404", "401", "html", "cut", "no finish", "timeout"],
)
async def test_a_request_that_fails_goes_to_the_next_upstream(serve: Serve, guarding: Guarding, fault: Any):
    bad, good = await serve(fault), await serve(chat(OTHER))
    guard = await guarding(routed(bad, good, timeout=30))

    answer = await guard.chat()

    assert (answer.status, text_in(answer)) == (200, OTHER)
    assert (len(bad.requests), len(good.requests)) == (1, 1)


async def test_record_metrics_and_log_say_which_upstream_answered(
    serve: Serve, guarding: Guarding, caplog: pytest.LogCaptureFixture
):
    good = await serve(chat(OTHER))
    fields = routed(closed_port(), good)
    fields["upstreams"][1]["name"] = "spare"
    guard = await guarding(fields)

    assert (await guard.chat()).status == 200
    await guard.told()
    metrics = (await guard.get("/metrics")).text

    assert (guard.event.upstream, guard.event.upstreams_tried) == ("spare", 2)
    assert 'evenhand_upstream_requests_total{route="guarded",upstream="spare"} 1.0' in metrics
    assert 'evenhand_upstream_failures_total{route="guarded",upstream="1"} 1.0' in metrics
    assert 'evenhand_upstream_open{route="guarded",upstream="1"} 0.0' in metrics


@pytest.mark.parametrize("fields", [{}, {"method": "default", "evaluators": [], "policy": "flag"}])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("faults", "calls"), [(1, 1), (2, 0)])
async def test_retries_are_counted_and_refused_calls_are_not(
    serve: Serve, guarding: Guarding, fields: dict[str, Any], stream: bool, faults: int, calls: int
):
    behind = await serve(*[raw(b"", 500)] * faults, streamed([CLEAN]) if stream else chat(CLEAN))
    guard = await guarding(route(behind.url, retries=1, **fields))

    await guard.chat(stream=stream)
    await guard.told()

    assert (guard.event.usage.calls, guard.event.usage.retries, len(guard.event.tried)) == (calls, 1, 2)


async def test_a_call_whose_client_leaves_is_counted(serve: Serve, guarding: Guarding):
    behind = await serve(hang())
    guard = await guarding(route(behind.url))

    asking = asyncio.ensure_future(guard.chat())
    await behind.has_seen(1)
    asking.cancel()
    await guard.told()

    assert (guard.event.usage.calls, len(guard.event.tried), guard.event.tried[0].failed) == (1, 1, False)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
async def test_a_request_that_is_at_fault_goes_nowhere_else(serve: Serve, guarding: Guarding, status: int):
    first, second = await serve(refuse("too long", status=status)), await serve(chat(CLEAN))
    guard = await guarding(routed(first, second))

    for _ in range(7):
        assert (await guard.chat()).status == status

    assert (len(first.requests), second.requests) == (7, [])


async def test_an_upstream_that_keeps_failing_gets_no_requests_until_a_trial_succeeds(
    serve: Serve, guarding: Guarding, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, "evenhand.guards")
    first, second = await serve(*[raw(b"", 500)] * 6, chat(CLEAN)), await serve(chat(OTHER))
    guard = await guarding(routed(first, second))

    async def texts(count: int) -> list[str]:
        return [text_in(await guard.chat()) for _ in range(count)]

    assert await texts(8) == [OTHER] * 8
    assert len(first.requests) == 5
    ready = (await guard.get("/readyz")).body
    assert (ready["upstreams"], ready["upstreams_open"]) == (2, 1)
    skip(1.1)
    assert await texts(2) == [OTHER] * 2  # the trial fails, and the next rest is longer
    skip(1.1)
    assert await texts(1) == [OTHER]
    assert len(first.requests) == 6
    skip(1.1)
    assert await texts(2) == [CLEAN] * 2
    assert [each.levelname for each in caplog.records if each.name == "evenhand.guards"] == ["WARNING", "INFO"]
    assert "The route guarded: the upstream 1 works again" in caplog.messages


async def test_where_all_upstreams_are_down_the_client_is_told_when_to_come_back(serve: Serve, guarding: Guarding):
    servers = [await serve(raw(b"secret words", 500)) for _ in range(2)]
    guard = await guarding(routed(*servers))
    for _ in range(5):
        assert (await guard.chat()).status == 502

    answer = await guard.chat()

    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert [len(each.requests) for each in servers] == [5, 5]
    assert answer.headers["X-Request-Id"] in answer.body["error"]["message"]
    assert "127.0.0.1" not in answer.text and "secret" not in answer.text


async def test_an_outage_is_not_multiplied_by_retries(
    serve: Serve, guarding: Guarding, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("evenhand.guards.upstreams.FAILURES", 10_000)
    monkeypatch.setattr(RetryBudget, "seconds", 1e9)  # nothing is forgotten
    servers = [await serve(raw(b"", 500)) for _ in range(3)]
    guard = await guarding(routed(*servers))

    await asyncio.gather(*(guard.chat() for _ in range(60)))

    assert 60 < sum(len(each.requests) for each in servers) <= 60 + 10 + 0.2 * 60


async def test_a_stream_that_breaks_off_before_its_first_segment_goes_to_the_next_upstream(
    serve: Serve, guarding: Guarding
):
    broken, good = await serve(streamed(["Bread is ", "baked"], fail=True)), await serve(streamed(LONG))
    guard = await guarding(routed(broken, good))

    answer = await guard.chat(stream=True)
    await guard.told()

    assert answer.text.endswith("data: [DONE]\n\n") and '"error"' not in answer.text
    assert guard.event.text == "".join(LONG)
    assert (guard.event.upstream, guard.event.upstreams_tried) == ("2", 2)


async def test_a_stream_that_breaks_off_later_is_an_error(serve: Serve, guarding: Guarding):
    broken, good = await serve(streamed(LONG, fail=True)), await serve(streamed(LONG))
    guard = await guarding(routed(broken, good))

    answer = await guard.chat(stream=True)

    assert LONG[0] in answer.text and '"error"' in answer.text and "[DONE]" not in answer.text
    assert good.requests == []


async def test_a_stream_that_is_not_checked_passes_on_the_first_piece_at_once(serve: Serve, guarding: Guarding):
    gate = asyncio.Event()
    behind = await serve(streamed(["Bread", " is baked."], then=gate))
    guard = await guarding(routed(behind, method="default", policy="flag", evaluators=[]))
    url = f"{guard.url}/chat/completions"

    body = {"model": "guarded", "messages": [{"role": "user", "content": "?"}], "stream": True}
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        seen = b""
        while b"Bread" not in seen:
            seen += await response.content.readany()
        gate.set()
        seen += await response.content.read()

    assert b" is baked." in seen


async def test_a_full_upstream_leaves_requests_to_the_next_and_others_wait(serve: Serve, guarding: Guarding):
    gate = asyncio.Event()
    first, second = await serve(after(gate, chat(CLEAN))), await serve(after(gate, chat(OTHER)))
    guard = await guarding(routed(first, second, concurrency=2))

    asked = [asyncio.create_task(guard.chat()) for _ in range(6)]
    await first.has_seen(2)
    await second.has_seen(2)
    in_flight = [len(each.requests) for each in (first, second)]
    gate.set()
    answers = await asyncio.gather(*asked)

    assert in_flight == [2, 2]
    assert {each.status for each in answers} == {200}


async def test_upstreams_of_one_priority_share_the_requests(serve: Serve, guarding: Guarding):
    servers = [await serve(chat(CLEAN)) for _ in range(3)]
    fields = routed(*servers)
    for each in fields["upstreams"]:
        each.pop("priority")
    guard = await guarding(fields)

    for _ in range(6):
        await guard.chat()

    assert [len(each.requests) for each in servers] == [2, 2, 2]


async def test_an_upstream_that_uses_up_the_latency_budget_counts_as_failing(serve: Serve, guarding: Guarding):
    slow = await serve(*[outlast(9)] * 5, chat(CLEAN))
    guard = await guarding(routed(slow, latency=8))

    statuses = [(await guard.chat()).status for _ in range(6)]

    assert statuses == [504] * 5 + [503]


async def test_an_upstream_has_a_model_and_a_key_of_its_own(
    serve: Serve, guarding: Guarding, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai")
    monkeypatch.setenv("SPARE_KEY", "for-the-spare")
    first, second = await serve(raw(b"", 500)), await serve(chat(OTHER))
    fields = routed(first, second)
    fields["upstreams"][1] |= {"model": "openai/spare", "key_env": "SPARE_KEY"}
    guard = await guarding(fields)

    await guard.chat()

    assert [first.bodies[0]["model"], second.bodies[0]["model"]] == ["behind", "spare"]
    assert "Authorization" not in first.requests[0].headers
    assert second.requests[0].headers["Authorization"] == "Bearer for-the-spare"


@pytest.mark.parametrize("judge", [None, "openai/critic"])
async def test_the_judge_uses_the_same_upstreams(serve: Serve, guarding: Guarding, judge: str | None):
    def answer(body: dict[str, Any]) -> Any:
        return chat('{"harm": 0, "harm_reason": ""}' if is_judge(body) else CLEAN)

    bad, good = await serve(raw(b"", 500)), await serve(answer=answer)
    guard = await guarding(routed(bad, good, method="default", evaluators=["bias"], judge=judge))

    for _ in range(6):
        assert (await guard.chat()).status == 200

    judged = [each["model"] for each in good.bodies if is_judge(each)]
    assert judged and set(judged) == {"critic" if judge else "behind"}
    expected = 10 if judge else 5  # the judge's own model has a breaker of its own
    assert len(bad.requests) == expected


async def test_a_local_model_may_stand_in(guarding: Guarding):
    fields = routed(closed_port())
    fields["upstreams"].append({"model": "fake/Good day to you.", "priority": 1})
    guard = await guarding(fields)

    assert text_in(await guard.chat()) == "Good day to you."


async def test_a_pool_of_addresses_passes_tools_on(serve: Serve, guarding: Guarding):
    servers = [await serve(chat(CLEAN)) for _ in range(2)]
    guard = await guarding(route(",".join(each.url for each in servers)))
    tools = [{"type": "function", "function": {"name": "look_up"}}]

    for _ in range(2):
        assert (await guard.chat(tools=tools)).status == 200

    assert [each.bodies[0]["tools"] for each in servers] == [tools, tools]


async def test_embeddings_fail_over_and_an_endpoint_without_them_still_answers_chats(serve: Serve, guarding: Guarding):
    def answer(body: dict[str, Any]) -> Any:
        return chat(CLEAN) if "messages" in body else refuse("no such path", status=404)

    behind, spare = await serve(answer=answer), await serve(reply_with({"data": [{"embedding": [0.5]}]}))
    guard = await guarding(routes={"guarded": routed(behind), "down": routed(closed_port(), spare)})

    refused = [await guard.post("/v1/embeddings", {"model": "guarded", "input": "Hello."}) for _ in range(6)]
    embedded = await guard.post("/v1/embeddings", {"model": "down", "input": "Hello."})

    assert {each.status for each in refused} == {502}
    assert embedded.body["data"][0]["embedding"] == [0.5]
    assert (await guard.chat()).status == 200


class TestReload:
    async def test_an_unchanged_upstream_of_a_changed_route_keeps_its_state(self, serve: Serve, guarding: Guarding):
        first, second = await serve(raw(b"", 500)), await serve(chat(OTHER))
        guard = await guarding(routed(first, second))
        await asked(guard, 5)

        guard.server.reload(make_config({"routes": {"guarded": routed(first, second, policy="flag")}}))
        await asked(guard, 2)

        assert len(first.requests) == 5

    async def test_a_changed_upstream_is_tried_again(
        self, serve: Serve, guarding: Guarding, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("NEW_KEY", "right")
        first, second = await serve(*[refuse("wrong key", status=401)] * 5, chat(CLEAN)), await serve(chat(OTHER))
        fields = routed(first, second)
        guard = await guarding(fields)
        await asked(guard, 5)

        upstreams = [{**fields["upstreams"][0], "key_env": "NEW_KEY"}, fields["upstreams"][1]]
        guard.server.reload(make_config({"routes": {"guarded": {**fields, "upstreams": upstreams}}}))

        assert text_in(await guard.chat()) == CLEAN

    async def test_a_request_in_flight_ends_with_the_old_upstreams(self, serve: Serve, guarding: Guarding):
        gate = asyncio.Event()
        old, new = await serve(after(gate, chat(CLEAN))), await serve(chat(OTHER))
        guard = await guarding(routed(old))
        asked_before = asyncio.create_task(guard.chat())
        await old.has_seen(1)

        guard.server.reload(make_config({"routes": {"guarded": routed(new)}}))
        answer = await guard.chat()
        gate.set()

        assert (text_in(answer), text_in(await asked_before)) == (OTHER, CLEAN)


class TestConfig:
    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"base_url": "http://127.0.0.1:1/v1"}, "a route with upstreams has no base_url of its own"),
            ({"key_env": "A_KEY"}, "a route with upstreams has no key_env of its own"),
            ({"upstreams": []}, "upstreams"),
            ({"upstreams": [{"name": "a"}, {"name": "a"}]}, "each upstream needs another name"),
            ({"upstreams": [{"base_ur": "x"}]}, "did you mean base_url"),
            ({"upstreams": [{"name": "no spaces"}]}, "routes.guarded.upstreams, entry 1, name"),
        ],
    )
    def test_a_wrong_config_is_an_error_in_a_sentence(self, fields: dict[str, Any], words: str):
        base = {"model": "openai/behind", "upstreams": [{"base_url": "http://127.0.0.1:1/v1"}]}

        with pytest.raises(PlanError, match=words):
            make_config({"routes": {"guarded": {**base, **fields}}})

    @pytest.mark.parametrize(
        ("upstreams", "words"),
        [
            ([{"base_url": "http://127.0.0.1:1/v1"}] * 2, "of another one"),
            ([{"base_url": "http://127.0.0.1:1/v1,http://127.0.0.1:2/v1"}], "separate upstreams"),
            ([{"base_url": "nowhere"}], "not a base URL"),
        ],
    )
    async def test_upstreams_that_cannot_be_used_are_reported(self, upstreams: Any, words: str):
        with pytest.raises(PlanError, match=words):
            Served({"routes": {"guarded": {"model": "openai/behind", "upstreams": upstreams}}})

    async def test_an_upstream_that_runs_code_needs_the_flag(self):
        upstreams = [{"model": "call/os:getcwd"}]

        with pytest.raises(UsageError, match="--allow-call"):
            Served({"routes": {"guarded": {"model": "openai/behind", "upstreams": upstreams}}})


async def asked(guard: Served, count: int) -> None:
    for _ in range(count):
        assert (await guard.chat()).status == 200


async def test_a_client_that_leaves_frees_the_place(serve: Serve, guarding: Guarding):
    behind = await serve(hang(), chat(CLEAN))
    guard = await guarding(routed(behind, concurrency=1))
    left = asyncio.create_task(guard.chat())
    await behind.has_seen(1)

    left.cancel()

    assert text_in(await guard.chat()) == CLEAN
