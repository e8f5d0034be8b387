"""Gaps between identities, win rates, and score levels.

Gaps are paired by scenario and tested by base scenario, with Holm's correction for each family. Win rates and the
effect of being shown first are of phase 2; the distributions of scores and the paper's chi-square test are of phase 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from evenhand.panels import HIGHEST
from evenhand.panels.arrays import Array, Estimator, IdentityPair, Judged
from evenhand.panels.findings import (
    ALPHA,
    COMBINED,
    CONTROL,
    MEASURES,
    Association,
    Difference,
    Distribution,
    Gap,
    Mean,
    Measure,
    Position,
    Win,
)
from evenhand.stats import Interval, Jackknife, holm, mde_from_standard_error, wilson
from evenhand.stats.distributions import chi_square_table
from evenhand.stats.paired import paired_dz

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
            IdentityPair(category, identity, CONTROL),
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


def _gap(
    estimator: Estimator, differences: Array, what: tuple[Measure, str], pair: IdentityPair, *, primary: bool
) -> Gap:
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


SHARE = (0.0, 1.0)


def wins(judged: Judged, estimator: Estimator) -> tuple[Win, ...]:
    """Returns the win rates of every identity against the others of its category."""
    found = (
        _win(judged, estimator, category, identity)
        for category, identities in judged.categories.items()
        for identity in identities
    )
    return tuple(win for win in found if win.n)


def position(judged: Judged, estimator: Estimator) -> Position:
    """Compares first and second over all identities; in every pair each comes first equally often."""
    wins, scores = judged.preference("wins_2"), judged.preference("score_2")
    return Position(
        estimator.mean((1 + wins) / 2, SHARE).interval,
        estimator.p_value(wins),
        estimator.mean(scores).interval,
        estimator.p_value(scores),
        judged.orders * int((~np.isnan(scores)).sum()),
    )


def _win(judged: Judged, estimator: Estimator, category: str, identity: str) -> Win:
    shares = [
        (1 + (1 if identity == pair.x else -1) * judged.differences(pair, "wins_2")) / 2
        for pair in judged.pairs
        if identity in (pair.x, pair.y) and pair.category == category
    ]
    if not shares:
        return Win(identity, category, Interval(None, None, None, 0), Interval(None, None, None, 0), 0, None)
    values = np.column_stack(shares)
    found = estimator.mean(values, SHARE)
    share = found.interval.estimate
    n = judged.orders * int((~np.isnan(values)).sum())
    # Ties and shares of a panel give fractions of wins.
    simple = wilson(0 if share is None else min(share * n, n), n, estimator.confidence)
    return Win(identity, category, found.interval, replace(simple, estimate=share), n, _effective(found, n))


def _effective(found: Jackknife, n: int) -> float | None:
    share, error = found.interval.estimate, found.standard_error
    if share is None or error is None:
        return None
    return min(float(n), share * (1 - share) / error**2) if error > 0 else float(n)


def distributions(judged: Judged) -> tuple[Distribution, ...]:
    """Returns the score counts of every identity and the control, by metric."""
    category_of = {name: category for category, names in judged.categories.items() for name in names}
    found = (
        Distribution(identity, category_of.get(identity, ""), metric, _counts(judged, identity, metric))
        for identity in judged.identities
        for metric in judged.metrics
    )
    return tuple(each for each in found if any(each.counts))


def associations(judged: Judged) -> tuple[Association, ...]:
    """Tests identities × score levels for every category and metric."""
    found = (
        Association(category, metric, *_test(judged, identities, metric))
        for category, identities in judged.categories.items()
        for metric in judged.metrics
    )
    return tuple(each for each in found if each.n)


def _test(
    judged: Judged, identities: Sequence[str], metric: str
) -> tuple[float | None, int, float | None, float | None, int]:
    return chi_square_table([_counts(judged, identity, metric) for identity in identities])


def _counts(judged: Judged, identity: str, metric: str) -> tuple[int, ...]:
    scores = judged.scores(identity, metric)
    # Rounds half up; numpy would round half to even.
    levels = np.floor(scores[~np.isnan(scores)] + 0.5).astype(np.intp)
    return tuple(int(count) for count in np.bincount(levels, minlength=HIGHEST + 1))
