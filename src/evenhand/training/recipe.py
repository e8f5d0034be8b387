"""The recipe: from a folder of pairs to a fine-tuned model, a reward model and a model trained by PPO or a variant.

With DPO there is no reward model. Each stage has its own folder with its record. On resume, finished stages are kept
and an interrupted stage continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.benchmarks.base import load_benchmark
from evenhand.benchmarks.opinions import Opinions
from evenhand.core import aio
from evenhand.core.errors import PlanError, UsageError
from evenhand.core.files import cache_folder
from evenhand.core.progress import Announce, Count, Progress
from evenhand.models import weights
from evenhand.models.load import load_model
from evenhand.runs.execute import run_plan
from evenhand.runs.parts import Settings
from evenhand.runs.plan import Plan, make_plan
from evenhand.training import stage as stages
from evenhand.training.dpo import train_dpo
from evenhand.training.options import FROM_BASE, DPOOptions, PPOOptions, RewardOptions, SFTOptions, StageOptions
from evenhand.training.parallel import join_team, launched_processes
from evenhand.training.ppo import train_ppo
from evenhand.training.reward import train_reward
from evenhand.training.sft import train_sft

# --- the evaluation at the end of a recipe: base, fine-tuned and trained model answer the same questions ---
# BBQ measures whether stereotypes decide a model's choices. In `opinions` a judge rates what it says on held-out
# topics. Each model has its own run, so that one model is loaded at a time; a study compares the runs.

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


TRAINERS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "sft": train_sft,
    "reward": train_reward,
    "ppo": train_ppo,
    "dpo": train_dpo,
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """The options of all stages."""

    model: str
    data: Path
    out: Path
    shared: Mapping[str, Any] = field(default_factory=dict[str, Any])
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Options of single stages, by stage."""
    algorithm: str = "ppo"
    """The algorithm of the last stage: PPO, one of its variants, or `dpo`."""

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages in order; the last one makes the result."""
        return ("sft", "dpo") if self.algorithm == "dpo" else ("sft", "reward", "ppo")

    def options(self) -> dict[str, StageOptions]:
        """Return the options of each stage; after the first, they start from the fine-tuned model."""
        for stage in self.own:
            if stage not in self.stages:
                raise UsageError(f"A recipe by {self.algorithm} has no stage {stage}; it has {', '.join(self.stages)}.")
        sft, reward = (str(self.out / stage) for stage in ("sft", "reward"))
        first: dict[str, StageOptions] = {"sft": SFTOptions(model=self.model, **self._of("sft"))}
        if self.algorithm == "dpo":
            return {**first, "dpo": DPOOptions(model=sft, **self._of("dpo"))}
        ppo: dict[str, Any] = {"algorithm": self.algorithm, **self._of("ppo")}
        scored = self._of("reward")
        start = self.model if scored.pop(FROM_BASE, False) else sft
        return {
            **first,
            "reward": RewardOptions(model=start, **scored),
            "ppo": PPOOptions(model=sft, reward=reward, **ppo),
        }

    def policies(self) -> dict[str, str]:
        """Return the specs of the models to evaluate: the base model, the fine-tuned model and the result."""
        trained = {stage: f"hf/{self.out / stage}" for stage in self.stages if stage != "reward"}
        # A base model without its own chat template cannot be evaluated.
        return trained if self.shared.get("chat_template") else {"base": as_hf(self.model), **trained}

    def _of(self, stage: str) -> dict[str, Any]:
        options: dict[str, Any] = {"data": self.data, "out": self.out / stage, **self.shared, **self.own.get(stage, {})}
        if stage != self.stages[-1]:
            options["keep_adapter"] = False  # the next stage needs a merged model
        return options


def train_recipe(recipe: Recipe, *, resume: bool, announce: Announce) -> dict[str, dict[str, Any]]:
    """Train all stages that are not finished yet; return the record of each."""
    chosen = recipe.options()
    if not resume:
        join_team(recipe.shared.get("device")).on_main(lambda: _check_new(recipe.out))
    return {
        stage: TRAINERS[stage](options, resume=resume, observe=announce(stage)) for stage, options in chosen.items()
    }


def _check_new(out: Path) -> None:
    if (out / "sft" / stages.RECORD).is_file():
        raise PlanError(f"{out} already holds a recipe: go on with --resume, or choose another --out.")
