"""Samples answers, and computes what the models of PPO say of them: log probabilities, values and rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from evenhand.core.errors import UsageError
from evenhand.training import stage
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.drift import Measures
from evenhand.training.losses import torch
from evenhand.training.models import Machine
from evenhand.training.options import PPOOptions
from evenhand.training.ppo.loaded import PPOModels
from evenhand.training.reward import token_values
from evenhand.training.rollout import Rollout, logprobs_and_entropies, roll_out


@dataclass(frozen=True, slots=True)
class Baseline:
    """What was measured on the reference's answers before the first step."""

    reward_mean: float = 0.0
    reward_deviation: float = 1.0
    checked: Measures | None = None
    """Of its answers to the prompts of the checks."""


class Assessor:
    """Answers of a policy, and what the models say of them."""

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

    def all_logprobs(self, policy: Any, rollout: Rollout) -> tuple[Any, ...]:
        """Return the log probabilities and the entropies of all answers under a policy."""
        return self.for_all(lambda part: self.logprobs(policy, part), rollout)

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
