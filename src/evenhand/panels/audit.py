"""The audit of judges: finds which identities the scores of one arm favour.

The same text is scored with different labels, so differences are paired by scenario. Intervals leave out, and tests
flip, whole base scenarios, since the scenarios derived from one base are not independent.
Coverage is the share of requested judgements that were given, by sample and by judge.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from evenhand.core.format import interval, number, p_statement, percent
from evenhand.core.types import Record
from evenhand.panels import HIGHEST
from evenhand.panels.arrays import Array, Estimator, IdentityPair, Judged, Scores, judged
from evenhand.panels.findings import (
    ALL,
    ALPHA,
    COMBINED,
    CONTROL,
    MEASURES,
    Amplification,
    Association,
    Coverage,
    Difference,
    Direction,
    Distribution,
    Gap,
    Influence,
    JudgeCoverage,
    Mean,
    Measure,
    OverCorrection,
    PanelAudit,
    Position,
    Shift,
    Turn,
    Win,
)
from evenhand.stats import Bounds, Interval, Jackknife, holm, mde_from_standard_error, widened, wilson
from evenhand.stats.distributions import chi_square_table
from evenhand.stats.paired import paired_dz

# --- what a discussion does: whether it amplifies or damps gaps, and which judges influence which ---
# Amplification compares the judges' scores of a round with those of round 0. The test does not use absolute gap
# sizes: noise makes them positive, so a discussion that only reduces noise would seem to damp the gaps. Instead, each
# base scenario's shift is projected on the gaps of all other base scenarios, which is 0 on average under noise, and
# tested by sign flips. (The test is exact if both rounds are equally noisy. If they are not, and there is no gap at
# all, about 10 % of the p-values are below 0.05.)
#
# Influence: for each listener, a least-squares fit regresses its change in a round on its previous distances to the
# judges it heard, with one intercept per round. All metrics and candidates are pooled. The coefficient of a judge is
# the share of the distance that the listener moved towards it, with the other judges held fixed. The intercepts
# absorb general drift of the scores, which would otherwise be credited to judges with high scores.


def shifts(judged: Judged, estimator: Estimator) -> tuple[Shift, ...]:
    """Returns the shift of every pair on every measure, by round."""
    found: list[Shift] = []
    for measure in MEASURES:
        for turn in range(1, judged.rounds + 1):
            for pair in judged.pairs:
                before, after = judged.by_round(pair, measure, turn)
                change = estimator.mean(after - before).interval
                if change.estimate is not None:
                    ends = float(np.nanmean(before)), float(np.nanmean(after))
                    found.append(Shift(measure, turn, pair.category, pair.x, pair.y, *ends, change))
    return tuple(found)


def amplifications(judged: Judged, estimator: Estimator) -> tuple[Amplification, ...]:
    """Returns the amplification of all pairs together and by category, on every measure, by round."""
    found: list[Amplification] = []
    for turn in range(1, judged.rounds + 1):
        each = [
            _amplification_of(judged, estimator, measure, turn, category)
            for measure in MEASURES
            for category in (ALL, *judged.categories)
        ]
        found += _decided([one for one in each if one.before is not None])
    return tuple(found)


def _amplification_of(
    judged: Judged, estimator: Estimator, measure: Measure, turn: int, category: str
) -> Amplification:
    """Estimates one amplification; its direction is not yet corrected for multiple tests."""
    pairs = [pair for pair in judged.pairs if category in (ALL, pair.category)]
    before, after, counts = _tables(judged, estimator, pairs, measure, turn)
    n = _scenarios(judged, pairs, measure, turn)
    exists = counts.any(axis=1)
    table = np.hstack([before, after, counts])[exists]
    first, last = (float(size) if np.isfinite(size) else None for size in _sizes(table.sum(axis=0)))
    change = estimator.jackknife(table, _growth).interval
    along = _along(before, after)[exists]
    direction: Direction = "amplified" if along.sum() > 0 else "damped"
    return Amplification(measure, turn, category, first, last, change, n, estimator.flip(along), direction)


def _decided(found: Sequence[Amplification]) -> list[Amplification]:
    adjusted = holm([each.p_value for each in found])
    return [
        each if p is not None and p < ALPHA else replace(each, direction="undecided")
        for each, p in zip(found, adjusted, strict=True)
    ]


def _tables(
    judged: Judged, estimator: Estimator, pairs: Sequence[IdentityPair], measure: Measure, turn: int
) -> tuple[Array, Array, Array]:
    """Returns three base × pair tables: sums of gaps before and after, and the number of gaps in both."""
    before, after, counts = (np.zeros((estimator.bases, len(pairs))) for _ in range(3))
    for place, pair in enumerate(pairs):
        first, last = judged.by_round(pair, measure, turn)
        exists = np.where(np.isnan(last - first), np.nan, 1.0)
        before[:, place], counts[:, place] = estimator.sums(first * exists).T
        after[:, place] = estimator.sums(last * exists)[:, 0]
    return before, after, counts


def _scenarios(judged: Judged, pairs: Sequence[IdentityPair], measure: Measure, turn: int) -> int:
    """Returns the number of scenarios in which any of the pairs has a gap in both rounds."""
    found = [judged.by_round(pair, measure, turn) for pair in pairs]
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
    for turn, each in enumerate(given):
        for place, judge in enumerate(judges):
            flat = [score for candidate in each.get(judge) or () for score in candidate]
            scores[turn, place, : len(flat)] = flat
    return scores


def _heard(noted: Sequence[Mapping[str, Sequence[str]]], judges: Sequence[str], rounds: int) -> NDArray[np.bool_]:
    """Round × listener × judge."""
    heard = np.zeros((rounds, len(judges), len(judges)), dtype=np.bool_)
    for turn, each in enumerate(noted):
        for listener, names in each.items():
            for name in names:
                heard[turn, judges.index(listener), judges.index(name)] = True
    return heard


# --- gaps between identities, win rates, and score levels ---
# Gaps are paired by scenario and tested by base scenario, with Holm's correction for each family. Win rates and the
# effect of being shown first are of phase 2; the distributions of scores and the paper's chi-square test are of phase
# 1.

POWER = 0.8
_LARGEST: Mapping[Measure, float] = {"score_1": HIGHEST, "score_2": HIGHEST, "wins_2": 1.0}
"""The largest possible gap."""
_BOUNDS: Mapping[Measure, Bounds] = {"wins_2": (-1.0, 1.0)}


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
    found = estimator.mean(differences, _BOUNDS.get(what[0]))
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
    """Returns the gaps that could be tested, with p-values adjusted for all, and intervals for those that are found."""
    tested = [gap for gap in gaps if gap.n]
    adjusted = holm([gap.p_value for gap in tested])
    tested = [replace(gap, adjusted=value) for gap, value in zip(tested, adjusted, strict=True)]
    times = len(tested) / max(1, sum(gap.found for gap in tested))
    return tuple(
        replace(gap, chosen=widened(gap.difference, times, _BOUNDS.get(gap.measure))) if gap.found else gap
        for gap in tested
    )


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
        return Win(identity, category, Interval(), Interval(), 0, None)
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
        Association(category, metric, *chi_square_table([_counts(judged, each, metric) for each in identities]))
        for category, identities in judged.categories.items()
        for metric in judged.metrics
    )
    return tuple(each for each in found if each.n)


def _counts(judged: Judged, identity: str, metric: str) -> tuple[int, ...]:
    scores = judged.scores(identity, metric)
    # Rounds half up; numpy would round half to even.
    levels = np.floor(scores[~np.isnan(scores)] + 0.5).astype(np.intp)
    return tuple(int(count) for count in np.bincount(levels, minlength=HIGHEST + 1))


# --- the findings of an audit in sentences: the gaps, or the smallest gap that could have been detected ---

_SHOWN = 3
"""Number of gaps with their own sentence; the tables have all."""


def sentences_of(audit: PanelAudit) -> tuple[str, ...]:
    """Returns three to eight sentences, the gaps first."""
    first, *others = [*(gap_sentence(gap, audit.authors) for gap in _foremost(audit.found)), ""]
    sentences = [
        first,
        _overview(audit),
        *others,
        _position(audit),
        _discussion(audit),
        _stubbornness(audit),
        _coverage(audit),
    ]
    return tuple(each for each in sentences if each)


def gap_sentence(gap: Gap, authors: Mapping[str, str]) -> str:
    """Returns a sentence on how much more the identity ahead gets than the other."""
    ahead, behind = (gap.x, gap.y) if gap.favours == gap.x else (gap.y, gap.x)
    by, than = (f"said to be by {authors.get(name, name)}" if name else "without a label" for name in (ahead, behind))
    ahead_by = gap.shown if ahead == gap.x else gap.shown.times(-1)
    p = f"{'adjusted interval, ' if gap.chosen else ''}adjusted {p_statement(gap.adjusted)}"
    if gap.measure == "wins_2":
        wins = _percent(_as_share(ahead_by))
        return f"In pairs, responses {by} win {wins} of the comparisons with equal ones {than} ({p})."
    where = "phase 1" if gap.measure == "score_1" else "in pairs"
    return f"Responses {by} get {_points(ahead_by)} more than equal ones {than} ({where}, {p})."


def turned_sentence(before: Gap, after: Gap, kind: Turn, authors: Mapping[str, str]) -> str:
    """Returns a sentence on a gap that a mitigation reversed or created."""
    now, was = (f"{told[0].lower()}{told[1:]}" for told in (gap_sentence(gap, authors) for gap in (after, before)))
    if kind == "reversed":
        return f"The gap was turned around: {now} Before, {was}"
    return f"A new gap, in favour of who was behind before: {now}"


def _foremost(found: Sequence[Gap]) -> list[Gap]:
    """Returns the most significant gap of every measure, then the second most significant, up to the limit."""
    rank = Counter[Measure]()
    ranked: list[tuple[int, Gap]] = []
    for gap in found:
        ranked.append((rank[gap.measure], gap))
        rank[gap.measure] += 1
    return [gap for _, gap in sorted(ranked, key=lambda each: each[0])[:_SHOWN]]


def _overview(audit: PanelAudit) -> str:
    tests = len(audit.gaps)
    if not tests:
        return "No two identities were judged on the same scenarios, so there is nothing to compare."
    if audit.found:
        count = len(audit.found)
        show = "shows" if count == 1 else "show"
        return f"{count} of {tests} comparisons of identities {show} a gap after correction for their number."
    if not any(gap.difference.estimate or gap.standard_error for gap in audit.gaps):
        return f"The labels changed nothing: in all {tests} comparisons the identities are exactly level."
    sizes = ", ".join(_size(measure, size) for measure, size in audit.detectable.items() if size is not None)
    if not sizes:
        return (
            f"No gap was found, and none could have been: with {audit.bases} base scenarios no difference is "
            f"significant after correction for {tests} comparisons; it takes {bases_needed(tests)} or more."
        )
    return (
        f"No gap was found in {tests} comparisons. Gaps of this size or larger would have been found with 80 % power: "
        f"{sizes}."
    )


def _position(audit: PanelAudit) -> str:
    position = audit.position
    if position.first_wins.estimate is None or position.first_wins_p is None:
        return ""
    verdict = "a preference for a place" if position.decided else "no preference for a place was found"
    return (
        f"The response shown first wins {_percent(position.first_wins)} of the comparisons: {verdict} "
        f"({p_statement(position.first_wins_p)})."
    )


def _discussion(audit: PanelAudit) -> str:
    """Returns a sentence on the last round, for the first measure with a decided direction."""
    last = [each for each in audit.amplification if each.round == audit.rounds and each.category == ALL]
    decided = [each for each in last if each.direction != "undecided"]
    return _amplification((decided or last)[0]) if last else ""


def _amplification(each: Amplification) -> str:
    verdict = {
        "amplified": "The discussion amplified the gaps",
        "damped": "The discussion damped the gaps",
        "undecided": "Whether the discussion amplifies or damps gaps is undecided",
    }[each.direction]
    scale, unit = (100, " %") if each.measure == "wins_2" else (1, " points")
    raw = ", before correction for the number of tests" if each.direction == "undecided" else ""
    before, after = (number(scale * (size or 0), 1 if scale > 1 else 2) for size in (each.before, each.after))
    sizes = f"mean size {before} → {after}{unit}"
    return f"{verdict}: {MEASURES[each.measure].lower()}, {sizes} ({p_statement(each.p_value)}{raw})."


def _stubbornness(audit: PanelAudit) -> str:
    shares = [judge.unchanged for judge in audit.coverage.judges if judge.unchanged is not None]
    if not shares:
        return ""
    return f"A judge ends where it began in {percent(sum(shares) / len(shares))} of the samples."


def _coverage(audit: PanelAudit) -> str:
    coverage = audit.coverage
    without, missing = coverage.samples - coverage.graded, coverage.unread + coverage.declined
    if not without and not missing:
        return f"All {coverage.samples:,} samples were judged, and all {coverage.asked:,} judgements could be read."
    return (
        f"{without:,} of {coverage.samples:,} samples have no grade; of {coverage.asked:,} judgements in the others "
        f"{coverage.unread:,} could not be read and {coverage.declined:,} were declined."
    )


def _as_share(difference: Interval) -> Interval:
    """Converts a difference of win rates to a win rate."""
    ends = (difference.estimate, difference.low, difference.high)
    estimate, low, high = (None if each is None else (1 + each) / 2 for each in ends)
    return Interval(estimate, low, high, difference.n)


def _size(measure: Measure, size: float) -> str:
    shown = f"{percent((1 + size) / 2)} instead of 50 %" if measure == "wins_2" else f"{number(size, 2)} points"
    return f"{shown} ({MEASURES[measure].lower()})"


def _points(found: Interval) -> str:
    value = number(found.estimate, 2) if found.low is None else interval(found.estimate, found.low, found.high, 2)
    return f"{value} points"


def _percent(found: Interval) -> str:
    if found.estimate is None or found.low is None or found.high is None:
        return "an unknown share" if found.estimate is None else percent(found.estimate)
    return f"{interval(100 * found.estimate, 100 * found.low, 100 * found.high)} %"


_FLIPS = 10_000
_FLIPS_PER_TEST = 100
"""Enough that the smallest p-value survives the correction for any number of identities."""


def audit(records: Sequence[Record], *, seed: int = 0, confidence: float = 0.95) -> PanelAudit:
    """Returns all findings on one arm; records without a grade count only in the coverage."""
    values = judged(records)
    tests = 10 * len(values.pairs) + len(values.identities)  # at most: the secondary family, which is the larger one
    flips = max(_FLIPS, _FLIPS_PER_TEST * tests)
    estimator = Estimator(values.base_of, values.bases, flips, confidence, seed)
    gaps = _family(
        [
            _gap(estimator, values.differences(pair, measure), (measure, COMBINED), pair, primary=True)
            for measure in MEASURES
            for pair in values.pairs
        ]
    )
    found = PanelAudit(
        categories=values.categories,
        authors=values.authors,
        judges=values.judges,
        rounds=values.rounds,
        scenarios=len(values.base_of),
        bases=values.bases,
        confidence=confidence,
        means=means(values, estimator),
        distributions=distributions(values),
        matrix=matrix(values, estimator),
        gaps=gaps,
        secondary=secondary_gaps(values, estimator),
        detectable={measure: detectable(gaps, measure, estimator) for measure in MEASURES},
        wins=wins(values, estimator),
        chi_square=associations(values),
        position=position(values, estimator),
        shifts=shifts(values, estimator),
        amplification=amplifications(values, estimator),
        influence=influences(records, values.judges, estimator),
        coverage=coverage(records, values.judges),
    )
    return replace(found, sentences=sentences_of(found))


def over_correction(before: PanelAudit, after: PanelAudit) -> tuple[OverCorrection, ...]:
    """Returns the gaps in `after` that favour the identity that was behind in `before`."""
    earlier = {(gap.measure, gap.x, gap.y): gap for gap in before.gaps}
    found: list[OverCorrection] = []
    for gap in after.found:
        was = earlier.get((gap.measure, gap.x, gap.y))
        if was is not None and was.favours is not None and was.favours != gap.favours:
            kind: Turn = "reversed" if was.found else "new"
            found.append(OverCorrection(was, gap, kind, turned_sentence(was, gap, kind, after.authors)))
    return tuple(found)


def coverage(records: Sequence[Record], judges: Sequence[str]) -> Coverage:
    """Counts samples by status, and requested and missing judgements."""
    statuses = Counter(record.status for record in records)
    grades = [record.grade for record in records if record.grade]
    asked, missing, unchanged = Counter[str](), Counter[str](), Counter[str]()
    discussed = 0
    for grade in grades:
        for given in grade["rounds"]:
            asked.update(given.keys())
            missing.update(judge for judge, scores in given.items() if scores is None)
        unchanged.update(grade["unchanged"])
        discussed += len(grade["rounds"]) > 1
    return Coverage(
        len(records),
        statuses["graded"],
        statuses["refused"],
        statuses["cut"],
        statuses["unscored"],
        statuses["failed"],
        sum(grade["given"] for grade in grades),
        sum(grade["unread"] for grade in grades),
        sum(grade["declined"] for grade in grades),
        tuple(
            JudgeCoverage(judge, asked[judge], missing[judge], unchanged[judge] / discussed if discussed else None)
            for judge in judges
        ),
    )
