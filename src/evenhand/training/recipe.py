"""The recipe: a folder of pairs becomes a fine-tuned model, a reward model and a model trained by PPO or a relative.

With DPO there is no reward model. Each stage has a folder of its own with its record. A stage that is finished is not
made again, one that was interrupted goes on, so the whole can be resumed wherever it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.errors import PlanError, UsageError
from evenhand.training import stage as stages
from evenhand.training.dpo import train_dpo
from evenhand.training.evaluation import as_hf
from evenhand.training.loop import Observer
from evenhand.training.options import DPOOptions, Options, PPOOptions, RewardOptions, SFTOptions
from evenhand.training.ppo import train_ppo
from evenhand.training.reward import train_reward
from evenhand.training.sft import train_sft

Announce = Callable[[str], Observer]
"""Told the name of a stage that begins; gives what is to be told its steps."""
TRAINERS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "sft": train_sft,
    "reward": train_reward,
    "ppo": train_ppo,
    "dpo": train_dpo,
}


@dataclass(frozen=True, slots=True)
class Recipe:
    """What all stages share, and what is different for some."""

    model: str
    data: Path
    out: Path
    shared: Mapping[str, Any] = field(default_factory=dict[str, Any])
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Options of single stages."""
    algorithm: str = "ppo"
    """Of the last stage: one of PPO's, or `dpo`."""

    @property
    def stages(self) -> tuple[str, ...]:
        """In their order; the last one makes the result."""
        return ("sft", "dpo") if self.algorithm == "dpo" else ("sft", "reward", "ppo")

    def options(self) -> dict[str, Options]:
        """The options of each stage; the reward model and the policy both begin as the fine-tuned model."""
        for stage in self.own:
            if stage not in self.stages:
                raise UsageError(f"A recipe by {self.algorithm} has no stage {stage}; it has {', '.join(self.stages)}.")
        sft, reward = (str(self.out / stage) for stage in ("sft", "reward"))
        begun: dict[str, Options] = {"sft": SFTOptions(model=self.model, **self._of("sft"))}
        if self.algorithm == "dpo":
            return {**begun, "dpo": DPOOptions(model=sft, **self._of("dpo"))}
        ppo: dict[str, Any] = {"algorithm": self.algorithm, **self._of("ppo")}
        return {
            **begun,
            "reward": RewardOptions(model=sft, **self._of("reward")),
            "ppo": PPOOptions(model=sft, reward=reward, **ppo),
        }

    def policies(self) -> dict[str, str]:
        """The specs of the models that can be asked: as it was, fine-tuned, and the result."""
        found = {stage: f"hf/{self.out / stage}" for stage in self.stages if stage != "reward"}
        # What has no chat template of its own cannot be asked.
        return found if self.shared.get("chat_template") else {"base": as_hf(self.model), **found}

    def _of(self, stage: str) -> dict[str, Any]:
        found: dict[str, Any] = {"data": self.data, "out": self.out / stage, **self.shared, **self.own.get(stage, {})}
        if stage != self.stages[-1]:
            found["keep_adapter"] = False  # what another stage begins with is merged, so that it stands alone
        return found


def train_recipe(recipe: Recipe, *, resume: bool, announce: Announce) -> dict[str, dict[str, Any]]:
    """Make all stages that are not made yet; the record of each."""
    chosen = recipe.options()
    if not resume and (recipe.out / "sft" / stages.RECORD).is_file():
        raise PlanError(f"{recipe.out} holds a recipe already: go on with --resume, or choose another --out.")
    return {
        stage: TRAINERS[stage](options, resume=resume, observe=announce(stage)) for stage, options in chosen.items()
    }
