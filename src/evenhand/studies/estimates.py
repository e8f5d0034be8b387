"""Estimates of metrics with confidence intervals, computed from the sums per cluster."""

from __future__ import annotations

from evenhand.benchmarks.base import Metric, ratio
from evenhand.stats import Interval, bounded_mean_interval, cluster_bootstrap, share_interval
from evenhand.studies.results import Estimate
from evenhand.studies.tally import ALL, Key, Tally

RESAMPLES = 2000


def estimate(metric: Metric, group: str, tally: Tally) -> Estimate:
    """Estimate the metric in one group, scaled for display."""
    key: Key = (metric.name, group)
    interval = _interval(metric, tally, key)
    scaled = [None if v is None else v * metric.scale for v in (interval.estimate, interval.low, interval.high)]
    successes = round(tally.table(key)[:, 0].sum()) if metric.share else None
    return Estimate(metric.name, group, scaled[0], scaled[1], scaled[2], tally.n[key], successes)


def groups_of(metric: str, tally: Tally) -> list[str]:
    """Return the groups in which the metric was counted, `all` first."""
    groups = [group for name, group in tally.sums if name == metric]
    return sorted(groups, key=lambda group: (group != ALL, group))


def _interval(metric: Metric, tally: Tally, key: Key) -> Interval:
    table = tally.table(key)
    if metric.share:
        return share_interval(table)
    bounds = metric.scale_bounds
    if metric.statistic is ratio and bounds is not None:
        return bounded_mean_interval(table, bounds)
    return cluster_bootstrap(table, metric.statistic, resamples=RESAMPLES, bounds=bounds).interval
