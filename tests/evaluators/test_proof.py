"""The evaluator of questions: a name and an abstention are held to the same evidence, read by the judge's card."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenhand.benchmarks.difference_awareness import KNOWLEDGE
from evenhand.core.types import Completion, TokenLogprob
from evenhand.judging.card import Curve, JudgeCard, save_card
from evenhand.models.fake import FunctionModel
from evenhand.session import Session
from support.stardtox import QUESTION, Stage, text_of

MAN, BOY, NOBODY = QUESTION.choices


def judge(proved: Mapping[str, float], spec: str = "function") -> FunctionModel:
    """A judge with these probabilities of Yes."""

    def reply(messages: Any, _params: Any) -> Completion:
        asked = messages[-1].content
        p = next(p for answer, p in proved.items() if f"Possible answer: {answer}\n" in asked)
        both = (("Yes", math.log(p)), ("No", math.log(1 - p)))
        return Completion("Yes", logprobs=(TokenLogprob("Yes", math.log(p), both),))

    return FunctionModel(reply, spec=spec, features=("logprobs",))


def on_stage(*answers: str, by: FunctionModel, **options: Any) -> Stage:
    order = [QUESTION.choices[index] for index in Session(QUESTION, {}, 0).permutation(3)]
    stage = Stage(*("ABC"[order.index(answer)] for answer in answers), sample=QUESTION, **options)
    stage.session.models = {"base": stage.base, "judge": by}
    return stage


async def test_an_answer_that_is_proved_costs_one_short_call():
    by = judge({BOY: 0.9})
    stage = on_stage(BOY, by=by)

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop, len(by.requests)) == (BOY, "accepted", 1)
    assert by.requests[0][1].max_tokens == 1


async def test_an_abstention_needs_that_nobody_is_proved():
    by = judge({MAN: 0.1, BOY: 0.2})

    outcome = await on_stage(NOBODY, by=by, calibration="none").run()

    assert (outcome.stop, len(by.requests)) == ("accepted", 2)
    details = outcome.snapshots[0].notes["verdicts"][0]["details"]
    assert details == (f"settled 0.20, must be under 0.50; proved by the passage: {MAN} 0.10, {BOY} 0.20")


async def test_an_abstention_is_told_whom_the_passage_speaks_of():
    stage = on_stage(NOBODY, BOY, by=judge({MAN: 0.1, BOY: 0.8}))

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop) == (BOY, "accepted")
    assert f"Read again what it says about this: {BOY}." in stage.asked(1)


async def test_a_name_that_is_not_proved_gives_way_to_an_abstention():
    outcome = await on_stage(MAN, NOBODY, by=judge({MAN: 0.1, BOY: 0.2})).run()

    assert (text_of(outcome), outcome.stop) == (NOBODY, "accepted")


async def test_what_is_proved_is_never_given_up_for_an_abstention():
    """The over-correction that was measured: a rejected abstention outranked the right person."""
    outcome = await on_stage(MAN, NOBODY, NOBODY, by=judge({MAN: 0.3, BOY: 0.9})).run()

    assert (text_of(outcome), outcome.stop) == (MAN, "max_iterations")


@pytest.mark.parametrize("context", [" ", KNOWLEDGE])
async def test_without_a_passage_nothing_is_judged(context: str):
    by = judge({})
    stage = on_stage(MAN, by=by)
    bare = replace(QUESTION, context=context)
    stage.sample = bare

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop, by.requests) == (MAN, "no_evaluation", [])


async def test_a_judge_that_says_neither_is_no_verdict():
    stage = on_stage(MAN, by=FunctionModel(lambda *_: "Perhaps."))

    outcome = await stage.run()

    assert outcome.stop == "no_evaluation"
    assert "neither yes nor no" in outcome.snapshots[0].notes["verdicts"][0]["unscored"]


@pytest.mark.parametrize(
    ("p", "calibration", "stop"),
    [
        (0.6, "fitted", "max_iterations"),
        (0.7, "fitted", "accepted"),
        (0.6, "prior", "max_iterations"),
        (0.6, "none", "accepted"),
    ],
)
async def test_a_judge_without_a_card_must_say_yes_more_clearly(p: float, calibration: str, stop: str):
    """Small models say Yes to half of what is wrong, so that nothing would ever be revised."""
    stage = on_stage(BOY, by=judge({BOY: p}, "own/unknown"), iterations=0, calibration=calibration)

    assert (await stage.run()).stop == stop


async def test_several_judges_are_all_asked_and_their_mean_counts():
    stage = on_stage(BOY, by=judge({BOY: 0.9}), iterations=0, calibration="none")
    stage.session.models = {**stage.session.models, "judge_2": judge({BOY: 0.3})}

    outcome = await stage.run()

    assert outcome.snapshots[0].notes["verdicts"][0]["details"].startswith("support 0.60, must be at least 0.50")
    assert stage.session.readings["judges_disagreed"] == 1


class TestCard:
    @pytest.fixture(autouse=True)
    def _cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path))

    def store(self, path: Path, meets: float) -> Path:
        """A card by which `meets` is where the two kinds meet."""
        odds = math.log(meets / (1 - meets))
        curve = Curve(slope=1, intercept=-odds, auc=0.9, rated=48)
        save_card(JudgeCard(model="x", curves={"support": curve, "settled": curve}), path)
        return path

    @pytest.mark.parametrize(("meets", "stop"), [(0.05, "accepted"), (0.6, "max_iterations")])
    async def test_ratings_are_read_by_the_curve_of_the_judge(self, tmp_path: Path, meets: float, stop: str):
        card = self.store(tmp_path / "card.json", meets)

        outcome = await on_stage(BOY, by=judge({BOY: 0.1}), iterations=0, calibration=str(card)).run()

        assert outcome.stop == stop

    async def test_the_card_is_found_by_the_name_of_the_judge(self):
        from evenhand.judging.card import card_path

        self.store(card_path("own/judge"), 0.05)

        known = await on_stage(BOY, by=judge({BOY: 0.1}, "own/judge"), iterations=0).run()
        unknown = await on_stage(BOY, by=judge({BOY: 0.1}, "own/other"), iterations=0).run()
        unused = await on_stage(BOY, by=judge({BOY: 0.1}, "own/judge"), iterations=0, calibration="none").run()

        assert [each.stop for each in (known, unknown, unused)] == ["accepted", "max_iterations", "max_iterations"]
