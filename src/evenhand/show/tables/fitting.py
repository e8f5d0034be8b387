"""Fits terminal tables to the width of the terminal, so that a number is never cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Column, Table

_FOLDED = 14
"""Columns of text may be folded to this width."""


def print_table(console: Console, table: Table) -> None:
    """Print a table in the width of the console."""
    for part in fitted(table, console.width):
        console.print(part)


def fitted(table: Table, width: int) -> list[Table]:
    """Return the table with columns of numbers that do not shrink; if it is wider than `width`, in another form.

    Columns of numbers are split into several tables, with the first column in each. A table that has other text is
    turned into a list: every row is its first cell and, below it, the other cells beside the names of their columns.
    """
    widths = [_least(column) for column in table.columns]
    gap = table.padding[1] + table.padding[3] + 1
    parts = _packed(widths, width, gap)
    if len(parts) == 1:
        return [_fixed(table, widths, width - sum(each + gap for each in widths) - 1)]
    if len(parts) == len(widths) - 1 or any(column.justify != "right" for column in table.columns[1:]):
        return [_as_list(table)]
    return [_columns(table, part, widths, continued=number > 0) for number, part in enumerate(parts)]


def _is_numbers(column: Column) -> bool:
    return column.no_wrap or column.justify == "right"


def _least(column: Column) -> int:
    """Return the smallest width: that of the longest line of numbers, or of the longest word of other text."""
    header = _plain(column.header)
    head = max(map(cell_len, header.splitlines() if column.no_wrap else header.split()), default=0)
    lines = [line for cell in column.cells for line in _plain(cell).splitlines()]
    if _is_numbers(column):
        return max([head, *map(cell_len, lines)])
    words = [word for line in lines for word in line.split()]
    return min(_FOLDED, max([head, *map(cell_len, words)]))


def _packed(widths: Sequence[int], width: int, gap: int) -> list[list[int]]:
    """Split the columns after the first into as few parts as possible, each with at least one."""
    first = widths[0] + gap + 1
    parts: list[list[int]] = [[]]
    for place, needed in enumerate(widths[1:], 1):
        if parts[-1] and first + sum(widths[each] + gap for each in parts[-1]) + needed + gap > width:
            parts.append([])
        parts[-1].append(place)
    return parts


def _fixed(table: Table, widths: Sequence[int], spare: int) -> Table:
    """Keep the columns of numbers from shrinking, and their names from wrapping where there is room."""
    for column, needed in zip(table.columns, widths, strict=True):
        if _is_numbers(column):
            wider = min(spare, max(0, cell_len(_plain(column.header)) - needed))
            column.no_wrap, column.width = False, needed + wider
            spare -= wider
    return table


def _columns(table: Table, part: Sequence[int], widths: Sequence[int], *, continued: bool) -> Table:
    from rich.table import Table

    title = _plain(table.title or "")
    head = Text(f"{title.splitlines()[0]}, continued") if continued and title else table.title
    shown = Table(title=head, title_justify="left", box=table.box, padding=table.padding)
    chosen = [0, *part]
    for place in chosen:
        column = table.columns[place]
        width = widths[place] if place else None
        shown.add_column(column.header, justify=column.justify, overflow="fold", width=width)
    for row, cells in zip(table.rows, _rows(table), strict=True):
        shown.add_row(*(cells[place] for place in chosen), end_section=row.end_section)
    return shown


def _as_list(table: Table) -> Table:
    from rich.table import Table

    shown = Table(title=table.title, title_justify="left", box=table.box, padding=(0, 1, 0, 0), show_header=False)
    shown.add_column("", overflow="fold")
    shown.add_column("", overflow="fold")
    heads = [_plain(column.header) for column in table.columns[1:]]
    for name, *cells in _rows(table):
        shown.add_row(Text(_plain(name).rstrip()), "")
        for head, cell in zip(heads, map(_plain, cells), strict=True):
            if cell.strip():
                shown.add_row(Text(f"    {head}"), Text(" ".join(cell.split())))
    return shown


def _rows(table: Table) -> Iterator[tuple[RenderableType, ...]]:
    return zip(*(column.cells for column in table.columns), strict=True)


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)
