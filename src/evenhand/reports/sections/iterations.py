"""How the answers changed on the way: the headline and its guardrails after each iteration of a method."""

from __future__ import annotations

from evenhand.reports.format import count, share
from evenhand.reports.markup import Html, Node, tag
from evenhand.reports.sections.parts import arm_name, estimate_cell, section, table
from evenhand.reports.view import View, metric_hint, metric_title
from evenhand.runs.results import ArmResult, IterationResult


def iterations(view: View) -> Html:
    """One row per arm and iteration."""
    lead = "Each row is the whole arm as it stood after that iteration: answers that were final by then count on. "
    lead += "The last column says how many samples the method was still working on."
    head: list[Node] = ["Arm", "After", *([metric_title(m), _hint(metric_hint(m))] for m in view.main_metrics)]
    head.append("Worked on")
    rows: list[list[Node]] = []
    for arm in view.whole_arms:
        steps = [step for step in view.study.by_iteration if step.arm == arm.id]
        rows += [_row(view, arm if i == 0 else None, step) for i, step in enumerate(steps)]
    return section("iterations", "By iteration", lead, table(head, rows, "By iteration", "numbers costs iterations"))


def _hint(text: str) -> Html | None:
    return tag("small", text) if text else None


def _row(view: View, arm: ArmResult | None, step: IterationResult) -> list[Node]:
    name = "first answer" if step.iteration == 0 else f"revision {step.iteration}"
    cells = [estimate_cell(step.estimate(metric.name), view.digits[metric.name]) for metric in view.main_metrics]
    reached = tag(
        "span",
        tag("span", share(step.reached, step.of), class_="value"),
        tag("span", f"{count(step.reached)} of {count(step.of)}", class_="n"),
        class_="estimate",
    )
    return [arm_name(view, arm) if arm else None, name, *cells, reached]
