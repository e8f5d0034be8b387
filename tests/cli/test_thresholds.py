"""`evenhand judges check`: the card of a judge, and options of commands that use its ratings."""

import json
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenhand.cli.judges import use_lines
from evenhand.core.types import Sample
from evenhand.judging.card import Contrast, Curve, JudgeCard, JudgeTest, card_path, load_card, save_card
from evenhand.judging.certificate import Certificate
from evenhand.judging.instruments import Checked
from evenhand.judging.rubric import Ratings
from evenhand.methods.base import METHODS
from evenhand.runs.store import Store
from evenhand.session import Session
from evenhand.stats import Interval

BBQ = "bbq_builtin"
METHODS_ONLY = [part for name in ("stardtox", "mabrf", "debate") for part in ("--metric", name)]


def check(cli: Any, spec: str, *more: str) -> Any:
    return cli("judges", "check", spec, *METHODS_ONLY, *more)


def said(result: Any) -> str:
    return " ".join((result.out + result.err).split())


def read_options(run: Path) -> Any:
    with closing(Store(run)) as store:
        return store.get("options")["1"]


@pytest.mark.usefixtures("_judges")
def test_a_judge_that_sees_gets_a_card_that_its_methods_use(cli: Any):
    result = check(cli, "judging/seeing")

    assert result.code == 0
    assert re.search(r"stardtox\.support +sees it .* 1\.00 ", result.out)
    assert "use       --method stardtox --judge judging/seeing   (reads this card)" in result.out
    assert "use       --method mabrf --judge judging/seeing   (reads this card; it sets accept=" in result.out
    card = load_card("fitted", "judging/seeing")
    assert f"Card: {card_path('judging/seeing')}" in result.out
    assert {"support", "settled", "fluency", "helpfulness", "harm", "referee"} <= card.curves.keys()
    assert card.probability("support", 1.0) > 0.9
    assert card.probability("support", 0.0) < 0.1
    assert {"evaluators/proof", "evaluators/performance_chat", "methods/mabrf/judge"} <= card.prompts.keys()


@pytest.mark.usefixtures("_judges")
def test_a_run_with_this_judge_is_another_run_without_its_card(cli: Any):
    plan = ("run", "--model", "fake/A", "--judge", "judging/seeing", "--method", "stardtox", "--limit", "4")
    before = cli(*plan, "--out", "before")
    check(cli, "judging/seeing")
    after = cli(*plan, "--out", "after")
    resumed = cli(*plan, "--out", "before", "--resume")

    caveat = "was not calibrated, so its thresholds are those of another model"
    assert (before.code, after.code) == (0, 0)
    assert caveat in said(cli("compare", "before"))
    assert caveat not in said(cli("compare", "after"))
    assert resumed.code == 2
    assert "a run of another plan (or of other data, weights or templates)" in said(resumed)


@pytest.mark.usefixtures("_judges")
@pytest.mark.parametrize("dry", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_before_anything_is_paid_for_it_says_what_to_calibrate_and_its_price(cli: Any, dry: tuple[str, ...]):
    plan = ("run", "--model", "fake/A", "--judge", "judging/seeing", "--limit", "2", "--out", "r", *dry)

    text = said(cli(*plan, "--method", "stardtox", "--method", "weigh"))

    assert "`evenhand judges check judging/seeing` fits them." in text
    assert "`evenhand models calibrate fake/A` fits them in about 2,900 short calls" in text


@pytest.mark.usefixtures("_judges")
def test_a_prior_card_makes_mabrf_look_unless_its_thresholds_are_given(cli: Any):
    plan = ("run", "--model", "fake/A", "--judge", "judging/seeing", "--limit", "1", "--method")
    cli(*plan, "mabrf", "--out", "prior")
    cli(*plan, "mabrf:accept=3", "--out", "own")
    prior, own = (read_options(Path(name)) for name in ("prior", "own"))

    assert (prior["look"], prior["accept"]) == (True, 10)
    assert (own["look"], own["accept"]) == (False, 3)


@pytest.mark.usefixtures("_judges")
def test_a_card_can_be_stored_and_used_as_a_file(cli: Any):
    result = check(cli, "judging/seeing", "--card", "own.json")
    plan = ("run", "--model", "fake/A", "--limit", "2", "--out", "r", "--dry-run", "--method")

    assert "use       --method stardtox:calibration=own.json --judge judging/seeing" in result.out
    assert not card_path("judging/seeing").exists()
    assert cli(*plan, "stardtox:calibration=own.json").code == 0
    missing = cli(*plan, "stardtox:calibration=other.json")
    assert (missing.code, "evenhand judges check MODEL" in said(missing)) == (2, True)


@pytest.mark.usefixtures("_judges")
def test_a_referee_gets_the_better_way_to_score_and_a_threshold_for_pairs(cli: Any):
    sees, by_odds = (check(cli, f"judging/{name}").out for name in ("seeing", "odds"))

    assert re.search(r"debate\.referee +sees it .* 1\.00 ", sees)
    assert "use       --method debate:scoring=numbers\nuse       evenhand train pairs RUN --threshold 5\n" in sees
    assert re.search(r"debate\.referee +does not see it .* 0\.50 ", by_odds)
    assert re.search(r"debate\.odds +sees it .* 1\.00 ", by_odds)
    assert "use       --method debate:scoring=odds\nuse       evenhand train pairs RUN --threshold 5\n" in by_odds


@pytest.mark.usefixtures("_judges")
@pytest.mark.parametrize(("method", "benchmark"), [("stardtox", BBQ), ("mabrf", BBQ), ("debate:.*", "debates")])
def test_the_options_that_it_prints_can_be_used(cli: Any, method: str, benchmark: str):
    out = check(cli, "judging/odds").out
    option = re.search(rf"^use +--method ({method})(?: --judge judging/odds .*)?$", out, re.MULTILINE)
    assert option is not None

    plan = ("--benchmark", benchmark, "--method", option[1], "--limit", "2", "--out", "r", "--dry-run")
    run = cli("run", "--model", "fake/A", *(() if benchmark == "debates" else ("--judge", "judging/odds")), *plan)

    assert run.code == 0, run


@pytest.mark.usefixtures("_judges")
def test_a_method_of_ones_own_declares_what_its_judge_should_tell_apart(cli: Any, monkeypatch: pytest.MonkeyPatch):
    async def rate(session: Session) -> Ratings:
        values = {"warmth": 0.9 if session.sample.id == "warm" else 0.2}
        return Ratings(values, values)

    names = ("warm", "cold") * 30
    texts = [Contrast(Sample(name, "chat", name), rate, [("warmth", name == "warm")]) for name in names]
    test = JudgeTest("judge for own", lambda: texts, lambda found: {"warmth": found[0].threshold})
    own = replace(METHODS.get("default"), name="own", calibration=test)
    monkeypatch.setitem(METHODS._things, "own", own)

    result = cli("judges", "check", "judging/seeing", "--metric", "warmth")

    assert re.search(r"own\.warmth +sees it .* 1\.00 ", result.out)
    assert "use       --method own:warmth=0.55" in result.out


@pytest.mark.usefixtures("_judges")
def test_a_judge_at_chance_is_not_to_be_used(cli: Any):
    result = check(cli, "judging/constant")

    assert result.code == 1
    assert len(re.findall(r"stardtox\.\w+ +does not see it .* 0\.50 ", result.out)) == 9
    assert "Card:" not in result.out
    assert "use       another model to judge for stardtox" in result.out
    assert "use       another model to judge for mabrf" in result.out
    assert "use       another model to referee" in result.out
    assert "evenhand train pairs" not in result.out


@pytest.mark.usefixtures("_judges")
def test_a_judge_that_sees_no_longer_loses_its_card(cli: Any):
    path = card_path("judging/constant")
    curve = Curve(slope=2, intercept=0, auc=1, rated=96)
    save_card(JudgeCard(model="judging/constant", curves={"support": curve}), path)

    check(cli, "judging/constant")

    card = load_card(str(path), "judging/constant")
    assert (card.curves, "support" in card.at_chance) == ({}, True)


@pytest.mark.usefixtures("_judges")
def test_a_quick_look_leaves_the_card_as_it_is(cli: Any):
    result = check(cli, "judging/seeing", "--limit", "2")

    assert "Card: none is stored" in result.out
    assert not card_path("judging/seeing").is_file()


def test_a_scorer_is_recommended_for_what_its_judge_sees_alone():
    seen = {"bias": Interval(0.5, 0.3, 0.7, 60), "soundness": Interval(1.0, 0.9, 1.0, 60)}
    certificates = [Certificate(f"opinion.{name}", "openai/x", auc=each) for name, each in seen.items()]

    [line] = use_lines([Checked("opinion", JudgeTest("score", list), (), certificates)], "openai/x", None)

    assert line == "use       --scorer opinion:openai/x   (but not for bias)"


def test_a_model_that_cannot_be_read_is_not_to_be_used(cli: Any):
    result = check(cli, "fake/A")

    assert result.code == 1
    assert "gives no rating that can be read" in result.out
    assert "use       another model to judge for stardtox" in result.out
    assert "use       another model to judge for mabrf" in result.out
    assert "use       another model to referee" in result.out
    assert "evenhand train pairs" not in result.out


def test_a_fake_judge_is_told_by_its_name_alone(cli: Any):
    spec = "fake/" + json.dumps(dict.fromkeys(("settled", "support", "fluency", "coherence", "relevance", "harm"), 50))

    assert "does not see it" in check(cli, spec).out
