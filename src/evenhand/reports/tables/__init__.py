"""A study's main tables for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from evenhand.reports.format import count, duration, finite, limits, money, number, p_value, signed
from evenhand.reports.markup import clean
from evenhand.reports.sections.base import sections_of
from evenhand.reports.view import ALL, View, finished, metric_title, requests_per_sample, total_usage, view_of
from evenhand.studies.results import ArmResult, Effect, Estimate, StudyResult

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_SIDE_BY_SIDE = 3
"""With more arms than this the interval goes under the value, to save width."""


_AMOUNTS: Mapping[str, Callable[[ArmResult], str]] = {
    "Calls": lambda arm: count(total_usage(arm).calls),
    "Requests per sample": lambda arm: requests_per_sample(total_usage(arm), finished(arm)),
    "Tokens": lambda arm: count(total_usage(arm).tokens),
    "Money": lambda arm: money(total_usage(arm).cost),
    "Time": lambda arm: duration(arm.seconds),
}


def arm_table(study: StudyResult) -> Table:
    """One column per arm: the headline and its guardrails with interval and n, metrics of sections, and cost."""
    view = view_of(study)
    table = plain_table(study.title)
    table.add_column("", overflow="fold")
    for arm in study.arms:
        table.add_column(safe_text(arm.label), justify="right", overflow="fold")
    gap = " " if len(study.arms) <= _SIDE_BY_SIDE else "\n"
    named = [name for section in sections_of(study) for name in section.metrics]
    for metrics in (view.main_metrics, [metric for metric in view.metrics if metric.name in named]):
        for metric in metrics:
            digits = view.digits[metric.name]
            cells = [_estimate(arm.estimate(metric.name), digits, gap) for arm in study.arms]
            table.add_row(safe_text(metric_title(metric)), *cells)
        table.add_section()
    for name, amount in _AMOUNTS.items():
        # What an iteration took is part of what its arm took.
        table.add_row(name, *(safe_text(amount(arm) if arm.iteration is None else "") for arm in study.arms))
    return table


def effect_table(study: StudyResult) -> Table:
    """One row per metric and comparison over all samples."""
    view = view_of(study)
    baselines = {effect.before for effect in study.effects}
    against = f" against {view.arm_label(baselines.pop())}" if len(baselines) == 1 else ""
    table = plain_table(f"Paired differences{against}")
    table.add_column("", overflow="fold")
    for name in ("Difference", "n", "p, adj.", "Detectable"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Reading", no_wrap=True)
    for metric in view.metrics:
        effects = view.effects(metric.name, ALL)
        if effects:
            table.add_row(safe_text(metric_title(metric)))
        for effect in effects:
            table.add_row(*map(safe_text, _effect_cells(view, effect, against=not against)))
    return table


def _effect_cells(view: View, effect: Effect, *, against: bool) -> list[str]:
    digits = view.digits[effect.metric]
    difference = signed(effect.difference, digits)
    if finite(effect.difference) is not None:
        difference += f" {limits(effect.low, effect.high, digits)}"
    arms = view.arm_label(effect.after) + (f" − {view.arm_label(effect.before)}" if against else "")
    tested = [count(effect.n), p_value(effect.p_adjusted), number(effect.detectable, digits)]
    return ["  " + arms, difference, *tested, effect.direction]


def _estimate(estimate: Estimate | None, digits: int, gap: str) -> Text:
    """The value, its interval, and n on a line of its own."""
    if estimate is None:
        return safe_text(number(None))
    value = number(estimate.value, digits)
    if finite(estimate.value) is not None:
        value += gap + limits(estimate.low, estimate.high, digits)
    return safe_text(f"{value}\nn = {count(estimate.n)}")


def plain_table(title: str) -> Table:
    """A table in the house's form."""
    from rich import box
    from rich.table import Table

    return Table(title=safe_text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def safe_text(text: str) -> Text:
    """Text as it is: no markup, no control characters that a terminal would obey."""
    from rich.text import Text

    return Text(clean(text))
