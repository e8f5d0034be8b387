"""Means and tests in which only base scenarios count as independent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.stats import Bounds, Jackknife, Statistic, cluster_jackknife, permutation_test_paired, ratio

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimator:
    """Settings shared by all estimates of one audit."""

    base_of: NDArray[np.intp]
    """Index of the base scenario, by scenario."""
    bases: int
    flips: int
    """Number of random sign patterns; with few base scenarios all patterns are tried."""
    confidence: float
    seed: int

    def sums(self, values: Array) -> Array:
        """Returns sum and number of the existing values by base scenario; a scenario may have several values."""
        table = values if values.ndim > 1 else values[:, np.newaxis]
        exists = ~np.isnan(table)
        per_scenario = np.column_stack([np.where(exists, table, 0.0).sum(axis=1), exists.sum(axis=1)])
        sums = np.zeros((self.bases, 2))
        np.add.at(sums, self.base_of, per_scenario)
        return sums

    def mean(self, values: Array, bounds: Bounds | None = None) -> Jackknife:
        """Returns the mean of the existing values with its interval."""
        sums = self.sums(values)
        return self.jackknife(sums[sums[:, 1] > 0], ratio, bounds)

    def p_value(self, values: Array) -> float | None:
        """Tests that the mean is 0 by flipping the signs of whole base scenarios."""
        sums = self.sums(values)
        return self.flip(sums[sums[:, 1] > 0, 0])

    def jackknife(self, table: Array, statistic: Statistic, bounds: Bounds | None = None) -> Jackknife:
        """Estimates a statistic of sums, with one row per base scenario."""
        return cluster_jackknife(table, statistic, confidence=self.confidence, bounds=bounds)

    def flip(self, by_base: Array) -> float | None:
        """Tests that the sum over base scenarios is 0, by sign flips."""
        return permutation_test_paired(by_base, resamples=self.flips, seed=self.seed)

    def smallest_p(self, bases: int) -> float:
        """Returns the smallest possible p-value with this number of base scenarios."""
        return max(2.0 ** (1 - bases), 1 / (self.flips + 1))
