"""The recipe: a folder of pairs becomes a fine-tuned model, a reward model and a model trained by PPO.

Each stage has a folder of its own with its record. A stage that is finished is not made again, one that was
interrupted goes on, so the whole can be resumed wherever it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenhand.errors import PlanError
from evenhand.training import output
from evenhand.training.loop import Observer
from evenhand.training.options import PPOOptions, RewardOptions, SFTOptions
from evenhand.training.ppo import train_ppo
from evenhand.training.reward import train_reward
from evenhand.training.sft import train_sft

Announce = Callable[[str], Observer]
"""Told the name of a stage that begins; gives what is to be told its steps."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What all stages share, and what is different for some."""

    model: str
    data: Path
    out: Path
    shared: Mapping[str, Any] = field(default_factory=dict[str, Any])
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Options of single stages: `sft`, `reward`, `ppo`."""

    def options(self) -> tuple[SFTOptions, RewardOptions, PPOOptions]:
        """The options of each stage; the reward model and the policy both begin as the fine-tuned model."""
        sft, reward, ppo = (self.out / name for name in ("sft", "reward", "ppo"))
        return (
            SFTOptions(model=self.model, out=sft, **self._of("sft")),
            RewardOptions(model=str(sft), out=reward, **self._of("reward")),
            PPOOptions(model=str(sft), reward=str(reward), out=ppo, **self._of("ppo")),
        )

    def _of(self, stage: str) -> dict[str, Any]:
        found: dict[str, Any] = {"data": self.data, **self.shared, **self.own.get(stage, {})}
        if stage != "ppo":
            found["keep_adapter"] = False  # what another stage begins with is merged, so that it stands alone
        return found


def train_recipe(recipe: Recipe, *, resume: bool, announce: Announce) -> dict[str, dict[str, Any]]:
    """Make all stages that are not made yet; the record of each."""
    sft, reward, ppo = recipe.options()
    if not resume and (sft.out / output.RECORD).is_file():
        raise PlanError(f"{recipe.out} holds a recipe already: go on with --resume, or choose another --out.")
    return {
        "sft": train_sft(sft, resume=resume, observe=announce("sft")),
        "reward": train_reward(reward, resume=resume, observe=announce("reward")),
        "ppo": train_ppo(ppo, resume=resume, observe=announce("ppo")),
    }
