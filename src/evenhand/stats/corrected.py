"""Corrects what a judge says about all items by what people say about some of them.

The rated items must be drawn at random from the judged ones. Whole clusters are left out one at a time (jackknife), so
an interval covers the choice of items, of rated items among them, and what items of one cluster have in common.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.stats.distributions import check_fraction, cluster_sums, finite_array, student_t_quantile
from evenhand.stats.intervals import Bounds, Interval, bounded_interval, cluster_jackknife, evaluate, jackknife_df

Rated = Sequence[float | None]
"""People's value of each item; None where people have not rated it."""
_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Corrected:
    """An estimate of people's mean over all items; its interval's n is the number of rated items."""

    interval: Interval
    judged: int
    """Items with a value by the judge, rated ones included."""
    weight: float | None = None
    """How much the judge counts: 0, as if it were not there, to 1, in full. None where it is not weighted."""


def corrected_mean(
    judged: ArrayLike,
    rated: Rated,
    clusters: Iterable[Hashable] | None = None,
    *,
    bounds: Bounds | None = None,
    confidence: float = 0.95,
) -> Corrected:
    """Return people's mean over all items by prediction-powered inference (Angelopoulos et al. 2023).

    It is mean(rated) - w·(mean of the judge on rated items - on the others). The weight w, from 0 to 1, is the one with
    the smallest variance ("power tuning"), so a useless judge does no harm. For a difference of two arms, pass the
    differences of their values per item. Values of 0 and 1 with the bounds (0, 1) are a share: pairs of values count as
    if half an item more had been seen of each of the four kinds (Agresti and Min 2005), because errors of a good judge
    are rare and a small rated part may have none.
    """
    check_fraction("confidence", confidence)
    judge, people, known = _values(judged, rated)
    table = _table([known, np.where(known, people, 0), known * judge, ~known, ~known * judge], clusters)
    n, size = int(known.sum()), judge.size
    if not n:
        return Corrected(Interval(), size)
    if n == size:
        table, weight = table[:, :3], 0.0
    else:
        weight = _best_weight(table)

    def estimate(sums: _Array) -> _Array:
        mean = sums[..., 1] / sums[..., 0]
        return mean - weight * _surplus(sums) if weight else mean

    found = cluster_jackknife(table, estimate, confidence=confidence)
    value, error = found.interval.estimate, found.standard_error
    if value is None or error is None:
        return Corrected(Interval(value, None, None, n), size, weight)
    if bounds == (0.0, 1.0) and _is_binary(judge) and _is_binary(people[known]):
        error = max(error, math.sqrt(_least_variance(judge, people, known, weight)))
    # Of what people say, only these clusters tell anything.
    informative = int((table[:, 0] > 0).sum())
    df = None if found.df is None else min(found.df, max(1.0, informative - 1.0))
    limits = _limits(value, error, df, informative, bounds, confidence)
    return Corrected(Interval(limits.estimate, limits.low, limits.high, n), size, weight)


def rogan_gladen(
    judged: Sequence[bool],
    rated: Sequence[bool | None],
    clusters: Iterable[Hashable] | None = None,
    *,
    confidence: float = 0.95,
) -> Corrected:
    """Return people's share of yes over all items: (judge's share + specificity - 1)/(sensitivity + specificity - 1).

    Sensitivity and specificity are those of the rated items (Rogan and Gladen 1978), with one right and one wrong item
    added to each. The limits are Fieller's: the shares p for which judge's share + specificity - 1 does not differ
    from p·(sensitivity + specificity - 1). All is undefined if people said only yes or only no to the rated items, or
    if the judge is not shown to be better than chance.
    """
    check_fraction("confidence", confidence)
    judge, people, known = _values([float(x) for x in judged], [None if x is None else float(x) for x in rated])
    yes, no = known & (people == 1), known & (people == 0)
    table = _table([np.ones(judge.size), judge, yes, yes * judge, no, no * (1 - judge)], clusters)
    undefined = Corrected(Interval(None, None, None, int(known.sum())), judge.size)
    if not yes.any() or not no.any() or len(table) < 2:
        return undefined
    total = table.sum(axis=0)
    rates = _rates(total)
    left_out = _rates(total - table)
    deviations = left_out - left_out.mean(axis=0)
    covariance = (len(table) - 1) / len(table) * deviations.T @ deviations
    # Few items were judged wrongly, maybe none: the binomial variance is the least there can be.
    for place, count in ((1, total[2]), (2, total[4])):
        least = rates[place] * (1 - rates[place]) / (count + 2)
        covariance[place, place] = max(covariance[place, place], least)
    excess, gain = float(rates @ _EXCESS) - 1, float(rates @ _GAIN) - 1
    value = min(1.0, max(0.0, excess / gain)) if gain > 0 else 0.0
    quantile = student_t_quantile(0.5 + confidence / 2, jackknife_df(np.square(deviations @ (_EXCESS - value * _GAIN))))
    variances = [float(a @ covariance @ b) for a, b in ((_EXCESS, _EXCESS), (_EXCESS, _GAIN), (_GAIN, _GAIN))]
    limits = _fieller(excess, gain, variances, quantile)
    if limits is None:
        return undefined
    return Corrected(Interval(value, *limits, int(known.sum())), judge.size)


_EXCESS, _GAIN = np.array([1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0])
"""Of (judge's share, sensitivity, specificity): the sums of which Rogan and Gladen's estimate is the ratio."""


def _values(judged: ArrayLike, rated: Rated) -> tuple[_Array, _Array, NDArray[np.bool_]]:
    """Return the judge's values, people's (0 where unknown), and where people's are known."""
    judge = finite_array("judged", judged, 1)
    if judge.size != len(rated):
        raise ValueError(f"rated must have a place for each judged item, not {len(rated)} for {judge.size}.")
    known = np.array([each is not None for each in rated], dtype=np.bool_)
    return judge, finite_array("rated", [0.0 if each is None else each for each in rated], 1), known


def _table(columns: Sequence[NDArray[Any]], clusters: Iterable[Hashable] | None) -> _Array:
    labels = None if clusters is None else list(clusters)
    return np.column_stack([cluster_sums(np.asarray(each, dtype=np.float64), labels) for each in columns])


def _surplus(sums: _Array) -> _Array:
    """By how much the judge's mean on rated items exceeds that on the others."""
    return sums[..., 2] / sums[..., 0] - sums[..., 4] / sums[..., 3]


def _best_weight(table: _Array) -> float:
    """The weight of the judge with the smallest variance over clusters; 0 if it cannot be determined."""
    left_out = table.sum(axis=0) - table
    people = evaluate(lambda sums: sums[..., 1] / sums[..., 0], left_out)
    surplus = evaluate(_surplus, left_out)
    if len(table) < 2 or not (np.isfinite(people).all() and np.isfinite(surplus).all()):
        return 0.0
    people, surplus = people - people.mean(), surplus - surplus.mean()
    variance = float(surplus @ surplus)
    return min(1.0, max(0.0, float(people @ surplus) / variance)) if variance > 0 else 0.0


def _is_binary(values: _Array) -> bool:
    return bool(np.isin(values, (0.0, 1.0)).all())


def _least_variance(judge: _Array, people: _Array, known: NDArray[np.bool_], weight: float) -> float:
    """The variance of a corrected share of independent items, with half an item more of each kind among the rated."""
    pairs = [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]
    rest = [y - weight * x for y, x in pairs]
    counts = [float((known & (people == y) & (judge == x)).sum()) + 0.5 for y, x in pairs]
    total = sum(counts)
    mean = sum(count * each for count, each in zip(counts, rest, strict=True)) / total
    spread = sum(count * (each - mean) ** 2 for count, each in zip(counts, rest, strict=True)) / total
    others = judge[~known]
    return spread / total + (weight**2 * float(others.var()) / others.size if others.size else 0.0)


def _limits(
    value: float, error: float, df: float | None, clusters: int, bounds: Bounds | None, confidence: float
) -> Interval:
    if bounds is not None:
        inside = min(bounds[1], max(bounds[0], value))
        return bounded_interval(inside, error, clusters, bounds, confidence, df=df)
    if not error:
        return Interval(value, None, None, clusters)
    half = student_t_quantile(0.5 + confidence / 2, df or clusters - 1) * error
    return Interval(value, value - half, value + half, clusters)


def _rates(sums: _Array) -> _Array:
    """The judge's share of yes, and its sensitivity and specificity with one right and one wrong item added."""
    return np.stack(
        [sums[..., 1] / sums[..., 0], (sums[..., 3] + 1) / (sums[..., 2] + 2), (sums[..., 5] + 1) / (sums[..., 4] + 2)],
        axis=-1,
    )


def _fieller(above: float, below: float, variances: Sequence[float], quantile: float) -> tuple[float, float] | None:
    """The shares that the ratio may be; None if its denominator may be 0 or less."""
    first, both, second = (quantile**2 * each for each in variances)
    a, b, c = below**2 - second, above * below - both, above**2 - first
    if below <= 0 or a <= 0:
        return None
    root = math.sqrt(max(0.0, b * b - a * c))
    return min(1.0, max(0.0, (b - root) / a)), min(1.0, max(0.0, (b + root) / a))
