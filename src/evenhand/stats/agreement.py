"""Agreement of two measures or of several raters, and how well a score separates two kinds (AUC, Platt scaling).

None means undefined (no data or no variation).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from statistics import pstdev
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.stats.distributions import cluster_sums, count_array, finite_array, student_t_quantile
from evenhand.stats.intervals import Interval, Statistic, cluster_jackknife, mean_interval, share_interval

Level = Literal["nominal", "interval"]
"""How far two different ratings are apart: all alike, or by their difference."""
_GROUPS = 60
_MIDDLE = 0.5


def spearman(x: ArrayLike, y: ArrayLike) -> float | None:
    """Return Spearman's rank correlation, undefined if one side is constant; ties share their mean rank."""
    first, second = finite_array("x", x, 1), finite_array("y", y, 1)
    if first.size != second.size:
        raise ValueError(f"x and y must have the same length, not {first.size} and {second.size}.")
    if first.size < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    correlation = float(_unit(_ranks(first)) @ _unit(_ranks(second)))
    return max(-1.0, min(1.0, correlation))


def spearman_interval(x: ArrayLike, y: ArrayLike, clusters: Iterable[Hashable] | None = None) -> Interval:
    """Return `spearman` with 95 % limits by a jackknife of Fisher's z, which leaves out 60 groups of clusters at most.

    n is of items. The limits held the truth in 92 to 99 % of draws of 12 to 400 items, also where most are alike.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    whole, n = spearman(first, second), first.size
    labels = np.arange(n) if clusters is None else np.unique([str(each) for each in clusters], return_inverse=True)[1]
    count = min(_GROUPS, int(labels.max(initial=-1)) + 1)
    left_out = [spearman(first[kept], second[kept]) for group in range(count) for kept in [labels % count != group]]
    if whole is None or count < 2 or any(each is None or abs(each) == 1 for each in (whole, *left_out)):
        return Interval(whole, None, None, n)
    z = np.arctanh(np.array(left_out, dtype=np.float64))
    half = student_t_quantile(0.975, count - 1) * math.sqrt((count - 1) * float(z.var()))
    return Interval(whole, math.tanh(math.atanh(whole) - half), math.tanh(math.atanh(whole) + half), n)


@dataclass(frozen=True, slots=True)
class ScoreAgreement:
    """How far two scores from 0 to 1 of the same texts agree; estimates are None where they are undefined."""

    attribute: str
    spearman: Interval
    difference: Interval
    """The second's mean minus the first's."""
    same_side: Interval
    """The share of texts that both put on the same side of 0.5."""
    kappa: Interval
    """Cohen's kappa of the same: agreement beyond chance."""

    @property
    def n(self) -> int:
        return self.spearman.n


def score_agreement(
    attribute: str, x: Sequence[float], y: Sequence[float], clusters: Sequence[Hashable] | None = None
) -> ScoreAgreement:
    """Compare two scores of the same texts."""
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    one, other = first >= _MIDDLE, second >= _MIDDLE
    same = (one == other).astype(np.float64)
    table = np.column_stack([cluster_sums(column, clusters) for column in (same, np.ones(same.size))])
    return ScoreAgreement(
        attribute,
        spearman_interval(first, second, clusters),
        mean_interval(second - first, clusters, bounds=(-1.0, 1.0)),
        share_interval(table) if same.size else Interval(),
        cohen_interval(one.tolist(), other.tolist(), clusters),
    )


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


def cohen_interval(
    a: Sequence[Hashable],
    b: Sequence[Hashable],
    clusters: Iterable[Hashable] | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Return `cohen_kappa` with the limits of a jackknife over clusters (items); n is the number of items."""
    kappa = cohen_kappa(a, b)
    if kappa is None:
        return Interval(None, None, None, len(a))
    labels = list(dict.fromkeys([*a, *b]))
    k = len(labels)

    def statistic(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        n = sums[..., 1]
        by_chance = (sums[..., 2 : 2 + k] * sums[..., 2 + k :]).sum(axis=-1)
        return (n * sums[..., 0] - by_chance) / (n * n - by_chance)

    agreed = np.asarray([first == second for first, second in zip(a, b, strict=True)], dtype=np.float64)
    said = [np.asarray([each == label for each in side], dtype=np.float64) for side in (a, b) for label in labels]
    return _limits(kappa, [agreed, np.ones(len(a)), *said], clusters, statistic, confidence)


def fleiss_interval(table: ArrayLike, clusters: Iterable[Hashable] | None = None, confidence: float = 0.95) -> Interval:
    """Return `fleiss_kappa` with the limits of a jackknife over clusters (items); n is the number of items."""
    counts = count_array("table", table, 2)
    kappa = fleiss_kappa(counts)
    if kappa is None:
        return Interval(None, None, None, counts.shape[0])
    raters = float(counts[0].sum())
    agreed = (counts * (counts - 1)).sum(axis=1) / (raters * (raters - 1))

    def statistic(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        items = sums[..., -1]
        expected = np.square(sums[..., 1:-1] / (items * raters)[..., None]).sum(axis=-1)
        return (sums[..., 0] / items - expected) / (1 - expected)

    columns = [agreed, *counts.T, np.ones(counts.shape[0])]
    return _limits(kappa, columns, clusters, statistic, confidence)


def krippendorff_alpha(
    units: Sequence[Sequence[float]],
    level: Level = "nominal",
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Return Krippendorff's alpha of the ratings of each unit, with the limits of a jackknife over clusters (units).

    Raters may differ from unit to unit; units with fewer than two ratings do not count. n is the number of units that
    do. Alpha is 1 - observed / expected disagreement, where disagreement is the mean squared distance of two ratings.
    """
    kept = [place for place, unit in enumerate(units) if len(unit) > 1]
    values = sorted({float(value) for place in kept for value in units[place]})
    if len(values) < 2:
        return Interval(None, None, None, len(kept))
    places = {value: place for place, value in enumerate(values)}
    counts = np.zeros((len(kept), len(values)))
    for row, place in zip(counts, kept, strict=True):
        for value in units[place]:
            row[places[float(value)]] += 1
    apart = np.subtract.outer(values, values)
    distances = np.square(apart) if level == "interval" else (apart != 0).astype(np.float64)
    observed = np.einsum("ij,jk,ik->i", counts, distances, counts) / (counts.sum(axis=1) - 1)

    def statistic(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        totals = sums[..., 1:]
        pairs = np.einsum("...j,jk,...k->...", totals, distances, totals)
        return 1 - sums[..., 0] * (totals.sum(axis=-1) - 1) / pairs

    columns = [observed, *counts.T]
    alpha = float(statistic(np.asarray([column.sum() for column in columns])))
    own = None if clusters is None else [clusters[place] for place in kept]
    return _limits(alpha, columns, own, statistic, confidence)


def _limits(
    estimate: float,
    columns: Sequence[NDArray[np.float64]],
    clusters: Iterable[Hashable] | None,
    statistic: Statistic,
    confidence: float,
) -> Interval:
    labels = None if clusters is None else list(clusters)
    table = np.column_stack([cluster_sums(column, labels) for column in columns])
    found = cluster_jackknife(table, statistic, confidence=confidence, bounds=(-1.0, 1.0)).interval
    return Interval(estimate, found.low, found.high, len(columns[0]))


def _unit(values: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = values - values.mean()
    return centred / np.linalg.norm(centred)


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


_Z = 1.959963984540054
_STEPS = 60
_NO_SPREAD = 1e-12


def auc(high: Sequence[float], low: Sequence[float]) -> float | None:
    """Return the probability that a value of `high` is above one of `low`; ties count half, None without values."""
    if not high or not low:
        return None
    wins = sum((a > b) + 0.5 * (a == b) for a in high for b in low)
    return wins / (len(high) * len(low))


def auc_interval(
    high: Sequence[float],
    low: Sequence[float],
    clusters: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
) -> Interval:
    """Return the AUC with its 95 % interval by Newcombe's score method, which holds for few values and for 0 and 1.

    With the clusters of both, it is that of so many independent values as have the variance of the clusters.
    """
    area, n = auc(high, low), len(high) + len(low)
    if area is None:
        return Interval(None, None, None, n)
    size = (len(high), len(low)) if clusters is None else _effective_sizes(area, high, low, clusters)
    return Interval(area, _limit(area, size, -1), _limit(area, size, 1), n)


def _effective_sizes(
    area: float,
    high: Sequence[float],
    low: Sequence[float],
    clusters: tuple[Sequence[Hashable], Sequence[Hashable]],
) -> tuple[float, float]:
    """Divide both sizes by the design effect of a jackknife, at least 1; without spread, return those in clusters."""
    above, below = np.asarray(high)[:, np.newaxis], np.asarray(low)
    wins = (above > below) + 0.5 * (above == below)
    left_out: list[float] = []
    for name in {*clusters[0], *clusters[1]}:
        rows, columns = ([each != name for each in own] for own in clusters)
        kept = wins[rows][:, columns]
        left_out.append(float(kept.mean()) if kept.size else math.nan)
    variance = (len(left_out) - 1) * float(np.var(left_out))  # NaN if one cluster has all values of a side
    if not variance > _NO_SPREAD:
        return len(set(clusters[0])), len(set(clusters[1]))
    effect = max(1.0, variance / _variance(area, (len(high), len(low))))
    return len(high) / effect, len(low) / effect


def _limit(area: float, size: tuple[float, float], side: int) -> float:
    """Find the area furthest from the observed one, on one side, that would not be rejected."""
    near, far = area, 0.0 if side < 0 else 1.0
    for _ in range(_STEPS):
        middle = (near + far) / 2
        if abs(area - middle) <= _Z * math.sqrt(_variance(middle, size)):
            near = middle
        else:
            far = middle
    return near


def _variance(area: float, size: tuple[float, float]) -> float:
    """Return Hanley and McNeil's variance, with the mean of both sizes in place of each (Newcombe 2006, method 5)."""
    m, n = size
    others = (m + n) / 2 - 1
    return area * (1 - area) * (1 + others * ((1 - area) / (2 - area) + area / (1 + area))) / (m * n)


_EDGE = 0.002
"""Ratings nearer to 0 or 1 count as this near: they say "surely", not how surely."""
_RIDGE = 0.1
_PLATT_STEPS = 100


def platt(high: Sequence[float], low: Sequence[float]) -> tuple[float, float]:
    """Return slope and intercept of P(high) over the log-odds of a rating in 0–1; both kinds count alike.

    The targets are Platt's, a little inside 0 and 1, and the slope is held by a small penalty, so that ratings that
    part the kinds perfectly give a finite curve.
    """
    if not high or not low:
        raise ValueError("both kinds need ratings")
    odds = [log_odds(x) for x in (*high, *low)]
    scale = pstdev(odds)
    if scale == 0:
        return 0.0, 0.0
    least, count = min(len(high), len(low)), len(odds)
    target = (least + 1) / (least + 2)
    points = [
        *((x / scale, target, 0.5 / len(high)) for x in odds[: len(high)]),
        *((x / scale, 1 - target, 0.5 / len(low)) for x in odds[len(high) :]),
    ]
    slope = intercept = 0.0
    for _ in range(_PLATT_STEPS):
        g0 = g1 = h00 = h01 = h11 = 0.0
        for x, target, weight in points:
            chance = sigmoid(slope * x + intercept)
            miss, spread = weight * (target - chance), weight * max(chance * (1 - chance), 1e-6)
            g0, g1 = g0 + miss, g1 + miss * x
            h00, h01, h11 = h00 + spread, h01 + spread * x, h11 + spread * x * x
        g1, h11 = g1 - _RIDGE * slope / count, h11 + _RIDGE / count
        size = h00 * h11 - h01 * h01
        by_intercept, by_slope = (g0 * h11 - g1 * h01) / size, (g1 * h00 - g0 * h01) / size
        # Steps are bounded: far from the optimum the curve is flat and Newton's step overshoots.
        slope, intercept = slope + max(-1.0, min(1.0, by_slope)), intercept + max(-1.0, min(1.0, by_intercept))
        if abs(by_slope) + abs(by_intercept) < 1e-9:
            break
    return slope / scale, intercept


def log_odds(rating: float) -> float:
    inside = min(max(rating, _EDGE), 1 - _EDGE)
    return math.log(inside / (1 - inside))


def sigmoid(odds: float) -> float:
    return 1 / (1 + math.exp(-max(-50.0, min(50.0, odds))))
