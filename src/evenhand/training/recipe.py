"""The recipe: from a folder of pairs to a fine-tuned model, a reward model and a model trained by PPO or a variant.

With DPO there is no reward model. Each stage has its own folder with its record. On resume, finished stages are kept
and an interrupted stage continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.core.errors import PlanError, UsageError
from evenhand.core.progress import Announce
from evenhand.training import stage as stages
from evenhand.training.dpo import train_dpo
from evenhand.training.evaluation import as_hf
from evenhand.training.options import DPOOptions, PPOOptions, RewardOptions, SFTOptions, StageOptions
from evenhand.training.parallel import join_team
from evenhand.training.ppo import train_ppo
from evenhand.training.reward import train_reward
from evenhand.training.sft import train_sft

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
        """Return the options of each stage; the reward model and the policy both start from the fine-tuned model."""
        for stage in self.own:
            if stage not in self.stages:
                raise UsageError(f"A recipe by {self.algorithm} has no stage {stage}; it has {', '.join(self.stages)}.")
        sft, reward = (str(self.out / stage) for stage in ("sft", "reward"))
        first: dict[str, StageOptions] = {"sft": SFTOptions(model=self.model, **self._of("sft"))}
        if self.algorithm == "dpo":
            return {**first, "dpo": DPOOptions(model=sft, **self._of("dpo"))}
        ppo: dict[str, Any] = {"algorithm": self.algorithm, **self._of("ppo")}
        return {
            **first,
            "reward": RewardOptions(model=sft, **self._of("reward")),
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
