"""A paper's tables and figures for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from evenhand.papers.base import Cell, Figure, Grid, PaperPage, Row, Table
from evenhand.reports.format import DASH, count, finite, limits, number
from evenhand.reports.markup import clean
from evenhand.runs.results import Estimate

if TYPE_CHECKING:
    from rich.table import Table as Printed


def printed(page: PaperPage) -> Iterator[Printed]:
    """All that the page shows in tables, one after another."""
    for table in page.tables:
        for grid in table.grids:
            yield _grid(table, grid)
    for figure in page.figures:
        yield _figure(figure)


def _grid(table: Table, grid: Grid) -> Printed:
    name = f" ({grid.name})" if len(table.grids) > 1 else ""
    shown = _empty(table.title + name)
    for column in grid.columns:
        over = f"{column.over}\n" if column.over else ""
        shown.add_column(_text(over + column.title), justify="right", overflow="fold")
    for row in grid.rows:
        shown.add_row(_text(_name(row)), *(_text(_cell(cell, row)) for cell in row.cells), end_section=True)
    return shown


def _figure(figure: Figure) -> Printed:
    shown = _empty(f"{figure.title}, %")
    for part in figure.parts:
        shown.add_column(_text(part), justify="right")
    for bar in figure.bars:
        cells = [_text(bar.note or _estimate(each, " ")) for each in bar.parts]
        shown.add_row(_text(", ".join(filter(None, [bar.name, bar.setting]))), *cells)
    return shown


def _empty(title: str) -> Printed:
    from rich import box
    from rich.table import Table as Printed

    shown = Printed(title=_text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    shown.add_column("", overflow="fold")
    return shown


def _name(row: Row) -> str:
    lines = [row.method, f"  {row.setting}" if row.setting else "", f"  ({row.note})" if row.note else ""]
    return "\n".join(filter(None, lines))


def _cell(cell: Cell, row: Row) -> str:
    """Our number with interval and n, and under it the paper's."""
    lines = [_estimate(cell.estimate, "\n")] if row.ours else []
    if cell.published is not None:
        lines.append(f"paper {number(cell.published, 2)}")
    return "\n".join(lines)


def _estimate(estimate: Estimate | None, gap: str) -> str:
    if estimate is None:
        return DASH
    value = number(estimate.value)
    if finite(estimate.value) is not None:
        value += gap + limits(estimate.low, estimate.high)
    return f"{value}{gap}n = {count(estimate.n)}"


def _text(text: str) -> Text:
    """Text as it is: no markup, no control characters that a terminal would obey."""
    return Text(clean(text))
