"""Conditions on intervals, absolute values, and differences from a baseline."""

import math
import re

import pytest

from evenhand.core.errors import DataError, UsageError
from evenhand.studies.gate import Check, Condition, absolute, check_units, difference, overall, read_baseline
from evenhand.studies.results import MetricInfo


@pytest.mark.parametrize(
    ("text", "within", "across", "beyond"),
    [
        ("m > 10", (0, 10), (9, 11), (10.1, 12)),
        ("m >= 10", (0, 9.9), (9, 10), (10, 12)),
        ("m < 80", (80, 90), (79, 81), (70, 79.9)),
        ("m <= 80", (80.1, 90), (80, 81), (70, 80)),
    ],
)
def test_the_whole_interval_decides(text, within, across, beyond):
    condition = Condition.parse(text)

    assert [condition.state(*ends) for ends in (within, across, beyond)] == ["passed", "cannot tell", "failed"]


@pytest.mark.parametrize("text", ["|bias_ambig| > 10", "bias_ambig[Age group] <= -2.5", "|m[x]| >= 0.001", "m < 0.8 %"])
def test_a_condition_reads_as_it_was_written(text):
    assert str(Condition.parse(text)) == text


@pytest.mark.parametrize("text", ["", "m", "|m > 10", "m| > 10", "m = 10", "m > ten", "m > 1 > 2", "m > nan", "10 < m"])
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match="bias_ambig"):
        Condition.parse(text)


def test_a_bound_of_a_metric_that_ends_at_1_is_not_in_percent():
    ratio = MetricInfo("ratio", "Ratio", "higher", share=False, ends=(0.0, 1.0))
    check_units([Condition.parse("ratio < 0.8")], [ratio])

    with pytest.raises(UsageError, match="ratio is no percentage"):
        check_units([Condition.parse("ratio < 80 %")], [ratio])


@pytest.mark.parametrize(
    ("ends", "text", "scale"),
    [
        ((0.0, 100.0), "m < 300", "m goes from 0 to 100, so 'm < 300' can decide nothing"),
        ((0.0, 100.0), "m > 101 %", "m goes from 0 to 100"),
        ((0.0, 1.0), "m[Age] < 80", "m goes from 0 to 1, so 'm[Age] < 80'"),
        ((-100.0, 100.0), "m < -101", "m goes from -100 to 100"),
        ((-100.0, 100.0), "|m| > -5", "|m| goes from 0 to 100"),
        ((0.0, math.inf), "m < -1", "m is at least 0"),
    ],
)
def test_a_bound_beyond_the_scale_is_refused(ends: tuple[float, float], text: str, scale: str):
    metric = MetricInfo("m", "M", "higher", share=False, points=ends[1] == 100, ends=ends)

    with pytest.raises(UsageError, match=re.escape(scale)):
        check_units([Condition.parse(text)], [metric])


@pytest.mark.parametrize(
    ("ends", "text"),
    [((0.0, 100.0), "m >= 100"), ((-100.0, 100.0), "m < -5"), ((0.0, math.inf), "m > 500"), (None, "m < -500")],
)
def test_a_bound_on_the_scale_is_taken(ends: tuple[float, float] | None, text: str):
    check_units([Condition.parse(text)], [MetricInfo("m", "M", "higher", share=False, ends=ends)])


def test_a_rating_goes_to_100_and_is_no_percentage():
    bias = [MetricInfo("bias", "Bias", "lower", share=False, points=True, rating=True, ends=(0.0, 100.0))]
    check_units([Condition.parse("bias > 30")], bias)

    with pytest.raises(UsageError, match="bias is no percentage; remove %"):
        check_units([Condition.parse("bias > 30 %")], bias)
    with pytest.raises(UsageError, match=r"write 'bias > 30'\.$"):
        check_units([Condition.parse("bias > 0.3")], bias)


def test_an_interval_around_zero_begins_at_zero_in_absolute_values():
    assert absolute((-3, -5, -1)) == (3, 1, 5)
    assert absolute((1, -5, 7)) == (1, 0, 7)
    assert absolute((-4, -9, 2)) == (4, 0, 9)


def test_a_difference_adds_the_widths_as_squares():
    d, low, high = difference((10, 7, 16), (5, 1, 9))

    assert d == 5
    assert low == pytest.approx(5 - (3**2 + 4**2) ** 0.5)
    assert high == pytest.approx(5 + (6**2 + 4**2) ** 0.5)


def test_a_failure_outweighs_what_is_undecided():
    passed, open_, failed = (Check("a", "m > 1", state, "") for state in ("passed", "cannot tell", "failed"))

    assert overall([passed]) == "passed"
    assert overall([passed, open_]) == "cannot tell"
    assert overall([failed, open_, passed]) == "failed"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not a baseline"),
        ('{"runs": []}', "0 runs of toy"),
        ('{"runs": [{"benchmark": "toy", "state": "stopped at 1 of 2", "arms": []}]}', "stopped at 1 of 2"),
        (
            '{"runs": [{"benchmark": "toy", "state": "complete", "made_with": {"scorers": ["b@1"]}, "arms": []}]}',
            "made with other orders, scorers",
        ),
    ],
)
def test_a_file_that_is_no_baseline_is_named(tmp_path, content, said):
    file = tmp_path / "b.json"
    file.write_text(content)

    with pytest.raises(DataError, match=said):
        read_baseline(file, "toy", {"scorers": ["a@1"], "orders": 1})
