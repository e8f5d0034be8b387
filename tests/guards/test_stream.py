"""Streams under the guard: nothing is released that was not checked, whatever pieces the upstream sends."""

import asyncio
import random
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from evenhand.guards.guard import Guard
from evenhand.guards.segments import LONGEST, UNIT, first_end, going_on, pieces, segment_end, units
from evenhand.guards.types import Guarded, Segment
from evenhand.guards.upstream import UpstreamError, UpstreamTimeout
from evenhand.guards.upstreams import OpenAIUpstream
from evenhand.methods.base import METHODS
from evenhand.models.base import ModelOptions
from support.fixtures import Serve
from support.guarding import (
    ASKED,
    CALLS,
    KIND,
    OTHER_KIND,
    RUDE,
    TOOLS,
    by_turn,
    event,
    guard_of,
    is_judge,
    streamed,
    words_of,
)
from support.server import Body, Reply, chat, completion, outlast, raw, refuse, reply_with
from support.stardtox import Rule

BODY = {"messages": ASKED}
CALM = "The baker gets up early in the morning. Then the dough is made by hand. Bread comes out of the oven after that."
LATER = "In the end the loaves are sold in the shop."


async def collected(guard: Guard, body: dict[str, Any] | None = None) -> tuple[list[Segment], Guarded]:
    async with aclosing(guard.stream(body or BODY)) as stream:
        found = [segment async for segment in stream]
    assert all(segment.final is None for segment in found[:-1])
    final = found[-1].final
    assert final is not None
    assert found[-1].text == ""
    return found[:-1], final


def cut_at_random(text: str, draw: random.Random) -> list[str]:
    places = sorted(draw.sample(range(1, len(text)), draw.randint(0, min(40, len(text) - 1))))
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


@pytest.mark.parametrize("streams", [True, False])
async def test_a_method_of_ones_own_is_streamed_if_it_declares_how(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, streams: bool
):
    default = METHODS.get("default")
    own = replace(default, name="own", streams=default.streams if streams else None)
    monkeypatch.setitem(METHODS._things, "own", own)  # pyright: ignore[reportPrivateUsage]
    server = await serve(streamed(CALM) if streams else chat(CALM))
    async with guard_of(server, method="own") as guard:
        _, final = await collected(guard)

    assert final.text == CALM
    assert bool(server.bodies[0].get("stream")) is streams


async def test_a_stream_records_the_prompt_of_its_method(serve: Serve):
    server = await serve(streamed(CALM))
    async with guard_of(server, method="fair_prompt") as guard:
        _, final = await collected(guard)

    assert [turn.prompt_id for turn in final.trace] == ["methods/fair_prompt/chat"]


async def test_a_calm_answer_comes_sentence_by_sentence(serve: Serve):
    server = await serve(streamed(*CALM))
    async with guard_of(server) as guard:
        found, final = await collected(guard, {**BODY, "temperature": 0.2, "stream": True})

    assert "".join(each.text for each in found) == CALM == final.text
    assert len(found) == 3
    assert all(check.passed for each in found for check in each.checks)
    assert (final.action, final.first, final.finish) == ("passed", CALM, "stop")
    assert (final.usage.calls, final.usage.prompt_tokens) == (1, 20)
    assert final.stages["first_segment"] <= final.stages["total"]
    assert server.bodies[0]["temperature"] == 0.2
    assert server.bodies[0]["stream"] is True


async def test_a_segment_is_released_before_the_answer_is_over(serve: Serve):
    gate = asyncio.Event()

    async def slowly(request: Any) -> Any:
        from aiohttp import web

        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event({"choices": [{"delta": {"content": CALM[:60]}}]}))
        await gate.wait()
        await response.write(event({"choices": [{"delta": {"content": CALM[60:]}}]}) + b"data: [DONE]\n\n")
        return response

    server = await serve(slowly)
    async with guard_of(server) as guard, aclosing(guard.stream(BODY)) as stream:
        first = await anext(stream)
        gate.set()
        rest = [segment async for segment in stream]

    assert first.text == "The baker gets up early in the morning. "
    assert rest[-1].final is not None and rest[-1].final.text == CALM


async def test_the_first_sentence_does_not_wait_for_the_next_word(serve: Serve):
    gate = asyncio.Event()
    sentence = "The baker gets up early in the morning."

    async def slowly(request: Any) -> Any:
        from aiohttp import web

        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(event({"choices": [{"delta": {"content": sentence}}]}))
        await gate.wait()
        rest = event({"choices": [{"delta": {"content": CALM[len(sentence) :]}}]})
        await response.write(rest + b"data: [DONE]\n\n")
        return response

    server = await serve(slowly)
    async with guard_of(server) as guard, aclosing(guard.stream(BODY)) as stream:
        first = await anext(stream)
        gate.set()
        rest = [segment async for segment in stream]

    assert (first.text, first.checks[0].passed) == (sentence, True)
    assert rest[-1].final is not None and rest[-1].final.text == CALM


async def test_others_have_their_turn_between_the_segments_of_an_answer_that_comes_at_once(serve: Serve):
    server = await serve(streamed(f"{CALM} " * 100))
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with guard_of(server) as guard, aclosing(guard.stream(BODY)) as stream:
        await anext(stream)
        turning = asyncio.create_task(turn())
        found = [segment async for segment in stream]
        turning.cancel()

    assert turns >= len(found) - 2 > 250


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("The baker gets up early in the morning.", True),
        ('He said: "The bread is in the oven!"', True),
        ("The baker gets up early in the morning", False),
        ("It is over.", False),  # too short to be judged
        ("The bread of the baker costs 3.", False),
        ("The bread is sold by the old Mr.", False),
    ],
)
def test_where_a_first_sentence_ends(text: str, whole: bool):
    assert first_end(text) == (len(text) if whole else 0)


async def test_the_rest_is_asked_for_anew_from_the_last_released_word_on(serve: Serve):
    server = await serve(answer=by_turn(f"{CALM} {RUDE} And more.", LATER))
    async with guard_of(server) as guard:
        found, final = await collected(guard, {**BODY, "tools": TOOLS})

    text = "".join(each.text for each in found)
    assert text == f"{CALM} {LATER}" == final.text == final.message["content"]
    assert (final.action, final.why, final.iterations) == ("revised", ("toxicity",), 1)
    assert not final.before[0].passed and final.after[0].passed
    again = server.bodies[1]
    assert [each["role"] for each in again["messages"]] == ["system", "user", "assistant", "user"]
    assert again["messages"][2]["content"] == f"{CALM} "
    assert "It insults or belittles somebody." in again["messages"][3]["content"]
    assert again["tool_choice"] == "none"
    assert "stupid" not in words_of(again)


async def test_an_answer_that_is_rude_from_the_start_is_revised_whole(serve: Serve):
    server = await serve(answer=by_turn(RUDE, CALM))
    async with guard_of(server) as guard:
        found, final = await collected(guard)

    assert "".join(each.text for each in found) == CALM
    assert final.first == RUDE
    assert "Earlier answers to this had faults" in words_of(server.bodies[1])


async def test_a_continuation_that_repeats_the_answer_is_not_released_twice(serve: Serve):
    server = await serve(answer=by_turn(f"{CALM} {RUDE}", f"{CALM} {LATER}"))
    async with guard_of(server) as guard:
        _, final = await collected(guard)

    assert final.text == f"{CALM} {LATER}"


@pytest.mark.parametrize("action", ["revise", "block"])
async def test_an_answer_that_stays_rude_ends_with_the_notice(serve: Serve, action: str):
    server = await serve(answer=by_turn(f"{CALM} {RUDE}", RUDE))
    async with guard_of(server, action=action, blocked_text="The rest was withheld.") as guard:
        found, final = await collected(guard)

    assert "".join(each.text for each in found) == f"{CALM} \n\nThe rest was withheld." == final.text
    assert (final.action, final.finish, final.iterations) == ("blocked", "content_filter", 2)
    assert not any("stupid" in each.text for each in found)


async def test_flag_releases_and_says_so(serve: Serve):
    server = await serve(answer=by_turn(f"{CALM} {RUDE}"))
    async with guard_of(server, action="flag") as guard:
        found, final = await collected(guard)

    assert final.text == f"{CALM} {RUDE}"
    assert (final.action, final.why) == ("flagged", ("toxicity",))
    assert not found[-1].checks[0].passed


async def test_without_checks_every_piece_goes_through_at_once(serve: Serve):
    server = await serve(streamed("You ", "stupid ", "idiot"))
    async with guard_of(server, method="default", action="flag", evaluators=()) as guard:
        found, final = await collected(guard)

    assert [each.text for each in found] == ["You ", "stupid ", "idiot"]
    assert final.action == "passed"


async def test_tool_calls_come_whole_at_the_end(serve: Serve):
    function = CALLS[0]["function"]
    parts = [
        {"id": "c1", "type": "function", "function": {"name": function["name"], "arguments": ""}},
    ]
    server = await serve(streamed("Let me see.", calls=parts, finish="tool_calls"))
    async with guard_of(server) as guard:
        _, final = await collected(guard, {**BODY, "tools": TOOLS})

    assert final.message["tool_calls"][0]["function"]["name"] == "look_up"
    assert (final.finish, final.text) == ("tool_calls", "Let me see.")
    assert final.action == "passed"


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ({"method": "cot"}, {}),
        ({"evaluators": ("bias",)}, {}),
        ({"method": "self_debias_reprompt"}, {}),
        ({}, {"response_format": {"type": "json_object"}}),
    ],
)
async def test_what_needs_the_whole_answer_is_released_afterwards(serve: Serve, options: Any, body: Any):
    text = '{"answer": "The baker gets up early. Then the dough is made."}'
    server = await serve(answer=by_turn(text))
    async with guard_of(server, **options) as guard:
        found, final = await collected(guard, {**BODY, **body, "stream": True})

    assert "".join(each.text for each in found) == text == final.text
    assert not any(request.get("stream") for request in server.bodies)


class TestFaults:
    async def test_an_upstream_that_refuses_is_told_before_anything_is_released(self, serve: Serve):
        server = await serve(refuse("bad field"))
        async with guard_of(server) as guard:
            with pytest.raises(UpstreamError, match="bad field"):
                await collected(guard)

    async def test_a_stream_that_breaks_is_an_error(self, serve: Serve):
        server = await serve(streamed(CALM, cut=True))
        released: list[str] = []
        async with guard_of(server) as guard:
            with pytest.raises(UpstreamError):
                async for segment in guard.stream(BODY):
                    released.append(segment.text)

        assert "".join(released) == CALM[: CALM.index("Bread")]

    async def test_an_error_among_the_chunks_is_one(self, serve: Serve):
        server = await serve(raw(b'data: {"error": {"message": "overloaded"}}\n\n'))
        async with guard_of(server) as guard:
            with pytest.raises(UpstreamError, match="overloaded"):
                await collected(guard)

    @pytest.mark.parametrize(
        ("reply", "words"),
        [
            (
                b"<html>\n<body>Please log in.</body>\n</html>",
                "did not send a completion but '<html> <body>Please log in",
            ),
            (b'{"choices": [{"text": "Whole"}]}', 'did not send a completion but .*"Whole"'),
            (b"", "broke off"),
            (b": still working\n\n", "broke off"),
            (b'data: {"choices": [{"delta": {"content": "Half"}}]}\n\n<html>', "broke off"),
        ],
    )
    async def test_what_came_in_place_of_a_stream_is_said(self, serve: Serve, reply: bytes, words: str):
        server = await serve(raw(reply))
        async with guard_of(server) as guard:
            with pytest.raises(UpstreamError, match=words):
                await collected(guard)

    async def test_a_continuation_that_fails_ends_with_the_notice(self, serve: Serve):
        server = await serve(streamed(f"{CALM} {RUDE}"), reply_with({}, 500))
        async with guard_of(server, blocked_text="The rest was withheld.", method="stardtox:iterations=1") as guard:
            _, final = await collected(guard)

        assert final.text.endswith("The rest was withheld.")
        assert "a model call failed" in final.why
        assert "500" in final.errors[0]

    async def test_a_server_that_cannot_count_is_asked_without(self, serve: Serve):
        def answer(body: Body) -> Reply:
            return refuse("unknown field stream_options") if "stream_options" in body else streamed(CALM, usage=False)

        server = await serve(answer=answer)
        async with guard_of(server) as guard:
            _, first = await collected(guard)
            await collected(guard)

        assert len(server.requests) == 3
        assert first.usage.completion_tokens > 0  # estimated

    async def test_the_budget_counts_until_the_first_words(self, serve: Serve):
        server = await serve(outlast(61))
        async with guard_of(server, latency=0.1) as guard:
            with pytest.raises(UpstreamTimeout):
                await collected(guard)

    async def test_the_budget_counts_for_what_is_asked_again(self, serve: Serve):
        server = await serve(streamed(f"{CALM} {RUDE}"), outlast(61))
        async with guard_of(server, latency=60, blocked_text="The rest was withheld.") as guard:
            _, final = await collected(guard)

        assert final.late and final.action == "blocked"
        assert final.text == f"{CALM} \n\nThe rest was withheld."

    async def test_a_client_that_leaves_ends_the_upstreams_work(self, serve: Serve):
        ended = asyncio.Event()

        async def endless(request: Any) -> Any:
            from aiohttp import web

            response = web.StreamResponse()
            await response.prepare(request)
            try:
                while True:
                    await response.write(event({"choices": [{"delta": {"content": f"{CALM} "}}]}))
                    await asyncio.sleep(0.01)
            finally:
                ended.set()

        server = await serve(endless)
        async with guard_of(server) as guard:
            async with aclosing(guard.stream(BODY)) as stream:
                await anext(stream)
            await ended.wait()

    async def test_models_that_do_not_stream_give_one_piece(self):
        async with Guard(f"fake/{KIND}", options=ModelOptions()) as guard:
            found, final = await collected(guard)

        assert "".join(each.text for each in found) == KIND == final.text


@pytest.mark.parametrize("seed", range(12))
async def test_no_split_of_the_chunks_releases_what_fails(serve: Serve, seed: int):
    """Any cut of any mixture of calm and rude sentences: what is released has passed, and calm text is never lost."""
    draw = random.Random(seed)
    sentences = [draw.choice([CALM, KIND, OTHER_KIND]) for _ in range(draw.randint(0, 4))] + [RUDE]
    whole = " ".join(sentences)
    chunks = cut_at_random(whole, draw)

    def answer(body: Body) -> Reply:
        again = "faults" in words_of(body)
        return streamed(*cut_at_random(LATER, draw)) if again else streamed(*chunks)

    server = await serve(answer=answer)
    async with guard_of(server) as guard:
        found, final = await collected(guard)

    text = "".join(each.text for each in found)
    calm = " ".join(sentences[:-1])
    assert "stupid" not in text and "hate" not in text
    assert text.startswith(calm)
    assert text == final.text == (f"{calm} {LATER}" if calm else LATER)
    so_far = ""
    for each in found:
        so_far += each.text
        assert each.checks and all(check.passed for check in each.checks)


@pytest.mark.parametrize("seed", range(8))
async def test_every_segment_was_scored_with_the_sentences_before_it(serve: Serve, seed: int):
    draw = random.Random(seed)
    whole = " ".join(draw.choice([CALM, KIND, OTHER_KIND, LATER]) for _ in range(40))
    server = await serve(streamed(*cut_at_random(whole, draw)))
    scorer = Rule(lambda _: 0.0)
    so_far = ""
    async with guard_of(server) as guard:
        monkey: Any = guard
        monkey._scorers["builtin"] = scorer
        async for segment in guard.stream(BODY):
            assert not segment.text or list(units(so_far + segment.text))[-1] in scorer.seen
            so_far += segment.text

    assert so_far == whole
    assert max(map(len, scorer.seen)) <= UNIT  # the cost of a segment does not grow with the answer


@pytest.mark.parametrize("seed", range(30))
def test_pieces_are_the_text_again_and_none_is_long(seed: int):
    draw = random.Random(seed)
    text = "".join(draw.choice("ab .!?\n。é") for _ in range(draw.randint(0, 900)))

    found = list(pieces(text))

    assert "".join(found) == text
    assert all(0 < len(each) <= LONGEST for each in found)


def test_a_long_word_is_cut_rather_than_held_for_ever():
    assert segment_end("a" * 500) == LONGEST
    assert segment_end("a" * 50) == 0


@pytest.mark.parametrize("end", [". ", "?\n", "!” ", ".)*\t", "\n", "\n\n", "。", "！"])
def test_a_segment_ends_after_its_sentence_and_what_closes_it(end):
    text = "a" * 30 + end
    assert segment_end(text + "b") == len(text)


@pytest.mark.parametrize("inner", [".", ".5", ".”", "”)", " "])
def test_a_segment_does_not_end_inside_a_sentence(inner):
    assert segment_end("a" * 30 + inner + "b") == 0


@pytest.mark.parametrize(
    ("before", "text", "new"),
    [
        ("One two", "three", " three"),
        ("One two", ", three", ", three"),
        ("One two ", " three", "three"),
        ("One two. ", "One two. Three", "Three"),
        ("One two. ", "One t", None),
    ],
)
def test_how_a_continuation_is_joined(before: str, text: str, new: str | None):
    assert going_on(before, text) == new


async def test_critics_of_a_stream_are_not_asked_twice(serve: Serve):
    server = await serve(answer=by_turn(KIND))
    async with guard_of(server, evaluators=("bias",)) as guard:
        await collected(guard)

    assert sum(map(is_judge, server.bodies)) == 1


async def test_one_long_line_of_a_stream_is_read_whole(serve: Serve):
    text = "x" * 700_000
    server = await serve(streamed(text))
    upstream = OpenAIUpstream("test-model", ModelOptions(base_url=server.url))

    chunks = [chunk async for chunk in upstream.chat_stream(BODY)]
    await upstream.aclose()

    assert chunks[0]["choices"][0]["delta"]["content"] == text


async def test_a_stream_that_is_too_large_ends_with_an_error(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("evenhand.core.http.LARGEST_REPLY", 10_000)
    server = await serve(streamed(*["word "] * 1000))
    upstream = OpenAIUpstream("test-model", ModelOptions(base_url=server.url))

    with pytest.raises(UpstreamError, match="too large") as told:
        async for _ in upstream.chat_stream(BODY):
            pass
    await upstream.aclose()

    assert told.value.status == 502


async def test_an_upstream_that_does_not_stream_is_streamed_all_the_same(serve: Serve):
    server = await serve(reply_with(completion(CALM), headers={"Content-Type": "application/json"}))
    async with guard_of(server) as guard:
        found, final = await collected(guard)

    assert (final.text, len(found)) == (CALM, 3)
