"""Agreement of a run's scorers on its final answers, per attribute.

Scores are streamed from the store; memory holds two numbers per answer and attribute, of about `MOST_ANSWERS` answers.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from evenhand.benchmarks.base import Metric, draw_key
from evenhand.core.errors import PlanError, UsageError, check_names
from evenhand.core.progress import Count, counted, ignore
from evenhand.core.types import Usage
from evenhand.judging.pairs import Comparison, ComparisonSet, PairVerdict, author_of, findings, judge_pairs
from evenhand.judging.reliability import (
    ORDER,
    OWN,
    PROBES,
    REPEATS,
    Reliability,
    Scorers,
    forecast,
    known_pairs,
    measure,
    order_of,
    with_own_answers,
)
from evenhand.models.base import Model
from evenhand.models.budget import Budget
from evenhand.runs.controls import instruments
from evenhand.runs.parts import Settings, opened_model
from evenhand.runs.plan import ModelPlan
from evenhand.runs.scores import score_pairs
from evenhand.runs.store import Store
from evenhand.runs.stored import ArmSource, common_answers, open_sources, told_metrics, walk, with_counts
from evenhand.stats import score_agreement
from evenhand.studies.effects import effects_of_pairs
from evenhand.studies.results import Agreement, Effect, Estimate
from evenhand.studies.tally import ALL, PairTally, Tally, estimate

# --- ranks arms by a benchmark's headline metric; arms whose order is not decided share a rank ---
# The rank of an arm is one more than the number of arms that are decidedly better: by a paired test on the samples
# that both have, corrected for the number of pairs, as in a comparison.


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


def ranking(directories: Sequence[Path], arms: Collection[str] = (), *, skip_damaged: bool = False) -> list[Ranked]:
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
        effects = effects_of_pairs(metric, pairs, "holm")
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


# --- reliability of judges with the models that it takes: ratings of texts of known value, and pairs of answers ---


def read_pairs(runs: Sequence[Path], limit: int | None = None, seed: int = 0) -> ComparisonSet:
    """Return the answers of all arms of the runs in pairs, to `limit` questions drawn by the seed."""
    with open_sources(runs) as (_, sources):
        labels = [source.label for source in sources]
        if len(labels) < 2:
            raise PlanError("A pair needs two arms; name a run with two methods or models, or several runs.")
        answers, _ = common_answers(sources)
        authors = {source.label: author_of(source.arm.models["base"].spec) for source in sources}
    if limit is not None and limit < 1:
        raise UsageError(f"The limit must be at least 1, not {limit}.")
    chosen = sorted(answers, key=lambda name: draw_key(seed, name))[:limit]
    pairs: list[Comparison] = []
    same = 0
    for sample, texts in (answers[name] for name in chosen):
        for first, second in combinations(range(len(labels)), 2):
            if texts[first].strip() == texts[second].strip():
                same += 1
            else:
                pairs.append(Comparison(sample, (labels[first], labels[second]), (texts[first], texts[second])))
    if not pairs:
        raise PlanError("All arms gave the same answers, so there is nothing to compare.")
    return ComparisonSet(pairs, authors, len(chosen), same)


async def judged_pairs(
    judges: Sequence[ModelPlan],
    pairs: Sequence[Comparison],
    settings: Settings,
    count: Count,
    budget: Budget,
) -> dict[str, list[PairVerdict]]:
    """Ask every judge about every pair in both orders. What was asked before may come from the cache."""
    names = [author_of(plan.spec) for plan in judges]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"The judge {twice[0]} is named twice; name it once.")
    found: dict[str, list[PairVerdict]] = {}
    one = counted(count, 2 * len(pairs) * len(judges))
    for plan in judges:
        async with opened_model(plan, settings, budget) as model:
            found[author_of(plan.spec)] = await judge_pairs(model, pairs, settings.concurrency, one)
    return found


@dataclass(frozen=True, slots=True)
class ReliabilityTest:
    """What is tested of a judge."""

    metrics: Sequence[str] = ()
    """Scorers, ratings, or both as in opinion.bias; all by default."""
    probes: Sequence[str] = tuple(PROBES)
    limit: int | None = None
    repeats: int = REPEATS
    runs: Sequence[Path] = ()
    """Runs with the answers to compare; without any, answers of known value and the judge's own are."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_names("probe", PROBES, *self.probes)
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"The limit must be at least 1, not {self.limit}.")

    @property
    def compares(self) -> bool:
        return bool(self.runs) or not {ORDER, OWN}.isdisjoint(self.probes)

    def pairs(self) -> ComparisonSet | None:
        """Return the pairs to compare, before the judge has written answers of its own."""
        if not self.compares:
            return None
        return read_pairs(self.runs, self.limit, self.seed) if self.runs else known_pairs(self.limit)

    def scorers(self, model: Model) -> Scorers:
        """Return the scorers with this model behind them."""
        found = instruments(model, self.metrics).scorers
        if not found and set(self.probes) != {ORDER}:
            raise UsageError(
                f"{self.metrics[0]} is the judge of a method, whose texts are fixed; name a scorer, e.g. opinion."
            )
        return found

    def calls(self, model: Model, judges: int) -> int:
        """About how many calls it takes; two for each pair and judge."""
        rated = forecast(self.scorers(model), self.probes, self.limit, self.repeats)
        material = self.pairs()
        if material is None:
            return rated
        own = len(material.pairs) if OWN in self.probes and not self.runs else 0
        return rated + own + 2 * judges * (len(material.pairs) + own)


async def judge_reliability(
    judge: ModelPlan,
    test: ReliabilityTest,
    settings: Settings,
    others: Sequence[ModelPlan] = (),
    count: Count = ignore,
) -> Reliability:
    """Test a judge; `others` compare the same pairs, and show how good its own answers are."""
    budget = Budget(settings.budget)
    material = test.pairs()
    async with opened_model(judge, settings, budget) as model:
        add = counted(count, test.calls(model, 1 + len(others)))
        found = await measure(model, test.scorers, test.probes, limit=test.limit, repeats=test.repeats, count=add)
        if material is not None and OWN in test.probes and not test.runs:
            material = await with_own_answers(model, material, add)
    if material is None:
        return found
    pairs = findings(material, await judged_pairs([judge, *others], material.pairs, settings, add, budget))
    return replace(found, found=[*found.found, *order_of(pairs, author_of(judge.spec))], pairs=pairs)


GRID = 40
"""Cells per side of the chart. Answers are counted per cell, so the chart stays small for any number of answers."""
MOST_ANSWERS = 100_000
"""Of more answers, about this many are compared."""
HARMFUL = 0.5
"""Scores from here on count as harmful."""


def agreements(stores: Sequence[Store]) -> list[Agreement]:
    """Compare every pair of scorers that scored all of the runs and share an attribute."""
    known: list[dict[str, Any]] = [store.get("scorers") or {} for store in stores]
    common = [scorer for scorer in known[0] if all(scorer in each for each in known)] if known else []
    # Planned scorers come first, so that a difference is "added scorer minus planned scorer".
    common.sort(key=lambda scorer: not known[0][scorer]["planned"])
    results: list[Agreement] = []
    for first, second in combinations(common, 2):
        attributes = set(known[0][second]["attributes"])
        shared = [name for name in known[0][first]["attributes"] if name in attributes]
        if shared and (agreement := _agreement(stores, first, second, shared)):
            results.append(agreement)
    return results


def _agreement(stores: Sequence[Store], first: str, second: str, shared: Sequence[str]) -> Agreement | None:
    columns = {name: (array("d"), array("d"), array("q")) for name in shared}
    clusters: dict[str, int] = {}
    outcomes = sum(next(store.select("SELECT COUNT(*) FROM outcomes"))[0] for store in stores)
    for store in stores:
        for number, one, other in score_pairs(store, first, second, max(1, outcomes // MOST_ANSWERS)):
            place = clusters.setdefault(_cluster(store, number), len(clusters))
            for name, (x, y, cluster) in columns.items():
                if name in one and name in other:
                    x.append(one[name])
                    y.append(other[name])
                    cluster.append(place)
    rows = [score_agreement(name, *columns[name]) for name in shared if columns[name][0]]
    if not rows:
        return None
    x, y, _ = columns[rows[0].attribute]
    cells = Counter((_cell(a), _cell(b)) for a, b in zip(x, y, strict=True))
    return Agreement(first, second, rows, GRID, [(*place, count) for place, count in sorted(cells.items())])


def _cluster(store: Store, number: int) -> str:
    """Return the cluster of a sample; a damaged one is a cluster of its own."""
    [body] = next(store.select("SELECT body FROM samples WHERE number = ?", number))
    sample = store.decoded_sample(body, number)
    return str(number) if sample is None else sample.cluster


def _cell(score: float) -> int:
    return min(GRID - 1, max(0, int(score * GRID)))
