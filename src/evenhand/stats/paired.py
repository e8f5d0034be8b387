"""Paired tests: two methods on the same items."""

import itertools
from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.stats._checks import check_at_least, cluster_sums, finite_array

# Bounds the sign matrix of one block to 2**21 numbers (16 MiB), however many clusters there are.
_BLOCK_CELLS = 2**21
# Equal sums may differ by rounding; a tie must count as "at least as extreme".
_ROUNDING = 1e-12


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Return the exact two-sided McNemar p-value of the two discordant counts (1 if both are 0)."""
    check_at_least("only_first", only_first, 0)
    check_at_least("only_second", only_second, 0)
    n = only_first + only_second
    middle = n // 2
    # Binomial(n, 1/2) weights from the middle down to 0, relative to the middle one: without factorials
    # nothing overflows and the relative error stays near machine precision.
    steps = np.arange(middle, 0, -1, dtype=np.float64)
    weights = np.concatenate([[1.0], np.cumprod(steps / (n + 1 - steps))])
    total = 2 * float(weights.sum()) - (1 if n % 2 == 0 else 0)
    tail = float(weights[middle - min(only_first, only_second) :].sum())
    return min(1.0, 2 * tail / total)


def permutation_test_paired(
    differences: ArrayLike,
    clusters: Iterable[Hashable] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> float | None:
    """Return the two-sided p-value of "the mean difference is 0", from flipping the signs of whole clusters.

    If there are at most `resamples` sign patterns, the test is exact. Without differences it is undefined.
    """
    check_at_least("resamples", resamples, 1)
    sums = cluster_sums(finite_array("differences", differences, 1), clusters)
    if sums.size == 0:
        return None
    threshold = abs(float(sums.sum())) - _ROUNDING * float(np.abs(sums).sum())
    patterns = 2**sums.size
    if patterns <= resamples:
        return _as_extreme(_all_signs(sums.size) @ sums, threshold) / patterns
    rng = np.random.default_rng(seed)
    rows = max(1, _BLOCK_CELLS // sums.size)
    extreme = sum(
        _as_extreme(_random_signs(min(rows, resamples - start), sums.size, rng) @ sums, threshold)
        for start in range(0, resamples, rows)
    )
    return (extreme + 1) / (resamples + 1)


def _as_extreme(flipped: NDArray[np.float64], threshold: float) -> int:
    return int((np.abs(flipped) >= threshold).sum())


def _all_signs(clusters: int) -> NDArray[np.float64]:
    """Return every sign pattern, one per row."""
    return np.array(list(itertools.product((-1.0, 1.0), repeat=clusters)))


def _random_signs(rows: int, clusters: int, rng: np.random.Generator) -> NDArray[np.float64]:
    return np.where(rng.random((rows, clusters)) < 0.5, -1.0, 1.0)
