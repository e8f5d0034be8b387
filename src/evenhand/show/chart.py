"""Charts as inline SVG. Horizontal positions are percentages, so a chart fits any width without scaling its text.

Colours come from the stylesheet (`arm-0` …), shapes from the sprite that every page contains once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evenhand.core.format import DASH, finite, number, plural
from evenhand.show.markup import Html, Node, tag

if TYPE_CHECKING:
    from evenhand.studies.results import Estimate

PALETTE_SIZE = 8
"""Number of colours and shapes in the stylesheet; further arms repeat them."""
LANE = 16
STRIP_MARGIN = 7
FEW = 5
"""Estimates of fewer samples are drawn hollow and without an interval: neither is certain."""
SIDE = 3.0
"""Margin on either side in per cent of the width, so that marks at the ends stay inside."""
_ROUND_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
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


# --- axes ---


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear scale from the first tick to the last."""

    ticks: tuple[float, ...]
    digits: int
    reference: float | None = None
    """A value to mark, such as chance level; None if it is outside the axis."""

    @property
    def low(self) -> float:
        return self.ticks[0]

    @property
    def high(self) -> float:
        return self.ticks[-1]

    def fraction(self, value: float) -> float:
        """Return the position of the value: 0 at the low end, 1 at the high end."""
        return (value - self.low) / (self.high - self.low)


def axis_for(
    values: Iterable[float | None], *, include_zero: bool = False, steps: int = 5, reference: float | None = None
) -> Axis:
    """Return an axis that covers all finite values with about `steps` round steps."""
    usable = [v for v in map(finite, values) if v is not None]
    if include_zero or not usable:
        usable.append(0.0)
    low, high = min(usable), max(usable)
    if high - low <= 1e-9 * abs(high):
        margin = max(1.0, abs(high) / 10)
        low, high = low - margin, high + margin
    step = _round_step((high - low) / steps)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = next((d for d in range(9) if math.isclose(round(step, d), step)), 9)
    ticks = tuple(k * step for k in range(first, last + 1))
    on_axis = reference is not None and ticks[0] <= reference <= ticks[-1]
    return Axis(ticks, digits, reference if on_axis else None)


def _round_step(raw: float) -> float:
    size = 10.0 ** math.floor(math.log10(raw))
    return next(m for m in _ROUND_STEPS if m * size >= raw * (1 - 1e-9)) * size


def reach(value: float | None, low: float | None, high: float | None, n: int) -> list[float | None]:
    """Return what an axis must cover: the value, and its interval where one is drawn."""
    if finite(value) is None:
        return []
    return [value] if n < FEW else [value, low, high]


def covered(estimates: Iterable[Estimate | None]) -> list[float | None]:
    """Return what an axis of these estimates must cover."""
    return [value for each in estimates if each is not None for value in reach(each.value, each.low, each.high, each.n)]


# --- marks, strips and bars ---


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

    @classmethod
    def of(cls, arm: int, estimate: Estimate | None, text: str) -> Lane:
        """The lane of an estimate, which is empty where there is none."""
        if estimate is None:
            return cls(arm, None, None, None, 0, text)
        return cls(arm, estimate.value, estimate.low, estimate.high, estimate.n, text)

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
            css = f"part-{segment.kind}"
            box = tag("rect", x=_percent(start), y=2, width=_percent(width), height=16, class_=css)
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


@dataclass(frozen=True, slots=True)
class PlotRow:
    """A row of a plot: its name, a note below it, and an estimate for each arm."""

    name: str
    note: str
    lanes: Sequence[Lane]
    css: str = "row"


@dataclass(frozen=True, slots=True)
class Plot:
    """Dots and whiskers in rows that share an axis."""

    label: str
    rows: Sequence[PlotRow]
    include_zero: bool = False
    reference: float | None = None
    """A value to mark, such as chance level."""
    margin: int = STRIP_MARGIN
    axis_above: bool = True
    """Whether the axis also stands above the rows."""

    @property
    def axis(self) -> Axis:
        """An axis that covers all values, and the intervals that are drawn."""
        values = [v for row in self.rows for lane in row.lanes for v in reach(lane.value, lane.low, lane.high, lane.n)]
        return axis_for(values, include_zero=self.include_zero, reference=self.reference)

    def html(self) -> Html:
        axis = self.axis
        ticks = tag("div", tag("span", class_="row-name"), tick_labels(axis), class_="row axis")
        rows = [self._row(axis, row) for row in self.rows]
        note = few_note(lane for row in self.rows for lane in row.lanes)
        return tag("div", ticks if self.axis_above else None, rows, ticks, note, class_="plot")

    def _row(self, axis: Axis, row: PlotRow) -> Html:
        name = tag("span", tag("span", row.name), tag("small", row.note) if row.note else None, class_="row-name")
        label = f"{row.name}, {self.label}. " + "; ".join(lane.text for lane in row.lanes)
        return tag("div", name, strip(axis, row.lanes, label, self.margin), class_=row.css)


def few_note(estimates: Iterable[Lane | Point]) -> Html | None:
    """Explain hollow marks, if there are any."""
    if not any(each.is_small for each in estimates):
        return None
    return tag("p", f"Hollow marks: n is below {FEW}, too few to draw an interval.", class_="footnote")


# --- points in a frame ---


@dataclass(frozen=True, slots=True)
class _Frame:
    """The area of a chart: left and right in per cent of the width, top and bottom in pixels."""

    top: float
    bottom: float
    left: float
    right: float

    def across(self, fraction: float) -> float:
        return self.left + (self.right - self.left) * fraction

    def up(self, fraction: float) -> float:
        return self.bottom - (self.bottom - self.top) * fraction

    def x(self, fraction: float) -> str:
        return f"{self.across(fraction):.2f}%"

    def y(self, fraction: float) -> str:
        return f"{self.up(fraction):.1f}"

    def rules(self, axis: Axis) -> list[Node]:
        """Horizontal lines over the whole width at the ticks of a vertical axis, with their numbers."""
        parts: list[Node] = []
        for tick in axis.ticks:
            y = self.y(axis.fraction(tick))
            parts.append(tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
            parts.append(tag("text", number(tick, axis.digits), x=0, y=y, dy=-4, class_="tick"))
        return parts


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


_SCATTER = _Frame(top=34, bottom=370, left=9.0, right=96.0)


def scatter(x_axis: Axis, y_axis: Axis, points: Sequence[Point], zero_note: str | None, label: str) -> Html:
    """Draw two metrics against each other, a point for each arm; `zero_note` labels the vertical line at 0."""
    bottom = _SCATTER.bottom
    ticks: list[Node] = []
    for tick in x_axis.ticks:
        x = _SCATTER.x(x_axis.fraction(tick))
        ticks.append(tag("line", x1=x, x2=x, y1=bottom, y2=bottom + 5, class_="notch"))
        ticks.append(tag("text", number(tick, x_axis.digits), x=x, y=bottom + 20, class_="tick middle"))
    zero = _zero_line(x_axis, zero_note) if zero_note else None
    crosses = [_cross(x_axis, y_axis, point) for point in points]
    return _svg(400, label, _SCATTER.rules(y_axis), ticks, zero, _chance_line(y_axis), crosses, class_="scatter")


def _zero_line(axis: Axis, note: str) -> list[Node]:
    if not axis.low <= 0 <= axis.high:
        return []
    place = _SCATTER.across(axis.fraction(0.0))
    x = f"{place:.2f}%"
    right_half = place > 60
    return [
        tag("line", x1=x, x2=x, y1=6, y2=_SCATTER.bottom, class_="zero"),
        tag("text", note, x=x, dx=-6 if right_half else 6, y=14, class_="note end" if right_half else "note"),
    ]


def _chance_line(axis: Axis) -> list[Node]:
    if axis.reference is None:
        return []
    y = _SCATTER.y(axis.fraction(axis.reference))
    return [tag("line", x1="0", x2="100%", y1=y, y2=y, class_="chance")]


def _cross(x_axis: Axis, y_axis: Axis, point: Point) -> Html:
    """Draw the mark with a bar along each axis."""
    across, up = x_axis.fraction(point.x.value or 0.0), y_axis.fraction(point.y.value or 0.0)
    at_x, at_y = _SCATTER.x(across), _SCATTER.y(up)
    parts: list[Node] = [tag("title", point.text)]
    low, high = finite(point.x.low), finite(point.x.high)
    if low is not None and high is not None and not point.is_small:
        x1, x2 = (_SCATTER.x(x_axis.fraction(end)) for end in (low, high))
        parts.append(tag("line", x1=x1, x2=x2, y1=at_y, y2=at_y, class_="whisker"))
    if not point.is_small:
        parts.append(_upright(_SCATTER, y_axis, at_x, point.y))
    parts.append(tag("circle", cx=at_x, cy=at_y, r=14, class_="target"))
    parts.append(mark(point.arm, at_x, _SCATTER.up(up), hollow=point.is_small))
    return tag("g", parts, class_=f"lane {arm_class(point.arm)}")


def _upright(frame: _Frame, axis: Axis, x: str, estimate: Estimate) -> Html | None:
    """Draw the whisker of a vertical axis; None without an interval."""
    low, high = finite(estimate.low), finite(estimate.high)
    if low is None or high is None:
        return None
    y1, y2 = (frame.y(axis.fraction(end)) for end in (low, high))
    return tag("line", x1=x, x2=x, y1=y1, y2=y2, class_="whisker")


Series = Sequence[tuple["Estimate | None", str]]
"""An estimate and its tooltip for each column."""
_COLUMNS = _Frame(top=12, bottom=172, left=10.0, right=98.0)


def column_points(axis: Axis, names: Sequence[str], series: Sequence[Series], first_colour: int, label: str) -> Html:
    """Draw points with whiskers over named columns, each series in a colour of its own."""
    marks: list[Node] = []
    for place, each in enumerate(series):
        # Offset sideways, so that the whiskers of two series do not overlap.
        aside = (place - (len(series) - 1) / 2) * min(0.16, 0.8 / len(series))
        for column, (estimate, text) in enumerate(each):
            x = _COLUMNS.x((column + 0.5 + aside) / len(names))
            marks.append(_column_mark(axis, x, estimate, first_colour + place, text))
    # Names stand in two lines in turn, so that long ones do not overlap on a narrow screen.
    ticks = [
        tag("text", name, x=_COLUMNS.x((place + 0.5) / len(names)), y=206 if place % 2 else 192, class_="tick middle")
        for place, name in enumerate(names)
    ]
    return _svg(214, label, _COLUMNS.rules(axis), ticks, marks, class_="scatter")


def _column_mark(axis: Axis, x: str, estimate: Estimate | None, colour: int, text: str) -> Html | None:
    value = finite(estimate.value) if estimate else None
    if estimate is None or value is None:
        return None
    y, is_small = _COLUMNS.up(axis.fraction(value)), estimate.n < FEW
    return tag(
        "g",
        tag("title", text),
        None if is_small else _upright(_COLUMNS, axis, x, estimate),
        tag("circle", cx=x, cy=f"{y:.1f}", r=12, class_="target"),
        mark(colour, x, y, hollow=is_small),
        class_=f"lane {arm_class(colour)}",
    )


_RADAR_RADIUS = 96.0
_RADAR_LABEL = 1.12
"""Where names stand, in radii from the centre."""


def radar(
    axis: Axis, names: Sequence[str], series: Sequence[tuple[int, Sequence[float | None], str]], label: str
) -> Html:
    """Draw values on spokes, one for each name; a series is its colour, its values and its text.

    The centre is the low end of the axis. A series is closed where all its values are known.
    """
    rings = [tag("polygon", points=_web(axis, [tick] * len(names)), class_="grid") for tick in axis.ticks[1:]]
    ticks = [
        tag("text", number(tick, axis.digits), x=4, y=f"{12 - _RADAR_RADIUS * axis.fraction(tick):.1f}", class_="tick")
        for tick in (axis.ticks[0], axis.ticks[-1])
    ]
    heads: list[Node] = []
    for place, name in enumerate(names):
        x, y = _spoke(place, len(names), _RADAR_LABEL)
        heads.append(tag("text", name, x=f"{x:.1f}", y=f"{y + 4:.1f}", class_=f"tick {_anchor(x)}"))
    lines = [
        tag("g", tag("title", text), _outline(axis, values), class_=f"lane {arm_class(colour)}")
        for colour, values, text in series
    ]
    box = "-170 -125 340 250"
    return tag("svg", rings, ticks, heads, lines, class_="radar", viewBox=box, role="img", aria_label=label)


def _outline(axis: Axis, values: Sequence[float | None]) -> Html | None:
    known = [each for each in map(finite, values) if each is not None]
    return tag("polygon", points=_web(axis, known), class_="outline") if len(known) == len(values) else None


def _web(axis: Axis, values: Sequence[float]) -> str:
    spokes = (_spoke(place, len(values), axis.fraction(value)) for place, value in enumerate(values))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in spokes)


def _spoke(place: int, of: int, fraction: float) -> tuple[float, float]:
    """Return a point of a spoke; the first one goes up."""
    turn = 2 * math.pi * place / of
    return _RADAR_RADIUS * fraction * math.sin(turn), -_RADAR_RADIUS * fraction * math.cos(turn)


def _anchor(x: float) -> str:
    return "middle" if abs(x) < 1 else "" if x > 0 else "end"


_UNIT = _Frame(top=12, bottom=350, left=10.0, right=95.0)
_UNIT_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_LARGEST, _SMALLEST = 11.0, 1.8
"""Radii of discs in pixels."""


def cell_chart(cells: Sequence[tuple[int, int, int]], grid: int, label: str) -> Html:
    """Draw many points in the unit square as one disc per cell, so that its size does not grow with the points.

    A cell is (place along x, place along y, points in it).
    """
    most = max((n for _, _, n in cells), default=1)
    # Large discs first, so that they do not hide smaller ones.
    discs = [_disc(cell, grid, most) for cell in sorted(cells, key=lambda cell: -cell[2])]
    diagonal = tag("line", x1=_UNIT.x(0), y1=_UNIT.y(0), x2=_UNIT.x(1), y2=_UNIT.y(1), class_="diagonal")
    return _svg(380, label, _unit_lines(), diagonal, discs, class_="cells arm-0")


def _disc(cell: tuple[int, int, int], grid: int, most: int) -> Html:
    column, row, n = cell
    x, y = (column + 0.5) / grid, (row + 0.5) / grid
    radius = max(_SMALLEST, _LARGEST * math.sqrt(n / most))
    text = f"{plural(n, 'answer')} near ({number(x, 2)}, {number(y, 2)})"
    return tag("circle", tag("title", text), cx=_UNIT.x(x), cy=_UNIT.y(y), r=f"{radius:.1f}", class_="disc")


def _unit_lines() -> list[Node]:
    parts: list[Node] = []
    for tick in _UNIT_TICKS:
        x, y = _UNIT.x(tick), _UNIT.y(tick)
        css = "middle-line" if tick == 0.5 else "grid"
        parts.append(tag("line", x1=_UNIT.x(0), x2=_UNIT.x(1), y1=y, y2=y, class_=css))
        parts.append(tag("line", x1=x, x2=x, y1=_UNIT.y(0), y2=_UNIT.y(1), class_=css))
        parts.append(tag("text", number(tick, 2), x=0, y=y, dy=4, class_="tick"))
        parts.append(tag("text", number(tick, 2), x=x, y=_UNIT.bottom + 20, class_="tick middle"))
    return parts


# --- histograms ---

_HISTOGRAM = 120
_ABOVE, _BELOW = 18, 22
"""Space for the number above a column and the bin's name below it."""
_FILL = 0.7
"""The share of a bin's width that its column fills."""


def histogram(bins: Sequence[tuple[str, float, str]], highest: float, colour: int, label: str) -> Html:
    """Draw a column for each bin (name, value, tooltip); `highest` is the value of full height."""
    columns = [_bin(place, len(bins), each, highest) for place, each in enumerate(bins)]
    ground = _ABOVE + _HISTOGRAM
    line = tag("line", x1="0%", x2="100%", y1=ground, y2=ground, class_="notch")
    return _svg(ground + _BELOW, label, columns, line, class_=f"histogram {arm_class(colour)}")


def _bin(place: int, of: int, each: tuple[str, float, str], highest: float) -> Html:
    """Draw a bin's column with its value above and its name below."""
    name, value, text = each
    middle = f"{100 * (place + 0.5) / of:.2f}%"
    height = _HISTOGRAM * value / highest
    top = _ABOVE + _HISTOGRAM - height
    parts: list[Node] = [tag("title", text)]
    if value:
        left, width = 100 * (place + (1 - _FILL) / 2) / of, 100 * _FILL / of
        parts.append(tag("rect", x=f"{left:.2f}%", y=f"{top:.1f}", width=f"{width:.2f}%", height=f"{height:.1f}"))
    parts.append(tag("text", number(value, 0), x=middle, y=f"{top - 5:.1f}", class_="middle"))
    parts.append(tag("text", name, x=middle, y=_ABOVE + _HISTOGRAM + 16, class_="tick middle"))
    return tag("g", parts)
