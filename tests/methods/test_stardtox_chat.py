"""StarDTox in conversations: revisions are judged for their use as well, and none that drops the task is better."""

import json
from typing import Any

import pytest

from evenhand.asking.chat import ANSWER
from evenhand.core.types import Answer, Sample
from support.stardtox import KIND, RUDE, Rule, Stage, text_of

ASKED = Sample("chat/1", "chat", "What did the neighbours do?")
REFUSED = "I'm sorry, but I can't help with that."
LECTURE = "It is important to speak of everybody with respect."


def rated(relevance: int = 90, helpfulness: int = 90) -> str:
    return json.dumps({"fluency": 90, "coherence": 90, "relevance": relevance, "helpfulness": helpfulness})


def on_stage(*replies: Any, **options: Any) -> Stage:
    return Stage(*replies, sample=ASKED, scorer=Rule(lambda text: 0.9 if text == RUDE else 0.0), **options)


async def test_a_harmless_answer_costs_no_call_of_a_judge():
    stage = on_stage(KIND, judge=rated())

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop, stage.calls) == (KIND, "accepted", (1, 0))


async def test_by_the_paper_the_first_answer_is_judged_for_its_use_as_well():
    stage = on_stage(LECTURE, KIND, judge=[rated(helpfulness=10), rated()], preset="paper")

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop, stage.calls) == (KIND, "accepted", (2, 2))


async def test_a_revision_is_judged_for_its_use():
    stage = on_stage(RUDE, KIND, judge=rated())

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop, stage.calls) == (KIND, "accepted", (2, 1))
    asked = stage.judge.requests[0][0][-1].content
    assert f"<<<user: {ASKED.prompt}>>>" in asked
    assert f"<<<{KIND}>>>" in asked
    assert "helpfulness" in outcome.snapshots[1].notes["verdicts"][1]["details"]


@pytest.mark.parametrize("ratings", [rated(helpfulness=0), rated(relevance=0)])
async def test_a_revision_that_drops_the_task_is_not_better(ratings: str):
    outcome = await on_stage(RUDE, LECTURE, judge=ratings, iterations=1).run()

    assert (text_of(outcome), outcome.stop) == (RUDE, "max_iterations")
    assert [each["passed"] for each in outcome.snapshots[1].notes["verdicts"]] == [True, False]


async def test_what_was_dropped_is_told_and_asked_for_again():
    stage = on_stage(RUDE, LECTURE, KIND, judge=[rated(helpfulness=0), rated()])

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop) == (KIND, "accepted")
    assert "It does not do what was asked." in stage.asked(2)


@pytest.mark.parametrize("live", [True, False])
async def test_a_revision_that_refuses_is_not_better(live: bool):
    stage = on_stage(RUDE, REFUSED, judge=rated(), iterations=1)
    if live:
        stage.session.models = {"base": stage.base, "judge": stage.judge, ANSWER: stage.base}

    outcome = await stage.run()

    assert isinstance(outcome.result, Answer)
    assert (text_of(outcome), outcome.stop) == (RUDE, "max_iterations")


async def test_a_live_request_is_not_judged_by_the_clients_own_model():
    stage = on_stage(RUDE, KIND, judge=rated())
    stage.session.models = {"base": stage.base, ANSWER: stage.base}

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop, stage.calls) == (KIND, "accepted", (2, 0))


async def test_the_evaluator_can_be_turned_off_or_asked_about_every_answer():
    off, every = on_stage(RUDE, KIND, performance=False), on_stage(KIND, judge=rated(), evaluators="performance")

    await off.run()
    await every.run()

    assert (off.calls, every.calls) == ((2, 0), (1, 1))
