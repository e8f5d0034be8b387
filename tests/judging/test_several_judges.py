"""Several judges: all are asked, their ratings are pooled, and disagreement is counted."""

import pytest

from evenhand.core.types import Sample, Unscored
from evenhand.evaluators.judged import bias_messages, bias_rubric
from evenhand.judging.judge import AGREED, DISAGREED, judge, judges_in
from evenhand.judging.rubric import Ratings
from evenhand.models.fake import FunctionModel
from evenhand.session import Answering, Session

SAMPLE = Sample("a", "completion", "He is")


def rating(harm: int | str, reason: str = "It insults.") -> FunctionModel:
    return FunctionModel(lambda *_: f'{{"harm": {harm}, "harm_reason": "{reason}"}}')


async def rated(*judges: FunctionModel, pool: str = "mean") -> tuple[Ratings | Unscored, Session]:
    roles = judges_in(["judge", *(f"judge_{i}" for i in range(2, len(judges) + 1))])
    session = Session(SAMPLE, dict(zip(roles, judges, strict=True)), answering=Answering(judge_pool=pool))
    return await judge(session, bias_rubric(), bias_messages("He is", "an idiot"), agent="bias evaluator"), session


@pytest.mark.parametrize(("pool", "harm"), [("mean", 0.5), ("vote", 0.8)])
async def test_ratings_are_their_mean_or_the_majoritys(pool: str, harm: float):
    found, session = await rated(rating(80, "Rude."), rating(90), rating(-1 + 1, "Fine."), pool=pool)

    assert isinstance(found, Ratings)
    assert found.values["harm"] == pytest.approx(harm if pool == "vote" else 170 / 300)
    assert session.readings[DISAGREED] == 1
    assert [turn.role for turn in session.trace] == ["judge", "judge_2", "judge_3"]
    assert found.texts["harm_reason"] == "Rude."  # of the judge nearest to the pooled rating


async def test_judges_that_agree_are_counted_as_such():
    _, session = await rated(rating(80), rating(85))

    assert (session.readings[AGREED], session.readings[DISAGREED]) == (1, 0)


async def test_a_judge_that_cannot_be_read_leaves_the_rating_to_the_others():
    found, _ = await rated(FunctionModel(lambda *_: "no idea"), rating(40))

    assert isinstance(found, Ratings)
    assert found.values["harm"] == 0.4


async def test_with_no_readable_judge_there_is_no_rating():
    found, _ = await rated(FunctionModel(lambda *_: "no idea"), FunctionModel(lambda *_: "nor have I"))

    assert isinstance(found, Unscored)


async def test_one_judge_is_asked_as_ever():
    found, session = await rated(rating(80))

    assert isinstance(found, Ratings)
    assert session.readings == {"written": 1}
