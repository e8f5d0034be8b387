"""Ranks arms by a benchmark's headline metric; arms whose order is not decided share a rank.

The rank of an arm is one more than the number of arms that are decidedly better: by a paired test on the samples that
both have, corrected for the number of pairs, as in a comparison.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from evenhand.benchmarks.base import Metric
from evenhand.core.types import Usage
from evenhand.runs.stored import ArmSource, open_sources, told_metrics, walk, with_counts
from evenhand.studies.effects import effects_of_pairs
from evenhand.studies.results import Effect, Estimate
from evenhand.studies.tally import ALL, PairTally, Tally, estimate


@dataclass(frozen=True, slots=True)
class Ranked:
    """One arm with its rank; None where the metric has no better side, or the value is undefined."""

    id: str
    label: str
    rank: int | None
    estimate: Estimate | None
    usage: Usage
    samples: int
    """Samples that were run."""


def ranking(
    directories: Sequence[Path], arms: Collection[str] = (), *, correction: str = "holm", skip_damaged: bool = False
) -> list[Ranked]:
    """Rank the arms of runs of one benchmark, the best first; `arms` are the ids of those to rank, if not all."""
    with open_sources(directories, skip_damaged=skip_damaged) as (runs, every):
        sources = [each for each in every if not arms or each.id in arms]
        benchmark = runs[0].benchmark()
        sources = with_counts(benchmark, sources)
        metric = next(each for each in told_metrics(runs, sources[0].scorers) if each.name == benchmark.headline)
        alone = {source.id: Tally([metric], benchmark.group_key) for source in sources}
        pairs = {
            (one.id, other.id): PairTally([metric], benchmark.group_key) for one, other in combinations(sources, 2)
        }
        for _, records in walk(sources):
            for source_id, record in records.items():
                alone[source_id].add(record)
            for (one, other), pair in pairs.items():
                if one in records and other in records:
                    pair.add(records[one], records[other])
        for tally in (*alone.values(), *pairs.values()):
            tally.finish()
        effects = effects_of_pairs(metric, pairs, correction)
        found = [_ranked(source, metric, alone[source.id], effects) for source in sources]
    return sorted(found, key=lambda each: _order(each, metric))


def _ranked(source: ArmSource, metric: Metric, tally: Tally, effects: Sequence[Effect]) -> Ranked:
    value = estimate(metric, ALL, tally) if tally.n[metric.name, ALL] else None
    better = sum(_beats(each, source.id, metric) for each in effects)
    ranks = metric.better is not None and value is not None and value.value is not None
    usage = sum(source.store.usage(source.arm.number).values(), Usage())
    samples = sum(source.store.counts(source.arm.number).values())
    return Ranked(source.id, source.label, 1 + better if ranks else None, value, usage, samples)


def _beats(effect: Effect, arm: str, metric: Metric) -> bool:
    """Whether the effect shows that another arm is better than this one."""
    if arm not in (effect.before, effect.after) or effect.direction == "undecided" or metric.better is None:
        return False
    after_is_better = (effect.direction == "rose") == (metric.better == "higher")
    return after_is_better == (arm == effect.before)


def _order(each: Ranked, metric: Metric) -> tuple[bool, int, float]:
    value = None if each.estimate is None else each.estimate.value
    if value is None:
        return (True, 0, 0.0)
    far = {"higher": -value, "lower": value, "zero": abs(value), None: value}[metric.better]
    return (False, each.rank or 0, far)
