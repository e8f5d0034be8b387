"""A comparison of chosen arms, from one run or several of the same benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.format import plural
from evenhand.show.markup import Html, Node, tag
from evenhand.ui.index import Chosen
from evenhand.ui.pages.elements import arm_mark, link, problem, run_link, select

MOST = 12
"""Arms in one comparison."""


def head(chosen: Sequence[Chosen], others: Sequence[Chosen], baseline: str, fault: str = "") -> Html:
    """Return the chosen arms, with what can be added and the baseline; the statistics come below."""
    keys = [each.key for each in chosen]
    items = [
        tag(
            "li",
            arm_mark(i, each.arm.label),
            " ",
            run_link(each.row),
            " ",
            tag(
                "a",
                "remove",
                href=link("/compare", arm=[key for key in keys if key != each.key], baseline=baseline),
                aria_label=f"Remove {each.label}",
            ),
        )
        for i, each in enumerate(chosen)
    ]
    hidden = [tag("input", type="hidden", name="arm", value=key) for key in keys]
    options = [(each.key, each.label) for each in chosen]
    form: Node = (
        tag(
            "form",
            hidden,
            select("arm", "Add an arm", [(each.key, each.label) for each in others], "", every="–") if others else None,
            select("baseline", "Compare with", options, baseline, every="the first default"),
            tag("button", "Compare", type="submit", class_="primary"),
            class_="filters",
            action="/compare",
            method="get",
            aria_label="Change the comparison",
        )
        if chosen
        else None
    )
    answers = tag("a", "Answers side by side", href=link("/answers", arm=keys[:2]), class_="button")
    return tag(
        "section",
        tag("h1", "Comparison"),
        tag(
            "p",
            f"{plural(len(chosen), 'arm')}, paired on the samples that they share, as by ",
            tag("code", "evenhand compare"),
            ".",
            class_="sentence",
        ),
        tag("ul", items, class_="plain chosen-arms"),
        problem(fault) if fault else None,
        form,
        tag("div", answers, class_="row-of-buttons") if len(chosen) > 1 and not fault else None,
        id="compare",
    )


def fault_of(chosen: Sequence[Chosen]) -> str:
    """Say why these arms cannot be compared; "" if they can."""
    if len(chosen) < 2:
        return "Choose at least two arms on the page Runs, or add one here."
    if len(chosen) > MOST:
        return f"Choose at most {MOST} arms; these are {len(chosen)}."
    if len({each.row.benchmark for each in chosen}) > 1:
        return "These arms are of different benchmarks, whose numbers cannot be compared."
    return ""
