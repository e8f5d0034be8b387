"""Charts as inline SVG. Horizontal positions are percentages, so a chart fits any width without scaling its text.

Colours come from the stylesheet (`arm-0` …), shapes from the sprite that every page contains once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evenhand.core.format import DASH, finite, number
from evenhand.show.charts.axis import Axis
from evenhand.show.markup import Html, Node, tag
from evenhand.show.view import PALETTE_SIZE

LANE = 16
STRIP_MARGIN = 7
FEW = 5
"""Estimates of fewer samples are drawn hollow and without an interval: neither is certain."""
SIDE = 3.0
"""Margin on either side in per cent of the width, so that marks at the ends stay inside."""

_SHAPES = (
    "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z",
    "M-4.5-4.5h9v9h-9z",
    "M0-6.2L6.2 0L0 6.2L-6.2 0z",
    "M0-5.8L5.8 4.6H-5.8z",
    "M0 5.8L5.8-4.6H-5.8z",
    "M-2-5.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5v-4h3.5z",
    "M-3-5.4h6l3 5.4l-3 5.4h-6l-3-5.4z",
    "M0-6.4l1.9 4.2l4.5.5l-3.4 3l1 4.5l-4-2.3l-4 2.3l1-4.5l-3.4-3l4.5-.5z",
)


@dataclass(frozen=True, slots=True)
class Lane:
    """One arm's estimate in a strip."""

    arm: int
    value: float | None
    low: float | None
    high: float | None
    n: int
    text: str
    """The tooltip."""

    @property
    def is_small(self) -> bool:
        return finite(self.value) is not None and self.n < FEW


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of a stacked bar that fills the width."""

    kind: str
    """The suffix of the CSS class that sets the colour."""
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class AxisSegment:
    """One segment of a stacked bar on an axis."""

    arm: int
    """The index of the arm whose colour it has."""
    value: float
    text: str


def sprite() -> Html:
    """Return the shapes of the arms, defined once for the whole page."""
    shapes = [tag("path", id=f"mark-{i}", d=path) for i, path in enumerate(_SHAPES)]
    return tag("svg", tag("defs", shapes), class_="sprite", width=0, height=0, aria_hidden="true")


def arm_class(index: int) -> str:
    return f"arm-{index % PALETTE_SIZE}"


def legend_mark(index: int) -> Html:
    """Return an arm's mark for use in text and tables."""
    return tag("svg", mark(index, "8", 8), class_="mark", width=16, height=16, aria_hidden="true")


def strip(axis: Axis, lanes: Sequence[Lane], label: str, margin: int = STRIP_MARGIN) -> Html:
    """Draw dots with whiskers, one lane per arm, on the axis's grid."""
    height = 2 * margin + LANE * len(lanes)
    rows = [_lane(axis, lane, margin + LANE * (i + 0.5)) for i, lane in enumerate(lanes)]
    return _svg(height, label, _grid(axis, height), rows, class_="strip")


def tick_labels(axis: Axis) -> Html:
    """Draw the numbers of the axis as a separate strip."""
    texts = [tag("text", number(t, axis.digits), x=_x(axis, t), y=14, class_="tick middle") for t in axis.ticks]
    return tag("svg", texts, class_="strip ticks", width="100%", height=20, aria_hidden="true")


def bar(fraction: float, reference: float | None, kind: str, label: str) -> Html:
    """Draw a horizontal bar of a fraction from 0 to 1, with a mark at the reference."""
    shapes: list[Node] = [
        tag("rect", x=0, y=3, width="100%", height=12, rx=2, class_="track"),
        tag("rect", x=0, y=3, width=_percent(100 * fraction), height=12, rx=2, class_=kind),
    ]
    if reference is not None:
        x = _percent(100 * reference)
        shapes.append(tag("line", x1=x, x2=x, y1=0, y2=18, class_="reference"))
    return _svg(18, label, shapes, class_="bar")


def stacked(segments: Sequence[Segment], label: str) -> Html:
    """Draw one bar of adjoining segments that together fill the width."""
    total = sum(s.count for s in segments)
    boxes: list[Node] = []
    start = 0.0
    for segment in segments:
        width = 100 * segment.count / total if total else 0.0
        if width:
            box = tag(
                "rect",
                x=_percent(start),
                y=2,
                width=_percent(width),
                height=16,
                class_=f"part-{segment.kind}",
            )
            boxes.append(tag("g", tag("title", segment.text), box))
        start += width
    return _svg(20, label, boxes, class_="stack")


def stacked_on(axis: Axis, segments: Sequence[AxisSegment], label: str) -> Html:
    """Draw one bar of adjoining segments on the axis's grid, starting at 0; its length is the sum of their values."""
    boxes: list[Node] = []
    start = 0.0
    for segment in segments:
        left, right = _place(axis, start), _place(axis, start + segment.value)
        if right > left:
            x, width = _percent(left), _percent(right - left)
            box = tag("rect", x=x, y=5, width=width, height=20, class_=arm_class(segment.arm))
            boxes.append(tag("g", tag("title", segment.text), box))
        start += segment.value
    return _svg(30, label, _grid(axis, 30), boxes, class_="bar on-axis")


def _svg(height: float, label: str, *content: Node, class_: str) -> Html:
    return tag("svg", content, class_=class_, width="100%", height=f"{height:g}", role="img", aria_label=label)


def _x(axis: Axis, value: float) -> str:
    return _percent(_place(axis, value))


def _place(axis: Axis, value: float) -> float:
    """Return the horizontal position in per cent of the width."""
    return SIDE + (100 - 2 * SIDE) * axis.fraction(value)


def _percent(value: float) -> str:
    return f"{min(100.0, max(0.0, value)):.2f}%"


def _grid(axis: Axis, height: float) -> list[Node]:
    lines: list[Node] = []
    for tick in axis.ticks:
        x = _x(axis, tick)
        lines.append(tag("line", x1=x, x2=x, y1=0, y2=f"{height:g}", class_="zero" if tick == 0 else "grid"))
    if axis.reference is not None:
        x = _x(axis, axis.reference)
        lines.append(tag("line", x1=x, x2=x, y1=0, y2=f"{height:g}", class_="chance"))
    return lines


def _lane(axis: Axis, lane: Lane, y: float) -> Html:
    """Draw the mark, its whisker, and a wide invisible target for the pointer."""
    target = tag("rect", x=0, y=f"{y - LANE / 2:g}", width="100%", height=LANE, class_="target")
    value, low, high = finite(lane.value), finite(lane.low), finite(lane.high)
    shapes: list[Node] = [tag("title", lane.text), target]
    if value is None:
        # As text at the edge: an undefined value has no position on the scale, least of all 0.
        shapes.append(tag("text", f"{DASH} undefined", x=_percent(SIDE), dx=6, y=f"{y + 4:g}", class_="undefined"))
    else:
        if low is not None and high is not None and not lane.is_small:
            x1, x2 = _x(axis, low), _x(axis, high)
            shapes.append(tag("line", x1=x1, x2=x2, y1=f"{y:g}", y2=f"{y:g}", class_="whisker"))
        shapes.append(mark(lane.arm, _x(axis, value), y, hollow=lane.is_small))
    return tag("g", shapes, class_=f"lane {arm_class(lane.arm)}")


def mark(arm: int, x: str, y: float, *, hollow: bool = False) -> Html:
    """Draw an arm's shape at this place."""
    css = f"dot {arm_class(arm)}" + (" hollow" if hollow else "")
    return tag("use", href=f"#mark-{arm % PALETTE_SIZE}", x=x, y=f"{round(y, 1):g}", class_=css)


def reach(value: float | None, low: float | None, high: float | None, n: int) -> list[float | None]:
    """Return what an axis must cover: the value, and its interval where one is drawn."""
    if finite(value) is None:
        return []
    return [value] if n < FEW else [value, low, high]
