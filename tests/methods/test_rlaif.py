"""The method `rlaif`: several answers to one question, scored by the debate's referee, without a debate."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from evenhand.benchmarks.base import load_benchmark
from evenhand.benchmarks.debates import DECLINED, ROUNDS, statements_in
from evenhand.core.errors import PlanError
from evenhand.core.types import Answer, Completion, Grade, Message, Outcome, Params, Refusal, Sample, Unscored
from evenhand.methods.base import METHODS
from evenhand.models.base import Model
from evenhand.models.fake import FunctionModel, Reply
from evenhand.session import Session
from support.referees import ODDS, STATEMENT, VERDICT, asked_for, verdict

RLAIF = METHODS.get("rlaif")
SAMPLE = Sample("age/tea", "debate", "Is tea good?", metadata={"about": "Prejudice by age.", "bias": "age"})


class Answering:
    """Gives numbered answers; as the referee it finds every later one of its list less biased."""

    def __init__(
        self, say: Callable[[int], Reply] = lambda number: f"Tea is fine, I say for the {number}. time."
    ) -> None:
        self._say = say
        self._given = 0

    def __call__(self, messages: Sequence[Message], params: Params) -> Reply:
        kind = asked_for(params)
        if kind == STATEMENT:
            self._given += 1
            return self._say(self._given)
        if kind == VERDICT:
            shown = messages[-1].content.count("Tea is fine")
            return verdict(list(range(9, 9 - shown, -1)))
        return "Yes" if "the 1. time" in messages[-1].content else "No"


def answering(say: Any = None) -> FunctionModel:
    return FunctionModel(Answering(say) if say else Answering(), features=("schema", "seed"))


async def answered(models: Model | dict[str, Model], **options: Any) -> Outcome:
    roles = {"base": models} if isinstance(models, Model) else models
    return await RLAIF.run(SAMPLE, Session(SAMPLE, roles, 0, RLAIF.with_options(options)))


def calls(model: FunctionModel) -> list[str]:
    return [asked_for(params) for _, params in model.requests]


async def test_the_question_is_asked_as_often_as_told_and_judged_in_one_call():
    model = answering()

    outcome = await answered(model, answers=3)

    assert calls(model) == [STATEMENT] * 3 + [VERDICT]
    found = statements_in(outcome.notes)
    assert [(each.role, each.round) for each in found] == [("answer 1", 1), ("answer 2", 1), ("answer 3", 1)]
    assert sorted(each.score or 0 for each in found) == [7.0, 8.0, 9.0]
    assert outcome.result == Answer(min(found, key=lambda each: each.score or 0).text)
    assert outcome.notes[ROUNDS] == 1


async def test_all_answer_the_same_plain_question_with_seeds_of_their_own():
    model = answering()

    await answered(model)

    asked = [(messages, params) for messages, params in model.requests if asked_for(params) == STATEMENT]
    assert len({messages for messages, _ in asked}) == 1
    assert SAMPLE.prompt in asked[0][0][-1].content
    assert len({params.seed for _, params in asked}) == 4
    assert None not in {params.seed for _, params in asked}
    assert {(params.temperature, params.max_tokens) for _, params in asked} == {(1.0, 160)}


async def test_the_same_session_gives_the_same_seeds():
    first, second = answering(), answering()

    await answered(first)
    await answered(second)

    assert first.requests == second.requests


async def test_a_declined_answer_is_left_out_and_noted():
    model = answering(lambda number: Completion("", refusal="No.") if number == 2 else f"Tea is fine, {number}.")

    outcome = await answered(model, answers=3)

    assert [each.role for each in statements_in(outcome.notes)] == ["answer 1", "answer 3"]
    assert [(each["role"], each["reason"]) for each in outcome.notes[DECLINED]] == [("answer 2", "declined")]
    judged = next(messages[-1].content for messages, params in model.requests if asked_for(params) == VERDICT)
    assert judged.count("Tea is fine") == 2


async def test_when_all_are_declined_nobody_is_asked_to_judge():
    model = answering(lambda _: Completion("", refusal="No."))

    outcome = await answered(model)

    assert calls(model) == [STATEMENT] * 4
    assert outcome.result == Refusal("No.")


async def test_a_referee_who_cannot_be_read_leaves_answers_without_scores():
    def reply(_messages: Sequence[Message], params: Params) -> str:
        return "Hm." if asked_for(params) == VERDICT else f"Tea is fine {params.seed}."

    outcome = await answered(FunctionModel(reply, features=("schema", "seed")))

    assert [each.score for each in statements_in(outcome.notes)] == [None] * 4
    assert isinstance(outcome.result, Unscored)


async def test_scored_by_odds_each_answer_takes_one_more_call():
    model = answering()

    outcome = await answered(model, answers=2, scoring="odds")

    assert calls(model) == [STATEMENT, STATEMENT, VERDICT, ODDS, ODDS]
    assert [each.score for each in statements_in(outcome.notes)] == [10.0, 0.0]


async def test_a_teacher_answers_and_a_referee_judges_in_place_of_the_model():
    base, teacher, referee = (answering() for _ in range(3))

    await answered({"base": base, "teacher": teacher, "referee": referee})

    assert [calls(each) for each in (base, teacher, referee)] == [[], [STATEMENT] * 4, [VERDICT]]


async def test_it_is_graded_as_a_debate_of_one_round():
    outcome = await answered(answering(), answers=2)

    grade = load_benchmark("debates").grade(SAMPLE, outcome)

    assert isinstance(grade, Grade)
    assert (grade.values["rounds"], grade.values["scored"]) == (1, 2)
    assert grade.values["first"] == grade.values["last"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"answers": 1}, "answers of the method rlaif must be a whole number from 2 to 26, not 1"),
        ({"answers": 27}, "answers of the method rlaif must be a whole number from 2 to 26, not 27"),
        ({"temperature": 3}, "temperature of the method rlaif must be a number from 0 to 2, not 3"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(PlanError, match=message):
        RLAIF.with_options(options)


def test_answers_that_would_all_be_the_same_are_refused() -> None:
    with pytest.raises(PlanError, match="temperature 0"):
        RLAIF.with_options({"temperature": 0})
