"""Whether the discussion amplifies or damps gaps: compares the judges' scores of a round with those of round 0.

The test does not use absolute gap sizes: noise makes them positive, so a discussion that only reduces noise would seem
to damp the gaps. Instead, each base scenario's shift is projected on the gaps of all other base scenarios, which is 0
on average under noise, and tested by sign flips. (The test is exact if both rounds are equally noisy. If they are not,
and there is no gap at all, about 10 % of the p-values are below 0.05.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenhand.panels.arrays import Array, Judged, Pair
from evenhand.panels.estimate import Estimator
from evenhand.panels.findings import ALL, ALPHA, MEASURES, Amplification, Direction, Measure, Shift
from evenhand.stats import holm


def shifts(judged: Judged, estimator: Estimator) -> tuple[Shift, ...]:
    """Returns the shift of every pair on every measure, by round."""
    found: list[Shift] = []
    for measure in MEASURES:
        for number in range(1, judged.rounds + 1):
            for pair in judged.pairs:
                before, after = judged.by_round(pair, measure, number)
                change = estimator.mean(after - before).interval
                if change.estimate is not None:
                    ends = float(np.nanmean(before)), float(np.nanmean(after))
                    found.append(Shift(measure, number, pair.category, pair.x, pair.y, *ends, change))
    return tuple(found)


def amplifications(judged: Judged, estimator: Estimator) -> tuple[Amplification, ...]:
    """Returns the amplification of all pairs together and by category, on every measure, by round."""
    found: list[Amplification] = []
    for number in range(1, judged.rounds + 1):
        each = [
            _amplification(judged, estimator, measure, number, category)
            for measure in MEASURES
            for category in (ALL, *judged.categories)
        ]
        found += _decided([one for one in each if one.before is not None])
    return tuple(found)


def _amplification(judged: Judged, estimator: Estimator, measure: Measure, number: int, category: str) -> Amplification:
    """Estimates one amplification; its direction is not yet corrected for multiple tests."""
    pairs = [pair for pair in judged.pairs if category in (ALL, pair.category)]
    before, after, counts = _tables(judged, estimator, pairs, measure, number)
    n = _scenarios(judged, pairs, measure, number)
    exists = counts.any(axis=1)
    table = np.hstack([before, after, counts])[exists]
    first, last = (float(size) if np.isfinite(size) else None for size in _sizes(table.sum(axis=0)))
    change = estimator.jackknife(table, _growth).interval
    along = _along(before, after)[exists]
    direction: Direction = "amplified" if along.sum() > 0 else "damped"
    return Amplification(measure, number, category, first, last, change, n, estimator.flip(along), direction)


def _decided(found: Sequence[Amplification]) -> list[Amplification]:
    adjusted = holm([each.p_value for each in found])
    return [
        each if p is not None and p < ALPHA else replace(each, direction="undecided")
        for each, p in zip(found, adjusted, strict=True)
    ]


def _tables(
    judged: Judged, estimator: Estimator, pairs: Sequence[Pair], measure: Measure, number: int
) -> tuple[Array, Array, Array]:
    """Returns three base × pair tables: sums of gaps before and after, and the number of gaps in both."""
    before, after, counts = (np.zeros((estimator.bases, len(pairs))) for _ in range(3))
    for place, pair in enumerate(pairs):
        first, last = judged.by_round(pair, measure, number)
        exists = np.where(np.isnan(last - first), np.nan, 1.0)
        before[:, place], counts[:, place] = estimator.sums(first * exists).T
        after[:, place] = estimator.sums(last * exists)[:, 0]
    return before, after, counts


def _scenarios(judged: Judged, pairs: Sequence[Pair], measure: Measure, number: int) -> int:
    """Returns the number of scenarios in which any of the pairs has a gap in both rounds."""
    found = [judged.by_round(pair, measure, number) for pair in pairs]
    return int(np.any([~np.isnan(last - first) for first, last in found], axis=0).sum())


def _sizes(sums: Array) -> tuple[Array, Array]:
    """Returns the mean absolute gaps before and after from sums (…, before · after · counts)."""
    before, after, counts = np.split(sums, 3, axis=-1)
    exists = counts > 0
    per_pair = np.where(exists, counts, 1.0)
    with np.errstate(invalid="ignore"):
        first, last = (np.abs(each / per_pair).sum(axis=-1) / exists.sum(axis=-1) for each in (before, after))
    return first, last


def _growth(sums: Array) -> Array:
    before, after = _sizes(sums)
    return after - before


def _along(before: Array, after: Array) -> Array:
    """Returns each base scenario's shift, projected on the gaps of both rounds in all others."""
    both = before + after
    return ((after - before) * (both.sum(axis=0) - both)).sum(axis=1)
