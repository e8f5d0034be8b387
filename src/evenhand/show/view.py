"""A study prepared for the report: metrics in display order, arms with their colours, and its values as cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evenhand.core.format import DASH, money, number
from evenhand.core.types import Usage
from evenhand.show.chart import Lane
from evenhand.show.markup import Html, join, tag
from evenhand.show.table import Cell, cell_html, measured
from evenhand.studies.results import ArmResult, Effect, Estimate, MetricInfo, StudyResult, estimate_text, size

ALL = "all"
NO_PRICE = "The price of some of these calls is unknown."

_HINTS = {
    "higher": "higher is better",
    "lower": "lower is better",
    "zero": "0 is best",
}


@dataclass(frozen=True, slots=True)
class View:
    """The study with what all sections need."""

    study: StudyResult
    metrics: tuple[MetricInfo, ...]
    """The headline, then the guardrails, then the rest."""
    digits: Mapping[str, int]
    baseline: str | None

    @property
    def arms(self) -> Sequence[ArmResult]:
        return self.study.arms

    @property
    def whole_arms(self) -> list[ArmResult]:
        """The arms without their single iterations."""
        return [arm for arm in self.arms if arm.iteration is None]

    @property
    def groups(self) -> list[str]:
        """`all` first, then the subgroups."""
        return [ALL, *(g for g in self.study.groups if g != ALL)]

    @property
    def headline(self) -> MetricInfo:
        return self.info(self.study.headline)

    @property
    def main_metrics(self) -> tuple[MetricInfo, ...]:
        """The headline and its guardrails."""
        return self.metrics[: 1 + len(set(self.study.guardrails) - {self.study.headline})]

    def info(self, metric: str) -> MetricInfo:
        return next((m for m in self.metrics if m.name == metric), _unknown_metric(metric))

    def arm_label(self, arm_id: str) -> str:
        return next((arm.label for arm in self.arms if arm.id == arm_id), arm_id)

    def arm_index(self, arm_id: str) -> int:
        return next((i for i, arm in enumerate(self.arms) if arm.id == arm_id), 0)

    def effects(self, metric: str, group: str = ALL) -> list[Effect]:
        return [e for e in self.study.effects if e.metric == metric and e.group == group]


def view_of(study: StudyResult) -> View:
    """Prepare the study for all sections."""
    known = {m.name: m for m in study.metrics}
    order = dict.fromkeys([study.headline, *study.guardrails, *known])
    metrics = tuple(known.get(name) or _unknown_metric(name) for name in order)
    first = study.arms[0].id if study.arms else None
    baseline = study.effects[0].before if study.effects else first
    return View(study, metrics, {m.name: study.digits(m.name) for m in metrics}, baseline)


def _unknown_metric(name: str) -> MetricInfo:
    return MetricInfo(name, name, None, share=False)


def metric_title(info: MetricInfo) -> str:
    """Return the title with its unit."""
    return f"{info.title},\u00a0%" if info.share else info.title


def metric_hint(info: MetricInfo) -> str:
    """Say which direction is better and what guessing gives."""
    if info.untold:
        return f"cannot be told: {info.untold}"
    guessing = "" if info.chance is None else f"guessing: {number(info.chance, 0)}"
    return ", ".join(filter(None, [_HINTS.get(info.better or "", ""), guessing]))


def group_label(group: str) -> str:
    """Return a readable form of a data set's group name."""
    return "All samples" if group == ALL else group.replace("_x_", " × ").replace("_", " ")


def total_usage(arm: ArmResult) -> Usage:
    """Return the arm's usage over all roles."""
    return sum(arm.usage.values(), Usage())


def finished(arm: ArmResult) -> int:
    """Return the number of samples that were run, whatever their status."""
    return sum(arm.statuses.values())


def requests_per_sample(usage: Usage, samples: int) -> str:
    """Return the mean requests per sample, cached or not: the cost of a run without a cache."""
    return f"{(usage.calls + usage.cached_calls) / samples:.1f}" if samples else "–"


def planned(study: StudyResult) -> int:
    """Return the planned number of samples per arm."""
    return max((finished(arm) + arm.pending for arm in study.arms), default=0)


def direction_is_good(direction: str, info: MetricInfo) -> bool | None:
    """Whether a change is an improvement; None if undecided or if neither direction is better."""
    if direction not in ("fell", "rose") or info.better is None:
        return None
    return (direction == "rose") == (info.better == "higher")


# --- cells, names and lanes ---


def arm_cell(view: View, arm: ArmResult, notes: Sequence[str] = ()) -> Cell:
    """An arm's mark and label."""
    return Cell(arm.label, mark=view.arm_index(arm.id), notes=notes)


def arm_name(view: View, arm: ArmResult) -> Html:
    """The same outside tables."""
    return join(cell_html(arm_cell(view, arm)))


def legend(view: View) -> Html:
    """List all arms in one line."""
    return tag("ul", [tag("li", arm_name(view, arm)) for arm in view.arms], class_="legend", aria_label="Arms")


def estimate_cell(estimate: Estimate | None, digits: int = 1, look: str = "") -> Cell:
    """A value with its interval and n; a dash if undefined."""
    if estimate is None:
        return Cell(DASH, "estimate", look=look)
    if estimate.as_count is not None:
        return Cell(estimate.as_count, "estimate", estimate.value, estimate.low, estimate.high, estimate.n, look=look)
    notes = size(estimate).split(", ")
    return measured(estimate.value, estimate.low, estimate.high, digits, n=estimate.n, notes=notes, look=look)


def money_cell(cost: float | None, look: str = "") -> Cell:
    """The cost, or a dash with an explanation."""
    dash = tag("abbr", DASH, title=NO_PRICE) if cost is None else None
    return Cell(money(cost), value=cost, html=dash, look=look)


def lane_for(view: View, arm: ArmResult, metric: str, group: str) -> Lane:
    """An arm's estimate as a chart lane."""
    estimate = arm.estimate(metric, group)
    text = f"{arm.label}: {estimate_text(estimate, view.digits[metric])}"
    index = view.arm_index(arm.id)
    if estimate is None:
        return Lane(index, None, None, None, 0, text)
    return Lane(index, estimate.value, estimate.low, estimate.high, estimate.n, text)
