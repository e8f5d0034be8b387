"""What takes long, done in other processes so that pages stay quick: studies, rankings and search indexes.

Functions here take and return plain values.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from evenhand.core.errors import EvenhandError
from evenhand.runs.store import Store
from evenhand.show.report import report_parts
from evenhand.show.view import total_usage, view_of
from evenhand.studies.agreement import ranking
from evenhand.studies.conclusions import headline_of
from evenhand.studies.results import StudyResult
from evenhand.studies.study import study

P = ParamSpec("P")
T = TypeVar("T")
WORKERS = 2
"""One may be busy in the background; the other is for the page that somebody waits for."""
_TASKS = 200
"""A worker is replaced after this many jobs, so that its memory does not grow."""


class WorkerPool:
    """A small pool of processes, started when first used."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the function's result; an expected error is raised here as it was there."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                WORKERS, mp_context=context, initializer=_begin, max_tasks_per_child=_TASKS
            )
        future = self._pool.submit(_guarded, function, args, kwargs)
        try:
            result, failure = await asyncio.wrap_future(future)
        except BrokenProcessPool:
            self._pool = None
            raise EvenhandError("The process that computed this was killed; it may have run out of memory.") from None
        if failure is not None:
            raise EvenhandError(failure)
        return result

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            self._pool = None


def _begin() -> None:
    os.nice(5)
    warnings.simplefilter("ignore")


def _guarded(function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, str | None]:
    """Return (result, None) or (None, what went wrong): some errors cannot travel between processes."""
    try:
        return function(*args, **kwargs), None
    except EvenhandError as error:
        return None, str(error)
    except Exception as error:
        return None, f"This could not be computed: {type(error).__name__}: {error}"


def _headline(result: StudyResult) -> str:
    """The headline, its first sentence with its numbers: they may be of another metric than the values."""
    text, first = headline_of(result), next(iter(result.findings), None)
    if first is None or not first.metric or not first.detail:
        return text
    numbers = f"{first.sentence} {first.detail.partition('. ')[0].removesuffix('.')}"
    if first.metric == result.headline and len(result.whole_arms) == 1:
        return numbers
    return text.replace(first.sentence, f"{numbers}.", 1)


def measured(directory: Path) -> dict[str, Any]:
    """Return the estimates and costs of a run's arms, for leaderboards and for a model over time."""
    result = study([directory], skip_damaged=True)
    with closing(Store(directory, skip_damaged=True)) as store:
        digest = hashlib.sha256()
        for (sample_id,) in store.select("SELECT id FROM samples ORDER BY id"):
            digest.update(f"{sample_id}\n".encode())
    main = [result.headline, *result.guardrails]
    return {
        "samples": digest.hexdigest()[:16],
        "headline": result.headline,
        "text": "" if result.nothing_measured else _headline(result),
        "scorers": list(result.scorers),
        "metrics": [asdict(each) for each in result.metrics if each.name in main],
        "arms": [
            {
                "id": arm.id.partition(".")[2],
                "label": arm.label,
                "method": arm.method,
                "options": arm.key.options,
                "models": dict(arm.models),
                "seed": arm.seed,
                "estimates": [asdict(each) for each in arm.estimates if each.group == "all" and each.metric in main],
                "cost": total_usage(arm).cost,
                "calls": total_usage(arm).calls + total_usage(arm).cached_calls,
                "run": sum(arm.statuses.values()),
            }
            for arm in result.arms
        ],
    }


def studied(
    directories: Sequence[Path], arms: Sequence[str] = (), baseline: str | None = None, correction: str = "holm"
) -> dict[str, Any]:
    """Return the sections of a report as (id, title, HTML), without the samples, and the report's title."""
    result = study(directories, arms=arms, baseline=baseline, correction=correction, skip_damaged=True)
    sections = [(part.id, part.title, str(part.html)) for part in report_parts(view_of(result))]
    return {"title": result.title, "sections": sections, "arms": [(arm.id, arm.label) for arm in result.arms]}


def ranked(directories: Sequence[Path], arms: Sequence[str]) -> list[dict[str, Any]]:
    """Return the arms with their ranks, the best first."""
    return [asdict(each) for each in ranking(directories, arms, skip_damaged=True)]
