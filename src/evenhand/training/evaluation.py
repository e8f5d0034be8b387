"""The evaluation at the end of a recipe: base, fine-tuned and trained model answer the same questions.

BBQ measures whether stereotypes decide a model's choices. In `opinions` a judge rates what it says on held-out topics.
Each model has its own run, so that one model is loaded at a time; a study compares the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.benchmarks.base import load_benchmark
from evenhand.benchmarks.opinions import Opinions
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.files import cache_folder
from evenhand.core.progress import Announce, Count, Progress
from evenhand.models import weights
from evenhand.models.load import load_model
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import Settings
from evenhand.runs.plan import Plan, make_plan
from evenhand.training.parallel import launched_processes

FOLDER = "evaluation"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What is evaluated, and which model judges."""

    pairs: Path
    """The folder of `evenhand train pairs`, which names the held-out topics."""
    judge: str | None = None
    """The model that rates opinions; None: the first model that is evaluated."""
    bbq: str | None = None
    """The folder of the public BBQ; None: the built-in questions."""
    limit: int | None = None
    """Questions per benchmark; None: all."""
    device: str | None = None

    def check(self) -> None:
        """Raise an error now for what would otherwise fail after hours of training."""
        if launched_processes() > 1:
            raise UsageError(
                "Evaluation runs in one process: train first, then add --evaluate --resume and leave out the launcher."
            )
        if not self.pairs.is_dir():
            raise UsageError(
                f"--evaluate needs held-out topics, so {self.pairs} must be a folder of `evenhand train pairs`."
            )
        self.plans({"base": "fake/echo"})
        for benchmark, options in self._benchmarks().items():
            load_benchmark(benchmark, **options).fingerprint()  # reads its data
        if self.judge:
            aio.run(_check_model(self.judge))

    def plans(self, models: Mapping[str, str]) -> dict[str, dict[str, Plan]]:
        """Return the plan of each model (name → spec) for each benchmark."""
        judge = self.judge or next(iter(models.values()))
        plans: dict[str, dict[str, Plan]] = {}
        for benchmark, options in self._benchmarks().items():
            scorers = {"scorers": [f"opinion:{judge}"]} if benchmark == Opinions.name else {}
            shared = {"benchmark": benchmark, "benchmark_options": options, "limit": self.limit, **scorers}
            extra = {"extra": {"device": self.device}} if self.device else {}
            plans[benchmark] = {
                name: make_plan({**shared, "models": [{"spec": spec, **extra}]}) for name, spec in models.items()
            }
        return plans

    def _benchmarks(self) -> dict[str, dict[str, Any]]:
        """Return the options of each benchmark."""
        bbq = {"bbq": {"data": self.bbq}} if self.bbq else {"bbq_builtin": dict[str, Any]()}
        return {**bbq, Opinions.name: {"data": str(self.pairs)}}


def evaluate(
    evaluation: Evaluation, models: Mapping[str, str], folder: Path, announce: Announce
) -> dict[str, list[Path]]:
    """Run what is not finished yet; return the runs of each benchmark, in the order of the models."""
    settings = Settings(cache=cache_folder() / "responses.sqlite", reuse_answers=False, resume=True)
    runs: dict[str, list[Path]] = {}
    for benchmark, plans in evaluation.plans(models).items():
        for name, plan in plans.items():
            run = folder / FOLDER / benchmark / name
            observe = announce(f"{benchmark}: {name}")
            aio.run(run_plan(plan, run, settings, _observer(observe)))
            runs.setdefault(benchmark, []).append(run)
    return runs


def as_hf(model: str) -> str:
    """Return the hf/ spec of the base model, so that it differs from the trained models only in its weights."""
    if model.startswith("local/"):
        return f"hf/{weights.find(model.removeprefix('local/'))}"
    return model if model.startswith("hf/") else f"hf/{model}"


async def _check_model(spec: str) -> None:
    """Check that a model exists and has its key and packages, without calling it."""
    async with load_model(spec):
        pass


def _observer(observe: Count) -> Callable[[Progress], None]:
    return lambda progress: observe(progress.done, progress.total)
