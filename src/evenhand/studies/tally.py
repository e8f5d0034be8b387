"""Sums per metric, group and cluster, computed in one pass over the records, and the estimates from them.

What is counted of records waits until numpy adds up many at once, in their order, so that the sums are those of a loop.

Memory grows neither with the number of samples nor, past `MOST_CLUSTERS`, with that of clusters: more are added up in
as many groups at random. Estimates stay the same, and so many groups still give standard errors to about 1 %.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, compress, repeat
from operator import is_not
from typing import Any, Generic, TypeVar, cast

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
AT_ONCE = 4096
"""Records that are added up at once."""


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

    def add_many(self, names: Sequence[str], places: NDArray[np.intp], values: NDArray[np.float64]) -> None:
        """Add rows of values in their order; `places` are those of their clusters among the names, as first seen."""
        if (known := self._places) is not None:
            new = [place for place, name in enumerate(names) if name not in known]
            if len(known) + len(new) > MOST_CLUSTERS:  # from the first cluster on for which there is no row
                last = new[MOST_CLUSTERS - len(known)]
                start = int(np.argmax(places == last))
                if start:
                    self.add_many(names[:last], places[:start], values[:start])
                self._group(values.shape[1])
                self.add_many(*_as_seen(names, places[start:]), values[start:])
                return
        rows = self._rows(names, values.shape[1])
        cells = rows[places][:, np.newaxis] * self._width + np.arange(self._width)
        np.add.at(np.frombuffer(self._values), cells.ravel(), values.ravel())

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

    def _rows(self, clusters: Sequence[str], width: int) -> NDArray[np.intp]:
        if self._places is not None:
            return np.array([self._row(cluster, width) for cluster in clusters], dtype=np.intp)
        groups = np.fromiter(map(_group_of, clusters), dtype=np.intp, count=len(clusters))
        np.frombuffer(self._seen, dtype=np.uint8)[groups] = 1
        return groups

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


@lru_cache(maxsize=4 * AT_ONCE)
def _group_of(cluster: str) -> int:
    return zlib.crc32(cluster.encode(errors="surrogatepass")) % MOST_CLUSTERS


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

    def take(self) -> list[tuple[tuple[str, ...], list[T]]]:
        """Return the current cluster's records, all and by group, with the groups they stand for; and start afresh."""
        by_group: dict[str, list[T]] = {}
        for group, each in self.seen:
            by_group.setdefault(group, []).append(each)
        found: list[tuple[tuple[str, ...], list[T]]] = [((group,), some) for group, some in by_group.items()]
        if len(found) == 1:  # all are of one group
            found = [((ALL, *by_group), found[0][1])]
        elif found:
            found.insert(0, ((ALL,), [each for _, each in self.seen]))
        if self.cluster is not None and len(self.finished) < MOST_CLUSTERS:
            self.finished.add(self.cluster)
        self.cluster = None
        self.seen = []
        return found


class _Counted:
    """The records of one arm that are not added up yet, and what metrics count of them."""

    __slots__ = ("_counts", "_records", "_tables")

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._counts = [metric.count for metric in metrics]
        self._records: list[Record] = []
        self._tables: list[_Column] = []

    def add(self, record: Record) -> int:
        """Keep a record; return its place."""
        self._records.append(record)
        return len(self._records) - 1

    def tables(self) -> list[_Column]:
        """Return the columns of all metrics; they are made once for an arm and its pairs."""
        self._tables = self._tables or [_column(list(map(count, self._records))) for count in self._counts]
        return self._tables


_Column = tuple[NDArray[np.bool_], NDArray[np.float64]]
"""Of one metric: which records count, and a row for each that does."""


def _column(values: Sequence[Added | None]) -> _Column:
    kept = np.fromiter(map(is_not, values, repeat(None)), dtype=np.bool_, count=len(values))
    number = int(kept.sum())
    added = cast("Iterable[Added]", values if number == len(values) else compress(values, kept))
    return kept, np.fromiter(chain.from_iterable(added), dtype=np.float64).reshape(number, -1 if number else 0)


def _chosen(column: _Column, places: Sequence[int]) -> _Column:
    kept, table = column
    rows = np.array(places, dtype=np.intp)
    if len(rows) == len(kept) and np.array_equal(rows, np.arange(len(kept))):
        return column
    present = kept[rows]
    return present, table[(np.cumsum(kept) - 1)[rows[present]]]


_Coded = tuple[list[str], NDArray[np.intp]]
_Part = tuple[str, Any, Sequence[str], NDArray[np.intp]]
"""A group, its rows, the names of their clusters and the place of each row among these."""


def _parts(clusters: _Coded, groups: _Coded, kept: NDArray[np.bool_]) -> Iterator[_Part]:
    """Yield the parts of the kept records: all, and those of each group."""
    own, codes = groups[1][kept], clusters[1][kept]
    yield ALL, slice(None), *_as_seen(clusters[0], codes)
    for group in np.unique(own):
        rows = own == group
        yield groups[0][group], rows, *_as_seen(clusters[0], codes[rows])


def _as_seen(names: Sequence[str], codes: NDArray[np.intp]) -> _Coded:
    """Return those names that the codes are of, as they first appear, and the place of each code among them."""
    present, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    seen: list[int] = present[order].tolist()
    return [names[code] for code in seen], np.argsort(order)[inverse]


def _coded(names: Sequence[str]) -> _Coded:
    """Return the distinct names, and the place of each name among them."""
    places: dict[str, int] = {}
    codes = np.array([places.setdefault(name, len(places)) for name in names], dtype=np.intp)
    return list(places), codes


_Rows = tuple[Metric, str, Sequence[str], NDArray[np.intp], list[NDArray[np.float64]]]
"""A metric, a group, the names of clusters, the place of each row among these, and the rows of each arm."""


class _Adding(ABC, Generic[T]):
    """Records, or pairs of them, that wait to be added up: by many at once, and by whole clusters."""

    def __init__(self, metrics: Sequence[Metric], group_key: str) -> None:
        self.metrics, self.group_key = metrics, group_key
        self.counting = [metric for metric in metrics if metric.gather is None]
        self.gathering = [metric for metric in metrics if metric.gather is not None]
        self.selecting = {metric.count for metric in self.gathering}
        self._clusters: list[str] = []
        self._groups: list[str] = []
        """Of the records that wait."""
        self._current = _Current[T]()

    def _keep(self, record: Record, each: T) -> None:
        group = str(record.metadata.get(self.group_key, ""))
        self._clusters.append(record.cluster)
        self._groups.append(group)
        if self.gathering:
            if self._current.starts(record.cluster):
                self._gather()
                self._current.cluster = record.cluster
            self._current.seen.append((group, each))

    def _add_up_many(self) -> None:
        if len(self._clusters) >= AT_ONCE:
            self.add_up()

    def _taken(self, arms: Sequence[_Counted], chosen: Sequence[Sequence[int]] | None = None) -> Iterator[_Rows]:
        """Yield what waits by metric and group, where it counts in all arms, and start afresh.

        `chosen` are the places of the records in each arm, if they are not all.
        """
        clusters, groups = _coded(self._clusters), _coded(self._groups)
        parts: dict[bytes, list[_Part]] = {}
        """Groups of rows, by the records that count; in most metrics all do."""
        for metric, *whole in zip(self.counting, *(arm.tables() for arm in arms), strict=True):
            columns = whole if chosen is None else list(map(_chosen, whole, chosen))
            kept = np.logical_and.reduce([present for present, _ in columns])
            if not kept.any():
                continue
            tables = [table[kept[present]] for present, table in columns]
            if (key := kept.tobytes()) not in parts:
                parts[key] = list(_parts(clusters, groups, kept))
            for group, rows, names, places in parts[key]:
                yield metric, group, names, places, [table[rows] for table in tables]
        self._clusters, self._groups = [], []

    def finish(self) -> None:
        """Add up what is left, and count the last cluster in the cluster-level metrics."""
        if self._clusters:
            self.add_up()
        self._gather()

    @abstractmethod
    def add_up(self) -> None:
        """Add the records that wait to the sums."""

    @abstractmethod
    def _gather(self) -> None:
        """Count the current cluster in the cluster-level metrics."""


class Tally(_Adding[Record]):
    """Sums per metric, group and cluster, and the number of records (of clusters for cluster-level metrics).

    Add records in the order of sample ids, and call `finish` after the last.
    """

    def __init__(self, metrics: Sequence[Metric], group_key: str) -> None:
        super().__init__(metrics, group_key)
        self.sums: dict[Key, Sums] = defaultdict(Sums)
        self.n = Counter[Key]()
        self.counted = _Counted(self.counting)
        """The records that wait."""
        self._last: dict[tuple[str, str, tuple[str, ...]], tuple[int, Added | None]] = {}
        """What was gathered of the last cluster: (metric, cluster, groups) → number of records, sums."""

    def add(self, record: Record) -> None:
        """Count one record in every metric to which it belongs, overall and in its group."""
        self.keep(record)
        self._add_up_many()

    def keep(self, record: Record) -> int:
        """Count one record, for `add_up` later; return its place among those that wait."""
        self._keep(record, record)
        return self.counted.add(record)

    def add_up(self) -> None:
        for metric, group, names, places, (values,) in self._taken([self.counted]):
            self.add_many((metric.name, group), names, places, values)
        self.counted = _Counted(self.counting)

    def _gather(self) -> None:
        self._last.clear()
        for groups, records in self._current.take():
            cluster = records[0].cluster
            selected = {count: [each for each in records if count(each) is not None] for count in self.selecting}
            for metric in self.gathering:
                chosen = selected[metric.count]
                added = _gathered(metric, chosen)
                self._last[metric.name, cluster, groups] = len(chosen), added
                if added is not None:
                    for group in groups:
                        self.add_sums((metric.name, group), cluster, added)

    def gathered(self, metric: Metric, groups: tuple[str, ...], records: Sequence[Record]) -> Added | None:
        """Return the sums of some of a cluster's records; those of all are known if it was the last."""
        if records:
            number, added = self._last.get((metric.name, records[0].cluster, groups), (0, None))
            if number == len(records):
                return added
        return _gathered(metric, records)

    def add_sums(self, key: Key, cluster: str, added: Added) -> None:
        self.n[key] += 1
        self.sums[key].add(cluster, added)

    def add_many(self, key: Key, names: Sequence[str], places: NDArray[np.intp], values: NDArray[np.float64]) -> None:
        self.n[key] += len(values)
        self.sums[key].add_many(names, places, values)

    def table(self, key: Key) -> NDArray[np.float64]:
        """Return clusters × sums, in the order in which the clusters first appeared."""
        return self.sums[key].table()


class PairTally(_Adding[tuple[Record, Record]]):
    """Tallies of two arms (`before`, `after`) over the samples that count in both.

    `only_before` counts samples that succeeded only in `before` (shares only), for McNemar's test. `alone` are the
    tallies of all records of the two arms, if there are any: what they have counted is not counted again. Then pairs
    are added by `keep`, and added up before their arms.
    """

    def __init__(self, metrics: Sequence[Metric], group_key: str, alone: tuple[Tally, Tally] | None = None) -> None:
        super().__init__(metrics, group_key)
        self.before, self.after = Tally(metrics, group_key), Tally(metrics, group_key)
        self.only_before, self.only_after = Counter[Key](), Counter[Key]()
        self._alone = alone or (self.before, self.after)
        self._places: tuple[list[int], list[int]] = ([], [])
        """Of the records that wait, among those of each arm."""

    def add(self, before: Record, after: Record) -> None:
        """Count one sample in every metric to which it belongs in both arms, overall and in its group."""
        self.keep(before, after, self.before.counted.add(before), self.after.counted.add(after))
        self._add_up_many()

    def keep(self, before: Record, after: Record, first: int, second: int) -> None:
        """Count one sample whose records the tallies of the two arms have kept at these places, for `add_up` later."""
        self._places[0].append(first)
        self._places[1].append(second)
        self._keep(before, (before, after))

    def add_up(self) -> None:
        arms = [tally.counted for tally in self._alone]
        for metric, group, names, places, (first, second) in self._taken(arms, self._places):
            key = (metric.name, group)
            self.before.add_many(key, names, places, first)
            self.after.add_many(key, names, places, second)
            if metric.share:
                self._add_successes(key, first, second)
        self._places = ([], [])
        self.before.counted, self.after.counted = _Counted(self.counting), _Counted(self.counting)

    def _gather(self) -> None:
        for groups, pairs in self._current.take():
            both = {
                count: [pair for pair in pairs if count(pair[0]) is not None and count(pair[1]) is not None]
                for count in self.selecting
            }
            for metric in self.gathering:
                sums = [
                    tally.gathered(metric, groups, [pair[side] for pair in both[metric.count]])
                    for side, tally in enumerate(self._alone)
                ]
                if (first := sums[0]) is None or (second := sums[1]) is None:
                    continue
                for key in ((metric.name, group) for group in groups):
                    self.before.add_sums(key, pairs[0][0].cluster, first)
                    self.after.add_sums(key, pairs[0][0].cluster, second)
                    if metric.share:
                        self._add_successes(key, np.array([first]), np.array([second]))

    def _add_successes(self, key: Key, first: NDArray[np.float64], second: NDArray[np.float64]) -> None:
        self.only_before[key] += int(np.sum(first[:, 0] > second[:, 0]))
        self.only_after[key] += int(np.sum(second[:, 0] > first[:, 0]))


def _gathered(metric: Metric, records: Sequence[Record]) -> Added | None:
    return metric.gather(records) if metric.gather is not None and records else None


# --- estimates ---


def estimate(metric: Metric, group: str, tally: Tally) -> Estimate:
    key: Key = (metric.name, group)
    table = tally.table(key)
    found = Estimate.of(_interval(metric, table).times(metric.scale), tally.n[key], metric.name, group)
    successes = round(table[:, 0].sum()) if metric.share else None
    return replace(found, successes=successes, clusters=len(table), few_clusters=len(table) < FEW_CLUSTERS)


def groups_of(metric: str, tally: Tally) -> list[str]:
    """Return the groups in which the metric was counted, `all` first."""
    groups = [group for name, group in tally.sums if name == metric]
    return sorted(groups, key=lambda group: (group != ALL, group))


def _interval(metric: Metric, table: NDArray[np.float64]) -> Interval:
    if metric.share:
        return share_interval(table)
    if metric.limits is not None and len(table):
        return metric.limits(table)
    return cluster_jackknife(table, metric.statistic, bounds=metric.scale_bounds).interval
