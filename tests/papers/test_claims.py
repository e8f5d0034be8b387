"""The rules by which a paper's claims hold, fail or cannot be determined."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from evenhand.core.types import Record
from evenhand.papers.base import PaperClaim, PaperPage, all_of, counted, kept, moves, unless
from evenhand.papers.page import claims_of, main_variants, paper_page, printed, write_csv_files
from evenhand.papers.reading import PairedDifference, first_of
from evenhand.show.terminal import print_table
from evenhand.studies.results import Effect


def changed(difference: float, *, error: float = 1.0, p: float = 0.001) -> PairedDifference:
    effect = Effect(
        before="1.1", after="1.2", metric="toxicity", group="all", difference=difference, low=difference - 2 * error,
        high=difference + 2 * error, n=100, p_value=p, p_adjusted=None, correction="none", test="", detectable=None,
        direction="undecided", first=20.0, last=20.0 + difference, clusters=50, few_clusters=False,
    )  # fmt: skip
    return PairedDifference("Toxicity", effect)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([changed(-10)], "holds"),
        ([changed(10)], "fails"),
        ([changed(-10, p=0.2)], "cannot be determined"),
        ([changed(-10, error=6)], "cannot be determined"),
        ([changed(-10), changed(-10, p=0.04)], "holds"),
        ([changed(-10, p=0.04), changed(-10, p=0.04)], "cannot be determined"),  # after Holm's correction
        ([changed(-10), changed(10)], "fails"),
        ([changed(-10), None], "cannot be determined"),
        ([], "cannot be determined"),
    ],
)
def test_all_differences_must_go_the_way_that_is_claimed(found: list[PairedDifference | None], verdict: str):
    assert moves(found, "lower")[0] == verdict


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (changed(0.0, error=0.01, p=1).beside(-0.2), "published size excluded"),
        (changed(0.0, error=0.2, p=1).beside(-0.2), "cannot be determined"),
        (changed(-10).beside(-0.2), "holds"),
        (changed(-10, p=1).beside(-0.2), "cannot be determined"),
    ],
    ids=["0.00 [−0.02, 0.02] against 0.20", "the interval has it", "decided anyway", "more than was published"],
)
def test_a_published_size_outside_our_interval_is_excluded(found: PairedDifference, verdict: str):
    answer, why = moves([found], "lower")

    assert answer == verdict
    assert f"published −0.2, {'' if found.effect.excludes_published else 'not '}excluded" in why
    assert unless("It refuses more", (answer, why))[0] == "cannot be determined"


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (changed(0, error=0.5, p=1), "holds"),
        (changed(-1.5, error=0.2), "holds"),
        (changed(-10), "fails"),
        (changed(0, error=3, p=1), "cannot be determined"),
        (changed(10), "holds"),
    ],
)
def test_nothing_is_lost_if_the_interval_excludes_a_loss(found: PairedDifference, verdict: str):
    assert kept([found])[0] == verdict


def test_a_reason_says_what_changed_by_how_much_and_how_surely():
    assert moves([changed(-10)], "lower")[1] == ("Toxicity 20.0 → 10.0 (−10.0 [−12.0, −8.0], p = 0.001, n = 100)")


def test_a_fault_takes_away_a_good_result_only():
    assert unless("It refuses more", ("holds", "Less toxic")) == ("cannot be determined", "It refuses more. Less toxic")
    assert unless("It refuses more", ("fails", "More toxic")) == ("fails", "More toxic")
    assert unless("", ("holds", "Less toxic")) == ("holds", "Less toxic")


def test_a_claim_of_several_parts_fails_with_one_of_them():
    assert all_of(("holds", "a"), ("fails", "b")) == ("fails", "a. b")
    assert all_of(("holds", "a"), ("holds", "a")) == ("holds", "a")
    assert all_of(("holds", "a"), ("cannot be determined", "b"))[0] == "cannot be determined"


def test_first_answers_stand_where_the_final_ones_stood():
    grade = {"correct": True, "first_correct": False, "kind": "unknown", "first_kind": "target", "relevancy": 9}
    record = Record("a", "c", "graded", {}, grade)

    first = first_of(record)

    assert first is not None and first.grade is not None
    assert (first.grade["correct"], first.grade["kind"]) == (False, "target")
    assert "relevancy" not in first.grade  # the rating of the first reasoning is not known
    assert first_of(replace(record, grade=None)) is None


CLAIMS = [
    PaperClaim("Less <b>toxic</b>", "Table 2", "m/one", "holds", "10 → 5", "paper"),
    PaperClaim("Less <b>toxic</b>", "Table 2", "m/one", "fails", "10 → 15", "evenhand"),
    PaperClaim("Search helps", "RQ4", "m/one", "cannot be determined", "too few"),
]


def test_a_claim_without_a_preset_counts_with_each():
    variants = main_variants(CLAIMS)

    assert list(variants) == [("m/one", "paper"), ("m/one", "evenhand")]
    assert [counted(claims_of(CLAIMS, each)) for each in variants] == [
        {"holds": 1, "fails": 0, "published size excluded": 0, "cannot be determined": 1},
        {"holds": 0, "fails": 1, "published size excluded": 0, "cannot be determined": 1},
    ]


def test_the_claims_are_the_first_answer_of_the_page_and_are_in_a_file_and_in_the_terminal(tmp_path: Path):
    page = PaperPage("T", "S", "L", [], [], [], claims=CLAIMS)

    html = paper_page(page).html()
    assert html.index("Does what the paper says hold here?") < html.index(">L<")
    assert "2 claims: 1 holds, 0 fail, 1 cannot be determined" in html
    assert "<b>toxic</b>" not in html
    assert html.count('class="chip') == 3
    [file] = write_csv_files(page, tmp_path)
    with file.open(encoding="utf-8", newline="") as lines:
        assert [(row["verdict"], row["preset"]) for row in csv.DictReader(lines)] == [
            ("holds", "paper"), ("fails", "evenhand"), ("cannot be determined", ""),
        ]  # fmt: skip
    console = Console(width=100, record=True, force_terminal=False)
    for table in printed(page):
        print_table(table, console)
    text = console.export_text()
    assert "preset paper" in text
    assert text.count("cannot be determined") == 2
