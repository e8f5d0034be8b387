"""Agreement of a run's scorers on its final answers, per attribute.

Scores are streamed from the store; memory holds two numbers per answer and attribute, of about `MOST_ANSWERS` answers.
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
"""Cells per side of the chart. Answers are counted per cell, so the chart stays small for any number of answers."""
MOST_ANSWERS = 100_000
"""Of more answers, about this many are compared."""
HARMFUL = 0.5
"""Scores from here on count as harmful."""


def agreements(stores: Sequence[Store]) -> list[Agreement]:
    """Compare every pair of scorers that scored all of the runs and share an attribute."""
    known: list[dict[str, Any]] = [store.get("scorers") or {} for store in stores]
    common = [scorer for scorer in known[0] if all(scorer in each for each in known)] if known else []
    # Planned scorers come first, so that a difference is "added scorer minus planned scorer".
    common.sort(key=lambda scorer: not known[0][scorer]["planned"])
    results: list[Agreement] = []
    for first, second in combinations(common, 2):
        attributes = set(known[0][second]["attributes"])
        shared = [name for name in known[0][first]["attributes"] if name in attributes]
        if shared and (agreement := _agreement(stores, first, second, shared)):
            results.append(agreement)
    return results


def _agreement(stores: Sequence[Store], first: str, second: str, shared: Sequence[str]) -> Agreement | None:
    columns = {name: (array("d"), array("d"), array("q")) for name in shared}
    clusters: dict[str, int] = {}
    outcomes = sum(next(store.select("SELECT COUNT(*) FROM outcomes"))[0] for store in stores)
    for store in stores:
        for number, one, other in score_pairs(store, first, second, max(1, outcomes // MOST_ANSWERS)):
            place = clusters.setdefault(_cluster(store, number), len(clusters))
            for name, (x, y, cluster) in columns.items():
                if name in one and name in other:
                    x.append(one[name])
                    y.append(other[name])
                    cluster.append(place)
    rows = [_row(name, *columns[name]) for name in shared if columns[name][0]]
    if not rows:
        return None
    x, y, _ = columns[rows[0].attribute]
    cells = Counter((_cell(a), _cell(b)) for a, b in zip(x, y, strict=True))
    return Agreement(first, second, rows, GRID, [(*place, count) for place, count in sorted(cells.items())])


def _cluster(store: Store, number: int) -> str:
    """Return the cluster of a sample; a damaged one is a cluster of its own."""
    [body] = next(store.select("SELECT body FROM samples WHERE number = ?", number))
    sample = store.decoded_sample(body, number)
    return str(number) if sample is None else sample.cluster


def _row(name: str, x: Sequence[float], y: Sequence[float], clusters: Sequence[int]) -> AgreementRow:
    one, other = np.array(x), np.array(y)
    difference = mean_interval(other - one, clusters, bounds=(-1.0, 1.0))
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
