"""What the published tables say about themselves is computed from the transcribed numbers.

The numbers here are facts that were found by reading the papers beside their authors' code.
"""

from statistics import fmean, stdev

import pytest

from evenhand.papers.base import PAPERS, published
from support.paper_arithmetic import mabrf, malibu, rldf, stardtox
from support.paper_arithmetic.rldf import below, chi_square, differences


def said(paper: str, place: str) -> str:
    return " ".join(text for where, text in published(paper).itself if where.startswith(place))


FACTS = {
    ("mabrf", "Table 3, GPT-4"): [
        "4 of 4 numbers are those of GPT-3.5's row", "92 right answers of 110; Table 5 has 104", "0.964 and −0.036",
        "0.927 and −0.057, 104 right", "is 0 points", "+25",
    ],
    ("mabrf", "Table 3, bias"): ["8 of 8"],
    ("mabrf", "Table 5, bias"): ["33 of 44", "in 29 with", "5 cells"],
    ("mabrf", "Table 5 and the notebooks"): [
        "GPT-4, SES: BIAS₁ printed 0.1, logged −0.1", "DeepSeek, Sexual orientation: BIAS₁ printed −0.2, logged 0",
        "GPT-3.5-Turbo, Race x gender: BIAS₀ with search printed −0.1, logged −0.06",
        "Claude-3-Haiku, Sexual orientation: ACC₁ with search printed 0.8, logged 1",
        "DeepSeek, Nationality: ACC₁ with search printed 0.9, logged 1",
    ],
    ("mabrf", "Abstract"): ["−0.043 to −0.091", "88.6 to 89.8"],
    ("mabrf", "Table 4"): ["exact match −22.0, F1 −16.26", "llama-3.1-8b-instant"],
    ("stardtox", "Abstract"): ["58 % below Default", "40 to 46 %", "high: 37 % below Default"],
    ("stardtox", "Section V-A, “lowest"): ["10.29", "9.80, 9.29, 9.59"],
    ("stardtox", "Section V-A, “above"): ["88.39 to 89.64", "4 of 4"],
    ("stardtox", "Section V-A, the performance"): ["90.70 with it, 90.76 without", "88.39 with it, 89.44 without"],
    ("stardtox", "Section III"): ["73 % (moderate) and 57 % (high)"],
    ("stardtox", "Table III"): ["32.70 → 17.61"],
    ("rldf", "Table 3, RLDF and FairThinking"): ["−0.90", "0.036", "−0.97 … −0.83", "19 degrees"],
    ("rldf", "Table 3, RLDF and SFT"): ["−3.77", "0.20"],
    ("rldf", "Tables 3 and 12"): ["RLAIF −5.39", "−0.90 in Table 3 and −2.23 in Table 12"],
    ("rldf", "Table 1"): ["18.7 to 20.1"],
    ("rldf", "Released"): ["142 of 317", "72 of 346", "439 of 439"],
    ("malibu", "Figure 4, DeepSeek-V3, white"): ["Printed 0.20", "−0.20 to −0.19"],
    ("malibu", "Appendix"): ["4,699.5 and 4,006.5", "5,117 and 4,685.5", "4,719 and 4,590.5"],
}  # fmt: skip


COMPUTED = {"mabrf": mabrf.itself, "malibu": malibu.itself, "rldf": rldf.itself, "stardtox": stardtox.itself}


@pytest.mark.parametrize("paper", COMPUTED)
def test_every_sentence_is_the_arithmetic_of_the_published_numbers(paper: str):
    assert published(paper).itself == COMPUTED[paper]()


@pytest.mark.parametrize(("paper", "place"), FACTS)
def test_the_page_says_it_with_its_arithmetic(paper: str, place: str):
    for fact in FACTS[paper, place]:
        assert fact in said(paper, place)


def test_the_cells_of_rldf_are_too_much_alike_for_their_own_spread():
    found = differences("FairThinking")

    assert (round(fmean(found), 2), round(stdev(found), 3), len(found)) == (-0.90, 0.036, 20)
    assert chi_square(found) < 0.4
    assert below(0.31, 19) == pytest.approx(1.5e-14, rel=0.2)


def test_a_small_tail_is_that_of_the_distribution():
    # Quantiles of χ² from tables: 10.117 is the 5 % point with 19 degrees of freedom, 3.841 the 95 % point with 1.
    assert below(10.117, 19) == pytest.approx(0.05, abs=1e-4)
    assert below(3.841, 1) == pytest.approx(0.95, abs=1e-4)


def test_every_statement_is_about_a_place_and_has_a_number():
    for name in PAPERS.names():
        for place, text in published(name).itself:
            assert place and any(letter.isdigit() for letter in text), name


def test_originals_are_cells_that_the_paper_prints_otherwise():
    five = published("mabrf").tables["table5"]

    for name, row in published("mabrf").tables["originals"].items():
        for column, value in row.items():
            assert five[name][column] != value, (name, column)
