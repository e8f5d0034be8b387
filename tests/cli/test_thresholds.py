"""`evenhand calibrate --as-judge`: the thresholds of a judge, as options of methods and commands."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from evenhand.evaluators.calibration import Contrast, JudgeTest
from evenhand.methods.base import METHODS
from evenhand.scorers.rubric import Ratings
from evenhand.session import Session
from evenhand.types import Sample

BBQ = "bbq_builtin"


@pytest.mark.usefixtures("_judges")
def test_a_judge_that_sees_gets_thresholds_as_options_of_the_method(cli: Any):
    result = cli("calibrate", "judging/seeing", "--as-judge")

    assert result.code == 0
    assert re.search(r"^support +24/24 +1\.00 +90\.0 +10\.0 +50\.0$", result.out, re.MULTILINE)
    assert "use       --method stardtox:support=50,settled=50,quality=50" in result.out
    assert "use       --method mabrf:accept=5.5" in result.out


@pytest.mark.usefixtures("_judges")
def test_a_referee_gets_the_better_way_to_score_and_a_threshold_for_pairs(cli: Any):
    sees, by_odds = (cli("calibrate", f"judging/{name}", "--as-judge").out for name in ("seeing", "odds"))

    assert re.search(r"^referee +60/60 +1\.00 +90\.0 +10\.0 +50\.0$", sees, re.MULTILINE)
    assert "use       --method debate:scoring=numbers\nuse       evenhand pairs RUN --threshold 5\n" in sees
    assert re.search(r"^referee +60/60 +0\.50 +30\.0 +30\.0  at chance: do not use it$", by_odds, re.MULTILINE)
    assert re.search(r"^odds +30/30 +1\.00 +100\.0 +0\.0 +50\.0$", by_odds, re.MULTILINE)
    assert "use       --method debate:scoring=odds\nuse       evenhand pairs RUN --threshold 5\n" in by_odds


@pytest.mark.usefixtures("_judges")
@pytest.mark.parametrize(("method", "benchmark"), [("stardtox", BBQ), ("mabrf", BBQ), ("debate", "debates")])
def test_the_options_that_it_prints_can_be_used(cli: Any, method: str, benchmark: str):
    out = cli("calibrate", "judging/odds", "--as-judge").out
    option = re.search(rf"^use +--method ({method}:.*)$", out, re.MULTILINE)
    assert option is not None

    plan = ("--benchmark", benchmark, "--method", option[1], "--limit", "2", "--out", "r", "--dry-run")
    run = cli("run", "--model", "fake/A", *plan)

    assert run.code == 0, run


@pytest.mark.usefixtures("_judges")
def test_a_method_of_ones_own_declares_what_its_judge_should_tell_apart(cli: Any, monkeypatch: pytest.MonkeyPatch):
    async def rate(session: Session) -> Ratings:
        values = {"warmth": 0.9 if session.sample.id == "warm" else 0.2}
        return Ratings(values, values)

    texts = [Contrast(Sample(name, "chat", name), rate, [("warmth", name == "warm")]) for name in ("warm", "cold")]
    test = JudgeTest("judge for own", lambda: texts, lambda found: {"warmth": found[0].threshold})
    own = replace(METHODS.get("default"), name="own", calibration=test)
    monkeypatch.setitem(METHODS._things, "own", own)

    result = cli("calibrate", "judging/seeing", "--as-judge")

    assert re.search(r"^warmth +1/1 +1\.00 +90\.0 +20\.0 +55\.0$", result.out, re.MULTILINE)
    assert "use       --method own:warmth=0.55" in result.out


@pytest.mark.usefixtures("_judges")
def test_a_judge_at_chance_is_not_to_be_used(cli: Any):
    result = cli("calibrate", "judging/constant", "--as-judge")

    assert result.code == 0
    assert len(re.findall(r"0\.50 +70\.0 +70\.0  at chance: do not use it", result.out)) == 6
    assert "use       another model to judge for stardtox" in result.out
    assert "use       another model to judge for mabrf" in result.out
    assert "use       another model to referee" in result.out
    assert "evenhand pairs" not in result.out


def test_a_model_that_cannot_be_read_is_not_to_be_used(cli: Any):
    result = cli("calibrate", "fake/A", "--as-judge")

    assert result.code == 0
    assert "no ratings could be read (48 replies)" in result.out
    assert "use       another model to judge for stardtox" in result.out
    assert "use       another model to judge for mabrf" in result.out
    assert "use       another model to referee" in result.out
    assert "evenhand pairs" not in result.out


def test_a_fake_judge_is_told_by_its_name_alone(cli: Any):
    spec = "fake/" + json.dumps(dict.fromkeys(("settled", "support", "fluency", "coherence", "relevance", "harm"), 50))

    assert "at chance" in cli("calibrate", spec, "--as-judge").out
