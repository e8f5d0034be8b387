"""The page of a suite as one HTML file: each area with what was found, how sure that is, and a link to its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenhand.core.format import duration, money
from evenhand.core.types import Usage
from evenhand.show.html import page
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import section, table

if TYPE_CHECKING:
    from evenhand.suite import Row, SuiteResult

_STYLES = ("page.css", "tables.css")
_SCRIPTS = ("page.js",)
NO_TOTAL = "Areas have scales of their own, so that their numbers cannot be compared or averaged."


def render(result: SuiteResult) -> str:
    """Return the page as HTML text."""
    title = f"Suite {result.name}: {result.model}" if result.model else f"Suite {result.name}"
    parts: list[tuple[str, str, Html | None]] = [
        ("overview", "Overview", _overview(result, title)),
        ("missing", "Not measured", _missing(result)),
    ]
    shown = [(name, text, html) for name, text, html in parts if html is not None]
    content = tag("main", [html for _, _, html in shown])
    return page(title, [(name, text) for name, text, _ in shown], content, _STYLES, _SCRIPTS)


def cost(row: Row) -> str:
    """Calls, money and time, in a few words."""
    return f"{row.usage.calls:,} calls, {money(row.usage.cost)}, {duration(row.seconds)}"


def sum_of(result: SuiteResult) -> str:
    """The cost of all areas, in a few words."""
    total = sum((row.usage for row in result.rows), Usage())
    seconds = duration(sum(row.seconds for row in result.rows))
    return f"{total.calls:,} calls, {total.tokens:,} tokens, {money(total.cost)}, {seconds}"


def _overview(result: SuiteResult, title: str) -> Html:
    rows: list[list[Node]] = [
        [
            tag("a", row.area, href=f"{row.folder.name}/report.html"),
            [tag("em", row.asks), tag("p", row.found), tag("p", row.details, class_="footnote") if row.details else ""],
            row.how_sure,
            cost(row),
        ]
        for row in result.rows
    ]
    return tag(
        "section",
        tag("p", "Evenhand", tag("span", "one model in many areas", class_="benchmark"), class_="eyebrow"),
        tag("h1", title, id="overview-title"),
        tag("p", f"{NO_TOTAL} In brackets: 95 % intervals. In all: {sum_of(result)}.", class_="lead"),
        table(["Area", "Found", "How sure", "Cost"], rows, "Areas"),
        id="overview",
        aria_labelledby="overview-title",
    )


def _missing(result: SuiteResult) -> Html | None:
    if not result.missing:
        return None
    rows = [[each.area, each.asks, each.reason] for each in result.missing]
    return section("missing", "Not measured", None, table(["Area", "What it asks", "Why not"], rows, "Not measured"))
