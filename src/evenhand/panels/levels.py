"""Score levels of phase 1: their distributions, and the paper's chi-square test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evenhand.panels import HIGHEST
from evenhand.panels.arrays import Judged
from evenhand.panels.findings import Association, Distribution
from evenhand.stats.contingency import chi_square_table


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
