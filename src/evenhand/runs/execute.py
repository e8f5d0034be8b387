"""Executes a plan, in this process or by workers on Ray; or several plans, one after another within one budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.errors import PlanError, UsageError
from evenhand.core.progress import Listener, Observer, Progress
from evenhand.core.types import Usage
from evenhand.models.budget import Limits
from evenhand.runs.dry import CONTROLS, forecast
from evenhand.runs.parts import Settings, check_plan, paid_prices
from evenhand.runs.plan import Plan
from evenhand.runs.runner import Runner
from evenhand.runs.store import FILE_NAME, Store


async def run_plan(
    plan: Plan,
    directory: Path,
    settings: Settings,
    observer: Observer | None = None,
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> Progress:
    """Run all pending samples of the plan and store them in `directory`; raise only errors that the user must fix.

    `check` gets the facts of the plan before the first call; workers, which load the models where they are, skip it.
    """
    if settings.workers is None:
        return await Runner(plan, directory, settings, observer, check=check).run()
    if settings.on is None:
        raise UsageError("Workers need a cluster; pass --on ray, or remove --workers.")
    from evenhand.runs.cluster import ClusterRun

    return await ClusterRun(plan, directory, settings, observer).run()


@dataclass(frozen=True, slots=True)
class SeriesRun:
    """One of several runs, and its folder inside the folder of all."""

    folder: str
    plan: Plan


def check_runs(runs: Sequence[SeriesRun], folder: Path, settings: Settings) -> None:
    """Find mistakes that would otherwise appear only after the first run was paid for."""
    for run in runs:
        plan, place = run.plan, folder / run.folder
        benchmark = load_benchmark(plan.benchmark, **plan.benchmark_options)
        check_plan(plan, benchmark)
        next(iter(benchmark.samples(Selection(1, plan.seeds[0]))), None)
        if not settings.resume and (place / FILE_NAME).exists():
            raise PlanError(f"{place} holds a run already; pass --resume to go on with it, or another --out.")


async def run_all(runs: Sequence[SeriesRun], folder: Path, settings: Settings, listener: Listener) -> Limits | None:
    """Run one after another within one budget; return the rest of it, or None if it ran out.

    A run is left out whose controls, at most, would take more than half of what is left.
    """
    left, scope, left_out = settings.budget, _scope(runs, folder), False
    for run in runs:
        place = folder / run.folder
        most = Usage() if (place / FILE_NAME).exists() else await _controls(run.plan, left, settings)
        if not left.shared(2).cover(most):
            left_out = True
            taken = f"{most.calls:,} calls and {most.tokens:,} tokens, more than half of the budget that is left"
            listener.note(f"{run.folder} is not run: the controls of its judge may take {taken}.")
            continue
        own = replace(settings, budget=left, scope=scope)
        progress = await run_plan(run.plan, place, own, listener.run_began(place))
        listener.run_ended(place, progress)
        if progress.stopped:
            return None
        left = left.less(progress.spent)
    return None if left_out else left


async def _controls(plan: Plan, budget: Limits, settings: Settings) -> Usage:
    """Return what the controls of the plan's judges use at most; nothing without a budget, or without such judges."""
    metrics = load_benchmark(plan.benchmark, **plan.benchmark_options).metrics()
    if budget == Limits() or not any(metric.rests_on for metric in metrics):
        return Usage()
    told = await forecast(plan, paid_prices(plan.every_model(), settings), settings.shard)
    return sum((each.usage for each in told if each.label == CONTROLS), Usage())


def _scope(runs: Sequence[SeriesRun], folder: Path) -> str:
    """Return one scope for all of them, so that a question that several ask is asked once; that of a resumed series."""
    for place in (folder / run.folder for run in runs):
        if (place / FILE_NAME).exists():
            with closing(Store(place)) as store:
                if scope := store.get("scope"):
                    return scope
    return uuid4().hex
