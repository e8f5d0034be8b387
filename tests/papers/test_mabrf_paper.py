"""What MABRF's page is made of: which runs, which rows, and what the published numbers say about each other."""

from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.data.bbq import CATEGORIES
from evenhand.papers.base import published
from evenhand.papers.mabrf import MABRF
from evenhand.papers.mabrf.tables import BINS, bin_of, figure_four, table_five, table_four, table_three
from support.papers import methods_of, options_of

MODELS = ("GPT-3.5-Turbo", "GPT-4", "Claude-3-Haiku", "DeepSeek")
SIDES = {"without search": "", "with search": "_with_search"}
BBQ_DATA = Path(__file__).parents[3] / "shared/data/bbq"


def by_category(column: str, model: str = "") -> list[float]:
    """A column of Table 5, of one model or of all, in per cent."""
    return [row[column] for name, row in published("mabrf").tables["table5"].items() if name.startswith(model)]


# --- runs ---


def test_the_defaults_are_the_papers_questions_and_search():
    choices, answers = MABRF().runs(options_of(MABRF, "openai/x"))

    assert (choices.plan.benchmark, choices.plan.limit) == ("bbq", None)
    assert choices.plan.benchmark_options == {"legacy": True, "subset": "mabrf_110"}
    assert methods_of(choices.plan) == [
        ("default", {}), ("cot", {}), ("mabrf", {"preset": "paper"}), ("mabrf", {}),
        ("mabrf", {"preset": "paper", "search": "ddgs"}), ("mabrf", {"search": "ddgs"}),
    ]  # fmt: skip
    assert (answers.plan.benchmark, answers.plan.limit) == ("squad", 100)
    assert methods_of(answers.plan) == [
        ("closed_book", {}), ("search", {"preset": "paper", "provider": "ddgs"}), ("search", {"provider": "ddgs"}),
        ("default", {}),
    ]  # fmt: skip


def test_a_bound_that_fits_the_judge_goes_to_both_loops():
    choices = MABRF().runs(options_of(MABRF, "fake/A", search="wikipedia", accept=4.16, preset="evenhand"))[0]

    assert methods_of(choices.plan) == [
        ("default", {}), ("cot", {}), ("mabrf", {"accept": 4.16}), ("mabrf", {"search": "wikipedia", "accept": 4.16}),
    ]  # fmt: skip


def test_a_judge_that_looks_first_does_so_with_and_without_search():
    choices = MABRF().runs(options_of(MABRF, "fake/A", search="wikipedia", accept=5.8, look=True, preset="evenhand"))[0]

    assert methods_of(choices.plan)[2:] == [
        ("mabrf", {"grounded": 5.2, "look": True}),
        ("mabrf", {"search": "wikipedia", "grounded": 5.2, "look": True}),
    ]


def test_a_limit_counts_questions_of_each_kind_of_all_bbq():
    choices, answers = MABRF().runs(options_of(MABRF, "openai/x", limit=3, search="wikipedia"))

    assert (choices.plan.limit, choices.plan.benchmark_options) == (33, {"legacy": True})
    assert answers.plan.limit == 6
    assert ("mabrf", {"search": "wikipedia"}) in methods_of(choices.plan)


def test_built_in_data_is_searched_in_the_built_in_corpus():
    choices, answers = MABRF().runs(options_of(MABRF, "openai/x", builtin=True))

    assert (choices.plan.benchmark, choices.plan.limit) == ("bbq_builtin", 110)
    assert (answers.plan.benchmark, answers.plan.limit) == ("squad_builtin", 100)
    assert ("mabrf", {"search": "corpus:builtin"}) in methods_of(choices.plan)
    assert ("search", {"provider": "corpus:builtin"}) in methods_of(answers.plan)


# --- tables without a run ---


def test_without_a_run_the_tables_show_the_paper_alone():
    three, four, five = table_three([], []), table_four([], []), table_five([])

    assert [len(table.grids[0].rows) for table in (three, four)] == [8, 4]
    assert [len(grid.rows) for grid in five.grids] == [12, 12, 12, 12]
    assert not any(row.ours for table in (three, four, five) for grid in table.grids for row in grid.rows)
    assert figure_four([]).bars == []


def test_every_published_row_says_whether_it_can_be_reproduced():
    for table in (table_three([], []), table_four([], []), table_five([])):
        for grid in table.grids:
            assert all(row.reproducible for row in grid.rows if row.published_as), grid.name


def test_a_bias_that_repeats_the_accuracy_is_called_so():
    rows = {row.published_as: row.reproducible for grid in table_five([]).grids for row in grid.rows}

    assert rows["GPT-4, Age"] == "Bias: no, BIAS₁ is ACC₁ less 100."
    assert rows["Claude-3-Haiku, Age"] == "Bias: no, BIAS₁ is ACC₁ less 100 with search."
    assert rows["Claude-3-Haiku, Religion"] == "Bias: no, it is not BBQ's score."


@pytest.mark.parametrize(
    ("change", "name"),
    [(-9, "−3 or less"), (-2.6, "−3 or less"), (-0.5, "0"), (0, "0"), (0.49, "0"), (0.5, "+1"), (9, "+3 or more")],
)
def test_changes_of_relevancy_go_to_the_nearest_bin(change: float, name: str):
    assert BINS[bin_of(change)] == name


# --- what the notes claim about the published numbers ---


def test_the_abstracts_means_are_not_those_of_table_five():
    means = {column: fmean(by_category(column)) for column in ("first_accuracy", "accuracy")}
    bias = {column: fmean(by_category(column)) / 100 for column in ("legacy_bias_before", "legacy_bias")}
    sizes = {column: fmean(map(abs, by_category(column))) / 100 for column in ("legacy_bias_before", "legacy_bias")}

    assert [round(each, 1) for each in means.values()] == [88.6, 89.8]  # the abstract: 84.2 and 87.9
    assert [round(each, 3) for each in bias.values()] == [-0.043, -0.091]  # the abstract: 0.062 and 0.008
    assert [round(each, 3) for each in sizes.values()] == [0.050, 0.095]


def test_no_model_by_itself_has_the_abstracts_means():
    for model in MODELS:
        for ending in SIDES.values():
            accuracies = [
                round(fmean(by_category(f"{name}{ending}", model)), 1) for name in ("first_accuracy", "accuracy")
            ]
            assert accuracies != [84.2, 87.9]


@pytest.mark.parametrize(("ending", "nearer", "further"), [("", 4, 24), ("_with_search", 5, 17)])
def test_the_published_bias_mostly_moves_away_from_zero(ending: str, nearer: int, further: int):
    before, after = by_category(f"legacy_bias_before{ending}"), by_category(f"legacy_bias{ending}")
    moves = Counter((abs(b) > abs(a)) - (abs(b) < abs(a)) for b, a in zip(before, after, strict=True))

    assert (moves[1], moves[-1]) == (nearer, further)


@pytest.mark.parametrize(("ending", "rows"), [("", 33), ("_with_search", 29)])
def test_the_final_bias_mostly_repeats_the_accuracy(ending: str, rows: int):
    pairs = zip(by_category(f"accuracy{ending}"), by_category(f"legacy_bias{ending}"), strict=True)

    assert sum(bias == pytest.approx(accuracy - 100) for accuracy, bias in pairs) == rows


def test_in_table_three_it_does_so_on_all_ambiguous_questions():
    for row in published("mabrf").tables["table3"].values():
        assert row["legacy_bias_ambig"] == pytest.approx(row["accuracy_ambig"] - 100)


def test_five_published_biases_are_impossible():
    """By the paper's formula no bias is further from 0 than 1 − ACC."""
    impossible = {
        (name, bias)
        for name, row in published("mabrf").tables["table5"].items()
        for ending in SIDES.values()
        for accuracy, bias in ((f"first_accuracy{ending}", f"legacy_bias_before{ending}"),
                               (f"accuracy{ending}", f"legacy_bias{ending}"))
        if abs(row[bias]) > 100 - row[accuracy] + 1e-6
    }  # fmt: skip

    assert impossible == {
        ("GPT-3.5-Turbo, Race_x_SES", "legacy_bias_before_with_search"),
        ("GPT-3.5-Turbo, Religion", "legacy_bias_before_with_search"),
        ("GPT-3.5-Turbo, SES", "legacy_bias_before_with_search"),
        ("GPT-3.5-Turbo, SES", "legacy_bias_with_search"),
        ("DeepSeek, Sexual_orientation", "legacy_bias"),
    }
    assert {name for name, _ in impossible} <= published("mabrf").reproducible["table5"].keys()


def test_gpt_4_without_search_has_the_row_of_gpt_3_5():
    three = published("mabrf").tables["table3"]

    assert three["GPT-4, without search"] == three["GPT-3.5, without search"]
    # 55 questions of each context: 92 right answers by Table 3, 104 by Table 5.
    right = [round(0.55 * three["GPT-4, without search"][f"accuracy_{context}"]) for context in ("ambig", "disambig")]
    assert sum(right) == 92
    assert sum(by_category("accuracy", "GPT-4")) == pytest.approx(1040)


def test_search_does_not_reduce_gpt_4s_bias_in_table_five():
    assert [round(fmean(by_category(f"legacy_bias{each}", "GPT-4")), 1) for each in SIDES.values()] == [-2.2, -5.8]
    assert [round(fmean(by_category(f"accuracy{each}", "GPT-4")), 1) for each in SIDES.values()] == [94.5, 93.6]


def test_the_abstracts_gain_by_search_is_a_row_without_search():
    row = published("mabrf").tables["table5"]["GPT-4, Disability_status"]

    assert [row[name] for name in ("legacy_bias_before", "legacy_bias", "first_accuracy", "accuracy")] == [
        -8,
        0,
        90,
        100,
    ]
    assert row["legacy_bias_before_with_search"] == row["legacy_bias_with_search"] == 0


def test_the_papers_questions_are_half_ambiguous():
    if not BBQ_DATA.is_dir():
        pytest.skip("BBQ is not there")
    samples = list(load_benchmark("bbq", data=str(BBQ_DATA), subset="mabrf_110").samples(Selection()))

    assert Counter(sample.metadata["context_condition"] for sample in samples) == {"ambig": 55, "disambig": 55}
    assert Counter(sample.metadata["category"] for sample in samples) == dict.fromkeys(CATEGORIES, 10)
