"""A paper's tables and figures for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from evenhand.core.format import DASH, finite, limits, number
from evenhand.papers.base import REPRODUCIBLE, Cell, Figure, Grid, PaperPage, Row, Table
from evenhand.papers.claims import Claim
from evenhand.papers.page.claims import claims_of, main_variants
from evenhand.show.markup import clean
from evenhand.studies.results import Estimate, size

if TYPE_CHECKING:
    from rich.table import Table as Printed


def printed(page: PaperPage, width: int) -> Iterator[Printed]:
    """Yields the tables and figures of the page; tables that are too wide are split.

    If a table has our numbers, grids that only repeat the paper are shown on the page only.
    """
    if page.claims:
        yield _claims(page.claims)
    if page.found:
        yield _found(page.found)
    for table in page.tables:
        ours = [grid for grid in table.grids if any(row.ours for row in grid.rows)]
        for grid in ours or table.grids:
            yield from _grid(table, grid, width)
    for figure in page.figures:
        yield _figure(figure)


def _claims(claims: Sequence[Claim]) -> Printed:
    """Returns the claims with their verdicts; the reasons are on the page."""
    named = main_variants(claims)
    shown = _empty("What the paper says, and whether it holds here (reasons: on the page)")
    for name in named.values():
        shown.add_column(_text(name), overflow="fold")
    for text in dict.fromkeys(claim.text for claim in claims):
        verdicts = [next((c.verdict for c in claims_of(claims, key) if c.text == text), "") for key in named]
        shown.add_row(_text(text), *map(_text, verdicts))
    return shown


def _found(found: Sequence[tuple[str, str]]) -> Printed:
    shown = _empty("What was found")
    shown.add_column("", overflow="fold")
    shown.show_header = False
    for arm, sentence in found:
        shown.add_row(_text(arm), _text(sentence), end_section=True)
    return shown


def _grid(table: Table, grid: Grid, width: int) -> Iterator[Printed]:
    title = table.title + (f" ({grid.name})" if len(table.grids) > 1 else "")
    names = [_name(row) for row in grid.rows]
    heads = [f"{column.over}\n{column.title}" if column.over else column.title for column in grid.columns]
    columns = [[_cell(row.cells[i], row, grid.digits) for row in grid.rows] for i in range(len(heads))]
    widths = [_widest([head, *column]) for head, column in zip(heads, columns, strict=True)]
    for i, part in enumerate(_packed(widths, width - _widest(names) - 2)):
        shown = _empty(f"{title}, continued" if i else title)
        for each in part:
            shown.add_column(_text(heads[each]), justify="right", no_wrap=True)
        for j, (name, row) in enumerate(zip(names, grid.rows, strict=True)):
            cells = [columns[each][j] for each in part]
            if any(cells) or (row.note and not i):
                shown.add_row(_text(name), *map(_text, cells), end_section=True)
        yield shown
    if any(row.reproducible for row in grid.rows):
        yield _reasons(title, grid)


def _reasons(title: str, grid: Grid) -> Printed:
    """Returns the reasons as a separate table, since sentences need too much width."""
    shown = _empty(f"{title}: {REPRODUCIBLE.lower()}")
    shown.add_column("", overflow="fold")
    shown.show_header = False
    for row in grid.rows:
        if row.reproducible:
            shown.add_row(_text(", ".join(filter(None, [row.method, row.setting]))), _text(row.reproducible))
    return shown


def _packed(widths: Sequence[int], room: int) -> list[list[int]]:
    """Splits the columns into as few parts as possible, each with at least one column."""
    parts: list[list[int]] = [[]]
    for i, width in enumerate(widths):
        if parts[-1] and sum(widths[each] + 2 for each in parts[-1]) + width + 2 > room:
            parts.append([])
        parts[-1].append(i)
    return parts


def _widest(texts: Iterable[str]) -> int:
    return max((len(line) for text in texts for line in text.splitlines()), default=0)


def _figure(figure: Figure) -> Printed:
    shown = _empty(f"{figure.title}, %")
    for part in figure.parts:
        shown.add_column(_text(part), justify="right")
    for bar in figure.bars:
        # A histogram has many bins, so their intervals are only on the page and in the CSV file.
        short = figure.kind == "histogram"
        texts = [number(each.value) if short else _estimate(each, " ") for each in bar.parts]
        cells = [_text(bar.note or text) for text in texts]
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


def _cell(cell: Cell, row: Row, digits: int) -> str:
    """Returns our number with interval and n, and below it the paper's."""
    lines = [_estimate(cell.estimate, "\n", digits)] if row.ours else []
    if cell.spread is not None:
        lines.append(f"± {number(cell.spread, digits)} SD")
    if cell.published is not None:
        lines.append(f"paper {number(cell.published, 2)}")
    return "\n".join(lines)


def _estimate(estimate: Estimate | None, gap: str, digits: int = 1) -> str:
    if estimate is None:
        return DASH
    if estimate.as_count is not None:
        return estimate.as_count
    value = number(estimate.value, digits)
    if finite(estimate.value) is not None:
        value += gap + limits(estimate.low, estimate.high, digits)
    return f"{value}{gap}{size(estimate)}"


def _text(text: str) -> Text:
    """Returns plain text without markup and control characters."""
    return Text(clean(text))
