"""Runs carry their certificates: a number from a judge that does not see what it rates has no value, anywhere."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenhand.cli.stored import print_scores
from evenhand.core.types import Message, Params, Unscored
from evenhand.models.base import PROVIDERS
from evenhand.models.budget import Limits
from evenhand.models.fake import FunctionModel
from evenhand.papers.base import moves
from evenhand.papers.reading import read_paired_arms
from evenhand.papers.stardtox.tables import steering_fault
from evenhand.runs.dry import forecast
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import Settings
from evenhand.runs.plan import Plan, make_plan
from evenhand.runs.scores import rescore
from evenhand.runs.stored import StoredRun
from evenhand.scorers.base import SCORERS, Scores
from evenhand.scorers.builtin import ARTEFACTS, BuiltinScorer
from evenhand.show.report import write_report
from evenhand.studies.conclusions import warnings_about
from evenhand.studies.gate import Condition, check
from evenhand.studies.samples import shown_samples
from evenhand.studies.study import study
from support.judges import FAULTY, rated, seeing

pytestmark = pytest.mark.controls


def judging(kind: str):
    """A judge of controls, who rates every other answer 20 with a system prompt before it, and 80 without."""

    def reply(messages: Sequence[Message], params: Params) -> str:
        if rated(messages) is not None:
            return (seeing if kind == "sees" else FAULTY[kind])(messages, params)
        value = 20 if "fair" in messages[-1].content.split("Answer:")[-1] else 80
        return json.dumps({"bias": value, "communication": 80, "soundness": 80})

    return reply


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A run of opinions with two methods, of which one answers more fairly, judged by `rating/KIND`."""

    def answer(messages: Sequence[Message], _params: Params) -> str:
        fair = messages[0].role == "system"
        return f"{'A fair' if fair else 'A blunt'} answer of some words to {messages[-1].content[:60]}"

    class Rating(FunctionModel):
        def __init__(self, name: str, options: object) -> None:
            super().__init__(answer if name == "answers" else judging(name), spec=f"rating/{name}")

    monkeypatch.setitem(PROVIDERS._things, "rating", Rating)
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))

    def made(kind: str, **more: Any) -> Plan:
        fields = {"benchmark": "opinions", "limit": 30, "methods": ["default", "fair_prompt"]}
        return make_plan({**fields, "models": ["rating/answers"], "scorers": [f"opinion:rating/{kind}"], **more})

    return made


async def test_a_judge_that_sees_leaves_the_numbers_and_its_certificate(plan: Any, tmp_path: Path):
    await run_plan(plan("sees"), tmp_path / "r", Settings())

    found = study([tmp_path / "r"])
    assert found.arms[0].estimate("bias").value == pytest.approx(80)
    assert not any(metric.untold for metric in found.metrics)
    run = StoredRun.open(tmp_path / "r")
    assert [each.rating.rpartition(".")[2] for each in run.certificates()] == ["bias", "communication", "soundness"]
    run.store.close()


async def test_a_blind_judge_has_no_numbers_in_table_verdict_and_gate(plan: Any, tmp_path: Path):
    await run_plan(plan("blind"), tmp_path / "r", Settings())

    found = study([tmp_path / "r"])
    [effect] = [each for each in found.effects if (each.metric, each.group) == ("bias", "all")]
    assert (effect.difference, effect.direction) == (None, "undecided")
    assert all(arm.estimate("bias").value is None for arm in found.arms)
    assert found.arms[0].estimate("length").value is not None
    assert "“Bias score (BS)” cannot be determined: the judge does not see it (AUC 0." in " ".join(found.verdicts)
    assert check(found, found.arms[0], Condition.parse("bias > 90")).state == "cannot tell"
    assert "the judge does not see it" in check(found, found.arms[0], Condition.parse("bias > 90")).reason
    write_report(found, shown_samples([tmp_path / "r"], 5), tmp_path / "report.html")
    assert "cannot be determined: the judge does not see it (AUC 0." in (tmp_path / "report.html").read_text()


async def test_means_by_a_blind_judge_are_said_to_be_worthless(
    plan: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    await run_plan(plan("sees"), tmp_path / "r", Settings())

    print_scores(tmp_path / "r", await rescore(tmp_path / "r", ["opinion:rating/blind"], Settings()))

    assert "! bias cannot be determined: the judge does not see it (AUC 0." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("method", "name", "rating"),
    [("stardtox", "stardtox", "helpfulness"), ("mabrf:accept=4", "mabrf", "chat_bias")],
)
async def test_a_blind_judge_that_steers_free_answers_is_a_caveat(
    plan: Any, tmp_path: Path, method: str, name: str, rating: str
):
    for kind in ("sees", "blind"):
        models = [{"base": "rating/answers", "judge": f"rating/{kind}"}]
        await run_plan(plan("sees", models=models, methods=[method], limit=4), tmp_path / kind, Settings())

    said = f"What {name}, arm 1 revises cannot be determined"
    sees, blind = (" ".join(study([tmp_path / kind]).caveats) for kind in ("sees", "blind"))
    assert said in blind and f"{rating}: the judge does not see it (AUC 0." in blind
    assert said not in sees


async def test_each_of_several_judges_is_checked(plan: Any, tmp_path: Path):
    models = [{"base": "rating/answers", "judge": "rating/sees", "judge_2": "rating/blind"}]
    await run_plan(plan("sees", models=models, methods=["stardtox"], limit=4), tmp_path / "r", Settings())

    found = study([tmp_path / "r"])
    write_report(found, shown_samples([tmp_path / "r"], 5), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()

    assert any("helpfulness: the judge does not see it" in each for each in found.caveats)
    assert "stardtox, arm 1.helpfulness by rating/sees" in page
    assert "stardtox, arm 1.helpfulness by rating/blind" in page


async def test_attacks_on_groups_are_certified_apart_from_toxicity(
    plan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    class Rude(BuiltinScorer):
        """Sees rude words, and no attacks on groups."""

        name = "rude"

        def __init__(self) -> None:
            super().__init__(ARTEFACTS / "builtin.npz")

        async def score(self, texts: Sequence[str], contexts: Sequence[str] | None = None) -> list[Scores | Unscored]:
            found = await super().score(texts, contexts)
            return [each if isinstance(each, Unscored) else {**each, "identity_attack": 0.1} for each in found]

    monkeypatch.setitem(SCORERS._things, "rude", Rude)
    for name in ("builtin", "rude"):
        made = plan("sees", benchmark="realtoxicity_builtin", limit=6, methods=["default"], scorers=[name])
        await run_plan(made, tmp_path / name, Settings())

    both, rude = (study([tmp_path / name]).arms[0] for name in ("builtin", "rude"))

    assert both.estimate("toxicity").value is not None
    assert both.estimate("identity_attack").value is not None
    assert rude.estimate("toxicity").value is not None
    assert rude.estimate("identity_attack").value is None


async def test_metrics_without_a_value_for_one_reason_are_one_warning(plan: Any, tmp_path: Path):
    await run_plan(plan("blind"), tmp_path / "r", Settings())
    found = study([tmp_path / "r"])
    reason = next(metric.untold for metric in found.metrics if metric.untold)
    blind = [replace(metric, title=f"T{n}", untold=reason) for n, metric in enumerate(found.metrics[:6])]

    few, many = (warnings_about(replace(found, metrics=blind[:size])) for size in (4, 6))

    assert f"T0; T1; T2; T3 cannot be determined: {reason}." in few
    assert f"T0; T1; T2; T3 and 2 more metrics cannot be determined: {reason}." in many


async def test_a_paper_made_with_a_blind_judge_claims_nothing(plan: Any, tmp_path: Path):
    await run_plan(plan("blind"), tmp_path / "blind", Settings())
    await run_plan(plan("sees"), tmp_path / "sees", Settings())

    verdicts = {
        name: moves(
            [read_paired_arms(tmp_path / name, [("1.1", "1.2")], "bias").difference("1.1", "1.2", "bias")], "lower"
        )
        for name in ("sees", "blind")
    }

    assert verdicts["sees"][0] == "holds"
    assert verdicts["blind"][0] == "cannot be determined"
    assert "Bias score (BS) cannot be determined: the judge does not see it (AUC 0." in verdicts["blind"][1]


async def test_without_controls_the_numbers_stand_and_the_report_says_so(plan: Any, tmp_path: Path):
    await run_plan(plan("blind", controls="off"), tmp_path / "r", Settings())

    found = study([tmp_path / "r"])
    assert found.arms[0].estimate("bias").value is not None
    assert any("The controls were off" in each for each in found.caveats)


async def test_controls_are_in_the_forecast_and_in_the_budget(plan: Any, tmp_path: Path):
    told = {each.label: each for each in await forecast(plan("sees"), {})}
    progress = await run_plan(plan("sees"), tmp_path / "r", Settings(budget=Limits(calls=20)))

    assert told["controls"].usage.calls > 150
    assert "controls" not in {each.label for each in await forecast(plan("sees", controls="off"), {})}
    assert progress.stopped
    assert progress.done == 0


async def test_a_resumed_run_does_not_check_again_and_a_later_scorer_is_checked(plan: Any, tmp_path: Path):
    await run_plan(plan("sees"), tmp_path / "r", Settings())
    used = _scoring(tmp_path / "r")

    await run_plan(plan("sees"), tmp_path / "r", Settings(resume=True))
    await rescore(tmp_path / "r", ["opinion:rating/blind"])

    assert _scoring(tmp_path / "r") == used + 60 + _controls_of()
    assert study([tmp_path / "r"]).arms[0].estimate("bias").value is not None
    assert study([tmp_path / "r"], scorers=["opinion:rating/blind"]).arms[0].estimate("bias").value is None


@pytest.mark.parametrize("calls", [20, 230])
async def test_a_run_that_stops_at_its_controls_or_scores_repeats_none_of_their_calls(
    plan: Any, tmp_path: Path, calls: int
):
    await run_plan(plan("sees"), tmp_path / "whole", Settings())
    stopped = await run_plan(plan("sees"), tmp_path / "r", Settings(budget=Limits(calls=calls)))

    completed = await run_plan(plan("sees"), tmp_path / "r", Settings(resume=True))

    assert stopped.stopped
    assert completed.done == 60
    used = [_scoring(tmp_path / name) for name in ("whole", "r")]
    assert used == [60 + _controls_of()] * 2


def _scoring(directory: Path) -> int:
    """The calls of scorers and controls that a run has recorded."""
    run = StoredRun.open(directory)
    calls = run.store.scoring().calls
    run.store.close()
    return calls


def _controls_of() -> int:
    """The calls of one scorer's controls: each text is rated once."""
    from evenhand.judging.instruments import scorer_test
    from evenhand.judging.scorers import OpinionScorer

    scorer = OpinionScorer(FunctionModel(seeing))
    return len(scorer_test(scorer, in_run=True).contrasts())


@pytest.mark.parametrize(("quality", "crosses"), [(80, False), (65, True)])
async def test_a_method_whose_judge_never_crosses_its_threshold_says_that_what_it_revises_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quality: int, crosses: bool
):
    """The judge rates good continuations 73 and poor ones 58, as a small model does; 80 is beyond its scale."""

    def rating(messages: Sequence[Message], _params: Params) -> str:
        about = rated(messages)
        if about is None:
            return "went home and made some tea for everybody."
        value = 73 if about[1].high else 58
        return json.dumps(dict.fromkeys(("fluency", "coherence", "relevance", "helpfulness"), value))

    class Rating(FunctionModel):
        def __init__(self, name: str, options: object) -> None:
            super().__init__(rating, spec=f"rating/{name}")

    monkeypatch.setitem(PROVIDERS._things, "rating", Rating)
    monkeypatch.setenv("EVENHAND_CACHE", str(tmp_path / "cache"))
    method = f"stardtox:quality={quality},calibration=none,candidates=1"
    plan = make_plan({"benchmark": "realtoxicity_builtin", "limit": 3, "methods": [method], "models": ["rating/x"]})

    await run_plan(plan, tmp_path / "r", Settings())

    said = [each for each in study([tmp_path / "r"]).caveats if "revises cannot be determined" in each]
    assert bool(said) is not crosses
    assert crosses or "never crosses the threshold of 80 (it rates 58 to 73)" in said[0]
    fault = steering_fault(tmp_path / "r", lambda key: key.method == "stardtox")
    assert bool(fault) is not crosses
    told = {each.label: each.usage.calls for each in await forecast(plan, {})}
    assert told["controls"] < _scoring(tmp_path / "r") <= told["controls"] + told["scoring"]
