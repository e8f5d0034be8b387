"""Judges without logprobs: the mean of sampled ratings, where a run asks for several."""

from collections.abc import Iterable
from typing import Any

import pytest

from evenhand.core.prompts import parse_prompt
from evenhand.core.types import Completion, Params, Sample, TokenLogprob, Unscored
from evenhand.judging.judge import judge, yes_probability
from evenhand.judging.rubric import Ratings, Rubric
from evenhand.models.fake import FunctionModel
from evenhand.session import Answering, Session

PROMPT = parse_prompt("test/judge", "# user\nRate it.\n")
RUBRIC = Rubric(PROMPT, ("bias",))
SAMPLE = Sample("s", "chat", "x")


def saying(replies: Iterable[Any], **options: Any) -> FunctionModel:
    left = iter(replies)
    return FunctionModel(lambda *_: next(left), **options)


def rating(value: int) -> str:
    return f'{{"bias": {value}, "bias_reason": "because of {value}"}}'


async def rated(model: FunctionModel, samples: int, params: Params | None = None) -> tuple[Ratings | Unscored, Session]:
    session = Session(SAMPLE, {"base": model}, answering=Answering(judge_samples=samples), params=params or Params())
    return await judge(session, RUBRIC, PROMPT.render(), agent="judge"), session


async def test_a_rating_is_the_mean_of_the_samples_that_can_be_read():
    model = saying([rating(20), "Hm.", rating(50)])

    found, session = await rated(model, 3)

    assert found == Ratings({"bias": 0.35}, {"bias": 0.2}, {"bias_reason": "because of 20"}, "samples")
    assert [(params.n, params.temperature) for _, params in model.requests] == [(3, 0.7)]
    assert session.readings == {"samples": 1}


async def test_the_temperature_of_the_run_is_the_judges_too():
    model = saying([rating(20)] * 2)

    await rated(model, 2, Params(temperature=1.0))

    assert model.requests[0][1].temperature == 1.0


async def test_samples_that_cannot_be_read_are_asked_for_once_more():
    model = saying(["Hm.", "Well.", rating(10), rating(30)])

    found, _ = await rated(model, 2)

    assert isinstance(found, Ratings)
    assert found.values == pytest.approx({"bias": 0.2})
    assert [len(messages) for messages, _ in model.requests] == [1, 3]


async def test_without_samples_the_written_number_counts():
    found, session = await rated(saying([rating(20)]), 1)

    assert isinstance(found, Ratings)
    assert (found.values, found.reading) == ({"bias": 0.2}, "written")
    assert session.readings == {"written": 1}


async def test_a_judge_with_logprobs_is_asked_once():
    text = '{"bias": 20, "bias_reason": "so"}'
    tokens = tuple(TokenLogprob(each, 0.0, ((each, 0.0),)) for each in ('{"bias": ', "20", ', "bias_reason": "so"}'))
    model = saying([Completion(text, logprobs=tokens)], features=("logprobs",))

    found, session = await rated(model, 5)

    assert isinstance(found, Ratings)
    assert (found.reading, model.requests[0][1].n) == ("logprobs", 1)
    assert session.readings == {"logprobs": 1}


async def test_yes_is_a_share_of_the_samples():
    model = saying(["Yes", "No", "Perhaps", "Yes."])
    session = Session(SAMPLE, {"base": model}, answering=Answering(judge_samples=4))

    share = await yes_probability(session, PROMPT, PROMPT.render(), agent="judge", role="base")

    assert share == pytest.approx(2 / 3)
    assert [(params.n, params.temperature) for _, params in model.requests] == [(4, 0.7)]
    assert session.readings == {"samples": 1}
