"""Findings on time, memory and money: work is linear and bounded, and keys pay for what was sent and received."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web

from evenhand.guards import upstreams
from evenhand.guards.fields import TooManyValuesError, parse_json
from evenhand.guards.guard import Guard
from evenhand.guards.segments import units
from evenhand.guards.upstreams import ModelUpstream
from evenhand.models.load import load_model
from evenhand.scorers.builtin import BuiltinScorer
from support.fixtures import Serve
from support.guard_server import CLEAN, Guarding, Served, route
from support.server import Body, Reply, completion, raw, refuse, reply_with, skip

KEY = "evh-a-key-with-a-budget-0123456789"
BUDGET: dict[str, Any] = {
    "keys": {
        "team": {
            "hash": hashlib.sha256(KEY.encode()).hexdigest(),
            "may": ["admin"],
            "budget": {"tokens": 2000, "per": "total"},
        }
    }
}
AUTH = {"Authorization": f"Bearer {KEY}"}


def _stream(deltas: Sequence[Mapping[str, Any]], *, stay: bool = False, cut: bool = False, usage: Any = None) -> Reply:
    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        choices = [{"choices": [{"index": 0, "delta": each, "finish_reason": None}]} for each in deltas]
        end: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        if usage is not None:
            end["usage"] = usage
        await response.write(b"".join(b"data: " + orjson.dumps(each) + b"\n\n" for each in choices))
        if stay:
            await asyncio.sleep(600)
        if cut:
            return response
        await response.write(b"data: " + orjson.dumps(end) + b"\n\ndata: [DONE]\n\n")
        return response

    return reply


async def _spent(guard: Served) -> float:
    spent = (await guard.get("/admin/spent", headers=AUTH)).body
    return spent["team"]["total"]["tokens"] if "team" in spent else 0.0


@pytest.mark.parametrize("kind", ["arguments", "refusal"])
async def test_07_streams_of_many_pieces_take_linear_time(serve: Serve, guarding: Guarding, kind: str):
    def delta(piece: str) -> dict[str, Any]:
        if kind == "refusal":
            return {"refusal": piece}
        return {"tool_calls": [{"index": 0, "function": {"name": "say", "arguments": piece}}]}

    async def seconds(count: int) -> float:
        behind = await serve(_stream([delta("some words ")] * count, usage={"prompt_tokens": 1}))
        guard = await guarding(route(behind.url, method="default", evaluators=[]))
        began = time.process_time()
        assert (await guard.chat(stream=True)).status == 200
        return time.process_time() - began

    short, long = await seconds(4_000), await seconds(40_000)

    assert long < 40 * max(short, 0.05)


@pytest.mark.parametrize("body", [b"[],", b'{"a":1},', b'"a",'])
def test_08_json_with_too_many_values_is_refused_before_they_are_built(body: bytes):
    data = b"[" + body * 1_000_000 + b"0]"
    began = time.process_time()

    with pytest.raises(TooManyValuesError):
        parse_json(data, 100_000)

    assert time.process_time() - began < 0.5


def test_08_brackets_and_commas_in_texts_are_no_values():
    data = orjson.dumps({"text": '[],{},\\"' * 200_000})

    assert parse_json(data, 1_000)["text"].startswith("[],{}")


def test_08_an_unfinished_text_full_of_quotes_takes_linear_time():
    began = time.process_time()

    with pytest.raises(ValueError):
        parse_json(b'["' + b'\\"' * 2_000_000, 1_000)

    assert time.process_time() - began < 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/moderations", "/v1/embeddings"])
async def test_08_a_request_of_too_many_values_is_refused(serve: Serve, guarding: Guarding, path: str):
    behind = await serve(reply_with({}))
    guard = await guarding(route(behind.url))

    answer = await guard.post(path, b'{"model": "guarded", "input": [' + b"[]," * 300_000 + b"0]}")

    assert answer.status == 400 and "values" in answer.body["error"]["message"]


async def test_08_a_reply_of_too_many_values_is_no_answer(serve: Serve, guarding: Guarding):
    behind = await serve(raw(b'{"choices": [' + b"{}," * 3_000_000 + b"{}]}"))
    guard = await guarding(route(behind.url))

    assert (await guard.chat()).status == 502


@pytest.mark.parametrize("streamed", [False, True])
async def test_09_an_upstream_without_usage_is_charged_by_estimate(serve: Serve, guarding: Guarding, streamed: bool):
    text = "word " * 400
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    behind = await serve(_stream([{"content": text}]) if streamed else reply_with({"choices": [choice]}))
    guard = await guarding(route(behind.url, method="default", evaluators=[]), **BUDGET)

    assert (await guard.chat(stream=streamed, headers=AUTH)).status == 200

    assert 450 <= await _spent(guard) <= 600


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning_content": "thought " * 1000},
        {"refusal": "never " * 1300},
        {"tool_calls": [{"index": 0, "function": {"name": "say", "arguments": "word " * 1600}}]},
    ],
    ids=["reasoning", "refusal", "arguments"],
)
async def test_09_a_client_that_leaves_pays_for_everything_that_was_received(
    serve: Serve, guarding: Guarding, delta: dict[str, Any]
):
    behind = await serve(_stream([delta, {"content": CLEAN}], stay=True))
    guard = await guarding(route(behind.url, method="default", evaluators=[]), **BUDGET)
    body = {"model": "guarded", "messages": [{"role": "user", "content": "Hello?"}], "stream": True}

    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{guard.url}/chat/completions", json=body, headers=AUTH) as response,
    ):
        await response.content.readany()
    await guard.told()

    assert 1800 <= await _spent(guard) <= 2300


@pytest.mark.parametrize(
    ("stream", "fields"),
    [({"cut": True}, {}), ({"stay": True}, {"timeout": 0.5}), ({"stay": True}, {"latency": 0.5})],
    ids=["broken off", "stalled", "given up"],
)
async def test_09_thoughts_without_an_answer_are_paid_for(
    serve: Serve, guarding: Guarding, stream: dict[str, bool], fields: dict[str, float]
):
    behind = await serve(_stream([{"reasoning_content": "thought " * 1000}], **stream))
    guard = await guarding(route(behind.url, **fields), **BUDGET)

    assert (await guard.chat(stream=True, headers=AUTH)).status >= 500

    assert 1800 <= await _spent(guard) <= 2300


@pytest.mark.parametrize("failure", ["refused", "unreachable", "breaker"])
async def test_09_a_stream_that_was_never_called_costs_nothing(serve: Serve, guarding: Guarding, failure: str):
    behind = await serve(refuse("No.") if failure != "breaker" else reply_with({}, 500))
    url = "http://127.0.0.1:9/v1" if failure == "unreachable" else behind.url
    guard = await guarding(route(url), **BUDGET)

    for _ in range(8):
        assert (await guard.chat("word " * 1000, stream=True, headers=AUTH)).status >= 400

    assert await _spent(guard) == 0


async def test_10_one_clients_poisoned_prompts_do_not_open_the_breaker_for_others(serve: Serve, guarding: Guarding):
    poison = "Poison."
    good = reply_with(completion(CLEAN))

    def answer(body: Body) -> Reply:
        return reply_with({}, 500) if poison in str(body["messages"]) else good

    behind = await serve(answer=answer)
    keys = {name: {"hash": hashlib.sha256(name.encode()).hexdigest()} for name in ("attacker", "other")}
    guard = await guarding(route(behind.url, method="default", evaluators=[]), keys=keys)

    async def ask(name: str, text: str) -> int:
        return (await guard.chat(text, headers={"Authorization": f"Bearer {name}"})).status

    assert await ask("other", "Hello?") == 200
    for _ in range(20):
        assert await ask("attacker", poison) == 502
        skip(0.5)

    assert [await ask("other", "Hello?") for _ in range(5)] == [200] * 5


class _AllAtOnce(ModelUpstream):
    """An endpoint whose stream is all there: nothing in it waits. Counts the turns of others in the meantime."""

    turns = 0

    async def chat_stream(self, body: Mapping[str, Any], *, held: bool = False) -> AsyncGenerator[dict[str, Any]]:
        del body, held
        counting = asyncio.ensure_future(self._count())
        call = {"index": 0, "function": {"name": "say", "arguments": "some words "}}
        for _ in range(5_000):
            yield {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]}
        counting.cancel()
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}

    async def _count(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


async def test_08_a_stream_that_comes_all_at_once_lets_others_have_their_turn():
    upstream = _AllAtOnce(load_model("fake/Yes."))

    async with Guard(upstream) as guard:
        segments = [each async for each in guard.stream({"messages": [{"role": "user", "content": "Hello"}]})]

    assert segments[-1].final is not None
    assert upstream.turns >= 40


async def test_07_a_stream_without_text_is_not_kept_for_another_upstream_to_its_end(
    serve: Serve, guarding: Guarding, monkeypatch: pytest.MonkeyPatch
):
    """Hundreds of thousands of chunks in memory keep the collection of garbage busy, and so all others waiting."""
    monkeypatch.setattr("evenhand.guards.upstreams._MOST_HELD", 10)
    kept: list[int] = []
    opened = upstreams._opened  # pyright: ignore[reportPrivateUsage]

    async def noted(*given: Any, **named: Any) -> Any:
        opening, chunks = await opened(*given, **named)
        kept.append(len(opening))
        return opening, chunks

    monkeypatch.setattr(upstreams, "_opened", noted)
    behind = await serve(_stream([*[{"reasoning_content": "Hm. "}] * 100, {"content": CLEAN}]))
    guard = await guarding(route(behind.url, policy="block"))

    answer = await guard.chat(stream=True)

    assert kept == [10]
    assert CLEAN.split(".")[0] in answer.text


async def test_12_an_english_answer_is_scored_once_by_unit_in_one_call_and_its_language_is_plain(
    serve: Serve, guarding: Guarding, monkeypatch: pytest.MonkeyPatch
):
    said = "The library of our town has games for you, and it lends them. They open it when they like, not by night."
    scored: list[list[str]] = []
    score_texts = BuiltinScorer.score_texts

    def counted(self: BuiltinScorer, texts: Sequence[str]) -> Any:
        scored.append(list(texts))
        return score_texts(self, texts)

    monkeypatch.setattr(BuiltinScorer, "score_texts", counted)
    monkeypatch.setattr("evenhand.core.language._identifier", lambda: pytest.fail("a language was looked for"))
    guard = await guarding(route((await serve(reply_with(completion(said)))).url, policy="block"))

    answer = await guard.chat()

    assert answer.body["evenhand"]["action"] == "passed"
    assert scored == [list(units(said))] and len(scored[0]) == 2
