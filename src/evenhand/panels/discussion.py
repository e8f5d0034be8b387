"""What a discussion does: whether it amplifies or damps gaps, and which judges influence which.

Amplification compares the judges' scores of a round with those of round 0. The test does not use absolute gap sizes:
noise makes them positive, so a discussion that only reduces noise would seem to damp the gaps. Instead, each base
scenario's shift is projected on the gaps of all other base scenarios, which is 0 on average under noise, and tested by
sign flips. (The test is exact if both rounds are equally noisy. If they are not, and there is no gap at all, about 10 %
of the p-values are below 0.05.)

Influence: for each listener, a least-squares fit regresses its change in a round on its previous distances to the
judges it heard, with one intercept per round. All metrics and candidates are pooled. The coefficient of a judge is the
share of the distance that the listener moved towards it, with the other judges held fixed. The intercepts absorb
general drift of the scores, which would otherwise be credited to judges with high scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evenhand.core.types import Record
from evenhand.panels.arrays import Array, Estimator, IdentityPair, Judged, Scores
from evenhand.panels.findings import ALL, ALPHA, MEASURES, Amplification, Direction, Influence, Measure, Shift
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
    judged: Judged, estimator: Estimator, pairs: Sequence[IdentityPair], measure: Measure, number: int
) -> tuple[Array, Array, Array]:
    """Returns three base × pair tables: sums of gaps before and after, and the number of gaps in both."""
    before, after, counts = (np.zeros((estimator.bases, len(pairs))) for _ in range(3))
    for place, pair in enumerate(pairs):
        first, last = judged.by_round(pair, measure, number)
        exists = np.where(np.isnan(last - first), np.nan, 1.0)
        before[:, place], counts[:, place] = estimator.sums(first * exists).T
        after[:, place] = estimator.sums(last * exists)[:, 0]
    return before, after, counts


def _scenarios(judged: Judged, pairs: Sequence[IdentityPair], measure: Measure, number: int) -> int:
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
