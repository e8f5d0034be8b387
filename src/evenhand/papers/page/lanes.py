"""Columns of a table as a chart: a lane for each row, with our estimate and the published number."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.format import number
from evenhand.papers.base import Column, Grid, Row
from evenhand.show.charts import Lane, reach, strip, tick_labels
from evenhand.show.charts.axis import Axis, axis_for
from evenhand.show.markup import Html, Node, tag
from evenhand.studies.results import estimate_text

_OURS, _PUBLISHED = 1, 5
"""Indexes of colour and shape."""


def lanes(grid: Grid) -> Html | None:
    """Returns a chart for each column that the grid wants drawn; None if none has a number of ours."""
    drawn = [(i, column) for i, column in enumerate(grid.columns) if column.name in grid.lanes]
    figures = [_figure(grid, i, column) for i, column in drawn if any(_ours(row, i) for row in grid.rows)]
    return tag("div", figures, class_="multiples lanes") if figures else None


def _figure(grid: Grid, index: int, column: Column) -> Html:
    shown = [row for row in grid.rows if _ours(row, index) or row.cells[index].published is not None]
    axis = axis_for([value for row in shown for value in _values(row, index)], include_zero=True)
    title = ", ".join(filter(None, [column.title, column.over.lower(), column.hint]))
    rows: list[Node] = [_row(axis, row, index, column.title) for row in shown]
    ticks = tag("div", tag("span", class_="row-name"), tick_labels(axis), class_="row axis")
    return tag("figure", tag("figcaption", tag("strong", title)), tag("div", rows, ticks, class_="plot"))


def _row(axis: Axis, row: Row, index: int, title: str) -> Html:
    cell = row.cells[index]
    parts: list[Lane] = []
    if cell.estimate is not None and row.ours:
        ours = cell.estimate
        text = f"{row.method} {row.setting}, {title}, ours: {estimate_text(ours)}"
        parts.append(Lane(_OURS, ours.value, ours.low, ours.high, ours.n, text))
    if cell.published is not None:
        text = f"{row.method} {row.setting}, {title}, as published: {number(cell.published, 2)}"
        # An n that is not known must not make the mark hollow, as one of few samples would be.
        parts.append(Lane(_PUBLISHED, cell.published, None, None, 1_000, text))
    label = "; ".join(lane.text for lane in parts)
    name = tag("span", tag("span", row.method), tag("small", row.setting), class_="row-name")
    return tag("div", name, strip(axis, parts, label, margin=2), class_="row")


def _ours(row: Row, index: int) -> bool:
    estimate = row.cells[index].estimate
    return row.ours and estimate is not None and estimate.value is not None


def _values(row: Row, index: int) -> Sequence[float | None]:
    cell = row.cells[index]
    ours = reach(cell.estimate.value, cell.estimate.low, cell.estimate.high, cell.estimate.n) if cell.estimate else []
    return [*ours, cell.published]
