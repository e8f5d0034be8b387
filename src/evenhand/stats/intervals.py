"""Confidence intervals of a share and of a mean."""

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from evenhand.stats._checks import check_fraction, cluster_sums, finite_array
from evenhand.stats.distributions import student_t_quantile


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
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    # The limits at 0 and n successes are exactly 0 and 1, without rounding errors.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(share, low, high, n)


def mean_interval(values: ArrayLike, clusters: Iterable[Hashable] | None = None, confidence: float = 0.95) -> Interval:
    """Return a mean with its t interval, cluster-robust (CR1 sandwich, clusters - 1 df) if clusters are given.

    With a single cluster, low and high are undefined: the spread between clusters is unknown.
    """
    check_fraction("confidence", confidence)
    array = finite_array("values", values, 1)
    n = array.size
    mean = float(array.mean()) if n else 0.0
    sums = cluster_sums(array - mean, clusters)
    groups = sums.size
    if n == 0:
        return Interval(None, None, None, 0)
    if groups < 2:
        return Interval(mean, None, None, n)
    standard_error = math.sqrt(groups / (groups - 1) * float(np.square(sums).sum())) / n
    half = student_t_quantile(0.5 + confidence / 2, groups - 1) * standard_error
    return Interval(mean, mean - half, mean + half, n)
