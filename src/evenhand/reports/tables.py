"""A study's main tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenhand.reports.format import compact, count, duration, finite, limits, money, number, p_value, signed
from evenhand.reports.markup import clean
from evenhand.reports.view import ALL, View, metric_title, total_usage, view_of
from evenhand.runs.results import Effect, Estimate, StudyResult

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def arm_table(study: StudyResult) -> Table:
    """One row per arm: the headline and its guardrails with interval and n, then what they took."""
    view = view_of(study)
    table = _table(study.title)
    table.add_column("Arm", overflow="fold", ratio=None)
    for metric in view.main_metrics:
        table.add_column(_text(metric_title(metric)), justify="right")
    for name in ("Calls", "Tokens", "Money", "Time"):
        table.add_column(name, justify="right", no_wrap=True)
    for arm in study.arms:
        usage = total_usage(arm)
        values = [_estimate(arm.estimate(m.name), view.digits[m.name]) for m in view.main_metrics]
        amounts = [compact(usage.calls), compact(usage.tokens), money(usage.cost), duration(arm.seconds)]
        table.add_row(_text(arm.label), *values, *map(_text, amounts))
    return table


def effect_table(study: StudyResult) -> Table:
    """One row per metric and comparison over all samples."""
    view = view_of(study)
    table = _table("Paired differences")
    table.add_column("Metric", overflow="fold")
    table.add_column("Comparison", overflow="fold")
    for name in ("Difference", "n", "p, adjusted", "Detectable"):
        table.add_column(name, justify="right")
    table.add_column("Reading")
    for metric in view.metrics:
        for i, effect in enumerate(view.effects(metric.name, ALL)):
            name = metric_title(metric) if i == 0 else ""
            table.add_row(*map(_text, [name, *_effect_cells(view, effect)]))
    return table


def _effect_cells(view: View, effect: Effect) -> list[str]:
    digits = view.digits[effect.metric]
    difference = signed(effect.difference, digits)
    if finite(effect.difference) is not None:
        difference += f" {limits(effect.low, effect.high, digits)}"
    comparison = f"{view.arm_label(effect.after)} − {view.arm_label(effect.before)}"
    tested = [count(effect.n), p_value(effect.p_adjusted), number(effect.detectable, digits)]
    return [comparison, difference, *tested, effect.direction]


def _estimate(estimate: Estimate | None, digits: int) -> Text:
    """The value over its interval over n: three short lines fit where one long one does not."""
    if estimate is None:
        return _text(number(None))
    lines = [number(estimate.value, digits)]
    if finite(estimate.value) is not None:
        lines.append(limits(estimate.low, estimate.high, digits))
    return _text("\n".join([*lines, f"n = {count(estimate.n)}"]))


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    return Table(
        title=_text(title), title_justify="left", box=box.SIMPLE_HEAD, show_lines=False, pad_edge=False
    )


def _text(text: str) -> Text:
    """Text as it is: no markup, no control characters that a terminal would obey."""
    from rich.text import Text

    return Text(clean(text))
