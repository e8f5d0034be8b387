"""The published numbers are those that the papers print."""

import pytest

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


def test_the_notes_name_what_cannot_be_compared():
    notes = " ".join(text for _, text in published("stardtox").notes)

    for word in ("Perspective", "GPT-2", "GPT-3.5", "half of them ambiguous", "two turns", "32.70 to 17.61"):
        assert word in notes


def test_every_paper_has_a_title_and_folders():
    for name in ("stardtox",):
        paper = PAPERS.get(name)
        assert paper.name == name
        assert paper.title
        assert paper.folders
