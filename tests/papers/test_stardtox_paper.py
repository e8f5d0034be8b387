"""What StarDTox's page is made of: which runs, which rows, and how the figure counts."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evenhand.benchmarks.realtoxicity import BANDS
from evenhand.papers.reading import PairedDifference
from evenhand.papers.stardtox import MATCHED, StarDTox, gives_logits, tables
from evenhand.papers.stardtox.tables import Arm, share_refined
from evenhand.runs.plan import ModelPlan
from evenhand.scorers.base import SCORERS, load_scorer
from evenhand.stats import Interval
from support.papers import options_of


def test_the_defaults_are_the_papers_sizes():
    texts, choices = StarDTox().runs(options_of(StarDTox, "openai/x"))

    assert (texts.plan.benchmark, texts.plan.limit) == ("realtoxicity", 200)
    assert texts.plan.benchmark_options == {"completions": 25}
    assert (choices.plan.benchmark, choices.plan.limit) == ("bbq", 1100)


def test_a_limit_counts_items_of_each_kind():
    texts, choices = StarDTox().runs(options_of(StarDTox, "fake/A", limit=3, completions=2, builtin=True))

    assert (texts.plan.benchmark, texts.plan.limit) == ("realtoxicity_builtin", 6)
    assert texts.plan.benchmark_options == {"completions": 2}
    assert (choices.plan.benchmark, choices.plan.limit) == ("bbq_builtin", 33)


@pytest.mark.parametrize(("spec", "expected"), [("hf/x", True), ("openai/x", False), ("local/x", False)])
def test_generation_is_steered_only_where_the_model_gives_logits(spec: str, expected: bool):
    assert gives_logits(ModelPlan(spec=spec)) is expected
    methods = [method.name for method in StarDTox().runs(options_of(StarDTox, spec))[0].plan.methods]
    assert ("self_debias_gen" in methods) is expected


@pytest.mark.parametrize(("steer", "limit"), [("neural", 0.07), ("builtin", 0.12), ("detoxify", 0.1)])
def test_the_papers_threshold_is_that_of_the_scorer_by_which_as_many_texts_pass(steer: str, limit: float):
    plan = StarDTox().runs(options_of(StarDTox, "fake/A", steer=steer))[0].plan

    of_stardtox = [method.options for method in plan.methods if method.name == "stardtox"]
    by_preset = {each.get("preset"): (each["scorer"], each.get("toxicity")) for each in of_stardtox}
    assert by_preset == {"paper": (steer, limit), None: (steer, None)}


def test_a_threshold_of_the_users_own_wins():
    plan = StarDTox().runs(options_of(StarDTox, "fake/A", methods={"stardtox": {"toxicity": 0.3}}))[0].plan

    assert {each.options["toxicity"] for each in plan.methods if each.name == "stardtox"} == {0.3}


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("scorer", ["builtin", "builtin_b", pytest.param("neural", marks=pytest.mark.weights)])
def test_as_many_texts_are_below_the_threshold_as_below_a_tenth_of_perspective(scorer: str):
    """On texts of RealToxicityPrompts that Perspective scored and the scorer has not learned."""
    from tools.train_scorer.corpora import read_rtp
    from tools.train_scorer.measure import scores_of

    data = Path(os.environ.get("EVENHAND_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
    if not (data / "rtp").is_dir():
        pytest.skip(f"no RealToxicityPrompts: looked for rtp in {data} (EVENHAND_DATA)")
    if missing := SCORERS.get(scorer).unavailable():
        pytest.skip(missing)
    test = read_rtp(data)["test"]
    found = scores_of(load_scorer(scorer), test.texts)[:, 0]

    assert np.mean(found < MATCHED[scorer]) == pytest.approx(np.mean(test.labels[:, 0] < 0.1), abs=0.005)


def test_an_item_is_refined_in_every_iteration_that_it_reached():
    reached = [("high", "a", 0), ("high", "a", 1), ("high", "b", 2), ("high", "b", 2), ("moderate", "c", 0)]

    first, second = (share_refined(reached, "high", k) for k in (1, 2))

    assert (first.value, first.n) == (75.0, 4)
    assert (second.value, second.n) == (50.0, 4)
    assert first.low is not None and first.low < 75.0 < (first.high or 0)


@pytest.mark.parametrize(("iteration", "value"), [(1, 100.0), (2, 0.0)])
def test_all_or_none_of_a_few_clusters_is_no_certainty(iteration: int, value: float):
    reached = [("all", str(cluster), 1) for cluster in range(4)]

    found = share_refined(reached, "all", iteration)

    assert found.value == value
    assert (found.high or 0) - (found.low or 0) > 40


def test_nothing_run_is_undefined_and_not_zero():
    found = share_refined([], "high", 1)

    assert (found.value, found.low, found.high, found.n) == (None, None, None, 0)


@pytest.mark.parametrize(("fair", "verdict"), [(0.0, "holds"), (0.5, "fails"), (0.05, "cannot be determined")])
def test_toxicity_must_fall_by_half_against_every_baseline(monkeypatch: pytest.MonkeyPatch, fair: float, verdict: str):
    """StarDTox less half of each baseline: surely below 0 against Default, and this against the fair prompt."""

    def beyond(_run: object, other: Arm, *_: object) -> list[tuple[str, Interval]]:
        middle = -0.5 if other.method == "default" else fair - 0.2
        return [(band, Interval(middle, middle - 0.17, middle + 0.17, 100)) for band in BANDS]

    monkeypatch.setattr(tables, "_beyond", beyond)
    run: Any = SimpleNamespace(name="realtoxicity", study=SimpleNamespace(arms=[]), arm=lambda *_: "run")
    run.fault = lambda *_: ""
    (check,) = [each for each in tables._checks() if each.text.startswith("Toxicity falls by more than half")]
    own = Arm("stardtox", "paper")

    assert check.check(run, own)[0] == verdict
    run.arm = lambda *_: None
    without, why = check.check(run, own)
    assert without == ("fails" if verdict == "fails" else "cannot be determined")
    assert why.startswith("Self-Debias (Gen) needs logits") is (verdict != "fails")


@pytest.mark.parametrize("claim", ["Accuracy is not sacrificed", "Quality is not sacrificed"])
@pytest.mark.parametrize(
    ("less", "kept", "verdict"),
    [
        (-10, 0, "holds"),
        (0, 0, "cannot be determined"),  # what has not become less has cost nothing
        (-10, -10, "fails"),
        (0, -10, "fails"),
    ],
)
def test_nothing_is_kept_in_spite_of_a_gain_that_is_not_shown(claim: str, less: float, kept: float, verdict: str):
    def difference(_before: Arm, _after: Arm, metric: str, *_: str) -> PairedDifference:
        change = less if metric in ("bias_ambig", "toxicity") else kept
        limits = {"low": change - 1.0, "high": change + 1.0}
        found: Any = SimpleNamespace(
            difference=change, **limits, p_value=0.001 if change else 1.0, group="all", first=20.0, last=20.0 + change,
            n=100, excludes_published=None, published=None,
        )  # fmt: skip
        return PairedDifference(metric, found)

    run: Any = SimpleNamespace(difference=difference, fault=lambda *_: "")
    (check,) = [each for each in tables._checks() if each.text == claim]

    found, why = check.check(run, Arm("stardtox", "paper"))

    assert found == verdict
    assert ("is not shown. " in why) is (verdict == "cannot be determined")
