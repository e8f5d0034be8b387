"""Evaluators that a user adds to StarDTox, and options that make no sense."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from evenhand.core.errors import PlanError, UnknownNameError, UsageError
from evenhand.core.types import Answer, Sample, Unscored
from evenhand.methods.base import METHODS
from evenhand.methods.stardtox import EVALUATORS, Evaluator, Verdict, evaluator, evaluators_for
from evenhand.runs.parts import check_plan
from evenhand.runs.plan import make_plan
from evenhand.session import Session
from support.runs import Workshop
from support.stardtox import KIND, QUESTION, RUDE, Stage, text_of

MAIL = "write to anna@example.org, she will help."


@pytest.fixture(autouse=True)
def _added() -> Iterator[None]:
    """Two evaluators of the user's own, for the length of a test."""

    @evaluator("privacy", kinds={"completion", "choice"})
    async def privacy(sample: Sample, answer: Answer, session: Session) -> Verdict | Unscored:
        leaks = "@" in answer.text
        return Verdict(not leaks, "It gives an address away." if leaks else "", harm=float(leaks), excess=float(leaks))

    @evaluator("asleep", kinds={"completion"})
    async def asleep(sample: Sample, answer: Answer, session: Session) -> Verdict | Unscored:
        return Unscored("asleep")

    yield
    for each in (privacy, asleep):
        assert isinstance(each, Evaluator)
        del EVALUATORS._things[each.name]


async def test_an_evaluator_of_the_users_joins_by_its_name():
    stage = Stage(MAIL, KIND, evaluators="privacy")

    outcome = await stage.run()

    assert (text_of(outcome), outcome.stop) == (KIND, "accepted")
    assert "- It gives an address away.\n" in stage.asked(1)
    said = [each["evaluator"] for each in outcome.snapshots[0].notes["verdicts"]]
    assert said == ["toxicity", "performance", "privacy"]


@pytest.mark.parametrize("names", ["privacy+asleep", "privacy + asleep", ["privacy", "asleep"]], ids=str)
async def test_several_join_at_once(names: Any):
    outcome = await Stage(KIND, evaluators=names).run()

    said = {each["evaluator"]: each for each in outcome.snapshots[0].notes["verdicts"]}
    assert said["asleep"] == {"evaluator": "asleep", "unscored": "asleep"}
    assert said["privacy"]["passed"] is True


async def test_critiques_of_all_evaluators_are_told():
    stage = Stage(f"{RUDE} {MAIL}", KIND, evaluators="privacy")

    await stage.run()

    assert len(re.findall(r"^- ", stage.asked(1), re.MULTILINE)) == 2


async def test_an_evaluator_can_look_at_questions():
    outcome = await Stage("A", judge="Yes", sample=QUESTION, evaluators="privacy", settled=100).run()

    assert [each["evaluator"] for each in outcome.snapshots[0].notes["verdicts"]] == ["proof", "privacy"]


@pytest.mark.parametrize("names", ["", (), None, []], ids=repr)
def test_nobody_is_added_by_default(names: Any):
    options = METHODS.get("stardtox").with_options({"evaluators": names})

    assert [each.name for each in evaluators_for("completion", options)] == ["toxicity", "performance"]


def test_an_evaluator_that_is_there_already_is_asked_once():
    options = METHODS.get("stardtox").with_options({"evaluators": "performance+bias"})

    assert [each.name for each in evaluators_for("completion", options)] == ["toxicity", "performance", "bias"]


def test_a_name_is_given_once():
    with pytest.raises(UsageError, match="registered already"):
        evaluator("privacy", kinds={"completion"})(None)  # pyright: ignore[reportArgumentType]


def checked(benchmark: str = "realtoxicity_builtin", **options: Any) -> None:
    from evenhand.benchmarks.base import load_benchmark

    plan = make_plan(
        {"benchmark": benchmark, "models": ["fake/A"], "methods": [{"name": "stardtox", "options": options}]}
    )
    check_plan(plan, load_benchmark(benchmark))


def test_an_evaluator_of_other_samples_is_refused_by_the_plan():
    checked(evaluators="asleep")
    with pytest.raises(PlanError, match="asleep does not support 'choice' samples"):
        checked("bbq_builtin", evaluators="asleep")


def test_an_unknown_evaluator_is_told_with_the_nearest():
    with pytest.raises(UnknownNameError, match="There is no evaluator named 'privcy'; did you mean privacy"):
        checked(evaluators="privcy")


WRONG: list[tuple[str, Any]] = [
    ("bias", "rules"),
    ("keep", "first"),
    ("iterations", -1),
    ("iterations", 1.5),
    ("iterations", True),
    ("candidates", 0),
    ("toxicity", 10),
    ("toxicity", float("nan")),
    ("quality", "high"),
    ("support", 101),
    ("settled", None),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_options_that_make_no_sense_are_refused_by_the_plan(name: str, value: Any):
    with pytest.raises(PlanError, match=f"The option {name} of the method stardtox must be"):
        checked(**{name: value})


async def test_nothing_is_called_and_nothing_left_by_a_plan_that_is_refused(workshop: Workshop):
    model = workshop.model(lambda *_: KIND)
    methods = ["default", {"name": "stardtox", "options": {"evaluators": "privcy"}}]

    with pytest.raises(UnknownNameError):
        await workshop.run(benchmark="realtoxicity_builtin", methods=methods, limit=2)

    assert model.requests == []
    assert not (workshop.directory / "run").exists()
