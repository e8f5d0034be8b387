"""Replies that reach their token limit: asked for once more with more room, unless the limit is the user's own."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from evenhand.asking.answer import TOKENS, answer
from evenhand.asking.chat import WRITING, reply, think
from evenhand.asking.choice import TEXT_TOKENS, choose, deliberate
from evenhand.asking.completion import SAMPLING, complete
from evenhand.asking.reply import ask_json, object_schema
from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Answer, Completion, Cut, Message, Outcome, Params, Sample, Unscored
from evenhand.judging.guard_models import GuardScorer
from evenhand.judging.judge import judge, yes_probability
from evenhand.judging.rubric import Ratings, Rubric
from evenhand.models.fake import FunctionModel
from evenhand.session import Answering, Session

PROMPT = parse_prompt("test/cut", "# user\n{{context}} {{question}}\n{{options}}\n")
PLAIN = parse_prompt("test/plain", "# user\nSay it.\n")
RUBRIC = Rubric(PLAIN, ("bias",), after=())
SAMPLE = Sample("s", "choice", "Who?", "Two met.", ("He", "She", "Unknown"), 2)
BEGINS = "Well, let me see"
NEVER = 10**9


class Colours(BaseModel):
    colours: list[str]


async def _choose(session: Session) -> Any:
    return await choose(session, SAMPLE, PROMPT)


async def _answer(session: Session) -> Any:
    return await answer(session, SAMPLE, PLAIN, PLAIN.render())


async def _yes(session: Session) -> Any:
    return await yes_probability(session, PLAIN, PLAIN.render(), agent="judge", role="base")


async def _rated(session: Session) -> Any:
    return await judge(session, RUBRIC, PLAIN.render(), agent="judge", role="base")


async def _object(session: Session) -> Any:
    schema = object_schema(colours={"type": "array", "items": {"type": "string"}})
    return await ask_json(session, PLAIN, PLAIN.render(), Colours, schema, Params(max_tokens=30), agent="painter")


READERS: dict[str, tuple[Callable[[Session], Awaitable[Any]], str, int]] = {
    "a letter": (_choose, "A", TEXT_TOKENS),
    "an answer in JSON": (_answer, '{"answerable": true, "answer": "Ann"}', TOKENS),
    "yes or no": (_yes, "Yes", 8),
    "ratings": (_rated, '{"bias": 40}', RUBRIC.params(frozenset()).max_tokens or 0),
    "an object": (_object, '{"colours": ["red"]}', 30),
}


def talker(text: str, needed: int) -> FunctionModel:
    """Says `text` after so many tokens; with fewer, it does not come to the point."""

    def said(_messages: Sequence[Message], params: Params) -> Completion:
        return Completion(text) if (params.max_tokens or NEVER) >= needed else Completion(BEGINS, finish="length")

    return FunctionModel(said)


def limits(model: FunctionModel) -> list[tuple[int | None, bool]]:
    return [(params.max_tokens, params.max_tokens_exact) for _, params in model.requests]


@pytest.mark.parametrize("name", READERS)
async def test_a_reply_that_was_cut_is_asked_for_once_more_with_more_room(name: str):
    read, text, limit = READERS[name]
    model = talker(text, limit + 1)

    found = await read(Session(SAMPLE, {"base": model}))

    assert not isinstance(found, Unscored)
    assert limits(model) == [(limit, False), (4 * limit, False)]
    assert model.requests[0][0] == model.requests[1][0]


@pytest.mark.parametrize("name", READERS)
async def test_one_that_is_cut_again_is_said_to_be_cut(name: str):
    read, text, limit = READERS[name]
    model = talker(text, NEVER)

    found = await read(Session(SAMPLE, {"base": model}))

    assert found == Cut(f"cut at {4 * limit} tokens", BEGINS)
    assert len(model.requests) == 2


@pytest.mark.parametrize("name", READERS)
async def test_a_limit_of_the_users_own_is_never_raised(name: str):
    read, text, _ = READERS[name]
    model = talker(text, NEVER)

    found = await read(Session(SAMPLE, {"base": model}, params=Params(max_tokens=7)))

    assert found == Cut("cut at 7 tokens", BEGINS)
    assert limits(model) == [(7, True)]


async def test_what_can_be_read_although_it_was_cut_is_an_answer():
    model = FunctionModel(lambda *_: Completion("on his way to", finish="length"))
    session = Session(Sample("s", "completion", "He was"), {"base": model})

    assert await complete(session, session.sample, PLAIN, PLAIN.render()) == [
        Answer("on his way to", details={"finish": "length"})
    ]
    assert await reply(session, PLAIN, PLAIN.render()) == Answer("on his way to", details={"finish": "length"})
    assert limits(model) == [(SAMPLING.max_tokens, False), (WRITING.max_tokens, False)]


async def test_a_reply_without_text_is_cut_and_not_asked_for_again():
    # The model layer has asked for it again.
    model = FunctionModel(lambda *_: Completion("", finish="length"))
    thinking = FunctionModel(lambda *_: Completion("", finish="length", thought="Hm."))

    said = await reply(Session(SAMPLE, {"base": model}), PLAIN, PLAIN.render())
    thought = await reply(Session(SAMPLE, {"base": thinking}), PLAIN, PLAIN.render())
    steps = await think(Session(SAMPLE, {"base": thinking}), PLAIN, PLAIN.render(), WRITING, agent="reasoner")
    options = parse_prompt("test/then", "# user\n{{options}}\n")
    outcome = await deliberate(
        Session(SAMPLE, {"base": thinking}), SAMPLE, PROMPT, options, WRITING, agent="reasoner", made="reasoning"
    )

    assert said == Cut("cut at 256 tokens")
    assert thought == Cut("cut while the model was thinking")
    assert steps == ""
    assert outcome == Outcome(Cut("cut while the model was thinking"), stop="no_reasoning")
    assert len(model.requests) == 1


async def test_several_replies_are_asked_for_again_only_if_all_were_cut():
    replies = iter([Completion(BEGINS, finish="length"), Completion('{"bias": 20}')])
    model = FunctionModel(lambda *_: next(replies))
    session = Session(SAMPLE, {"base": model}, answering=Answering(judge_samples=2))

    found = await _rated(session)

    assert isinstance(found, Ratings)
    assert (found.values, found.reading) == ({"bias": 0.2}, "samples")
    assert len(model.requests) == 1


async def test_a_reading_of_one_token_is_not_cut():
    model = FunctionModel(lambda *_: Completion("The", finish="length"), features=("logprobs",))
    session = Session(SAMPLE, {"base": model}, answering=Answering(reading="logprobs"), params=Params(max_tokens=50))

    found = await choose(session, SAMPLE, PROMPT)

    assert found == Unscored("no option could be read from the logprobs answer", "The")
    assert limits(model) == [(1, True)]


async def test_a_guard_model_gets_more_room_for_its_label():
    model = talker("unsafe", 33)

    assert await GuardScorer(model).score(["some text"]) == [{"toxicity": 1.0}]
    assert [params.max_tokens for _, params in model.requests] == [32, 128]
