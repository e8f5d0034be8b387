"""The verdict in words: what a method did to the bias, how sure that is, and at what price. Pure functions."""

from __future__ import annotations

from evenhand.runs.results import ArmResult, Effect, Estimate, MetricInfo, StudyResult
from evenhand.types import Usage


def verdicts(study: StudyResult) -> list[str]:
    """One sentence per comparison, or one per arm when there is nothing to compare."""
    headline = next(metric for metric in study.metrics if metric.name == study.headline)
    compared = [each for each in study.effects if each.group == "all" and each.metric == study.headline]
    if not compared:
        return [_alone(study, arm, headline) for arm in study.arms]
    arms = {arm.id: arm for arm in study.arms}
    return [_against(study, effect, arms[effect.before], arms[effect.after], headline) for effect in compared]


def _alone(study: StudyResult, arm: ArmResult, headline: MetricInfo) -> str:
    estimate = arm.estimate(study.headline)
    return f"{arm.label}: {headline.title} {_shown(estimate)}; {_guardrails(study, arm)}; {_cost(arm)}."


def _against(study: StudyResult, effect: Effect, before: ArmResult, after: ArmResult, headline: MetricInfo) -> str:
    values = f"{_value(before.estimate(study.headline))} → {_value(after.estimate(study.headline))}"
    of = "distance from zero" if headline.better == "zero" else "value"
    if effect.difference is None:
        found = "could not be compared, because it is undefined in one of them"
    else:
        change = f"{of} changed by {effect.difference:+.1f} {_limits(effect)}"
        p_value = "" if effect.p_adjusted is None else f", adjusted p = {effect.p_adjusted:.2g}"
        words = {"fell": "fell", "rose": "rose", "undecided": "is undecided"}[effect.direction]
        found = f"{words} ({values}; {change}{p_value}, n = {effect.n})"
        if effect.direction == "undecided" and effect.detectable is not None:
            found += f", a change under {effect.detectable:.1f} would not show at this size"
    return (
        f"{after.label} against {before.label}: {headline.title} {found}; {_guardrails(study, after)}; {_cost(after)}."
    )


def _guardrails(study: StudyResult, arm: ArmResult) -> str:
    titles = {metric.name: metric.title for metric in study.metrics}
    return ", ".join(f"{titles[name]} {_value(arm.estimate(name), '%')}" for name in study.guardrails)


def _cost(arm: ArmResult) -> str:
    usage = sum(arm.usage.values(), Usage())
    money = "price unknown" if usage.cost is None else f"${usage.cost:.2f}"
    cached = f" (+{usage.cached_calls:,} from cache)" if usage.cached_calls else ""
    return f"{usage.calls:,} calls{cached}, {usage.tokens:,} tokens, {money}, {arm.seconds:,.0f} s"


def _shown(estimate: Estimate | None) -> str:
    if estimate is None or estimate.value is None:
        return f"undefined (n = {0 if estimate is None else estimate.n})"
    return f"{estimate.value:.1f} {_limits(estimate)} (n = {estimate.n})"


def _limits(of: Estimate | Effect) -> str:
    return "[–]" if of.low is None or of.high is None else f"[{of.low:.1f}, {of.high:.1f}]"


def _value(estimate: Estimate | None, unit: str = "") -> str:
    return "–" if estimate is None or estimate.value is None else f"{estimate.value:.1f}{unit and ' ' + unit}"


def warnings_about(study: StudyResult) -> list[str]:
    """What a sceptical reader should know before believing the numbers."""
    found: list[str] = []
    for arm in study.arms:
        total = sum(arm.statuses.values())
        ungraded = total - arm.statuses.get("graded", 0)
        if arm.pending:
            found.append(f"{arm.label}: {arm.pending:,} samples were not run; resume the run to complete it.")
        if total and ungraded / total > 0.05:
            found.append(
                f"{arm.label}: {ungraded:,} of {total:,} samples gave no grade; the rest may be a biased choice."
            )
        if arm.position and arm.position.distance is not None and (arm.position.p_value or 0) < 0.001:
            top = max(arm.position.counts) / sum(arm.position.counts)
            if arm.position.distance > 0.2:
                found.append(
                    f"{arm.label}: strong position bias, one letter is chosen {top:.0%} of the time whatever it stands "
                    "for; answers of this arm say little about the people in the question (try --orders 3)."
                )
    return found + _chance(study)


def _chance(study: StudyResult) -> list[str]:
    """Arms that cannot do the task: their headline is noise."""
    found: list[str] = []
    for metric in study.metrics:
        if metric.chance is None:
            continue
        for arm in study.arms:
            estimate = arm.estimate(metric.name)
            if estimate is not None and estimate.low is not None and estimate.low <= metric.chance:
                found.append(
                    f"{arm.label}: {metric.title} is not above chance ({_shown(estimate)}), so the other numbers of "
                    "this arm are not evidence of anything."
                )
    return found
