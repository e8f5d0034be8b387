"""Prints findings, and tables in the width of the terminal, so that a number is never cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evenhand.show.markup import clean
from evenhand.show.table import Column, Table, text_of
from evenhand.show.view import about_lead, example_text, look_of
from evenhand.studies.results import StudyResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as Printed
    from rich.text import Text

_FOLDED = 14
"""Columns of text may be folded to this width."""
_GAP = 2
"""Spaces between columns."""


def print_table(table: Table, console: Console | None = None) -> None:
    """Print a table in the width of the console, by default that of standard output."""
    from rich.console import Console

    console = console or Console()
    for part in fitted(table, console.width):
        console.print(part)


def print_findings(console: Console, study: StudyResult) -> None:
    """Print what was found, what the first finding's metric means, and the caveats."""
    from rich.text import Text

    for place, finding in enumerate(study.findings):
        colour = {"worse": "red", "better": "green"}.get(look_of(finding.verdict), "")
        said = Text(f"{finding.symbol} {finding.word}: ", style=f"bold {colour}".strip())
        said.append(clean(f"{finding.text}."), style="bold" if place == 0 else "not bold")
        console.print(said)
        if finding.detail:
            _print_below(console, finding.detail)
        if place == 0:
            _print_meaning(console, study)
    for caveat in study.caveats:
        console.print(safe_text(f"! {caveat}"), style="bold")


def _print_meaning(console: Console, study: StudyResult) -> None:
    example = study.example
    if about := about_lead(study):
        _print_below(console, about)
    if example is not None and not example.may_offend:
        _print_below(console, example_text(example))


def _print_below(console: Console, text: str) -> None:
    from rich.padding import Padding

    console.print(Padding(safe_text(text), (0, 0, 0, 2)), style="dim")


def safe_text(text: str) -> Text:
    """Return literal text: no markup, no control characters that a terminal would execute."""
    from rich.text import Text

    return Text(clean(text))


def fitted(table: Table, width: int) -> list[Printed]:
    """Return the table with columns of numbers that do not shrink; if it is wider than `width`, in another form.

    Columns of numbers are split into several tables, with the first column in each. A table that has other text is
    turned into a list: every row is its first cell and, below it, the other cells beside the names of their columns.
    """
    plain = _plain(table)
    widths = [_least(plain, place) for place in range(len(plain.columns))]
    parts = _packed(widths, width)
    if len(parts) == 1:
        return [_printed(plain, _wider(plain, widths, width - sum(each + _GAP for each in widths) - 1))]
    alone = len(parts) == len(widths) - 1 and not table.narrow
    if alone or not all(column.numeric for column in plain.columns[1:]):
        return [_printed(_as_list(plain), [None, None])]
    return [
        _printed(_part(plain, part, continued=number > 0), [None, *(widths[place] for place in part)])
        for number, part in enumerate(parts)
    ]


def _plain(table: Table) -> Table:
    """The same table in plain text, with the titles that the terminal shows."""
    gap = "\n" if table.narrow else " "
    rows = [[clean(text_of(cell, gap, "\n")) for cell in row] for row in table.rows]
    rows = [[*row, *[""] * (len(table.columns) - len(row))] for row in rows]
    titles = [clean(column.short or column.title) for column in table.columns]
    named = [
        replace(column, title=f"{clean(column.over)}\n{title}" if column.over else title)
        for column, title in zip(table.columns, titles, strict=True)
    ]
    return replace(table, title=clean(table.title), columns=named, rows=rows)


def _length(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _least(table: Table, place: int) -> int:
    """Return the smallest width: that of the longest line of numbers, or of the longest word of other text."""
    column = table.columns[place]
    head = max(map(_length, column.title.split()), default=0)
    lines = [line for cell in [text_of(row[place]) for row in table.rows] for line in cell.splitlines()]
    if column.numeric:
        return max([head, *map(_length, lines)])
    words = [word for line in lines for word in line.split()]
    return min(_FOLDED, max([head, *map(_length, words)]))


def _packed(widths: Sequence[int], width: int) -> list[list[int]]:
    """Split the columns after the first into as few parts as possible, each with at least one."""
    first = widths[0] + _GAP + 1
    parts: list[list[int]] = [[]]
    for place, needed in enumerate(widths[1:], 1):
        if parts[-1] and first + sum(widths[each] + _GAP for each in parts[-1]) + needed + _GAP > width:
            parts.append([])
        parts[-1].append(place)
    return parts


def _wider(table: Table, widths: Sequence[int], spare: int) -> list[int | None]:
    """Keep the columns of numbers from shrinking, and their names from wrapping where there is room."""
    found: list[int | None] = []
    for column, needed in zip(table.columns, widths, strict=True):
        title = max(map(_length, column.title.splitlines()), default=0)
        more = min(spare, max(0, title - needed)) if column.numeric else 0
        spare -= more
        found.append(needed + more if column.numeric else None)
    return found


def _part(table: Table, part: Sequence[int], *, continued: bool) -> Table:
    title = f"{table.title.splitlines()[0]}, continued" if continued and table.title else table.title
    return replace(table.only([0, *part]), title=title)


def _as_list(table: Table) -> Table:
    rows: list[list[str]] = []
    for name, *cells in ([text_of(cell) for cell in row] for row in table.rows):
        rows.append([name.rstrip(), ""])
        for column, cell in zip(table.columns[1:], cells, strict=True):
            if cell.strip():
                rows.append([f"    {' '.join(column.title.split())}", " ".join(cell.split())])
    return replace(table, columns=[Column(""), Column("")], rows=rows, ends=(), headless=True)


def _printed(table: Table, widths: Sequence[int | None]) -> Printed:
    from rich import box
    from rich.table import Table as Printed
    from rich.text import Text

    shown = Printed(
        title=Text(table.title) if table.title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_header=not table.headless,
    )
    for column, width in zip(table.columns, widths, strict=True):
        justify = "right" if column.numeric else "left"
        shown.add_column(Text(column.title), justify=justify, overflow="fold", width=width)
    for place, row in enumerate(table.rows):
        shown.add_row(*(Text(text_of(cell)) for cell in row), end_section=place in table.ends)
    return shown
