"""Points with whiskers over the columns of a grid, a colour for each of its drawn rows."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.format import finite, number
from evenhand.papers.base import Column, Grid, Row
from evenhand.show.charts import FEW, arm_class, mark, reach
from evenhand.show.charts.axis import Axis, axis_for
from evenhand.show.markup import Html, Node, tag
from evenhand.studies.results import estimate_text

_TOP, _BOTTOM, _HEIGHT = 12, 172, 200
_LEFT, _RIGHT = 10.0, 98.0
"""Left and right edge of the columns, in per cent of the width."""
_FIRST_COLOUR = 1


def charts(grids: Sequence[Grid]) -> Html | None:
    """Returns the drawn grids side by side with one scale and legend; None if no grid is drawn."""
    drawn = [grid for grid in grids if grid.drawn]
    if not drawn:
        return None
    axis = axis_for([value for grid in drawn for row in _rows(grid) for value in _values(row, len(_columns(grid)))])
    keys = [
        tag("li", tag("span", class_=f"key {arm_class(_FIRST_COLOUR + i)}", aria_hidden="true"), tag("b", name))
        for i, name in enumerate(_names(_rows(drawn[0])))
    ]
    figures = [tag("figure", tag("figcaption", tag("strong", grid.name)), _chart(axis, grid)) for grid in drawn]
    return tag("div", tag("ul", keys, class_="legend keys"), tag("div", figures, class_="multiples"))


def _names(rows: Sequence[Row]) -> list[str]:
    """Returns what tells the rows apart: the setting, and the model where there are several."""
    several = len({row.method for row in rows}) > 1
    return [", ".join(filter(None, [row.method if several else "", row.setting])) or row.method for row in rows]


def _rows(grid: Grid) -> Sequence[Row]:
    return grid.rows[: grid.drawn]


def _columns(grid: Grid) -> Sequence[Column]:
    return grid.columns[: len(grid.columns) - grid.undrawn]


def _values(row: Row, columns: int) -> list[float | None]:
    estimates = [cell.estimate for cell in row.cells[:columns] if cell.estimate is not None]
    return [value for e in estimates for value in reach(e.value, e.low, e.high, e.n)]


def _chart(axis: Axis, grid: Grid) -> Html:
    columns = _columns(grid)
    marks: list[Node] = []
    texts: list[str] = []
    for i, row in enumerate(_rows(grid)):
        for j, (column, cell) in enumerate(zip(columns, row.cells, strict=False)):
            text = f"{row.setting}, {grid.name} {column.title}: {estimate_text(cell.estimate)}"
            texts.append(text)
            # Offset sideways, so that the whiskers of two rows do not overlap.
            x = _across(j, len(columns), (i - (grid.drawn - 1) / 2) * min(0.16, 0.8 / grid.drawn))
            marks.append(_mark(axis, x, row, j, _FIRST_COLOUR + i, text))
    names = [
        tag("text", column.title, x=f"{_across(j, len(columns)):.2f}%", y=_BOTTOM + 20, class_="tick middle")
        for j, column in enumerate(columns)
    ]
    return tag(
        "svg",
        _lines(axis),
        names,
        marks,
        class_="scatter",
        width="100%",
        height=_HEIGHT,
        role="img",
        aria_label=f"{grid.name}. {'; '.join(texts)}",
    )


def _lines(axis: Axis) -> list[Node]:
    parts: list[Node] = []
    for tick in axis.ticks:
        y = f"{_up(axis, tick):.1f}"
        parts.append(tag("line", x1="0", x2="100%", y1=y, y2=y, class_="grid"))
        parts.append(tag("text", number(tick, axis.digits), x=0, y=y, dy=-4, class_="tick"))
    return parts


def _mark(axis: Axis, x: float, row: Row, column: int, colour: int, text: str) -> Html | None:
    estimate = row.cells[column].estimate
    value = finite(estimate.value) if estimate else None
    if estimate is None or value is None:
        return None
    at_x, y = f"{x:.2f}%", _up(axis, value)
    parts: list[Node] = [tag("title", text)]
    low, high = finite(estimate.low), finite(estimate.high)
    if low is not None and high is not None and estimate.n >= FEW:
        parts.append(
            tag("line", x1=at_x, x2=at_x, y1=f"{_up(axis, low):.1f}", y2=f"{_up(axis, high):.1f}", class_="whisker")
        )
    parts.append(tag("circle", cx=at_x, cy=f"{y:.1f}", r=12, class_="target"))
    parts.append(mark(colour, at_x, y, hollow=estimate.n < FEW))
    return tag("g", parts, class_=f"lane {arm_class(colour)}")


def _across(index: int, of: int, aside: float = 0.0) -> float:
    return _LEFT + (_RIGHT - _LEFT) * (index + 0.5 + aside) / of


def _up(axis: Axis, value: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * axis.fraction(value)
