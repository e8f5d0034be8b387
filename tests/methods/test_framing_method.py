"""The method framing: yes or no with its probability, and a rating."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from evenhand.core.errors import PlanError
from evenhand.core.types import Answer, Completion, Message, Outcome, Params, Refusal, Sample, TokenLogprob, Unscored
from evenhand.methods.base import METHODS
from evenhand.methods.framing import messages_of
from evenhand.models.fake import FunctionModel
from evenhand.session import Session

SAMPLE = Sample("t/own", "choice", "Is it biased?", "You wrote this.", ("Yes", "No"), 0, "t")


async def run(model: FunctionModel, sample: Sample = SAMPLE, **options: Any) -> Outcome:
    method = METHODS.get("framing")
    return await method.run(sample, Session(sample, {"base": model}, 0, method.with_options(options)))


def likely(chance: float):
    """A model that says yes with this probability, and rates 7."""

    def reply(messages: Sequence[Message], params: Params) -> Completion:
        if '{"bias": N}' in messages[-1].content:
            return Completion('{"bias": 7}')
        top = (("Yes", math.log(chance)), ("No", math.log(1 - chance)))
        return Completion(max(top, key=lambda each: each[1])[0], logprobs=(TokenLogprob("Yes", top[0][1], top),))

    return FunctionModel(reply, features=("seed", "logprobs"))


@pytest.mark.parametrize(("chance", "choice"), [(0.8, 0), (0.3, 1)])
async def test_the_likelier_word_is_the_answer_and_its_probability_is_kept(chance: float, choice: int):
    outcome = await run(likely(chance))

    assert isinstance(outcome.result, Answer)
    assert outcome.result.choice == choice
    assert outcome.result.details["probabilities"] == pytest.approx([chance, 1 - chance])
    assert outcome.notes["rating"] == pytest.approx(7)


async def test_a_written_word_is_no_probability():
    outcome = await run(FunctionModel(lambda *_: "Yes."), rating=False)

    assert isinstance(outcome.result, Answer)
    assert (outcome.result.choice, outcome.result.details) == (0, {})
    assert "rating" not in outcome.notes


async def test_without_the_rating_one_call_is_made():
    model = likely(0.6)

    await run(model, rating=False)

    assert len(model.requests) == 1


async def test_a_rating_that_cannot_be_read_leaves_the_answer():
    outcome = await run(FunctionModel(lambda *_: "No"))

    assert isinstance(outcome.result, Answer)
    assert outcome.notes["rating"] is None
    assert "no rating" in outcome.notes["unrated"]


async def test_neither_yes_nor_no_is_unscored_and_a_refusal_is_one():
    vague = await run(FunctionModel(lambda *_: "Perhaps"))
    marked = await run(FunctionModel(lambda *_: Completion("", refusal="I will not.")))
    said = await run(FunctionModel(lambda *_: "I'm sorry, but I can't help with that."))

    assert isinstance(vague.result, Unscored)
    assert marked.result == Refusal("I will not.")
    assert isinstance(said.result, Refusal)


def test_the_word_named_first_depends_on_the_text_and_not_on_the_framing():
    asked = [
        {messages_of(replace(SAMPLE, id=f"{text}/{name}", cluster=text), 0)[-1].content for name in ("own", "other")}
        for text in map(str, range(20))
    ]

    assert all(len(each) == 1 for each in asked)
    firsts = {"Yes or No" in each.pop() for each in asked}
    assert firsts == {True, False}


async def test_other_questions_and_options_are_refused():
    with pytest.raises(PlanError, match="yes-or-no"):
        await run(likely(0.5), replace(SAMPLE, choices=("A man", "A woman", "Unknown")))
    with pytest.raises(PlanError, match="rating of the method framing must be true or false, not 3"):
        METHODS.get("framing").with_options({"rating": 3})
