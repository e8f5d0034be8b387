"""Paired differences between each arm and the baseline, with intervals and corrected tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evenhand.benchmarks.base import Metric, ratio
from evenhand.stats import (
    FEW_CLUSTERS,
    Jackknife,
    Statistic,
    benjamini_hochberg,
    holm,
    least_swap_p,
    mcnemar_exact,
    mde_from_standard_error,
    paired_cluster_jackknife,
    side_of,
    student_t_p,
    swap_test,
    wilson,
)
from evenhand.studies.results import Effect, Verdict
from evenhand.studies.tally import ALL, Key, PairTally, groups_of

_ALPHA = 0.05
_Data = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Tested:
    """An effect before the correction, with its spread and the numbers that were tested."""

    effect: Effect
    spread: Jackknife
    scale: float
    largest: float
    """The largest possible difference, without the display factor."""
    data: _Data


def paired_effects(
    main: Sequence[str],
    metrics: Sequence[Metric],
    reference: str,
    pairs: Mapping[str, PairTally],
    correction: str,
    margins: Mapping[str, float] | None = None,
    published: Mapping[str, float] | None = None,
) -> list[Effect]:
    """Compare the arms in `pairs` with the reference.

    `main` are the headline and its guardrails. p-values are corrected in two separate families: all of these overall,
    and the headline by group.
    `margins` and `published` are by metric: changes that do not matter, and differences over all samples that others
    published.
    """
    overall: list[_Tested] = []
    by_group: list[_Tested] = []
    for arm_id, pair in pairs.items():
        for metric in metrics:
            for group in groups_of(metric.name, pair.before):
                if group == ALL and metric.name in main:
                    overall.append(_tested(metric, group, reference, arm_id, pair, correction))
                elif group != ALL and metric.name == main[0]:
                    by_group.append(_tested(metric, group, reference, arm_id, pair, correction))
    found = [
        *(replace(each, published=(published or {}).get(each.metric)) for each in _corrected(overall, correction)),
        *_corrected(by_group, correction),
    ]
    known = {metric.name: metric for metric in metrics}
    return [_judged(each, known[each.metric], margin_of(known[each.metric], margins or {})) for each in found]


def margin_of(metric: Metric, margins: Mapping[str, float]) -> float | None:
    """Return the largest change that does not matter: the given one (that of "" is for all), else the metric's."""
    return margins.get(metric.name, margins.get("", metric.matters))


def _judged(effect: Effect, metric: Metric, margin: float | None) -> Effect:
    unseen = 0.0
    if not metric.share and metric.better != "zero" and metric.difference_bounds is not None:
        unseen = (wilson(0, effect.clusters).high or 0.0) * metric.difference_bounds[1] * metric.scale
    return replace(effect, margin=margin, verdict=verdict_of(effect, metric.better, margin, unseen))


def verdict_of(effect: Effect, better: str | None, margin: float | None, unseen: float = 0.0) -> Verdict:
    """Say what a difference means.

    "No change" needs the whole interval within the margin. It is the 95 % interval that readers see, not the 90 % one
    of two one-sided tests at 5 %: words and interval must agree. The price is power, never a false comfort. Of scores,
    rare large ones may be in no sample at all: what they could make (`unseen`) must be within the margin, too.
    """
    low, high = effect.low, effect.high
    if low is None or high is None:
        return "cannot tell"
    if margin is not None and max(-low, high, unseen) <= margin and not effect.few_clusters:
        # Distances from zero may agree although the bias has changed sides.
        apart = abs((effect.last or 0.0) - (effect.first or 0.0)) if better == "zero" else 0.0
        return "no change" if apart <= margin else "cannot tell"
    if low <= 0 <= high:
        return "cannot tell"
    good = None if better is None else (low > 0) == (better == "higher")
    if effect.direction == "undecided":
        return "probably changed" if good is None else "probably better" if good else "probably worse"
    return "changed" if good is None else "better" if good else "worse"


def effects_of_pairs(metric: Metric, pairs: Mapping[tuple[str, str], PairTally], correction: str) -> list[Effect]:
    """Compare arms two by two on one metric over all samples, corrected for the number of pairs."""
    key: Key = (metric.name, ALL)
    counted = {arms: pair for arms, pair in pairs.items() if pair.before.n[key]}
    family = [_tested(metric, ALL, *arms, pair, correction) for arms, pair in counted.items()]
    return _corrected(family, correction)


def effect_of(metric: Metric, group: str, before: str, after: str, pair: PairTally) -> Effect:
    """Return the difference of one metric in one group, with a p-value that is not corrected."""
    return _tested(metric, group, before, after, pair, "none").effect


def _test(metric: Metric, pair: PairTally, key: Key, spread: Jackknife) -> tuple[float | None, str]:
    """Return the p-value of "both arms are alike" and the name of the test, which swaps whole clusters.

    McNemar's test is its closed form for shares of samples that are all their own clusters. Arms that lie as far from
    zero on opposite sides are not alike, so that a distance's p-value is at least that of the jackknife's interval.
    """
    before, after = pair.before.table(key), pair.after.table(key)
    if metric.share and (before[:, 1] == 1).all():
        return mcnemar_exact(pair.only_before[key], pair.only_after[key]), "exact McNemar"
    p_value, distance = swap_test(before, after, _statistic(metric)), spread.interval.estimate
    if metric.better == "zero" and p_value is not None and distance is not None and spread.standard_error and spread.df:
        p_value = max(p_value, student_t_p(distance / spread.standard_error, spread.df))
    return p_value, "cluster permutation"


def _statistic(metric: Metric) -> Statistic:
    """Return what is compared: the value, or its distance from zero if zero is best."""
    return (lambda sums: np.abs(metric.statistic(sums))) if metric.better == "zero" else metric.statistic


def _tested(metric: Metric, group: str, before: str, after: str, pair: PairTally, correction: str) -> _Tested:
    key: Key = (metric.name, group)
    tables = pair.before.table(key), pair.after.table(key)
    spread = paired_cluster_jackknife(*tables, _statistic(metric), bounds=metric.difference_bounds)
    p_value, test = _test(metric, pair, key, spread)
    found = spread.interval.times(metric.scale)
    effect = Effect(
        before=before,
        after=after,
        metric=metric.name,
        group=group,
        difference=found.estimate,
        low=found.low,
        high=found.high,
        n=pair.before.n[key],
        p_value=p_value,
        p_adjusted=None,
        correction=correction,
        test=test,
        detectable=None,
        direction="undecided",
        first=_value(metric, tables[0]),
        last=_value(metric, tables[1]),
        clusters=found.n,
        few_clusters=found.n < FEW_CLUSTERS,
    )
    largest = metric.difference_bounds[1] if metric.difference_bounds else math.inf
    return _Tested(effect, spread, metric.scale, largest, (after, group, _data(metric, *tables)))


def _data(metric: Metric, *tables: NDArray[np.float64]) -> _Data:
    """Return the numbers that a test sees; a share and its complement give the same."""
    if metric.statistic is ratio and metric.scale_bounds == (0.0, 1.0):
        complements = [np.column_stack([table[:, 1] - table[:, 0], table[:, 1]]) for table in tables]
        return (ratio, min(_bytes(tables), _bytes(complements)))
    return (metric.statistic, metric.better == "zero", _bytes(tables))


def _bytes(tables: Sequence[NDArray[np.float64]]) -> bytes:
    return b"".join(table.tobytes() for table in tables)


def _value(metric: Metric, table: NDArray[np.float64]) -> float | None:
    value = float(metric.statistic(table.sum(axis=0))) * metric.scale
    return value if np.isfinite(value) else None


def _corrected(family: Sequence[_Tested], correction: str) -> list[Effect]:
    """Adjust the p-values of a family; a direction needs both the p-value and the interval.

    A hypothesis counts once: metrics that give the same numbers in every cluster of both arms are one test.
    """
    adjust = {"holm": holm, "bh": benjamini_hochberg}[correction]
    p_values = {each.data: each.effect.p_value for each in family}
    adjusted = dict(zip(p_values, adjust(list(p_values.values())), strict=True))
    tests = sum(p is not None for p in p_values.values())
    return [
        replace(
            each.effect,
            p_adjusted=adjusted[each.data],
            direction=_direction(each.effect, adjusted[each.data]),
            detectable=_detectable(each, tests),
        )
        for each in family
    ]


def _detectable(tested: _Tested, tests: int) -> float | None:
    """Return the difference that would be decided with 80 % power if it were the only one among these tests.

    None if the spread is unknown; infinite if no possible difference would be decided, since so few clusters cannot
    give a p-value that survives the correction, or since the scale is too short.
    """
    error, df = tested.spread.standard_error, tested.spread.df
    if not error or df is None:
        return None
    alpha = _ALPHA / max(1, tests)
    needed = mde_from_standard_error(error, alpha=alpha, df=df)
    is_possible = least_swap_p(tested.effect.clusters) <= alpha and needed <= tested.largest
    return needed * tested.scale if is_possible else math.inf


def _direction(effect: Effect, p_adjusted: float | None) -> str:
    is_significant = p_adjusted is not None and p_adjusted <= _ALPHA
    return {-1: "fell", 0: "undecided", 1: "rose"}[side_of(effect.low, effect.high) if is_significant else 0]
