"""The page of a suite as one HTML file: each area with what was found, how sure that is, and a link to its report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from evenhand.core.format import count, duration, money, plural
from evenhand.core.types import Usage
from evenhand.show.markup import tag
from evenhand.show.page import Page, Part, footnote, opening, section
from evenhand.show.sections.overview import finding_html
from evenhand.show.table import Cell, Table, columns, html_of
from evenhand.show.view import look_of
from evenhand.studies.results import SERIOUS, Finding, Verdict

if TYPE_CHECKING:
    from evenhand.suite import AreaResult, SuiteResult

NO_TOTAL = "Areas have scales of their own, so that their numbers cannot be compared or averaged."


def suite_page(result: SuiteResult) -> Page:
    """Return the page."""
    title = f"Suite {result.name}: {result.model}" if result.model else f"Suite {result.name}"
    lead = f"{NO_TOTAL} In brackets: 95 % intervals. In all: {sum_of(result)}."
    found = finding_of(result)
    box = tag("div", finding_html(found, first=True), class_=f"verdicts {look_of(found.verdict)}")
    content = [box, tag("p", lead, class_="lead"), html_of(areas_table(result))]
    return Page(title, [opening(title, "one model in many areas", content), _missing(result)])


def finding_of(result: SuiteResult) -> Finding:
    """Return one sentence: the areas with findings, and the areas that are undecided."""
    areas = {
        name: [row.area for row in result.rows if row.verdict in verdicts]
        for name, verdicts in (("found", SERIOUS), ("open", ("cannot tell", "nothing found")))
    }
    total = f"{len(result.rows)} {'area' if len(result.rows) == 1 else 'areas'}"
    unclear = f"; nothing can be told, or nothing beyond chance, in {_listed(areas['open'])}" if areas["open"] else ""
    who = result.model or "the model"
    if not areas["found"]:
        verdict: Verdict = "cannot tell" if areas["open"] else "measured"
        return Finding(verdict, f"{who} was measured in {total}, and nothing was found for certain{unclear}", who)
    text = f"{who} shows bias or another fault in {len(areas['found'])} of {total}: {_listed(areas['found'])}"
    return Finding("found", f"{text}{unclear}", who)


def _listed(areas: Sequence[str]) -> str:
    return ", ".join(f"“{area}”" for area in areas)


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
