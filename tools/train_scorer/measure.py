"""The figures of the card as plain functions on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evenhand.core.types import Unscored
from evenhand.scorers.base import ATTRIBUTES

Array = NDArray[np.float64]
TOXIC = 0.5
RESAMPLES = 500


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval, by resampling documents."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


class Scores(Protocol):
    """A scorer that needs no event loop."""

    def score_texts(self, texts: Sequence[str], /) -> Sequence[Mapping[str, float] | Unscored]: ...


def scores_of(scorer: Scores, texts: Sequence[str]) -> Array:
    """One row of seven scores per text; a text that is not scored is a row of NaN."""
    nothing = dict.fromkeys(ATTRIBUTES, float("nan"))
    rated = [nothing if isinstance(found, Unscored) else found for found in scorer.score_texts(texts)]
    return np.array([[scores[attribute] for attribute in ATTRIBUTES] for scores in rated])


def auroc(scores: Array, positive: NDArray[np.bool_]) -> float:
    """The chance that a positive text scores higher than a negative one; ties count half."""
    hits = int(positive.sum())
    misses = len(scores) - hits
    assert hits and misses
    return float((_ranks(scores)[positive].sum() - hits * (hits + 1) / 2) / (hits * misses))


def auroc_interval(
    scores: Array, positive: NDArray[np.bool_], clusters: NDArray[np.int64], minus: Array | None = None
) -> Estimate:
    """AUROC, or its lead over the scores `minus`, with an interval."""

    def value(chosen: NDArray[np.int64] | slice) -> float:
        lead = auroc(scores[chosen], positive[chosen])
        return lead if minus is None else lead - auroc(minus[chosen], positive[chosen])

    random = np.random.default_rng(0)
    order = np.argsort(clusters, kind="stable")
    members = np.split(order, np.unique(clusters[order], return_index=True)[1][1:])
    drawn = [
        value(np.concatenate([members[number] for number in random.integers(len(members), size=len(members))]))
        for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(value(slice(None)), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Bin:
    """Texts whose score lies in one tenth of 0–1: how many, what was predicted, what was true."""

    low: float
    n: int
    predicted: float
    actual: float
    share_toxic: float


def reliability(scores: Array, labels: Array, bins: int = 10) -> list[Bin]:
    place = np.minimum((scores * bins).astype(int), bins - 1)
    return [
        Bin(
            number / bins,
            int(inside.sum()),
            float(scores[inside].mean()),
            float(labels[inside].mean()),
            float((labels[inside] >= TOXIC).mean()),
        )
        for number in range(bins)
        if (inside := place == number).any()
    ]


def calibration_error(scores: Array, labels: Array) -> float:
    """Expected calibration error: the mean distance between score and label over the bins, weighted by their size."""
    table = reliability(scores, labels)
    return sum(row.n * abs(row.predicted - row.actual) for row in table) / sum(row.n for row in table)


def pearson(left: Array, right: Array) -> float:
    return float(np.corrcoef(left, right)[0, 1])


def spearman(left: Array, right: Array) -> float:
    return pearson(_ranks(left), _ranks(right))


def _ranks(values: Array) -> Array:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
