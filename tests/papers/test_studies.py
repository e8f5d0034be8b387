"""Warnings on a paper's page, and why better scores of an arm may mean nothing."""

import pytest

from evenhand.benchmarks.base import Metric, mean_of
from evenhand.core.types import Record, Status
from evenhand.papers.reading import LENGTH, UNSAID, PairedArms, fault_of, warnings_of
from evenhand.studies.results import ArmKey, ArmResult, StudyResult
from evenhand.studies.tally import PairTally


def arm(label: str, statuses: dict[Status, int], pending: int = 0) -> ArmResult:
    return ArmResult(label, label, ArmKey(label, {}, {"base": "openai/x"}, 0), [], statuses, pending, [], {}, 1.0)


def test_samples_without_a_grade_and_samples_not_run_are_one_sentence_each():
    arms = [
        arm("judge", {"graded": 299, "failed": 1}),
        arm("panel", {"graded": 191, "refused": 100, "failed": 9}),
        arm("fair_panel", {"graded": 195, "unscored": 5}, pending=100),
    ]
    study = StudyResult("", "malibu", "", (), [], [], arms, [], [], [], {"run": {"samples": 300}})

    warnings = warnings_of({"malibu": study}, {})

    assert [each for each in warnings if "grade:" in each or "Not run:" in each] == [
        "malibu: Without a grade: panel 9 of 300, fair_panel 5 of 300. The graded samples may not represent all; "
        "Failures has the reasons.",
        "malibu: Not run: fair_panel 100 of 300. --resume completes them.",
    ]


def record(number: int, words: int) -> Record:
    """A sample; without words, one that was refused."""
    status: Status = "graded" if words else "refused"
    return Record(f"{number}", f"{number}", status, {"group": "all people"}, {"length": words} if words else None)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([10] * 4, ""),
        ([2] * 4, "its answers have 20 % of {}'s words (comparable: 60 to 160 %)"),
        ([10, 10, 0, 0], "50 % of its answers are empty, refused or cut ({}: 0 %)"),
    ],
)
def test_a_silent_or_short_arm_has_the_same_fault_in_every_paper(words: list[int], fault: str):
    metrics = [UNSAID, Metric(LENGTH, "Words", mean_of(LENGTH))]
    pair = PairTally(metrics, "group")
    for number, each in enumerate(words):
        pair.add(record(number, 10), record(number, each))
    pair.finish()
    named = {each.name: each for each in metrics}
    silent = 100.0 * words.count(0) / len(words)

    found = PairedArms({"a": named, "b": named}, {("a", "b"): pair}).fault("a", "b")

    assert found.lower() == fault.format("the other").lower()
    assert fault_of((0.0, silent), (10.0, words[0]), "Default") == fault.format("Default")
