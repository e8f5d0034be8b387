"""Limits on metrics: whether an arm's whole interval is within a limit, beyond it, or neither."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from evenhand.core.errors import DataError, UnknownNameError, UsageError, check_names
from evenhand.stats import mde_from_standard_error
from evenhand.studies.results import ArmResult, Estimate, MetricInfo, StudyResult
from evenhand.studies.tally import ALL

State = Literal["passed", "failed", "cannot tell"]
Ends = tuple[float, float, float]
"""A value with the low and the high end of its interval."""
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_NAME = r"(?P<metric>[^|<>=\[\]\s]+)(?:\[(?P<group>[^\]]+)\])?"
_MAKE_ONE = "make one: `evenhand compare RUN --json > baseline.json`"
_CONDITION = re.compile(
    rf"(?P<bar>\|?)\s*{_NAME}\s*(?P<end>\|?)\s*(?P<sign>[<>]=?)\s*(?P<bound>{_NUMBER})\s*(?P<unit>%?)"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """What fails a gate: `|bias_ambig| > 10`, `accuracy_disambig < 80`, `|bias_ambig[Age]| > 20`."""

    metric: str
    sign: str
    """`>`, `>=`, `<` or `<=`."""
    bound: float
    absolute: bool = False
    group: str = ALL
    percent: bool = False
    """Whether it was written with a percent sign."""

    @classmethod
    def parse(cls, text: str) -> Condition:
        match = _CONDITION.fullmatch(text.strip())
        if match is None or bool(match["bar"]) is not bool(match["end"]):
            raise UsageError(
                f"--fail-if takes a condition such as '|bias_ambig| > 10' or 'm[GROUP] < 80', not {text!r}."
            )
        signs = bool(match["bar"]), match["group"] or ALL, bool(match["unit"])
        return cls(match["metric"], match["sign"], float(match["bound"]), *signs)

    def __str__(self) -> str:
        name = self.metric if self.group == ALL else f"{self.metric}[{self.group}]"
        return f"{f'|{name}|' if self.absolute else name} {self.sign} {self.bound:g}{' %' if self.percent else ''}"

    def state(self, low: float, high: float) -> State:
        """`failed` if the condition is true of the whole interval, `passed` if of no part of it."""
        held = {
            ">": (low > self.bound, high > self.bound),
            ">=": (low >= self.bound, high >= self.bound),
            "<": (high < self.bound, low < self.bound),
            "<=": (high <= self.bound, low <= self.bound),
        }
        everywhere, somewhere = held[self.sign]
        return "failed" if everywhere else "cannot tell" if somewhere else "passed"


@dataclass(frozen=True, slots=True)
class Check:
    """One condition on one arm. The numbers are those that the condition is about, e.g. absolute values."""

    arm: str
    condition: str
    state: State
    reason: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0


class _Metric(BaseModel):
    metric: str
    value: float | None
    low: float | None
    high: float | None


class _Arm(BaseModel):
    arm: str
    metrics: list[_Metric]


class _Run(BaseModel):
    benchmark: str
    state: str
    made_with: dict[str, Any] | None = None
    """Not in what version 0.3.0 wrote."""
    arms: list[_Arm]


class _Baseline(BaseModel):
    runs: list[_Run]


Baseline = Mapping[str, Mapping[str, Ends]]
"""Arm → metric → value with its interval."""


def made_with(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a run, by its facts, and its baseline must share: the benchmark's data and options, orders, scorers."""
    scorers: Mapping[str, Any] = run["scorers"] or {}
    planned = [scorer for scorer, about in scorers.items() if about["planned"]]
    return {**run["benchmark"], "orders": run["plan"]["orders"], "scorers": planned}


def read_baseline(path: Path, benchmark: str, made: Mapping[str, Any] | None = None) -> Baseline:
    """The arms of the complete run of `benchmark`, `made` so, in what a command printed with --json."""
    try:
        found = _Baseline.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror}); {_MAKE_ONE}.", file=path) from error
    except ValidationError as error:
        raise DataError(f"is not a baseline; {_MAKE_ONE}.", file=path) from error
    runs = [run for run in found.runs if run.benchmark == benchmark]
    if len(runs) != 1:
        raise DataError(f"has {len(runs)} runs of {benchmark}; a baseline has one.", file=path)
    if runs[0].state != "complete":
        raise DataError(f"its run is not complete ({runs[0].state}); make a baseline of a complete one.", file=path)
    before = runs[0].made_with
    if before is not None and made is not None:
        names = sorted({*before, *made})
        if other := ["data" if name == "sha256" else name for name in names if before.get(name) != made.get(name)]:
            raise DataError(f"its run was made with other {', '.join(other)}; make both alike.", file=path)
    arms = runs[0].arms
    return {arm.arm: {m.metric: ends for m in arm.metrics if (ends := _ends(m)) is not None} for arm in arms}


def arm_before(baseline: Baseline, label: str, *, alone: bool) -> Mapping[str, Ends]:
    """The baseline's arm with this label, or its only one for an arm that is `alone`."""
    if label not in baseline and (len(baseline) != 1 or not alone):
        raise UnknownNameError("arm in the baseline", label, baseline)
    return baseline[label if label in baseline else next(iter(baseline))]


def _ends(of: Estimate | _Metric | None) -> Ends | None:
    if of is None or of.value is None or of.low is None or of.high is None:
        return None
    return (of.value, of.low, of.high)


def absolute(ends: Ends) -> Ends:
    """The absolute value and its interval; an interval around zero begins at zero."""
    value, low, high = ends
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return abs(value), nearest, max(abs(low), abs(high))


def difference(new: Ends, old: Ends) -> Ends:
    """New minus old, of two independent estimates, with the interval by square-and-add (Newcombe, MOVER)."""
    d = new[0] - old[0]
    low, high = math.hypot(new[0] - new[1], old[2] - old[0]), math.hypot(new[2] - new[0], old[0] - old[1])
    return d, d - low, d + high


def check_units(conditions: Iterable[Condition], metrics: Iterable[MetricInfo]) -> None:
    """Refuse a bound beyond the metric's scale, and one below 1 where the scale goes to 100: 0.8 may be meant as 80.

    Of the metrics that go to 100, ratings are no percentages.
    """
    infos = {metric.name: metric for metric in metrics}
    for each in conditions:
        if (info := infos.get(each.metric)) is None:
            continue
        if each.percent and (info.rating or not info.points):
            raise UsageError(f"{each.metric} is no percentage; remove % in '{each}'.")
        if info.points and 0 < abs(each.bound) < 1 and not each.percent:
            meant, exact = replace(each, bound=100 * each.bound), replace(each, percent=True)
            less = "" if info.rating else f", or '{exact}' for less than one"
            raise UsageError(f"{each.metric} goes to 100, not to 1: write '{meant}'{less}.")
        low, high = info.ends or (-math.inf, math.inf)
        if each.absolute:
            low, high = 0.0, max(abs(low), abs(high))
        if not low <= each.bound <= high:
            scale = f"goes from {low:g} to {high:g}" if math.isfinite(high) else f"is at least {low:g}"
            name = f"|{each.metric}|" if each.absolute else each.metric
            raise UsageError(f"{name} {scale}, so '{each}' can decide nothing; choose a limit on this scale.")


def check_directions(named: Iterable[str], better: Mapping[str, str | None]) -> None:
    """Refuse metrics of which no direction is worse; the name "" is of the headline and its guardrails."""
    for name in filter(None, named):
        check_names("metric", better, name)
        if better[name] is None:
            raise UsageError(f"No direction of {name} is worse; give --tolerance and --detect for other metrics.")


def whole_arms(result: StudyResult, named: Sequence[str] = ()) -> list[ArmResult]:
    """The arms with their final answers: all of them, or those that are named."""
    arms = {arm.label: arm for arm in result.arms if arm.iteration is None}
    check_names("arm", arms, *named)
    return [arm for label, arm in arms.items() if not named or label in named]


def check(result: StudyResult, arm: ArmResult, condition: Condition) -> Check:
    """Hold one arm against one condition."""
    check_names("metric", [metric.name for metric in result.metrics], condition.metric)
    found = arm.estimate(condition.metric, condition.group)
    if found is None and condition.group not in (ALL, *result.groups):
        raise UnknownNameError("group", condition.group, result.groups)
    ends = _ends(found)
    if ends is None:
        return Check(arm.label, str(condition), "cannot tell", _why(result, condition.metric, found))
    shown = absolute(ends) if condition.absolute else ends
    return _judged(arm, condition, shown, found, str(condition), change=False)


def check_against(
    result: StudyResult,
    arm: ArmResult,
    baseline: Baseline,
    tolerances: Mapping[str, float],
    detect: Mapping[str, float],
) -> list[Check]:
    """Whether an arm is worse than the baseline's by more than the tolerance of each metric.

    A tolerance without a metric is for the headline and its guardrails. With `detect`, an arm that is not decidedly
    worse passes only if a worsening of this size would have been seen with 80 % power.
    """
    old = arm_before(baseline, arm.label, alone=len(whole_arms(result)) == 1)
    infos = {metric.name: metric for metric in result.metrics}
    check_directions([*tolerances, *detect], {name: info.better for name, info in infos.items()})
    most = {name: tolerance for name, tolerance in tolerances.items() if name}
    if "" in tolerances:
        main = [m for m in (result.headline, *result.guardrails) if m in infos and infos[m].better is not None]
        most = {**dict.fromkeys(main, tolerances[""]), **most}
    checks: list[Check] = []
    for name, tolerance in most.items():
        better = infos[name].better
        text = f"{name} is worse than the baseline{f' by more than {tolerance:g}' if tolerance else ''}"
        found = arm.estimate(name)
        new, before = _ends(found), old.get(name)
        if new is None or before is None:
            unmeasured = Check(arm.label, text, "cannot tell", _why(result, name, found))
            undefined = found is not None and found.value is None and found.n > 0
            harmless = undefined and infos[name].meaning.harmless
            checks.append(replace(unmeasured, state="passed") if harmless else unmeasured)
            continue
        turned = ""
        if better == "zero":
            if new[1] > 0 > before[2] or new[2] < 0 < before[1]:
                turned = f"; on the other side of zero: {before[0]:.4g}, now {new[0]:.4g}"
            new, before = absolute(new), absolute(before)
        worse = difference(before, new) if better == "higher" else difference(new, before)
        judged = _judged(arm, Condition(name, ">", tolerance), worse, found, text)
        judged = replace(judged, reason=f"{judged.reason}{turned}")
        wanted = detect.get(name, detect.get(""))
        checks.append(judged if wanted is None or judged.state != "cannot tell" else _powered(judged, wanted))
    return checks


def _powered(check: Check, wanted: float) -> Check:
    """An undecided check passes if a worsening of `wanted` would have been seen; otherwise it says what it needs."""
    assert check.value is not None and check.low is not None and check.high is not None
    half_width = max(check.value - check.low, check.high - check.value)
    smallest = mde_from_standard_error(half_width / NormalDist().inv_cdf(0.975))
    if smallest <= wanted:
        reason = f"{check.reason}; a worsening of {smallest:.3g} or more would have been seen"
        return replace(check, state="passed", reason=reason)
    needed = math.ceil(check.n * (smallest / wanted) ** 2)
    few = f"too few samples: to see a worsening of {wanted:g}, about {needed:,} must count for this metric in each run"
    return replace(check, reason=f"{check.reason}; {few}")


def settled(result: StudyResult, checks: Sequence[Check]) -> list[Check]:
    """The same checks; none is decided if nothing was measured, or if samples of its arm have not been run."""
    if result.nothing_measured:
        return [Check(each.arm, each.condition, "cannot tell", "no sample has a result") for each in checks]
    pending = {arm.label: arm.pending for arm in result.arms if arm.iteration is None and arm.pending}
    return [
        replace(each, state="cannot tell", reason=f"{pending[each.arm]:,} samples have not been run")
        if each.arm in pending
        else each
        for each in checks
    ]


def overall(checks: Sequence[Check]) -> State:
    """`failed` if any check failed, else `cannot tell` if any is undecided."""
    states = {each.state for each in checks}
    return "failed" if "failed" in states else "cannot tell" if "cannot tell" in states else "passed"


def _judged(
    arm: ArmResult, on: Condition, ends: Ends, found: Estimate | None, text: str, *, change: bool = True
) -> Check:
    """Holds an interval to a condition; the reason calls a `change` worse, better or none, without a minus."""
    value, low, high = ends
    before, said = "", ends
    if change and value:
        before, said = ("better by ", (-value, -high, -low)) if value < 0 else ("worse by ", ends)
    elif change:
        before = "unchanged, "
    n = 0 if found is None else found.n
    few = ", few clusters: the interval may be too narrow" if found is not None and found.few_clusters else ""
    reason = f"{before}{said[0]:.4g} [{said[1]:.4g}, {said[2]:.4g}], n = {n:,}{few}"
    return Check(arm.label, text, on.state(low, high), reason, value, low, high, n)


def _why(result: StudyResult, metric: str, found: Estimate | None) -> str:
    """Say where a metric has no value or interval, and why as far as it is declared."""
    info = next(each for each in result.metrics if each.name == metric)
    if info.untold:
        return f"{metric} cannot be determined: {info.untold}"
    if found is not None and found.value is not None:
        return f"{metric} has no value {'with an interval' if _ends(found) is None else 'in the baseline'}"
    return f"{metric} has no value here{f': {info.meaning.undefined}' if info.meaning.undefined else ''}"
