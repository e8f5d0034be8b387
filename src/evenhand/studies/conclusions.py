"""States a study's findings, caveats and warnings in words: what was decided, the worst first, then what stayed open.

Caveats change the reading of the headline and are shown beside it; warnings are reasons to doubt single numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from evenhand.benchmarks.base import COVERAGE, Audit
from evenhand.core.format import (
    DASH,
    count,
    difference,
    finite,
    interval,
    limits,
    number,
    p_statement,
    percent,
    plural,
    signed,
)
from evenhand.core.language import REASON
from evenhand.runs.summary import UNGRADED
from evenhand.stats import FEW_CLUSTERS, Interval, binomial_sf, widened
from evenhand.studies.audits import MAIN_FINDINGS
from evenhand.studies.results import GOOD, ArmResult, Effect, Estimate, Finding, MetricInfo, StudyResult, Verdict, size

MANY_UNGRADED = 0.01
"""From this share of ungraded samples on, a caveat is added."""
_SHOWN_REASONS = 3
_ALPHA = 0.05
MANY_REFUSED = 0.05
"""Share of refused samples above which a warning is given."""
MANY_UNSAID = 0.2
"""How much larger the share of empty, refused and cut answers may be, or of failed samples, for "better" to count."""
_LISTED = 4
"""Arms or metrics that a warning names one by one; of more it gives the range or the number."""
FAR_FROM_UNIFORM = 0.2
"""Total variation distance from uniform above which a position bias is reported."""
_ORDER: Sequence[Verdict] = (
    "worse", "not comparable", "better", "excluded", "probably worse", "probably better", "changed", "found",
    "not excluded", "none found", "nothing found", "measured", "probably changed", "no change", "cannot tell",
)  # fmt: skip
"""What was decided before what stayed open, and worse before better."""
_DECIDED: Sequence[Verdict] = ("worse", "better", "probably worse", "probably better", "changed", "probably changed")
_OPEN: Sequence[Verdict] = ("no change", "cannot tell")


def conclusions(study: StudyResult) -> list[Finding]:
    """Return what was decided, the worst first, then what improved, then what stayed open.

    An arm that is compared with nothing is described by what its values mean.
    """
    arms = {arm.id: arm for arm in study.whole_arms}
    pairs = dict.fromkeys((each.before, each.after) for each in study.effects if each.after in arms)
    if not pairs:
        return _in_order(study, [each for arm in arms.values() for each in _alone(study, arm)])
    found: list[Finding] = []
    for before, after in pairs:
        own = _in_order(study, _compared(study, arms[before], arms[after]))
        found += own if len(pairs) == 1 else _foremost(study, own)
    audits = [each for arm in arms.values() if arm.audit for each in _alone(study, arm)]
    return _in_order(study, [*found, *audits])


def _in_order(study: StudyResult, found: Iterable[Finding]) -> list[Finding]:
    """Sort by verdict, those of one verdict by size; where nothing is decided, the headline's comes first."""

    def place(finding: Finding) -> tuple[int, float]:
        is_open_headline = finding.verdict in _OPEN and finding.metric == study.headline
        return _ORDER.index(finding.verdict) - (2 if is_open_headline else 0), -finding.weight

    return sorted(found, key=place)


def _foremost(study: StudyResult, found: Sequence[Finding]) -> list[Finding]:
    """Return the first finding of each verdict, naming what else is worse; what is open only if nothing is decided."""
    titles = {metric.name: metric.title for metric in study.metrics}
    kept: dict[Verdict, Finding] = {}
    also: dict[Verdict, list[str]] = {}
    for each in found:
        if each.verdict.endswith("worse") and each.verdict in kept:
            where = f" in {plural(len(each.groups), 'group')}" if each.groups else ""
            also.setdefault(each.verdict, []).append(f"“{titles[each.metric]}”{where}")
        elif each.verdict not in _OPEN or not kept:
            kept.setdefault(each.verdict, each)
    for verdict, others in also.items():
        kept[verdict] = replace(kept[verdict], text=f"{kept[verdict].text}; also {verdict}: {_listed(others)}")
    return [*kept.values()]


def _compared(study: StudyResult, before: ArmResult, after: ArmResult) -> list[Finding]:
    """Return the findings of one comparison: one for each metric that changed, one for all that are alike, ..."""
    metrics = {metric.name: metric for metric in study.metrics}
    effects = [each for each in study.effects if (each.before, each.after, each.group) == (before.id, after.id, "all")]
    found = [
        each for effect in effects for each in _against_published(study, effect, metrics[effect.metric], before, after)
    ]
    effects = _distinct(effects)
    changed = [
        _changed(study, each, metrics[each.metric], before, after) for each in effects if each.verdict in _DECIDED
    ]
    found += {each.text: each for each in changed}.values()  # what cannot be compared is said once
    for verdict in _OPEN:
        alike = [
            each
            for each in effects
            if each.verdict == verdict and (each.metric == study.headline or _is_told(each, metrics[each.metric]))
        ]
        if alike:
            found.append(_undecided(study, verdict, alike, before, after))
    if not found and effects:
        found.append(_undecided(study, "cannot tell", effects, before, after))
    headline = metrics[study.headline]
    found += _groups_compared(study, headline, before, after)
    if all(each.metric != headline.name for each in effects):
        now, then = _names(study, before, after)
        undefined = _undefined(headline, (then, before), (now, after))
        text = ""
        if headline.untold:
            text = f"{now} and {then}, “{headline.title}” cannot be determined: {headline.untold}"
        elif len(undefined) == 1:
            text = f"{now} and {then} cannot be compared in “{headline.title}”: for {undefined[0]} it is undefined"
        if text:
            found.append(Finding("cannot tell", text, now, headline.name, (before.id, after.id)))
    return found


def _undefined(metric: MetricInfo, *arms: tuple[str, ArmResult]) -> list[str]:
    return [name for name, arm in arms if _value(arm.estimate(metric.name), 1) == DASH]


def _is_told(effect: Effect, metric: MetricInfo) -> bool:
    """Whether a metric without a decision is worth a word: not if no direction is better, or if no sample differs."""
    alike = effect.difference == 0 and effect.detectable is None
    return metric.better is not None and not (alike and effect.verdict == "cannot tell")


def _distinct(effects: Sequence[Effect]) -> list[Effect]:
    """Leave out a metric that says the same as one before it, such as a share and its complement: both are better."""
    found: dict[object, Effect] = {}
    for each in effects:
        same = (
            (abs(each.difference), each.p_value, each.n, each.verdict.split()[-1]) if each.difference else each.metric
        )
        found.setdefault(same, each)
    return list(found.values())


def _changed(study: StudyResult, effect: Effect, metric: MetricInfo, before: ArmResult, after: ArmResult) -> Finding:
    """State a change of one metric, and the numbers behind it."""
    verdict: Verdict = effect.verdict
    now, then = _names(study, before, after)
    values = _values(effect, before, after)
    shown = _short(study, metric, values)
    detail = _numbers_of(study, effect, metric)
    if verdict in GOOD and metric.name != COVERAGE.name:
        fault = _incomparable(study, effect, before, after)
        if fault:
            text = f"{now} cannot be called better than {then}: {fault}"
            return _finding(effect, "not comparable", text, now, detail)
    if metric.meaning.says:
        text = f"{now} {_says(metric, shown[1], values[1])}; {then} {_amount(metric, shown[0], values[0])}"
        return _finding(effect, verdict, text, now, detail)
    last, first = (f"{each}{_unit(metric, value)}" for each, value in zip(shown[::-1], values[::-1], strict=True))
    now, then = (now, then) if then == _BEFORE else (f"with {now}", f"with {then}")
    now = "now" if then == _BEFORE else now
    return _finding(effect, verdict, f"{metric.title} is {last} {now}; {first} {then}", "", detail)


def _groups_compared(study: StudyResult, metric: MetricInfo, before: ArmResult, after: ArmResult) -> list[Finding]:
    """Say in which groups the headline got worse by more than chance, where overall it did not."""
    family = [each for each in study.effects if each.before == before.id and each.metric == metric.name]
    own = [each for each in family if each.after == after.id]
    worse = [each for each in own if each.verdict == "worse"]
    if not worse or any(each.group == "all" for each in worse):
        return []
    worse.sort(key=lambda each: -abs(each.difference or 0.0))
    said = [f"{_group(each.group)} ({_change(study, each, metric)})" for each in worse]
    tests = sum(each.group != "all" and each.p_value is not None for each in family)
    now, then = _names(study, before, after)
    where = _of_groups(said, "", f"{plural(tests, 'comparison')} of groups")
    detail = f"{_group(worse[0].group)}: {_numbers_of(study, worse[0], metric)}"
    found = _finding(worse[0], "worse", f"{now} has a worse “{metric.title}” than {then} in {where}", now, detail)
    return [replace(found, groups=tuple(each.group for each in worse))]


def _of_groups(said: Sequence[str], more: str, tests: str) -> str:
    rest = [f"{more}{len(said) - _LISTED} more"] if len(said) > _LISTED else []
    return f"{_listed([*said[:_LISTED], *rest])}, beyond chance after correction for {tests}"


def _group(name: str) -> str:
    return name.replace("_", " ")


def _finding(effect: Effect, verdict: Verdict, text: str, who: str, detail: str = "") -> Finding:
    weight = abs(effect.difference or 0.0) / effect.margin if effect.margin else 0.0
    return Finding(verdict, text, who, effect.metric, (effect.before, effect.after), detail, weight)


def _numbers_of(study: StudyResult, effect: Effect, metric: MetricInfo) -> str:
    """The change with its interval, p-value and n, under the metric's title."""
    change = "difference" if metric.better != "zero" else "difference of the distances from zero"
    by = difference(effect.difference, effect.low, effect.high, study.digits(metric.name))
    said = f"{metric.title} {_change(study, effect, metric)}: {change} {by}"
    tested = f", adjusted {p_statement(effect.p_adjusted)}" if effect.p_adjusted is not None else ""
    return f"{said}{tested}, {size(effect)}."


def _change(study: StudyResult, effect: Effect, metric: MetricInfo) -> str:
    first, last = (number(each, study.digits(metric.name)) for each in (effect.first, effect.last))
    return f"{first} → {last}{' %' if metric.share else ''}"


def _undecided(
    study: StudyResult, verdict: Verdict, effects: Sequence[Effect], before: ArmResult, after: ArmResult
) -> Finding:
    """List the metrics without a change that matters, or the first undecided one and the others below it."""
    metrics = {metric.name: metric for metric in study.metrics}
    now, then = _names(study, before, after)
    first = next((each for each in effects if each.metric == study.headline), effects[0])
    others = [each for each in effects if each is not first]
    if verdict == "no change":
        by_margin: dict[str, list[str]] = {}
        for each in (first, *others):
            metric = metrics[each.metric]
            by_margin.setdefault(_points(metric, each.margin or 0.0), []).append(f"“{metric.title}”")
        parts = [f"by no more than {margin} in {_listed(titles)}" for margin, titles in by_margin.items()]
        return _finding(first, verdict, f"{now} and {then} differ {', and '.join(parts)}", now)
    metric = metrics[first.metric]
    reach = _reach(study, first, metric)
    if metric.untold:
        text = f"{now} and {then}, “{metric.title}” cannot be determined: {metric.untold}"
    elif first.difference is None or first.low is None:
        undefined = _undefined(metric, (then, before), (now, after))
        where = f"for {_listed(undefined)} " if undefined and first.difference is None else ""
        text = f"{now} and {then} cannot be compared in “{metric.title}”: {where}{reach}"
    else:
        text = f"{now} may be anything {reach} than {then} in “{metric.title}”"
        if metric.better == "zero" and _turned(first, before, after):
            text = f"{text}, and on the other side of zero ({_change(study, first, metric)})"
    open_too = [f"{metrics[each.metric].title} ({_reach(study, each, metrics[each.metric])})" for each in others]
    more = f" Also open: {'; '.join(open_too)}." if open_too else ""
    return _finding(first, verdict, text, now, f"{size(first)}.{more}")


def _turned(effect: Effect, before: ArmResult, after: ArmResult) -> bool:
    """Whether both arms are away from zero by more than chance, in opposite directions."""
    ends = [(each.low or 0.0, each.high or 0.0) for arm in (before, after) if (each := arm.estimate(effect.metric))]
    return len(ends) == 2 and (ends[0][1] < 0 < ends[1][0] or ends[1][1] < 0 < ends[0][0])


def _listed(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _reach(study: StudyResult, effect: Effect, metric: MetricInfo) -> str:
    """What the interval leaves open: `from 8.4 worse to 4.8 better`, or why it is undecided."""
    if effect.difference is None:
        return f"it is undefined{f' ({metric.meaning.undefined})' if metric.meaning.undefined else ''}"
    if effect.low is None or effect.high is None:
        return "too few samples for an interval"
    digits = study.digits(metric.name)
    if metric.better is None:
        return _between(study, effect)
    ends = sorted((effect.low, effect.high), reverse=metric.better != "higher")
    worse = [(end < 0) == (metric.better == "higher") for end in ends]
    unit = " points" if metric.points else ""
    shown = [
        f"{number(abs(end), digits)}{unit} {'worse' if bad else 'better'}" for end, bad in zip(ends, worse, strict=True)
    ]
    return f"from {shown[0]} to {shown[1]}"


def _between(study: StudyResult, of: Effect | Estimate) -> str:
    digits = study.digits(of.metric)
    return f"from {signed(of.low, digits)} to {signed(of.high, digits)}"


def _both(now: str, then: str) -> str:
    return f"{now}, compared with before" if then == _BEFORE else f"{now} against {then}"


def _points(metric: MetricInfo, margin: float) -> str:
    shown = f"{margin:g}"
    return f"{shown} points" if metric.points else shown


def _against_published(
    study: StudyResult, effect: Effect, metric: MetricInfo, before: ArmResult, after: ArmResult
) -> list[Finding]:
    """Say whether the interval excludes the published difference, where one is given."""
    if effect.excludes_published is None:
        return []
    digits = study.digits(metric.name)
    now, then = _names(study, before, after)
    published = signed(effect.published, digits)
    found = f"{metric.title} differs by {difference(effect.difference, effect.low, effect.high, digits)} here"
    if effect.excludes_published:
        text = f"a difference of {published} was published; {found}, which excludes it"
        return [_finding(effect, "excluded", text, "", f"{_both(now, then)}, {size(effect)}.")]
    text = f"a difference of {published} was published; {found}, which does not exclude it"
    return [_finding(effect, "not excluded", text, "", f"{_both(now, then)}, {size(effect)}.")]


# --- names and values ---

_BEFORE = "before"


def _names(study: StudyResult, before: ArmResult, after: ArmResult) -> tuple[str, str]:
    """Return what to call both arms; the same arm of two runs is `MODEL now` and `before`, if that is the order."""
    if before.key == after.key:
        runs = [str(run.get("created") or "") for run in study.provenance.values()]
        places = [int(arm.id.partition(".")[0]) - 1 for arm in (before, after)]
        if all(place < len(runs) for place in places) and runs[places[0]] < runs[places[1]]:
            return f"{_model(after)} now", _BEFORE
    return after.label, before.label


def _model(arm: ArmResult) -> str:
    """Return the model with its method; `default` is the unmodified model."""
    base = arm.models.get("base", "") or arm.label
    return base if arm.method == "default" else f"{base} with {arm.method}"


def _who(arm: ArmResult) -> str:
    base = arm.models.get("base", "")
    if not base or base in arm.label:
        return arm.label
    return base if arm.label == "default" else f"{base} with {arm.label}"


def _short(study: StudyResult, metric: MetricInfo, values: Sequence[Estimate | None]) -> list[str]:
    """Return the values for a sentence: whole percentages where these differ clearly, else as in the tables."""
    digits = study.digits(metric.name)
    known = [abs(each.value) for each in values if each is not None and each.value is not None]
    known = [100 - each if "{rest}" in metric.meaning.says else each for each in known]
    if metric.points and len({*map(round, known)}) == len(known) and all(each >= 1 or each == 0 for each in known):
        digits = 0
    return [_shown_as(metric, each, digits) for each in values]


def _shown_as(metric: MetricInfo, estimate: Estimate | None, digits: int) -> str:
    """The number that the metric's sentence needs: the value, or 100 % less it."""
    if estimate is None or estimate.value is None:
        return DASH
    if estimate.as_count is not None:
        part = estimate.n - (estimate.successes or 0) if "{rest}" in metric.meaning.says else estimate.successes
        return f"{part} of {estimate.n}"
    value = 100 - estimate.value if "{rest}" in metric.meaning.says else estimate.value
    return number(abs(value) if "{more}" in metric.meaning.says else value, digits)


def _amount(metric: MetricInfo, shown: str, estimate: Estimate | None) -> str:
    """A value with its unit, or with `more` or `fewer`."""
    if "{more}" in metric.meaning.says and estimate is not None and estimate.value is not None:
        return f"{shown} {'more' if estimate.value >= 0 else 'fewer'}"
    return f"{shown}{_unit(metric, estimate)}"


def _says(metric: MetricInfo, shown: str, estimate: Estimate | None) -> str:
    amount = _amount(metric, shown, estimate)
    return metric.meaning.says.format(value=amount, rest=amount, more=amount)


def _alone(study: StudyResult, arm: ArmResult) -> list[Finding]:
    """Describe an arm by itself: its audit, or what the headline and other metrics with a meaning say."""
    if arm.audit is not None:
        return [_of_audit(study, arm, arm.audit)]
    metrics = {metric.name: metric for metric in study.metrics}
    told = [name for name in study.guardrails if metrics[name].meaning.says and metrics[name].better]
    sides, tests = _sides(study, arm)
    names = dict.fromkeys((*told, *sides))
    names.pop(study.headline, None)
    found = [*_main(study, arm, metrics, sides, tests), *(_described(study, arm, metrics[name]) for name in names)]
    # Several metrics may say the same, such as a contrast of log-odds and of answers.
    once = {each.text: each for each in found[::-1] if each.metric == study.headline or each.verdict == "found"}
    return [*once.values()][::-1]


def _sides(study: StudyResult, arm: ArmResult) -> tuple[list[str], int]:
    """Of the metrics beside the headline with words for the sides of zero: those on one, and how many are tested."""
    worded = [each for each in study.metrics if each.better == "zero" and (each.meaning.above or each.meaning.says)]
    worded = [each for each in worded if each.name != study.headline and not each.untold]
    tests, found = _beyond_zero(arm.estimate(each.name) for each in worded)
    return [each.metric for each in found], tests


def _main(
    study: StudyResult, arm: ArmResult, metrics: Mapping[str, MetricInfo], sides: Sequence[str], tests: int
) -> list[Finding]:
    """What the headline says; where it has no value, what the metrics say that are tested instead."""
    headline, who = metrics[study.headline], _who(arm)
    known = [each for name in headline.meaning.instead if (each := arm.estimate(name)) and each.low is not None]
    value = arm.estimate(headline.name)
    if not known or known[0].few_clusters or (value is not None and value.value is not None):
        return [_described(study, arm, headline)]
    if sides:
        return []
    text = f"{who} answers no group differently, corrected for {plural(tests, 'comparison')}"
    shown = "; ".join(f"{metrics[each.metric].title}: {_shown(study, each, metrics[each.metric])}" for each in known)
    why = f"{headline.title} is undefined: {headline.meaning.undefined}"
    return [Finding("nothing found", text, who, headline.name, (arm.id,), f"{shown}. {why}.")]


def _described(study: StudyResult, arm: ArmResult, metric: MetricInfo) -> Finding:
    who, estimate = _who(arm), arm.estimate(metric.name)
    if metric.untold:
        text = f"{who}: “{metric.title}” cannot be determined: {metric.untold}"
        return Finding("cannot tell", text, who, metric.name, (arm.id,))
    if estimate is None or estimate.value is None:
        n = 0 if estimate is None else estimate.n
        why = f": {metric.meaning.undefined}" if metric.meaning.undefined else ""
        text = f"{who}: {metric.title} is undefined (n = {count(n)}){why}"
        known: Verdict = "measured" if n and metric.meaning.harmless else "cannot tell"
        return Finding(known, text, who, metric.name, (arm.id,))
    verdict = _verdict_alone(metric, estimate)
    detail = f"{metric.title}: {_shown(study, estimate, metric)}."
    shown = _short(study, metric, [estimate])[0]
    far = abs(estimate.value - (metric.best or 0.0)) / metric.margin if metric.margin else 0.0
    if verdict == "cannot tell" and estimate.value == 0:
        between = f"; it may be anything {_between(study, estimate)}" if estimate.low is not None else ""
        text = f"{who}: no difference is to be seen in “{metric.title}”{between}"
    elif metric.meaning.says:
        text = f"{who} {_says(metric, shown, estimate)}"
        if verdict == "cannot tell":
            text = f"{text}, which may be chance"
        elif verdict == "none found":
            text = f"{who}: {metric.title} is no farther than {_points(metric, metric.margin or 0.0)} from zero"
    else:
        hint = f" ({metric.better} is better)" if metric.better in ("higher", "lower") else ""
        text = f"{who}: {metric.title} is {shown}{_unit(metric, estimate)}{hint}"
        if metric.better == "zero" and verdict == "cannot tell":
            text = f"{text}, which may be chance"
        elif metric.better == "zero" and verdict == "found":
            meaning = metric.meaning.above if estimate.value > 0 else metric.meaning.below
            text = f"{who} {meaning}" if meaning else text
    for other in (each for each in study.metrics if each.name == metric.meaning.beside):
        if (beside := arm.estimate(other.name)) and beside.value:
            text = f"{text} and {_says(other, _short(study, other, [beside])[0], beside)}"
            detail = f"{detail} {other.title}: {_shown(study, beside, other)}."
    if verdict != "found" and metric.name == study.headline and (groups := _groups_alone(study, arm, metric)):
        verdict, text = "found", f"{text}; but {groups}"
    weight = far + (1e6 if metric.name == study.headline and verdict == "found" else 0.0)
    return Finding(verdict, text, who, metric.name, (arm.id,), detail, weight)


def _groups_alone(study: StudyResult, arm: ArmResult, metric: MetricInfo) -> str:
    """Say in which groups a value is away from zero by more than chance, corrected for their number."""
    if metric.better != "zero":
        return ""
    tested, found = _beyond_zero(arm.estimate(metric.name, group) for group in study.groups)
    if not found:
        return ""
    found.sort(key=lambda each: -abs(each.value or 0.0))
    said = [f"{signed(each.value, study.digits(metric.name))} in {_group(each.group)}" for each in found]
    return f"{metric.title} is {_of_groups(said, 'beyond zero in ', plural(tested, 'group'))}"


def _beyond_zero(estimates: Iterable[Estimate | None]) -> tuple[int, list[Estimate]]:
    """How many can be tested, and those that are away from zero by more than chance, corrected for their number.

    For twice their number, since far out the limits on a bounded scale are wider than Student's t alone makes them: of
    fair models in simulations about 5 in 100 were accused at most, and with their number alone 8.
    """
    tested = [
        (each, Interval(each.value, each.low, each.high, each.clusters or 0))
        for each in estimates
        if each is not None and each.value is not None and each.low is not None and not each.few_clusters
    ]
    return len(tested), [each for each, ends in tested if not widened(ends, 2 * len(tested)).includes(0)]


def _verdict_alone(metric: MetricInfo, estimate: Estimate) -> Verdict:
    """Say whether a value is away from the best one by more than chance and more than the margin.

    The interval of a share of very few samples is too short: shares must also pass the exact test.
    """
    low, high, margin = estimate.low, estimate.high, metric.margin
    if metric.better == "zero":
        if low is None or high is None:
            return "cannot tell"
        if margin is not None and max(-low, high) <= margin and not estimate.few_clusters:
            return "none found"
        return "cannot tell" if low <= 0 <= high else "found"
    if metric.best is None or not metric.meaning.says or low is None or high is None or margin is None:
        return "measured"
    apart = metric.best - high if metric.better == "higher" else low - metric.best
    if apart <= margin or estimate.successes is None:
        return "measured" if apart <= margin else "found"
    is_higher, n = metric.better == "higher", estimate.n
    wrong, usual = (n - estimate.successes, 100 - metric.best) if is_higher else (estimate.successes, metric.best)
    return "found" if binomial_sf(wrong, n, (usual + margin) / 100) <= _ALPHA / 2 else "cannot tell"


def _of_audit(study: StudyResult, arm: ArmResult, audit: Audit) -> Finding:
    """Return the most important findings of an audited arm."""
    several = len(study.whole_arms) > 1
    who = arm.label if several else _who(arm)
    first, *others = audit.sentences[:MAIN_FINDINGS] or ("no finding.",)
    verdict: Verdict = getattr(audit, "verdict", "measured")
    return Finding(verdict, f"{who}: {first.rstrip('.')}", who, "", (arm.id,), " ".join(others))


def _incomparable(study: StudyResult, main: Effect, before: ArmResult, after: ArmResult) -> str:
    """Say why a better value does not count: the arm has far fewer answers, or its headline far less or more words."""
    limited = {metric.name: metric for metric in study.metrics if metric.comparable is not None}
    unsaid = [_unsaid(arm) for arm in (before, after)]
    if unsaid[1] > unsaid[0] + MANY_UNSAID:
        return f"{percent(unsaid[1], 0)} of its answers are empty, refused or cut, not {percent(unsaid[0], 0)}"
    failed = [arm.statuses.get("failed", 0) / max(1, sum(arm.statuses.values())) for arm in (before, after)]
    if abs(failed[1] - failed[0]) > MANY_UNSAID:
        now, then = (percent(each, 0) for each in failed[::-1])
        return f"{now} of its samples failed and {then} of the other's, so only the rest is compared"
    for each in study.effects if main.metric == study.headline else ():
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


_NEVER_SCORED = ("no words", REASON, "empty text")
"""How the reasons begin that lie in the text: a second try would not help."""


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
    """The first verdict and the headline metric of every arm, for lists of runs; an arm without a value is named."""
    metric = next(each for each in result.metrics if each.name == result.headline)
    found = [(arm, arm.estimate(metric.name)) for arm in result.whole_arms]
    values = [
        (f"{arm.label} " if len(found) > 1 else "")
        + (
            "undefined"
            if each is None or finite(each.value) is None
            else interval(each.value, each.low, each.high, result.digits(metric.name))
        )
        for arm, each in found
    ]
    verdict = "".join(f"{finding.sentence} " for finding in result.findings[:1])
    return f"{verdict}{metric.title}: {'; '.join(values)}" if values else ""


def _without_scores(arms: Sequence[ArmResult]) -> list[str]:
    """One sentence for each scorer: how many answers of which arms it did not score, and why."""
    found: dict[str, list[str]] = {}
    again: set[str] = set()
    for arm in arms:
        reasons: dict[str, list[tuple[int, str]]] = {}
        for scorer, reason, n in arm.unscored:
            reasons.setdefault(scorer, []).append((n, reason))
            if not reason.startswith(_NEVER_SCORED):
                again.add(scorer)
        for scorer, each in reasons.items():
            why = each[0][1] if len(each) == 1 else ", ".join(f"{count(n)} {reason}" for n, reason in each)
            found.setdefault(scorer, []).append(f"{arm.label} {count(sum(n for n, _ in each))} ({why})")
    return [
        f"Answers without a score by {scorer}: {'; '.join(each)}."
        + (" Try again with `evenhand run rescore`." if scorer in again else "")
        for scorer, each in found.items()
    ]


def warnings_about(study: StudyResult) -> list[str]:
    """Return the reasons to doubt the study's numbers, the most serious first."""
    return [
        *_undetermined(study),
        *_at_chance(study),
        *refused(study),
        *_position_bias(study),
        *_few_clusters(study),
        *_by_benchmark(study),
        *_without_scores(study.whole_arms),
    ]


def _undetermined(study: StudyResult) -> list[str]:
    """Say which metrics have no value, once for each reason."""
    titles: dict[str, list[str]] = {}
    for metric in study.metrics:
        if metric.untold:
            titles.setdefault(metric.untold, []).append(metric.title)
    more = {why: f" and {plural(len(each) - _LISTED, 'more metric')}" for why, each in titles.items()}
    return [
        f"{'; '.join(each[:_LISTED])}{more[why] if len(each) > _LISTED else ''} cannot be determined: {why}."
        for why, each in titles.items()
    ]


def refused(study: StudyResult) -> list[str]:
    """Warn of arms that declined many samples, and in which groups they did."""
    refused = [
        (arm, n, total)
        for arm in study.whole_arms
        if (n := arm.statuses.get("refused", 0)) > MANY_REFUSED * (total := sum(arm.statuses.values()))
    ]
    partly = [f"{arm.label}: {count(n)} of {count(total)}" for arm, n, total in refused if n < total]
    said = [f"{arm.label}: everything was refused ({plural(n, 'sample')})." for arm, n, total in refused if n == total]
    said += [f"{'; '.join(partly)} samples were refused. The graded ones may not represent all."] * bool(partly)
    return said + [sentence for arm in study.whole_arms for sentence in _refused_most(study, arm)]


def _refused_most(study: StudyResult, arm: ArmResult) -> list[str]:
    """Say in which groups refusals are clearly more than twice as frequent as overall; few refusals may be of one."""
    overall = arm.estimate("refusals")
    if overall is None or not overall.value:
        return []
    found = [(group, each) for group in study.groups if (each := arm.estimate("refusals", group))]
    most = [
        f"{group.replace('_', ' ')} ({number(each.value, 0)} %)"
        for group, each in found
        if each.low is not None and each.low > 2 * overall.value
    ]
    said = f"than overall ({number(overall.value, 1)} %)."
    return [f"{arm.label} refuses more in {_listed(most)} {said}"] if most else []


def is_answered(study: StudyResult) -> bool:
    """Return whether what a benchmark says of its answers applies: not if all was refused and the headline is empty."""
    measured = [each.value for arm in study.arms if (each := arm.estimate(study.headline))]
    refused = all(arm.statuses.get("refused", 0) == sum(arm.statuses.values()) for arm in study.whole_arms)
    return not refused or any(value is not None for value in measured)


ONE_LETTER = "Strong position bias:"


def _position_bias(study: StudyResult) -> list[str]:
    biased = [arm for arm in study.arms if _has_position_bias(arm)]
    if not biased:
        return []
    shares = [(arm, 100 * _favourite_share(arm), percent(_favourite_share(arm), 0)) for arm in biased]
    advice = f", {study.position_advice}" if study.position_advice else ""
    return [f"{ONE_LETTER} one letter is preferred whatever option it labels ({_named(shares)} of the time){advice}."]


def _by_benchmark(study: StudyResult) -> list[str]:
    said = {
        warning: [arm.label for arm in study.whole_arms if warning in arm.warnings]
        for arm in study.whole_arms
        for warning in arm.warnings
    }
    return [f"{', '.join(labels)}: {warning}" for warning, labels in said.items()]


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
        for arm in study.whole_arms
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
        f"{FEW_CLUSTERS}, intervals may be too narrow, and few changes can be detected."
    ]


def _has_position_bias(arm: ArmResult) -> bool:
    position = arm.position
    if position is None or position.distance is None or position.p_value is None:
        return False
    return position.distance > FAR_FROM_UNIFORM and position.p_value < 0.001


def _favourite_share(arm: ArmResult) -> float:
    """Return the share of the most frequent letter."""
    return max(arm.position.counts) / sum(arm.position.counts) if arm.position else 0.0


GUESSING = "Such an arm may be guessing"
AVOIDING = "Such an arm avoids the right answer"


def _at_chance(study: StudyResult) -> list[str]:
    """Warn of arms that do no better than guessing, whose other numbers are noise, and of arms that do worse."""
    warnings: list[str] = []
    for metric in study.metrics:
        chance = metric.chance
        if chance is None:
            continue
        weak: dict[bool, list[tuple[ArmResult, float, str]]] = {}
        for arm in study.arms:
            each = arm.estimate(metric.name)
            if each is not None and each.low is not None and each.high is not None and each.low <= chance:
                values = weak.setdefault(each.high < chance / 2, [])
                values.append((arm, each.value or 0.0, _shown(study, each, metric)))
        for below, values in weak.items():
            where = "far below" if below else "not clearly above"
            so = f"{AVOIDING}; if it shows no bias, that is no merit"
            so = so if below else f"{GUESSING}, so do not draw conclusions from its other numbers"
            warnings.append(f"{metric.title} is {where} chance ({number(chance, 0)} %): {_named(values)}. {so}.")
    return warnings


# --- caveats ---


def caveats_of(study: StudyResult) -> list[str]:
    """Return the caveats of models and searches, of runs that were stopped, and of samples without a grade."""
    caveats = [f"{caveat}." for run in study.provenance.values() for caveat in run.get("caveats") or ()]
    arms = study.whole_arms
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


def nothing_measured(study: StudyResult) -> Finding:
    """Say that no sample has a result, and why."""
    arms = study.whole_arms
    total = sum(map(_ungraded, arms))
    text = f"nothing was measured, none of the {count(total)} samples has a grade"
    return Finding("cannot tell", text, detail=f"Reasons: {_reasons(arms)}.")


def _ungraded(arm: ArmResult) -> int:
    return sum(arm.statuses.get(status, 0) for status in UNGRADED)


def _reasons(arms: Sequence[ArmResult]) -> str:
    """List the commonest reasons with their counts, in the words of the server or the method."""
    found: Counter[str] = Counter()
    for arm in arms:
        for status, reason, n in arm.reasons:
            if status in UNGRADED:
                found[f"{status}, {reason.rstrip('.? ')}"] += n
    return "; ".join(f"{count(n)} × {reason}" for reason, n in found.most_common(_SHOWN_REASONS)) or "not recorded"
