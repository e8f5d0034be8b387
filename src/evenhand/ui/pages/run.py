"""A run's page: what it is and how far it is, and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenhand.core.format import plural, share
from evenhand.show.markup import Html, Node, tag
from evenhand.ui.index import Row
from evenhand.ui.pages.elements import cost, date, facts, link, problem, state


def head(row: Row, actions: Node = None) -> Html:
    """Return what is known before the report is computed."""
    links: list[Node] = [tag("a", "Samples", href=link("/samples", run=row.id), class_="button primary")]
    keys = [f"{row.id}::{arm.number}" for arm in row.arms]
    if len(keys) > 1:
        links.append(tag("a", "Answers side by side", href=link("/answers", arm=keys[:2]), class_="button"))
        links.append(tag("a", "Compare its arms", href=link("/compare", arm=keys), class_="button"))
    return tag(
        "section",
        tag("p", tag("a", "Runs", href="/"), _parents(row), class_="eyebrow"),
        tag("h1", row.name),
        facts(
            [
                ("Benchmark", tag("a", row.benchmark, href=link("/board", benchmark=row.benchmark))),
                ("Models", _models(row)),
                ("Arms", _arms(row)),
                ("State", state(row)),
                ("Begun", date(row.created)),
                ("Calls", f"{row.calls:,}"),
                ("Cost", cost(row.cost)),
            ]
        )
        if not row.fault
        else problem(row.fault),
        tag("div", links if not row.fault else None, actions, class_="row-of-buttons"),
        id="run",
    )


def report(found: Mapping[str, Any]) -> list[Html]:
    """Return the sections of the report, with links to them."""
    sections: Sequence[tuple[str, str, str]] = found["sections"]
    links = [tag("li", tag("a", title, href=f"#{name}")) for name, title, _ in sections]
    contents = tag("ul", links, class_="contents", aria_label="Sections of the report")
    return [tag("div", contents, class_="contents-box"), *(Html(html) for _, _, html in sections)]


def _parents(row: Row) -> list[Node]:
    return [" › ", tag("a", f"{row.group}/", href=link("/", folder=row.group))] if row.group else []


def _models(row: Row) -> list[Node]:
    found: list[Node] = []
    for model in row.models:
        found += [", " if found else "", tag("a", model, href=link("/history", model=model, benchmark=row.benchmark))]
    return found


def _arms(row: Row) -> Html:
    items = [
        tag(
            "li",
            f"{arm.label}: {arm.done:,} of {plural(arm.done + arm.pending, 'sample')} run",
            f", {share(arm.ungraded, arm.done)} without a grade" if arm.ungraded else "",
        )
        for arm in row.arms
    ]
    return tag("ul", items, class_="plain")
