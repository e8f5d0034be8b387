"""Win rates in phase 2, and the effect of being shown first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from evenhand.panels.arrays import Judged
from evenhand.panels.estimate import Estimator
from evenhand.panels.findings import Position, Win
from evenhand.stats import Interval, Jackknife, wilson

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
