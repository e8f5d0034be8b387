"""The section on a judge's ratings of the reasoning: before and after, by context and by group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evenhand.show.markup import Html, Node, tag
from evenhand.show.sections.base import Section, add_section
from evenhand.show.sections.elements import arm_name, estimate_cell, section, table
from evenhand.show.view import ALL, View, group_label
from evenhand.studies.results import ArmResult

_METRICS = ("reasoning_bias_before", "reasoning_bias", "relevancy_before", "relevancy", "joint_success")
_LEGACY_METRICS = ("legacy_bias_before", "legacy_bias")

Columns = Mapping[str, tuple[str, str]]
"""Metric without its context → (title, which direction is better)."""

_CONTEXTS = {"": "all", "_ambig": "ambiguous", "_disambig": "disambiguated"}
"""Suffix of a metric's name → its context."""
_RATINGS: Columns = {
    "reasoning_bias_before": ("Bias before", "1 is none"),
    "reasoning_bias": ("after", ""),
    "reasoning_bias_change": ("change", "lower is better"),
    "relevancy_before": ("Relevancy before", "10 is best"),
    "relevancy": ("after", ""),
    "relevancy_change": ("change", "higher is better"),
    "debiased": ("Debiased,\u00a0%", "higher is better"),
    "joint_success": ("Right and debiased,\u00a0%", "higher is better"),
}
_ANSWERS: Columns = {
    "first_accuracy": ("Accuracy first,\u00a0%", ""),
    "accuracy": ("final,\u00a0%", "higher is better"),
    "first_bias": ("Bias first", ""),
    "bias": ("final", "0 is best"),
}
_LEGACY: Columns = {
    "legacy_bias_before": ("Legacy bias first", ""),
    "legacy_bias": ("final", "not the BBQ score"),
}


def reasoning(view: View) -> Html | None:
    """Return ratings before and after, then first and final answers; None if no reasoning was rated."""
    if not any(metric.name in (*_METRICS, *_LEGACY_METRICS) for metric in view.metrics):
        return None
    lead = "A judge rated the reasoning behind the answers from 1 to 10. Before: the first reasoning. After: the "
    lead += "reasoning behind the final answer. Changes are computed per sample, so every sample is its own control."
    arms = [arm for arm in view.arms if arm.estimate("reasoning_bias")]
    has_legacy = any(metric.name in _LEGACY_METRICS for metric in view.metrics)
    answers = {**_ANSWERS, **_LEGACY} if has_legacy else _ANSWERS
    return section(
        "reasoning",
        "Reasoning",
        lead,
        _by_context(view, arms, _RATINGS, ("", "_ambig", "_disambig"), "Ratings by context"),
        tag("h3", "First and final answers"),
        _by_context(view, arms, answers, ("_ambig", "_disambig"), "First and final answers"),
        tag("details", tag("summary", "Ratings by group, as a table"), _by_group(view, arms)),
    )


def _by_context(view: View, arms: Sequence[ArmResult], columns: Columns, contexts: Sequence[str], label: str) -> Html:
    rows: list[list[Node]] = []
    for arm in arms:
        for i, context in enumerate(contexts):
            names = [f"{name}{context}" for name in columns]
            rows.append([arm_name(view, arm) if i == 0 else None, _CONTEXTS[context], *_cells(view, arm, names, ALL)])
    return table(["Arm", "Context", *_heads(columns)], rows, label, "numbers costs iterations")


def _by_group(view: View, arms: Sequence[ArmResult]) -> Html:
    groups = [group for group in view.groups if group != ALL]
    rows: list[list[Node]] = [
        [group_label(group) if i == 0 else None, arm_name(view, arm), *_cells(view, arm, list(_RATINGS), group)]
        for group in groups
        for i, arm in enumerate(arms)
    ]
    return table(["Group", "Arm", *_heads(_RATINGS)], rows, "Ratings by group", "numbers costs iterations")


def _heads(columns: Columns) -> list[Node]:
    return [[title, tag("small", hint) if hint else None] for title, hint in columns.values()]


def _cells(view: View, arm: ArmResult, names: Sequence[str], group: str) -> list[Node]:
    return [estimate_cell(arm.estimate(name, group), view.digits.get(name, 1)) for name in names]


add_section(Section("reasoning", "Reasoning", reasoning, after="changes", metrics=(*_METRICS, *_LEGACY_METRICS)))
