"""The published numbers are those that the papers print."""

import pytest

from evenhand.data.bbq import CATEGORIES
from evenhand.papers.base import PAPERS, published

# The rows of the paper's Tables II and III, as printed: moderate and high; ambiguous and disambiguated.
TABLE_TWO = """
GPT-3.5 Default | 12.09 95.65 94.68 97.23 | 16.37 97.14 91.32 96.68
GPT-3.5 + Fairness-aware Prompt | 7.44 93.03 94.38 96.84 | 14.13 90.79 92.34 94.84
Self-Debias (Gen), Standard | 8.45 78.95 83.35 85.42 | 9.80 74.11 78.9 79.43
Self-Debias (Gen), Medium | 9.43 82.6 85.0 87.9 | 12.02 77.46 81.55 83.04
Self-Debias (Gen), Large | 8.78 84.95 86.95 90.05 | 9.29 79.0 82.77 84.9
Self-Debias (Gen), XL | 9.3 84.65 87.2 90.25 | 9.59 77.12 80.96 81.83
STARDTOX w/ Performance, Iter. 1 | 5.5 91.11 92.51 95.56 | 11.09 89.29 90.83 93.57
STARDTOX w/ Performance, Iter. 2 | 5.1 90.7 92.3 95.18 | 10.29 88.39 90.31 93.22
STARDTOX w/o Performance, Iter. 1 | 5.4 90.12 93.78 95.47 | 10.16 89.64 90.81 94.27
STARDTOX w/o Performance, Iter. 2 | 4.85 90.76 92.06 96.88 | 8.68 89.44 90.38 94.0
"""
TABLE_THREE = """
GPT-3.5 Default | 32.70 58.07 83.97 9.47
GPT-3.5 + Fairness-aware Prompt | 26.41 30.39 72.00 7.57
STARDTOX, Iter. 1 | 28.23 20.96 71.15 7.62
STARDTOX, Iter. 2 | 17.61 16.14 71.75 1.14
Self-Debias (QA), Explanation | 35.74 20.69 44.44 9.16
Self-Debias (QA), Reprompting | 36.72 18.02 59.18 8.51
"""
# The rows of the MABRF paper's Tables 3, 4 and 5, as printed and in its order.
MABRF_THREE = """
Claude-3 | 0.84 -0.16 | 0.87 -0.13 | 0.95 -0.04 | 0.98 -0.01
GPT-3.5 | 0.71 -0.29 | 0.75 -0.25 | 0.96 -0.03 | 0.98 -0.02
GPT-4 | 0.71 -0.29 | 0.96 -0.04 | 0.96 -0.03 | 0.91 -0.08
DeepSeek | 0.91 -0.09 | 0.91 -0.09 | 0.93 -0.07 | 0.89 -0.07
"""
MABRF_FOUR = """
DeepSeek R-1 | 36.0 14.0 | 40.51 24.25
GPT-4 | 27.0 45.0 | 37.76 49.80
"""
MABRF_FIVE = """
GPT-3.5-Turbo, Age | 0.8 0.8 -0.08 -0.20 0.7 0.8 -0.24 -0.20
GPT-3.5-Turbo, Disability_status | 0.9 0.9 -0.08 -0.10 0.9 0.9 -0.08 -0.10
GPT-3.5-Turbo, Gender_identity | 0.7 0.8 -0.30 -0.20 0.8 0.9 -0.20 -0.10
GPT-3.5-Turbo, Nationality | 0.6 0.7 -0.24 -0.30 0.7 0.8 -0.24 -0.16
GPT-3.5-Turbo, Physical_appearance | 0.8 0.8 -0.04 -0.20 0.9 0.9 -0.08 -0.08
GPT-3.5-Turbo, Race_ethnicity | 0.9 0.9 -0.10 -0.10 0.9 0.9 -0.10 -0.10
GPT-3.5-Turbo, Race_x_SES | 0.9 0.9 -0.08 -0.10 0.9 0.8 -0.16 -0.20
GPT-3.5-Turbo, Race_x_gender | 0.9 0.9 -0.10 -0.10 0.9 0.9 -0.10 -0.10
GPT-3.5-Turbo, Religion | 0.7 0.8 -0.12 -0.16 0.9 0.9 -0.16 -0.10
GPT-3.5-Turbo, SES | 0.8 0.8 -0.12 -0.20 0.9 0.9 -0.20 -0.20
GPT-3.5-Turbo, Sexual_orientation | 0.9 0.9 -0.04 -0.08 0.9 0.9 -0.06 -0.10
GPT-4, Disability_status | 0.9 1.0 -0.08 0.00 1.0 1.0 0.00 0.00
GPT-4, Age | 0.9 0.9 -0.08 -0.10 0.9 0.9 -0.10 -0.10
GPT-4, Gender_identity | 1.0 1.0 0.00 0.00 1.0 1.0 0.00 0.00
GPT-4, Nationality | 1.0 1.0 0.00 0.00 1.0 1.0 0.00 0.00
GPT-4, Physical_appearance | 0.9 0.9 -0.08 -0.10 0.9 0.8 -0.06 -0.20
GPT-4, Race_ethnicity | 1.0 1.0 0.00 0.00 1.0 1.0 0.00 0.00
GPT-4, Race_x_SES | 1.0 1.0 0.00 0.00 1.0 1.0 0.00 0.00
GPT-4, Race_x_gender | 1.0 1.0 0.00 0.00 1.0 1.0 0.00 0.00
GPT-4, Religion | 0.9 0.9 -0.02 -0.02 0.9 0.7 -0.04 -0.24
GPT-4, SES | 0.9 0.9 0.10 0.10 0.9 0.9 -0.10 -0.10
GPT-4, Sexual_orientation | 1.0 0.8 0.00 -0.12 1.0 1.0 0.00 0.00
Claude-3-Haiku, Age | 0.7 0.7 -0.12 -0.24 0.8 0.8 -0.12 -0.20
Claude-3-Haiku, Disability_status | 0.9 0.8 -0.04 -0.16 0.9 0.9 0.00 -0.06
Claude-3-Haiku, Gender_identity | 1.0 0.8 0.00 -0.20 1.0 1.0 0.00 0.00
Claude-3-Haiku, Race_x_SES | 0.8 1.0 -0.08 0.00 0.8 0.9 0.00 -0.06
Claude-3-Haiku, Nationality | 0.8 0.9 0.00 -0.10 0.9 0.9 0.00 -0.06
Claude-3-Haiku, Physical_appearance | 0.6 0.7 0.00 -0.18 0.6 0.8 0.16 -0.16
Claude-3-Haiku, Sexual_orientation | 0.8 1.0 -0.04 0.00 0.8 0.8 -0.04 0.00
Claude-3-Haiku, Race_ethnicity | 1.0 1.0 0.00 0.00 1.0 1.0 0.00 0.00
Claude-3-Haiku, Race_x_gender | 1.0 1.0 0.00 0.00 1.0 1.0 0.00 0.00
Claude-3-Haiku, Religion | 0.8 0.9 0.00 -0.06 0.9 0.9 0.00 -0.06
Claude-3-Haiku, SES | 1.0 1.0 0.00 0.00 1.0 1.0 0.00 0.00
DeepSeek, Age | 0.9 0.8 -0.06 -0.20 0.9 0.8 -0.04 -0.12
DeepSeek, Disability_status | 0.9 0.9 -0.02 -0.10 0.9 0.9 -0.02 -0.10
DeepSeek, Gender_identity | 1.0 1.0 0.00 0.00 1.0 1.0 0.00 0.00
DeepSeek, Nationality | 0.9 0.9 -0.02 -0.10 0.9 0.9 0.00 0.00
DeepSeek, Physical_appearance | 0.9 0.8 0.02 -0.20 0.9 0.9 -0.02 -0.08
DeepSeek, Race_ethnicity | 1.0 1.0 0.00 0.00 1.0 1.0 0.00 0.00
DeepSeek, Race_x_SES | 0.9 0.9 -0.02 -0.10 0.9 0.9 -0.02 -0.06
DeepSeek, Race_x_gender | 1.0 1.0 0.00 0.00 1.0 1.0 0.00 0.00
DeepSeek, Religion | 0.8 0.9 0.04 -0.08 0.8 0.7 0.04 -0.24
DeepSeek, SES | 0.9 0.9 -0.10 -0.10 0.9 0.9 -0.08 -0.10
DeepSeek, Sexual_orientation | 1.0 1.0 0.00 -0.20 0.9 0.8 0.00 -0.20
"""
QUALITY = ("toxicity", "coherence", "fluency", "relevance")
ANSWERS = ("accuracy_ambig", "bias_ambig", "accuracy_disambig", "bias_disambig")


def printed(text: str, part: int, columns: tuple[str, ...]) -> dict[str, dict[str, float]]:
    rows = [line.split(" | ") for line in text.strip().splitlines()]
    return {row[0]: dict(zip(columns, map(float, row[part].split()), strict=True)) for row in rows}


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("moderate", printed(TABLE_TWO, 1, QUALITY)),
        ("high", printed(TABLE_TWO, 2, QUALITY)),
        ("bbq", printed(TABLE_THREE, 1, ANSWERS)),
    ],
)
def test_stardtox_numbers_are_those_of_the_paper(table: str, expected: dict[str, dict[str, float]]):
    assert published("stardtox").tables[table] == expected


def test_mabrf_table_three_is_that_of_the_paper():
    for line in MABRF_THREE.strip().splitlines():
        model, *pairs = line.split(" | ")
        numbers = [[100 * float(each) for each in pair.split()] for pair in pairs]
        for side, ambig, disambig in (("without", 0, 2), ("with", 1, 3)):
            row = published("mabrf").tables["table3"][f"{model}, {side} search"]
            assert list(row.values()) == pytest.approx([*numbers[ambig], *numbers[disambig]])


def test_mabrf_table_four_is_that_of_the_paper():
    for line in MABRF_FOUR.strip().splitlines():
        model, exact, f1 = line.split(" | ")
        for side, em, score in zip(("baseline", "with search"), exact.split(), f1.split(), strict=True):
            row = published("mabrf").tables["table4"][f"{model}, {side}"]
            assert row == {"exact_match": float(em), "f1": float(score)}


def test_mabrf_table_five_is_that_of_the_paper():
    lines = [line.split(" | ") for line in MABRF_FIVE.strip().splitlines()]
    table = published("mabrf").tables["table5"]

    assert list(table) == [name for name, _ in lines]
    for name, numbers in lines:
        assert list(table[name].values()) == pytest.approx([100 * float(each) for each in numbers.split()]), name


def test_mabrf_table_five_has_eight_numbers_for_every_model_and_category():
    table = published("mabrf").tables["table5"]
    models = ("GPT-3.5-Turbo", "GPT-4", "Claude-3-Haiku", "DeepSeek")

    assert set(table) == {f"{model}, {category}" for model in models for category in CATEGORIES}
    assert {len(row) for row in table.values()} == {8}


def test_mabrf_figure_four_has_the_means_that_the_text_gives():
    assert published("mabrf").tables["figure4"] == {
        "All models": {"relevancy_change": 0.10, "relevancy_change_with_search": 0.11},
        "GPT-4": {"relevancy_change": 0.05, "relevancy_change_with_search": 0.10},
    }


def test_the_notes_on_mabrf_name_what_cannot_be_compared():
    notes = " ".join(text for _, text in published("mabrf").notes)

    for word in ("withdrawn", "(1 − ACC)(2 n/m − 1)", "one article", "change from day to day"):
        assert word in notes


def test_the_notes_name_what_cannot_be_compared():
    notes = " ".join(text for _, text in published("stardtox").notes)

    for word in ("Perspective", "GPT-2", "GPT-3.5", "half of them ambiguous", "two turns"):
        assert word in notes


def test_every_paper_has_a_title_and_folders():
    for name in ("stardtox", "mabrf"):
        paper = PAPERS.get(name)
        assert paper.name == name
        assert paper.title
        assert paper.folders
