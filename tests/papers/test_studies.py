"""Warnings on a paper's page."""

from evenhand.core.types import Status
from evenhand.papers.reading import warnings_of
from evenhand.studies.results import ArmKey, ArmResult, StudyResult


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
