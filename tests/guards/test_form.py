"""The form of a request under the guard: tools, pictures, JSON and whatever else it holds stay as they are."""

from typing import Any

import pytest

from evenhand.guards.guard import Guard
from evenhand.guards.policy import GuardPolicy
from evenhand.guards.upstream import BadRequest
from evenhand.reading.json_form import json_fault
from support.fixtures import Serve
from support.guarding import ASKED, CALLS, KIND, RUDE, TOOLS, by_turn, calling, guard_of, is_judge
from support.server import Reply, chat, completion, reply_with

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SEEN = [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, PICTURE]}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}, "sure": {"type": "boolean"}},
    "required": ["answer"],
    "additionalProperties": False,
}
OBJECT = {"type": "json_object"}
BY_SCHEMA = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA}}
RUDE_JSON = '{"answer": "You are a stupid idiot, and I hate you."}'
KIND_JSON = '{"answer": "Bread is baked from flour, water and salt."}'


class TestTools:
    async def test_tool_calls_alone_pass(self, serve: Serve):
        server = await serve(calling())
        async with guard_of(server, action="block") as guard:
            found = await guard(ASKED, tools=TOOLS, tool_choice="auto")

        assert (found.text, found.action, found.finish) == ("", "passed", "tool_calls")
        assert found.message["tool_calls"] == CALLS
        assert server.bodies == [{"model": "test-model", "messages": ASKED, "tools": TOOLS, "tool_choice": "auto"}]
        assert found.usage.calls == 1

    async def test_tool_calls_need_not_be_the_json_of_the_answer(self, serve: Serve):
        server = await serve(calling())
        async with guard_of(server, action="block") as guard:
            found = await guard(ASKED, tools=TOOLS, response_format=BY_SCHEMA)

        assert (found.action, found.message["tool_calls"]) == ("passed", CALLS)

    async def test_words_beside_tool_calls_are_revised_and_the_calls_stay(self, serve: Serve):
        server = await serve(calling(RUDE), chat(KIND))
        async with guard_of(server) as guard:
            found = await guard(ASKED, tools=TOOLS)

        assert (found.text, found.action, found.finish) == (KIND, "revised", "tool_calls")
        assert found.message["tool_calls"] == CALLS
        assert server.bodies[1]["tools"] == TOOLS
        assert server.bodies[1]["tool_choice"] == "none"

    async def test_a_conversation_with_tool_results_is_sent_as_it_is(self, serve: Serve):
        server = await serve(chat(RUDE), chat(KIND))
        called = [
            *ASKED,
            {"role": "assistant", "content": None, "tool_calls": CALLS},
            {"role": "tool", "tool_call_id": "c1", "content": "flour"},
        ]
        async with guard_of(server) as guard:
            found = await guard(called, tools=TOOLS)

        assert found.text == KIND
        assert server.bodies[0]["messages"] == called
        assert server.bodies[1]["messages"][:4] == called
        assert server.bodies[1]["messages"][4]["role"] == "user"

    async def test_critics_know_nothing_of_tools(self, serve: Serve):
        server = await serve(answer=by_turn(KIND))
        async with guard_of(server, evaluators=("bias",)) as guard:
            await guard(ASKED, tools=TOOLS, response_format=OBJECT)

        critics = [body for body in server.bodies if is_judge(body)]
        assert critics
        assert all("tools" not in body and body.get("response_format") != OBJECT for body in critics)

    @pytest.mark.parametrize("method", ["cot", "mabrf"])
    async def test_thoughts_do_not_call_tools_but_the_answer_may(self, serve: Serve, method: str):
        server = await serve(answer=by_turn("1. Think of flour.", KIND, judge='{"bias": 0, "relevancy": 9}'))
        async with guard_of(server, method=method) as guard:
            found = await guard(ASKED, tools=TOOLS, response_format={"type": "text"})

        thought, answer = [body for body in server.bodies if not is_judge(body)]
        assert found.text == KIND
        assert thought["tool_choice"] == "none" and "response_format" not in thought
        assert "tool_choice" not in answer and answer["tools"] == TOOLS


class TestPictures:
    async def test_they_reach_the_model_in_every_turn(self, serve: Serve):
        server = await serve(chat(RUDE), chat(KIND))
        async with guard_of(server) as guard:
            await guard(SEEN)

        again = server.bodies[1]["messages"][0]["content"]
        assert again[:2] == SEEN[0]["content"]
        assert again[2]["type"] == "text" and "Earlier answers" in again[2]["text"]

    async def test_models_of_words_refuse_them(self):
        async with Guard("fake/yes") as guard:
            with pytest.raises(BadRequest, match="takes text alone"):
                await guard(SEEN)
            with pytest.raises(BadRequest, match="leave out tools"):
                await guard(ASKED, tools=TOOLS)


class TestJson:
    @pytest.mark.parametrize("form", [OBJECT, BY_SCHEMA])
    async def test_a_revision_is_asked_for_in_the_same_form(self, serve: Serve, form: dict[str, Any]):
        server = await serve(chat(RUDE_JSON), chat(KIND_JSON))
        async with guard_of(server) as guard:
            found = await guard(ASKED, response_format=form)

        assert (found.text, found.action) == (KIND_JSON, "revised")
        assert [body["response_format"] for body in server.bodies] == [form, form]
        assert {check.name for check in found.after} == {"toxicity", "json"}

    @pytest.mark.parametrize("bad", [KIND, '{"sure": true}', '{"answer": 3}', '{"answer": "x", "more": 1}', "[]"])
    async def test_a_revision_in_another_form_is_asked_for_again(self, serve: Serve, bad: str):
        server = await serve(chat(RUDE_JSON), chat(bad), chat(KIND_JSON))
        async with guard_of(server) as guard:
            found = await guard(ASKED, response_format=BY_SCHEMA)

        assert (found.text, found.action, found.iterations) == (KIND_JSON, "revised", 2)

    async def test_it_is_never_returned(self, serve: Serve):
        server = await serve(chat(RUDE_JSON), chat(KIND), chat("Water."))
        async with guard_of(server) as guard:
            found = await guard(ASKED, response_format=BY_SCHEMA)

        assert (found.text, found.action) == (RUDE_JSON, "unrevised")

    async def test_a_blocked_answer_is_a_refusal_that_nobody_parses(self, serve: Serve):
        server = await serve(chat(RUDE_JSON))
        async with guard_of(server, action="block", blocked_text="Withheld.") as guard:
            found = await guard(ASKED, response_format=BY_SCHEMA)

        assert found.message == {"role": "assistant", "content": None, "refusal": "Withheld."}

    @pytest.mark.parametrize("method", ["fair_prompt", "cot", "self_debias_reprompt"])
    async def test_other_methods_keep_it_too(self, serve: Serve, method: str):
        server = await serve(chat(KIND_JSON))
        async with guard_of(server, method=method) as guard:
            found = await guard(ASKED, response_format=BY_SCHEMA)

        assert found.text == KIND_JSON
        assert server.bodies[-1]["response_format"] == BY_SCHEMA

    async def test_a_reprompt_that_loses_it_does_not_count(self, serve: Serve):
        server = await serve(chat(KIND_JSON), chat("Here is my answer again."))
        async with guard_of(server, method="self_debias_reprompt") as guard:
            found = await guard(ASKED, response_format=BY_SCHEMA)

        assert (found.text, found.action) == (KIND_JSON, "passed")


@pytest.mark.parametrize(
    ("schema", "text", "fault"),
    [
        ({"type": "array", "items": {"type": "integer"}}, "[1, 2]", ""),
        ({"type": "array", "items": {"type": "integer"}}, "[1, true]", "Its [1] is not of the type integer."),
        ({"enum": ["a", "b"]}, '"c"', "It is none of the allowed values."),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "null", ""),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "3", "It is not of the type null."),
        ({"type": ["string", "null"]}, "3", "It is not of the type string or null."),
        ({"$ref": "#/$defs/node", "$defs": {"node": {"required": ["id"]}}}, "{}", "It lacks the field id."),
        ({"properties": {"a": {"items": {"const": 1}}}}, '{"a": [2]}', "Its a[0] is not the expected value."),
        ({"type": "number"}, "2", ""),
        ({"type": "integer"}, "2.0", ""),
        ({"$ref": "#"}, "1", ""),
        ({"$ref": "#/nowhere"}, "1", ""),
        ({"minimum": 5}, "1", ""),
    ],
)
def test_the_small_reader_of_schemas(schema: dict[str, Any], text: str, fault: str):
    assert json_fault(text, {"type": "json_schema", "json_schema": {"schema": schema}}) == fault


@pytest.mark.parametrize("form", [None, {"type": "text"}, "json", {"type": "json_schema"}])
def test_a_form_that_asks_for_nothing_lets_json_pass(form: Any):
    assert json_fault("{}", form) == ""


async def test_a_refusal_passes_unrevised(serve: Serve):
    server = await serve(reply_with(completion(None, refusal="I would rather not.")))
    async with guard_of(server) as guard:
        found = await guard(ASKED)

    assert (found.text, found.action, found.first) == ("", "passed", "I would rather not.")
    assert found.message["refusal"] == "I would rather not."
    assert len(server.requests) == 1


async def test_a_refusal_need_not_be_json_but_is_checked(serve: Serve):
    polite, rude = (
        await serve(reply_with(completion(None, refusal="No."))),
        await serve(reply_with(completion(None, refusal=RUDE))),
    )
    async with guard_of(polite, action="block") as guard:
        passed = await guard(ASKED, response_format=OBJECT)
    async with guard_of(rude, action="block") as guard:
        blocked = await guard(ASKED, response_format=OBJECT)

    assert (passed.action, blocked.action) == ("passed", "blocked")
    assert RUDE not in str(blocked.message)


async def test_an_empty_revision_is_never_returned(serve: Serve):
    server = await serve(chat(RUDE), chat(""), chat(" "))
    async with guard_of(server) as guard:
        found = await guard(ASKED)

    assert (found.text, found.action) == (RUDE, "unrevised")


async def test_what_is_no_json_cannot_be_asked(serve: Serve):
    server = await serve(chat(KIND))
    async with guard_of(server) as guard:
        with pytest.raises(BadRequest, match="cannot be sent as JSON"):
            await guard(ASKED, user=object())
        with pytest.raises(BadRequest, match="cannot be sent as JSON"):
            await guard([{"role": "user", "content": "\ud800"}])


async def test_thoughts_inside_the_text_are_left_out_as_well(serve: Serve):
    server = await serve(chat(f"<think>{RUDE}</think>{KIND}"))

    async with guard_of(server) as guard:
        checked = await guard(ASKED)

    assert (checked.text, checked.action) == (KIND, "passed")
    assert RUDE not in str(checked.message)


async def test_reasoning_that_nobody_checked_is_left_out(serve: Serve):
    server = await serve(reply_with(completion(KIND, reasoning_content=RUDE)))
    async with guard_of(server) as guard:
        checked = await guard(ASKED)
    async with guard_of(server, method="default", action="flag", evaluators=()) as guard:
        passed = await guard(ASKED)

    assert RUDE not in str(checked.message) + str(checked.upstream)
    assert checked.notes["left_out"] == "fields that are not checked were left out: reasoning_content"
    assert passed.message["reasoning_content"] == RUDE


def with_logprobs(text: str, *tokens: str, other: str = "Wheat") -> Reply:
    body = completion(text)
    content = [{"token": each, "logprob": -0.1, "top_logprobs": [{"token": other, "logprob": -2}]} for each in tokens]
    body["choices"][0]["logprobs"] = {"content": content}
    return reply_with(body)


async def test_logprobs_of_an_unchanged_answer_stay_without_words_that_nobody_checked(serve: Serve):
    server = await serve(with_logprobs(KIND, "Bread", KIND[5:], other=RUDE))
    async with guard_of(server) as guard:
        found = await guard(ASKED, logprobs=True)

    assert [each["token"] for each in found.upstream["choices"][0]["logprobs"]["content"]] == ["Bread", KIND[5:]]
    assert RUDE not in str(found.upstream)


@pytest.mark.parametrize(
    "replies",
    [
        [chat(RUDE), with_logprobs(KIND, KIND)],
        [with_logprobs(RUDE, RUDE)],
        [with_logprobs(KIND, RUDE)],
        [with_logprobs("")],
        [with_logprobs(f"<think>{RUDE}</think>{KIND}", f"<think>{RUDE}</think>{KIND}")],
    ],
    ids=["revised", "blocked", "another text", "no text", "with thoughts"],
)
async def test_other_logprobs_are_dropped(serve: Serve, replies: list[Reply]):
    server = await serve(*replies)
    async with guard_of(server, action="block") as guard:
        found = await guard(ASKED, logprobs=True)

    choice = found.upstream.get("choices", [{}])[0]
    assert choice.get("logprobs") is None and RUDE not in str(found.upstream)


async def test_nothing_is_added_where_nothing_is_checked(serve: Serve):
    server = await serve(chat(RUDE))
    async with Guard(guard_of(server).upstream, method="default", policy=GuardPolicy("flag", evaluators=())) as guard:
        found = await guard(ASKED, response_format=OBJECT)
        await guard.upstream.aclose()

    assert (found.text, found.action, found.before) == (RUDE, "passed", ())


async def test_spoken_answers_cannot_be_checked(serve: Serve):
    server = await serve(chat(KIND))
    async with guard_of(server) as guard:
        with pytest.raises(BadRequest, match="text alone"):
            await guard(ASKED, modalities=["text", "audio"])
