"""What the discussion does to the gaps: the judges' own scores of a round next to those of round 0.

Whether gaps are amplified or damped is not read off their absolute sizes: noise makes these positive, so a discussion
that only calms the judges would seem to damp. Each base scenario's shift is taken along the gaps that all the other
base scenarios show, which noise leaves at 0 on average, and its sign is flipped for the test.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.benchmarks.malibu.arrays import Array, Judged, Pair
from evenhand.benchmarks.malibu.estimate import Estimator
from evenhand.benchmarks.malibu.findings import ALL, ALPHA, MEASURES, Amplification, Direction, Measure, Shift


def shifts(judged: Judged, estimator: Estimator) -> tuple[Shift, ...]:
    """Every pair on every measure, by round."""
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
    """All pairs together and by category, on every measure, by round."""
    found: list[Amplification] = []
    for measure in MEASURES:
        for number in range(1, judged.rounds + 1):
            for category in (ALL, *judged.categories):
                pairs = [pair for pair in judged.pairs if category in (ALL, pair.category)]
                each = _amplification(judged, estimator, pairs, measure, number, category)
                if each.before is not None:
                    found.append(each)
    return tuple(found)


def _amplification(
    judged: Judged, estimator: Estimator, pairs: Sequence[Pair], measure: Measure, number: int, category: str
) -> Amplification:
    before, after, counts = _tables(judged, estimator, pairs, measure, number)
    table = np.hstack([before, after, counts])[counts.any(axis=1)]
    sizes = _sizes(table.sum(axis=0), len(pairs))
    first, last = (float(value) if np.isfinite(value) else None for value in sizes)
    change = estimator.bootstrap(table, lambda sums: np.subtract(*_sizes(sums, len(pairs))[::-1])).interval
    along = _along(before, after)[counts.any(axis=1)]
    p_value = estimator.flip(along)
    return Amplification(measure, number, category, first, last, change, p_value, _direction(along, p_value))


def _tables(
    judged: Judged, estimator: Estimator, pairs: Sequence[Pair], measure: Measure, number: int
) -> tuple[Array, Array, Array]:
    """Base × pair: the sums of the gaps before and after, and how many there are of both."""
    before, after, counts = (np.zeros((estimator.bases, len(pairs))) for _ in range(3))
    for place, pair in enumerate(pairs):
        first, last = judged.by_round(pair, measure, number)
        exists = np.where(np.isnan(last - first), np.nan, 1.0)
        before[:, place], counts[:, place] = estimator.sums(first * exists).T
        after[:, place] = estimator.sums(last * exists)[:, 0]
    return before, after, counts


def _sizes(sums: Array, pairs: int) -> tuple[Array, Array]:
    """The mean absolute gaps before and after, of sums (…, before · after · counts), over the pairs that have any."""
    before, after, counts = (sums[..., start : start + pairs] for start in (0, pairs, 2 * pairs))
    exists = counts > 0
    per_pair = np.where(exists, counts, 1.0)
    with np.errstate(invalid="ignore"):
        first, last = (np.abs(each / per_pair).sum(axis=-1) / exists.sum(axis=-1) for each in (before, after))
    return first, last


def _along(before: Array, after: Array) -> Array:
    """Per base scenario, its shift along the gaps of both rounds in all the others."""
    both = before + after
    return ((after - before) * (both.sum(axis=0) - both)).sum(axis=1)


def _direction(along: Array, p_value: float | None) -> Direction:
    if p_value is None or p_value >= ALPHA:
        return "undecided"
    return "amplified" if along.sum() > 0 else "damped"
