"""Proximal policy optimization (Schulman et al., 2017) against the reward model, as RLDF uses it.

Four models take part:
 - The *actor* is trained. It starts as the fine-tuned (SFT) policy.
 - The *reference* is the frozen SFT policy: the actor with its adapters off (LoRA), or a copy of it.
 - The *reward model* is frozen. In its place any `Reward` may score answers, for example a grader that knows them.
 - The *critic* has its own weights. It starts as the reward model with its head and predicts the return at every token.

Before the first step the reference answers some training prompts. The mean and the standard deviation (SD) of the
rewards of its finished answers are the scale of all rewards: r → k·tanh((r − mean) / (k·SD)), k = `reward_range`.

One step:
 1. Take a batch of prompts and sample an answer to each from the actor's full distribution.
 2. Score the answers with `RewardModel.score`, on that scale. Leave out truncated answers: their end is not known.
 3. Token rewards r_t: the score at the last token, 0 elsewhere.
 4. Advantages by GAE(γ, λ) from r and the critic's values V; returns are sums of rewards. Center the advantages over
    the batch, and scale them down if their SD is above 1.
 5. `ppo_epochs` times, in mini-batches: update the actor by max(−A·ρ, −A·clip(ρ, 1−ε, 1+ε)) with ρ = π/π_old, plus β
    times the estimate k3 of the KL divergence from the reference, both averaged over tokens; and the critic by half its
    squared error, with V clipped to within ± `value_clip` of V_old. Clip both gradients to norm 1; AdamW.
The first `critic_warmup` steps update only the critic.

Training ends after `epochs` passes over the prompts (the paper: one). Before every checkpoint the actor answers some
held-out prompts that the reference has answered too. If its answers have drifted too far (`drift`), training ends, and
the weights are those of the checkpoint before. With `choose_by` they are those that a scorer likes best.

The paper names PPO, the batch size (here of an update), the learning rate and one epoch. The other values are ours. So
are these choices, without which a constant reward shortens the answers (tests/training/test_null_rewards.py):
 - λ is 1. Below 1, a critic that expects less than the reward gives the last token the largest advantage.
 - The KL is counted per token in the loss. Summed in the reward (`kl_in`), it makes short answers cheap.
 - Advantages are not scaled up to an SD of 1, since that turns the noise of equal rewards into learning.
 - Truncated answers are left out. A penalty would teach to be short wherever the limit is too low.

Variants (`algorithm`) differ in step 4. They have no critic: the return R of an answer is the sum of its r_t, and all
its tokens share one advantage, which is neither centered nor scaled (see `losses`):
 - `rloo`: R minus the mean R of the other answers to the prompt.
 - `grpo`: R minus the mean R of all answers to the prompt, in standard deviations.
 - `remax`: R minus the score of the greedy answer.
Answers without an advantage, for example because all answers to the prompt earn the same, are left out of the update,
like truncated ones; the metric `informative` is the share of the others.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

from evenhand.errors import UsageError
from evenhand.training import data, drift, losses, models, stage
from evenhand.training.chat import Chat
from evenhand.training.choosing import Chooser
from evenhand.training.data import Prompt
from evenhand.training.drift import Measures
from evenhand.training.loop import BatchSampler, Check, Ended, Observer, batches, nobody, read_metrics, step_seed, train
from evenhand.training.losses import torch
from evenhand.training.models import Machine
from evenhand.training.optimizer import Optimizer, Schedule
from evenhand.training.options import PPOOptions
from evenhand.training.parallel import full_tensor
from evenhand.training.replicas import Answers, Load, RolloutReplicas, Sampling
from evenhand.training.reward import RewardModel, token_values
from evenhand.training.rollout import Rollout, SampleLog, logprobs_and_entropies, roll_out

REFERENCE = "reference.json"
_MEASURED = 64
"""Answers of the reference that give the scale of the rewards, and answers to held-out prompts before a checkpoint."""
_NO_ADVANTAGE = 1e-6
"""Smaller advantages are rounding."""
_NO_DEVIATION = 1e-6
"""Smaller standard deviations are rounding."""
_ADAPTATION = 0.2
"""The largest relative change of β after a step."""


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
    held_out = data.read_prompts(files.test) if files.test else []
    with stage.training_run("ppo", options, files.checksums(), resume=resume) as run:
        if run.finished:
            return run.record
        loaded, chat = load_models(options, run.machine)
        models.check_room(chat, options.max_new_tokens)
        trainer = PPOTrainer(options, loaded, chat, prompts, run.machine, held_out, partial(load_actor, options))
        ended, results = trainer.train(run, resume=resume, observe=observe)
        models.save(loaded.actor, chat, options.out, run.machine, keep_adapter=options.keep_adapter)
        return run.finish(ended, results)


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
class Experience:
    """A batch of answers with what the models computed before the first update (tensors, answers × tokens)."""

    rollout: Rollout
    logprobs: Any
    reference_logprobs: Any
    advantages: Any
    values: Any = None
    """None, like the returns, without a critic."""
    returns: Any = None

    def select(self, rows: Sequence[int]) -> Experience:
        """Return some of the answers."""
        tensors = (self.logprobs, self.reference_logprobs, self.advantages, self.values, self.returns)
        return Experience(self.rollout.select(rows), *(None if each is None else each[list(rows)] for each in tensors))


@dataclass(frozen=True, slots=True)
class Baseline:
    """What was measured on the reference's answers before the first step."""

    reward_mean: float = 0.0
    reward_deviation: float = 1.0
    checked: Measures | None = None
    """Of its answers to the prompts of the checks."""


class PPOTrainer:
    """The steps of the algorithm, for the training loop."""

    def __init__(
        self,
        options: PPOOptions,
        loaded: PPOModels,
        chat: Chat,
        prompts: Sequence[Prompt],
        machine: Machine,
        held_out: Sequence[Prompt] = (),
        load: Load | None = None,
    ) -> None:
        """`load` loads the actor anew, for replicas."""
        self._load = load
        self._replicas: RolloutReplicas | None = None
        self._options, self._models, self._chat = options, loaded, chat
        self._prompts, self._held_out, self._machine = prompts, held_out, machine
        self._baseline = Baseline()
        self._chooser: Chooser | None = None
        self._sampler = BatchSampler(len(prompts), options.batch, options.seed)
        self._samples = SampleLog(options.out)
        self._steps = options.total_steps(len(prompts))
        groups = [(models.trainable(loaded.actor, "actor."), options.lr)]
        if loaded.critic is not None:
            groups.append((models.trainable(loaded.critic, "critic."), options.critic_lr))
        self.optimizer = Optimizer(groups, Schedule(self._steps, decays=False), team=machine.team)
        self.optimizer.kept["kl_coefficient"] = torch.tensor(options.kl_coefficient, dtype=torch.float64)

    def train(self, run: stage.Run, *, resume: bool, observe: Observer) -> tuple[Ended, dict[str, Any]]:
        """Take all steps; return how the training ended and its results."""
        o = self._options
        arguments: dict[str, Any] = {"steps": self._steps, "seed": o.seed, "save_every": o.save_every}
        with contextlib.ExitStack() as stack:
            if o.choose_by and self._machine.team.is_main:
                self._chooser = stack.enter_context(contextlib.closing(Chooser(o.choose_by)))
            if o.rollout_replicas and self._load and self._machine.team.is_main:
                made = RolloutReplicas(self._load, o.rollout_replicas, self._machine, o.staleness or 0)
                self._replicas = stack.enter_context(contextlib.closing(made))
            self.measure_reference(resume=resume)
            ended = train(self, o.out, **arguments, observe=observe, check=self.check)
        results: dict[str, Any] = {"prompts": len(self._prompts), "steps": self._steps, "kept_step": ended.step}
        results |= {"held_out_prompts": len(self._held_out)} if self._held_out else {}
        for metric in ("reward", "informative", "missing_eos", "kl", "length"):
            results |= run.first_and_last(metric, ended.step)
        lines = {line["step"]: line for line in read_metrics(o.out)}
        before = self._baseline.checked.as_metrics() if self._baseline.checked else {}
        after = lines.get(ended.step, before)
        for name in ("reward", "score") if self._held_out else ():
            if (metric := f"check_{name}") in before:
                results |= {f"held_out_{name}_before": before[metric], f"held_out_{name}_after": after[metric]}
        return ended, results

    def step(self, number: int) -> Mapping[str, float]:
        o = self._options
        prompts = [self._prompts[i] for i in self._sampler.rows(number)]
        experience, metrics = self._experience(number, prompts)
        rows = self._informative(experience)
        metrics["informative"] = len(rows) / len(experience.advantages)
        updates = [
            self._update(experience.select(part), only_critic=number < o.critic_steps(self._steps))
            for _ in range(o.ppo_epochs if rows else 0)
            for part in self._mini_batches(rows)
        ]
        if updates:
            metrics |= {name: sum(each[name] for each in updates) / len(updates) for name in updates[0]}
        if o.kl_target is not None:
            metrics["kl_coefficient"] = self._kl_coefficient
            excess = max(-1.0, min(1.0, metrics["kl_per_token"] / o.kl_target - 1))
            self.optimizer.kept["kl_coefficient"] *= 1 + _ADAPTATION * excess
        return metrics

    @property
    def _kl_coefficient(self) -> float:
        return float(self.optimizer.kept["kl_coefficient"])

    @torch.no_grad()
    def measure_reference(self, *, resume: bool) -> None:
        """Measure the reference's answers, or read what was measured when the training began."""
        o, team = self._options, self._machine.team
        path = o.out / REFERENCE
        if resume and path.is_file():
            stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            checked = Measures(**stored.pop("checked"))
            self._baseline = Baseline(**stored, checked=checked)
            return
        torch.manual_seed(step_seed(o.seed, self._steps))
        if o.reward_range:
            with self._models.as_reference() as reference:
                mean, deviation = self._reward_scale(reference)
            self._baseline = Baseline(mean, deviation)
        self._baseline = replace(self._baseline, checked=self._measured(self._models.as_reference))
        text = json.dumps(asdict(self._baseline), indent=2) + "\n"
        team.on_main(lambda: path.write_text(text, encoding="utf-8"))

    @torch.no_grad()
    def check(self, done: int) -> Check:
        """Measure the actor's answers to held-out prompts, for the training loop."""
        reference = self._baseline.checked
        assert reference is not None
        if done == 0:
            return Check(score=reference.score)
        measures = self._measured(lambda: contextlib.nullcontext(self._models.actor))
        breach = drift.breach(measures, reference, self._options) if self._options.drift_limits else None
        return Check(measures.as_metrics(), breach, measures.score)

    def _reward_scale(self, reference: Any) -> tuple[float, float]:
        """Return the mean and the standard deviation of the rewards of the reference's finished answers."""
        rewards: list[tuple[float, bool]] = []
        for chunk in self._measuring_chunks(self._prompts):
            rollout = self._roll_out(reference, chunk)
            rewards += zip(self._rewards(chunk, rollout), rollout.ended, strict=True)
        finished = [reward for reward, ended in rewards if ended]
        counted = finished if len(finished) > 1 else [reward for reward, _ in rewards]
        deviation, mean = torch.std_mean(torch.tensor(counted, dtype=torch.float64))
        return float(mean), float(deviation) if deviation > _NO_DEVIATION else 1.0

    def _measured(self, as_policy: Callable[[], AbstractContextManager[Any]]) -> Measures:
        """Measure a policy's answers to held-out prompts, always with the same random numbers."""
        o = self._options
        torch.manual_seed(step_seed(o.seed, self._steps))
        texts: list[str] = []
        rewards: list[float] = []
        tokens = entropy = kl = ended = 0.0
        prompts: list[Prompt] = []
        for chunk in self._measuring_chunks(self._held_out or self._prompts):
            with as_policy() as policy:
                rollout = self._roll_out(policy, chunk)
                logprobs, entropies = self._for_all(lambda part, p=policy: self._logprobs(p, part), rollout)
            with self._models.as_reference() as reference:
                references, _ = self._for_all(lambda part, p=reference: self._logprobs(p, part), rollout)
            prompts += chunk
            texts += rollout.texts
            rewards += self._rewards(chunk, rollout)
            tokens += float(rollout.answer.sum())
            entropy += float((entropies * rollout.answer).sum())
            kl += float(((logprobs - references) * rollout.answer).sum())
            ended += sum(rollout.ended)
        count = len(texts)
        return Measures(
            length=tokens / count,
            entropy=entropy / tokens,
            kl=kl / tokens,
            openings=drift.most_frequent_opening(texts),
            unfinished=1 - ended / count,
            reward=sum(rewards) / count,
            score=self._score(prompts, texts),
        )

    def _measuring_chunks(self, prompts: Sequence[Prompt]) -> Iterator[Sequence[Prompt]]:
        """Yield a fixed choice of prompts, as many at once as in a step."""
        generator = torch.Generator().manual_seed(step_seed(self._options.seed, 0))
        order: list[int] = torch.randperm(len(prompts), generator=generator).tolist()
        chosen = [prompts[order[i % len(order)]] for i in range(_MEASURED)]
        return stage.chunks(chosen, max(16, self._options.batch * self._options.answers_per_prompt))

    def _score(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> float | None:
        """Return what the scorer of `choose_by` says, which only the main process asks."""
        chooser = self._chooser
        return self._machine.team.on_main(lambda: None if chooser is None else chooser.rate(prompts, answers))

    @torch.no_grad()
    def _experience(self, number: int, prompts: Sequence[Prompt]) -> tuple[Experience, dict[str, float]]:
        """Do steps 1 to 4; return the experience and its metrics."""
        o = self._options
        repeated = self._repeated(prompts)
        started = time.perf_counter()
        answers = self._from_replicas(number) if o.rollout_replicas and self._load else None
        rollout = answers.rollout if answers else self._roll_out(self._models.actor, repeated)
        seconds = time.perf_counter() - started
        mask = rollout.answer
        rewards = self._rewards(repeated, rollout)
        logprobs, entropies = self._for_all(lambda part: self._logprobs(self._models.actor, part), rollout)
        with self._models.as_reference() as reference:
            reference_logprobs, _ = self._for_all(lambda part: self._logprobs(reference, part), rollout)
        divergences = ((logprobs - reference_logprobs) * mask).sum(1)
        kl_coefficient = 0.0 if o.kl_in == "loss" else self._kl_coefficient
        token_rewards = losses.token_rewards(self._scaled(rewards), logprobs, reference_logprobs, mask, kl_coefficient)
        sampled = logprobs if answers is None or answers.logprobs is None else answers.logprobs
        experience = Experience(
            rollout, sampled, reference_logprobs, *self._advantages(prompts, rollout, token_rewards)
        )
        metrics = {
            "reward": sum(rewards) / len(rewards),
            "kl": divergences.mean(),
            "kl_per_token": divergences.sum() / mask.sum(),
            "entropy": losses.masked_mean(entropies, mask),
            "missing_eos": 1 - sum(rollout.ended) / len(rollout.ended),
            "openings": drift.most_frequent_opening(rollout.texts),
            "length": mask.sum(1).mean(),
            "tokens": mask.sum(),
            "rollout_seconds": seconds,
        }
        if answers is not None:
            metrics["staleness"] = answers.staleness
        if experience.values is not None:
            metrics["values"] = losses.masked_mean(experience.values, mask)
        if self._machine.team.is_main and self._is_sampled(number + 1):
            first = slice(None, None, o.answers_per_prompt)  # the first answer to each prompt
            columns = (rewards[first], divergences[first].tolist())
            self._samples.write(number + 1, prompts, rollout.texts[first], *columns)
        return experience, {name: float(value) for name, value in metrics.items()}

    def _repeated(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        return [prompt for prompt in prompts for _ in range(self._options.answers_per_prompt)]

    def _from_replicas(self, number: int) -> Answers:
        """Send the weights to the replicas and take the answers of a step from them."""
        o, device = self._options, self._machine.device
        weights = {
            name: full_tensor(each.detach()).cpu() for name, each in models.trainable(self._models.actor).items()
        }
        how = Sampling(o.max_new_tokens, o.temperature, o.answers_at_once if o.staleness else 0)

        def ask() -> Answers:
            assert self._replicas is not None
            return self._replicas.answers(
                number,
                self._steps - 1,
                weights,
                lambda step: self._repeated([self._prompts[i] for i in self._sampler.rows(step)]),
                lambda step: step_seed(o.seed, step),
                how,
                self._chat.tokenizer.pad_token_id,
            )

        answers = self._machine.team.on_main(ask)
        torch.set_rng_state(answers.random_state)
        logprobs = None if answers.logprobs is None else answers.logprobs.to(device)
        return replace(answers, rollout=answers.rollout.to(device), logprobs=logprobs)

    def _advantages(self, prompts: Sequence[Prompt], rollout: Rollout, rewards: Any) -> tuple[Any, Any, Any]:
        """Do step 4: return the advantages and, with a critic, its values and the returns it should predict."""
        o, mask = self._options, rollout.answer
        ended = torch.tensor(rollout.ended, device=mask.device)
        if self._models.critic is not None:
            (values,) = self._for_all(lambda part: (self._values(part),), rollout)
            advantages = losses.gae(rewards, values, mask, gamma=o.gamma, lam=o.lam)
            advantages = losses.centered(advantages, mask * ended[:, None])
            return advantages, values, losses.returns(rewards, mask, gamma=o.gamma)
        returns = rewards.sum(1)
        if o.algorithm == "remax":
            greedy = self._roll_out(self._models.actor, prompts, temperature=0)
            ended &= torch.tensor(greedy.ended, device=mask.device)
            advantages = losses.over_greedy(returns, self._scaled(self._rewards(prompts, greedy))) * ended
        else:
            returns = losses.unfinished_as_mean(returns, ended, o.answers_per_prompt)
            estimate = losses.leave_one_out if o.algorithm == "rloo" else losses.group_normalized
            advantages = estimate(returns, o.answers_per_prompt)
        return advantages[:, None] * mask, None, None

    def _informative(self, experience: Experience) -> list[int]:
        """Return the answers to learn from: those that have ended and, without a critic, have an advantage."""
        if self._models.critic is not None:
            return [i for i, ended in enumerate(experience.rollout.ended) if ended]
        return (experience.advantages.abs() > _NO_ADVANTAGE).any(1).nonzero().flatten().tolist()

    def _mini_batches(self, rows: Sequence[int]) -> list[Sequence[int]]:
        """Split answers into mini-batches, in a random order."""
        size = self._options.answers_per_update
        if len(rows) <= size:
            return [rows]
        order: list[int] = torch.randperm(len(rows)).tolist()
        return batches([rows[i] for i in order], size)

    def _is_sampled(self, step: int) -> bool:
        """Whether answers of a step (numbered from 1) are written to samples.jsonl."""
        return step % (self._options.sample_every or self._options.save_every) == 0 or step == self._steps

    def _update(self, experience: Experience, *, only_critic: bool) -> dict[str, float]:
        """Do one update (step 5): accumulate the gradients of the mean loss per token, then update."""
        team, tokens = self._machine.team, experience.rollout.answer.sum()
        metrics: dict[str, float] = {}
        for rows, weight in team.micro_batches(range(len(experience.logprobs)), self._options.answers_at_once):
            micro_batch = experience.select(rows)
            share = micro_batch.rollout.answer.sum() / tokens * weight
            measures = self._critic_loss(micro_batch) | ({} if only_critic else self._actor_losses(micro_batch))
            # Actor and critic share no weights, so their losses can be added.
            loss = sum(value for name, value in measures.items() if name.endswith("_loss"))
            (loss * share).backward()
            for name, value in measures.items():
                metrics[name] = metrics.get(name, 0.0) + (value.detach() * share).item()
        metrics = dict(zip(metrics, team.all_sum(*metrics.values()), strict=True))
        return {**metrics, "grad_norm": self.optimizer.update()}

    def _actor_losses(self, micro_batch: Experience) -> dict[str, Any]:
        mask = micro_batch.rollout.answer
        logprobs, _ = self._logprobs(self._models.actor, micro_batch.rollout)
        loss, clip_fraction = losses.clipped_policy_loss(
            logprobs, micro_batch.logprobs, micro_batch.advantages, mask, self._options.clip
        )
        if self._options.kl_in == "reward":
            return {"policy_loss": loss, "clip_fraction": clip_fraction}
        estimates = losses.kl_estimates(logprobs, micro_batch.reference_logprobs)
        kl_loss = self._kl_coefficient * losses.masked_mean(estimates, mask)
        return {"policy_loss": loss, "clip_fraction": clip_fraction, "kl_loss": kl_loss}

    def _critic_loss(self, micro_batch: Experience) -> dict[str, Any]:
        if self._models.critic is None:
            return {}
        values, mask = self._values(micro_batch.rollout), micro_batch.rollout.answer
        clip = self._options.value_clip
        return {"value_loss": losses.clipped_value_loss(values, micro_batch.values, micro_batch.returns, mask, clip)}

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
        """Return the critic's value of each answer token: its output at the token before, on the scale of rewards."""
        values = token_values(self._models.critic, rollout.ids, rollout.mask, self._machine)
        width = rollout.answer.shape[1]
        values = (values[:, -width - 1 : -1] - self._baseline.reward_mean) / self._baseline.reward_deviation
        return values * rollout.answer

    def _rewards(self, prompts: Sequence[Prompt], rollout: Rollout) -> Sequence[float]:
        rewards = self._models.reward.score(prompts, rollout.texts)
        if not all(math.isfinite(reward) for reward in rewards):
            raise UsageError("The reward model's score of an answer is not a number; check it, or train it again.")
        return rewards

    def _scaled(self, rewards: Sequence[float]) -> Any:
        """Return rewards in standard deviations of the reference's, saturated (a tensor)."""
        raw, limit = torch.tensor(rewards, device=self._machine.device), self._options.reward_range
        if not limit:
            return raw
        return limit * torch.tanh((raw - self._baseline.reward_mean) / self._baseline.reward_deviation / limit)
