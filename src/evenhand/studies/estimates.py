"""Estimates of metrics with confidence intervals, computed from the sums per cluster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.benchmarks.base import Metric
from evenhand.stats import FEW_CLUSTERS, Interval, cluster_jackknife, share_interval
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL, Key, Tally


def estimate(metric: Metric, group: str, tally: Tally) -> Estimate:
    """Estimate the metric in one group, scaled for display."""
    key: Key = (metric.name, group)
    table = tally.table(key)
    interval = _interval(metric, table)
    scaled = [None if v is None else v * metric.scale for v in (interval.estimate, interval.low, interval.high)]
    return Estimate(
        metric.name,
        group,
        scaled[0],
        scaled[1],
        scaled[2],
        tally.n[key],
        round(table[:, 0].sum()) if metric.share else None,
        len(table),
        len(table) < FEW_CLUSTERS,
    )


def groups_of(metric: str, tally: Tally) -> list[str]:
    """Return the groups in which the metric was counted, `all` first."""
    groups = [group for name, group in tally.sums if name == metric]
    return sorted(groups, key=lambda group: (group != ALL, group))


def _interval(metric: Metric, table: NDArray[np.float64]) -> Interval:
    if metric.share:
        return share_interval(table)
    return cluster_jackknife(table, metric.statistic, bounds=metric.scale_bounds).interval
