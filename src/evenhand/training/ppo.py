"""Proximal policy optimization (Schulman et al., 2017) against the reward model, as RLDF uses it.

Four models take part:
 - The *actor* is trained. It starts as the fine-tuned (SFT) policy.
 - The *reference* is the frozen SFT policy: the actor with its adapters off (LoRA), or a copy of it.
 - The *reward model* is frozen. In its place any `Reward` may score answers, for example a grader that knows them.
 - The *critic* has its own weights. It starts as the reward model with its head and predicts the return at every token.

One step:
 1. Take a batch of prompts and sample an answer to each from the actor's full distribution.
 2. Score the answers with `RewardModel.score`; subtract `missing_eos_penalty` from answers that were truncated.
 3. Token rewards: r_t = −β·(log π(y_t) − log π_ref(y_t)), β the KL coefficient, plus the score at the last token.
 4. Advantages by GAE(γ, λ) from r and the critic's values V; returns R = A + V; whiten the advantages over the batch.
 5. `ppo_epochs` times: update the actor by max(−A·ρ, −A·clip(ρ, 1−ε, 1+ε)) with ρ = π/π_old, and the critic by half its
    squared error, with V clipped to within ±ε of V_old. Clip both gradients to norm 1; AdamW.

Training ends after `epochs` passes over the prompts (the paper: one), or before an update whose answers have a mean KL
divergence from the reference above `kl_limit` nats.

The paper names PPO, the batch size, the learning rate and one epoch. These values are ours:
 - β, ε, γ and λ;
 - the number of PPO epochs and the critic's learning rate;
 - the penalty for truncated answers.

Variants (`algorithm`) differ in steps 3 and 4. They have no critic: the return R of an answer is the sum of its r_t,
and all its tokens share one advantage, which is not whitened (see `losses`):
 - `rloo`: R minus the mean R of the other answers to the prompt.
 - `grpo`: R minus the mean R of all answers to the prompt, in standard deviations.
 - `remax`: R minus the score of the greedy answer.
Like PPO they clip the ratio of each token and average over all tokens of the batch. Their KL is a term of the loss, β
times the mean of the estimate k3 over tokens: summed into R it would make short answers cheap (`kl_in`). Answers
without an advantage, for example because all answers to the prompt earn the same, are left out of the update; the
metric `informative` is the share of the others.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from evenhand.errors import UsageError
from evenhand.training import data, losses, models, stage
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.loop import BatchSampler, Observer, StopTraining, nobody, step_seed, train
from evenhand.training.losses import torch
from evenhand.training.models import Machine
from evenhand.training.optimizer import Optimizer, Schedule
from evenhand.training.options import PPOOptions
from evenhand.training.reward import RewardModel, token_values
from evenhand.training.rollout import Rollout, SampleLog, logprobs_and_entropies, roll_out

_HELD_OUT = 64
"""The maximum number of held-out prompts that are answered before and after training."""
_NO_ADVANTAGE = 1e-6
"""Smaller advantages are rounding."""


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


def train_ppo(options: PPOOptions, *, resume: bool = False, observe: Observer = nobody) -> dict[str, Any]:
    """Train a policy against a reward model and return the training's record; `out` can then be used as hf/OUT."""
    files = data.find_files(options.data, "pairs")
    prompts = data.read_prompts(files.train)
    held_out = data.read_prompts(files.test)[:_HELD_OUT] if files.test else []
    with stage.training_run("ppo", options, files.checksums(), resume=resume) as run:
        if run.finished:
            return run.record
        loaded, chat = load_models(options, run.machine)
        models.check_room(chat, options.max_new_tokens)
        trainer = PPOTrainer(options, loaded, chat, prompts, run.machine)
        steps = options.total_steps(len(prompts))
        ended = train(
            trainer, options.out, steps=steps, seed=options.seed, save_every=options.save_every, observe=observe
        )
        results: dict[str, Any] = {"prompts": len(prompts), "steps": steps}
        for metric in ("reward", "kl", "length"):
            results |= run.first_and_last(metric, steps)
        if held_out:
            results |= {"held_out_prompts": len(held_out), **trainer.before_and_after(held_out)}
        models.save(loaded.actor, chat, options.out, run.machine, keep_adapter=options.keep_adapter)
        return run.finish(ended, results)


def load_models(options: PPOOptions, machine: Machine) -> tuple[PPOModels, Chat]:
    """Load all models that the options name, and the actor's tokenizer."""
    reward = RewardModel.load(options.reward, machine, max_length=options.max_length, batch=options.answers_at_once)
    critic = _critic_of(reward, options.lora) if options.algorithm == "ppo" else None
    actor = models.load_policy(options, machine)
    chat = models.chat_of(options, actor)
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
class Experience:
    """A batch of answers with what the models computed before the first update (tensors, answers × tokens)."""

    rollout: Rollout
    logprobs: Any
    advantages: Any
    values: Any = None
    """None, like the returns, without a critic."""
    returns: Any = None
    reference_logprobs: Any = None

    def select(self, rows: Sequence[int]) -> Experience:
        """Return some of the answers."""
        tensors = (self.logprobs, self.advantages, self.values, self.returns, self.reference_logprobs)
        return Experience(self.rollout.select(rows), *(None if each is None else each[list(rows)] for each in tensors))


class PPOTrainer:
    """The steps of the algorithm, for the training loop."""

    def __init__(
        self, options: PPOOptions, loaded: PPOModels, chat: Chat, prompts: Sequence[Prompt], machine: Machine
    ) -> None:
        self._options, self._models, self._chat = options, loaded, chat
        self._prompts, self._machine = prompts, machine
        self._sampler = BatchSampler(len(prompts), options.batch, options.seed)
        self._samples = SampleLog(options.out)
        self._steps = options.total_steps(len(prompts))
        groups = [(models.trainable(loaded.actor, "actor."), options.lr)]
        if loaded.critic is not None:
            groups.append((models.trainable(loaded.critic, "critic."), options.critic_lr))
        self.optimizer = Optimizer(groups, Schedule(self._steps, decays=False), team=machine.team)

    def step(self, number: int) -> Mapping[str, float]:
        prompts = [self._prompts[i] for i in self._sampler.rows(number)]
        experience, metrics = self._experience(number, prompts)
        if metrics["kl"] > self._options.kl_limit:
            raise StopTraining(f"at step {number + 1}, a KL of {metrics['kl']:.1f} above the limit")
        if self._models.critic is None:
            informative: list[int] = (experience.advantages.abs() > _NO_ADVANTAGE).any(1).nonzero().flatten().tolist()
            metrics["informative"] = len(informative) / len(experience.advantages)
            if not informative:
                return metrics
            experience = experience.select(informative)
        updates = [self._update(experience) for _ in range(self._options.ppo_epochs)]
        return metrics | {name: sum(each[name] for each in updates) / len(updates) for name in updates[0]}

    def before_and_after(self, prompts: Sequence[Prompt]) -> dict[str, float]:
        """Return the mean reward of reference and actor on held-out prompts, with the same random numbers."""
        with self._models.as_reference() as reference:
            before = self._mean_score(reference, prompts)
        after = self._mean_score(self._models.actor, prompts)
        return {"held_out_reward_before": before, "held_out_reward_after": after}

    @torch.no_grad()
    def _experience(self, number: int, prompts: Sequence[Prompt]) -> tuple[Experience, dict[str, float]]:
        """Do steps 1 to 4; return the experience and its metrics."""
        o = self._options
        repeated = [prompt for prompt in prompts for _ in range(o.answers_per_prompt)]
        started = time.perf_counter()
        rollout = self._roll_out(self._models.actor, repeated)
        seconds = time.perf_counter() - started
        mask = rollout.answer
        scores, penalized = self._scores(repeated, rollout)
        logprobs, entropies = self._for_all(lambda part: self._logprobs(self._models.actor, part), rollout)
        with self._models.as_reference() as reference:
            reference_logprobs, _ = self._for_all(lambda part: self._logprobs(reference, part), rollout)
        divergences = ((logprobs - reference_logprobs) * mask).sum(1)
        kl_coefficient = 0.0 if o.kl_in_loss else o.kl_coefficient
        rewards = losses.token_rewards(penalized, logprobs, reference_logprobs, mask, kl_coefficient)
        experience = Experience(rollout, logprobs, *self._advantages(prompts, rollout, rewards), reference_logprobs)
        metrics = {
            "reward": scores.mean(),
            "kl": divergences.mean(),
            "entropy": losses.masked_mean(entropies, mask),
            "missing_eos": 1 - sum(rollout.ended) / len(rollout.ended),
            "length": mask.sum(1).mean(),
            "tokens": mask.sum(),
            "rollout_seconds": seconds,
        }
        if experience.values is not None:
            metrics["values"] = losses.masked_mean(experience.values, mask)
        if self._machine.team.is_main and (self._is_sampled(number + 1) or metrics["kl"] > o.kl_limit):
            first = slice(None, None, o.answers_per_prompt)  # the first answer to each prompt
            columns = (scores[first].tolist(), divergences[first].tolist())
            self._samples.write(number + 1, prompts, rollout.texts[first], *columns)
        return experience, {name: float(value) for name, value in metrics.items()}

    def _advantages(self, prompts: Sequence[Prompt], rollout: Rollout, rewards: Any) -> tuple[Any, Any, Any]:
        """Do step 4: return the advantages and, with a critic, its values and the returns it should predict."""
        o, mask = self._options, rollout.answer
        if self._models.critic is not None:
            (values,) = self._for_all(lambda part: (self._values(part),), rollout)
            advantages = losses.gae(rewards, values, mask, gamma=o.gamma, lam=o.lam)
            return losses.whitened(advantages, mask), values, advantages + values
        returns = rewards.sum(1)
        if o.algorithm == "rloo":
            advantages = losses.leave_one_out(returns, o.answers_per_prompt)
        elif o.algorithm == "grpo":
            advantages = losses.group_normalized(returns, o.answers_per_prompt)
        else:
            _, greedy = self._scores(prompts, self._roll_out(self._models.actor, prompts, temperature=0))
            advantages = losses.over_greedy(returns, greedy)
        return advantages[:, None] * mask, None, None

    def _is_sampled(self, step: int) -> bool:
        """Whether answers of a step (numbered from 1) are written to samples.jsonl."""
        return step % (self._options.sample_every or self._options.save_every) == 0 or step == self._steps

    def _update(self, experience: Experience) -> dict[str, float]:
        """Do one PPO epoch (step 5): accumulate the gradients of the mean loss per token, then update."""
        team, tokens = self._machine.team, experience.rollout.answer.sum()
        metrics: dict[str, float] = {}
        for rows, weight in team.micro_batches(range(len(experience.logprobs)), self._options.answers_at_once):
            micro_batch = experience.select(rows)
            share = micro_batch.rollout.answer.sum() / tokens * weight
            loss, measures = self._losses(micro_batch)
            (loss * share).backward()
            for name, value in measures.items():
                metrics[name] = metrics.get(name, 0.0) + (value.detach() * share).item()
        metrics = dict(zip(metrics, team.all_sum(*metrics.values()), strict=True))
        return {**metrics, "grad_norm": self.optimizer.update()}

    def _losses(self, micro_batch: Experience) -> tuple[Any, dict[str, Any]]:
        """Return the loss of actor and critic, and its metrics."""
        mask, clip = micro_batch.rollout.answer, self._options.clip
        logprobs, _ = self._logprobs(self._models.actor, micro_batch.rollout)
        loss, clip_fraction = losses.clipped_policy_loss(
            logprobs, micro_batch.logprobs, micro_batch.advantages, mask, clip
        )
        metrics = {"policy_loss": loss, "clip_fraction": clip_fraction}
        if self._options.kl_in_loss:
            estimates = losses.kl_estimates(logprobs, micro_batch.reference_logprobs)
            metrics["kl_loss"] = self._options.kl_coefficient * losses.masked_mean(estimates, mask)
            loss = loss + metrics["kl_loss"]
        if self._models.critic is not None:
            values = self._values(micro_batch.rollout)
            metrics["value_loss"] = losses.clipped_value_loss(
                values, micro_batch.values, micro_batch.returns, mask, clip
            )
            loss = loss + metrics["value_loss"]  # actor and critic share no weights, so their losses can be added
        return loss, metrics

    def _roll_out(self, policy: Any, prompts: Sequence[Prompt], temperature: float | None = None) -> Rollout:
        o = self._options
        if temperature is None:
            temperature = o.temperature
        return roll_out(
            policy, self._chat, prompts, self._machine, max_new_tokens=o.max_new_tokens, temperature=temperature
        )

    def _for_all(self, compute: Callable[[Rollout], tuple[Any, ...]], rollout: Rollout) -> tuple[Any, ...]:
        """Compute tensors for all answers: each process for its own rows, in micro-batches; then gather them."""
        team, count = self._machine.team, len(rollout.texts)
        chunks = stage.chunks(team.own_rows(count), self._options.answers_at_once)
        computed = [compute(rollout.select(rows)) for rows in chunks]
        return team.all_gather(count, *(torch.cat(each) for each in zip(*computed, strict=True)))

    def _logprobs(self, policy: Any, rollout: Rollout) -> tuple[Any, Any]:
        return logprobs_and_entropies(policy, rollout, self._machine, self._options.temperature)

    def _values(self, rollout: Rollout) -> Any:
        """Return the critic's value of each answer token: its output at the token before."""
        values = token_values(self._models.critic, rollout.ids, rollout.mask, self._machine)
        width = rollout.answer.shape[1]
        return values[:, -width - 1 : -1] * rollout.answer

    def _scores(self, prompts: Sequence[Prompt], rollout: Rollout) -> tuple[Any, Any]:
        """Do step 2: return the scores of the answers without and with the penalty for truncation."""
        rewards = self._models.reward.score(prompts, rollout.texts)
        if not all(math.isfinite(reward) for reward in rewards):
            raise UsageError("The reward model's score of an answer is not a number; check it, or train it again.")
        scores = torch.tensor(rewards, device=self._machine.device)
        ended = torch.tensor(rollout.ended, device=self._machine.device)
        return scores, scores - self._options.missing_eos_penalty * ~ended

    def _mean_score(self, policy: Any, prompts: Sequence[Prompt]) -> float:
        torch.manual_seed(step_seed(self._options.seed, 0))
        scores: list[float] = []
        for chunk in stage.chunks(prompts, self._options.batch):
            scores += self._scores(chunk, self._roll_out(policy, chunk))[0].tolist()
        return sum(scores) / len(scores)
