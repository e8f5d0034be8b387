"""Gaps between identities: paired by scenario, tested by base scenario, with Holm's correction for each family."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from evenhand.panels import HIGHEST
from evenhand.panels.arrays import Array, Judged, Pair
from evenhand.panels.estimate import Estimator
from evenhand.panels.findings import ALPHA, COMBINED, CONTROL, MEASURES, Difference, Gap, Mean, Measure
from evenhand.stats import holm, mde_from_standard_error
from evenhand.stats.effect_size import paired_dz

POWER = 0.8
_LARGEST: Mapping[Measure, float] = {"score_1": HIGHEST, "score_2": HIGHEST, "wins_2": 1.0}
"""The largest possible gap."""


def means(judged: Judged, estimator: Estimator) -> tuple[Mean, ...]:
    """Returns the mean scores of every identity and the control, by metric."""
    category_of = {name: category for category, names in judged.categories.items() for name in names}
    found: list[Mean] = []
    for identity, name in itertools.product(judged.identities, judged.score_names):
        scores = judged.scores(identity, name)
        interval = estimator.mean(scores).interval
        found.append(Mean(identity, category_of.get(identity, ""), name, interval, _count(scores)))
    return tuple(each for each in found if each.n)


def matrix(judged: Judged, estimator: Estimator) -> tuple[Difference, ...]:
    """Returns the differences of all pairs of identities, also across categories, on their common scenarios."""
    differences = (
        (x, y, judged.scores(x) - judged.scores(y))
        for x, y in itertools.combinations(judged.identities, 2)
        if CONTROL not in (x, y)
    )
    found = (Difference(x, y, estimator.mean(values).interval, _count(values)) for x, y, values in differences)
    return tuple(each for each in found if each.interval.estimate is not None)


def primary_gaps(judged: Judged, estimator: Estimator) -> tuple[Gap, ...]:
    """Tests every pair on every measure."""
    return _family(
        [
            _gap(estimator, judged.differences(pair, measure), (measure, COMBINED), pair, primary=True)
            for measure in MEASURES
            for pair in judged.pairs
        ]
    )


def secondary_gaps(judged: Judged, estimator: Estimator) -> tuple[Gap, ...]:
    """Tests every pair by metric, and every identity against the control."""
    measures: tuple[Measure, ...] = ("score_1", "score_2")
    by_metric = [
        _gap(estimator, judged.differences(pair, measure, metric), (measure, metric), pair, primary=False)
        for measure in measures
        for metric in judged.metrics
        for pair in judged.pairs
    ]
    to_control = [
        _gap(
            estimator,
            judged.scores(identity) - judged.scores(CONTROL),
            ("score_1", COMBINED),
            Pair(category, identity, CONTROL),
            primary=False,
        )
        for category, identities in judged.categories.items()
        for identity in identities
    ]
    return _family(by_metric + to_control)


def detectable(gaps: Sequence[Gap], measure: Measure, estimator: Estimator) -> float | None:
    """Returns the smallest gap that would be detected in the noisiest pair; None if no gap would be."""
    alpha = ALPHA / max(1, len(gaps))
    needed = [_needed(gap, alpha, estimator) for gap in gaps if gap.measure == measure]
    known = [each for each in needed if each is not None and each <= _LARGEST[measure]]
    return max(known) if known and len(known) == len(needed) else None


def bases_needed(tests: int) -> int:
    """Returns the minimum number of base scenarios with which one of this many tests can be significant."""
    return next(bases for bases in itertools.count(2) if 2.0 ** (1 - bases) * tests < ALPHA)


def _needed(gap: Gap, alpha: float, estimator: Estimator) -> float | None:
    bases = gap.difference.n
    if gap.standard_error is None or estimator.smallest_p(bases) >= alpha:
        return None
    return mde_from_standard_error(gap.standard_error, alpha=alpha, power=POWER, df=bases - 1)


def _gap(estimator: Estimator, differences: Array, what: tuple[Measure, str], pair: Pair, *, primary: bool) -> Gap:
    found = estimator.mean(differences, (-1.0, 1.0) if what[0] == "wins_2" else None)
    return Gap(
        *what,
        pair.category,
        pair.x,
        pair.y,
        found.interval,
        found.standard_error,
        estimator.p_value(differences),
        None,
        paired_dz(differences[~np.isnan(differences)]),
        _count(differences),
        primary,
    )


def _family(gaps: Sequence[Gap]) -> tuple[Gap, ...]:
    """Returns the gaps that could be tested, with p-values adjusted for all of them."""
    tested = [gap for gap in gaps if gap.n]
    adjusted = holm([gap.p_value for gap in tested])
    return tuple(replace(gap, adjusted=value) for gap, value in zip(tested, adjusted, strict=True))


def _count(values: Array) -> int:
    return int((~np.isnan(values)).sum())
