"""Corrections for multiple testing; an undefined test (None) stays None and does not count."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from evenhand.stats._checks import check_share


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
