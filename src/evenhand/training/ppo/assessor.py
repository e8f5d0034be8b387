"""The models of PPO: who they are, how they are loaded, and what they say of sampled answers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from evenhand.core.errors import UsageError
from evenhand.core.lazy import torch
from evenhand.training import models, stage
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.drift import Measures
from evenhand.training.models import Machine
from evenhand.training.options import PPOOptions
from evenhand.training.reward import RewardModel, token_values
from evenhand.training.rollout import Rollout, logprobs_and_entropies, roll_out


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


@dataclass(frozen=True, slots=True)
class Baseline:
    """What was measured on the reference's answers before the first step."""

    reward_mean: float = 0.0
    reward_deviation: float = 1.0
    checked: Measures | None = None
    """Of its answers to the prompts of the checks."""


class Assessor:
    """Answers of a policy with the scores that the models give them."""

    def __init__(self, options: PPOOptions, loaded: PPOModels, chat: Chat, machine: Machine) -> None:
        self._options, self._models, self._chat, self._machine = options, loaded, chat, machine
        self.baseline = Baseline()

    def roll_out(self, policy: Any, prompts: Sequence[Prompt], temperature: float | None = None) -> Rollout:
        o = self._options
        if temperature is None:
            temperature = o.temperature
        return roll_out(
            policy, self._chat, prompts, self._machine, max_new_tokens=o.max_new_tokens, temperature=temperature
        )

    def for_all(self, compute: Callable[[Rollout], tuple[Any, ...]], rollout: Rollout) -> tuple[Any, ...]:
        """Compute tensors for all answers: each process for its own rows, in micro-batches; then gather them."""
        team, count = self._machine.team, len(rollout.texts)
        chunks = stage.chunks(team.own_rows(count), self._options.answers_at_once)
        computed = [compute(rollout.select(rows)) for rows in chunks]
        return team.all_gather(count, *(torch.cat(each) for each in zip(*computed, strict=True)))

    def logprobs(self, policy: Any, rollout: Rollout) -> tuple[Any, Any]:
        return logprobs_and_entropies(policy, rollout, self._machine, self._options.temperature)

    def values(self, rollout: Rollout) -> Any:
        """Return the critic's value of each answer token: its output at the token before, on the scale of rewards."""
        values = token_values(self._models.critic, rollout.ids, rollout.mask, self._machine)
        width = rollout.answer.shape[1]
        values = (values[:, -width - 1 : -1] - self.baseline.reward_mean) / self.baseline.reward_deviation
        return values * rollout.answer

    def rewards(self, prompts: Sequence[Prompt], rollout: Rollout) -> Sequence[float]:
        rewards = self._models.reward.score(prompts, rollout.texts)
        if not all(math.isfinite(reward) for reward in rewards):
            raise UsageError("The reward model's score of an answer is not a number; check it, or train it again.")
        return rewards

    def scaled(self, rewards: Sequence[float]) -> Any:
        """Return rewards in standard deviations of the reference's, saturated (a tensor)."""
        raw, limit = torch.tensor(rewards, device=self._machine.device), self._options.reward_range
        if not limit:
            return raw
        return limit * torch.tanh((raw - self.baseline.reward_mean) / self.baseline.reward_deviation / limit)
