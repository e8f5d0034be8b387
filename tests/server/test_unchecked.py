"""No field of an endpoint's reply brings text to a client that nobody checked."""

from typing import Any

import orjson
import pytest

from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, route
from support.server import chat, completion, raw, reply_with

MARK = "kumquat"
"""Stands for text that nobody checked; it must never come through."""

MESSAGE: dict[str, Any] = {
    "reasoning": MARK,
    "reasoning_content": MARK,
    "reasoning_details": [{"type": "reasoning.text", "text": MARK}],
    "thinking": MARK,
    "thinking_blocks": [{"thinking": MARK}],
    "audio": {"id": "a", "transcript": MARK},
    "annotations": [{"type": "url_citation", "url_citation": {"title": MARK, "url": MARK}}],
    "images": [{"image_url": {"url": MARK}}],
    "role": MARK,
    "name": MARK,
    MARK: MARK,
}
PARTS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": [{"type": "text", "text": MARK}]},
    {"type": "reasoning", "text": MARK},
    {"type": "text", "text": CLEAN, "annotations": [MARK]},
    {"type": "image_url", "image_url": {"url": MARK}},
    {"type": "refusal", "refusal": MARK},
    {"type": MARK},
]
FIELDS: dict[str, dict[str, Any]] = {
    **{name: {name: value} for name, value in MESSAGE.items()},
    "content parts": {"content": PARTS},
}
CHOICE = {"logprobs": {"content": [{"token": MARK, "logprob": 0}]}, "text": MARK, "content_filter_results": MARK}
REPLY = {"citations": [MARK], "system_fingerprint": f"{MARK} {MARK}", MARK: MARK}


@pytest.mark.parametrize("policy", ["block", "revise", "flag"])
@pytest.mark.parametrize("message", FIELDS.values(), ids=FIELDS.keys())
async def test_fields_of_a_whole_answer(serve: Serve, guarding: Guarding, message: dict[str, Any], policy: str):
    reply = completion(CLEAN)
    reply["choices"][0]["message"] |= message
    reply["choices"][0] |= CHOICE
    reply["usage"]["note"] = MARK
    behind = await serve(reply_with(reply | REPLY))
    guard = await guarding(route(behind.url, policy=policy))

    answer = await guard.chat(logprobs=True)

    assert answer.body["choices"][0]["message"] == {"role": "assistant", "content": CLEAN}
    assert MARK not in answer.text
    assert answer.headers["X-Evenhand-Action"] == "passed"


@pytest.mark.parametrize("policy", ["block", "revise", "flag"])
@pytest.mark.parametrize("delta", FIELDS.values(), ids=FIELDS.keys())
async def test_fields_of_a_streamed_answer(serve: Serve, guarding: Guarding, delta: dict[str, Any], policy: str):
    choice = {"index": 0, "delta": {"content": CLEAN} | delta, "finish_reason": "stop", **CHOICE}
    chunk = {"choices": [choice], "usage": {"note": MARK, "prompt_tokens": 1}, **REPLY}
    stream = b"data: " + orjson.dumps(chunk) + b"\n\ndata: [DONE]\n\n"
    behind = await serve(raw(stream, headers={"Content-Type": "text/event-stream"}))
    guard = await guarding(route(behind.url, policy=policy))

    answer = await guard.chat(stream=True, logprobs=True, stream_options={"include_usage": True})

    assert CLEAN in answer.text
    assert MARK not in answer.text


async def test_a_finish_reason_is_one_of_those_that_clients_know(serve: Serve, guarding: Guarding):
    behind = await serve(reply_with(completion(CLEAN, finish=MARK)))
    guard = await guarding(route(behind.url))

    assert (await guard.chat()).body["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [True, False])
async def test_unchecked_answers_are_marked_in_header_record_and_metrics(
    serve: Serve, guarding: Guarding, stream: bool
):
    behind = await serve(chat("面包是用面粉做的。"))
    guard = await guarding(route(behind.url, policy="block", unchecked="flag", method="cot"))

    answer = await guard.chat(stream=stream)

    if not stream:
        assert answer.headers["X-Evenhand-Action"] == answer.body["evenhand"]["action"] == "unchecked"
    assert guard.event.action == "unchecked"
    assert 'action="unchecked"' in (await guard.get("/metrics")).text


@pytest.mark.parametrize("method", ["default", "fair_prompt"])
@pytest.mark.parametrize(("policy", "ends"), [("revise", "unchecked"), ("block", "unchecked"), ("flag", "passed")])
async def test_without_evaluators_nothing_passes_unless_it_is_only_passed_on(
    serve: Serve, guarding: Guarding, policy: str, ends: str, method: str
):
    behind = await serve(reply_with(completion(CLEAN), headers={"Content-Type": "application/json"}))
    guard = await guarding(route(behind.url, policy=policy, method=method, evaluators=[]))

    whole, _ = await guard.chat(), await guard.chat(stream=True)

    assert whole.headers["X-Evenhand-Action"] == ends
    assert guard.event.action == ends


async def test_an_answer_that_is_better_and_still_fails_is_marked_as_tried(serve: Serve, guarding: Guarding):
    behind = await serve(chat(f"{RUDE} I will kill you, moron."), chat("You are a stupid idiot, I hate you."))
    guard = await guarding(route(behind.url))

    answer = await guard.chat()

    assert answer.headers["X-Evenhand-Action"] == answer.body["evenhand"]["action"] == "tried"
    assert guard.event.action == "tried"
    assert 'action="tried"' in (await guard.get("/metrics")).text


async def test_tool_arguments_pass_where_the_route_says_so(serve: Serve, guarding: Guarding):
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "look", "arguments": orjson.dumps({"a": RUDE}).decode()},
    }
    behind = await serve(chat(None, finish="tool_calls", tool_calls=[call]))
    checked = await guarding(route(behind.url, policy="block", method="default"))
    unchecked = await guarding(route(behind.url, policy="block", method="default", tool_arguments="pass"))

    first, second = await checked.chat(), await unchecked.chat()

    assert first.headers["X-Evenhand-Action"] == "blocked"
    assert "idiot" not in first.text
    assert second.headers["X-Evenhand-Action"] == "unchecked"
    assert second.body["choices"][0]["message"]["tool_calls"] == [call]


ODD: list[Any] = [
    None,
    5,
    True,
    "x",
    [],
    {},
    [None],
    [5],
    ["x"],
    [[]],
    {"a": 1},
    [{"a": 1}],
    [{"type": "text", "text": 5}],
]
PLACES = ["content", "refusal", "tool_calls", "function_call", "call", "function", "arguments", "name", "id", "index"]


def odd_message(place: str, value: Any) -> dict[str, Any]:
    """A message with one field that is not what it should be."""
    function = {"name": "look", "arguments": "{}"}
    call: Any = {"index": 0, "id": "c1", "type": "function", "function": function}
    if place in function:
        function[place] = value
    elif place in call:
        call[place] = value
    elif place == "call":
        call = value
    return {"content": CLEAN, "tool_calls": [call], **({place: value} if place in PLACES[:4] else {})}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("place", [*PLACES, "choices", "choice", "message", "finish_reason", "usage", "logprobs"])
async def test_no_form_of_a_reply_is_a_fault_of_the_server(
    serve: Serve, guarding: Guarding, place: str, stream: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("evenhand.guards.upstreams.FAILURES", 100)  # every reply is read
    replies: list[Any] = []
    for value in ODD:
        message = value if place == "message" else odd_message(place, value)
        choice: Any = {"index": 0, "delta" if stream else "message": message, "finish_reason": "stop"}
        choice |= {place: value} if place in ("finish_reason", "logprobs") else {}
        reply = {"choices": value if place == "choices" else [value if place == "choice" else choice]}
        reply |= {"usage": value} if place == "usage" else {}
        data = b"data: " + orjson.dumps(reply) + b"\n\ndata: [DONE]\n\n" if stream else orjson.dumps(reply)
        replies.append(raw(data, headers={"Content-Type": "text/event-stream" if stream else "application/json"}))
    behind = await serve(*replies)
    guard = await guarding(route(behind.url, policy="block", method="default"))

    answers = [await guard.chat(stream=stream, logprobs=True) for _ in ODD]

    await guard.told(len(ODD))
    assert {answer.status for answer in answers} <= {200, 502}
    assert {event.status for event in guard.server.events.recent} <= {200, 502}
