"""The lowest of several rates divided by the highest; its interval contains equal rates unless a test excludes them.

The least and the most chosen of equal groups differ by chance, so that the ratio lies below 1 and so would the upper
limit of its jackknife.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evenhand.stats.distributions import chi_square_sf, f_sf
from evenhand.stats.intervals import Interval, Statistic, cluster_jackknife, share_interval, wilson

Floats = NDArray[np.float64]
_ALPHA = 0.05
_PRECISION = 0.001
_TINY = 1e-12
_FEW = 30
"""With fewer clusters, groups are also exchanged within them."""
_EXCHANGES = 2000


def lowest_ratio(rates: Floats) -> Floats:
    """Return the lowest rate divided by the highest, along the last axis; NaN where fewer than two are known."""
    known = np.isfinite(rates)
    low, high = np.where(known, rates, np.inf).min(axis=-1), np.where(known, rates, -np.inf).max(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where((known.sum(axis=-1) > 1) & (high > 0), low / high, np.nan)


@dataclass(frozen=True, slots=True)
class RatioTest:
    """Tests how equal rates are: Pearson's test with the design effect of Rao and Scott (1981), at least 1.

    The effect is estimated from the clusters, so the distribution is F (Thomas and Rao 1987). A few clusters may agree
    by chance, which looks like no spread: p is at least the chance that all have the same favourite, and for equal
    rates at least that of exchanging groups within clusters. One cluster alone shows nothing.
    """

    cells: Floats
    """Clusters × groups × (chosen, shown)."""
    alone: bool
    """Whether each is chosen or not; otherwise one of all that are shown together is chosen."""
    independent: bool = False
    """Whether the cells are sums of independent choices, without clusters."""

    def p_value(self, ratio: float) -> float | None:
        """Return the p-value of "no group's rate is below `ratio` times another's", against the closest such rates."""
        cells = self.cells[:, self.cells[..., 1].any(axis=0)]
        clusters, groups = cells.shape[:2]
        chosen, shown = cells.sum(axis=0).T
        if groups < 2 or not chosen.any():
            return None
        rates, mean = chosen / shown, float(chosen.sum() / shown.sum())
        lowest = mean * np.geomspace(ratio / 2, 2.0, 200)[:, np.newaxis]
        near = np.clip(rates, lowest, lowest / ratio)
        near *= chosen.sum() / (near @ shown)[:, np.newaxis]
        statistic = float(self._distance(chosen, shown, near).min())
        if self.independent:
            return chi_square_sf(statistic, groups - 1)
        if clusters < 2:
            return 1.0
        apart = cells[..., 0] - cells[..., 1] * rates
        apart -= apart.sum(axis=1, keepdims=True) * shown / shown.sum()
        variance = np.square(apart).sum(axis=0) * clusters / (clusters - 1)
        effect = float((variance / np.maximum(shown * mean * (1 - self.alone * mean), _TINY)).sum()) / (groups - 1)
        others = groups - 1
        p = f_sf(statistic / max(1.0, effect) / others, others, others * (clusters - 1))
        alike = (1 + others * ratio**clusters) / (1 + others * ratio) ** clusters
        return max(p, alike, self._exchanged(cells) if ratio == 1 and clusters < _FEW else 0.0)

    def least(self) -> float:
        """Return the lowest rate's lower limit divided by the highest upper one; 0 if a group has none."""
        cells = self.cells[:, self.cells[..., 1].any(axis=0)]
        rates = [
            wilson(round(table[0, 0]), round(table[0, 1])) if self.independent else share_interval(table)
            for table in cells.swapaxes(0, 1)
        ]
        return min(each.low or 0.0 for each in rates) / max(each.high or 1.0 for each in rates)

    def _distance(self, chosen: Floats, shown: Floats, rates: Floats | float) -> Floats:
        """Return Pearson's statistic of the counts (…, groups)."""
        expected = np.maximum(shown * rates * (1 - self.alone * rates), _TINY)
        return (np.square(chosen - shown * rates) / expected).sum(axis=-1)

    def _exchanged(self, cells: Floats) -> float:
        """Return how often rates differ as much if every cluster has its groups in another order."""
        orders = np.random.default_rng(0).random((_EXCHANGES, *cells.shape[:2])).argsort(axis=-1)
        orders[0] = range(cells.shape[1])  # as observed
        sums = np.take_along_axis(cells[np.newaxis], orders[..., np.newaxis], axis=2).sum(axis=1)
        chosen, shown = sums[..., 0], sums[..., 1]
        distances = self._distance(chosen, shown, float(chosen[0].sum() / shown[0].sum()))
        return float((distances >= distances[0] * (1 - _TINY) - _TINY).mean())


def lowest_ratio_interval(
    sums: Floats, statistic: Statistic, tests: Sequence[RatioTest], times: float | None = None
) -> Interval:
    """Return the lowest ratio of clusters × sums with its limits.

    The upper limit is the highest ratio that no test excludes, each p-value times `times` (their number, as Bonferroni
    has it), so it is 1 unless groups differ. The lower one is the jackknife's, or follows from the limits of the rates
    where these do not vary, as when everybody was chosen.
    """
    found = cluster_jackknife(sums, statistic, bounds=(0.0, math.inf)).interval
    if found.estimate is None:
        return found

    times = len(tests) if times is None else times

    def possible(ratio: float) -> bool:
        p_values = [each.p_value(ratio) for each in tests]
        return all(each is None or each * times > _ALPHA for each in p_values)

    low, high = (1.0 if possible(1.0) else found.estimate), 1.0
    while high - low > _PRECISION:
        middle = (low + high) / 2
        low, high = (middle, high) if possible(middle) else (low, middle)
    least = min(each.least() for each in tests) if found.low is None else found.low
    return replace(found, low=least, high=high)
