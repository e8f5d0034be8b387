"""The models of PPO: who they are, and how they are loaded."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from evenhand.core.errors import UsageError
from evenhand.training import models
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.models import Machine
from evenhand.training.options import PPOOptions
from evenhand.training.reward import RewardModel


class Reward(Protocol):
    """What scores answers: a reward model, or a grader that knows the right ones."""

    def score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> Sequence[float]:
        """Return a number for each answer, higher for the better one."""
        ...


@dataclass(frozen=True, slots=True)
class PPOModels:
    """The four models."""

    actor: Any
    reference: Any
    """None with LoRA, where the actor with its adapters off is the reference."""
    critic: Any
    """None for algorithms without a critic."""
    reward: Reward

    def as_reference(self) -> AbstractContextManager[Any]:
        """Give the reference model within a `with` block."""
        return models.as_reference(self.actor, self.reference)


def load_actor(options: PPOOptions, machine: Machine) -> tuple[Any, Chat]:
    """Load the policy that the options name, and its tokenizer."""
    actor = models.load_policy(options, machine)
    return actor, models.chat_of(options, actor)


def load_models(options: PPOOptions, machine: Machine) -> tuple[PPOModels, Chat]:
    """Load all models that the options name, and the actor's tokenizer."""
    reward = RewardModel.load(options.reward, machine, max_length=options.max_length, batch=options.answers_at_once)
    critic = _critic_of(reward, options.lora) if options.algorithm == "ppo" else None
    actor, chat = load_actor(options, machine)
    if critic is not None and chat.tokenizer.get_vocab() != reward.chat.tokenizer.get_vocab():
        # The critic reads the actor's tokens.
        raise UsageError("The policy and the reward model have different tokenizers; train both from one base model.")
    loaded = PPOModels(actor, models.frozen_reference(actor, options.lora), critic, reward)
    for model in (loaded.actor, loaded.reference, loaded.critic, reward.model):
        models.prepare(model, options, machine)
    return loaded, chat


def _critic_of(reward: RewardModel, lora: int | None) -> Any:
    critic = copy.deepcopy(reward.model)
    if lora is not None:
        return models.with_adapters(critic, lora, head=models.HEAD)
    return critic.float().requires_grad_(True)
