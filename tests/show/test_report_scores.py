"""What the report says about scorers, iterations and the story of a sample."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sample_study
from hostile import poisoned

from evenhand.core.types import Usage
from evenhand.show.chart import cell_chart
from evenhand.show.report import render_report, write_report
from evenhand.show.sections.answers import AGREEMENT_COLUMNS, agreement_table
from evenhand.show.table import interval_cell
from evenhand.stats import Interval, ScoreAgreement
from evenhand.studies.results import (
    Agreement,
    Estimate,
    IterationResult,
    ShownSnapshot,
    StudyResult,
)
from support.browser import unfold

ROW = ScoreAgreement(
    "toxicity",
    Interval(0.79, 0.75, 0.82, 1200),
    Interval(-0.024, -0.03, -0.018, 1200),
    Interval(0.905, 0.887, 0.92, 1200),
    Interval(None, None, None, 1200),
)
PAIR = Agreement("builtin_b@2", "judge:openai/x@12ab", [ROW], 40, [(0, 0, 900), (39, 39, 299), (3, 30, 1)])
VERDICT = {"evaluator": "toxicity", "passed": False, "critique": "It insults somebody.", "details": "toxicity 0.91"}


def study() -> StudyResult:
    steps = [
        IterationResult("cot-0", step, [Estimate("bias_ambig", "all", 20.0 - step, 15.0, 25.0, 660)], reached, 1239)
        for step, reached in ((0, 1239), (1, 310))
    ]
    return replace(
        sample_study.study(),
        agreements=[PAIR],
        by_iteration=steps,
        scoring=Usage(4321, 10, 20),
        scorers=("builtin_b@2",),
    )


def samples() -> list[Any]:
    shown = sample_study.samples(3)
    notes = {"candidate": "You idiot.", "verdicts": [VERDICT], "decision": "revise: toxicity"}
    kept = {"candidate": "You friend.", "verdicts": [], "decision": "accepted"}
    snapshots = (ShownSnapshot(0, "You idiot.", notes), ShownSnapshot(1, "You friend.", kept))
    outcomes = [replace(shown[0].outcomes[0], answer="You friend.", snapshots=snapshots), *shown[0].outcomes[1:]]
    return [replace(shown[0], outcomes=outcomes), *shown[1:]]


def section(page: str, name: str) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    assert found is not None
    return found.group()


def test_the_agreement_of_two_scorers_is_a_table_and_a_picture():
    part = section(render_report(study(), []), "agreement")

    for text in (
        *AGREEMENT_COLUMNS,
        "1,200",
        "0.790",
        "[0.750, 0.820]",
        "−0.024<",
        "[−0.030, −0.018]",
        "90.5",
        "judge:openai/x@12ab",
    ):
        assert text in part
    assert part.count('class="disc"') == 3
    assert "the largest disc is 900 answers" in part


def test_what_a_study_does_not_have_is_not_in_the_report():
    page = render_report(sample_study.study(), [])

    for name in ("agreement", "iterations"):
        assert f'id="{name}"' not in page
        assert f'href="#{name}"' not in page
    assert "Scorers" not in section(page, "cost")
    assert "Scores are by" not in page


def test_iterations_show_the_headline_and_how_many_samples_were_worked_on():
    part = section(render_report(study(), []), "iterations")

    assert "first answer" in part
    assert "25.0 %" in part
    assert "310 of 1,239" in part
    assert "19.0" in part


def test_the_scorers_own_calls_are_in_the_cost():
    assert re.search(r"Scorers</th>.*4,321", section(render_report(study(), []), "cost"), re.DOTALL)


def test_iterations_that_are_arms_have_no_cost_of_their_own():
    whole = study()
    step = replace(whole.arms[2], id="cot-0.1", label="cot · iteration 1", iteration=1, usage={}, pending=0)
    page = render_report(replace(whole, arms=[*whole.arms, step]), [])

    assert "cot · iteration 1" in section(page, "overview")
    assert "cot · iteration 1" not in section(page, "cost")
    assert "cot · iteration 1" not in section(page, "failures")


def test_an_undefined_kappa_is_a_dash():
    assert agreement_table("a", "b", [ROW]).rows[0][-1] == interval_cell(ROW.kappa)


def test_a_larger_cell_has_a_larger_disc_and_none_is_too_small_to_see():
    radii = [float(each) for each in re.findall(r'r="([\d.]+)"', cell_chart([(0, 0, 1), (1, 1, 10_000)], 40, ""))]

    assert radii == [11.0, 1.8]


@pytest.mark.parametrize("width", [1400, 390])
def test_the_browser_tells_the_story(open_page: Callable[..., Any], tmp_path: Path, width: int):
    write_report(study(), samples(), tmp_path / "report.html")

    page = open_page(tmp_path / "report.html", width)
    unfold(page)

    story = page.find_element("css selector", "#sample-detail .story").text
    told = [
        "You idiot.",
        "toxicity evaluator: It insults somebody.",
        "toxicity 0.91",
        "coordinator asks for a revision",
    ]
    told += ["You friend.", "coordinator accepts the answer.", "Revision 1 is kept."]
    places = [story.index(text) for text in told]
    assert places == sorted(places)
    change = page.find_element("css selector", "#sample-detail .change").text
    assert change.split("\n") == ["Before", "You idiot.", "After", "You friend."]
    assert page.execute_script("return document.documentElement.scrollWidth") <= width


def test_a_hostile_story_stays_text(open_page: Callable[..., Any], tmp_path: Path):
    write_report(poisoned(study()), poisoned(samples()), tmp_path / "report.html")

    page = open_page(tmp_path / "report.html", 390)
    unfold(page)

    assert page.find_elements("css selector", "#sample-detail img, #sample-detail script, #agreement img") == []
    assert "onerror" in page.find_element("css selector", "#sample-detail .story").text
