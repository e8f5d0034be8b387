"""The audit of own prompts: which groups get other answers than the rest, beyond chance?

For each measure, a group's answer is compared with the mean of the other groups' answers to the same prompt. If groups
do not matter, the answers to one prompt could be exchanged between the groups. So the test exchanges them at random
within every prompt, with all their measures, and counts how often the mean difference is as large as observed. All
comparisons of an arm form one family. The correction is the step-down maxT of Westfall and Young: a difference must be
larger than the largest of all comparisons is by chance. It keeps the family-wise error at 5 % and, unlike Holm's,
loses little to measures that say the same.

With several repeats there is another family, with one test for each attribute: are answers to the same group more alike
than answers to different groups? It exchanges single answers within every prompt and is corrected by Holm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from evenhand.benchmarks.prompts.findings import (
    ALPHA,
    SIMILARITY,
    TITLES,
    AnsweredPair,
    Chance,
    GroupDifference,
    Identity,
    PromptsAudit,
    Shown,
    by_identity,
    cosine,
    first_answers,
    measured,
    scale_of,
    sentences_of,
    similarities,
)
from evenhand.core.types import Record
from evenhand.stats import Bounds, Interval, holm, mde_from_standard_error, mean_interval

RESAMPLES = 10_000
_ALL_ORDERS = 6
"""Cells of which all orders are listed: 720."""
_ROUNDING = 1e-9
_PAIRS = 8
"""Pairs of answers that are shown side by side."""
_PER_FINDING = 2

Floats = NDArray[np.float64]


def audit(records: Sequence[Record], *, resamples: int = RESAMPLES, seed: int = 0) -> PromptsAudit | None:
    """Return all findings on one arm; None if no prompt was asked for two groups."""
    clusters: dict[str, list[Record]] = {}
    for record in records:
        clusters.setdefault(record.cluster, []).append(record)
    means = [by_identity(each) for each in clusters.values()]
    for values, own in zip(means, clusters.values(), strict=True):
        for identity, alike in similarities(first_answers(own), cosine).items():
            values[identity][SIMILARITY] = alike
    rng = np.random.default_rng(seed)
    tables = tables_of(means)
    differences = compared(tables, resamples, rng)
    if not differences:
        return None
    repeats = round(len(records) / max(1, sum(map(len, means))))
    chance = [
        each
        for attribute in tables
        if repeats > 1 and (each := _chance(attribute, list(clusters.values()), max(200, resamples // 4), rng))
    ]
    corrected = holm([each.p_value for each in chance])
    chance = [replace(each, adjusted=p) for each, p in zip(chance, corrected, strict=True)]
    found = PromptsAudit(len(means), repeats, differences, chance, _pairs(differences, clusters))
    return replace(found, sentences=sentences_of(found))


def compared(tables: Mapping[str, GroupTable], resamples: int, rng: np.random.Generator) -> list[GroupDifference]:
    """Return every group of every table compared with the others, as one family, the smallest p-value first.

    Of equal ones, such as the smallest that can be drawn, the largest comes first, so that who stands out is named.
    """
    observed, p_values, adjusted = tested(tables, resamples, rng)
    differences = [
        _difference(attribute, group, measure, table.values[:, :, column], place)
        for attribute, table in tables.items()
        for place, group in enumerate(table.groups)
        for column, measure in enumerate(table.measures)
    ]
    tests = sum(each is not None for each in p_values)
    ordered = sorted(
        zip(differences, p_values, adjusted, np.nan_to_num(np.abs(observed)).tolist(), strict=True),
        key=lambda each: (1.0 if each[2] is None else each[2], each[1] or 1.0, -each[3]),
    )
    return [
        replace(each, p_value=p, adjusted=corrected, detectable=_detectable(each, tests) if p is not None else None)
        for each, p, corrected, _ in ordered
        if each.difference.n
    ]


@dataclass(frozen=True, slots=True)
class GroupTable:
    """The means of all prompts for one attribute: prompts × groups × measures."""

    groups: Sequence[str]
    measures: Sequence[str]
    values: Floats
    """NaN where a measure is missing."""
    asked: NDArray[np.bool_]
    """Prompts × groups: whether the prompt was asked for the group."""


def tables_of(means: Sequence[Mapping[Identity, Mapping[str, float]]]) -> dict[str, GroupTable]:
    """Return a table for each attribute, of the prompts that were asked for two of its groups or more."""
    identities = dict.fromkeys(identity for each in means for identity in each)
    measures = list(dict.fromkeys(name for each in means for values in each.values() for name in values))
    measures.sort(key=lambda name: list(TITLES).index(name) if name in TITLES else len(TITLES))
    tables: dict[str, GroupTable] = {}
    for attribute in dict.fromkeys(name for name, _ in identities):
        groups = [group for name, group in identities if name == attribute]
        cells = [[each.get((attribute, group)) for group in groups] for each in means]
        cells = [row for row in cells if sum(cell is not None for cell in row) > 1]
        values = [[[math.nan if c is None else c.get(m, math.nan) for m in measures] for c in row] for row in cells]
        if cells and measures:
            asked = np.array([[cell is not None for cell in row] for row in cells])
            tables[attribute] = GroupTable(groups, measures, np.array(values, dtype=np.float64), asked)
    return tables


def tested(
    tables: Mapping[str, GroupTable], resamples: int, rng: np.random.Generator
) -> tuple[Floats, list[float | None], list[float | None]]:
    """Return what is tested, and p-values, alone and corrected for all, in the order of the tables."""
    both = [exchanged(table.values, table.asked, resamples, rng) for table in tables.values()]
    if not both:
        return np.zeros(0), [], []
    observed = np.concatenate([each.ravel() for each, _ in both])
    return observed, *step_down(observed, np.concatenate([each.reshape(resamples, -1) for _, each in both], axis=1))


def deviations(table: Floats) -> Floats:
    """Return each cell minus the mean of the other groups (axis 1) of its prompt (axis 0); NaN where one is missing.

    With n cells of sum S this is (n·x − S) / (n − 1), so exchanging cells of a prompt exchanges deviations.
    """
    present = np.isfinite(table)
    n = present.sum(axis=1, keepdims=True)
    total = np.where(present, table, 0.0).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(present & (n > 1), (n * table - total) / (n - 1), math.nan)


def exchanged(
    table: Floats, asked: NDArray[np.bool_], resamples: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return the mean deviations by group and measure, as observed and after exchanging answers within prompts.

    `table` has prompts × groups × measures; answers move only between groups that were `asked`, with all their measures
    and with what is missing of them. Both results are divided by the spread of the second; NaN where there is none.
    """
    found = deviations(table)
    present = np.isfinite(found).astype(np.float64)
    values = np.where(present > 0, found, 0.0)
    sums = np.zeros((resamples, *table.shape[1:]))
    counts = np.zeros_like(sums)
    for row, here, groups in zip(values, present, asked, strict=True):
        columns = np.flatnonzero(groups)
        orders = _orders(len(columns))
        chosen = rng.integers(len(orders), size=resamples)
        sums[:, columns] += row[columns][orders][chosen]
        counts[:, columns] += here[columns][orders][chosen]
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = values.sum(axis=0) / present.sum(axis=0)
        drawn = np.where(counts > 0, sums / counts, 0.0)
        spread = np.sqrt(np.square(drawn).mean(axis=0))
        spread = np.where(spread > _ROUNDING, spread, math.nan)
        return observed / spread, drawn / spread


def step_down(observed: Floats, drawn: Floats) -> tuple[list[float | None], list[float | None]]:
    """Return two-sided p-values, alone and corrected by maxT for all columns; None for a column without spread."""
    known = np.flatnonzero(np.isfinite(observed))
    size, sizes = np.abs(observed[known]) - _ROUNDING, np.abs(drawn[:, known])
    n = len(drawn) + 1
    alone: list[float | None] = [None] * len(observed)
    corrected: list[float | None] = [None] * len(observed)
    largest = np.zeros(len(drawn))
    by_size = np.argsort(size)  # the smallest first: a hypothesis competes with those that are not larger
    step: dict[int, float] = {}
    for column in by_size.tolist():
        largest = np.maximum(largest, sizes[:, column])
        step[column] = float((int((largest >= size[column]).sum()) + 1) / n)
        alone[int(known[column])] = float((int((sizes[:, column] >= size[column]).sum()) + 1) / n)
    highest = 0.0
    for column in by_size[::-1].tolist():
        highest = max(highest, step[column])
        corrected[int(known[column])] = highest
    return alone, corrected


@cache
def _orders(size: int) -> NDArray[np.int64]:
    """Return all orders of `size` cells, or a random choice of them where there are too many."""
    if size <= _ALL_ORDERS:
        return np.array(list(permutations(range(size))), dtype=np.int64)
    return np.random.default_rng(size).permuted(np.tile(np.arange(size), (10_000, 1)), axis=1)


def _difference(attribute: str, group: str, measure: str, table: Floats, place: int) -> GroupDifference:
    """Return the group of the column `place` compared with the others, not yet tested."""
    found = deviations(table)[:, place]
    kept = np.isfinite(found)
    if not kept.any():
        return GroupDifference(attribute, group, measure, math.nan, math.nan, Interval(), None)
    own, apart = table[kept, place], found[kept]
    interval = mean_interval(apart, bounds=_bounds(measure, table))
    return GroupDifference(attribute, group, measure, float(own.mean()), float((own - apart).mean()), interval, None)


def _bounds(measure: str, table: Floats) -> Bounds | None:
    inside = scale_of(measure) != 1 and bool(np.nanmin(table) >= 0) and bool(np.nanmax(table) <= 1)
    return (-1.0, 1.0) if inside else None


def _detectable(each: GroupDifference, tests: int) -> float | None:
    low, high, n = each.difference.low, each.difference.high, each.difference.n
    if low is None or high is None or n < 3:
        return None
    error = (high - low) / 2 / 1.96
    return mde_from_standard_error(error, alpha=ALPHA / max(1, tests), df=n - 1)


def _chance(
    attribute: str, clusters: Sequence[Sequence[Record]], resamples: int, rng: np.random.Generator
) -> Chance | None:
    """Compare the similarity within groups and between groups, over all pairs of answers to one prompt."""
    same: list[float] = []
    different: list[float] = []
    drawn = np.zeros(resamples)
    for records in clusters:
        kept = [each for each in records if each.metadata["attribute"] == attribute and each.grade is not None]
        groups = [each.metadata["group"] for each in kept]
        if len(set(groups)) < 2 or len(kept) <= len(set(groups)):
            continue
        alike = _similarities([each.grade["words"] for each in kept if each.grade is not None])
        labels = np.array([list(dict.fromkeys(groups)).index(group) for group in groups])
        within, between = _contrast(alike, labels[np.newaxis])
        same.append(float(within[0]))
        different.append(float(between[0]))
        shuffled = _contrast(alike, rng.permuted(np.tile(labels, (resamples, 1)), axis=1))
        drawn += shuffled[0] - shuffled[1]
    if not same:
        return None
    observed = float(np.sum(same) - np.sum(different))
    extreme = int((drawn >= observed - _ROUNDING * len(same)).sum())
    p_value = (extreme + 1) / (resamples + 1)
    return Chance(attribute, float(np.mean(same)), float(np.mean(different)), len(same), p_value)


def _similarities(texts: Sequence[Sequence[int]]) -> Floats:
    size = len(texts)
    alike = np.eye(size)
    for i in range(size):
        for j in range(i):
            alike[i, j] = alike[j, i] = cosine(texts[i], texts[j]) or 0.0
    return alike


def _contrast(alike: Floats, labels: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the mean similarity within groups and between them, for each row of labels."""
    rows, columns = np.triu_indices(len(alike), k=1)
    together = labels[:, rows] == labels[:, columns]
    values = alike[rows, columns]
    n = together.sum(axis=1)
    return (together @ values) / n, (~together @ values) / (len(rows) - n)


def _pairs(differences: Sequence[GroupDifference], clusters: Mapping[str, Sequence[Record]]) -> list[AnsweredPair]:
    """Choose the pairs to show: of every difference found the clearest, else those that are least alike."""
    pairs: list[AnsweredPair] = []
    for each in [each for each in differences if each.found]:
        candidates = [pair for records in clusters.values() if (pair := _clearest(each, records))]
        candidates.sort(key=lambda pair: -abs(pair[0]))
        shown = {(pair.one.asked, pair.two.asked) for pair in pairs}
        new = [pair for _, pair in candidates if (pair.one.asked, pair.two.asked) not in shown]
        pairs += new[:_PER_FINDING]
    if not pairs:
        candidates = [pair for records in clusters.values() for pair in _unlike(records)]
        candidates.sort(key=lambda pair: pair[0])
        pairs = [pair for _, pair in candidates]
    return pairs[:_PAIRS]


def _clearest(each: GroupDifference, records: Sequence[Record]) -> tuple[float, AnsweredPair] | None:
    """Return the group's answer beside the one that differs most from it in the direction of the difference."""
    sign = math.copysign(1.0, each.difference.estimate or 0.0)
    known = [
        (record, value)
        for record in records
        if record.metadata["attribute"] == each.attribute and (value := measured(record).get(each.measure)) is not None
    ]
    own = [pair for pair in known if pair[0].metadata["group"] == each.group]
    others = [pair for pair in known if pair[0].metadata["group"] != each.group]
    if not own or not others:
        return None
    one = max(own, key=lambda pair: sign * pair[1])
    two = min(others, key=lambda pair: sign * pair[1])
    title = TITLES.get(each.measure, each.measure)
    size = sign * (one[1] - two[1])
    return (size, AnsweredPair(each.attribute, title, _shown(one[0]), _shown(two[0]))) if size > 0 else None


def _unlike(records: Sequence[Record]) -> list[tuple[float, AnsweredPair]]:
    first: dict[tuple[str, str], Record] = {}
    for record in records:
        if record.grade is not None:
            first.setdefault((record.metadata["attribute"], record.metadata["group"]), record)
    found: list[tuple[float, AnsweredPair]] = []
    for attribute in dict.fromkeys(name for name, _ in first):
        own = [record for (name, _), record in first.items() if name == attribute]
        alike = [
            (value, AnsweredPair(attribute, "Least alike", _shown(one), _shown(two)))
            for place, one in enumerate(own)
            for two in own[place + 1 :]
            if (value := cosine(_words(one), _words(two))) is not None
        ]
        found += sorted(alike, key=lambda pair: pair[0])[:1]
    return found


def _words(record: Record) -> Sequence[int]:
    return () if record.grade is None else record.grade["words"]


def _shown(record: Record) -> Shown:
    answer = None if record.grade is None else str(record.grade["answer"][0])
    return Shown(record.metadata["group"], record.metadata["asked"], answer, measured(record))
