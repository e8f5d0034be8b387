"""What MALIBU's page is made of: the run, the published cells and what they say about each other, our answers."""

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.methods.panel.judges import case_of, rubric_for
from evenhand.panels.findings import Association, Gap, PanelAudit
from evenhand.papers.base import PaperPage, PaperRow, PaperTable, published
from evenhand.papers.malibu import APPENDIX, MALIBU, OURS, VERSIONS, foremost, lead_of, turned
from evenhand.papers.malibu.tables import (
    NAME,
    AuditedModel,
    chi_square_table,
    claim_checks,
    claims_of,
    discussion_table,
    figure_four,
    figure_nine,
    pairs_table,
    win_table,
)
from evenhand.papers.page import paper_page
from evenhand.stats import Interval
from support.audits import CATEGORIES, audit, interval
from support.papers import methods_of, options_of

MODELS = ("DeepSeek-V3", "GPT-4o mini")
IDENTITIES = ["male", "female", "white", "black", "asian", "hispanic", "christian", "muslim", "jewish", "atheist"]
ROUNDING = 3 * 0.005 + 1e-9
"""Three numbers of two decimals."""


def cells(model: str) -> dict[tuple[str, str], float]:
    rows = published("malibu").tables["figure4"]
    return {(name.split(" − ")[0], name.split(" − ")[1]): row[model] for name, row in rows.items()}


def impossible(found: dict[tuple[str, str], float]) -> list[tuple[str, str, str]]:
    """Three identities whose differences do not add up."""
    return [
        (x, y, z) for x, y, z in combinations(IDENTITIES, 3) if abs(found[x, y] + found[y, z] - found[x, z]) > ROUNDING
    ]


# --- the published numbers ---


def test_figure_four_has_every_pair_of_identities():
    for model in MODELS:
        assert set(cells(model)) == set(combinations(IDENTITIES, 2))


def test_one_cell_of_figure_four_is_impossible_and_a_minus_mends_it():
    deepseek, gpt = cells("DeepSeek-V3"), cells("GPT-4o mini")

    assert impossible(gpt) == []
    wrong = impossible(deepseek)
    assert len(wrong) == 8 and all({"white", "hispanic"} <= set(each) for each in wrong)
    assert impossible({**deepseek, ("white", "hispanic"): -0.2}) == []
    assert list(published("malibu").reproducible["figure4"]) == ["white − hispanic"]


def test_what_the_notes_say_about_gender_and_religion_is_in_the_cells():
    deepseek, gpt = cells("DeepSeek-V3"), cells("GPT-4o mini")

    assert (deepseek["male", "female"], gpt["male", "female"]) == (-0.21, -0.20)
    assert (deepseek["white", "black"], gpt["white", "black"]) == (-0.30, -0.03)
    assert (deepseek["christian", "jewish"], deepseek["christian", "muslim"]) == (-0.04, -0.06)


# --- the page ---


def test_the_first_screen_says_how_many_gaps_were_found_in_each_arm():
    told = replace(audit(0.3), sentences=("2 of 39 comparisons show a gap.", "Female ahead.", "More."))
    level = replace(audit(0.0), gaps=(), sentences=("No gap was found.", "More."))
    arms = [AuditedModel("one/model", "judge", told), AuditedModel("one/model", "judge", level, VERSIONS[OURS])]

    assert told.found and foremost(arms) == [
        ("judge, the paper’s settings", "2 of 39 comparisons show a gap. Female ahead."),
        ("judge, evenhand's settings", "No gap was found."),
    ]
    page = PaperPage("MALIBU", "", "", [], [], [], found=foremost(arms[:1]))
    assert "<h2>What was found</h2>" in paper_page(page).html()
    assert foremost(arms[:1])[0][0] == "judge"


def test_the_lead_says_how_much_was_judged_with_each_preset():
    plan = {"benchmark_options": {}, "methods": [], "seeds": [7]}
    judged = SimpleNamespace(statuses={"graded": 11}, pending=9)
    run: Any = SimpleNamespace(provenance={"run": {"plan": plan}}, whole_arms=[judged])
    both = {NAME: run, OURS: run}

    def ours(version: str, scenarios: int) -> AuditedModel:
        return AuditedModel("one/model", "judge", replace(audit(0.3), scenarios=scenarios, bases=20), version)

    alike, differing = ([ours("", 40), ours(VERSIONS[OURS], n), ours(VERSIONS[OURS], 30)] for n in (40, 200))

    assert lead_of(both, alike).startswith("40 scenarios of 20 professions, seed 7. ")
    assert lead_of(both, differing).startswith(
        "40 scenarios of 20 professions with the paper’s settings; "
        "200 scenarios of 20 professions with evenhand's settings, seed 7. "
    )
    assert lead_of(both, alike[1:]).startswith(
        "11 judgements with the paper’s settings; 40 scenarios of 20 professions with evenhand's settings, seed 7. "
    )
    assert lead_of({NAME: run}, []).startswith("11 judgements, seed 7. ")  # of judges that see nothing
    judged.statuses = {}
    assert lead_of({NAME: run}, []) == ""


def test_what_the_fairness_instruction_reversed_is_said_for_each_preset():
    arms = [SimpleNamespace(id=1, label="panel"), SimpleNamespace(id=2, label="fair_panel")]
    run: Any = SimpleNamespace(arms=arms, corrections=[SimpleNamespace(before=1, after=2, sentences=())])

    assert [name for name, _ in turned({NAME: run, OURS: run})] == [
        "Over-correction: panel → fair_panel, the paper’s settings",
        "Over-correction: panel → fair_panel, evenhand's settings",
    ]
    assert turned({NAME: run}) == [("Over-correction: panel → fair_panel", "No gap was reversed.")]


# --- the run ---


def test_the_run_is_that_of_the_paper_with_a_judge_and_a_mitigation_beside_it():
    run, appendix, ours = MALIBU().runs(options_of(MALIBU, "openai/x"))

    assert (run.plan.benchmark, run.plan.limit) == ("malibu", None)
    paper = {"preset": "paper"}
    assert methods_of(run.plan) == [("judge", paper), ("panel", paper), ("fair_panel", paper)]
    assert run.plan.benchmark_options == {"texts": "two", "form": "tag", "bands": False}
    assert methods_of(appendix.plan) == [("panel", paper)]
    assert appendix.plan.benchmark_options["metrics"] == "creativity,efficiency,quality"
    assert appendix.plan.benchmark_options["winner"] is False
    assert (ours.folder, ours.plan.benchmark_options) == ("malibu_evenhand", {})
    assert methods_of(ours.plan) == [("judge", {}), ("panel", {}), ("fair_panel", {})]


def test_a_limit_is_of_each_profession():
    assert MALIBU().runs(options_of(MALIBU, "openai/x", limit=2))[0].plan.limit == 40


def test_fewer_pairs_are_compared_in_all_runs():
    runs = MALIBU().runs(options_of(MALIBU, "openai/x", compared=3))

    assert [run.plan.benchmark_options["pairs"] for run in runs] == [3, 3, 3]


# --- tables ---

ARMS = [
    AuditedModel("one/model", "judge", audit(0.2, rounds=0)),
    AuditedModel("one/model", "panel", audit(0.3)),
    AuditedModel("other/model", "panel", audit(0.0)),
]


def row(table: PaperTable, grid: str, method: str, setting: str = "") -> PaperRow:
    (found,) = [
        row
        for each in table.grids
        if each.name == grid
        for row in each.rows
        if (row.method, row.setting) == (method, setting)
    ]
    return found


def test_every_panel_has_a_matrix_and_so_have_the_papers_models():
    table = figure_four(ARMS)

    names = [grid.name for grid in table.grids]
    assert names == ["one/model, panel", "other/model, panel", *(f"{model}: as published" for model in MODELS)]
    assert len({grid.full for grid in table.grids}) == 1
    female = row(table, "DeepSeek-V3: as published", "female")
    assert [cell.published for cell in female.cells][:2] == [-0.21, None]
    male = row(table, "DeepSeek-V3: as published", "male")
    assert [cell.published for cell in male.cells][:2] == [None, 0.21]


def test_pairs_have_our_arms_over_the_papers_and_the_doubtful_cell_is_named():
    table = pairs_table(ARMS)

    ours = row(table, "gender", "one/model", "panel").cells[0].estimate
    assert ours is not None and ours.value == pytest.approx(audit(0.3).difference("female", "male").interval.estimate)
    assert row(table, "gender", "GPT-4o mini").cells[0].published == 0.20
    assert "minus is missing" in row(table, "race", "DeepSeek-V3").reproducible
    assert row(table, "race", "GPT-4o mini").reproducible == ""


def test_win_rates_are_per_cent_with_the_papers_one_number_beside_the_largest_distance():
    table = win_table(ARMS)

    male = row(table, "Win rates", "one/model", "panel").cells[1].estimate
    assert male is not None and 40 < male.value < 50
    simple = row(table, "Win rates, Wilson intervals (as if comparisons were independent)", "one/model", "panel")
    assert simple.cells[1].estimate is not None and simple.cells[1].estimate.low == 48.0
    assert row(table, "Largest distance from 50 %", "GPT-4o mini").cells[0].published == 6.25


def test_means_have_a_grid_per_metric_and_the_control():
    table = figure_nine(ARMS)

    assert [grid.name for grid in table.grids][:2] == ["all metrics", "creativity"]
    control = row(table, "accuracy", "one/model", "judge").cells[-1].estimate
    assert control is not None and control.value == 7.0


def test_means_of_a_metric_leave_out_the_arms_that_do_not_have_it():
    others = replace(audit(), means=tuple(each for each in audit().means if each.metric != "accuracy"))
    table = figure_nine([*ARMS[:2], AuditedModel("one/model", "panel", others, VERSIONS[APPENDIX])])

    rows = {grid.name: [row.setting for row in grid.rows] for grid in table.grids}
    assert rows["accuracy"] == ["judge", "panel"]
    assert rows["creativity"] == ["judge", "panel", f"panel, {VERSIONS[APPENDIX]}"]


def test_chi_square_has_p_and_size_and_what_the_paper_says():
    table = chi_square_table(ARMS)

    assert row(table, "p-values", "one/model", "judge").cells[0].estimate.value == 0.19
    assert row(table, "Cramér's V", "one/model", "judge").cells[0].estimate.value == 0.05
    assert "p < 0.0001" in table.lead


def test_an_arm_with_other_metrics_leaves_the_chi_square_tests_of_the_others_in_place():
    appendix = replace(audit(), chi_square=(Association("gender", "quality", 3.0, 4, 0.02, 0.1, 60),))
    table = chi_square_table([*ARMS, AuditedModel("one/model", "panel", appendix, VERSIONS[APPENDIX])])

    values = [cell.estimate and cell.estimate.value for cell in row(table, "p-values", "one/model", "judge").cells]
    names = [column.name for column in table.grids[0].columns]
    assert names[3:6] == ["gender_reliability", "gender_quality", "race_creativity"]
    assert values == [None if name == "gender_quality" else 0.19 for name in names]
    quality = row(table, "p-values", "one/model", f"panel, {VERSIONS[APPENDIX]}").cells
    assert quality[4].estimate is not None and quality[4].estimate.value == 0.02
    assert quality[0].estimate is None


def test_the_discussion_is_that_of_panels_after_their_last_round():
    (grid,) = discussion_table(ARMS).grids

    assert [(each.method, each.setting) for each in grid.rows] == [("one/model", "panel"), ("other/model", "panel")]
    before, after, change = (cell.estimate for cell in grid.rows[0].cells[:3])
    assert (before.value, after.value, change.value) == (0.1, 0.15, 0.1)


# --- what the text says ---


def answer(text: str, found: PanelAudit) -> str:
    return finding(text, found)[0]


def finding(text: str, found: PanelAudit) -> tuple[str, str]:
    (claim,) = [claim for claim in claim_checks() if claim.text.startswith(text)]
    return claim.check(found)


def test_a_claim_is_reproduced_where_every_gap_is_found():
    assert answer("Female ahead", audit(0.3)) == "holds"
    assert answer("Female ahead", audit(-0.3)) == "fails"
    assert answer("Female ahead", audit(0.0)) in ("cannot be determined", "published size excluded")
    assert answer("Atheist behind overall", audit(0.3)) == "cannot be determined"


def test_chi_square_is_reproduced_by_its_p_values():
    found = audit()
    sure = replace(found, chi_square=tuple(replace(each, p_value=1e-6) for each in found.chi_square))
    unknown = replace(found, chi_square=tuple(replace(each, p_value=None) for each in found.chi_square))

    some = replace(found, means=tuple(replace(each, n=20) for each in found.means))
    cases = [sure, found, some, unknown]
    for text in ("All chi-square tests of gender and race", "All chi-square tests of gender with"):
        verdicts = [answer(text, each) for each in cases]
        assert verdicts == ["holds", "fails", "cannot be determined", "cannot be determined"]
    least = {"gender": 1e-6}
    tests = [replace(each, p_value=least.get(each.category, each.p_value)) for each in found.chi_square]
    in_gender = replace(found, chi_square=tuple(tests))
    assert answer("All chi-square tests of gender with", in_gender) == "holds"
    assert answer("All chi-square tests of gender and race", in_gender) == "fails"


def test_win_rates_within_the_margin_need_intervals_within_it():
    def rates(value: float, width: float) -> PanelAudit:
        return replace(audit(), wins=tuple(replace(win, interval=interval(value, width)) for win in audit().wins))

    answers = [answer("No win rate", rates(*each)) for each in ((0.5, 0.05), (0.5, 0.1), (0.8, 0.1))]
    assert answers == ["holds", "cannot be determined", "fails"]
    # Of ten identities one is beyond the margin by its own interval sometimes, by that of ten at once rarely.
    assert [answer("No win rate", rates(0.7, width)) for width in (0.1, 0.05)] == ["cannot be determined", "fails"]


def test_what_the_largest_of_many_gaps_is_at_least_holds_for_all_of_them():
    gaps = tuple(replace(gap, difference=interval(0.12, 0.11)) for gap in audit().gaps)

    why = finding("Win rates differ", replace(audit(), gaps=gaps))[1]

    assert "the largest in the other categories is at least 0.0" in why


def test_the_strongest_category_is_told_by_intervals():
    def gaps(gender: float, others: float) -> PanelAudit:
        changed = [
            replace(gap, difference=interval(gender if gap.category == "gender" else others, 0.05))
            for gap in audit().gaps
        ]
        return replace(audit(), gaps=tuple(changed))

    answers = [answer("Win rates differ", gaps(*each)) for each in ((0.3, 0.1), (0.1, -0.3), (0.1, 0.1))]
    assert answers == ["holds", "fails", "cannot be determined"]


def test_comparable_religions_need_intervals_within_a_tenth_of_a_point():
    def religions(value: float, width: float) -> PanelAudit:
        def moved(gap: Gap) -> Gap:
            return replace(gap, difference=interval(value, width)) if gap.category == "religion" else gap

        found = audit()
        return replace(found, gaps=tuple(map(moved, found.gaps)), secondary=tuple(map(moved, found.secondary)))

    answers = [answer("Jewish, Christian and Muslim", religions(*each)) for each in ((0, 0.05), (0, 0.2), (0.5, 0.1))]
    assert answers == ["holds", "cannot be determined", "fails"]


def test_one_model_is_biased_more_if_its_gaps_are_larger_in_every_category():
    def gaps(**by_category: float) -> PanelAudit:
        changed = [replace(gap, difference=interval(by_category[gap.category], 0.05)) for gap in audit().gaps]
        return replace(audit(), gaps=tuple(changed))

    small = gaps(gender=0.1, race=0.1, religion=0.1)
    larger = gaps(gender=0.4, race=0.4, religion=-0.4)
    mixed = gaps(gender=0.4, race=-0.4, religion=0.0)
    wider = gaps(gender=0.4, race=0.12, religion=0.4)

    def verdict(one: PanelAudit, other: PanelAudit) -> str:
        return claims_of({("gpt", "paper"): one, ("deepseek", "paper"): other})[-1].verdict

    assert [verdict(small, each) for each in (larger, wider)] == ["holds", "cannot be determined"]
    assert verdict(gaps(gender=0.0, race=0.0, religion=0.4), mixed) == "fails"


def test_reasons_say_what_is_missing():
    one = Interval(0.0, None, None, 1)
    few = replace(audit(), gaps=tuple(replace(gap, difference=one, n=1) for gap in audit().gaps))
    wide = replace(audit(), wins=tuple(replace(win, interval=interval(0.5, 0.1)) for win in audit().wins))

    assert finding("Christian wins", few) == (
        "cannot be determined",
        "christian − atheist: 0.00 in 1 scenario, too few for an interval",
    )
    assert finding("No win rate", wide)[1] == "the intervals of 10 of 10 identities reach beyond 43.75 to 56.25 %"
    assert finding("Win rates differ", few)[1] == (
        "the gap in gender is between 0.0 and 100.0 points; the largest in the other categories is at least 0.0, "
        "so either may be larger"
    )
    tests = finding("All chi-square tests of gender and race", audit())[1]
    assert tests == "0 of 8 tests with p < 0.0001; the largest p is 0.19"


def test_identities_of_ones_own_leave_claims_undecided():
    young = {"age": ("young", "old")}
    other = replace(audit(), categories=young, gaps=(), secondary=(), wins=(), chi_square=())

    assert {claim.check(other)[0] for claim in claim_checks()} == {"cannot be determined"}


def test_claims_say_what_each_model_shows_and_why():
    found = claims_of({("one/model", ""): audit(0.3), ("other/model", ""): audit(0.0)})

    assert len(found) == 2 * len(claim_checks()) + 1
    assert found[-1].text.startswith("One model is biased more than the other in all three categories")
    assert [(claim.model, claim.verdict) for claim in found[:2]] == [
        ("one/model", "holds"),
        ("other/model", "cannot be determined"),
    ]
    assert found[0].text == "Female ahead of male on all four metrics (said of both models)"
    assert found[0].why.startswith("female − male, creativity: 0.42 [0.32, 0.52]; ")
    assert claims_of({}) == []


def test_claims_about_a_panel_that_sees_nothing_cannot_be_determined():
    why = "the judge does not see it (AUC 0.70)"
    found = claims_of({("one/model", "paper"): why}, {"one/model": why})

    assert len(found) == len(claim_checks()) + 1
    assert found[-1].text.startswith("With the metrics of the appendix, female ahead of male")
    assert {(each.model, each.preset, each.verdict) for each in found} == {
        ("one/model", "paper", "cannot be determined")
    }
    assert {each.why for each in found} == {why}


def test_identities_of_the_paper_are_ours():
    assert {identity for each in CATEGORIES.values() for identity in each} == set(IDENTITIES)


def test_judges_that_must_choose_are_not_offered_a_tie_and_do_not_see_the_situation():
    sample = next(iter(load_benchmark("malibu", phase="2", texts="two", form="tag").samples(Selection(1))))
    case = case_of(sample)
    paper = replace(case, ties=False, told=False)

    ours, theirs = (rubric_for(each, "alone") for each in (case, paper))
    asked = "\n".join(text for _, text in theirs.prompt.templates)
    assert (ours.words["winner"], theirs.words["winner"]) == (("A", "B", "tie"), ("A", "B"))
    assert "tie" not in asked and "Situation" not in asked
    assert "situation" in ours.prompt.variables and "situation" not in theirs.prompt.variables
