"""The end of a recipe: the model before, between and after, asked the same questions through the ordinary runner.

BBQ shows whether stereotypes decide its choices; `opinions` has a judge rate what it says about topics that training
has not seen. Each model has a run of its own, so that one is loaded at a time, and a study compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand import aio
from evenhand.benchmarks.base import load_benchmark
from evenhand.benchmarks.opinions import Opinions
from evenhand.errors import UsageError
from evenhand.models import weights
from evenhand.models.base import load_model
from evenhand.paths import cache_folder
from evenhand.runs.parts import Settings
from evenhand.runs.plan import Plan, make_plan
from evenhand.runs.runner import Progress, Runner
from evenhand.training.loop import Observer
from evenhand.training.parallel import launched

FOLDER = "evaluation"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is measured, and by whom."""

    pairs: Path
    """The folder by `evenhand pairs`, for the topics that it holds out."""
    judge: str | None = None
    """The model that rates opinions; None: the first of those that are measured."""
    bbq: str | None = None
    """The folder of the public BBQ; None: the built-in questions."""
    limit: int | None = None
    """Questions of each benchmark; None: all."""
    device: str | None = None

    def check(self) -> None:
        """Refuse what would fail only after hours of training."""
        if launched() > 1:
            raise UsageError(
                "Models are measured by one process: train first, then run it with --evaluate --resume, not launched."
            )
        if not self.pairs.is_dir():
            raise UsageError(f"--evaluate asks about held-out topics, and {self.pairs} is no folder by evenhand pairs.")
        self.plans({"base": "fake/echo"})
        for benchmark, options in self._benchmarks().items():
            load_benchmark(benchmark, **options).fingerprint()  # reads its data
        if self.judge:
            aio.run(_loaded(self.judge))

    def plans(self, models: Mapping[str, str]) -> dict[str, dict[str, Plan]]:
        """For each benchmark, the plan of each model (name → spec)."""
        judge = self.judge or next(iter(models.values()))
        found: dict[str, dict[str, Plan]] = {}
        for benchmark, options in self._benchmarks().items():
            scorers = {"scorers": [f"opinion:{judge}"]} if benchmark == Opinions.name else {}
            shared = {"benchmark": benchmark, "benchmark_options": options, "limit": self.limit, **scorers}
            extra = {"extra": {"device": self.device}} if self.device else {}
            found[benchmark] = {
                name: make_plan({**shared, "models": [{"spec": spec, **extra}]}) for name, spec in models.items()
            }
        return found

    def _benchmarks(self) -> dict[str, dict[str, Any]]:
        """Each benchmark with its options."""
        bbq = {"bbq": {"data": self.bbq}} if self.bbq else {"bbq_builtin": dict[str, Any]()}
        return {**bbq, Opinions.name: {"data": str(self.pairs)}}


def evaluate(
    evaluation: Evaluation, models: Mapping[str, str], folder: Path, announce: Callable[[str], Observer]
) -> dict[str, list[Path]]:
    """Run all that is not done yet; the run of each model, in their order, for each benchmark."""
    settings = Settings(cache=cache_folder() / "responses.sqlite", resume=True)
    runs: dict[str, list[Path]] = {}
    for benchmark, plans in evaluation.plans(models).items():
        for name, plan in plans.items():
            run = folder / FOLDER / benchmark / name
            observe = announce(f"{benchmark}: {name}")
            aio.run(Runner(plan, run, settings, _observer(observe)).run())
            runs.setdefault(benchmark, []).append(run)
    return runs


def as_hf(model: str) -> str:
    """What was trained from, as transformers runs it, so that before and after differ in their weights alone."""
    if model.startswith("local/"):
        return f"hf/{weights.find(model.removeprefix('local/'))}"
    return model if model.startswith("hf/") else f"hf/{model}"


async def _loaded(spec: str) -> None:
    """Load a model as far as that costs nothing: it is there, with its key and its packages."""
    async with load_model(spec):
        pass


def _observer(observe: Observer) -> Callable[[Progress], None]:
    return lambda progress: observe(progress.done, progress.total)
