"""Confidence intervals of shares and means, alone or in clusters.

Limits never leave the scale, and values without spread never give an interval of zero width.
"""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.stats._checks import check_fraction, cluster_sums, finite_array
from evenhand.stats.distributions import student_t_quantile

Bounds = tuple[float, float]
"""The lowest and the highest possible value."""

_NO_SPREAD = 1e-9
"""Smaller standard errors, as a share of the scale, are rounding."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence limits; None means undefined, never 0.

    n is the number of trials for a share, of values for a mean, and of clusters for a bootstrap.
    """

    estimate: float | None
    low: float | None
    high: float | None
    n: int


def wilson(successes: int, n: int, confidence: float = 0.95) -> Interval:
    """Return the Wilson score interval of a share; undefined without trials."""
    check_fraction("confidence", confidence)
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n, not {successes} of {n}.")
    if n == 0:
        return Interval(None, None, None, 0)
    low, high = _score_limits(successes / n, n, NormalDist().inv_cdf(0.5 + confidence / 2))
    return Interval(successes / n, low, high, n)


def share_interval(counts: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return a share from a (clusters, (successes, trials)) table.

    It is Wilson's interval at the effective sample size of Korn and Graubard (1998): trials over design effect, at most
    the trials, with the t quantile of clusters - 1 degrees of freedom. If every trial is its own cluster, it is
    Wilson's interval of the trials.
    """
    table = _sums_table(counts)
    successes, trials = table.sum(axis=0).tolist()
    if (table[:, 1] == 1).all():
        return wilson(round(successes), round(trials), confidence)
    return _ratio_interval(table, (0.0, 1.0), confidence, most=trials)


def bounded_mean_interval(sums: ArrayLike, bounds: Bounds = (0.0, 1.0), confidence: float = 0.95) -> Interval:
    """Return a mean on a bounded scale from a (clusters, (sum, number)) table, with limits on that scale.

    It is the clustered `share_interval` for values between the bounds; the effective size may exceed the number of
    values, since such values vary less than zeros and ones.
    """
    return _ratio_interval(_sums_table(sums), bounds, confidence, most=math.inf)


def bounded_interval(
    estimate: float,
    standard_error: float,
    clusters: int,
    bounds: Bounds,
    confidence: float = 0.95,
    *,
    most: float = math.inf,
) -> Interval:
    """Return the limits of an estimate on a bounded scale: Wilson's at its effective size, which is at most `most`.

    Without spread, no cluster of this many differs: by Wilson's limit at most a share u of all clusters does, and these
    may lie anywhere on the scale. At the end of the scale this is Wilson's interval.
    """
    low, high = bounds
    place, error = (estimate - low) / (high - low), standard_error / (high - low)
    if error <= _NO_SPREAD or not 0 < place < 1:
        unseen = wilson(0, clusters, confidence).high or 0.0
        return Interval(estimate, estimate - unseen * (estimate - low), estimate + unseen * (high - estimate), clusters)
    effective = min(most, place * (1 - place) / error**2)
    below, above = _score_limits(place, effective, student_t_quantile(0.5 + confidence / 2, clusters - 1))
    return Interval(estimate, low + (high - low) * below, low + (high - low) * above, clusters)


def mean_interval(
    values: ArrayLike,
    clusters: Iterable[Hashable] | None = None,
    confidence: float = 0.95,
    bounds: Bounds | None = None,
) -> Interval:
    """Return a mean with its t interval, cluster-robust (CR1 sandwich, clusters - 1 df) if clusters are given.

    With `bounds` it is `bounded_mean_interval`. Low and high are undefined if the spread between clusters is unknown:
    with a single cluster, or without bounds if the clusters do not differ.
    """
    check_fraction("confidence", confidence)
    array = finite_array("values", values, 1)
    labels = None if clusters is None else list(clusters)
    n = array.size
    mean = float(array.mean()) if n else 0.0
    sums = cluster_sums(array - mean, labels)
    groups = sums.size
    if n == 0:
        return Interval(None, None, None, 0)
    if bounds is not None:
        table = np.column_stack([cluster_sums(array, labels), cluster_sums(np.ones(n), labels)])
        return bounded_mean_interval(table, bounds, confidence)
    standard_error = _robust_error(sums, n)
    if standard_error <= _NO_SPREAD * abs(mean):
        return Interval(mean, None, None, n)
    half = student_t_quantile(0.5 + confidence / 2, groups - 1) * standard_error
    return Interval(mean, mean - half, mean + half, n)


def _ratio_interval(table: NDArray[np.float64], bounds: Bounds, confidence: float, *, most: float) -> Interval:
    check_fraction("confidence", confidence)
    low, high = bounds
    total, n = table.sum(axis=0).tolist()
    if n == 0:
        return Interval(None, None, None, 0)
    mean, clusters = min(high, max(low, total / n)), table.shape[0]
    if clusters < 2:
        return Interval(mean, None, None, round(n))
    error = _robust_error(table[:, 0] - mean * table[:, 1], n)
    return replace(bounded_interval(mean, error, clusters, bounds, confidence, most=most), n=round(n))


def _score_limits(share: float, n: float, quantile: float) -> tuple[float, float]:
    """Return Wilson's limits of a share for n trials."""
    squared = quantile * quantile / n
    centre = (share + squared / 2) / (1 + squared)
    half = math.sqrt(squared * share * (1 - share) + squared * squared / 4) / (1 + squared)
    # The limits at the ends are exactly 0 and 1, without rounding errors.
    return 0.0 if share == 0 else max(0.0, centre - half), 1.0 if share == 1 else min(1.0, centre + half)


def _robust_error(residuals: NDArray[np.float64], n: float) -> float:
    """Return the cluster-robust standard error of a mean of n values from the sum of residuals in each cluster."""
    clusters = residuals.size
    return math.sqrt(clusters / (clusters - 1) * float(np.square(residuals).sum())) / n if clusters > 1 else 0.0


def _sums_table(sums: ArrayLike) -> NDArray[np.float64]:
    table = finite_array("sums", sums, 2)
    if table.shape[1] != 2:
        raise ValueError(f"sums must have 2 columns, not {table.shape[1]}.")
    return table[table[:, 1] > 0]
