"""Paired differences between any two arms of a run, read in one pass over its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenhand.benchmarks.base import Metric, share_metric
from evenhand.core.format import limits, number, p_statement, percent, signed
from evenhand.core.types import Record
from evenhand.runs.stored import open_sources, walk
from evenhand.stats import Interval, paired_cluster_jackknife
from evenhand.studies.conclusions import MANY_UNSAID
from evenhand.studies.effects import effect_of
from evenhand.studies.results import Effect
from evenhand.studies.tally import ALL, PairTally

Pair = tuple[str, str]
"""(before, after), ids of arms."""
FIRST = ".first"
"""Ending of the id that stands for an arm's own first answers and reasonings."""
_FIRST_KEYS = {
    "correct": "first_correct",
    "kind": "first_kind",
    "reasoning_bias": "reasoning_bias_before",
    "relevancy": "relevancy_before",
    "debiased": "debiased_before",
}
COMPARABLE = (0.6, 1.6)
"""The length of answers, relative to those they are compared with, within which they can be compared."""
UNSAID, LENGTH = "unsaid", "length"


def _unsaid(record: Record) -> bool | None:
    return None if record.status == "failed" else record.status != "graded"


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference, after − before, of a metric with this title."""

    title: str
    effect: Effect
    is_distance: bool = False
    """Whether it is the change of a distance from zero."""

    def __str__(self) -> str:
        """What changed, from where to where, with interval and p-value."""
        effect = self.effect
        where = "" if effect.group == ALL else f", {effect.group}"
        if effect.difference is None:
            return f"{self.title}{where}: undefined"
        values = f"{number(effect.first)} → {number(effect.last)}"
        change = f"{signed(effect.difference)} {limits(effect.low, effect.high)}"
        distance = "distance from zero " if self.is_distance else ""
        return f"{self.title}{where} {values} ({distance}{change}, {p_statement(effect.p_value)}, n = {effect.n:,})"


@dataclass(frozen=True, slots=True)
class Pairs:
    """The tallies of the pairs of arms of a run."""

    metrics: Mapping[str, Metric] = field(default_factory=dict[str, Metric])
    tallies: Mapping[Pair, PairTally] = field(default_factory=dict[Pair, PairTally])

    def difference(self, before: str | None, after: str | None, metric: str, group: str = ALL) -> Difference | None:
        """Returns the paired difference; None if an arm was not run or no sample counts in both."""
        pair = self.tallies.get((before or "", after or ""))
        if pair is None or (metric, group) not in pair.before.sums:
            return None
        chosen = self.metrics[metric]
        return Difference(
            chosen.title, effect_of(chosen, group, before or "", after or "", pair), chosen.better == "zero"
        )

    def beyond(
        self, before: str | None, after: str | None, metric: str, factor: float, group: str = ALL
    ) -> Interval | None:
        """Returns after − factor × before, for a mean or share."""
        pair = self.tallies.get((before or "", after or ""))
        if pair is None or (metric, group) not in pair.before.sums:
            return None
        key, chosen = (metric, group), self.metrics[metric]
        first: NDArray[np.float64] = pair.before.table(key) * np.array([factor, 1.0])
        found = paired_cluster_jackknife(first, pair.after.table(key), chosen.statistic).interval
        scaled = [None if each is None else each * chosen.scale for each in (found.estimate, found.low, found.high)]
        return replace(found, estimate=scaled[0], low=scaled[1], high=scaled[2])

    def fault(self, before: str | None, after: str | None) -> str:
        """Says why a better score of `after` means nothing: it is silent more often, or far shorter or longer."""
        silent = self.difference(before, after, UNSAID)
        if silent and (silent.effect.difference or 0) > 100 * MANY_UNSAID:
            shares = f"{number(silent.effect.last, 0)} %, not {number(silent.effect.first, 0)} %"
            return f"More of its answers are empty, refused or cut: {shares}"
        words = self.difference(before, after, LENGTH) if LENGTH in self.metrics else None
        if words and words.effect.first and words.effect.last is not None:
            share = words.effect.last / words.effect.first
            if not COMPARABLE[0] <= share <= COMPARABLE[1]:
                band = " to ".join(number(100 * each, 0) for each in COMPARABLE)
                return f"Its texts have {percent(share, 0)} of the words (comparable: {band} %)"
        return ""


def read_pairs(
    folder: Path,
    wanted: Iterable[Pair],
    group_key: str,
    more: Sequence[Metric] = (),
    *,
    scorers: Sequence[str] = (),
    iterations: bool = False,
) -> Pairs:
    """Reads these pairs of arms of the run in `folder`; an id with the ending `.first` is an arm's first answers."""
    with open_sources([folder], scorers=scorers, iterations=iterations) as (runs, sources):
        unsaid = share_metric(UNSAID, "Empty, refused or cut", _unsaid, "lower")
        metrics = {metric.name: metric for metric in (*runs[0].benchmark().metrics(), unsaid, *more)}
        known = {source.id for source in sources}
        counted = [metric for metric in metrics.values() if metric.gather is None]
        tallies = {
            pair: PairTally(counted, group_key)
            for pair in dict.fromkeys(wanted)
            if all(each.removesuffix(FIRST) in known for each in pair)
        }
        for _, records in walk(sources):
            for (before, after), tally in tallies.items():
                one, other = _record(records, before), _record(records, after)
                if one is not None and other is not None:
                    tally.add(one, other)
        for tally in tallies.values():
            tally.finish()
        return Pairs(metrics, tallies)


def _record(records: Mapping[str, Record], arm: str) -> Record | None:
    found = records.get(arm.removesuffix(FIRST))
    return first_of(found) if found is not None and arm.endswith(FIRST) else found


def first_of(record: Record) -> Record | None:
    """Returns the record as it would be with the first answer and reasoning; None if these are not known."""
    grade = record.grade
    if grade is None or "first_correct" not in grade:
        return None
    first = {key: grade[before] for key, before in _FIRST_KEYS.items() if before in grade}
    rest = {key: value for key, value in grade.items() if key not in _FIRST_KEYS}
    return replace(record, grade={**rest, **first})
