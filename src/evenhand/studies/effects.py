"""Paired differences between each arm and the baseline, with intervals and corrected tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evenhand.benchmarks.base import Benchmark, Metric
from evenhand.stats import (
    benjamini_hochberg,
    holm,
    mcnemar_exact,
    mde_from_standard_error,
    paired_cluster_bootstrap,
)
from evenhand.studies.estimates import RESAMPLES, groups_of
from evenhand.studies.results import Effect
from evenhand.studies.tally import ALL, Key, PairTally


def paired_effects(
    benchmark: Benchmark,
    metrics: Sequence[Metric],
    reference: str,
    pairs: Mapping[str, PairTally],
    correction: str,
) -> list[Effect]:
    """Compare the arms in `pairs` with the reference.

    p-values are corrected in two separate families: headline and guardrails overall, and the headline by group.
    """
    watched = {benchmark.headline, *benchmark.guardrails}
    overall: list[Effect] = []
    by_group: list[Effect] = []
    for arm_id, pair in pairs.items():
        for metric in metrics:
            for group in groups_of(metric.name, pair.before):
                if group == ALL and metric.name in watched:
                    overall.append(_effect(metric, group, reference, arm_id, pair, correction))
                elif group != ALL and metric.name == benchmark.headline:
                    by_group.append(_effect(metric, group, reference, arm_id, pair, correction))
    return [*_corrected(overall, correction), *_corrected(by_group, correction)]


def _effect(metric: Metric, group: str, before: str, after: str, pair: PairTally, correction: str) -> Effect:
    key: Key = (metric.name, group)

    def distance(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.abs(metric.statistic(sums))

    statistic = distance if metric.better == "zero" else metric.statistic
    tables = pair.before.table(key), pair.after.table(key)
    bootstrap = paired_cluster_bootstrap(*tables, statistic, resamples=RESAMPLES, bounds=metric.difference_bounds)
    p_value, test = bootstrap.p_value, "clustered bootstrap"
    if metric.share:
        p_value, test = mcnemar_exact(pair.only_before[key], pair.only_after[key]), "exact McNemar"
    error = bootstrap.standard_error
    values = (bootstrap.interval.estimate, bootstrap.interval.low, bootstrap.interval.high)
    difference, low, high = (None if value is None else value * metric.scale for value in values)
    return Effect(
        before=before,
        after=after,
        metric=metric.name,
        group=group,
        difference=difference,
        low=low,
        high=high,
        n=pair.before.n[key],
        p_value=p_value,
        p_adjusted=None,
        correction=correction,
        test=test,
        # Without any spread the detectable difference is unknown, not 0.
        detectable=mde_from_standard_error(error) * metric.scale if error else None,
        direction="undecided",
        first=_value(metric, tables[0]),
        last=_value(metric, tables[1]),
    )


def _value(metric: Metric, table: NDArray[np.float64]) -> float | None:
    value = float(metric.statistic(table.sum(axis=0))) * metric.scale
    return value if np.isfinite(value) else None


def _corrected(effects: Sequence[Effect], correction: str) -> list[Effect]:
    """Adjust the p-values of a family; a direction needs both the p-value and the interval."""
    adjust = {"holm": holm, "bh": benjamini_hochberg}[correction]
    adjusted = adjust([effect.p_value for effect in effects])
    return [
        replace(effect, p_adjusted=p, direction=_direction(effect, p))
        for effect, p in zip(effects, adjusted, strict=True)
    ]


def _direction(effect: Effect, p_adjusted: float | None) -> str:
    if effect.low is None or effect.high is None or p_adjusted is None or p_adjusted > 0.05:
        return "undecided"
    if effect.high < 0:
        return "fell"
    return "rose" if effect.low > 0 else "undecided"
