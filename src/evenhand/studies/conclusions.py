"""States a study's conclusions, caveats and warnings in words: the effect of each method, its certainty and its cost.

Caveats change the reading of the headline and are shown beside it; warnings are reasons to doubt single numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from evenhand.core.format import (
    DASH,
    NO_PRICE,
    count,
    difference,
    duration,
    finite,
    interval,
    limits,
    money,
    number,
    p_statement,
    percent,
    plural,
)
from evenhand.core.language import REASON
from evenhand.core.types import Usage
from evenhand.runs.summary import UNGRADED
from evenhand.stats import FEW_CLUSTERS
from evenhand.studies.results import ArmResult, Effect, Estimate, MetricInfo, StudyResult, size

MANY_UNGRADED = 0.01
"""Share of samples without a grade from which on it is a caveat."""
_SHOWN_REASONS = 3
MANY_REFUSED = 0.05
"""Share of refused samples above which a warning is given."""
MANY_UNSAID = 0.2
"""How much larger the share of empty, refused and cut answers may be for a better headline to count."""
_LISTED = 4
"""Arms that a warning names one by one; of more it gives the range."""
FAR_FROM_UNIFORM = 0.2
"""Total variation distance from uniform above which a position bias is reported."""


def conclusions(study: StudyResult) -> list[str]:
    """Return one conclusion per comparison, or one per arm if nothing is compared.

    Each begins with a sentence that says who, what and how sure; other metrics and the cost follow. Where the headline
    is undefined, the first guardrail that can be compared takes its place.
    """
    headline = next(metric for metric in study.metrics if metric.name == study.headline)
    arms = {arm.id: arm for arm in _whole(study)}
    compared = [
        each for each in study.effects if each.group == "all" and each.metric == study.headline and each.after in arms
    ]
    if not compared:
        return [_joined(_alone(study, arm, headline), _guardrails(study, arm), _cost(arm)) for arm in arms.values()]
    return [_comparison(study, effect, arms[effect.before], arms[effect.after]) for effect in compared]


def _comparison(study: StudyResult, headline: Effect, before: ArmResult, after: ArmResult) -> str:
    main = headline if headline.difference is not None else _next_comparable(study, headline)
    told = [_uncompared(study, headline, before, after)]
    if main is not None:
        told = [_against(study, main, before, after), *(told if main is not headline else ())]
    return _joined(*told, _side_effects(study, main or headline), _guardrails(study, before, after), _cost(after))


def _next_comparable(study: StudyResult, headline: Effect) -> Effect | None:
    """Return the effect on the first guardrail that both arms have and of which one direction is better."""
    metrics = {metric.name: metric for metric in study.metrics}
    found = {
        each.metric: each
        for each in study.effects
        if (each.before, each.after, each.group) == (headline.before, headline.after, "all")
        and each.difference is not None
        and metrics[each.metric].better is not None
    }
    return next((found[name] for name in study.guardrails if name in found), None)


def _uncompared(study: StudyResult, effect: Effect, before: ArmResult, after: ArmResult) -> str:
    """Say that the headline cannot be compared, and why."""
    headline = next(metric for metric in study.metrics if metric.name == effect.metric)
    if headline.untold:
        return f"{after.label} and {before.label}: {headline.title} cannot be told: {headline.untold}"
    undefined = [arm.label for arm in (before, after) if _value(arm.estimate(effect.metric), 1) == DASH]
    where = " and ".join(undefined) or "the samples that both graded"
    why = f" ({headline.meaning.undefined})" if undefined and headline.meaning.undefined else ""
    return f"{after.label} and {before.label} cannot be compared in {headline.title}: it is undefined for {where}{why}"


def _joined(*sentences: str) -> str:
    return " ".join(f"{each}." for each in sentences if each)


_NEVER_SCORED = ("no words", REASON, "not English", "empty text")
"""How the reasons begin that lie in the text: a second try would not help. Runs of version 0.2 have "not English"."""


def _whole(study: StudyResult) -> list[ArmResult]:
    """Return the arms without their single iterations."""
    return [arm for arm in study.arms if arm.iteration is None]


def _alone(study: StudyResult, arm: ArmResult, headline: MetricInfo) -> str:
    """State the headline of one arm: what its value means, or that it cannot be told apart from zero."""
    estimate = arm.estimate(study.headline)
    who = _who(arm)
    if headline.untold:
        return f"{who}: {headline.title} cannot be told: {headline.untold}"
    if estimate is None or estimate.value is None:
        n = 0 if estimate is None else estimate.n
        why = f": {headline.meaning.undefined}" if n and headline.meaning.undefined else ""
        return f"{who}: {headline.title} is undefined (n = {count(n)}){why}"
    shown = _shown(study, estimate, headline)
    if headline.better != "zero":
        hint = f"; {headline.better} is better" if headline.better else ""
        return f"{who}: {headline.title} is {shown}{hint}"
    if estimate.low is None or estimate.high is None or estimate.low <= 0 <= estimate.high:
        return f"{who}: {headline.title} cannot be told apart from zero: {shown}"
    meaning = headline.meaning.above if estimate.low > 0 else headline.meaning.below
    return (
        f"{who} {meaning}: {headline.title} is {shown}" if meaning else f"{who}: {headline.title} is {shown}, not zero"
    )


def _who(arm: ArmResult) -> str:
    """Return the model with its method; the method `default` is the model as it is."""
    base = arm.models.get("base", "")
    if not base or base in arm.label:
        return arm.label
    return base if arm.label == "default" else f"{base} with {arm.label}"


def _against(study: StudyResult, effect: Effect, before: ArmResult, after: ArmResult) -> str:
    """State the effect on a metric that can be compared, and how certain it is."""
    headline = next(metric for metric in study.metrics if metric.name == effect.metric)
    both = f"{after.label} and {before.label}"
    digits = study.digits(headline.name)
    change = "change" if headline.better != "zero" else "change of the distance from zero"
    numbers = f"{change} {difference(effect.difference, effect.low, effect.high, digits)}"
    if effect.p_adjusted is not None:
        numbers += f", adjusted {p_statement(effect.p_adjusted)}"
    moved = f"{_range(study, headline, _values(effect, before, after))} ({numbers}, {size(effect)})"
    if effect.direction == "undecided":
        return f"{both} cannot be told apart in {headline.title}, {moved}{_unnoticed(effect, digits)}"
    better = _is_better(effect.direction, headline)
    if better and (fault := _incomparable(study, effect, before, after)):
        moved = f"{headline.title} {_movement(effect.direction, headline)} {moved}"
        return f"{after.label} cannot be called better than {before.label}: {fault}. {moved}"
    than = "differs from" if better is None else "is better than" if better else "is worse than"
    return (
        f"{after.label} {than} {before.label} in {headline.title}: it {_movement(effect.direction, headline)} {moved}"
    )


def _unnoticed(effect: Effect, digits: int) -> str:
    """Say which changes would go unnoticed, after the correction."""
    if effect.detectable is None:
        return ""
    if math.isinf(effect.detectable):
        return f"; with {plural(effect.clusters, 'cluster')} of samples no change could be told"
    return f"; a change below {number(effect.detectable, digits)} would go unnoticed more than one time in five"


def _incomparable(study: StudyResult, main: Effect, before: ArmResult, after: ArmResult) -> str:
    """Say why a better headline does not count: the arm says far less or more than the other, or nothing."""
    limited = {metric.name: metric for metric in study.metrics if metric.comparable is not None}
    if not limited:
        return ""
    unsaid = [_unsaid(arm) for arm in (before, after)]
    if unsaid[1] > unsaid[0] + MANY_UNSAID:
        return f"{percent(unsaid[1], 0)} of its answers are empty, refused or cut, not {percent(unsaid[0], 0)}"
    for each in study.effects:
        metric = limited.get(each.metric)
        if metric is None or (each.before, each.after, each.group) != (main.before, main.after, "all"):
            continue
        low, high = metric.comparable or (0.0, 0.0)
        if each.first and each.last is not None and not low <= each.last / each.first <= high:
            return (
                f"{metric.title} went {_range(study, metric, _values(each, before, after))}, to "
                f"{percent(each.last / each.first, 0)} (comparable: {number(100 * low, 0)} to {percent(high, 0)})"
            )
    return ""


def _unsaid(arm: ArmResult) -> float:
    """Return the share of answers that are empty, refused or cut; failed calls do not count."""
    said = arm.statuses.get("graded", 0)
    total = sum(n for status, n in arm.statuses.items() if status != "failed")
    return 1 - said / total if total else 0.0


def _side_effects(study: StudyResult, main: Effect) -> str:
    """Name the guardrails that clearly became worse, beside the metric that the verdict is about."""
    metrics = {metric.name: metric for metric in study.metrics}
    arms = {arm.id: arm for arm in study.arms}
    found = [
        f"{metrics[each.metric].title} {_movement(each.direction, metrics[each.metric])} "
        + _range(study, metrics[each.metric], _values(each, arms[each.before], arms[each.after]))
        for each in study.effects
        if (each.before, each.after, each.group) == (main.before, main.after, "all")
        and each.metric in study.guardrails
        and each.metric != main.metric
        and _is_better(each.direction, metrics[each.metric]) is False
    ]
    return f"At the same time it got worse in other ways: {'; '.join(found)}" if found else ""


def _values(effect: Effect, before: ArmResult, after: ArmResult) -> list[Estimate | None]:
    """Return the values of both arms on the samples that are compared."""
    estimates = [before.estimate(effect.metric), after.estimate(effect.metric)]
    return [
        each if each is None or value is None else replace(each, value=value, n=effect.n, successes=None)
        for each, value in zip(estimates, (effect.first, effect.last), strict=True)
    ]


def _range(study: StudyResult, metric: MetricInfo, values: Sequence[Estimate | None]) -> str:
    first, last = (_value(each, study.digits(metric.name)) for each in values)
    return f"from {first} to {last}{' %' if metric.share else ''}"


def _movement(direction: str, metric: MetricInfo) -> str:
    if metric.better != "zero":
        return direction
    return "moved closer to zero," if direction == "fell" else "moved away from zero,"


def _is_better(direction: str, metric: MetricInfo) -> bool | None:
    """Whether a change is an improvement; None if undecided or if neither direction is better."""
    if direction == "undecided" or metric.better is None:
        return None
    return (direction == "rose") == (metric.better == "higher")


def _guardrails(study: StudyResult, *arms: ArmResult) -> str:
    """List the metrics to read next to the headline, of one arm or as before → after."""
    metrics = {metric.name: metric for metric in study.metrics}
    return "; ".join(_guardrail(study, metrics[name], *arms) for name in study.guardrails)


def _guardrail(study: StudyResult, metric: MetricInfo, *arms: ArmResult) -> str:
    """State one guardrail, with its unit after defined percentages only."""
    estimates = [arm.estimate(metric.name) for arm in arms]
    values = [_value(each, study.digits(metric.name)) for each in estimates]
    units = [_unit(metric, each) for each in estimates]
    if len(set(units)) == 1:
        return f"{metric.title} {' → '.join(values)}{units[0]}"
    return f"{metric.title} {' → '.join(map(''.join, zip(values, units, strict=True)))}"


def _cost(arm: ArmResult) -> str:
    usage = sum(arm.usage.values(), Usage())
    cached = f" (+{count(usage.cached_calls)} from cache)" if usage.cached_calls else ""
    thoughts = f" (of which {count(usage.thought_tokens)} thoughts)" if usage.thought_tokens else ""
    spent = f"{money(usage.cost, NO_PRICE)}, {duration(arm.seconds)}"
    return f"Cost: {plural(usage.calls, 'call')}{cached}, {count(usage.tokens)} tokens{thoughts}, {spent}"


def _shown(study: StudyResult, estimate: Estimate, metric: MetricInfo) -> str:
    """Return a value with its interval and n; a share of few samples as a count."""
    if estimate.as_count is not None:
        return estimate.as_count
    digits, certainty = study.digits(metric.name), "too few for an interval"
    if estimate.low is not None:
        certainty = f"95 % interval {limits(estimate.low, estimate.high, digits)}"
    return f"{_value(estimate, digits)}{_unit(metric, estimate)} ({certainty}, {size(estimate)})"


def _unit(metric: MetricInfo, estimate: Estimate | None) -> str:
    is_number = estimate is not None and estimate.value is not None and estimate.as_count is None
    return " %" if metric.share and is_number else ""


def _value(estimate: Estimate | None, digits: int) -> str:
    if estimate is None or estimate.value is None:
        return DASH
    return estimate.as_count or number(estimate.value, digits)


def headline_of(result: StudyResult) -> str:
    """The headline of every arm in a few words, for lists of runs."""
    metric = next(each for each in result.metrics if each.name == result.headline)
    found = [(arm, arm.estimate(metric.name)) for arm in _whole(result)]
    values = [
        (f"{arm.label} " if len(found) > 1 else "")
        + interval(each.value, each.low, each.high, result.digits(metric.name))
        for arm, each in found
        if each is not None and finite(each.value) is not None
    ]
    return f"{metric.title}: {'; '.join(values)}" if values else ""


def _without_scores(arms: Sequence[ArmResult]) -> list[str]:
    """One sentence for each scorer: how many answers of which arms it did not score, and why."""
    found: dict[str, list[str]] = {}
    again: set[str] = set()
    for arm in arms:
        for scorer, reason, n in arm.unscored:
            found.setdefault(scorer, []).append(f"{arm.label} {count(n)} ({reason})")
            if not reason.startswith(_NEVER_SCORED):
                again.add(scorer)
    return [
        f"Answers without a score by {scorer}: {'; '.join(each)}."
        + (" Try again with `evenhand run rescore`." if scorer in again else "")
        for scorer, each in found.items()
    ]


def warnings_about(study: StudyResult) -> list[str]:
    """Return the reasons to doubt the study's numbers."""
    warnings = [f"{each.title} cannot be told: {each.untold}." for each in study.metrics if each.untold]
    warnings += _without_scores(_whole(study))
    refused = [
        f"{arm.label}: {count(n)} of {count(total)}"
        for arm in _whole(study)
        if (n := arm.statuses.get("refused", 0)) > MANY_REFUSED * (total := sum(arm.statuses.values()))
    ]
    if refused:
        warnings.append(f"{'; '.join(refused)} samples were refused. The graded ones may not represent all.")
    if biased := [arm for arm in study.arms if _has_position_bias(arm)]:
        shares = [(arm, 100 * _favourite_share(arm), percent(_favourite_share(arm), 0)) for arm in biased]
        warnings.append(
            f"Strong position bias: one letter is preferred whatever option it labels ({_named(shares)} of the time)"
            f"{f', {study.position_advice}' if study.position_advice else ''}."
        )
    said = {
        warning: [arm.label for arm in _whole(study) if warning in arm.warnings]
        for arm in _whole(study)
        for warning in arm.warnings
    }
    warnings += [f"{', '.join(labels)}: {warning}" for warning, labels in said.items()]
    return warnings + _few_clusters(study) + _at_chance(study)


def _named(found: Sequence[tuple[ArmResult, float, str]]) -> str:
    """Name each arm with its value; of many arms, only how many there are and the lowest and highest value."""
    if len(found) <= _LISTED:
        return "; ".join(f"{arm.label} {text}" for arm, _, text in found)
    values = [value for _, value, _ in found]
    low, high = number(min(values), 0), number(max(values), 0)
    return f"{len(found)} arms, {low if low == high else f'{low} to {high}'} %"


def _few_clusters(study: StudyResult) -> list[str]:
    """Warn of intervals that rest on so few clusters that they may be too narrow."""
    main = (study.headline, *study.guardrails)
    few = {
        metric.title: estimate.clusters or 0
        for metric in study.metrics
        for arm in _whole(study)
        if metric.name in main and (estimate := arm.estimate(metric.name)) and estimate.few_clusters
    }
    if not few:
        return []
    least, most = min(few.values()), max(few.values())
    clusters = f"{least}" if least == most else f"{least} to {most}"
    kinds = "template, prompt or scenario" if most == 1 else "templates, prompts or scenarios"
    what = next(iter(few)) if len(few) == 1 else f"{len(few)} metrics"
    return [
        f"Few clusters: the samples of {what} come from {clusters} {kinds}. With fewer than "
        f"{FEW_CLUSTERS}, intervals may be too narrow, and hardly any change can be told."
    ]


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
        estimates = [(arm, each) for arm in study.arms if (each := arm.estimate(metric.name)) is not None]
        weak = [(arm, each) for arm, each in estimates if _not_above(each, metric.chance)]
        if weak:
            values = [(arm, each.value or 0.0, _shown(study, each, metric)) for arm, each in weak]
            warnings.append(
                f"{metric.title} is not clearly above chance ({number(metric.chance, 0)} %): "
                f"{_named(values)}. "
                "Such an arm may be guessing, so do not draw conclusions from its other numbers."
            )
    return warnings


def _not_above(estimate: Estimate, chance: float | None) -> bool:
    return chance is not None and estimate.low is not None and estimate.low <= chance


# --- caveats ---


def caveats_of(study: StudyResult) -> list[str]:
    """Return the caveats of models and searches, of runs that were stopped, and of samples without a grade."""
    caveats = [f"{caveat}." for run in study.provenance.values() for caveat in run.get("caveats") or ()]
    arms = _whole(study)
    caveats += [
        f"{arm.label}: {count(arm.pending)} samples were not run. Resume the run to complete it."
        for arm in arms
        if arm.pending
    ]
    for arm in arms:
        total, ungraded = sum(arm.statuses.values()), _ungraded(arm)
        if ungraded == total > 0:
            caveats.append(f"{arm.label}: none of the {count(total)} samples has a grade. Reasons: {_reasons([arm])}.")
        elif ungraded and ungraded >= MANY_UNGRADED * total:
            caveats.append(
                f"{arm.label}: {count(ungraded)} of {count(total)} samples have no grade. The graded ones may not "
                f"represent all. Reasons: {_reasons([arm])}."
            )
    return caveats


def nothing_measured(study: StudyResult) -> str:
    """Say that no sample has a result, and why."""
    arms = _whole(study)
    total = sum(map(_ungraded, arms))
    return f"Nothing was measured: none of the {count(total)} samples has a grade. Reasons: {_reasons(arms)}."


def _ungraded(arm: ArmResult) -> int:
    return sum(arm.statuses.get(status, 0) for status in UNGRADED)


def _reasons(arms: Sequence[ArmResult]) -> str:
    """List the commonest reasons with their counts, in the words of the server or the method."""
    found: Counter[str] = Counter()
    for arm in arms:
        for status, reason, n in arm.reasons:
            if status in UNGRADED:
                found[f"{status}, {reason.rstrip('. ')}"] += n
    return "; ".join(f"{count(n)} × {reason}" for reason, n in found.most_common(_SHOWN_REASONS)) or "not recorded"
