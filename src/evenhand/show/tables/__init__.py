"""The main terminal tables of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from evenhand.core.format import count, duration, finite, limits, money, number, p_value, signed
from evenhand.show.markup import clean
from evenhand.show.sections.base import sections_of
from evenhand.show.view import ALL, View, finished, metric_title, requests_per_sample, total_usage, view_of
from evenhand.studies.results import ArmResult, Effect, Estimate, StudyResult, few_clusters, size

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_SIDE_BY_SIDE = 3
"""Up to this many arms, the interval stands beside the value; with more, below it."""
_LONGEST_NAME = 24
"""With longer labels, arms are numbered and the title lists them."""


_AMOUNTS: Mapping[str, Callable[[ArmResult], str]] = {
    "Calls": lambda arm: count(total_usage(arm).calls),
    "Requests per sample": lambda arm: requests_per_sample(total_usage(arm), finished(arm)),
    "Tokens": lambda arm: count(total_usage(arm).tokens),
    "Money": lambda arm: money(total_usage(arm).cost),
    "Time": lambda arm: duration(arm.seconds),
}


def arm_table(study: StudyResult) -> Table:
    """Return one column per arm: headline and guardrails with interval and n, metrics of sections, and cost."""
    view = view_of(study)
    names = short_names(study)
    legend = [f"{names[arm.id]} {arm.label}" for arm in study.arms if names[arm.id] != arm.label]
    table = plain_table("\n".join([study.benchmark, *legend]) if legend else study.title)
    table.add_column("", overflow="fold")
    for arm in study.arms:
        table.add_column(safe_text(names[arm.id]), justify="right", overflow="fold")
    gap = " " if len(study.arms) <= _SIDE_BY_SIDE else "\n"
    named = [name for section in sections_of(study) for name in section.metrics]
    for metrics in (view.main_metrics, [metric for metric in view.metrics if metric.name in named]):
        for metric in metrics:
            digits = view.digits[metric.name]
            cells = [_estimate(arm.estimate(metric.name), digits, gap) for arm in study.arms]
            table.add_row(safe_text(metric_title(metric)), *cells)
        table.add_section()
    for name, amount in _AMOUNTS.items():
        # The usage of a single iteration is part of its arm's usage.
        table.add_row(name, *(safe_text(amount(arm) if arm.iteration is None else "") for arm in study.arms))
    return table


def short_names(study: StudyResult) -> dict[str, str]:
    """Return a name for each arm that fits a column: its label, or a number if there are long labels."""
    if len(study.arms) < 2 or all(len(arm.label) <= _LONGEST_NAME for arm in study.arms):
        return {arm.id: arm.label for arm in study.arms}
    return {arm.id: f"#{number}" for number, arm in enumerate(study.arms, 1)}


def effect_table(study: StudyResult) -> Table:
    """Return one row per metric and comparison over all samples."""
    view = view_of(study)
    names = short_names(study)
    baselines = {effect.before for effect in study.effects}
    baseline = f" from {names[baselines.pop()]}" if len(baselines) == 1 else ""
    table = plain_table(f"Paired differences{baseline}")
    table.add_column("", overflow="fold")
    for name in ("Difference", "n", "p, adj.", "Detectable"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Result", no_wrap=True)
    for metric in view.metrics:
        effects = view.effects(metric.name, ALL)
        if effects:
            table.add_row(safe_text(metric_title(metric)))
        for effect in effects:
            table.add_row(*map(safe_text, _effect_cells(view, names, effect, name_baseline=not baseline)))
    return table


def _effect_cells(view: View, names: Mapping[str, str], effect: Effect, *, name_baseline: bool) -> list[str]:
    digits = view.digits[effect.metric]
    difference = signed(effect.difference, digits)
    if finite(effect.difference) is not None:
        difference += f" {limits(effect.low, effect.high, digits)}"
    arms = names[effect.after] + (f" − {names[effect.before]}" if name_baseline else "")
    tested = [count(effect.n) + few_clusters(effect), p_value(effect.p_adjusted), number(effect.detectable, digits)]
    return ["  " + arms, difference, *tested, effect.direction]


def _estimate(estimate: Estimate | None, digits: int, gap: str) -> Text:
    """Return the value with its interval, and n on a separate line."""
    if estimate is None:
        return safe_text(number(None))
    if estimate.as_count is not None:
        return safe_text(estimate.as_count)
    value = number(estimate.value, digits)
    if finite(estimate.value) is not None:
        value += gap + limits(estimate.low, estimate.high, digits)
    lines = size(estimate).replace(", ", "\n")
    return safe_text(f"{value}\n{lines}")


def plain_table(title: str) -> Table:
    """Return an empty table in the common style."""
    from rich import box
    from rich.table import Table

    return Table(title=safe_text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def safe_text(text: str) -> Text:
    """Return literal text: no markup, no control characters that a terminal would execute."""
    from rich.text import Text

    return Text(clean(text))
