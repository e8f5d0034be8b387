"""The conclusions in words: what a method did to the bias, how sure that is, and at what price. Pure functions."""

from __future__ import annotations

from evenhand.studies.results import ArmResult, Effect, Estimate, MetricInfo, StudyResult
from evenhand.types import Usage

DASH = "–"
MANY_UNGRADED = 0.05
FAR_FROM_UNIFORM = 0.2
"""Total variation distance of the chosen positions from a uniform choice."""


def conclusions(study: StudyResult) -> list[str]:
    """One sentence per comparison, or one per arm when there is nothing to compare."""
    headline = next(metric for metric in study.metrics if metric.name == study.headline)
    arms = {arm.id: arm for arm in _whole(study)}
    compared = [
        each for each in study.effects if each.group == "all" and each.metric == study.headline and each.after in arms
    ]
    if not compared:
        return [_alone(study, arm, headline) for arm in arms.values()]
    return [_against(study, effect, arms[effect.before], arms[effect.after], headline) for effect in compared]


def _whole(study: StudyResult) -> list[ArmResult]:
    """The arms themselves, without their single iterations."""
    return [arm for arm in study.arms if arm.iteration is None]


def _alone(study: StudyResult, arm: ArmResult, headline: MetricInfo) -> str:
    estimate = arm.estimate(study.headline)
    digits = _digits(headline, estimate)
    return f"{arm.label}: {headline.title} {_shown(estimate, digits)}. {_guardrails(study, arm)}. {_cost(arm)}."


def _against(study: StudyResult, effect: Effect, before: ArmResult, after: ArmResult, headline: MetricInfo) -> str:
    return (
        f"{after.label} against {before.label}: {headline.title} {_found(effect, before, after, headline)}. "
        f"{_guardrails(study, before, after)}. {_cost(after)}."
    )


def _found(effect: Effect, before: ArmResult, after: ArmResult, headline: MetricInfo) -> str:
    """What happened to the headline, and how sure that is."""
    if effect.difference is None:
        undefined = [arm.label for arm in (before, after) if _value(arm.estimate(effect.metric)) == DASH]
        return f"cannot be compared: it is undefined for {' and '.join(undefined) or 'the samples that both graded'}"
    values = [arm.estimate(effect.metric) for arm in (before, after)]
    digits = _digits(headline, *values)
    words = {"fell": "fell", "rose": "rose", "undecided": "is undecided"}[effect.direction]
    of = "distance from zero" if headline.better == "zero" else "change"
    change = f"{of} {_number(effect.difference, digits, signed=True)} {_limits(effect, digits)}"
    p_value = "" if effect.p_adjusted is None else f", adjusted p = {effect.p_adjusted:.2g}"
    found = f"{words}: {' → '.join(_value(each, digits) for each in values)} ({change}{p_value}, n = {effect.n})"
    if effect.direction == "undecided" and effect.detectable:
        found += f"; a change under {effect.detectable:.{digits}f} would not show at this size"
    return found


def _guardrails(study: StudyResult, *arms: ArmResult) -> str:
    """What must be read next to the headline, of one arm or as before → after."""
    metrics = {metric.name: metric for metric in study.metrics}
    return "; ".join(_guardrail(metrics[name], *arms) for name in study.guardrails)


def _guardrail(metric: MetricInfo, *arms: ArmResult) -> str:
    """One of them, with its unit after whatever has a value."""
    unit = " %" if metric.share else ""
    estimates = [arm.estimate(metric.name) for arm in arms]
    values = [_value(each, _digits(metric, *estimates)) for each in estimates]
    if DASH in values:
        return f"{metric.title} {' → '.join(each if each == DASH else each + unit for each in values)}"
    return f"{metric.title} {' → '.join(values)}{unit}"


def _cost(arm: ArmResult) -> str:
    usage = sum(arm.usage.values(), Usage())
    money = "price unknown" if usage.cost is None else f"${usage.cost:.2f}"
    cached = f" (+{usage.cached_calls:,} from cache)" if usage.cached_calls else ""
    return f"{usage.calls:,} calls{cached}, {usage.tokens:,} tokens, {money}, {arm.seconds:,.0f} s"


def _shown(estimate: Estimate | None, digits: int = 1) -> str:
    if estimate is None or estimate.value is None:
        return f"undefined (n = {0 if estimate is None else estimate.n})"
    return f"{_number(estimate.value, digits)} {_limits(estimate, digits)} (n = {estimate.n})"


def _limits(of: Estimate | Effect, digits: int = 1) -> str:
    return "[–]" if of.low is None or of.high is None else f"[{_number(of.low, digits)}, {_number(of.high, digits)}]"


def _digits(metric: MetricInfo, *estimates: Estimate | None) -> int:
    """One decimal; two for small values that are no percentages, such as differences on a scale from 0 to 10."""
    values = [abs(each.value) for each in estimates if each is not None and each.value is not None]
    return 2 if values and 0 < max(values) < 1 and not metric.share else 1


def _number(value: float, digits: int = 1, *, signed: bool = False) -> str:
    """With a minus that is one, and no sign on zero."""
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return text.lstrip("+-") if not text.strip("+-0.") else text.replace("-", "−")


def _value(estimate: Estimate | None, digits: int = 1) -> str:
    return DASH if estimate is None or estimate.value is None else _number(estimate.value, digits)


def warnings_about(study: StudyResult) -> list[str]:
    """What a sceptical reader should know before believing the numbers."""
    found = [f"{caveat}." for run in study.provenance.values() for caveat in run.get("caveats") or ()]
    found += [
        f"{arm.label}: {arm.pending:,} samples were not run; resume the run to complete it."
        for arm in _whole(study)
        if arm.pending
    ]
    found += [
        f"{arm.label}: {count:,} answers have no score by {scorer} ({reason}); `evenhand rescore` tries again."
        for arm in _whole(study)
        for scorer, reason, count in arm.unscored
    ]
    for arm in _whole(study):
        total = sum(arm.statuses.values())
        ungraded = total - arm.statuses.get("graded", 0)
        if ungraded > MANY_UNGRADED * total:
            found.append(
                f"{arm.label}: {ungraded:,} of {total:,} samples have no grade; the rest may be a biased choice."
            )
    if swayed := [f"{arm.label} {_favourite(arm):.0%}" for arm in study.arms if _is_swayed(arm)]:
        found.append(
            f"Strong position bias: one letter is chosen whatever it stands for ({', '.join(swayed)} of the time)"
            f"{f', {study.position_advice}' if study.position_advice else ''}."
        )
    found += [f"{arm.label}: {warning}" for arm in _whole(study) for warning in arm.warnings]
    return found + _at_chance(study)


def _is_swayed(arm: ArmResult) -> bool:
    position = arm.position
    if position is None or position.distance is None or position.p_value is None:
        return False
    return position.distance > FAR_FROM_UNIFORM and position.p_value < 0.001


def _favourite(arm: ArmResult) -> float:
    """The share of the letter that is chosen most."""
    return max(arm.position.counts) / sum(arm.position.counts) if arm.position else 0.0


def _at_chance(study: StudyResult) -> list[str]:
    """Arms that cannot do the task: their headline is noise."""
    found: list[str] = []
    for metric in study.metrics:
        estimates = [(arm.label, arm.estimate(metric.name)) for arm in study.arms]
        weak = [f"{label} {_shown(each)}" for label, each in estimates if each and _not_above(each, metric.chance)]
        if weak:
            found.append(
                f"{metric.title} is not above chance ({metric.chance:.0f}): {'; '.join(weak)}. The other numbers of "
                "such an arm are not evidence of anything."
            )
    return found


def _not_above(estimate: Estimate, chance: float | None) -> bool:
    return chance is not None and estimate.low is not None and estimate.low <= chance
