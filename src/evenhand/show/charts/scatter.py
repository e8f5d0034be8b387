"""Scatter chart of two metrics, one point per arm, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.core.format import finite, number
from evenhand.show.charts import FEW, arm_class, mark
from evenhand.show.charts.axis import Axis
from evenhand.show.markup import Html, Node, tag
from evenhand.studies.results import Estimate

HEIGHT = 400
TOP, BOTTOM = 34, 370
LEFT, RIGHT = 9.0, 96.0


@dataclass(frozen=True, slots=True)
class Point:
    """One arm; both estimates are defined."""

    arm: int
    x: Estimate
    y: Estimate
    text: str
    """The tooltip; names in the chart would hide marks."""

    @property
    def is_small(self) -> bool:
        return min(self.x.n, self.y.n) < FEW


def scatter(x_axis: Axis, y_axis: Axis, points: Sequence[Point], zero_note: str | None, label: str) -> Html:
    """Draw the chart; `zero_note` labels the vertical line at 0."""
    places = [(point, _across(x_axis, point.x.value or 0.0), _up(y_axis, point.y.value or 0.0)) for point in points]
    return tag(
        "svg",
        _grid(x_axis, y_axis),
        _zero_line(x_axis, zero_note) if zero_note else None,
        _chance_line(y_axis),
        [_cross(x_axis, y_axis, point, x, y) for point, x, y in places],
        class_="scatter",
        width="100%",
        height=HEIGHT,
        role="img",
        aria_label=label,
    )


def _across(axis: Axis, value: float) -> float:
    return LEFT + (RIGHT - LEFT) * axis.fraction(value)


def _up(axis: Axis, value: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * axis.fraction(value)


def _grid(x_axis: Axis, y_axis: Axis) -> list[Node]:
    parts: list[Node] = []
    for tick in y_axis.ticks:
        y = f"{_up(y_axis, tick):.1f}"
        parts.append(tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
        parts.append(tag("text", number(tick, y_axis.digits), x=0, y=y, dy=-4, class_="tick"))
    for tick in x_axis.ticks:
        x = f"{_across(x_axis, tick):.2f}%"
        parts.append(tag("line", x1=x, x2=x, y1=BOTTOM, y2=BOTTOM + 5, class_="notch"))
        parts.append(tag("text", number(tick, x_axis.digits), x=x, y=BOTTOM + 20, class_="tick middle"))
    return parts


def _zero_line(axis: Axis, note: str) -> list[Node]:
    if not axis.low <= 0 <= axis.high:
        return []
    place = _across(axis, 0.0)
    x = f"{place:.2f}%"
    right_half = place > 60
    return [
        tag("line", x1=x, x2=x, y1=6, y2=BOTTOM, class_="zero"),
        tag("text", note, x=x, dx=-6 if right_half else 6, y=14, class_="note end" if right_half else "note"),
    ]


def _chance_line(axis: Axis) -> list[Node]:
    if axis.reference is None:
        return []
    y = f"{_up(axis, axis.reference):.1f}"
    return [tag("line", x1="0", x2="100%", y1=y, y2=y, class_="chance")]


def _cross(x_axis: Axis, y_axis: Axis, point: Point, x: float, y: float) -> Html:
    """Draw the mark with a bar along each axis."""
    at_x, at_y = f"{x:.2f}%", f"{y:.1f}"
    parts: list[Node] = [tag("title", point.text)]
    low, high = finite(point.x.low), finite(point.x.high)
    if low is not None and high is not None and not point.is_small:
        x1, x2 = f"{_across(x_axis, low):.2f}%", f"{_across(x_axis, high):.2f}%"
        parts.append(tag("line", x1=x1, x2=x2, y1=at_y, y2=at_y, class_="whisker"))
    low, high = finite(point.y.low), finite(point.y.high)
    if low is not None and high is not None and not point.is_small:
        y1, y2 = f"{_up(y_axis, low):.1f}", f"{_up(y_axis, high):.1f}"
        parts.append(tag("line", x1=at_x, x2=at_x, y1=y1, y2=y2, class_="whisker"))
    parts.append(tag("circle", cx=at_x, cy=at_y, r=14, class_="target"))
    parts.append(mark(point.arm, at_x, y, hollow=point.is_small))
    return tag("g", parts, class_=f"lane {arm_class(point.arm)}")
