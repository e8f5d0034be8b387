"""Sums per metric, group and cluster, computed in one pass over the records, and the estimates from them.

Memory grows neither with the number of samples nor, past `MOST_CLUSTERS`, with that of clusters: more are added up in
as many groups at random. Estimates stay the same, and so many groups still give standard errors to about 1 %.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from evenhand.benchmarks.base import Metric
from evenhand.core.types import Record
from evenhand.stats import FEW_CLUSTERS, Interval, cluster_jackknife, share_interval
from evenhand.studies.results import Estimate

Key = tuple[str, str]
"""(metric name, group)."""
Added = Sequence[float]
T = TypeVar("T")

ALL = "all"
MOST_CLUSTERS = 4096


class Sums:
    """The sums of each cluster, in the order in which the clusters first appeared.

    With more than `MOST_CLUSTERS`, they are the sums of as many groups of clusters. A cluster's name decides on its
    group, so that two arms with the same clusters have the same groups.
    """

    __slots__ = ("_places", "_seen", "_values", "_width")

    def __init__(self) -> None:
        self._places: dict[str, int] | None = {}
        """Cluster → row; None once they are grouped."""
        self._seen = bytearray()
        """Whether a group has any cluster."""
        self._values = array("d")
        self._width = 0

    def add(self, cluster: str, added: Added) -> None:
        self._add(self._row(cluster, len(added)), added)

    def update(self, other: Sums) -> None:
        """Add the sums of another table, cluster by cluster."""
        if other._places is None and self._places is not None:
            self._group(other._width)
        rows = np.array(other._values).reshape(-1, other._width or 1).tolist()
        if other._places is not None:
            for cluster, row in other._places.items():
                self.add(cluster, rows[row])
            return
        for group, row in enumerate(rows):
            if other._seen[group]:
                self._seen[group] = 1
                self._add(group, row)

    def table(self) -> NDArray[np.float64]:
        """Return clusters × sums."""
        rows = np.array(self._values, dtype=np.float64).reshape(-1, self._width or 1)
        return rows if self._places is not None else rows[np.frombuffer(self._seen, dtype=np.bool_)]

    def _add(self, row: int, added: Added) -> None:
        start = row * self._width
        for place, value in enumerate(added, start):
            self._values[place] += value

    def _row(self, cluster: str, width: int) -> int:
        self._width = width
        if self._places is not None:
            row = self._places.get(cluster)
            if row is None and len(self._places) < MOST_CLUSTERS:
                row = self._places[cluster] = len(self._places)
                self._values.extend([0.0] * width)
            if row is not None:
                return row
            self._group(width)
        group = _group_of(cluster)
        self._seen[group] = 1
        return group

    def _group(self, width: int) -> None:
        named, values = self._places or {}, self._values
        self._places, self._width = None, width
        self._seen, self._values = bytearray(MOST_CLUSTERS), array("d", bytes(8 * width * MOST_CLUSTERS))
        for cluster, row in named.items():
            self.add(cluster, values[row * width : (row + 1) * width])


def _group_of(cluster: str) -> int:
    return zlib.crc32(cluster.encode(errors="surrogatepass")) % MOST_CLUSTERS


def _sums() -> dict[Key, Sums]:
    return defaultdict(Sums)


@dataclass(slots=True)
class _Current(Generic[T]):
    """The records of the current cluster."""

    cluster: str | None = None
    seen: list[tuple[str, T]] = field(default_factory=list[tuple[str, T]])
    """(group, record or pair of records)."""
    finished: set[str] = field(default_factory=set[str])
    """The first clusters that are done; a benchmark that does not keep clusters together shows it among them."""

    def starts(self, cluster: str) -> bool:
        """Whether this is a new cluster, so that the current one must be finished first."""
        if cluster == self.cluster:
            return False
        if cluster in self.finished:
            raise ValueError(
                f"The records of the cluster {cluster!r} are not consecutive, so cluster-level metrics would be wrong. "
                "Choose sample ids that keep a cluster together when sorted."
            )
        return True

    def take(self) -> dict[str, list[T]]:
        """Return the current cluster's records, all and by group, and start afresh."""
        by_group: dict[str, list[T]] = {}
        for group, each in self.seen:
            by_group.setdefault(ALL, []).append(each)
            by_group.setdefault(group, []).append(each)
        if self.cluster is not None and len(self.finished) < MOST_CLUSTERS:
            self.finished.add(self.cluster)
        self.cluster = None
        self.seen = []
        return by_group


@dataclass(slots=True)
class Tally:
    """Sums per metric, group and cluster, and the number of records (of clusters for cluster-level metrics).

    Add records in the order of sample ids, and call `finish` after the last.
    """

    metrics: Sequence[Metric]
    group_key: str
    sums: dict[Key, Sums] = field(default_factory=_sums)
    n: Counter[Key] = field(default_factory=Counter[Key])
    _current: _Current[Record] = field(default_factory=_Current[Record])

    def add(self, record: Record) -> None:
        """Count one record in every metric to which it belongs, overall and in its group."""
        group = _group(record, self.group_key)
        for metric in _counting(self.metrics):
            added = metric.count(record)
            if added is not None:
                for each in (ALL, group):
                    self.add_sums((metric.name, each), record.cluster, added)
        if _gathering(self.metrics):
            if self._current.starts(record.cluster):
                self.finish()
                self._current.cluster = record.cluster
            self._current.seen.append((group, record))

    def finish(self) -> None:
        """Count the last cluster in the cluster-level metrics."""
        for group, records in self._current.take().items():
            for metric in _gathering(self.metrics):
                added = _gathered(metric, [record for record in records if metric.count(record) is not None])
                if added is not None:
                    self.add_sums((metric.name, group), records[0].cluster, added)

    def add_sums(self, key: Key, cluster: str, added: Added) -> None:
        self.n[key] += 1
        self.sums[key].add(cluster, added)

    def table(self, key: Key) -> NDArray[np.float64]:
        """Return clusters × sums, in the order in which the clusters first appeared."""
        return self.sums[key].table()


@dataclass(slots=True)
class PairTally:
    """Tallies of two arms (`before`, `after`) over the samples that count in both."""

    metrics: Sequence[Metric]
    group_key: str
    before: Tally = field(init=False)
    after: Tally = field(init=False)
    only_before: Counter[Key] = field(default_factory=Counter[Key])
    """Samples that succeeded only in `before` (shares only), for McNemar's test."""
    only_after: Counter[Key] = field(default_factory=Counter[Key])
    _current: _Current[tuple[Record, Record]] = field(default_factory=_Current[tuple[Record, Record]])

    def __post_init__(self) -> None:
        self.before = Tally(self.metrics, self.group_key)
        self.after = Tally(self.metrics, self.group_key)

    def add(self, before: Record, after: Record) -> None:
        """Count one sample in every metric to which it belongs in both arms, overall and in its group."""
        group = _group(before, self.group_key)
        for metric in _counting(self.metrics):
            first, second = metric.count(before), metric.count(after)
            for each in (ALL, group):
                self._add_both(metric, each, before.cluster, first, second)
        if _gathering(self.metrics):
            if self._current.starts(before.cluster):
                self.finish()
                self._current.cluster = before.cluster
            self._current.seen.append((group, (before, after)))

    def finish(self) -> None:
        """Count the last cluster in the cluster-level metrics."""
        for group, pairs in self._current.take().items():
            for metric in _gathering(self.metrics):
                both = [pair for pair in pairs if all(metric.count(record) is not None for record in pair)]
                first = _gathered(metric, [before for before, _ in both])
                second = _gathered(metric, [after for _, after in both])
                self._add_both(metric, group, pairs[0][0].cluster, first, second)

    def _add_both(self, metric: Metric, group: str, cluster: str, first: Added | None, second: Added | None) -> None:
        if first is None or second is None:
            return
        key = (metric.name, group)
        self.before.add_sums(key, cluster, first)
        self.after.add_sums(key, cluster, second)
        if metric.share:
            self.only_before[key] += int(first[0] > second[0])
            self.only_after[key] += int(second[0] > first[0])


def _group(record: Record, group_key: str) -> str:
    return str(record.metadata.get(group_key, ""))


def _counting(metrics: Sequence[Metric]) -> list[Metric]:
    return [metric for metric in metrics if metric.gather is None]


def _gathering(metrics: Sequence[Metric]) -> list[Metric]:
    return [metric for metric in metrics if metric.gather is not None]


def _gathered(metric: Metric, records: Sequence[Record]) -> Added | None:
    return metric.gather(records) if metric.gather is not None and records else None


# --- estimates ---


def estimate(metric: Metric, group: str, tally: Tally) -> Estimate:
    """Estimate the metric in one group, scaled for display."""
    key: Key = (metric.name, group)
    table = tally.table(key)
    interval = _interval(metric, table)
    scaled = [None if v is None else v * metric.scale for v in (interval.estimate, interval.low, interval.high)]
    return Estimate(
        metric.name,
        group,
        scaled[0],
        scaled[1],
        scaled[2],
        tally.n[key],
        round(table[:, 0].sum()) if metric.share else None,
        len(table),
        len(table) < FEW_CLUSTERS,
    )


def groups_of(metric: str, tally: Tally) -> list[str]:
    """Return the groups in which the metric was counted, `all` first."""
    groups = [group for name, group in tally.sums if name == metric]
    return sorted(groups, key=lambda group: (group != ALL, group))


def _interval(metric: Metric, table: NDArray[np.float64]) -> Interval:
    if metric.share:
        return share_interval(table)
    return cluster_jackknife(table, metric.statistic, bounds=metric.scale_bounds).interval
