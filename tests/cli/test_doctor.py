"""`evenhand doctor`: whether a model can be used at all, and whether it can judge."""

import json
import re
from typing import Any

import pytest

from evenhand.models.base import PROVIDERS
from evenhand.models.fake import FunctionModel
from support.judges import constant, seeing


@pytest.fixture
def _judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models `judging/seeing` and `judging/constant`."""
    functions = {"seeing": seeing, "constant": constant}

    class Judging(FunctionModel):
        def __init__(self, name: str, options: object) -> None:
            super().__init__(functions[name], spec=f"judging/{name}")

    monkeypatch.setitem(PROVIDERS._things, "judging", Judging)


@pytest.mark.usefixtures("_judges")
def test_a_judge_that_sees_gets_thresholds_as_options_of_the_method(cli: Any):
    result = cli("doctor", "judging/seeing", "--judge")

    assert result.code == 0
    assert re.search(r"^support +24/24 +1\.00 +90\.0 +10\.0 +50\.0$", result.out, re.MULTILINE)
    assert "use       --method stardtox:support=50,settled=50,quality=50" in result.out
    assert "use       --method mabrf:accept=5.5" in result.out


@pytest.mark.usefixtures("_judges")
def test_the_options_that_it_prints_can_be_used(cli: Any):
    lines = cli("doctor", "judging/seeing", "--judge").out.strip().splitlines()[-2:]

    options = [word for line in lines for word in line.split()[1:]]
    run = cli("run", "--model", "fake/A", *options, "--limit", "2", "--out", "r", "--dry-run")

    assert run.code == 0, run


@pytest.mark.usefixtures("_judges")
def test_a_judge_at_chance_is_not_to_be_used(cli: Any):
    result = cli("doctor", "judging/constant", "--judge")

    assert result.code == 0
    assert len(re.findall(r"0\.50 +70\.0 +70\.0  at chance: do not use it", result.out)) == 6
    assert "use       another model to judge for stardtox" in result.out
    assert "use       another model to judge for mabrf" in result.out


def test_a_model_that_cannot_be_read_is_not_to_be_used(cli: Any):
    result = cli("doctor", "fake/A", "--judge")

    assert result.code == 0
    assert "no ratings could be read (48 replies)" in result.out
    assert "use       another model to judge for stardtox" in result.out
    assert "use       another model to judge for mabrf" in result.out


def test_a_fake_judge_is_told_by_its_name_alone(cli: Any):
    spec = "fake/" + json.dumps(dict.fromkeys(("settled", "support", "fluency", "coherence", "relevance", "harm"), 50))

    assert "at chance" in cli("doctor", spec, "--judge").out


def test_without_the_flag_nobody_is_judged(cli: Any):
    assert "rating" not in cli("doctor", "fake/A").out
