"""Paired tests of two methods on the same items, their effect size, and corrections for multiple testing."""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.stats.distributions import check_at_least, check_share, cluster_sums, finite_array
from evenhand.stats.intervals import Statistic, evaluate, paired_tables

RESAMPLES = 10_000
# Bounds the matrix of swaps of one block to 2**21 numbers (16 MiB), however many clusters there are.
_BLOCK_CELLS = 2**21
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


def swap_test(
    before: ArrayLike, after: ArrayLike, statistic: Statistic, *, resamples: int = RESAMPLES, seed: int = 0
) -> float | None:
    """Return the two-sided p-value of "both arms are alike" from swapping the arms of whole clusters.

    Row i of both tables is the same cluster. If there are at most `resamples` ways to swap, all are tried and the test
    is exact. A way that leaves the statistic undefined counts as extreme. None if it is undefined as observed.
    """
    check_at_least("resamples", resamples, 1)
    first, second = paired_tables(before, after)
    changes = second - first
    clusters, ways = changes.shape[0], 2 ** changes.shape[0]

    def differences(swaps: NDArray[np.float64]) -> NDArray[np.float64]:
        moved = swaps @ changes
        swapped = evaluate(statistic, second.sum(axis=0) - moved), evaluate(statistic, first.sum(axis=0) + moved)
        return np.abs(swapped[0] - swapped[1])

    observed = float(differences(np.zeros((1, clusters)))[0]) if clusters else math.nan
    if not math.isfinite(observed):
        return None
    is_exact = ways <= resamples
    blocks = [_all_swaps(clusters)] if is_exact else _random_swaps(resamples, clusters, np.random.default_rng(seed))
    found = np.concatenate([differences(block) for block in blocks])
    # Equal differences may differ by rounding; a tie must count as "at least as extreme".
    tolerance = _ROUNDING * float(np.nanmax(found, initial=observed))
    extreme = int((~(found < observed - tolerance)).sum())
    return extreme / ways if is_exact else (extreme + 1) / (resamples + 1)


def least_swap_p(clusters: int, resamples: int = RESAMPLES) -> float:
    """Return the smallest p-value that `swap_test` can give with this many clusters."""
    return 2.0 ** (1 - clusters) if 2**clusters <= resamples else max(2.0 ** (1 - clusters), 1 / (resamples + 1))


def permutation_test_paired(
    differences: ArrayLike,
    clusters: Iterable[Hashable] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> float | None:
    """Return the two-sided p-value of "the mean difference is 0", from flipping the signs of whole clusters.

    It is the `swap_test` of sums. Without differences it is undefined.
    """
    sums = cluster_sums(finite_array("differences", differences, 1), clusters)[:, np.newaxis]
    return swap_test(np.zeros_like(sums), sums, lambda totals: totals[..., 0], resamples=resamples, seed=seed)


def _all_swaps(clusters: int) -> NDArray[np.float64]:
    """Return every way to swap, one per row."""
    numbers = np.arange(2**clusters, dtype=np.int64)[:, np.newaxis]
    return np.asarray((numbers >> np.arange(clusters, dtype=np.int64)) & 1, dtype=np.float64)


def _random_swaps(resamples: int, clusters: int, rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    rows = max(1, _BLOCK_CELLS // clusters)
    for start in range(0, resamples, rows):
        yield rng.integers(0, 2, (min(rows, resamples - start), clusters), dtype=np.int8).astype(np.float64)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Holm's step-down adjusted p-values, which control the family-wise error rate."""
    return _adjust(p_values, lambda p: np.maximum.accumulate(p * np.arange(p.size, 0, -1)))


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Return Benjamini and Hochberg's step-up adjusted p-values, which control the false discovery rate."""
    return _adjust(p_values, lambda p: np.minimum.accumulate((p * p.size / np.arange(1, p.size + 1))[::-1])[::-1])


def _adjust(
    p_values: Sequence[float | None], sorted_rule: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> list[float | None]:
    """Apply a rule for ascending p-values to the defined ones and restore the original order."""
    defined = [(p, place) for place, p in enumerate(p_values) if p is not None]
    for p, _ in defined:
        check_share("A p-value", p)
    defined.sort()
    adjusted = np.minimum(1.0, sorted_rule(np.array([p for p, _ in defined], dtype=np.float64)))
    result: list[float | None] = [None] * len(p_values)
    for (_, place), value in zip(defined, adjusted, strict=True):
        result[place] = float(value)
    return result


def paired_dz(differences: ArrayLike) -> float | None:
    """Return Cohen's dz, the mean difference in standard deviations; undefined for constant differences."""
    array = finite_array("differences", differences, 1)
    # A constant is detected by equal values: centring it may leave rounding noise.
    if array.size < 2 or np.ptp(array) == 0:
        return None
    return float(array.mean() / array.std(ddof=1))
