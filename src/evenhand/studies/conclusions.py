"""States a study's conclusions and warnings in words: the effect of each method, its certainty and its cost."""

from __future__ import annotations

from evenhand.studies.results import ArmResult, Effect, Estimate, MetricInfo, StudyResult
from evenhand.types import Usage

DASH = "–"
MANY_REFUSED = 0.05
"""Share of refused samples above which a warning is given."""
FAR_FROM_UNIFORM = 0.2
"""Total variation distance from uniform above which a position bias is reported."""


def conclusions(study: StudyResult) -> list[str]:
    """Return one conclusion per comparison, or one per arm if nothing is compared."""
    headline = next(metric for metric in study.metrics if metric.name == study.headline)
    arms = {arm.id: arm for arm in _whole(study)}
    compared = [
        each for each in study.effects if each.group == "all" and each.metric == study.headline and each.after in arms
    ]
    if not compared:
        return [_alone(study, arm, headline) for arm in arms.values()]
    return [_against(study, effect, arms[effect.before], arms[effect.after], headline) for effect in compared]


def _whole(study: StudyResult) -> list[ArmResult]:
    """Return the arms without their single iterations."""
    return [arm for arm in study.arms if arm.iteration is None]


def _alone(study: StudyResult, arm: ArmResult, headline: MetricInfo) -> str:
    estimate = arm.estimate(study.headline)
    digits = _digits(headline, estimate)
    return f"{arm.label}: {headline.title} {_shown(estimate, digits)}. {_guardrails(study, arm)}. {_cost(arm)}."


def _against(study: StudyResult, effect: Effect, before: ArmResult, after: ArmResult, headline: MetricInfo) -> str:
    return (
        f"{after.label} compared with {before.label}: {_headline(effect, before, after, headline)}. "
        f"{_guardrails(study, before, after)}. {_cost(after)}."
    )


def _headline(effect: Effect, before: ArmResult, after: ArmResult, headline: MetricInfo) -> str:
    """State the effect on the headline metric, and how certain it is."""
    if effect.difference is None:
        undefined = [arm.label for arm in (before, after) if _value(arm.estimate(effect.metric)) == DASH]
        where = " and ".join(undefined) or "the samples that both graded"
        return f"{headline.title} cannot be compared: it is undefined for {where}"
    values = [arm.estimate(effect.metric) for arm in (before, after)]
    digits = _digits(headline, *values)
    first, last = (_value(each, digits) for each in values)
    change = "change" if headline.better != "zero" else "change of the distance from zero"
    numbers = f"{change} {_number(effect.difference, digits, signed=True)} {_limits(effect, digits)}"
    if effect.p_adjusted is not None:
        numbers += f", adjusted p = {effect.p_adjusted:.2g}"
    numbers += f", n = {effect.n}"
    if effect.direction != "undecided":
        moved, quality = _movement(effect.direction, headline)
        return f"{headline.title} {moved} from {first} to {last}{quality} ({numbers})"
    text = f"no clear change in {headline.title}, from {first} to {last} ({numbers})"
    if effect.detectable:
        text += f"; with this many samples a change below {effect.detectable:.{digits}f} would go unnoticed"
    return text


def _movement(direction: str, metric: MetricInfo) -> tuple[str, str]:
    """Return what the metric did and, if one direction is better, whether that is good."""
    if metric.better is None:
        return direction, ""
    quality = ", which is better" if (direction == "rose") == (metric.better == "higher") else ", which is worse"
    if metric.better == "zero":
        direction = "moved closer to zero," if direction == "fell" else "moved away from zero,"
    return direction, quality


def _guardrails(study: StudyResult, *arms: ArmResult) -> str:
    """List the metrics to read next to the headline, of one arm or as before → after."""
    metrics = {metric.name: metric for metric in study.metrics}
    return "; ".join(_guardrail(metrics[name], *arms) for name in study.guardrails)


def _guardrail(metric: MetricInfo, *arms: ArmResult) -> str:
    """State one guardrail, with its unit after defined values only."""
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
    thoughts = f" (of which {usage.thought_tokens:,} thoughts)" if usage.thought_tokens else ""
    return f"Cost: {usage.calls:,} calls{cached}, {usage.tokens:,} tokens{thoughts}, {money}, {arm.seconds:,.0f} s"


def _shown(estimate: Estimate | None, digits: int = 1) -> str:
    if estimate is None or estimate.value is None:
        return f"undefined (n = {0 if estimate is None else estimate.n})"
    return f"{_number(estimate.value, digits)} {_limits(estimate, digits)} (n = {estimate.n})"


def _limits(of: Estimate | Effect, digits: int = 1) -> str:
    return "[–]" if of.low is None or of.high is None else f"[{_number(of.low, digits)}, {_number(of.high, digits)}]"


def _digits(metric: MetricInfo, *estimates: Estimate | None) -> int:
    """One decimal, but two for values below 1 that are not percentages."""
    values = [abs(each.value) for each in estimates if each is not None and each.value is not None]
    return 2 if values and 0 < max(values) < 1 and not metric.share else 1


def _number(value: float, digits: int = 1, *, signed: bool = False) -> str:
    """Format with a true minus sign, and without a sign on zero."""
    text = f"{value:{'+' if signed else ''}.{digits}f}"
    return text.lstrip("+-") if not text.strip("+-0.") else text.replace("-", "−")


def _value(estimate: Estimate | None, digits: int = 1) -> str:
    return DASH if estimate is None or estimate.value is None else _number(estimate.value, digits)


def warnings_about(study: StudyResult) -> list[str]:
    """Return the reasons to doubt the study's numbers."""
    warnings = [
        f"{arm.label}: {count:,} answers have no score by {scorer} ({reason}). Try again with `evenhand rescore`."
        for arm in _whole(study)
        for scorer, reason, count in arm.unscored
    ]
    for arm in _whole(study):
        total, refused = sum(arm.statuses.values()), arm.statuses.get("refused", 0)
        if refused > MANY_REFUSED * total:
            warnings.append(
                f"{arm.label}: {refused:,} of {total:,} samples were refused. The graded ones may not represent all."
            )
    if biased := [f"{arm.label} {_favourite_share(arm):.0%}" for arm in study.arms if _has_position_bias(arm)]:
        warnings.append(
            f"Strong position bias: one letter is preferred whatever option it labels ({', '.join(biased)} of the time)"
            f"{f', {study.position_advice}' if study.position_advice else ''}."
        )
    warnings += [f"{arm.label}: {warning}" for arm in _whole(study) for warning in arm.warnings]
    return warnings + _at_chance(study)


def _has_position_bias(arm: ArmResult) -> bool:
    position = arm.position
    if position is None or position.distance is None or position.p_value is None:
        return False
    return position.distance > FAR_FROM_UNIFORM and position.p_value < 0.001


def _favourite_share(arm: ArmResult) -> float:
    """Return the share of the most frequent letter."""
    return max(arm.position.counts) / sum(arm.position.counts) if arm.position else 0.0


def _at_chance(study: StudyResult) -> list[str]:
    """Warn of arms that do no better than guessing: their other numbers are noise."""
    warnings: list[str] = []
    for metric in study.metrics:
        estimates = [(arm.label, arm.estimate(metric.name)) for arm in study.arms]
        weak = [f"{label} {_shown(each)}" for label, each in estimates if each and _not_above(each, metric.chance)]
        if weak:
            warnings.append(
                f"{metric.title} is not above chance ({metric.chance:.0f}): {'; '.join(weak)}. Such an arm may be "
                "guessing, so do not draw conclusions from its other numbers."
            )
    return warnings


def _not_above(estimate: Estimate, chance: float | None) -> bool:
    return chance is not None and estimate.low is not None and estimate.low <= chance
