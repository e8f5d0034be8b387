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
 2. Score the answers with `RewardModel.score`, on that scale. A truncated answer has the score of its text as it is.
 3. Token rewards r_t: the score at the last token, 0 elsewhere. With `kl_in` reward, less β·(log π − log π_ref).
 4. Advantages by GAE(γ, λ) from r and the critic's values V; returns are sums of rewards. Center the advantages over
    the batch, and scale them down if their SD is above 1.
 5. `ppo_epochs` times, in mini-batches: update the actor by max(−A·ρ, −A·clip(ρ, 1−ε, 1+ε)) with ρ = π/π_old, averaged
    over tokens, and the critic by half its squared error, with V clipped to within ± `value_clip` of V_old. With
    `kl_in` loss, add β times the estimate k3 of the KL, averaged over tokens. Clip both gradients to norm 1; AdamW.
The first `critic_warmup` steps update only the critic.

Training ends after `epochs` passes over the prompts (the paper: one). Before every checkpoint the actor answers some
held-out prompts that the reference has answered too. If its answers have drifted too far (`drift`), training ends, and
the weights are those of the checkpoint before. With `choose_by` they are those that a scorer likes best.

The paper names PPO, the batch size (here of an update), the learning rate and one epoch. The other values are ours. So
are these choices, without which a constant reward shortens the answers (tests/training/test_null_rewards.py):
 - λ is 1. Below 1, a critic that expects less than the reward gives the last token the largest advantage.
 - The KL is counted per token in the loss, whose gradient is that of KL(reference‖policy) of the next token. In the
   reward, as the paper's objective has it, it makes short answers cheap (`losses` says which KL each form lowers).
 - Advantages are not scaled up to an SD of 1, since that turns the noise of equal rewards into learning.
 - Truncated answers have the reward of their own text. A penalty would teach to be short wherever the limit is too
   low. Leaving them out would teach to be long: among answers that end, ends are more frequent than the policy makes
   them, and a critic that starts as the reward model expects more of late tokens than of early ones. As average
   answers they would teach nothing, whatever they say.

Variants (`algorithm`) differ in step 4. They have no critic: the return R of a token is the score, plus the KL rewards
from it on. Advantages are neither centered nor scaled (see `losses`):
 - `rloo`: R minus the mean R of the other answers to the prompt, at the same place.
 - `grpo`: R minus the mean R of all answers to the prompt, in standard deviations.
 - `remax`: R minus the score of the greedy answer.
Answers without an advantage, for example because all answers to the prompt earn the same, are left out of the update;
the metric `informative` is the share of the others.

The sampler computes in other kernels than the trainer. The metric `sampler_mismatch` is the mean |Δ log p| of a token.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from evenhand.benchmarks.opinions import opinion_scales
from evenhand.core import aio
from evenhand.core.errors import UsageError
from evenhand.core.events import event
from evenhand.core.lazy import no_grad, torch
from evenhand.core.progress import Count, ignore
from evenhand.core.types import Unscored
from evenhand.judging.scorers import QUALITIES
from evenhand.scorers.base import Scorer, Scores, load_scorer
from evenhand.training import data, drift, losses, models, stage
from evenhand.training.chat import Chat
from evenhand.training.data import Prompt
from evenhand.training.drift import Measures
from evenhand.training.loop import (
    BatchSampler,
    CheckpointCheck,
    Ended,
    Optimizer,
    Schedule,
    batches,
    read_metrics,
    step_seed,
    train,
)
from evenhand.training.models import Machine
from evenhand.training.options import PPOOptions
from evenhand.training.parallel import full_tensor
from evenhand.training.replicas import Answers, Load, RolloutReplicas, Sampling
from evenhand.training.reward import RewardModel, token_values
from evenhand.training.rollout import Rollout, SampleLog, logprobs_and_entropies, roll_out

if TYPE_CHECKING:
    from torch import Tensor

# --- the models of PPO: who they are, how they are loaded, and what they say of sampled answers ---


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
    critic = _critic_of(reward, options) if options.algorithm == "ppo" else None
    actor, chat = load_actor(options, machine)
    if critic is not None and chat.tokenizer.get_vocab() != reward.chat.tokenizer.get_vocab():
        # The critic reads the actor's tokens.
        raise UsageError("The policy and the reward model have different tokenizers; train both from one base model.")
    loaded = PPOModels(actor, models.frozen_reference(actor, options.lora), critic, reward)
    for model in (loaded.actor, loaded.reference, loaded.critic, reward.model):
        models.prepare(model, options, machine)
    return loaded, chat


def _critic_of(reward: RewardModel, options: PPOOptions) -> Any:
    critic = copy.deepcopy(reward.model)
    if options.lora is not None:
        return models.with_adapters(critic, options.lora, options.lora_layers, head=models.HEAD)
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

    def for_all(self, compute: Callable[[Rollout], tuple[Tensor, ...]], rollout: Rollout) -> tuple[Any, ...]:
        """Compute tensors for all answers: each process for its own rows, in micro-batches; then gather them."""
        team, count = self._machine.team, len(rollout.texts)
        chunks = stage.chunks(team.own_rows(count), self._options.answers_at_once)
        computed = [compute(rollout.select(rows)) for rows in chunks]
        return team.all_gather(count, *(torch.cat(each) for each in zip(*computed, strict=True)))

    def logprobs(self, policy: Any, rollout: Rollout) -> tuple[Tensor, Tensor]:
        return logprobs_and_entropies(policy, rollout, self._machine, self._options.temperature)

    def values(self, rollout: Rollout) -> Tensor:
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

    def scaled(self, rewards: Sequence[float]) -> Tensor:
        """Return rewards in standard deviations of the reference's, saturated."""
        raw, limit = torch.tensor(rewards, device=self._machine.device), self._options.reward_range
        if not limit:
            return raw
        return limit * torch.tanh((raw - self.baseline.reward_mean) / self.baseline.reward_deviation / limit)


# --- measures the reference before the first step, and the actor before every checkpoint, on the same prompts ---
# With `choose_by`, a scorer that training does not optimise rates these answers, so that the best checkpoint is kept.

_HIGHER_IS_BETTER = {*QUALITIES, *(scale.name for scale in opinion_scales() if scale.better == "higher")}


class Chooser:
    """Rates answers from 0 to 1, higher for the better ones."""

    def __init__(self, spec: str) -> None:
        self._spec = spec
        self._scorer: Scorer = load_scorer(spec)

    def rate(self, prompts: Sequence[Prompt], answers: Sequence[str]) -> float:
        """Return the mean rating. An empty answer has 0; what the scorer cannot score is left out."""
        contexts = [prompt[-1].content for prompt in prompts]
        found = aio.run_lasting(self._scorer.score(answers, contexts))
        ratings = [_rating(each, answer) for each, answer in zip(found, answers, strict=True)]
        rated = [rating for rating in ratings if rating is not None]
        if not rated:
            reason = next(each.reason for each in found if isinstance(each, Unscored))
            raise UsageError(f"The scorer {self._spec} scored no answer: {reason}.")
        return sum(rated) / len(rated)

    def close(self) -> None:
        aio.run_lasting(self._scorer.aclose())


def _rating(scores: Scores | Unscored, answer: str) -> float | None:
    """Return the mean of all scores, each turned so that higher is better."""
    if not answer.strip():
        return 0.0
    if isinstance(scores, Unscored):
        return None
    turned = [value if name in _HIGHER_IS_BETTER else 1 - value for name, value in scores.items()]
    return sum(turned) / len(turned)


REFERENCE = "reference.json"
_MEASURED = 64
"""Answers of the reference that give the scale of the rewards, and answers to held-out prompts before a checkpoint."""
_NO_DEVIATION = 1e-6
"""Smaller standard deviations are rounding."""


class CheckpointChecks:
    """The scale of the rewards, and how far the actor has drifted from the reference."""

    def __init__(
        self,
        options: PPOOptions,
        loaded: PPOModels,
        assessor: Assessor,
        machine: Machine,
        prompts: Sequence[Prompt],
        held_out: Sequence[Prompt],
        steps: int,
    ) -> None:
        """`steps` is the number of all steps of the training."""
        self._options, self._models, self._assessor, self._machine = options, loaded, assessor, machine
        self._prompts, self._held_out, self._steps = prompts, held_out, steps
        self.chooser: Chooser | None = None

    def measure_reference(self, *, resume: bool) -> None:
        """Measure the reference's answers, or read what was measured when the training began; warn if many are cut."""
        self._measure_reference(resume=resume)
        checked = self._assessor.baseline.checked
        assert checked is not None
        warning = drift.too_short(checked.unfinished, self._options.max_new_tokens)
        if warning and self._machine.team.is_main:
            event("training", warning, level=logging.WARNING)

    @no_grad
    def _measure_reference(self, *, resume: bool) -> None:
        o, team = self._options, self._machine.team
        path = o.out / REFERENCE
        if resume and path.is_file():
            stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            checked = Measures(**stored.pop("checked"))
            self._assessor.baseline = Baseline(**stored, checked=checked)
            return
        torch.manual_seed(step_seed(o.seed, self._steps))
        if o.reward_range:
            with self._models.as_reference() as reference:
                mean, deviation = self._reward_scale(reference)
            self._assessor.baseline = Baseline(mean, deviation)
        self._assessor.baseline = replace(self._assessor.baseline, checked=self._measured(self._models.as_reference))
        text = json.dumps(asdict(self._assessor.baseline), indent=2) + "\n"
        team.on_main(lambda: path.write_text(text, encoding="utf-8"))

    @no_grad
    def check(self, done: int) -> CheckpointCheck:
        """Measure the actor's answers to held-out prompts, for the training loop."""
        reference = self._assessor.baseline.checked
        assert reference is not None
        if done == 0:
            return CheckpointCheck(score=reference.score)
        measures = self._measured(lambda: contextlib.nullcontext(self._models.actor))
        breach = drift.breach(measures, reference, self._options) if self._options.drift_limits else None
        return CheckpointCheck(measures.as_metrics(), breach, measures.score)

    def _reward_scale(self, reference: Any) -> tuple[float, float]:
        """Return the mean and the standard deviation of the rewards of the reference's finished answers."""
        rewards: list[tuple[float, bool]] = []
        for chunk in self._measuring_chunks(self._prompts):
            rollout = self._assessor.roll_out(reference, chunk)
            rewards += zip(self._assessor.rewards(chunk, rollout), rollout.ended, strict=True)
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
                rollout = self._assessor.roll_out(policy, chunk)
                logprobs, entropies = self._assessor.for_all(
                    lambda part, p=policy: self._assessor.logprobs(p, part), rollout
                )
            with self._models.as_reference() as reference:
                references, _ = self._assessor.for_all(
                    lambda part, p=reference: self._assessor.logprobs(p, part), rollout
                )
            prompts += chunk
            texts += rollout.texts
            rewards += self._assessor.rewards(chunk, rollout)
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
        chooser = self.chooser
        return self._machine.team.on_main(lambda: None if chooser is None else chooser.rate(prompts, answers))


_NO_ADVANTAGE = 1e-6
"""Smaller advantages are rounding."""
_ADAPTATION = 0.2
"""The largest relative change of β after a step."""


def train_ppo(options: PPOOptions, *, resume: bool = False, observe: Count = ignore) -> dict[str, Any]:
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


@dataclass(frozen=True, slots=True)
class Experience:
    """A batch of answers with what the models computed before the first update (tensors, answers × tokens)."""

    rollout: Rollout
    logprobs: Tensor
    reference_logprobs: Tensor
    advantages: Tensor
    values: Any = None
    """None, like the returns, without a critic."""
    returns: Any = None

    def select(self, rows: Sequence[int]) -> Experience:
        """Return some of the answers."""
        tensors = (self.logprobs, self.reference_logprobs, self.advantages, self.values, self.returns)
        chosen: list[Any] = [None if each is None else each[list(rows)] for each in tensors]
        return Experience(self.rollout.select(rows), *chosen)


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
        self._sampler = BatchSampler(len(prompts), options.batch, options.seed)
        self._samples = SampleLog(options.out)
        self._steps = options.total_steps(len(prompts))
        self._assessor = Assessor(options, loaded, chat, machine)
        self.checks = CheckpointChecks(options, loaded, self._assessor, machine, prompts, held_out, self._steps)
        groups = [(models.trainable(loaded.actor, "actor."), options.lr)]
        if loaded.critic is not None:
            groups.append((models.trainable(loaded.critic, "critic."), options.critic_lr))
        schedule = Schedule.of(options, len(prompts))
        self.optimizer = Optimizer(groups, schedule, weight_decay=options.weight_decay, team=machine.team)
        self.optimizer.kept["kl_coefficient"] = torch.tensor(options.kl_coefficient, dtype=torch.float64)

    def train(self, run: stage.StageRun, *, resume: bool, observe: Count) -> tuple[Ended, dict[str, object]]:
        """Take all steps; return how the training ended and its results."""
        o = self._options
        arguments: dict[str, Any] = {"steps": self._steps, "seed": o.seed, "save_every": o.save_every}
        with contextlib.ExitStack() as stack:
            if o.choose_by and self._machine.team.is_main:
                self.checks.chooser = stack.enter_context(contextlib.closing(Chooser(o.choose_by)))
            if o.rollout_replicas and self._load and self._machine.team.is_main:
                made = RolloutReplicas(self._load, o.rollout_replicas, self._machine, o.staleness or 0)
                self._replicas = stack.enter_context(contextlib.closing(made))
            self.checks.measure_reference(resume=resume)
            ended = train(self, o.out, **arguments, observe=observe, check=self.checks.check)
        results: dict[str, Any] = {"prompts": len(self._prompts), "steps": self._steps, "kept_step": ended.step}
        results |= {"held_out_prompts": len(self._held_out)} if self._held_out else {}
        for metric in ("reward", "informative", "missing_eos", "kl", "length"):
            results |= run.first_and_last(metric, ended.step)
        lines = {line["step"]: line for line in read_metrics(o.out)}
        checked = self._assessor.baseline.checked
        results |= {"reference_unfinished": checked.unfinished} if checked else {}
        before = checked.as_metrics() if checked else {}
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

    @no_grad
    def _experience(self, number: int, prompts: Sequence[Prompt]) -> tuple[Experience, dict[str, float]]:
        """Do steps 1 to 4; return the experience and its metrics."""
        o = self._options
        repeated = self._repeated(prompts)
        started = time.perf_counter()
        answers = self._from_replicas(number) if o.rollout_replicas and self._load else None
        rollout = answers.rollout if answers else self._assessor.roll_out(self._models.actor, repeated)
        seconds = time.perf_counter() - started
        mask = rollout.answer
        rewards = self._assessor.rewards(repeated, rollout)
        logprobs, entropies = self._assessor.for_all(
            lambda part: self._assessor.logprobs(self._models.actor, part), rollout
        )
        with self._models.as_reference() as reference:
            reference_logprobs, _ = self._assessor.for_all(
                lambda part: self._assessor.logprobs(reference, part), rollout
            )
        divergences = ((logprobs - reference_logprobs) * mask).sum(1)
        kl_coefficient = 0.0 if o.kl_in == "loss" else self._kl_coefficient
        scores = self._assessor.scaled(rewards)
        penalties = losses.kl_rewards(logprobs, reference_logprobs, mask, kl_coefficient)
        old = rollout.logprobs if answers and answers.staleness else logprobs
        advantages, *learned = self._advantages(prompts, rollout, scores, penalties)
        if o.importance_cap is not None:
            advantages = advantages * (old - rollout.logprobs).exp().clamp(max=o.importance_cap)
        experience = Experience(rollout, old, reference_logprobs, advantages, *learned)
        metrics = {
            "reward": sum(rewards) / len(rewards),
            "kl": divergences.mean(),
            "kl_per_token": divergences.sum() / mask.sum(),
            "entropy": losses.masked_mean(entropies, mask),
            "missing_eos": 1 - sum(rollout.ended) / len(rollout.ended),
            "openings": drift.most_frequent_opening(rollout.texts),
            "length": mask.sum(1).mean(),
            "tokens": mask.sum(),
            "sampler_mismatch": losses.masked_mean((logprobs - rollout.logprobs).abs(), mask),
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
        how = Sampling(o.max_new_tokens, o.temperature)

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
        return replace(answers, rollout=answers.rollout.to(device))

    def _advantages(
        self, prompts: Sequence[Prompt], rollout: Rollout, scores: Tensor, penalties: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Do step 4: return the advantages and, with a critic, its values and the returns it should predict."""
        o, mask = self._options, rollout.answer
        if self._models.critic is not None:
            rewards = losses.with_scores(penalties, scores, mask)
            (values,) = self._assessor.for_all(lambda part: (self._assessor.values(part),), rollout)
            advantages = losses.gae(rewards, values, mask, gamma=o.gamma, lam=o.lam)
            advantages = losses.centered(advantages, mask)
            return advantages, values, losses.returns(rewards, mask, gamma=o.gamma)
        returns = scores[:, None] + losses.returns(penalties, mask, gamma=o.gamma)
        if o.algorithm == "remax":
            greedy = self._assessor.roll_out(self._models.actor, prompts, temperature=0)
            baseline = self._assessor.scaled(self._assessor.rewards(prompts, greedy))
            advantages = losses.over_greedy(returns, baseline[:, None])
        else:
            estimate = losses.leave_one_out if o.algorithm == "rloo" else losses.group_normalized
            advantages = estimate(returns, o.answers_per_prompt)
        return advantages * mask, None, None

    def _informative(self, experience: Experience) -> list[int]:
        """Return the answers to learn from: without a critic, those that have an advantage."""
        if self._models.critic is not None:
            return list(range(len(experience.advantages)))
        has_advantage = (experience.advantages.abs() > _NO_ADVANTAGE).any(1).cpu()
        return [number for number, has in enumerate(has_advantage) if has]

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
            loss: Any = sum(value for name, value in measures.items() if name.endswith("_loss"))
            (loss * share).backward()
            for name, value in measures.items():
                metrics[name] = metrics.get(name, 0.0) + (value.detach() * share).item()
        metrics = dict(zip(metrics, team.all_sum(*metrics.values()), strict=True))
        return {**metrics, "grad_norm": self.optimizer.update()}

    def _actor_losses(self, micro_batch: Experience) -> dict[str, Tensor]:
        mask = micro_batch.rollout.answer
        logprobs, _ = self._assessor.logprobs(self._models.actor, micro_batch.rollout)
        loss, clip_fraction = losses.clipped_policy_loss(
            logprobs, micro_batch.logprobs, micro_batch.advantages, mask, self._options.clip
        )
        if self._options.kl_in == "reward":
            return {"policy_loss": loss, "clip_fraction": clip_fraction}
        estimates = losses.kl_estimates(logprobs, micro_batch.reference_logprobs)
        kl_loss = self._kl_coefficient * losses.masked_mean(estimates, mask)
        return {"policy_loss": loss, "clip_fraction": clip_fraction, "kl_loss": kl_loss}

    def _critic_loss(self, micro_batch: Experience) -> dict[str, Tensor]:
        if self._models.critic is None:
            return {}
        values, mask = self._assessor.values(micro_batch.rollout), micro_batch.rollout.answer
        clip = self._options.value_clip
        return {"value_loss": losses.clipped_value_loss(values, micro_batch.values, micro_batch.returns, mask, clip)}
