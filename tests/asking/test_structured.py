"""Asking for a JSON object: what can be read, what is asked for again, and what stays unread."""

from typing import Any

import pytest
from pydantic import BaseModel

from evenhand.asking.reply import ask_json, object_schema, read_json
from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Completion, Params, Sample, Unscored
from evenhand.models.fake import FunctionModel, ScriptedModel
from evenhand.session import Session

PROMPT = parse_prompt("test/colours", "# user\nName colours.")
SCHEMA = object_schema(colours={"type": "array", "items": {"type": "string"}})
GOOD = '{"colours": ["red", "blue"]}'


class Colours(BaseModel):
    colours: list[str]


RED_BLUE = Colours(colours=["red", "blue"])


async def ask(model: FunctionModel, **options: Any) -> Colours | Unscored:
    session = Session(Sample("s", "chat", "Colours?"), {"base": model})
    params = Params(temperature=0.2, max_tokens=50)
    return await ask_json(session, PROMPT, PROMPT.render(), Colours, SCHEMA, params, agent="painter", **options)


@pytest.mark.parametrize(
    "reply",
    [
        GOOD,
        f"Here you are: {GOOD} I hope that helps.",
        f"```json\n{GOOD}\n```",
        '{"colours": ["red", "blue"], "more": 1}',
    ],
)
def test_an_object_is_found_whatever_stands_around_it(reply: str):
    assert read_json(reply, Colours) == RED_BLUE


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no JSON object"),
        ("red, blue", "no JSON object"),
        ("} {", "no JSON object"),
        ('{"colours": ["red"', "no JSON object"),
        ('{"colours": [red]}', "not valid JSON"),
        (f"{GOOD} or {GOOD}", "not valid JSON"),
        ('{"colors": []}', "the reply is wrong: "),
        ('{"colours": "red"}', "the reply is wrong: "),
        ('{"colours": [{}]}', "the reply is wrong: colours, entry 1:"),
        ("[" * 30_000 + "{}", ""),
        ('{"colours": ["' + "x" * 50_000 + '"]}', "no JSON object"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_what_cannot_be_read_is_told(reply: str, reason: str):
    found = read_json(reply, Colours)

    assert isinstance(found, Unscored)
    assert reason in found.reason


@pytest.mark.parametrize(("features", "constrained"), [(("schema",), True), ((), False)])
async def test_the_form_is_forced_where_the_model_allows_it(features: Any, constrained: bool):
    model = FunctionModel(lambda *_: GOOD, features=features)

    assert await ask(model) == RED_BLUE

    [(_, params)] = model.requests
    assert params.schema == (SCHEMA if constrained else None)
    assert (params.temperature, params.max_tokens) == (0.2, 50)


async def test_an_unreadable_reply_is_asked_for_once_more_with_what_was_said():
    model = ScriptedModel(["red, blue", GOOD])

    assert await ask(model) == RED_BLUE

    first, second = (messages for messages, _ in model.requests)
    assert second[: len(first)] == first
    assert [message.role for message in second[len(first) :]] == ["assistant", "user"]
    assert second[len(first)].content == "red, blue"


async def test_two_unreadable_replies_are_the_end():
    model = ScriptedModel(["red", "blue"])

    found = await ask(model)

    assert isinstance(found, Unscored)
    assert found.raw == "blue"
    assert len(model.requests) == 2


@pytest.mark.parametrize("reply", [Completion("", refusal="No."), Completion("", finish="filter")], ids=repr)
async def test_a_model_that_declines_is_not_asked_again(reply: Completion):
    model = FunctionModel(lambda *_: reply)

    found = await ask(model)

    assert isinstance(found, Unscored)
    assert "the painter declined" in found.reason
    assert len(model.requests) == 1


async def test_the_second_try_is_drawn_with_a_seed_of_its_own():
    model = ScriptedModel(["red", "blue"])

    await ask(model)

    assert len({params.seed for _, params in model.requests}) == 2


async def test_a_call_with_a_slot_has_the_same_seed_whenever_it_is_made():
    one, other = FunctionModel(lambda *_: GOOD), FunctionModel(lambda *_: GOOD)

    for slot in ("x", "y"):
        await ask(one, slot=slot)
    for slot in ("y", "x"):
        await ask(other, slot=slot)

    seeds = [[params.seed for _, params in model.requests] for model in (one, other)]
    assert seeds[0] == seeds[1][::-1]
    assert seeds[0][0] != seeds[0][1]


def test_every_field_of_a_schema_is_required_and_no_other_allowed():
    assert SCHEMA["required"] == ["colours"]
    assert SCHEMA["additionalProperties"] is False
