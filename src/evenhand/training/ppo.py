"""Proximal policy optimization (Schulman et al., 2017) against the reward model, as RLDF uses it.

Four models take part. The *actor* is trained and begins as the fine-tuned (SFT) policy. The *reference* is that policy,
frozen: the actor with its adapters off (LoRA), or a copy of it. The *reward model* is frozen. The *critic* has weights
of its own and begins as the reward model, whose head it keeps; it predicts, at every token, what is still to come.

One step:
 1. Take a batch of prompts and sample an answer to each from the actor, at its full distribution.
 2. Score whole answers with `RewardModel.score`; one that was cut off before its end pays `no_end_penalty`.
 3. Token rewards: r_t = −β·(log π(y_t) − log π_ref(y_t)), and at the last token the score on top.
 4. Advantages by GAE(γ, λ) from r and the critic's values V; returns R = A + V; advantages are whitened over the batch.
 5. `passes` times: update the actor by max(−A·ρ, −A·clip(ρ, 1−ε, 1+ε)) with ρ = π/π_old, and the critic by half its
    squared error, with V held within ±ε of V_old. The gradients of both are shortened to length 1 and given to AdamW.

Training ends after the prompts were all seen `epochs` times (the paper: once), or before an update whose answers
diverge from the reference by more than `kl_limit` nats on average.

Departures from the paper, which names PPO, the batch size, the learning rate and one epoch: β, ε, γ, λ are DECISIONS';
the number of passes, the critic's learning rate and the penalty for answers without an end are ours.

Relatives (`algorithm`) differ in step 4 alone. They have no critic: an answer's return R is the sum of its r_t, and all
its tokens have the same advantage, not whitened (see `losses`):
 - `rloo`: R less the mean R of the other answers to the prompt, of which several are sampled.
 - `grpo`: R less the mean R of all answers to the prompt, in standard deviations. Its authors have the KL in the loss.
 - `remax`: R less the score of the answer that takes the likeliest token every time.
Like PPO they update by clipped ratios of single tokens, averaged over all tokens of the batch.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from evenhand.errors import UsageError
from evenhand.training import data, losses, models, stage
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.loop import Observer, Order, StopTraining, nobody, step_seed, train
from evenhand.training.losses import torch
from evenhand.training.models import Machine
from evenhand.training.optimizer import Optimizer, Schedule
from evenhand.training.options import PPOOptions
from evenhand.training.reward import RewardModel, token_values
from evenhand.training.rollout import Rollout, Samples, measured, roll_out

_HELD_OUT = 64
"""The most held-out prompts that are answered before and after."""


@dataclass(frozen=True, slots=True)
class Cast:
    """The models that take part."""

    actor: Any
    reference: Any
    """None where the actor without its adapters is the reference."""
    critic: Any
    """None where the algorithm does without."""
    reward: RewardModel

    def as_reference(self) -> tuple[Any, AbstractContextManager[Any]]:
        """The reference, and what must be entered while it computes."""
        return models.as_reference(self.actor, self.reference)


def train_ppo(options: PPOOptions, *, resume: bool = False, observe: Observer = nobody) -> dict[str, Any]:
    """Train a policy against a reward model and return the record of it; `out` can then be used as hf/OUT."""
    files = data.files(options.data, "pairs")
    prompts = data.read_prompts(files.train)
    held_out = data.read_prompts(files.test)[:_HELD_OUT] if files.test else []
    with stage.begun("ppo", options, files.sums(), resume=resume) as run:
        if run.finished:
            return run.record
        cast, chat = gathered(options, run.machine)
        if options.max_new_tokens >= chat.max_length:
            raise UsageError(f"The model takes {chat.max_length} tokens in all; choose a smaller --max-new-tokens.")
        work = PPO(options, cast, chat, prompts, run.machine)
        steps = options.total_steps(len(prompts))
        ended = train(work, options.out, steps=steps, seed=options.seed, save_every=options.save_every, observe=observe)
        results: dict[str, Any] = {"prompts": len(prompts), "steps": steps}
        for name in ("reward", "kl", "length"):
            results |= run.last(name, steps)
        if held_out:
            results |= {"held_out_prompts": len(held_out), **work.before_and_after(held_out)}
        models.save(cast.actor, chat, options.out, run.machine, keep_adapter=options.keep_adapter)
        return run.finish(ended, results)


def gathered(options: PPOOptions, machine: Machine) -> tuple[Cast, Chat]:
    """All models that the options name, each where it begins."""
    reward = RewardModel.load(options.reward, machine, max_length=options.max_length, at_once=options.at_once)
    critic = _critic_of(reward, options.lora) if options.algorithm == "ppo" else None
    actor = models.load_policy(options, machine)
    chat = models.chat_of(options, actor)
    if critic is not None and chat.tokenizer.get_vocab() != reward.chat.tokenizer.get_vocab():
        # The critic reads the actor's tokens.
        raise UsageError("The policy and the reward model have different tokenizers; train both from one base model.")
    cast = Cast(actor, models.reference_of(actor, options.lora), critic, reward)
    for model in (cast.actor, cast.reference, cast.critic, cast.reward.model):
        models.arrange(model, options, machine)
    return cast, chat


def _critic_of(reward: RewardModel, lora: int | None) -> Any:
    critic = copy.deepcopy(reward.model)
    if lora is not None:
        return models.with_adapters(critic, lora, head=models.HEAD)
    return critic.float().requires_grad_(True)


@dataclass(frozen=True, slots=True)
class Experience:
    """A batch of answers, as the models saw them before any update (tensors, answers × tokens)."""

    rollout: Rollout
    logprobs: Any
    advantages: Any
    values: Any = None
    """Like the returns, only where there is a critic."""
    returns: Any = None

    def part(self, rows: Sequence[int]) -> Experience:
        """Some of the answers."""
        tensors = (self.logprobs, self.advantages, self.values, self.returns)
        return Experience(self.rollout.part(rows), *(None if each is None else each[list(rows)] for each in tensors))


class PPO:
    """The steps of the algorithm, for the training loop."""

    def __init__(
        self, options: PPOOptions, cast: Cast, chat: Chat, prompts: Sequence[Prompt], machine: Machine
    ) -> None:
        self._options, self._cast, self._chat = options, cast, chat
        self._prompts, self._machine = prompts, machine
        self._order = Order(len(prompts), options.batch, options.seed)
        self._samples = Samples(options.out)
        self._steps = options.total_steps(len(prompts))
        groups = [(models.trainable(cast.actor, "actor."), options.rate)]
        if cast.critic is not None:
            groups.append((models.trainable(cast.critic, "critic."), options.critic_rate))
        self.optimizer = Optimizer(groups, Schedule(self._steps, falls=False), team=machine.team)

    def step(self, number: int) -> Mapping[str, float]:
        prompts = [self._prompts[i] for i in self._order.rows(number)]
        experience, seen = self._experience(number, prompts)
        if seen["kl"] > self._options.kl_limit:
            raise StopTraining(f"at step {number + 1}, a KL of {seen['kl']:.1f} above the limit")
        updates = [self._update(experience) for _ in range(self._options.passes)]
        return seen | {name: sum(each[name] for each in updates) / len(updates) for name in updates[0]}

    def before_and_after(self, prompts: Sequence[Prompt]) -> dict[str, float]:
        """The mean reward on held-out prompts of the reference and of the actor, with the same random numbers."""
        reference, acting = self._cast.as_reference()
        with acting:
            before = self._mean_score(reference, prompts)
        return {"held_out_reward_before": before, "held_out_reward_after": self._mean_score(self._cast.actor, prompts)}

    @torch.no_grad()
    def _experience(self, number: int, prompts: Sequence[Prompt]) -> tuple[Experience, dict[str, float]]:
        """Steps 1 to 4, and what is worth to be logged of them."""
        o = self._options
        asked = [prompt for prompt in prompts for _ in range(o.per_prompt)]
        started = time.perf_counter()
        rollout = self._rolled_out(self._cast.actor, asked)
        seconds = time.perf_counter() - started
        mask = rollout.answer
        scores, earned = self._scores(asked, rollout)
        logprobs, entropies = self._shared(lambda part: self._measured(self._cast.actor, part), rollout)
        reference, acting = self._cast.as_reference()
        with acting:
            before, _ = self._shared(lambda part: self._measured(reference, part), rollout)
        divergences = ((logprobs - before) * mask).sum(1)
        rewards = losses.token_rewards(earned, logprobs, before, mask, o.beta)
        experience = Experience(rollout, logprobs, *self._advantages(prompts, rollout, rewards))
        seen = {
            "reward": scores.mean(),
            "kl": divergences.mean(),
            "entropy": losses.masked_mean(entropies, mask),
            "no_end": 1 - sum(rollout.ended) / len(rollout.ended),
            "length": mask.sum(1).mean(),
            "tokens": mask.sum(),
            "rollout_seconds": seconds,
        }
        if experience.values is not None:
            seen["values"] = losses.masked_mean(experience.values, mask)
        if self._machine.team.is_main and (self._is_read(number + 1) or seen["kl"] > o.kl_limit):
            ones = slice(None, None, o.per_prompt)  # one answer to each prompt
            found = (scores[ones].tolist(), divergences[ones].tolist())
            self._samples.write(number + 1, prompts, rollout.texts[ones], *found)
        return experience, {name: float(value) for name, value in seen.items()}

    def _advantages(self, prompts: Sequence[Prompt], rollout: Rollout, rewards: Any) -> tuple[Any, Any, Any]:
        """Step 4: advantages and, where there is a critic, its values and the returns that it is to predict."""
        o, mask = self._options, rollout.answer
        if self._cast.critic is not None:
            (values,) = self._shared(lambda part: (self._values(part),), rollout)
            gains = losses.gae(rewards, values, mask, gamma=o.gamma, lam=o.lam)
            return losses.whitened(gains, mask), values, gains + values
        returns = rewards.sum(1)
        if o.algorithm == "rloo":
            gains = losses.leave_one_out(returns, o.per_prompt)
        elif o.algorithm == "grpo":
            gains = losses.group_normalized(returns, o.per_prompt)
        else:
            _, greedy = self._scores(prompts, self._rolled_out(self._cast.actor, prompts, temperature=0))
            gains = losses.over_greedy(returns, greedy)
        return gains[:, None] * mask, None, None

    def _is_read(self, step: int) -> bool:
        """Whether answers of a step (numbered from 1) are kept for reading."""
        return step % (self._options.sample_every or self._options.save_every) == 0 or step == self._steps

    def _update(self, experience: Experience) -> dict[str, float]:
        """Step 5, once; the gradients of the pieces of a batch add up to those of its mean over tokens."""
        tokens = experience.rollout.answer.sum()
        found: dict[str, float] = {}
        for rows, weight in self._machine.team.parts(range(len(experience.logprobs)), self._options.at_once):
            part = experience.part(rows)
            share = part.rollout.answer.sum() / tokens * weight
            loss, measures = self._losses(part)
            (loss * share).backward()
            for name, value in measures.items():
                found[name] = found.get(name, 0.0) + (value.detach() * share).item()
        found = dict(zip(found, self._machine.team.summed(*found.values()), strict=True))
        return {**found, "gradient": self.optimizer.update()}

    def _losses(self, part: Experience) -> tuple[Any, dict[str, Any]]:
        """The loss of all that is trained, and what is logged of it."""
        mask, clip = part.rollout.answer, self._options.clip
        logprobs, _ = self._measured(self._cast.actor, part.rollout)
        loss, held = losses.clipped_policy_loss(logprobs, part.logprobs, part.advantages, mask, clip)
        measures = {"policy_loss": loss, "clip_fraction": held}
        if self._cast.critic is not None:
            values = self._values(part.rollout)
            measures["value_loss"] = losses.clipped_value_loss(values, part.values, part.returns, mask, clip)
            loss = loss + measures["value_loss"]  # actor and critic share no weights, so their losses can be added
        return loss, measures

    def _rolled_out(self, policy: Any, prompts: Sequence[Prompt], temperature: float | None = None) -> Rollout:
        if temperature is None:
            temperature = self._options.temperature
        longest = self._options.max_new_tokens
        return roll_out(policy, self._chat, prompts, self._machine, longest=longest, temperature=temperature)

    def _shared(self, compute: Callable[[Rollout], tuple[Any, ...]], rollout: Rollout) -> tuple[Any, ...]:
        """What is computed for all answers, by each process for its own."""
        team, count = self._machine.team, len(rollout.texts)
        found = [compute(rollout.part(rows)) for rows in stage.parts(team.rows(count), self._options.at_once)]
        return team.gathered(count, *(torch.cat(each) for each in zip(*found, strict=True)))

    def _measured(self, policy: Any, rollout: Rollout) -> tuple[Any, Any]:
        return measured(policy, rollout, self._machine, self._options.temperature)

    def _values(self, rollout: Rollout) -> Any:
        """What the critic expects from each answer token on: its value at the token before."""
        values = token_values(self._cast.critic, rollout.ids, rollout.mask, self._machine)
        width = rollout.answer.shape[1]
        return values[:, -width - 1 : -1] * rollout.answer

    def _scores(self, prompts: Sequence[Prompt], rollout: Rollout) -> tuple[Any, Any]:
        """Step 2: what the reward model says, and what of it is earned."""
        found = self._cast.reward.score(prompts, rollout.texts)
        if not all(math.isfinite(score) for score in found):
            raise UsageError("The reward model gave an answer no number; check it, or train it again.")
        scores = torch.tensor(found, device=self._machine.device)
        ended = torch.tensor(rollout.ended, device=self._machine.device)
        return scores, scores - self._options.no_end_penalty * ~ended

    def _mean_score(self, policy: Any, prompts: Sequence[Prompt]) -> float:
        torch.manual_seed(step_seed(self._options.seed, 0))
        scores: list[float] = []
        for part in stage.parts(prompts, self._options.batch):
            scores += self._scores(part, self._rolled_out(policy, part))[0].tolist()
        return sum(scores) / len(scores)
