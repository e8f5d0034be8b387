"""Which judges influenced which in the discussion.

For each listener, a least-squares fit regresses its change in a round on its previous distances to the judges it heard,
with one intercept per round. All metrics and candidates are pooled. The coefficient of a judge is the share of the
distance that the listener moved towards it, with the other judges held fixed. The intercepts absorb general drift of
the scores, which would otherwise be credited to judges with high scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from evenhand.core.types import Record
from evenhand.panels.arrays import Array, Scores
from evenhand.panels.estimate import Estimator
from evenhand.panels.findings import Influence

_SINGULAR = 1e-9


def influences(records: Sequence[Record], judges: Sequence[str], estimator: Estimator) -> tuple[Influence, ...]:
    """Returns the influence on every listener of every judge that it heard."""
    graded = [(record.cluster, record.grade) for record in records if record.grade]
    rounds = max((len(grade["rounds"]) for _, grade in graded), default=0)
    if rounds < 2:
        return ()
    bases = sorted({base for base, _ in graded})
    base_of = np.array([bases.index(base) for base, _ in graded], dtype=np.intp)
    # The number of scores of a sample with two candidates; in phase 1 the second is missing.
    slots = 2 * len(graded[0][1]["scores"][0])
    scores = np.array([_scores(grade["rounds"], judges, rounds, slots) for _, grade in graded])
    heard = np.array([_heard(grade["heard"], judges, rounds) for _, grade in graded])
    return tuple(
        each
        for listener in range(len(judges))
        for each in _listener(listener, judges, scores, heard, base_of, estimator)
    )


def _listener(
    listener: int,
    judges: Sequence[str],
    scores: Array,
    heard: NDArray[np.bool_],
    base_of: NDArray[np.intp],
    estimator: Estimator,
) -> list[Influence]:
    others = [other for other in range(len(judges)) if heard[:, :, listener, other].any()]
    known = heard[:, 1:, listener][:, :, others][..., np.newaxis]
    before = scores[:, :-1, listener]
    change = scores[:, 1:, listener] - before
    # Sample × round × judge × score; a judge that was not heard has no pull.
    distances = np.where(known, scores[:, :-1, others] - before[:, :, np.newaxis], 0.0)
    usable = ~np.isnan(change + distances.sum(axis=2))
    drifts = np.broadcast_to(
        np.eye(distances.shape[1])[..., np.newaxis], (*distances.shape[:2], *distances.shape[1::2])
    )
    pulls = np.where(usable[:, :, np.newaxis], np.concatenate([distances, drifts], axis=2), 0.0)
    moves = np.where(usable, change, 0.0)
    table = _by_base(np.einsum("nrjs,nrks->njk", pulls, pulls), np.einsum("nrjs,nrs->nj", pulls, moves), base_of)
    counts = np.count_nonzero(usable[:, :, np.newaxis] & known, axis=(0, 1, 3))
    size = pulls.shape[2]
    return [
        Influence(
            judges[listener],
            judges[other],
            estimator.jackknife(table, lambda sums, place=place: _coefficients(sums, size)[..., place]).interval,
            int(counts[place]),
        )
        for place, other in enumerate(others)
    ]


def _by_base(products: Array, moves: Array, base_of: NDArray[np.intp]) -> Array:
    """Returns the sums of both sides of the normal equations, one row per base scenario."""
    rows = np.hstack([products.reshape(len(products), -1), moves])
    table = np.zeros((int(base_of.max()) + 1, rows.shape[1]))
    np.add.at(table, base_of, rows)
    return table


def _coefficients(sums: Array, size: int) -> Array:
    """Solves the normal equations; NaN if they are singular."""
    products = sums[..., : size * size].reshape(*sums.shape[:-1], size, size)
    moves = sums[..., size * size :]
    spread = np.linalg.eigvalsh(products)
    singular = spread[..., 0] <= _SINGULAR * spread[..., -1]
    solvable = np.where(singular[..., np.newaxis, np.newaxis], np.eye(size), products)
    found = np.linalg.solve(solvable, moves[..., np.newaxis])[..., 0]
    return np.where(singular[..., np.newaxis], np.nan, found)


def _scores(given: Sequence[Mapping[str, Scores | None]], judges: Sequence[str], rounds: int, slots: int) -> Array:
    """Round × judge × score."""
    scores = np.full((rounds, len(judges), slots), np.nan)
    for number, each in enumerate(given):
        for place, judge in enumerate(judges):
            flat = [score for candidate in each.get(judge) or () for score in candidate]
            scores[number, place, : len(flat)] = flat
    return scores


def _heard(noted: Sequence[Mapping[str, Sequence[str]]], judges: Sequence[str], rounds: int) -> NDArray[np.bool_]:
    """Round × listener × judge."""
    heard = np.zeros((rounds, len(judges), len(judges)), dtype=np.bool_)
    for number, each in enumerate(noted):
        for listener, names in each.items():
            for name in names:
                heard[number, judges.index(listener), judges.index(name)] = True
    return heard
