"""A study prepared for the report: metrics in display order, arms with their colours, and its values as cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from evenhand.benchmarks.base import Audit
from evenhand.core.format import DASH, money, number
from evenhand.core.types import Usage
from evenhand.show.chart import Lane
from evenhand.show.markup import Html, Node, join, tag
from evenhand.show.table import Cell, cell_html, measured
from evenhand.studies.audits import MAIN_FINDINGS
from evenhand.studies.results import (
    GOOD,
    SERIOUS,
    ArmResult,
    Effect,
    Estimate,
    MetricInfo,
    RunExample,
    StudyResult,
    Verdict,
    estimate_text,
    size,
)

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
        return self.study.whole_arms

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
    known = {m.name: m for m in study.metrics}
    order = dict.fromkeys([study.headline, *study.guardrails, *known])
    metrics = tuple(known.get(name) or _unknown_metric(name) for name in order)
    first = study.arms[0].id if study.arms else None
    baseline = study.effects[0].before if study.effects else first
    return View(study, metrics, {m.name: study.digits(m.name) for m in metrics}, baseline)


def _unknown_metric(name: str) -> MetricInfo:
    return MetricInfo(name, name, None, share=False)


def metric_title(info: MetricInfo) -> str:
    return f"{info.title},\u00a0%" if info.share else info.title


def metric_hint(info: MetricInfo) -> str:
    """Say which direction is better and what guessing gives."""
    if info.untold:
        return f"cannot be determined: {info.untold}"
    guessing = "" if info.chance is None else f"guessing: {number(info.chance, 0)}"
    return ", ".join(filter(None, [_HINTS.get(info.better or "", ""), guessing]))


def group_label(group: str) -> str:
    """Return a readable form of a data set's group name."""
    return "All samples" if group == ALL else group.replace("_x_", " × ").replace("_", " ")


def total_usage(arm: ArmResult) -> Usage:
    return sum(arm.usage.values(), Usage())


def finished(arm: ArmResult) -> int:
    """Return the number of samples that were run, with any status."""
    return sum(arm.statuses.values())


def requests_per_sample(usage: Usage, samples: int) -> str:
    """Return the mean requests per sample, cached or not: the cost of a run without a cache."""
    return f"{(usage.calls + usage.cached_calls) / samples:.1f}" if samples else "–"


def planned(study: StudyResult) -> int:
    """Return the planned number of samples per arm."""
    return max((finished(arm) + arm.pending for arm in study.arms), default=0)


# --- findings ---


def look_of(verdict: Verdict) -> str:
    return "worse" if verdict in SERIOUS else "better" if verdict in GOOD else "open"


def about_lead(study: StudyResult) -> str:
    """What the first finding's metric means; empty if it is about none."""
    name = next((finding.metric for finding in study.findings[:1]), "")
    return next((metric.meaning.about for metric in study.metrics if metric.name == name), "")


def example_text(example: RunExample) -> str:
    """The example in one line: the question, and who answered what."""
    answers = "; ".join(f"{who}: “{answer}”" for who, answer in example.answers)
    return f"Example: “{example.text}” {answers}."


def lead_lanes(view: View) -> tuple[MetricInfo, list[tuple[ArmResult, Lane]]]:
    """The metric of the first finding as its sentence tells it, perhaps as 100 % less the value, and each arm's."""
    metric = view.info(view.study.lead)
    if not metric.meaning.rest:
        return metric_lanes(view, metric.name)
    other = {"higher": "lower", "lower": "higher"}.get(metric.better or "")
    chance = None if metric.chance is None else 100 - metric.chance
    turned = replace(metric, title=metric.meaning.rest, better=other, chance=chance)
    return turned, [(arm, _rest_lane(view, arm, metric.name)) for arm in view.arms]


def metric_lanes(view: View, metric: str) -> tuple[MetricInfo, list[tuple[ArmResult, Lane]]]:
    """A metric, and each arm's value of it."""
    return view.info(metric), [(arm, lane_for(view, arm, metric, ALL)) for arm in view.arms]


def _rest_lane(view: View, arm: ArmResult, metric: str) -> Lane:
    found = arm.estimate(metric)
    if found is None:
        return _lane(view, arm, metric, None)
    value, low, high = (None if each is None else 100 - each for each in (found.value, found.high, found.low))
    successes = None if found.successes is None else found.n - found.successes
    return _lane(view, arm, metric, replace(found, value=value, low=low, high=high, successes=successes))


# --- cells, names and lanes ---


A = TypeVar("A")
AuditT = TypeVar("AuditT", bound=Audit)


def audited(study: StudyResult, kind: type[A]) -> list[tuple[ArmResult, A]]:
    """The arms with an audit of this kind, and the audit."""
    return [(arm, arm.audit) for arm in study.arms if isinstance(arm.audit, kind)]


def later_sentences(study: StudyResult, kind: type[AuditT]) -> list[str]:
    """What these audits found that is not among the conclusions."""
    return [f"{arm.label}: {said}" for arm, audit in audited(study, kind) for said in audit.sentences[MAIN_FINDINGS:]]


def arm_cell(view: View, arm: ArmResult) -> Cell:
    return Cell(arm.label, mark=view.arm_index(arm.id))


def arm_name(view: View, arm: ArmResult) -> Html:
    """The same outside tables."""
    return join(cell_html(arm_cell(view, arm)))


def arm_block(view: View, arm: ArmResult, *content: Node) -> Html:
    """What was found in one arm, below its name."""
    return tag("div", tag("h3", arm_name(view, arm)), content, class_="findings")


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


def money_cell(cost: float | None) -> Cell:
    """The cost, or a dash with an explanation."""
    dash = tag("abbr", DASH, title=NO_PRICE) if cost is None else None
    return Cell(money(cost), value=cost, html=dash)


def lane_for(view: View, arm: ArmResult, metric: str, group: str) -> Lane:
    return _lane(view, arm, metric, arm.estimate(metric, group))


def _lane(view: View, arm: ArmResult, metric: str, estimate: Estimate | None) -> Lane:
    return Lane.of(view.arm_index(arm.id), estimate, f"{arm.label}: {estimate_text(estimate, view.digits[metric])}")
