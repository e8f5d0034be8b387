"""Confidence intervals of shares, means and any other statistic of summed counts, alone or in clusters.

Samples that share a template or a prompt are not independent, so whole clusters are left out one at a time (jackknife).
Limits never leave the scale, and values without spread never give an interval of zero width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.stats.distributions import check_fraction, cluster_sums, finite_array, student_t_quantile

Bounds = tuple[float, float]
"""The lowest and the highest possible value; the highest may be infinite."""
Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Maps sums of shape (..., k) to values of shape (...); a value that is not finite means undefined."""

FEW_CLUSTERS = 8
"""From this many clusters on, 95 % intervals cover about 93 % or more, unless rare large scores are in no sample."""
_NO_SPREAD = 1e-9
"""Smaller standard errors, as a share of the scale, are rounding."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence limits; None means undefined, never 0.

    n is the number of trials for a share, of values for a mean, and of clusters for a jackknife.
    """

    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    n: int = 0

    def includes(self, value: float) -> bool:
        """Return whether the value lies between the limits; False without limits."""
        return self.low is not None and self.high is not None and self.low <= value <= self.high

    def times(self, factor: float) -> Interval:
        """Return the interval in another unit; −1 gives that of the opposite difference."""
        value, low, high = (None if each is None else each * factor for each in (self.estimate, self.low, self.high))
        return Interval(value, low, high, self.n) if factor > 0 else Interval(value, high, low, self.n)

    @property
    def side(self) -> int:
        """1 if both limits are above zero, −1 if both are below, else 0."""
        return side_of(self.low, self.high)


def side_of(low: float | None, high: float | None) -> int:
    """Return 1 if both limits are above zero, −1 if both are below; 0 if not, or without limits."""
    if low is None or high is None:
        return 0
    return 1 if low > 0 else -1 if high < 0 else 0


@dataclass(frozen=True, slots=True)
class Jackknife:
    """An interval (n = clusters) with its standard error and Student's degrees of freedom; None means undefined."""

    interval: Interval
    standard_error: float | None = None
    df: float | None = None


def wilson(successes: float, n: int, confidence: float = 0.95) -> Interval:
    """Return the Wilson score interval of a share, half successes included; undefined without trials."""
    check_fraction("confidence", confidence)
    if not 0 <= successes <= n:
        raise ValueError(f"successes must lie between 0 and n, not {successes} of {n}.")
    if n == 0:
        return Interval()
    low, high = _score_limits(successes / n, n, NormalDist().inv_cdf(0.5 + confidence / 2))
    return Interval(successes / n, low, high, n)


def cluster_jackknife(
    counts: ArrayLike, statistic: Statistic, *, confidence: float = 0.95, bounds: Bounds | None = None
) -> Jackknife:
    """Return a statistic of the sums of a (clusters, k) table, with the jackknife's error and Student's limits.

    Its degrees of freedom are those of `jackknife_df`. With `bounds` the limits are those of `bounded_interval`. There
    are none if the statistic is undefined without one of the clusters, or if the clusters do not differ and the bounds
    are unknown.
    """
    return _jackknife(finite_array("counts", counts, 2), statistic, confidence, bounds)


def paired_cluster_jackknife(
    before: ArrayLike,
    after: ArrayLike,
    statistic: Statistic,
    *,
    confidence: float = 0.95,
    bounds: Bounds | None = None,
) -> Jackknife:
    """Return statistic(after) - statistic(before), where row i of both tables is the same cluster.

    `bounds` are those of the difference.
    """
    first, second = paired_tables(before, after)
    columns = first.shape[1]

    def difference(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return statistic(sums[..., columns:]) - statistic(sums[..., :columns])

    return _jackknife(np.hstack([first, second]), difference, confidence, bounds)


def share_interval(counts: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return a share from a (clusters, (successes, trials)) table.

    It is Wilson's interval at the effective sample size of Korn and Graubard (1998): trials over design effect, at most
    the trials, with Student's t. If every trial is its own cluster, it is Wilson's interval of the trials.
    """
    table = _sums_table(counts)
    successes, trials = table.sum(axis=0).tolist()
    if (table[:, 1] == 1).all():
        return wilson(round(successes), round(trials), confidence)
    return _ratio_interval(table, (0.0, 1.0), confidence, most=trials)


def clustered_share(trials: Iterable[tuple[Hashable, bool]], confidence: float = 0.95) -> Interval:
    """Return a share from single trials, (cluster, whether it succeeded); an empty interval without trials."""
    table: dict[Hashable, list[int]] = {}
    for cluster, succeeded in trials:
        counts = table.setdefault(cluster, [0, 0])
        counts[0] += succeeded
        counts[1] += 1
    return share_interval(list(table.values()), confidence) if table else Interval()


def bounded_mean_interval(sums: ArrayLike, bounds: Bounds = (0.0, 1.0), confidence: float = 0.95) -> Interval:
    """Return a mean on a bounded scale from a (clusters, (sum, number)) table, with limits on that scale.

    It is the clustered `share_interval` for values between the bounds; the effective size may exceed the number of
    values, since such values vary less than zeros and ones.
    """
    return _ratio_interval(_sums_table(sums), bounds, confidence)


def mean_interval(
    values: ArrayLike,
    clusters: Iterable[Hashable] | None = None,
    confidence: float = 0.95,
    bounds: Bounds | None = None,
) -> Interval:
    """Return a mean with the limits of `cluster_jackknife`; without clusters, every value is its own cluster."""
    array = finite_array("values", values, 1)
    labels = None if clusters is None else list(clusters)
    table = np.column_stack([cluster_sums(array, labels), cluster_sums(np.ones(array.size), labels)])
    return _ratio_interval(table, bounds, confidence)


def bounded_interval(
    estimate: float,
    standard_error: float,
    clusters: int,
    bounds: Bounds,
    confidence: float = 0.95,
    *,
    df: float | None = None,
    most: float = math.inf,
    least: float = 0.0,
) -> Interval:
    """Return the limits of an estimate on a bounded scale: Wilson's at its effective size, which is at most `most`.

    They are never wider than those of `least` independent values with the degrees of freedom of the clusters.

    They are the values θ with (estimate - θ)² = t²·error²·v(θ)/v(estimate), where v(θ) = (θ - low)(high - θ), or
    θ - low if the highest value is infinite. Without spread, no cluster of this many differs: by Wilson's limit at
    most a share u of all clusters does, and these may lie anywhere on the scale.
    """
    low, high = bounds
    unit = high - low if math.isfinite(high) else 1.0
    place, error = (estimate - low) / unit, standard_error / unit
    is_inside = place > 0 and estimate < high
    if error <= _NO_SPREAD * max(1.0, place) or not is_inside:
        unseen = wilson(0, clusters, confidence).high or 0.0
        above = estimate + unseen * (high - estimate)
        limits = (estimate - unseen * (estimate - low), above) if math.isfinite(high) else (None, None)
        return Interval(estimate, *limits, clusters)
    quantile = student_t_quantile(0.5 + confidence / 2, clusters - 1 if df is None else df)
    if math.isfinite(high):
        size = min(most, place * (1 - place) / error**2)
        widest = student_t_quantile(0.5 + confidence / 2, clusters - 1)
        if widest**2 * size < quantile**2 * least:
            size, quantile = least, widest
        below, above = _score_limits(place, size, quantile)
    else:
        half = (quantile * error) ** 2 / place / 2
        below, above = (place + half + sign * math.sqrt(half * (2 * place + half)) for sign in (-1, 1))
    return Interval(estimate, low + unit * below, low + unit * above, clusters)


def widened(found: Interval, times: float, bounds: Bounds | None = None) -> Interval:
    """Return a 95 % interval of n clusters at the level of 5 % / `times`, both halves longer as Student's t is.

    With their number, so many hold at once (Bonferroni). Of m comparisons r were found: m / r keeps the share of wrong
    intervals among those found at 5 % (Benjamini and Yekutieli 2005).
    """
    value, low, high, n = found.estimate, found.low, found.high, found.n
    if value is None or low is None or high is None or n < 2:
        return found
    longer = student_t_quantile(1 - 0.025 / times, n - 1) / student_t_quantile(0.975, n - 1)
    least, most = bounds or (-math.inf, math.inf)
    return Interval(value, max(least, value - longer * (value - low)), min(most, value + longer * (high - value)), n)


def jackknife_df(squares: NDArray[np.float64]) -> float:
    """Return Student's degrees of freedom, from the squared deviations d² of the estimates without one cluster each.

    Clusters of unequal weight count as fewer: 2(Σd²)²/Σd⁴ - 1, at most clusters - 1. The factor would be 3 for normal
    d, by Satterthwaite; 2 keeps the coverage of skewed ones in simulations (`bench/run.py stats`).
    """
    most = len(squares) - 1.0
    if not squares.any():
        return most
    return min(most, max(1.0, 2 * float(squares.sum()) ** 2 / float(np.square(squares).sum()) - 1))


def evaluate(statistic: Statistic, sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the statistic of each row of sums; a division by zero gives an undefined value without a warning."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.asarray(statistic(sums), dtype=np.float64)
    if values.shape != sums.shape[:-1]:
        raise ValueError(f"statistic must return shape {sums.shape[:-1]} for {sums.shape}, not {values.shape}.")
    return values


def paired_tables(before: ArrayLike, after: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both tables after checking that they have the same shape."""
    first, second = finite_array("before", before, 2), finite_array("after", after, 2)
    if first.shape != second.shape:
        raise ValueError(f"before and after must have the same shape, not {first.shape} and {second.shape}.")
    return first, second


def _jackknife(
    table: NDArray[np.float64],
    statistic: Statistic,
    confidence: float,
    bounds: Bounds | None,
    most: float = math.inf,
    least: float = 0.0,
) -> Jackknife:
    check_fraction("confidence", confidence)
    clusters = table.shape[0]
    total = table.sum(axis=0, keepdims=True)
    estimate = float(evaluate(statistic, total)[0]) if clusters else math.nan
    if not math.isfinite(estimate):
        return Jackknife(Interval(None, None, None, clusters))
    left_out = evaluate(statistic, total - table)
    if clusters < 2 or not np.isfinite(left_out).all():
        return Jackknife(Interval(estimate, None, None, clusters))
    squares = np.square(left_out - left_out.mean())
    error = math.sqrt((clusters - 1) / clusters * float(squares.sum()))
    scale = abs(estimate) if bounds is None or not math.isfinite(bounds[1]) else bounds[1] - bounds[0]
    if error <= _NO_SPREAD * scale:
        interval = Interval(estimate, None, None, clusters)
        if bounds is not None:
            interval = bounded_interval(estimate, 0.0, clusters, bounds, confidence)
        return Jackknife(interval, 0.0)
    df = jackknife_df(squares)
    if bounds is not None:
        interval = bounded_interval(estimate, error, clusters, bounds, confidence, df=df, most=most, least=least)
    else:
        half = student_t_quantile(0.5 + confidence / 2, df) * error
        interval = Interval(estimate, estimate - half, estimate + half, clusters)
    return Jackknife(interval, error, df)


def _ratio_interval(
    table: NDArray[np.float64], bounds: Bounds | None, confidence: float, most: float = math.inf
) -> Interval:
    numbers = table[:, 1]
    # Even if all values of a cluster are equal, there are this many independent ones (Kish).
    least = float(numbers.sum() ** 2 / np.square(numbers).sum()) if numbers.size else 0.0
    found = _jackknife(table, lambda sums: sums[..., 0] / sums[..., 1], confidence, bounds, most, least)
    return replace(found.interval, n=round(float(table[:, 1].sum())))


def _score_limits(share: float, n: float, quantile: float) -> tuple[float, float]:
    """Return Wilson's limits of a share for n trials."""
    squared = quantile * quantile / n
    centre = (share + squared / 2) / (1 + squared)
    half = math.sqrt(squared * share * (1 - share) + squared * squared / 4) / (1 + squared)
    # The limits at the ends are exactly 0 and 1, without rounding errors.
    return 0.0 if share == 0 else max(0.0, centre - half), 1.0 if share == 1 else min(1.0, centre + half)


def _sums_table(sums: ArrayLike) -> NDArray[np.float64]:
    table = finite_array("sums", sums, 2)
    if table.shape[1] != 2:
        raise ValueError(f"sums must have 2 columns, not {table.shape[1]}.")
    return table[table[:, 1] > 0]


def ratio(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the first sum divided by the second; NaN if the second is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sums[..., 1] > 0, sums[..., 0] / sums[..., 1], np.nan)
