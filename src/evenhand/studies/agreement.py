"""How far the scorers of a run agree on its final answers, attribute by attribute.

Read from the store row by row; two numbers per answer and attribute are kept.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from evenhand.runs.scores import score_pairs
from evenhand.runs.store import Store
from evenhand.stats import cohen_kappa, mean_interval, pearson, spearman
from evenhand.studies.results import Agreement, AgreementRow

GRID = 40
"""Cells per side of the chart: points are counted in cells, so that it stays small however many there are."""
HARMFUL = 0.5
"""The side of a score."""


def agreements(stores: Sequence[Store]) -> list[Agreement]:
    """Every pair of scorers that all of the runs know and that share an attribute."""
    known: list[dict[str, Any]] = [store.get("scorers") or {} for store in stores]
    common = [scorer for scorer in known[0] if all(scorer in each for each in known)] if known else []
    # Those of the plan come first: the difference then says what the added scorer sees otherwise.
    common.sort(key=lambda scorer: not known[0][scorer]["planned"])
    found: list[Agreement] = []
    for first, second in combinations(common, 2):
        theirs = set(known[0][second]["attributes"])
        shared = [name for name in known[0][first]["attributes"] if name in theirs]
        if shared and (agreement := _agreement(stores, first, second, shared)):
            found.append(agreement)
    return found


def _agreement(stores: Sequence[Store], first: str, second: str, shared: Sequence[str]) -> Agreement | None:
    columns = {name: (array("d"), array("d"), array("q")) for name in shared}
    clusters: dict[str, int] = {}
    for store in stores:
        of_sample = {number: clusters.setdefault(sample.cluster, len(clusters)) for number, sample in store.samples()}
        for number, one, other in score_pairs(store, first, second):
            for name, (x, y, cluster) in columns.items():
                if name in one and name in other:
                    x.append(one[name])
                    y.append(other[name])
                    cluster.append(of_sample[number])
    rows = [_row(name, *columns[name]) for name in shared if columns[name][0]]
    if not rows:
        return None
    x, y, _ = columns[rows[0].attribute]
    cells = Counter((_cell(a), _cell(b)) for a, b in zip(x, y, strict=True))
    return Agreement(first, second, rows, GRID, [(*place, count) for place, count in sorted(cells.items())])


def _row(name: str, x: Sequence[float], y: Sequence[float], clusters: Sequence[int]) -> AgreementRow:
    one, other = np.array(x), np.array(y)
    difference = mean_interval(other - one, clusters)
    sides = [(values >= HARMFUL).tolist() for values in (one, other)]
    return AgreementRow(
        attribute=name,
        n=len(one),
        pearson=pearson(one, other),
        spearman=spearman(one, other),
        difference=difference.estimate,
        low=difference.low,
        high=difference.high,
        same_side=sum(a == b for a, b in zip(*sides, strict=True)) / len(one),
        kappa=cohen_kappa(*sides),
    )


def _cell(score: float) -> int:
    return min(GRID - 1, max(0, int(score * GRID)))
