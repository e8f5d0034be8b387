"""Streams: checked segments as OpenAI's chunks."""

import asyncio
import contextlib
from typing import Any

import aiohttp
import orjson
import pytest

from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, Served, route, streamed
from support.server import ChatServer, chat, completion, hang, raw, refuse, reply_with

SENTENCES = ["The weather is mild. ", "The park ", "is open all day. ", "Bring a friend."]


def chunks(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [orjson.loads(line) for line in lines[:-1]]


def broken_off(text: str) -> list[dict[str, Any]]:
    """The chunks of a stream that ends with an error: it is not told as done, and no choice has a finish reason."""
    found = [orjson.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line]
    assert found[-1]["error"]["message"]
    assert not any(choice["finish_reason"] for each in found[:-1] for choice in each["choices"])
    return found


def content(found: list[dict[str, Any]], index: int = 0) -> str:
    deltas = [choice["delta"] for each in found for choice in each.get("choices", ()) if choice["index"] == index]
    return "".join(delta.get("content") or "" for delta in deltas)


async def test_text_comes_in_chunks_and_the_record_with_the_last(serve: Serve, guarding: Guarding):
    behind = await serve(streamed(SENTENCES))
    guard = await guarding(route(behind.url))

    answer = await guard.chat(stream=True)

    assert answer.headers["Content-Type"].startswith("text/event-stream")
    found = chunks(answer.text)
    assert content(found) == "".join(SENTENCES)
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    assert {each["id"] for each in found} == {f"chatcmpl-{guard.event.id}"}
    assert {each["object"] for each in found} == {"chat.completion.chunk"}
    assert found[-1]["choices"][0]["finish_reason"] == "stop"
    assert found[-1]["evenhand"]["action"] == "passed"
    assert all("usage" not in each for each in found)
    assert guard.event.stream
    assert guard.event.first_segment > 0
    assert guard.event.text == "".join(SENTENCES)


async def test_usage_comes_last_where_it_is_asked_for(serve: Serve, guarding: Guarding):
    behind = await serve(streamed(SENTENCES))
    guard = await guarding(route(behind.url))

    found = chunks((await guard.chat(stream=True, stream_options={"include_usage": True})).text)

    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["total_tokens"] > 0
    assert all(each["usage"] is None for each in found[:-1])


async def test_nothing_that_fails_the_checks_is_sent(serve: Serve, guarding: Guarding):
    behind = await serve(streamed([*SENTENCES[:1], RUDE, " And more."]))
    guard = await guarding(route(behind.url, policy="block", blocked_text="Withheld."))

    answer = await guard.chat(stream=True)

    found = chunks(answer.text)
    assert content(found).endswith("Withheld.")
    assert "idiot" not in answer.text
    assert found[-1]["evenhand"]["action"] == "blocked"


async def test_the_first_segment_leaves_before_the_answer_is_complete(serve: Serve, guarding: Guarding):
    rest = asyncio.Event()
    behind = await serve(streamed([*SENTENCES, " The end."], then=rest))
    guard = await guarding(route(behind.url))

    async with aiohttp.ClientSession() as session, session.post(guard.url + "/chat/completions", json=asked()) as reply:
        first = b""
        while b"mild" not in first:
            first += await reply.content.readany()
        assert b"The end." not in first
        rest.set()
        assert b"The end." in await reply.content.read()


async def test_tool_calls_come_as_deltas(serve: Serve, guarding: Guarding):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    behind = await serve(streamed([], tool_calls=[call], finish="tool_calls"))
    guard = await guarding(route(behind.url))

    found = chunks((await guard.chat(stream=True, tools=[{"type": "function", "function": {"name": "look"}}])).text)

    deltas = [each["choices"][0]["delta"] for each in found]
    assert [{"index": 0, **call}] in [delta.get("tool_calls") for delta in deltas]
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_several_answers_share_one_stream(serve: Serve, guarding: Guarding):
    behind = await serve(streamed(SENTENCES))
    guard = await guarding(route(behind.url))

    found = chunks((await guard.chat(stream=True, n=2)).text)

    assert content(found, 0) == content(found, 1) == "".join(SENTENCES)
    ends = [choice["index"] for each in found for choice in each["choices"] if choice["finish_reason"]]
    assert sorted(ends) == [0, 1]


async def test_a_method_that_needs_the_whole_answer_streams_it_afterwards(serve: Serve, guarding: Guarding):
    behind = await serve(chat(f"{CLEAN} {CLEAN}"))
    guard = await guarding(route(behind.url, method="cot"))

    found = chunks((await guard.chat(stream=True)).text)

    assert CLEAN in content(found)


async def test_a_failure_before_the_first_segment_has_a_status(serve: Serve, guarding: Guarding):
    behind = await serve(refuse("no", status=500))
    guard = await guarding(route(behind.url))

    answer = await guard.chat(stream=True)

    assert answer.status == 502
    assert answer.body["error"]["message"]


async def test_a_failure_later_ends_the_stream_with_an_error(serve: Serve, guarding: Guarding):
    behind = await serve(streamed(SENTENCES, fail=True))
    guard = await guarding(route(behind.url))

    answer = await guard.chat(stream=True)

    broken_off(answer.text)
    assert guard.event.status == 502
    assert (guard.event.upstream_error, guard.event.action) == ("cut", "")


def part(finish: str | None = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps({"id": "x", "choices": [choice]}) + b"\n\n"


TWO = part(content="The weather is mild. The park is open. ") + part(content="Bring")


@pytest.mark.parametrize("policy", ["block", "revise", "flag"])
async def test_a_stream_without_an_end_is_an_error_and_no_answer(serve: Serve, guarding: Guarding, policy: str):
    behind = await serve(raw(TWO, headers={"Content-Type": "text/event-stream"}))
    guard = await guarding(route(behind.url, policy=policy))

    answer = await guard.chat(stream=True)

    assert content(broken_off(answer.text)).startswith("The weather is mild.")
    assert (guard.event.status, guard.event.upstream_error, guard.event.action) == (502, "cut", "")
    assert 'evenhand_upstream_errors_total{kind="cut",route="guarded"} 1.0' in (await guard.get("/metrics")).text


@pytest.mark.parametrize("end", [part("stop"), b"data: [DONE]\n\n"], ids=["finish reason", "DONE"])
async def test_either_mark_ends_a_stream(serve: Serve, guarding: Guarding, end: bytes):
    behind = await serve(raw(TWO + end, headers={"Content-Type": "text/event-stream"}))
    guard = await guarding(route(behind.url))

    found = chunks((await guard.chat(stream=True)).text)

    assert found[-1]["evenhand"]["action"] == "passed"


NO_ANSWERS = {
    "a page": (b"<html>Please log in.</html>", "text/html"),
    "nothing": (b"", "text/event-stream"),
    "only the end": (b"data: [DONE]\n\n", "text/event-stream"),
    "an error in place of an end": (orjson.dumps(completion("The weather", finish="error")), "application/json"),
    "half an object": (b'{"choices": [{"message": {"content": "The wea', "application/json"),
}


@pytest.mark.parametrize("fields", [{}, {"method": "default", "policy": "flag", "evaluators": []}], ids=["", "bare"])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("data", "kind"), NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
async def test_a_200_without_an_answer_is_cut(
    serve: Serve, guarding: Guarding, data: bytes, kind: str, stream: bool, fields: dict[str, Any]
):
    behind = await serve(raw(data, headers={"Content-Type": kind}))
    guard = await guarding(route(behind.url, **fields))

    answer = await guard.chat(stream=stream)

    assert (answer.status, guard.event.upstream_error) == (502, "cut")
    assert "no whole answer" in answer.body["error"]["message"]
    assert "log in" not in answer.text


async def test_an_upstream_that_ends_with_an_error_gives_no_answer(serve: Serve, guarding: Guarding):
    behind = await serve(raw(TWO + part("error"), headers={"Content-Type": "text/event-stream"}))
    guard = await guarding(route(behind.url))

    broken_off((await guard.chat(stream=True)).text)


async def test_the_time_limit_ends_a_stream_that_has_begun(serve: Serve, guarding: Guarding):
    behind = await serve(streamed([*SENTENCES, "late"], then=asyncio.Event()))
    guard = await guarding(route(behind.url), limits={"seconds": 1.0})

    found = broken_off((await guard.chat(stream=True)).text)

    assert content(found).startswith("The weather is mild.")
    assert "longer than" in found[-1]["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_the_call_upstream(serve: Serve, guarding: Guarding, stream: bool):
    ended = asyncio.Event()
    waiting = hang() if not stream else streamed([*SENTENCES, "late"], then=asyncio.Event())

    async def noted(request):
        try:
            return await waiting(request)
        finally:
            ended.set()

    behind = await serve(noted)
    guard = await guarding(route(behind.url))

    await leave(guard, behind, stream)

    await ended.wait()
    await guard.told()
    assert guard.event.status == 499
    assert guard.server.in_flight == 0


async def test_a_client_that_leaves_is_no_error_of_the_server(
    serve: Serve, guarding: Guarding, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    async def write(*_: object) -> None:
        raise ConnectionResetError("Cannot write to closing transport")

    monkeypatch.setattr("evenhand.server.chat_api.streaming._Events.write", write)
    behind = await serve(streamed(SENTENCES))
    guard = await guarding(route(behind.url))

    with contextlib.suppress(aiohttp.ClientError):
        await guard.chat(stream=True)

    await guard.told()
    assert guard.event.status == 499
    assert "Error handling request" not in caplog.text


async def test_an_error_with_status_200_in_place_of_a_stream_is_in_the_record(serve: Serve, guarding: Guarding):
    error = {"error": {"message": "The model is overloaded."}}
    behind = await serve(reply_with(error, headers={"Content-Type": "application/json"}))
    guard = await guarding(route(behind.url))

    assert (await guard.chat(stream=True)).status == 502
    assert "The model is overloaded." in guard.event.error


@pytest.mark.parametrize("fail", [True, False], ids=["the endpoint breaks off", "the client leaves"])
async def test_what_was_sent_of_a_stream_that_broke_off_is_recorded(serve: Serve, guarding: Guarding, fail: bool):
    behind = await serve(streamed([f"{RUDE} ", *SENTENCES, "late"], then=None if fail else asyncio.Event(), fail=fail))
    guard = await guarding(route(behind.url, policy="flag"))

    if fail:
        await guard.chat(stream=True)
    else:
        await leave(guard, behind, stream=True)

    await guard.told()
    assert (guard.event.status, guard.event.action) == (502 if fail else 499, "")
    assert guard.event.text.startswith(RUDE)
    assert [check.passed for check in guard.event.after] == [False]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_tool_calls_are_recorded_as_they_were_returned(serve: Serve, guarding: Guarding, stream: bool):
    call = {"id": "call_0123456789", "type": "function", "function": {"name": "say", "arguments": '{"text": "Hi"}'}}
    message = {"role": "assistant", "content": "One moment.", "tool_calls": [call]}
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    behind = await serve(streamed(["One moment."], tool_calls=[call]) if stream else reply_with(whole))
    guard = await guarding(route(behind.url))

    await guard.chat(stream=stream)

    assert guard.event.text == 'One moment.\nsay({"text": "Hi"})'
    assert guard.event.first == guard.event.text


async def test_a_refusal_is_recorded_as_returned(serve: Serve, guarding: Guarding):
    refusal = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
    behind = await serve(reply_with({"choices": [{"index": 0, "message": refusal, "finish_reason": "stop"}]}))
    guard = await guarding(route(behind.url))

    await guard.chat()

    assert (guard.event.first, guard.event.text) == ("I cannot help with that.",) * 2


async def test_what_was_sent_of_several_answers_is_recorded_of_each(serve: Serve, guarding: Guarding):
    behind = await serve(streamed([f"{CLEAN} ", "late"], fail=True))
    guard = await guarding(route(behind.url, policy="flag"))

    await guard.chat(stream=True, n=2)

    sent = [guard.event.text, *(each.text for each in guard.event.others)]
    assert sent and set(sent) == {f"{CLEAN} "}


async def leave(guard: Served, behind: ChatServer, stream: bool) -> None:
    """Ask, and go as soon as the request is under way."""
    async with aiohttp.ClientSession() as session:
        asking = asyncio.ensure_future(session.post(guard.url + "/chat/completions", json=asked(stream)))
        if stream:
            reply = await asking
            await reply.content.readany()
            reply.close()
        else:
            await behind.has_seen(1)
            asking.cancel()


def asked(stream: bool = True) -> dict[str, Any]:
    return {"model": "guarded", "messages": [{"role": "user", "content": "Hello?"}], "stream": stream}
