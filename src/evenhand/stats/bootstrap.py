"""The cluster bootstrap for any statistic of summed per-cluster counts, alone or as a paired difference.

Whole clusters are drawn, so items that share a template or scenario are never treated as independent.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.stats._checks import check_at_least, check_fraction, finite_array
from evenhand.stats.distributions import student_t_quantile
from evenhand.stats.intervals import Bounds, Interval, bounded_interval

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Maps sums of shape (..., k) to values of shape (...); a value that is not finite means undefined."""

# Bounds the weight matrix of one block to 2**21 numbers (16 MiB), however many clusters there are.
_BLOCK_CELLS = 2**21
# Replicates that differ by less are equal.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """An expanded percentile interval (n = clusters), its standard error and the two-sided p-value of "it is 0".

    undefined_share is the share of resamples that were dropped because the statistic was undefined.
    """

    interval: Interval
    standard_error: float | None
    undefined_share: float
    p_value: float | None


def cluster_bootstrap(
    counts: ArrayLike,
    statistic: Statistic,
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
    bounds: Bounds | None = None,
) -> Bootstrap:
    """Resample whole clusters of a (clusters, k) table of counts or sums and evaluate the statistic.

    An undefined statistic gives an undefined result. With too few clusters for this confidence, or without spread,
    there are limits only if the statistic's `bounds` are known.
    """
    check_fraction("confidence", confidence)
    check_at_least("resamples", resamples, 1)
    table = finite_array("counts", counts, 2)
    clusters = table.shape[0]
    estimate = float(_evaluate(statistic, table.sum(axis=0, keepdims=True))[0]) if clusters else np.nan
    if not np.isfinite(estimate):
        return Bootstrap(Interval(None, None, None, clusters), None, 1.0, None)
    if clusters < 2:
        return Bootstrap(Interval(estimate, None, None, clusters), None, 0.0, None)
    drawn = _replicates(table, statistic, resamples, np.random.default_rng(seed))
    replicates = drawn[np.isfinite(drawn)]
    undefined_share = 1 - replicates.size / drawn.size
    if replicates.size < 2:
        return Bootstrap(Interval(estimate, None, None, clusters), None, undefined_share, None)
    return Bootstrap(
        _limits(estimate, replicates, clusters, confidence, bounds),
        float(replicates.std(ddof=1)),
        undefined_share,
        _two_sided_p(replicates, clusters),
    )


def paired_cluster_bootstrap(
    before: ArrayLike,
    after: ArrayLike,
    statistic: Statistic,
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
    bounds: Bounds | None = None,
) -> Bootstrap:
    """Bootstrap statistic(after) - statistic(before), where row i of both tables is the same cluster.

    `bounds` are those of the difference.
    """
    first = finite_array("before", before, 2)
    second = finite_array("after", after, 2)
    if first.shape != second.shape:
        raise ValueError(f"before and after must have the same shape, not {first.shape} and {second.shape}.")
    columns = first.shape[1]

    def difference(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return statistic(sums[..., columns:]) - statistic(sums[..., :columns])

    return cluster_bootstrap(
        np.hstack([first, second]), difference, resamples=resamples, confidence=confidence, seed=seed, bounds=bounds
    )


def _limits(
    estimate: float, replicates: NDArray[np.float64], clusters: int, confidence: float, bounds: Bounds | None
) -> Interval:
    """Return the percentile interval, expanded for few clusters as by Hesterberg (2015).

    Percentiles of a small sample are too narrow: the tails are those of a normal variable beyond the limits that
    Student's t and the bias of the plug-in variance ask for.
    """
    expansion = math.sqrt(clusters / (clusters - 1))
    error = float(replicates.std(ddof=1))
    # The same floor as that of the p-value: the percentiles of fewer clusters cannot exclude anything.
    if error <= _ROUNDING * max(1.0, abs(estimate)) or _least_p(clusters) > 1 - confidence:
        if bounds is None:
            return Interval(estimate, None, None, clusters)
        return bounded_interval(estimate, error * expansion, clusters, bounds, confidence)
    tail = NormalDist().cdf(-student_t_quantile((1 + confidence) / 2, clusters - 1) * expansion)
    low, high = np.quantile(replicates, [tail, 1 - tail])
    return Interval(estimate, float(low), float(high), clusters)


def _replicates(
    table: NDArray[np.float64], statistic: Statistic, resamples: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return the statistic of each resample, computed block by block as weights @ table."""
    rows = max(1, _BLOCK_CELLS // table.shape[0])
    blocks = [
        _evaluate(statistic, _weights(min(rows, resamples - start), table.shape[0], rng) @ table)
        for start in range(0, resamples, rows)
    ]
    return np.concatenate(blocks)


def _weights(rows: int, clusters: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return how often each cluster is drawn in each resample (multinomial), by counting uniform draws."""
    # Counting draws gives the same distribution as Generator.multinomial in less than half its time.
    draws = rng.integers(0, clusters, size=(rows, clusters))
    draws += np.arange(0, rows * clusters, clusters)[:, np.newaxis]
    return np.bincount(draws.ravel(), minlength=rows * clusters).reshape(rows, clusters).astype(np.float64)


def _evaluate(statistic: Statistic, sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the statistic of each row of sums; a division by zero gives an undefined value without a warning."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.asarray(statistic(sums), dtype=np.float64)
    if values.shape != sums.shape[:-1]:
        raise ValueError(f"statistic must return shape {sums.shape[:-1]} for {sums.shape}, not {values.shape}.")
    return values


def _two_sided_p(replicates: NDArray[np.float64], clusters: int) -> float:
    """Return twice the smaller tail beyond 0, with one added to both counts so that p is never 0.

    p is also at least the smallest p-value of an exact sign test on the clusters: three clusters that agree prove
    nothing, however often they are resampled.
    """
    tail = min(int((replicates <= 0).sum()), int((replicates >= 0).sum()))
    return min(1.0, max(2 * (tail + 1) / (replicates.size + 1), _least_p(clusters)))


def _least_p(clusters: int) -> float:
    return 2.0 ** (1 - min(clusters, 60))
