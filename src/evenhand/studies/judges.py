"""Reliability of judges with the models that it takes: ratings of texts of known value, and pairs of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

from evenhand.benchmarks.base import draw_key
from evenhand.core.errors import PlanError, UnknownNameError, UsageError
from evenhand.core.progress import Count, ignore
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
from evenhand.runs.stored import common_answers, open_sources


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
    count: Count = ignore,
    budget: Budget | None = None,
) -> dict[str, list[PairVerdict]]:
    """Ask every judge about every pair in both orders. What was asked before may come from the cache."""
    names = [author_of(plan.spec) for plan in judges]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"The judge {twice[0]} is named twice; name it once.")
    budget = budget or Budget(settings.budget)
    found: dict[str, list[PairVerdict]] = {}
    done = 0

    def one() -> None:
        nonlocal done
        done += 1
        count(done, 2 * len(pairs) * len(judges))

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
        for probe in self.probes:
            if probe not in PROBES:
                raise UnknownNameError("probe", probe, PROBES)
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
    done = 0

    def add(_done: int, _total: int | None) -> None:
        nonlocal done
        done += 1
        count(done, total)

    async with opened_model(judge, settings, budget) as model:
        total = test.calls(model, 1 + len(others))
        found = await measure(model, test.scorers, test.probes, limit=test.limit, repeats=test.repeats, count=add)
        if material is not None and OWN in test.probes and not test.runs:
            material = await with_own_answers(model, material, lambda: add(done, None))
    if material is None:
        return found
    pairs = findings(material, await judged_pairs([judge, *others], material.pairs, settings, add, budget))
    return replace(found, found=[*found.found, *order_of(pairs, author_of(judge.spec))], pairs=pairs)
