"""The section on what more calls buy: there only where a method ran with several values of a number."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import sample_study

from evenhand.show.report import render_report
from evenhand.studies.results import StudyResult


def study(*options: Mapping[str, Any]) -> StudyResult:
    """The arms of the sample study as one method with these options."""
    whole = sample_study.study()
    arms = [
        replace(arm, key=replace(arm.key, method="weigh", options=given))
        for arm, given in zip(whole.arms, options, strict=True)
    ]
    return replace(whole, arms=arms)


def test_several_values_of_a_number_make_a_curve():
    page = render_report(study({"calls": 3}, {"calls": 6}, {}), [])

    assert '<section id="calls"' in page
    assert 'href="#calls"' in page
    assert "against requests per sample" in page


@pytest.mark.parametrize(
    "options",
    [
        ({}, {}, {}),
        ({"calls": 3}, {"told": 0.5}, {}),
        ({"look": True}, {"look": False}, {}),
        ({"calls": 3, "weights": "a"}, {"calls": 6, "weights": "b"}, {}),
    ],
)
def test_arms_that_differ_otherwise_make_none(options: tuple[Mapping[str, Any], ...]):
    assert '<section id="calls"' not in render_report(study(*options), [])
