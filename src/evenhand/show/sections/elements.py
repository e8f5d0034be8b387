"""Page elements shared by several sections: headings, tables, cells and chart lanes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evenhand.core.format import DASH, finite, limits, money, number
from evenhand.show.charts import FEW, Lane, legend_mark
from evenhand.show.charts.scatter import Point
from evenhand.show.markup import Html, Node, join, tag
from evenhand.show.view import View
from evenhand.studies.results import ArmResult, Effect, Estimate, estimate_text, size

NO_PRICE = "The price of some of these calls is unknown."


def section(name: str, title: str, lead: Node, *content: Node, is_open: bool = True) -> Html:
    """Return a section that folds under its heading; the script closes all sections on narrow screens."""
    heading = f"{name}-title"
    return tag(
        "section",
        tag(
            "details",
            tag("summary", tag("h2", title, id=heading)),
            tag("p", lead, class_="lead") if lead else None,
            content,
            class_="fold",
            open=is_open,
        ),
        id=name,
        aria_labelledby=heading,
    )


def nothing(text: str) -> Html:
    """Return the notice shown if a section has no data."""
    return tag("p", text, class_="nothing")


def arm_name(view: View, arm: ArmResult) -> Html:
    """Return an arm's mark and label."""
    return tag("span", legend_mark(view.arm_index(arm.id)), tag("span", arm.label), class_="arm")


def legend(view: View) -> Html:
    """List all arms in one line."""
    return tag("ul", [tag("li", arm_name(view, arm)) for arm in view.arms], class_="legend", aria_label="Arms")


def estimate_cell(estimate: Estimate | None, digits: int) -> Html:
    """Return a value above its interval and n; a dash if undefined."""
    if estimate is None:
        return tag("span", DASH, class_="value undefined")
    if estimate.as_count is not None:
        return tag("span", tag("span", estimate.as_count, class_="value"), class_="estimate")
    lines: list[Node] = [tag("span", number(estimate.value, digits), class_="value")]
    if finite(estimate.value) is not None and finite(estimate.low) is not None:
        lines.append(tag("span", limits(estimate.low, estimate.high, digits), class_="limits"))
    return tag("span", lines, size_lines(estimate), class_="estimate")


def size_lines(of: Estimate | Effect) -> list[Node]:
    """Return n, and below it the clusters if these are few."""
    return [tag("span", text, class_="n") for text in size(of).split(", ")]


def money_cell(cost: float | None) -> Html:
    """Return the cost, or a dash with an explanation."""
    return tag("abbr", DASH, title=NO_PRICE) if finite(cost) is None else join(money(cost))


def lane_for(view: View, arm: ArmResult, metric: str, group: str) -> Lane:
    """Return an arm's estimate as a chart lane."""
    estimate = arm.estimate(metric, group)
    text = f"{arm.label}: {estimate_text(estimate, view.digits[metric])}"
    index = view.arm_index(arm.id)
    if estimate is None:
        return Lane(index, None, None, None, 0, text)
    return Lane(index, estimate.value, estimate.low, estimate.high, estimate.n, text)


def few_note(estimates: Iterable[Lane | Point]) -> Html | None:
    """Explain hollow marks, if there are any."""
    if not any(each.is_small for each in estimates):
        return None
    return tag("p", f"Hollow marks: n is below {FEW}, too few to draw an interval.", class_="footnote")


def table(head: Sequence[Node], rows: Iterable[Sequence[Node]], label: str, class_: str = "") -> Html:
    """Return a table with row headers in its first column, in a box that scrolls if it is too wide."""
    header = tag("tr", [tag("th", cell, scope="col") for cell in head])
    body = [tag("tr", tag("th", row[0], scope="row"), [tag("td", cell) for cell in row[1:]]) for row in rows]
    return scrolling(tag("table", tag("thead", header), tag("tbody", body), class_=class_ or None), label)


def scrolling(content: Node, label: str) -> Html:
    """Return a box that scrolls sideways, also by keyboard, so that the page itself never does."""
    return tag("div", content, class_="scroll", tabindex=0, role="region", aria_label=label)
