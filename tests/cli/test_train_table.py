"""What is printed after a training: one sentence on the change, one on what got worse, and a table."""

from typing import Any

import pytest

from evenhand.cli.train import _print_evaluation  # pyright: ignore[reportPrivateUsage]


def share(right: float, half: float, n: int) -> dict[str, Any]:
    return {"right": right, "low": right - half, "high": min(1.0, right + half), "n": n, "grades": {}}


def test_the_table_has_n_intervals_a_verdict_and_what_got_worse(capsys: pytest.CaptureFixture[str]):
    before = {"all": share(0.4, 0.05, 400), "form letter": share(0.5, 0.3, 10), "language ko": share(0.7, 0.05, 90)}
    after = {"all": share(0.9, 0.03, 400), "form letter": share(0.6, 0.3, 10), "language ko": share(0.3, 0.05, 90)}

    _print_evaluation({"before": before, "sft": after})

    said = capsys.readouterr().out
    assert said.startswith("Right answers to held-out questions: 40 % before, 90 % after: better.\n")
    assert "Worse than before: language ko.\n" in said
    rows = {line.split("  ")[0].strip(): line for line in said.splitlines()}
    assert rows["form letter"].split()[-2:] == ["cannot", "tell"]
    assert "40.0 [35.0, 45.0]" in rows["all"] and "400" in rows["all"] and rows["all"].split()[-1] == "better"


def test_questions_about_one_situation_have_no_interval_and_no_verdict(capsys: pytest.CaptureFixture[str]):
    before, after = ({"right": right, "low": None, "high": None, "n": 2, "grades": {}} for right in (0.5, 1.0))

    _print_evaluation({"before": {"all": before}, "sft": {"all": after}})

    said = capsys.readouterr().out
    assert said.startswith("Right answers to held-out questions: 50 % before, 100 % after: cannot tell.\n")
    assert "50.0 " in said
