"""Agreement of two measures or of several raters; None means undefined (no data or no variation)."""

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.stats._checks import count_array, finite_array


def pearson(x: ArrayLike, y: ArrayLike) -> float | None:
    """Return Pearson's correlation; undefined for fewer than two points or if one side is constant."""
    first, second = finite_array("x", x, 1), finite_array("y", y, 1)
    if first.size != second.size:
        raise ValueError(f"x and y must have the same length, not {first.size} and {second.size}.")
    # A constant is detected by equal values: centring it may leave rounding noise.
    if first.size < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    correlation = float(_unit(first) @ _unit(second))
    return max(-1.0, min(1.0, correlation))


def spearman(x: ArrayLike, y: ArrayLike) -> float | None:
    """Return Spearman's rank correlation; ties share their mean rank."""
    return pearson(_ranks(finite_array("x", x, 1)), _ranks(finite_array("y", y, 1)))


def cohen_kappa(a: Sequence[Hashable], b: Sequence[Hashable]) -> float | None:
    """Return Cohen's kappa of two raters; undefined if the expected agreement by chance is 1."""
    if len(a) != len(b):
        raise ValueError(f"a and b must have the same length, not {len(a)} and {len(b)}.")
    n = len(a)
    agreed = sum(first == second for first, second in zip(a, b, strict=True))
    first_counts, second_counts = Counter(a), Counter(b)
    by_chance = sum(count * second_counts[label] for label, count in first_counts.items())
    # Integer arithmetic, so that full chance agreement is detected exactly.
    return (n * agreed - by_chance) / (n * n - by_chance) if by_chance < n * n else None


def fleiss_kappa(table: ArrayLike) -> float | None:
    """Return Fleiss' kappa of several raters, from an (items, categories) table of rating counts."""
    counts = count_array("table", table, 2)
    items = counts.shape[0]
    raters = float(counts[0].sum()) if items else 0.0
    if (counts.sum(axis=1) != raters).any():
        raise ValueError("table must have the same number of ratings for every item.")
    by_category = counts.sum(axis=0)
    if raters < 2 or np.count_nonzero(by_category) < 2:
        return None
    observed = float((counts * (counts - 1)).sum()) / (items * raters * (raters - 1))
    expected = float(np.square(by_category / (items * raters)).sum())
    return (observed - expected) / (1 - expected)


def _unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = values - values.mean()
    return centred / np.linalg.norm(centred)


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]
