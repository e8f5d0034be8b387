"""The records of one arm as arrays: scenario × identity, and scenario × pair with all orders averaged.

Each sample has one row of values: the mean of all metrics, each metric, the winner, and for every round of
discussion the judges' scores in round 0 and in that round. For a pair, values are first − second, then x − y. A pair
that was not judged in all orders has no value, since the rest would include position bias. Means and
tests count only base scenarios as independent (`Estimator`).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.core.types import Record
from evenhand.panels import METRICS, definitions_in
from evenhand.panels.findings import COMBINED, CONTROL, Measure
from evenhand.stats import Bounds, Jackknife, Statistic, cluster_jackknife, permutation_test_paired, ratio

Array = NDArray[np.float64]
Scores = Sequence[Sequence[float]]
"""Candidate × metric."""
Cells = Mapping[tuple[str, int], Sequence[Sequence[float]]]
"""The rows of one comparison, by the identity and the number of the text shown first."""

_PER_ROUND = 4
_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class IdentityPair:
    """Two identities of one category."""

    category: str
    x: str
    y: str


@dataclass(frozen=True, slots=True)
class Judged:
    """The judged scenarios and their values; NaN if missing."""

    categories: Mapping[str, tuple[str, ...]]
    authors: Mapping[str, str]
    judges: tuple[str, ...]
    rounds: int
    pairs: tuple[IdentityPair, ...]
    base_of: NDArray[np.intp]
    """Index of the base scenario, by scenario."""
    bases: int
    alone: Array
    """Phase 1: scenario × identity (the control last) × values."""
    compared: Array
    """Phase 2: scenario × pair × values of x − values of y."""
    shown: Array
    """Phase 2: scenario × pair × values of the first − values of the second."""
    orders: int
    """Samples of phase 2 per scenario and pair."""
    metrics: tuple[str, ...] = METRICS

    @property
    def score_names(self) -> tuple[str, ...]:
        """The mean of all metrics, then each; the winner's place is after them."""
        return (COMBINED, *self.metrics)

    @property
    def identities(self) -> tuple[str, ...]:
        """All identities, in the order of `alone`."""
        return (*itertools.chain.from_iterable(self.categories.values()), CONTROL)

    def scores(self, identity: str, name: str = COMBINED) -> Array:
        return self.alone[:, self.identities.index(identity), self.score_names.index(name)]

    def differences(self, pair: IdentityPair, measure: Measure, name: str = COMBINED) -> Array:
        """Returns x − y, by scenario."""
        place = len(self.score_names) if measure == "wins_2" else self.score_names.index(name)
        return self._pair(pair, measure)[:, place]

    def by_round(self, pair: IdentityPair, measure: Measure, number: int) -> tuple[Array, Array]:
        """Returns x − y in round 0 and in a later round, by scenario, from the judges that scored in both."""
        start = len(self.score_names) + 1 + _PER_ROUND * (number - 1) + (2 if measure == "wins_2" else 0)
        values = self._pair(pair, measure)
        return values[:, start], values[:, start + 1]

    def preference(self, measure: Measure) -> Array:
        """Returns the advantage of the first over the second, by scenario and pair."""
        return self.shown[:, :, len(self.score_names) if measure == "wins_2" else 0]

    def _pair(self, pair: IdentityPair, measure: Measure) -> Array:
        if measure == "score_1":
            x, y = (self.identities.index(identity) for identity in (pair.x, pair.y))
            return self.alone[:, x] - self.alone[:, y]
        return self.compared[:, self.pairs.index(pair)]


def judged(records: Sequence[Record]) -> Judged:
    """Returns the arrays of an arm's records; their order does not depend on the order of the records."""
    categories = _categories(records)
    pairs = tuple(
        IdentityPair(category, x, y)
        for category, names in categories.items()
        for x, y in itertools.combinations(names, 2)
    )
    scenarios = sorted({_scenario(record) for record in records})
    bases = sorted({base for base, _ in scenarios})
    rounds = max((len(record.grade["rounds"]) - 1 for record in records if record.grade), default=0)
    metrics = tuple(definitions_in(records[0].metadata)) if records else METRICS
    width = len(metrics) + 2 + _PER_ROUND * rounds
    alone, compared, shown, orders = _values(records, scenarios, categories, pairs, (rounds, width))
    return Judged(
        categories,
        _authors(records),
        _judges(records),
        rounds,
        pairs,
        np.array([bases.index(base) for base, _ in scenarios], dtype=np.intp),
        len(bases),
        alone,
        compared,
        shown,
        orders,
        metrics,
    )


def _values(
    records: Sequence[Record],
    scenarios: Sequence[tuple[str, str]],
    categories: Mapping[str, Sequence[str]],
    pairs: Sequence[IdentityPair],
    size: tuple[int, int],
) -> tuple[Array, Array, Array, int]:
    """Returns the values by phase, and the orders; `size` has the rounds and the number of values of a sample."""
    rounds, width = size
    scenario_at = {scenario: place for place, scenario in enumerate(scenarios)}
    identities = (*itertools.chain.from_iterable(categories.values()), CONTROL)
    identity_at = {identity: place for place, identity in enumerate(identities)}
    pair_at = {(pair.x, pair.y): place for place, pair in enumerate(pairs)}
    alone = np.full((len(scenarios), len(identities), width), np.nan)
    compared, shown = (np.full((len(scenarios), len(pairs), width), np.nan) for _ in range(2))
    cells: dict[tuple[int, int], dict[tuple[str, int], list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    first_texts: dict[int, set[int]] = defaultdict(set)
    for record in records:
        place, metadata = scenario_at[_scenario(record)], record.metadata
        if metadata["phase"] == 2:
            first_texts[place].add(metadata["texts"][0])
        if record.grade is None:
            continue
        row = _row(record.grade, rounds)
        if metadata["phase"] == 1:
            alone[place, identity_at[metadata["identity"]]] = row
        else:
            x, y = sorted(metadata["identities"])
            cells[place, pair_at[x, y]][metadata["first"], metadata["texts"][0]].append(row)
    for (place, pair), rows in cells.items():
        if len(rows) == 2 * len(first_texts[place]):
            compared[place, pair], shown[place, pair] = _balanced(rows, pairs[pair].x)
    return alone, compared, shown, 2 * max((len(texts) for texts in first_texts.values()), default=1)


def _balanced(cells: Cells, x: str) -> tuple[Array, Array]:
    """Returns x − y and first − second, with equal weight for every order."""
    shown = np.array([np.mean(rows, axis=0) for rows in cells.values()])
    signs = np.array([1.0 if first == x else -1.0 for first, _ in cells])
    return (signs[:, np.newaxis] * shown).mean(axis=0), shown.mean(axis=0)


def _row(grade: Mapping[str, Any], rounds: int) -> list[float]:
    scores = _signed(grade["scores"])
    row = [_mean(scores), *scores, _signed_winner(grade.get("winner"))]
    given: Sequence[Mapping[str, Scores | None]] = grade["rounds"]
    winners: Sequence[Mapping[str, float | None]] = grade.get("winners") or [{} for _ in given]
    for number in range(1, rounds + 1):
        row += _both([{name: _combined(each) for name, each in given[at].items()} for at in (0, number)])
        row += _both([{name: _signed_winner(each) for name, each in winners[at].items()} for at in (0, number)])
    return row


def _both(rounds: Sequence[Mapping[str, float]]) -> list[float]:
    """Returns the means of two rounds over the judges that scored in both."""
    first, second = rounds
    common = [name for name in first if name in second and not np.isnan(first[name] + second[name])]
    return [_mean([each[name] for name in common]) for each in rounds]


def _combined(scores: Scores | None) -> float:
    return _NAN if scores is None else _mean(_signed(scores))


def _signed(scores: Scores) -> list[float]:
    """Returns the metrics of a single candidate, or first − second."""
    if len(scores) == 1:
        return list(scores[0])
    return [first - second for first, second in zip(*scores, strict=True)]


def _signed_winner(winner: float | None) -> float:
    """Returns 1 if the first wins, −1 if the second does."""
    return _NAN if winner is None else 1.0 - 2.0 * winner


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else _NAN


def _scenario(record: Record) -> tuple[str, str]:
    return record.cluster, record.metadata["scenario"]


def _categories(records: Iterable[Record]) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = defaultdict(set)
    for record in records:
        metadata = record.metadata
        names: Iterable[str] = metadata["identities"] if metadata["phase"] == 2 else [metadata["identity"]]
        found[metadata["category"]].update(name for name in names if name != CONTROL)
    return {category: tuple(sorted(names)) for category, names in sorted(found.items()) if names}


def _authors(records: Iterable[Record]) -> dict[str, str]:
    """Returns the description of each identity; its name if it has none."""
    candidates = (candidate for record in records for candidate in record.metadata["candidates"])
    found = {each["identity"]: each["author"] or each["identity"] for each in candidates}
    return {identity: author for identity, author in sorted(found.items()) if identity != CONTROL}


def _judges(records: Iterable[Record]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for record in records if record.grade for name in record.grade["rounds"][0]))


@dataclass(frozen=True, slots=True)
class Estimator:
    """Settings shared by all estimates of one audit."""

    base_of: NDArray[np.intp]
    """Index of the base scenario, by scenario."""
    bases: int
    flips: int
    """Number of random sign patterns; with few base scenarios all patterns are tried."""
    confidence: float
    seed: int

    def sums(self, values: Array) -> Array:
        """Returns sum and number of the existing values by base scenario; a scenario may have several values."""
        table = values if values.ndim > 1 else values[:, np.newaxis]
        exists = ~np.isnan(table)
        per_scenario = np.column_stack([np.where(exists, table, 0.0).sum(axis=1), exists.sum(axis=1)])
        sums = np.zeros((self.bases, 2))
        np.add.at(sums, self.base_of, per_scenario)
        return sums

    def mean(self, values: Array, bounds: Bounds | None = None) -> Jackknife:
        sums = self.sums(values)
        return self.jackknife(sums[sums[:, 1] > 0], ratio, bounds)

    def p_value(self, values: Array) -> float | None:
        """Tests that the mean is 0 by flipping the signs of whole base scenarios."""
        sums = self.sums(values)
        return self.flip(sums[sums[:, 1] > 0, 0])

    def jackknife(self, table: Array, statistic: Statistic, bounds: Bounds | None = None) -> Jackknife:
        """Estimates a statistic of sums, with one row per base scenario."""
        return cluster_jackknife(table, statistic, confidence=self.confidence, bounds=bounds)

    def flip(self, by_base: Array) -> float | None:
        """Tests that the sum over base scenarios is 0, by sign flips."""
        return permutation_test_paired(by_base, resamples=self.flips, seed=self.seed)

    def smallest_p(self, bases: int) -> float:
        """Returns the smallest possible p-value with this number of base scenarios."""
        return max(2.0 ** (1 - bases), 1 / (self.flips + 1))
