"""Charts keep what they draw inside the box, and give undefined values no place on a scale."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
import sample_study

from evenhand.core.format import finite
from evenhand.show.chart import (
    AxisSegment,
    Lane,
    Point,
    Segment,
    axis_for,
    bar,
    reach,
    scatter,
    stacked,
    stacked_on,
    strip,
    tick_labels,
)
from evenhand.studies.results import Estimate


def percentages(svg: str) -> list[float]:
    return [float(x) for x in re.findall(r'\b(?:x|x1|x2|cx)="(-?[\d.]+)%"', svg)]


@pytest.mark.parametrize(
    "values", [(-3.2, 18.0), (0.001, 0.0042), (58.0, 61.0), (0.0, 0.0), (1e300, 1e300), (7.0, 7.0)]
)
def test_an_axis_covers_its_values_with_few_round_ticks(values: tuple[float, float]) -> None:
    axis = axis_for(values)
    assert axis.low <= min(values) <= max(values) <= axis.high
    assert 2 <= len(axis.ticks) <= 8
    assert all(0 <= axis.fraction(v) <= 1 for v in values)


def test_an_axis_of_nothing_is_still_an_axis() -> None:
    axis = axis_for([None, float("nan"), float("inf")])
    assert (axis.low, axis.high) == (-1, 1)


def test_zero_can_be_required() -> None:
    assert 0.0 in axis_for([12.0, 18.0], include_zero=True).ticks


def test_tick_labels_carry_as_many_decimals_as_the_step() -> None:
    assert ">2.5<" in tick_labels(axis_for([0, 10], steps=4))
    assert ">10<" in tick_labels(axis_for([0, 50]))


def test_every_mark_of_a_strip_lies_inside_and_is_well_formed() -> None:
    lanes = [Lane(0, -20.0, -20.0, 40.0, 9, "a"), Lane(1, 40.0, None, None, 9, "b"), Lane(9, 3.0, 1.0, 5.0, 9, "c")]
    svg = strip(axis_for([-20, 40]), lanes, "label")
    ET.fromstring(svg)
    assert all(0 <= x <= 100 for x in percentages(svg))
    assert svg.count("<use") == 3
    assert svg.count('class="whisker"') == 2


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_an_undefined_value_is_a_dash_and_not_a_mark(value: float | None) -> None:
    svg = strip(axis_for([0, 1]), [Lane(0, value, 0.0, 1.0, 12, "default: –, n = 12")], "label")
    assert "– undefined" in svg
    assert "default: –, n = 12" in svg
    assert "<use" not in svg
    assert "whisker" not in svg


def test_every_point_of_the_scatter_lies_inside() -> None:
    points: list[Point] = []
    for i, arm in enumerate(sample_study.study().arms):
        x, y = arm.estimate("bias_ambig"), arm.estimate("accuracy_disambig")
        assert x is not None
        assert y is not None
        points.append(Point(i, x, y, arm.label))
    x_axis = axis_for([v for p in points for v in (p.x.low, p.x.high)], include_zero=True)
    y_axis = axis_for([v for p in points for v in (p.y.low, p.y.high)])
    svg = scatter(x_axis, y_axis, points, "no measured bias", "label")
    ET.fromstring(svg)
    heights = [float(y) for y in re.findall(r'\b(?:y|y1|y2|cy)="(-?[\d.]+)"', svg)]
    assert all(0 <= x <= 100 for x in percentages(svg))
    assert all(0 <= y <= 400 for y in heights)
    assert svg.count("<use") == 3
    assert "no measured bias" in svg


@pytest.mark.parametrize(("n", "hollow", "whiskers"), [(4, 1, 0), (5, 0, 1)])
def test_a_tiny_cell_is_hollow_and_has_no_interval(n: int, hollow: int, whiskers: int) -> None:
    svg = strip(axis_for([0.0, 10.0]), [Lane(0, 5.0, 4.0, 6.0, n, "")], "label")
    assert (svg.count("hollow"), svg.count('class="whisker"')) == (hollow, whiskers)


@pytest.mark.parametrize(("n", "hollow", "whiskers"), [(4, 1, 0), (5, 0, 2)])
def test_a_tiny_point_is_hollow_and_has_no_interval(n: int, hollow: int, whiskers: int) -> None:
    small, large = Estimate("m", "all", 5.0, 4.0, 6.0, n), Estimate("m", "all", 5.0, 4.0, 6.0, 100)
    axis = axis_for([0.0, 10.0])
    svg = scatter(axis, axis, [Point(0, large, small, "")], None, "label")
    assert (svg.count("hollow"), svg.count('class="whisker"')) == (hollow, whiskers)


def test_an_axis_need_not_cover_an_interval_that_is_not_drawn() -> None:
    assert reach(5.0, 0.0, 90.0, 4) == [5.0]
    assert reach(5.0, 0.0, 90.0, 5) == [5.0, 0.0, 90.0]
    assert reach(None, 0.0, 90.0, 5) == []


def test_bars_stay_inside_their_track() -> None:
    assert percentages(bar(1.0, 1 / 3, "arm-0", "label")) == [33.33, 33.33]
    assert 'width="100.00%"' in bar(1.7, None, "arm-0", "label")


def test_a_stacked_bar_fills_the_width_and_leaves_out_empty_parts() -> None:
    svg = stacked([Segment("graded", 3, "graded: 3"), Segment("failed", 0, ""), Segment("refused", 1, "")], "label")
    assert re.findall(r'width="([\d.]+)%"', svg) == ["100", "75.00", "25.00"] or "75.00%" in svg
    assert "part-failed" not in svg


def test_a_stacked_bar_of_nothing_is_empty() -> None:
    assert "<rect" not in stacked([Segment("graded", 0, "")], "label")


def test_the_sample_study_has_an_undefined_cell() -> None:
    arm = sample_study.study().arms[1]
    cell = arm.estimate("bias_ambig", "Sexual_orientation")
    assert cell is not None
    assert finite(cell.value) is None


def test_what_guessing_gets_is_marked_only_where_it_lies_on_the_axis() -> None:
    lanes = [Lane(0, 40.0, 30.0, 50.0, 9, "a")]
    assert 'class="chance"' in strip(axis_for([30, 50], reference=33.3), lanes, "label")
    assert 'class="chance"' not in strip(axis_for([60, 90], reference=33.3), lanes, "label")


def test_a_bar_on_an_axis_is_as_long_as_its_parts_together() -> None:
    svg = stacked_on(
        axis_for([0.0, 100.0]),
        [AxisSegment(1, 50.0, "first"), AxisSegment(2, 0.0, "none"), AxisSegment(2, 25.0, "third")],
        "all",
    )

    boxes = [(float(x), float(width)) for x, width in re.findall(r'<rect x="([\d.]+)%" y="5" width="([\d.]+)%"', svg)]
    assert boxes == [(3.0, 47.0), (50.0, 23.5)]
    assert "<title>first</title>" in svg
    assert "<title>none</title>" not in svg
