"""Anthropic's form, /v1/messages: the same guard as for chat completions, in another format."""

from typing import Any

import orjson
import pytest

from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, Served, route, streamed
from support.server import chat, completion, refuse, reply_with

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
LOOK: dict[str, Any] = {"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}


async def ask(guard: Served, given: Any = "Hello?", headers: Any = None, **fields: Any) -> Any:
    body = {"model": "guarded", "max_tokens": 9, "messages": [{"role": "user", "content": given}], **fields}
    return await guard.post("/v1/messages", body, headers=headers or {})


def events_in(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(orjson.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


async def test_an_answer_goes_through_the_guard(serve: Serve, guarding: Guarding):
    behind = await serve(chat(RUDE), chat(CLEAN))
    guard = await guarding(route(behind.url))

    answer = await ask(guard, system="Be brief.", stop_sequences=["END"], metadata={"user_id": "u"})

    assert (answer.status, answer.body["type"], answer.body["role"]) == (200, "message", "assistant")
    assert answer.body["content"] == [{"type": "text", "text": CLEAN}]
    assert (answer.body["stop_reason"], answer.body["model"]) == ("end_turn", "guarded")
    assert answer.body["usage"] == {"input_tokens": 40, "output_tokens": 10}
    assert answer.body["evenhand"]["action"] == answer.headers["X-Evenhand-Action"] == "revised"
    assert behind.bodies[0] == {
        "model": "behind",
        "max_tokens": 9,
        "stop": ["END"],
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}],
    }
    assert (guard.event.endpoint, guard.event.prompt) == ("/v1/messages", "Hello?")


async def test_a_streamed_answer_has_anthropics_events_in_order(serve: Serve, guarding: Guarding):
    behind = await serve(streamed([RUDE]), streamed([CLEAN]))
    guard = await guarding(route(behind.url))

    answer = await ask(guard, stream=True)

    events = events_in(answer.text)
    kinds = list(dict.fromkeys(each["type"] for each in events))
    assert kinds == [
        *("message_start", "content_block_start", "content_block_delta", "content_block_stop"),
        *("message_delta", "message_stop"),
    ]
    said = "".join(each["delta"]["text"] for each in events if each["type"] == "content_block_delta")
    assert said == CLEAN
    assert events[-2]["delta"]["stop_reason"] == "end_turn"
    assert events[-2]["usage"]["output_tokens"] > 0
    assert events[-2]["evenhand"]["action"] == "revised"


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_are_called_and_their_results_sent(serve: Serve, guarding: Guarding, stream: bool):
    whole = reply_with(completion(None, finish="tool_calls", tool_calls=[CALL]))
    behind = await serve(streamed([], tool_calls=[CALL], finish="tool_calls") if stream else whole)
    guard = await guarding(route(behind.url))
    used = {"type": "tool_use", "id": "t0", "name": "look", "input": {"at": "sea"}}
    result = {"type": "tool_result", "tool_use_id": "t0", "content": [{"type": "text", "text": "wet"}]}
    turns = [
        {"role": "user", "content": "Look!"},
        {"role": "assistant", "content": [{"type": "text", "text": "So."}, used]},
        {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]},
    ]

    answer = await ask(guard, messages=turns, tools=[LOOK], tool_choice={"type": "any"}, stream=stream)

    sent = behind.bodies[0]
    assert [each["role"] for each in sent["messages"]] == ["user", "assistant", "tool", "user"]
    assert sent["messages"][1]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at":"sea"}'}
    assert sent["messages"][2] == {"role": "tool", "tool_call_id": "t0", "content": "wet"}
    assert sent["tools"][0]["function"]["parameters"] == LOOK["input_schema"]
    assert sent["tool_choice"] == "required"
    if not stream:
        assert answer.body["content"] == [{"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "sky"}}]
        assert answer.body["stop_reason"] == "tool_use"
        return
    events = events_in(answer.text)
    assert [each["type"] for each in events][:3] == ["message_start", "content_block_start", "content_block_delta"]
    assert events[2]["delta"] == {"type": "input_json_delta", "partial_json": '{"at":"sky"}'}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


async def test_a_blocked_answer_stops_as_a_refusal(serve: Serve, guarding: Guarding):
    behind = await serve(chat(RUDE))
    guard = await guarding(route(behind.url, policy="block", blocked_text="Withheld."))

    answer = await ask(guard)

    assert answer.body["content"] == [{"type": "text", "text": "Withheld."}]
    assert answer.body["stop_reason"] == "refusal"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"mcp_servers": []}, "mcp_servers"),
        ({"messages": [{"role": "system", "content": "x"}]}, "role user or assistant"),
        ({"messages": [{"role": "user", "content": [{"type": "document"}]}]}, "document"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}], "messages": []}, "Anthropic"),
    ],
)
async def test_what_is_not_served_is_refused_by_name_in_anthropics_form(
    serve: Serve, guarding: Guarding, fields: Any, named: str
):
    guard = await guarding(route((await serve(chat())).url))

    answer = await ask(guard, **fields)

    assert (answer.status, answer.body["type"]) == (400, "error")
    assert answer.body["error"]["type"] == "invalid_request_error"
    assert named in answer.body["error"]["message"]


async def test_an_error_behind_the_guard_has_anthropics_form(serve: Serve, guarding: Guarding):
    behind = await serve(refuse("too many", status=429))
    guard = await guarding(route(behind.url, retries=0))

    answer = await ask(guard)

    assert (answer.status, answer.body["type"]) == (429, "error")
