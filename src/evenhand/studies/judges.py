"""Judges on the answers of stored runs: the pairs that they compare, and the models that do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

from evenhand.benchmarks.base import draw_key
from evenhand.core.errors import PlanError, UsageError
from evenhand.core.progress import Count, ignore
from evenhand.judging.pairs import Comparison, ComparisonSet, PairVerdict, author_of, judge_pairs
from evenhand.models.budget import Budget
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
) -> dict[str, list[PairVerdict]]:
    """Ask every judge about every pair in both orders. What was asked before may come from the cache."""
    names = [author_of(plan.spec) for plan in judges]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"The judge {twice[0]} is named twice; name it once.")
    budget = Budget(settings.budget)
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
