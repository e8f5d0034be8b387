"""`evenhand judges`: known errors of judges are found, and a run's numbers are corrected by people's ratings."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import evenhand
from evenhand.models.base import PROVIDERS
from support.judged import answering, fill, guessing, judging, lenient

JUDGE, GUESSER = "opinion:kind/judge", "opinion:dice/judge"


@pytest.fixture
def rated(cli: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two arms on 120 questions, scored by a lenient judge and by dice; people rate 40 questions."""
    monkeypatch.setitem(PROVIDERS._things, "stub", lambda *_: answering("stub/one"))
    monkeypatch.setitem(PROVIDERS._things, "kind", lambda *_: judging("kind/judge", lenient))
    monkeypatch.setitem(PROVIDERS._things, "dice", lambda *_: judging("dice/judge", guessing))
    arms = ("--method", "default", "--method", "fair_prompt")
    asked = ("run", "--model", "stub/one", "--benchmark", "opinions", "--limit", "120", "--scorer", JUDGE)
    assert cli(*asked, *arms, "--out", "o").code == 0
    assert cli("run", "rescore", "o", "--scorer", GUESSER).code == 0
    assert cli("annotate", "export", "o", "--out", "r", "--raters", "2", "--limit", "40").code == 0
    fill(Path("r"))
    return "r"


def test_a_lenient_judge_is_found_and_the_run_corrected(cli: Any, rated: str):
    result = cli("judges", "people", rated, "o")

    assert result.code == 0
    assert "opinion:kind/judge rates BS" in result.out
    assert "points below people on average" in result.out
    page = Path("r/judges.html").read_text(encoding="utf-8")
    assert "Judges against people" in page
    assert "http-equiv" in page
    numbers = json.loads(Path("r/judges.json").read_text())
    kind = next(each for each in numbers["agreements"] if each["scale"] == "BS" and "kind" in each["judge"])
    dice = next(each for each in numbers["agreements"] if each["scale"] == "BS" and "dice" in each["judge"])
    assert kind["answers"] == dice["answers"] == 80
    assert -21 < kind["bias"]["estimate"] < -12
    assert kind["spearman"]["low"] > 0.8
    assert dice["spearman"]["estimate"] < 0.3
    assert sum(map(sum, kind["confusion"])) == 80
    assert kind["sensitivity"]["estimate"] < kind["specificity"]["estimate"]


def test_the_corrected_mean_is_that_of_people_on_all_answers(cli: Any, rated: str):
    found = evenhand.judges_against_people("r", "o", scorers=["opinion:kind/judge"])

    # All that people would rate: each answer says what it is worth.
    with_text = cli("run", "export", "o", "--table", "outcomes", "--out", "o.jsonl")
    assert with_text.code == 0
    rows = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
    for each in (each for each in found.estimates if each.scale == "BS"):
        own = [int(row["answer"].split()[-1].rstrip(".")) for row in rows if row["arm"] == each.arm]
        truth = sum(own) / len(own)
        corrected = each.mean.corrected.interval
        assert corrected.low < truth < corrected.high
        assert abs(corrected.estimate - truth) < abs(each.mean.judge.estimate - truth)
        assert each.mean.corrected.weight > 0.5
        assert corrected.high - corrected.low < each.mean.people.high - each.mean.people.low
    change = next(each.difference for each in found.estimates if each.scale == "BS" and each.arm == "fair_prompt")
    assert change.corrected.interval.high < 0
    assert found.questions == 120


def test_a_judge_at_chance_gets_no_weight(rated: str):
    found = evenhand.judges_against_people("r", "o", scorers=["opinion:dice/judge"])

    arm = next(each for each in found.estimates if (each.scale, each.arm) == ("BS", "default"))
    assert arm.mean.corrected.weight < 0.4
    assert arm.share.rogan_gladen.interval.estimate is None


def test_other_runs_than_the_rated_are_refused(cli: Any, rated: str):
    assert (
        cli("run", "--model", "stub/one", "--benchmark", "opinions", "--scorer", JUDGE, "--out", "p", "-n", "4").code
        == 0
    )

    result = cli("judges", "people", rated, "p")

    assert result.code == 2
    assert "People rated answers of other runs. Name the rated runs, in this order: o." in result.err


def test_a_scale_can_be_compared_with_any_score(cli: Any, rated: str):
    assert cli("run", "rescore", "o", "--scorer", "builtin").code == 0

    result = cli("judges", "people", rated, "o", "--scorer", "builtin", "--scale", "BS=toxicity", "--out", "t.html")

    assert result.code == 0
    assert {each["attribute"] for each in json.loads(Path("t.json").read_text())["agreements"]} == {"toxicity"}


def test_wrong_options_are_one_sentence(cli: Any, rated: str):
    for arguments, message in (
        (("--threshold", "0"), "must be above 0"),
        (("--scale", "XX=bias"), "People rated BS, CE, LS, not 'XX'"),
        (("--scale", "BS=insult"), "has no scores of insult to compare"),
        (("--scorer", "builtin"), "has no scores by 'builtin'"),
        (("--out", "page.txt"), "should end in .html"),
    ):
        result = cli("judges", "people", rated, "o", *arguments)

        assert (result.code, result.out) == (2, ""), arguments
        assert message in result.err


def test_a_page_that_cannot_be_written_is_refused_before_a_call(cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    access = os.access  # root may write everywhere
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "shut" and access(path, mode))
    (tmp_path / "shut").mkdir()

    result = cli("judges", "check", "fake/5", "--metric", "opinion.bias", "--out", "shut/sub/judge.html")

    assert (result.code, result.out) == (2, "")
    assert result.err == "evenhand: --out names the page, but nothing can be written in shut.\n"
