"""Sums by group and cluster, gathered in one pass over the records: all that the statistics need, however many
samples there are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from evenhand.benchmarks.base import Metric
from evenhand.types import Record

Key = tuple[str, str]
"""(metric name, group)."""

ALL = "all"


def _vectors() -> dict[Key, dict[str, NDArray[np.float64]]]:
    return defaultdict(dict)


@dataclass(slots=True)
class Tally:
    """Per metric and group, the sums of each cluster and the number of records."""

    metrics: Sequence[Metric]
    group_key: str
    sums: dict[Key, dict[str, NDArray[np.float64]]] = field(default_factory=_vectors)
    n: Counter[Key] = field(default_factory=Counter[Key])

    def add(self, record: Record) -> None:
        """Count one record in every metric it belongs to, overall and in its group."""
        groups = (ALL, str(record.metadata.get(self.group_key, "")))
        for metric in self.metrics:
            added = metric.count(record)
            if added is not None:
                for group in groups:
                    self.add_sums((metric.name, group), record.cluster, added)

    def add_sums(self, key: Key, cluster: str, added: Sequence[float]) -> None:
        self.n[key] += 1
        clusters = self.sums[key]
        if cluster in clusters:
            clusters[cluster] += added
        else:
            clusters[cluster] = np.array(added, dtype=np.float64)

    def table(self, key: Key) -> NDArray[np.float64]:
        """Clusters × sums, in the order in which the clusters were first seen."""
        return np.array(list(self.sums[key].values()), dtype=np.float64)


@dataclass(slots=True)
class PairTally:
    """The same for two arms, over the samples that count in both: rows are clusters, first before, then after."""

    metrics: Sequence[Metric]
    group_key: str
    before: Tally = field(init=False)
    after: Tally = field(init=False)
    only_before: Counter[Key] = field(default_factory=Counter[Key])
    """Successes of `before` alone (shares only), for McNemar's test."""
    only_after: Counter[Key] = field(default_factory=Counter[Key])

    def __post_init__(self) -> None:
        self.before = Tally(self.metrics, self.group_key)
        self.after = Tally(self.metrics, self.group_key)

    def add(self, before: Record, after: Record) -> None:
        groups = (ALL, str(before.metadata.get(self.group_key, "")))
        for metric in self.metrics:
            first, second = metric.count(before), metric.count(after)
            if first is None or second is None:
                continue
            for group in groups:
                key = (metric.name, group)
                self.before.add_sums(key, before.cluster, first)
                self.after.add_sums(key, after.cluster, second)
                if metric.share:
                    self.only_before[key] += int(first[0] > second[0])
                    self.only_after[key] += int(second[0] > first[0])
