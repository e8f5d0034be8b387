"""A study's main tables for the terminal."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from evenhand.reports.format import compact, count, finite, limits, money, number, p_value, signed
from evenhand.reports.markup import clean
from evenhand.reports.view import ALL, View, metric_title, total_usage, view_of
from evenhand.runs.results import Effect, Estimate, StudyResult

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_HEAD_WIDTH = 16
"""Titles wrap at this width, which a value with its interval needs anyway."""


def arm_table(study: StudyResult) -> Table:
    """One row per arm: the headline and its guardrails with interval and n, then what they took."""
    view = view_of(study)
    table = _table(study.title)
    table.add_column("Arm", overflow="fold")
    for metric in view.main_metrics:
        title = "\n".join(wrap(metric_title(metric), _HEAD_WIDTH, break_long_words=False))
        table.add_column(_text(title), justify="right", overflow="fold")
    for name in ("Calls", "Tokens", "Money"):
        table.add_column(name, justify="right", no_wrap=True)
    for arm in study.arms:
        usage = total_usage(arm)
        values = [_estimate(arm.estimate(m.name), view.digits[m.name]) for m in view.main_metrics]
        amounts = [compact(usage.calls), compact(usage.tokens), money(usage.cost)]
        table.add_row(_text(arm.label), *values, *map(_text, amounts))
    return table


def effect_table(study: StudyResult) -> Table:
    """One row per metric and comparison over all samples."""
    view = view_of(study)
    baselines = {effect.before for effect in study.effects}
    against = f" against {view.arm_label(baselines.pop())}" if len(baselines) == 1 else ""
    table = _table(f"Paired differences{against}")
    table.add_column("Metric", overflow="fold")
    table.add_column("Arm", overflow="fold")
    for name in ("Difference", "n", "p, adj.", "Detectable"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Reading", no_wrap=True)
    for metric in view.metrics:
        for i, effect in enumerate(view.effects(metric.name, ALL)):
            name = metric_title(metric) if i == 0 else ""
            table.add_row(*map(_text, [name, *_effect_cells(view, effect, against=not against)]))
    return table


def _effect_cells(view: View, effect: Effect, *, against: bool) -> list[str]:
    digits = view.digits[effect.metric]
    difference = signed(effect.difference, digits)
    if finite(effect.difference) is not None:
        difference += f" {limits(effect.low, effect.high, digits)}"
    arms = view.arm_label(effect.after) + (f" − {view.arm_label(effect.before)}" if against else "")
    tested = [count(effect.n), p_value(effect.p_adjusted), number(effect.detectable, digits)]
    return [arms, difference, *tested, effect.direction]


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

    return Table(title=_text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))


def _text(text: str) -> Text:
    """Text as it is: no markup, no control characters that a terminal would obey."""
    from rich.text import Text

    return Text(clean(text))
