"""The section on iterations: the headline, its guardrails and other followed metrics after each iteration."""

from __future__ import annotations

from collections.abc import Sequence

from evenhand.core.format import count, share
from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.elements import arm_name, estimate_cell, section, table
from evenhand.show.view import View, metric_hint, metric_title
from evenhand.studies.results import ArmResult, IterationResult, MetricInfo


def iterations(view: View) -> Html:
    """Return one row per arm and iteration."""
    lead = "Each row counts all samples of the arm after that iteration, including answers that were already final. "
    lead += "The last column is the share of samples that the method was still working on. A row “the end” is added "
    lead += "if the final answers differ from those of the last iteration."
    metrics = _metrics(view)
    head: list[Node] = ["Arm", "After", *([metric_title(m), _hint(metric_hint(m))] for m in metrics)]
    head.append("Worked on")
    rows: list[list[Node]] = []
    for arm in view.whole_arms:
        steps = [step for step in view.study.by_iteration if step.arm == arm.id]
        for i, step in enumerate(steps):
            name = "first answer" if step.iteration == 0 else f"revision {step.iteration}"
            rows.append([arm_name(view, arm) if i == 0 else None, name, *_cells(view, metrics, step), _reached(step)])
        if steps and any(_value(arm, metric) != _value(steps[-1], metric) for metric in metrics):
            # Some methods answer again after their last iteration, or return to a better answer.
            rows.append([None, "the end", *_cells(view, metrics, arm), None])
    return section("iterations", "By iteration", lead, table(head, rows, "By iteration", "numbers costs iterations"))


def _hint(text: str) -> Html | None:
    return tag("small", text) if text else None


def _metrics(view: View) -> list[MetricInfo]:
    """Return the headline, other followed metrics, and the guardrails."""
    headline, *guardrails = view.main_metrics
    steps = view.study.by_iteration
    others = [m for m in view.metrics if m not in view.main_metrics]
    return [headline, *(m for m in others if any(step.estimate(m.name) for step in steps)), *guardrails]


def _value(of: ArmResult | IterationResult, metric: MetricInfo) -> float | None:
    estimate = of.estimate(metric.name)
    return None if estimate is None else estimate.value


def _cells(view: View, metrics: Sequence[MetricInfo], of: ArmResult | IterationResult) -> list[Html]:
    return [estimate_cell(of.estimate(metric.name), view.digits[metric.name]) for metric in metrics]


def _reached(step: IterationResult) -> Html:
    return tag(
        "span",
        tag("span", share(step.reached, step.of), class_="value"),
        tag("span", f"{count(step.reached)} of {count(step.of)}", class_="n"),
        class_="estimate",
    )
