"""What a study's owner sees while people rate: progress, agreement, drift, and how precise the result will be. Pure.

Means of arms are left out on purpose: an owner who sees them may stop when they look good, which biases the result.
Kappas are of the bands of `ratings`; alpha is of the numbers (interval level). Limits are a jackknife over questions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.annotate.journal import Rating
from evenhand.annotate.ratings import BANDS, band
from evenhand.annotate.sheets import planned, rubric_in
from evenhand.data.rubrics import POINTS
from evenhand.stats import (
    FEW_CLUSTERS,
    Interval,
    cohen_interval,
    fleiss_interval,
    krippendorff_alpha,
    mean_interval,
    paired_cluster_jackknife,
    size_for_half_width,
)

PAUSE_SECONDS = 300.0
"""A longer time between two answers is a break and no working time."""
LEVEL = 0.05
"""Chance that any rater of a study seems to drift who does not."""
MOST_BLOCKS, BLOCK = 10, 5
"""The course of a rater's agreement has at most this many points, each of at least this many ratings."""

Cells = Mapping[tuple[str, str], Mapping[str, Rating]]
"""(scale, item) → rater → rating, without those who cannot tell."""


@dataclass(frozen=True, slots=True)
class RaterProgress:
    """How far a rater is."""

    rater: str
    done: int
    """Answers that are rated on all scales."""
    planned: int
    cannot_tell: int
    seconds: float | None
    """Median working time of an answer."""
    last: float | None
    """When the last rating was given, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class ScaleAgreement:
    """How far all raters agree on one scale."""

    scale: str
    fleiss: Interval
    """Of the answers that all their planned raters have rated."""
    alpha: Interval
    """Krippendorff's, of all answers with two ratings or more."""


@dataclass(frozen=True, slots=True)
class RaterPair:
    """How far two raters agree, by scale: Cohen's kappa of the bands."""

    raters: tuple[str, str]
    kappa: Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class Drift:
    """Whether a rater's agreement with the others changes: the second half of their ratings against the first."""

    rater: str
    scale: str
    n: int
    """Ratings of answers that others have rated, too."""
    course: Sequence[float]
    """Share of the others' ratings in the same band, over time."""
    agreement: Interval
    """Its change; limits are corrected for all raters and scales."""
    shift: Interval
    """The change of rating minus the others' mean."""
    verdict: str


@dataclass(frozen=True, slots=True)
class Precision:
    """How precisely an arm is measured so far, and what a wanted precision needs."""

    scale: str
    arm: str
    """Against the baseline; the baseline itself if it is the only arm."""
    questions: int
    half_width: float | None
    """Of the 95 % interval."""
    needed: int | None
    """Questions for the wanted half-width; None if it cannot be said yet."""
    more: int | None
    """Ratings (rows of sheets) that are still missing for it."""
    beyond: int | None
    """How many of them exceed the plan."""


@dataclass(frozen=True, slots=True)
class Standing:
    """All of it."""

    progress: Sequence[RaterProgress]
    agreement: Sequence[ScaleAgreement]
    pairs: Sequence[RaterPair]
    drift: Sequence[Drift]
    precision: Sequence[Precision]


def standing(key: Mapping[str, Any], ratings: Sequence[Rating], wanted: float) -> Standing:
    """Return the state of a study; `wanted` is the half-width of the interval to reach."""
    rubric = rubric_in(key)
    cells: dict[tuple[str, str], dict[str, Rating]] = {}
    for each in ratings:
        if each.value is not None:
            cells.setdefault((each.scale, each.item), {})[each.rater] = replace(each, value=rubric.points(each.value))
    items: Mapping[str, Mapping[str, str]] = key["items"]
    clusters = {name: item["cluster"] or item["sample"] for name, item in items.items()}
    plan = planned(key)
    raters: Sequence[str] = key["raters"]
    return Standing(
        [
            _progress(rater, len(plan[rater]), [each for each in ratings if each.rater == rater], len(rubric.shorts))
            for rater in raters
        ],
        [_agreement(scale, plan, cells, clusters) for scale in rubric.shorts],
        [_pair(one, other, cells, clusters, rubric.shorts) for one, other in combinations(raters, 2)],
        [
            _drift(rater, scale, len(raters) * len(rubric.shorts), cells, clusters)
            for rater in raters
            for scale in rubric.shorts
        ],
        [each for scale in rubric.shorts for each in _precisions(scale, key, plan, cells, clusters, wanted)],
    )


def _progress(rater: str, count: int, own: Sequence[Rating], scales: int) -> RaterProgress:
    by_item: dict[str, list[Rating]] = {}
    for each in own:
        by_item.setdefault(each.item, []).append(each)
    ends = sorted(max(each.at for each in cells) for cells in by_item.values() if len(cells) == scales)
    steps = [later - earlier for earlier, later in pairwise(ends) if later - earlier < PAUSE_SECONDS]
    return RaterProgress(
        rater,
        len(ends),
        count,
        sum(each.value is None for each in own),
        median(steps) if steps else None,
        max((each.at for each in own), default=None),
    )


def _agreement(
    scale: str, plan: Mapping[str, Sequence[str]], cells: Cells, clusters: Mapping[str, str]
) -> ScaleAgreement:
    times: dict[str, int] = {}
    for own in plan.values():
        for name in own:
            times[name] = times.get(name, 0) + 1
    given = {name: [_value(each) for each in cells.get((scale, name), {}).values()] for name in clusters}
    complete = [name for name, values in given.items() if values and len(values) == times.get(name)]
    table = [
        [[band(value) for value in given[name]].count(each) for each in range(len(BANDS) + 1)] for name in complete
    ]
    fleiss = fleiss_interval(table, [clusters[name] for name in complete]) if table else Interval(None, None, None, 0)
    alpha = krippendorff_alpha(list(given.values()), "interval", [clusters[name] for name in given])
    return ScaleAgreement(scale, fleiss, alpha)


def _pair(one: str, other: str, cells: Cells, clusters: Mapping[str, str], scales: Sequence[str]) -> RaterPair:
    kappa: dict[str, Interval] = {}
    for scale in scales:
        both = {name: given for (on, name), given in cells.items() if on == scale and one in given and other in given}
        first, second = ([band(_value(given[rater])) for given in both.values()] for rater in (one, other))
        kappa[scale] = cohen_interval(first, second, [clusters[name] for name in both])
    return RaterPair((one, other), kappa)


def _drift(rater: str, scale: str, tests: int, cells: Cells, clusters: Mapping[str, str]) -> Drift:
    shared: list[tuple[float, str, float, float]] = []
    for (on, name), given in cells.items():
        if on == scale and rater in given and len(given) > 1:
            own = _value(given[rater])
            others = [_value(each) for who, each in given.items() if who != rater]
            same = fmean(band(value) == band(own) for value in others)
            shared.append((given[rater].at, clusters[name], same, own - fmean(others)))
    shared.sort()
    labels = [label for _, label, _, _ in shared]
    agreed, apart = [same for _, _, same, _ in shared], [each for _, _, _, each in shared]
    confidence = 1 - LEVEL / (tests * 2)
    agreement = _change(agreed, labels, (-1.0, 1.0), confidence)
    shift = _change(apart, labels, (-2.0 * POINTS, 2.0 * POINTS), confidence)
    points = min(MOST_BLOCKS, len(shared) // BLOCK)
    course = [float(block.mean()) for block in np.array_split(np.asarray(agreed), points)] if points else []
    return Drift(rater, scale, len(shared), course, agreement, shift, _verdict(len(set(labels)), agreement, shift))


def _change(values: Sequence[float], labels: Sequence[str], bounds: tuple[float, float], confidence: float) -> Interval:
    """Return the mean of the second half minus that of the first; `values` are in the order of time."""
    middle, places = len(values) // 2, {label: place for place, label in enumerate(dict.fromkeys(labels))}
    tables = np.zeros((2, len(places), 2))
    for number, (value, label) in enumerate(zip(values, labels, strict=True)):
        tables[int(number >= middle), places[label]] += (value, 1)

    def mean(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return sums[..., 0] / sums[..., 1]

    found = paired_cluster_jackknife(tables[0], tables[1], mean, confidence=confidence, bounds=bounds).interval
    return Interval(found.estimate, found.low, found.high, len(values))


def _verdict(questions: int, agreement: Interval, shift: Interval) -> str:
    if questions < 2 * FEW_CLUSTERS:
        return f"too early: {questions} of {2 * FEW_CLUSTERS} questions shared with others"
    found = [
        words
        for change, less, more in (
            (agreement, "agrees less than at first", "agrees more than at first"),
            (shift, "rates lower than at first", "rates higher than at first"),
        )
        for words in [_direction(change, less, more)]
        if words
    ]
    return ", ".join(found) or "no drift seen"


def _direction(change: Interval, less: str, more: str) -> str:
    if change.low is None or change.high is None:
        return ""
    return less if change.high < 0 else more if change.low > 0 else ""


def _precisions(
    scale: str,
    key: Mapping[str, Any],
    plan: Mapping[str, Sequence[str]],
    cells: Cells,
    clusters: Mapping[str, str],
    wanted: float,
) -> list[Precision]:
    items: Mapping[str, Mapping[str, str]] = key["items"]
    means: dict[str, dict[str, float]] = {arm: {} for arm in key["arms"]}
    topics: dict[str, str] = {}
    for name, item in items.items():
        topics[item["sample"]] = clusters[name]
        if given := cells.get((scale, name)):
            means[item["arm"]][item["sample"]] = fmean(_value(each) for each in given.values())
    baseline = means[key["baseline"]]
    rows_per_question = sum(len(own) for own in plan.values()) / key["samples"]
    found: list[Precision] = []
    for arm, own in means.items():
        if arm == key["baseline"] and len(means) > 1:
            continue
        values = {sample: mean for sample, mean in own.items() if sample in baseline}
        low = 0
        if arm != key["baseline"]:
            values, low = {sample: mean - baseline[sample] for sample, mean in values.items()}, -POINTS
        labels = [topics[sample] for sample in values]
        interval = mean_interval(list(values.values()), labels, bounds=(low, POINTS))
        found.append(_precision(scale, arm, interval, len(set(labels)), wanted, rows_per_question, key["samples"]))
    return found


def _precision(
    scale: str, arm: str, interval: Interval, topics: int, wanted: float, rows_per_question: float, questions: int
) -> Precision:
    if interval.low is None or interval.high is None:
        return Precision(scale, arm, interval.n, None, None, None, None)
    half = (interval.high - interval.low) / 2
    if topics < FEW_CLUSTERS:
        return Precision(scale, arm, interval.n, half, None, None, None)
    needed = math.ceil(size_for_half_width(topics, half, wanted) * interval.n / topics)
    more = math.ceil(max(0, needed - interval.n) * rows_per_question)
    beyond = math.ceil(max(0, needed - questions) * rows_per_question)
    return Precision(scale, arm, interval.n, half, needed, more, beyond)


def _value(rating: Rating) -> int:
    assert rating.value is not None  # `Cells` have no others
    return rating.value
