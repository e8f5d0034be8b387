"""The page of a suite as one HTML file: each area with what was found, how sure that is, and a link to its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenhand.core.format import count, duration, money, plural
from evenhand.core.types import Usage
from evenhand.show.markup import tag
from evenhand.show.page import Page, Part, footnote, opening, section
from evenhand.show.table import Cell, Table, columns, html_of

if TYPE_CHECKING:
    from evenhand.suite import AreaResult, SuiteResult

NO_TOTAL = "Areas have scales of their own, so that their numbers cannot be compared or averaged."


def suite_page(result: SuiteResult) -> Page:
    """Return the page."""
    title = f"Suite {result.name}: {result.model}" if result.model else f"Suite {result.name}"
    lead = f"{NO_TOTAL} In brackets: 95 % intervals. In all: {sum_of(result)}."
    first = opening(title, "one model in many areas", tag("p", lead, class_="lead"), html_of(areas_table(result)))
    return Page(title, [first, _missing(result)])


def areas_table(result: SuiteResult) -> Table:
    """Return each area with what was found, for the page and for the terminal."""
    rows = [
        [Cell(row.area, href=f"{row.folder.name}/report.html"), _found(row), row.how_sure, cost(row)]
        for row in result.rows
    ]
    title = f"Suite {result.name}: {result.model}"
    return Table(title, columns("Area", "Found", "How sure", "Cost", words=4), rows, ends=range(len(rows)))


def _found(row: AreaResult) -> Cell:
    """Return what was found; the page also says what was asked, and gives details."""
    more = footnote(row.details) if row.details else None
    return Cell(row.found, html=[tag("em", row.asks), tag("p", row.found), more])


def cost(row: AreaResult) -> str:
    """Calls, money and time, in a few words."""
    return f"{plural(row.usage.calls, 'call')}, {money(row.usage.cost)}, {duration(row.seconds)}"


def sum_of(result: SuiteResult) -> str:
    """The cost of all areas, in a few words."""
    total = sum((row.usage for row in result.rows), Usage())
    seconds = duration(sum(row.seconds for row in result.rows))
    return f"{plural(total.calls, 'call')}, {count(total.tokens)} tokens, {money(total.cost)}, {seconds}"


def _missing(result: SuiteResult) -> Part | None:
    if not result.missing:
        return None
    rows = [[each.area, each.asks, each.reason] for each in result.missing]
    table = Table("Not measured", columns("Area", "What it asks", "Why not", words=3), rows)
    return Part("missing", "Not measured", section("missing", "Not measured", None, html_of(table)))
