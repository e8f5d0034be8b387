"""Benchmarks as tasks of Inspect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset

from evenhand.benchmarks.base import Selection, load_benchmark
from evenhand.core.types import SampleKind
from evenhand.integrations.inspect.samples import inspect_sample, plain_errors
from evenhand.integrations.inspect.scorers import grade
from evenhand.integrations.inspect.solvers import method_solver

_SOLVERS: dict[SampleKind, str] = {"judgement": "judge", "debate": "debate"}
"""Kind of sample → the method of a task without `--solver`, where it is not `default`."""
_HOPELESS = 0.5
"""The share of failed samples that ends an evaluation: one bad sample does not."""


def benchmark_task(name: str) -> Callable[..., Task]:
    """The task `evenhand/NAME`; its arguments are the benchmark's options, `limit`, `seed` and `scorers`."""

    @task(name=name)
    def make(limit: int | None = None, seed: int = 0, scorers: str | list[str] | None = None, **options: Any) -> Task:
        with plain_errors():
            benchmark = load_benchmark(name, **options)
            samples = [inspect_sample(each, name, options) for each in benchmark.samples(Selection(limit, seed))]
        chosen = [scorers] if isinstance(scorers, str) else scorers
        return Task(
            dataset=MemoryDataset(samples, name=name),
            solver=method_solver(_SOLVERS.get(benchmark.kind, "default"))(),
            scorer=grade(scorers=chosen),
            version=benchmark.version,
            fail_on_error=_HOPELESS,
            score_on_error=True,
            metadata={"headline": benchmark.headline},
        )

    return make
