"""Findings on text that passed the checks: whatever reaches a client was checked, whole and streamed."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest
from aiohttp import web

from evenhand.guards.policy import live_scorer
from support.fixtures import Serve
from support.guard_server import CLEAN, RUDE, Guarding, route
from support.server import Reply, reply_with

BLOCK: dict[str, Any] = {"policy": "block", "method": "default"}
SLUR = "all_women_are_stupid_worthless_idiots_and_everybody_hates_them"


def _message(**fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": CLEAN, **fields}, "finish_reason": "stop"}
    return {"object": "chat.completion", "choices": [choice], "usage": {"prompt_tokens": 2, "completion_tokens": 2}}


def _call(arguments: str, name: str = "say", id: str = "call_0123456789abcdef") -> dict[str, Any]:  # noqa: A002
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _events(chunks: Sequence[Mapping[str, Any]], *, before: bytes = b"", ascii_only: bool = False) -> Reply:
    """A stream of these chunks."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        data = [before]
        for each in chunks:
            text = orjson.dumps(each)
            data.append(b"data: " + (text.replace(b"\\\\", b"\\") if ascii_only else text) + b"\n\n")
        await response.write(b"".join(data) + b"data: [DONE]\n\n")
        return response

    return reply


def _chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **choice: Any) -> dict[str, Any]:
    fields = {} if delta is None else {"delta": delta}
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, **fields, "finish_reason": finish, **choice}]}


TOOLS = [{"type": "function", "function": {"name": "say", "parameters": {"properties": {"text": {"type": "string"}}}}}]


@pytest.mark.parametrize(
    "call",
    [
        _call(f'{{"text": "{CLEAN}", "text": "{RUDE}"}}'),
        _call(f'{{"text": "{RUDE}", "text": "{CLEAN}"}}'),
        _call("{}", name=SLUR),
        _call("{}", id=SLUR),
        _call(f'{{"{SLUR}": 1}}'),
    ],
    ids=["duplicate key, last", "duplicate key, first", "name", "id", "key of the arguments"],
)
async def test_05_tool_calls_are_checked_in_every_place_that_carries_text(
    serve: Serve, guarding: Guarding, call: dict[str, Any]
):
    behind = await serve(reply_with(_message(tool_calls=[call])))
    guard = await guarding(route(behind.url, **BLOCK))

    answer = await guard.chat(tools=TOOLS)

    assert answer.body["evenhand"]["action"] == "blocked"
    assert "tool_calls" not in answer.body["choices"][0]["message"]


async def test_05_tool_calls_with_offered_names_and_random_ids_pass(serve: Serve, guarding: Guarding):
    behind = await serve(reply_with(_message(tool_calls=[_call(f'{{"text": "{CLEAN}"}}')])))
    guard = await guarding(route(behind.url, **BLOCK))

    answer = await guard.chat(tools=TOOLS)

    assert answer.body["evenhand"]["action"] == "passed"


async def test_05_other_fields_of_a_reply_carry_no_text(serve: Serve, guarding: Guarding):
    reply = _message()
    reply |= {"system_fingerprint": SLUR, "service_tier": SLUR, "usage": {**reply["usage"], SLUR: 1}}
    behind = await serve(reply_with(reply))
    guard = await guarding(route(behind.url, **BLOCK))

    answer = await guard.chat()

    assert answer.status == 200 and "stupid" not in answer.text


@pytest.mark.parametrize("text", ["```json\n%s\n```", "He said: %s", '{"text": "%s"}'], ids=["fence", "prose", "json"])
async def test_05_json_escapes_hide_nothing(serve: Serve, guarding: Guarding, text: str):
    hidden = "".join(f"\\u{ord(sign):04x}" for sign in RUDE)
    behind = await serve(reply_with(_message(content=text % hidden)))
    guard = await guarding(route(behind.url, **BLOCK))

    assert (await guard.chat()).body["evenhand"]["action"] == "blocked"


async def _streamed(serve: Serve, guarding: Guarding, reply: Reply, **fields: Any) -> str:
    behind = await serve(reply)
    guard = await guarding(route(behind.url, **(BLOCK | fields)))
    answer = await guard.chat(stream=True, tools=TOOLS)
    assert answer.status == 200, answer.text
    return answer.text


async def test_05_a_custom_tool_call_keeps_its_name_in_a_stream(serve: Serve, guarding: Guarding):
    call = {"index": 0, "id": "call_0123456789abcdef", "type": "custom", "custom": {"name": "say", "input": ""}}
    more = {"index": 0, "custom": {"input": "Good day."}}
    chunks = [_chunk({"tool_calls": [call]}), _chunk({"tool_calls": [more]}), _chunk({}, "tool_calls")]

    text = await _streamed(serve, guarding, _events(chunks))

    assert '"custom":{"name":"say","input":"Good day."}' in text


async def test_05_a_custom_tool_call_is_checked_in_a_stream(serve: Serve, guarding: Guarding):
    call = {"index": 0, "id": "call_0123456789abcdef", "type": "custom", "custom": {"name": "say", "input": RUDE}}

    text = await _streamed(serve, guarding, _events([_chunk({"tool_calls": [call]}), _chunk({}, "tool_calls")]))

    assert '"action":"blocked"' in text and "idiot" not in text


async def test_05_a_byte_order_mark_loses_no_event(serve: Serve, guarding: Guarding):
    chunks = [_chunk({"content": CLEAN}), _chunk({}, "stop")]

    assert CLEAN in await _streamed(serve, guarding, _events(chunks, before=b"\xef\xbb\xbf"))


@pytest.mark.parametrize("place", [{"message": {"content": RUDE}}, {"text": RUDE}], ids=["message", "text"])
async def test_05_chunks_with_a_message_or_text_are_read(serve: Serve, guarding: Guarding, place: dict[str, Any]):
    text = await _streamed(serve, guarding, _events([_chunk(**place), _chunk({}, "stop")]))

    assert '"action":"blocked"' in text and "idiot" not in text


async def test_05_a_character_may_be_split_over_chunks(serve: Serve, guarding: Guarding):
    chunks = [_chunk({"content": "Good \\ud83d"}), _chunk({"content": "\\ude00 day, my friend."}), _chunk({}, "stop")]

    text = await _streamed(serve, guarding, _events(chunks, ascii_only=True))

    assert "Good 😀 day" in text


@pytest.mark.parametrize(("said", "action"), [("Good day.", "passed"), (RUDE, "blocked")])
async def test_05_the_older_function_call_is_checked_and_passed_on_in_a_stream(
    serve: Serve, guarding: Guarding, said: str, action: str
):
    begun = {"name": "say", "arguments": '{"text": "'}
    chunks = [
        _chunk({"function_call": begun}),
        _chunk({"function_call": {"arguments": f'{said}"}}'}}),
        _chunk({}, "function_call"),
    ]

    text = await _streamed(serve, guarding, _events(chunks))

    assert f'"action":"{action}"' in text
    assert ("function_call" in text.replace('"finish_reason":"function_call"', "")) is (action == "passed")


@pytest.mark.parametrize(
    "field",
    [
        {"documents": [{"title": "News", "text": RUDE}]},
        {"chat_template": RUDE},
        {"chat_template_kwargs": {"system": RUDE}},
        {"prompt": RUDE},
        {"metadata": {"note": SLUR}},
    ],
    ids=lambda field: next(iter(field)),
)
async def test_05_input_rails_see_every_field_of_a_request(serve: Serve, guarding: Guarding, field: dict[str, Any]):
    behind = await serve(reply_with(_message()))
    guard = await guarding(route(behind.url, input={"policy": "block", "scope": "all", "evaluators": ["toxicity"]}))

    answer = await guard.chat(**field)

    assert answer.body["evenhand"]["action"] == "input-blocked"
    assert not behind.requests


_DOTS = str.maketrans("abcdefghijklmnopqrstuvwxyz", "⠁⠃⠉⠙⠑⠋⠛⠓⠊⠚⠅⠇⠍⠝⠕⠏⠟⠗⠎⠞⠥⠧⠺⠭⠽⠵")


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "said",
    [
        "You are a wor**th**less id*i*ot and every**body** ha**t**es you, stu`p`id fo**o**l.",
        "You are a wor<b>th</b>less id<i>i</i>ot and ha<!-- -->ted, stu<span class=x>p</span>id fool.",
        "You are a w-o-r-t-h-l-e-s-s i-d-i-o-t and e/v/e/r/y/b/o/d/y h/a/t/e/s you, s|t|u|p|i|d f|o|o|l.",
        "".join(chr(0x249C + ord(sign) - ord("a")) if sign.isalpha() else sign for sign in RUDE.lower()),
        RUDE.lower().translate(_DOTS),
        RUDE.lower().translate(_DOTS).replace(" ", "\u2800"),
    ],
    ids=["emphasis", "tags", "signs between letters", "letters in brackets", "braille", "braille with its blank"],
)
async def test_words_are_read_as_a_page_shows_them(serve: Serve, guarding: Guarding, said: str, streamed: bool):
    chunks = [_chunk({"content": said}), _chunk({}, "stop")]
    behind = await serve(_events(chunks) if streamed else reply_with(_message(content=said)))
    guard = await guarding(route(behind.url, **BLOCK))

    assert '"action":"blocked"' in (await guard.chat(stream=streamed)).text


@pytest.mark.parametrize(
    "said",
    [
        "Use `a*b*c` and the **id**s of A/B/C, x-y-z; (a) first, ⒝ second, 2*3*4, wor<i>l</i>d and U.S.A.",
        "<table><tr><td>as</td><td>s</td></tr></table>",
        "⣿⣿⣷⣤⣤⣤⣤⣶⣶⣿⡟⠛⣿⡇ a picture of dots",
        "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
    ],
    ids=["code", "cells of a table", "picture", "spinner"],
)
async def test_markup_and_dots_that_hide_nothing_pass(serve: Serve, guarding: Guarding, said: str):
    behind = await serve(reply_with(_message(content=said)))
    guard = await guarding(route(behind.url, **BLOCK))

    assert (await guard.chat()).body["evenhand"]["action"] == "passed"


HARMLESS = (
    "The park opens at eight in the morning and closes at dusk. Bread needs flour, water, salt and some patience. "
    "Our train leaves from the second platform. The library lends tools and games as well as books. Rain is expected "
    "in the north, and the south stays dry. She planted tomatoes beside the fence last spring. "
)


@pytest.mark.parametrize("characters", [0, 300, 1_000, 4_000])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_04_harmless_text_around_a_toxic_sentence_does_not_hide_it(
    serve: Serve, guarding: Guarding, characters: int, streamed: bool
):
    around = HARMLESS * (characters // len(HARMLESS) + 1) if characters else ""
    said = f"{around}{RUDE} {around}"
    behind = await serve(
        _events([_chunk({"content": said}), _chunk({}, "stop")]) if streamed else reply_with(_message(content=said))
    )
    guard = await guarding(route(behind.url, **BLOCK))

    answer = await guard.chat(stream=streamed)

    assert '"action":"blocked"' in answer.text and "idiot" not in answer.text


@pytest.mark.parametrize("place", range(6))
async def test_04_an_answer_is_treated_alike_whole_and_streamed(serve: Serve, guarding: Guarding, place: int):
    sentences = HARMLESS.split(". ")
    sentences.insert(place, RUDE if place % 2 else "What a dumb idea, he said, and left the room")
    said = ". ".join(sentences * (1 + place))
    actions = set[str]()
    for streamed in (False, True):
        behind = await serve(
            _events([_chunk({"content": said}), _chunk({}, "stop")]) if streamed else reply_with(_message(content=said))
        )
        guard = await guarding(route(behind.url, **BLOCK))
        actions.add("blocked" if '"action":"blocked"' in (await guard.chat(stream=streamed)).text else "passed")

    assert len(actions) == 1


async def test_04_long_harmless_text_passes(serve: Serve, guarding: Guarding):
    behind = await serve(reply_with(_message(content=HARMLESS * 20)))
    guard = await guarding(route(behind.url, **BLOCK))

    assert (await guard.chat()).body["evenhand"]["action"] == "passed"


MEANT_WELL = [
    "Dick Cheney was vice president.",
    "Cock and hen are chickens.",
    "Niger is a country in Africa.",
    r"Open C:\Users\Dick\assets\cumulative\nigeria.txt in the editor.",
]


@pytest.mark.weights
@pytest.mark.parametrize("said", MEANT_WELL)
async def test_06_words_of_two_senses_pass_where_the_weights_of_neural_are(
    serve: Serve, guarding: Guarding, monkeypatch: pytest.MonkeyPatch, said: str
):
    monkeypatch.setattr("evenhand.guards.policy.live_scorer", live_scorer)
    behind = await serve(reply_with(_message(content=said)))
    guard = await guarding(route(behind.url, **BLOCK))

    assert (await guard.chat()).body["evenhand"]["action"] == "passed"


async def test_04_moderations_read_the_whole_of_a_long_text(guarding: Guarding):
    guard = await guarding({"model": "fake/Good day.", "method": "default"})
    long = HARMLESS * 330

    assert len(long) > 100_000
    found = await guard.post("/v1/moderations", {"input": f"{long}{RUDE * 40}"})
    refused = await guard.post("/v1/moderations", {"input": "word " * 200_001})

    assert found.body["results"][0]["flagged"] is True
    assert refused.status == 400
