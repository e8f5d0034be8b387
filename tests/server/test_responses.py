"""The Responses form: the same guard as for chat completions, in another format."""

from typing import Any

import orjson
import pytest

from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, Served, route, streamed
from support.server import chat, completion, refuse, reply_with

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
MILD = "The weather is mild today, and it will stay like this for the rest of the week, as far as anybody knows. "
SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}}


async def ask(guard: Served, given: Any = "Hello?", headers: Any = None, **fields: Any) -> Any:
    return await guard.post("/v1/responses", {"model": "guarded", "input": given, **fields}, headers=headers or {})


def events_in(text: str) -> list[dict[str, Any]]:
    """The events of a stream; each has its type twice."""
    found: list[dict[str, Any]] = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(orjson.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


class TestAnswers:
    async def test_an_answer_goes_through_the_guard(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(chat(RUDE), chat(CLEAN))
        guard = await guarding(route(behind.url))

        answer = await ask(guard, instructions="Be brief.", metadata={"team": "a"}, store=True, max_output_tokens=9)

        assert (answer.status, answer.body["object"], answer.body["status"]) == (200, "response", "completed")
        (message,) = answer.body["output"]
        assert (message["type"], message["role"], message["status"]) == ("message", "assistant", "completed")
        assert message["content"] == [{"type": "output_text", "text": CLEAN, "annotations": [], "logprobs": []}]
        assert answer.body["evenhand"]["action"] == answer.headers["X-Evenhand-Action"] == "revised"
        assert (answer.body["store"], answer.body["metadata"]) == (False, {"team": "a"})
        assert answer.body["usage"]["total_tokens"] == 50
        assert answer.body["id"] == f"resp_{answer.headers['X-Request-Id']}"
        assert behind.bodies[0] == {
            "model": "behind",
            "max_completion_tokens": 9,
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}],
        }

    async def test_the_event_is_that_of_any_answer(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(chat(RUDE), chat(CLEAN))
        guard = await guarding(route(behind.url, price={"input": 1, "output": 1}))

        await ask(guard, "How is the weather?")

        event = guard.event
        assert (event.endpoint, event.route, event.action) == ("/v1/responses", "guarded", "revised")
        assert (event.prompt, event.first, event.text) == ("How is the weather?", RUDE, CLEAN)
        assert event.usage.cost > 0

    async def test_a_blocked_answer_is_incomplete(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(chat(RUDE))
        guard = await guarding(route(behind.url, policy="block", blocked_text="Withheld."))

        answer = await ask(guard)

        assert answer.body["status"] == answer.body["output"][0]["status"] == "incomplete"
        assert answer.body["incomplete_details"] == {"reason": "content_filter"}
        assert answer.body["output"][0]["content"][0]["text"] == "Withheld."
        assert answer.body["evenhand"]["action"] == "blocked"

    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_blocked_answer_in_json_is_a_refusal(self, serve: Serve, guarding: Guarding, stream: bool) -> None:
        behind = await serve(chat(orjson.dumps({"answer": RUDE}).decode()))
        guard = await guarding(route(behind.url, policy="block", blocked_text="Withheld."))

        answer = await ask(guard, text={"format": {"type": "json_object"}}, stream=stream)

        final = events_in(answer.text)[-1]["response"] if stream else answer.body
        assert final["status"] == "incomplete"
        assert final["output"][0]["content"] == [{"type": "refusal", "refusal": "Withheld."}]
        assert RUDE not in answer.text

    async def test_a_cut_answer_is_incomplete(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(chat(CLEAN, finish="length"))
        guard = await guarding(route(behind.url))

        answer = await ask(guard)

        assert answer.body["incomplete_details"] == {"reason": "max_output_tokens"}

    async def test_a_refusal_is_a_part_of_its_own(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(chat(None, refusal="I cannot help with that."))
        guard = await guarding(route(behind.url))

        answer = await ask(guard)

        assert answer.body["output"][0]["content"] == [{"type": "refusal", "refusal": "I cannot help with that."}]

    async def test_function_calls_are_items(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(chat(None, finish="tool_calls", tool_calls=[CALL]))
        guard = await guarding(route(behind.url))

        answer = await ask(guard, tools=[LOOK], tool_choice={"type": "function", "name": "look"})

        (item,) = answer.body["output"]
        assert answer.body["status"] == "completed"
        assert (item["type"], item["call_id"], item["name"]) == ("function_call", "c1", "look")
        assert item["arguments"] == '{"at": "sky"}'
        parameters = {"type": "object", "properties": {}}
        assert behind.bodies[0]["tools"] == [
            {"type": "function", "function": {"name": "look", "parameters": parameters}}
        ]
        assert behind.bodies[0]["tool_choice"] == {"type": "function", "function": {"name": "look"}}

    @pytest.mark.parametrize("stream", [False, True])
    async def test_arguments_are_checked(self, serve: Serve, guarding: Guarding, stream: bool) -> None:
        call = {**CALL, "function": {"name": "look", "arguments": orjson.dumps({"at": RUDE}).decode()}}
        whole, pieces = chat(None, finish="tool_calls", tool_calls=[call]), streamed([], tool_calls=[call])
        behind = await serve(answer=lambda body: pieces if body.get("stream") else whole)
        guard = await guarding(route(behind.url, policy="block"))

        answer = await ask(guard, tools=[LOOK], stream=stream)

        assert "worthless" not in answer.text
        assert '"reason":"content_filter"' in answer.text

    async def test_thoughts_and_other_fields_stay_behind(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(chat(CLEAN, reasoning_content=RUDE, annotations=[{"title": RUDE}], audio={"text": RUDE}))
        guard = await guarding(route(behind.url))

        answer = await ask(guard)

        assert answer.body["output"][0]["content"][0]["text"] == CLEAN
        assert "worthless" not in answer.text

    async def test_a_schema_is_passed_on(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(chat('{"answer": "It is mild."}'))
        guard = await guarding(route(behind.url))
        form = {"type": "json_schema", "name": "reply", "schema": SCHEMA, "strict": True}

        answer = await ask(guard, text={"format": form, "verbosity": "low"}, reasoning={"effort": "low"})

        named = {"name": "reply", "strict": True, "schema": SCHEMA}
        assert behind.bodies[0]["response_format"] == {"type": "json_schema", "json_schema": named}
        assert (behind.bodies[0]["verbosity"], behind.bodies[0]["reasoning_effort"]) == ("low", "low")
        assert answer.body["text"] == {"format": form, "verbosity": "low"}
        assert answer.body["output"][0]["content"][0]["text"] == '{"answer": "It is mild."}'


class TestInput:
    async def test_items_become_messages(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(chat(CLEAN))
        guard = await guarding(route(behind.url))
        called = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
        picture = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}

        answer = await ask(
            guard,
            [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, picture]},
                {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "A thought."}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
                called,
                {**called, "call_id": "c2"},
                {"type": "function_call_output", "call_id": "c1", "output": "blue"},
                {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "red"}]},
                {"role": "user", "content": [{"type": "input_text", "text": "And now?"}]},
            ],
        )

        assert answer.status == 200
        function = {"name": "look", "arguments": "{}"}
        assert behind.bodies[0]["messages"] == [
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
                ],
            },
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [{"id": each, "type": "function", "function": function} for each in ("c1", "c2")],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "blue"},
            {"role": "tool", "tool_call_id": "c2", "content": "red"},
            {"role": "user", "content": "And now?"},
        ]

    async def test_its_own_output_can_be_sent_back(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(chat(None, finish="tool_calls", tool_calls=[CALL]), chat(CLEAN))
        guard = await guarding(route(behind.url))
        first = await ask(guard, tools=[LOOK])
        result = {"type": "function_call_output", "call_id": "c1", "output": "blue"}

        answer = await ask(guard, [{"role": "user", "content": "Look!"}, *first.body["output"], result], tools=[LOOK])

        assert answer.body["output"][0]["content"][0]["text"] == CLEAN
        assert [each["role"] for each in behind.bodies[1]["messages"]] == ["user", "assistant", "tool"]

    @pytest.mark.parametrize(
        ("fields", "param"),
        [
            ({"previous_response_id": "resp_1"}, "previous_response_id"),
            ({"conversation": "conv_1"}, "conversation"),
            ({"background": True}, "background"),
            ({"prompt": {"id": "p"}}, "prompt"),
            ({"truncation": "auto"}, "truncation"),
            ({"include": ["message.output_text.logprobs"]}, "include"),
            ({"messages": [{"role": "user", "content": "x"}]}, "messages"),
            ({"n": 2}, "n"),
            ({"tools": [{"type": "web_search"}]}, "tools[0]"),
            ({"tools": [{"type": "function", "function": {"name": "x"}}]}, "tools[0].name"),
            ({"tools": {}}, "tools"),
            ({"tools": [LOOK], "tool_choice": {"type": "file_search"}}, "tool_choice"),
            ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
            ({"text": "json"}, "text"),
            ({"instructions": 3}, "instructions"),
            ({"stream": "yes"}, "stream"),
            ({"input": None}, "input"),
            ({"input": []}, "input"),
            ({"input": [3]}, "input[0]"),
            ({"input": [{"type": "reasoning"}]}, "input"),
            ({"input": [{"type": "item_reference", "id": "m"}]}, "input[0]"),
            ({"input": [{"type": ["x"]}]}, "input[0]"),
            ({"input": [{"role": "tool", "content": "x"}]}, "input[0]"),
            ({"input": [{"role": "user", "content": 3}]}, "input[0].content"),
            ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
            (
                {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
                "input[0].content[0]",
            ),
            ({"input": [{"type": "function_call", "name": "x", "arguments": {}}]}, "input[0].arguments"),
        ],
    )
    async def test_what_cannot_be_carried_over_is_refused_by_name(
        self, serve: Serve, guarding: Guarding, fields: dict[str, Any], param: str
    ) -> None:
        behind = await serve(chat(CLEAN))
        guard = await guarding(route(behind.url))

        answer = await guard.post("/v1/responses", {"model": "guarded", "input": "Hello?", **fields})

        assert answer.status == 400
        assert answer.body["error"]["param"] == param
        assert answer.body["error"]["message"].endswith(".")
        assert behind.bodies == []

    async def test_the_limits_of_chat_hold(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(chat(CLEAN))
        guard = await guarding(route(behind.url))

        assert (await ask(guard, model="other")).status == 404
        assert (await ask(guard, evenhand={"method": "none"})).status == 403
        assert (await ask(guard, headers={"X-Evenhand-Method": "none"})).status == 403

    async def test_complaints_of_the_model_reach_the_client(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(refuse("too hot", param="temperature"))
        guard = await guarding(route(behind.url))

        answer = await ask(guard, temperature=9)

        assert answer.status == 400
        assert answer.body["error"]["message"].startswith("too hot")


class TestStreams:
    async def test_the_events_come_in_order(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(streamed([MILD, "The park is open."], tool_calls=[CALL]))
        guard = await guarding(route(behind.url))

        answer = await ask(guard, stream=True, tools=[LOOK])

        events = events_in(answer.text)
        kinds = [each["type"].removeprefix("response.") for each in events]
        assert kinds == [
            "created",
            "in_progress",
            "output_item.added",
            "content_part.added",
            "output_text.delta",
            "output_text.delta",
            "output_text.done",
            "content_part.done",
            "output_item.done",
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
            "completed",
        ]
        assert [each["sequence_number"] for each in events] == list(range(len(events)))
        text = f"{MILD}The park is open."
        assert "".join(each["delta"] for each in events if each["type"] == "response.output_text.delta") == text
        final = events[-1]["response"]
        assert [each["item"] for each in events if each["type"] == "response.output_item.done"] == final["output"]
        assert (final["output"][0]["content"][0]["text"], final["output"][1]["call_id"]) == (text, "c1")
        assert final["evenhand"]["action"] == "passed"
        assert final["usage"]["total_tokens"] == 25
        assert (guard.event.endpoint, guard.event.stream) == ("/v1/responses", True)

    async def test_text_is_sent_when_it_is_checked(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(streamed([MILD, RUDE]), streamed(["The park is open."]))
        guard = await guarding(route(behind.url))

        answer = await ask(guard, stream=True)

        final = events_in(answer.text)[-1]["response"]
        assert final["output"][0]["content"][0]["text"] == f"{MILD}The park is open."
        assert final["evenhand"]["action"] == "revised"
        assert "worthless" not in answer.text

    async def test_a_blocked_stream_is_incomplete(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(streamed([RUDE]))
        guard = await guarding(route(behind.url, policy="block", blocked_text="Withheld."))

        answer = await ask(guard, stream=True)

        last = events_in(answer.text)[-1]
        assert last["type"] == "response.incomplete"
        assert last["response"]["incomplete_details"] == {"reason": "content_filter"}
        assert "worthless" not in answer.text

    async def test_a_refusal_is_streamed_as_one(self, serve: Serve, guarding: Guarding) -> None:
        reply = completion(None, refusal="I cannot help with that.")
        behind = await serve(reply_with(reply, headers={"Content-Type": "application/json"}))
        guard = await guarding(route(behind.url))

        events = events_in((await ask(guard, stream=True)).text)

        kinds = [each["type"].removeprefix("response.") for each in events[2:]]
        assert kinds == [
            "output_item.added",
            "content_part.added",
            "refusal.delta",
            "refusal.done",
            "content_part.done",
            "output_item.done",
            "completed",
        ]

    async def test_a_cut_stream_fails(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(streamed(["The weather is mild. ", "The park is open. "], fail=True))
        guard = await guarding(route(behind.url))

        answer = await ask(guard, stream=True)
        await guard.told()

        *_, error, last = events_in(answer.text)
        assert (error["type"], error["code"]) == ("error", "upstream_error")
        assert last["type"] == "response.failed"
        assert (last["response"]["status"], last["response"]["error"]["code"]) == ("failed", "server_error")
        assert last["response"]["output"][0]["status"] == "incomplete"
        assert "completed" not in answer.text
        assert (guard.event.status, guard.event.upstream_error) == (502, "cut")

    async def test_a_failure_before_the_first_text_has_its_status(self, serve: Serve, guarding: Guarding) -> None:
        behind = await serve(refuse("slow", status=429))
        guard = await guarding(route(behind.url))

        assert (await ask(guard, stream=True)).status == 429
